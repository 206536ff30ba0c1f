"""A consumer that reads the partitions it is given from the offsets it is given, and joins no group."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError

from clusters.settings import ConnectionSettings


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


def is_group_error(problem: KafkaError) -> bool:
    """Whether it may be passed over: librdkafka looks for a coordinator although no group is joined, and is refused
    where the user has no right to it. None is needed for reading."""
    return problem.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
