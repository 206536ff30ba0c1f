"""A consumer of the rehearsal: a group of one member that commits what it has read, by hand, and ends where it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from watershed.clusters import librdkafka
from watershed.clusters.settings import ConnectionSettings
from watershed.cutover.drill.record_tally import RecordTally

_COMMIT_S = 0.5
_CLOSE_COMMIT_S = 30.0
_ANSWER_S = 15.0
_Positions = dict[tuple[str, int], int]


@dataclass(slots=True)
class DrillConsumer:
    """One client's life at one cluster, in a thread of its own. topics: name there → topic of the wave.
    begins: it is the group's first, and commits the beginning of every partition. joined: it has partitions."""

    group: str
    settings: ConnectionSettings
    topics: Mapping[str, str]
    tally: RecordTally
    begins: bool
    stopping: threading.Event
    joined: threading.Event = field(default_factory=threading.Event)
    failure: str = ""

    def run(self) -> None:
        """Reads until it is told to stop; an error ends the thread and is kept in `failure`."""
        try:
            consumer = Consumer(self._configuration())
            try:
                if self.begins:
                    self._commit_beginnings(consumer)
                self._read(consumer)
            finally:
                consumer.close()
        except KafkaException as error:
            self.failure = librdkafka.extract_kafka_error(error).str()
        except Exception as error:  # noqa: BLE001  whoever looks at the application is told
            self.failure = f"{type(error).__name__}: {error}"

    def _read(self, consumer: Consumer) -> None:
        """Offsets are committed before partitions are given back, so that nobody reads a record again."""
        positions: _Positions = {}

        def assigned(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
            if partitions:
                self.joined.set()

        def revoked(_consumer: Consumer, _partitions: list[TopicPartition]) -> None:
            _commit(consumer, positions)

        consumer.subscribe(list(self.topics), on_assign=assigned, on_revoke=revoked)
        committed = time.monotonic()
        while not self.stopping.is_set() and not self.failure:
            for message in consumer.consume(500, 0.1):
                self._take(message, positions)
            if time.monotonic() - committed > _COMMIT_S:
                _commit(consumer, positions)
                committed = time.monotonic()
        deadline = time.monotonic() + _CLOSE_COMMIT_S
        while not _commit(consumer, positions):
            if time.monotonic() > deadline:
                self.failure = self.failure or f"its last offsets could not be committed in {_CLOSE_COMMIT_S:g} s"
                return
            time.sleep(0.1)

    def _take(self, message: Message, positions: _Positions) -> None:
        error, topic, partition = message.error(), message.topic() or "", message.partition() or 0
        if error is None:
            self.tally.read(self.group, self.topics[topic], _bytes(message.key()), _bytes(message.value()))
            positions[topic, partition] = (message.offset() or 0) + 1
        elif error.fatal() or error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.TOPIC_AUTHORIZATION_FAILED,
                                               KafkaError.GROUP_AUTHORIZATION_FAILED):  # fmt: skip
            self.failure = f"{topic}-{partition}: {error.str()}"

    def _commit_beginnings(self, consumer: Consumer) -> None:
        for topic in self.topics:
            partitions = consumer.list_topics(topic, timeout=_ANSWER_S).topics[topic].partitions
            places = [TopicPartition(topic, number) for number in partitions]
            lows = [consumer.get_watermark_offsets(place, timeout=_ANSWER_S)[0] for place in places]
            found = [TopicPartition(topic, p.partition, low) for p, low in zip(places, lows, strict=True)]
            consumer.commit(offsets=found, asynchronous=False)

    def _configuration(self) -> dict[str, object]:
        return self.settings.librdkafka(
            {
                "client.id": self.group,
                "group.id": self.group,
                "partition.assignment.strategy": "cooperative-sticky",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",  # a position that is not there is a finding, not a reason to guess
                "isolation.level": "read_committed",
                "queued.max.messages.kbytes": 16384,
            }
        )


def _commit(consumer: Consumer, positions: _Positions) -> bool:
    """Whether everything read so far is committed now; else it is tried again."""
    offsets = [TopicPartition(topic, partition, at) for (topic, partition), at in positions.items()]
    if not offsets:
        return True
    try:
        answer = consumer.commit(offsets=offsets, asynchronous=False) or []
    except KafkaException:
        return False
    if any(each.error is not None for each in answer):
        return False
    positions.clear()
    return True


def _bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content
