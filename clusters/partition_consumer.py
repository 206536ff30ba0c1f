"""A consumer that reads the partitions it is given from the offsets it is given, and joins no group."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError

from watershed.clusters.settings import ConnectionSettings

_READ_AHEAD: Final = 1 << 20  # bytes
_SMALLEST_FETCH: Final = 16 << 10


def build_partition_consumer(settings: ConnectionSettings, more: Mapping[str, Any] | None = None) -> Consumer:
    """Committed records only, an event at the end of each partition, and an error where an offset is not there.
    `more` overrides. Raises SecretMissing and the like; connects to nothing yet."""
    return Consumer(
        settings.librdkafka(
            {
                "group.id": f"watershed-reader-{uuid.uuid4()}",  # required by librdkafka, never joined
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                **(more or {}),
            }
        )
    )


def bound_read_ahead(partitions: int) -> dict[str, int]:
    """Settings of a consumer that reads so many partitions, so that it holds some 2 MiB beside what it hands over.

    The client library reads ahead by up to 64 MiB and 1 MiB a partition (`queued.max.messages.kbytes`,
    `max.partition.fetch.bytes`), and the process keeps that memory: 170 MiB after a log of 110. With 1 MiB under way it
    reads 10 MB/s where an answer takes 100 ms. A larger record comes all the same (KIP-74).
    """
    return {
        "queued.max.messages.kbytes": _READ_AHEAD >> 10,
        "max.partition.fetch.bytes": max(_READ_AHEAD // max(partitions, 1), _SMALLEST_FETCH),
        "fetch.queue.backoff.ms": 5,  # a second by itself, each time that so much is there
    }


def is_group_error(problem: KafkaError) -> bool:
    """Whether it may be passed over: librdkafka looks for a coordinator although no group is joined, and is refused
    where the user has no right to it. None is needed for reading."""
    return problem.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
