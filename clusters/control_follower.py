"""The control topics of one cluster as they grow, for a reader that stays: everything once, then what is new.

`clusters.control_records.read_latest_values` reads a topic from its start at every call; a page that is looked at all
day cannot. Records come as bytes: of a status topic most are replaced by newer ones before anybody needs to parse them.
"""

from __future__ import annotations

from types import TracebackType
from typing import NamedTuple, Self

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException
from confluent_kafka import TopicPartition as WirePartition

from watershed.clusters import librdkafka
from watershed.clusters.control_topics import FLOWS_TOPIC, JOURNAL_TOPIC, SLOT_COUNT, STATUS_TOPIC
from watershed.clusters.librdkafka import UNKNOWN_TOPIC_CODES, LibrdkafkaErrors
from watershed.clusters.partition_consumer import build_partition_consumer, is_group_error
from watershed.clusters.settings import ConnectionSettings

_FOLLOWED = {FLOWS_TOPIC: 1, STATUS_TOPIC: SLOT_COUNT, JOURNAL_TOPIC: 1}  # partitions
_AT_ONCE = 5_000  # records of one call


class FollowedRecord(NamedTuple):
    """A record; payload None is a tombstone."""

    topic: str
    offset: int
    key: str
    payload: bytes | None


class ControlFollower:
    """Not thread-safe. `complete`: what stood there when the reading began has been read, or there is nothing to read.

    After a ClusterError of `read` nothing more comes: close it and begin anew, with an empty view.
    """

    def __init__(self, settings: ConnectionSettings) -> None:
        """Raises SecretMissing and the like; connects to nothing yet."""
        self.settings = settings
        self._complaints = LibrdkafkaErrors()
        self._waiting: set[tuple[str, int]] | None = None  # partitions whose end was not reached; None: not assigned
        self._empty = False
        self._consumer = build_partition_consumer(
            settings, {"queued.max.messages.kbytes": 4096, "error_cb": self._complaints}
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def complete(self) -> bool:
        """Whether every record that stood there at the first `ask` has been read."""
        return self._empty if self._waiting is None else not self._waiting

    def ask(self, timeout: float) -> None:
        """Have the cluster answer within so many seconds, and begin to follow as soon as its control topics are there.

        Raises ClusterError.
        """
        try:
            topic = self._consumer.list_topics(JOURNAL_TOPIC, timeout=timeout).topics[
                JOURNAL_TOPIC
            ]  # the last to be created
        except KafkaException as error:
            self._consumer.poll(0)  # has the client say why, to `_complaints`
            raise self._error(librdkafka.extract_kafka_error(error), JOURNAL_TOPIC) from None
        if topic.error is None:
            if self._waiting is None:
                places = [(name, number) for name, count in _FOLLOWED.items() for number in range(count)]
                self._consumer.assign([WirePartition(*place, OFFSET_BEGINNING) for place in places])
                self._waiting = set(places)
        elif topic.error.code() not in UNKNOWN_TOPIC_CODES or self._waiting is not None:
            raise self._error(topic.error, JOURNAL_TOPIC)
        else:
            self._empty = True

    def read(self, wait: float) -> list[FollowedRecord]:
        """What has come, after at most `wait` seconds and so many records. Raises ClusterError."""
        found = []
        try:
            messages = self._consumer.consume(_AT_ONCE, timeout=wait)
        except KafkaException as error:
            raise self._error(librdkafka.extract_kafka_error(error), STATUS_TOPIC) from None
        for message in messages:
            topic, problem = message.topic() or "", message.error()
            if problem is None:
                payload = message.value()
                key = (message.key() or b"").decode(errors="replace")
                found.append(FollowedRecord(topic, message.offset() or 0, key, payload))
            elif problem.code() == KafkaError._PARTITION_EOF:
                if self._waiting is not None:
                    self._waiting.discard((topic, message.partition() or 0))
            elif not is_group_error(problem):
                raise self._error(problem, topic)
        return found

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _error(self, problem: KafkaError, topic: str) -> Exception:
        return librdkafka.build_cluster_error(
            self.settings, problem, self._complaints, doing=f"reading {topic or STATUS_TOPIC}", topic=topic or None
        )
