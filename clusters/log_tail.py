"""One partition of a small topic, read up to its end again and again: connections stay from one read to the next.

`clusters.control_records.read_control_log` connects anew at every call, which costs more than the few records that a
tail holds.
"""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as WirePartition

from watershed.clusters import librdkafka
from watershed.clusters.admin import Admin
from watershed.clusters.control_records import ControlRecord, decode_control_record
from watershed.clusters.librdkafka import LibrdkafkaErrors
from watershed.clusters.partition_consumer import build_partition_consumer, is_group_error
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition


class LogTail:
    """Not thread-safe. timeout: seconds that bound each wait for progress."""

    def __init__(self, settings: ConnectionSettings, topic: str, partition: int = 0, *, timeout: float = 15.0) -> None:
        self.settings, self.place, self.timeout = settings, TopicPartition(topic, partition), timeout
        self._admin: Admin | None = None
        self._consumer: Consumer | None = None
        self._next = -1  # offset of the next record that the consumer brings
        self.begins = self.ends = 0  # the log's start and end, as they were at the latest read
        self._complaints = LibrdkafkaErrors()

    def read(self, from_offset: int) -> list[ControlRecord]:
        """Every committed record from `from_offset` up to the end at the time of the call, in order; also those that
        are none of ours, which have a `why`.

        Raises `TopicMissing`, `Unreachable`.
        """
        return [decode_control_record(message) for message in self.read_stored(from_offset)]

    def read_stored(self, from_offset: int) -> list[Message]:
        """As `read`, without decoding. Raises the same."""
        if self._admin is None:
            self._admin = Admin(self.settings, timeout=self.timeout)
        span = self._admin.offsets([self.place], "read_committed")[self.place]
        self.begins, self.ends = span.start, span.end
        start = max(span.start, from_offset)
        if start >= span.end:
            return []
        try:
            return self._read(start, span.end)
        except BaseException:
            self.close()  # what it would bring next is not known any more
            raise

    def close(self) -> None:
        """It may be read again afterwards, and connects anew."""
        consumer, self._consumer, self._next = self._consumer, None, -1
        if consumer is not None:
            consumer.close()
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()

    def _read(self, start: int, end: int) -> list[Message]:
        consumer = self._at(start)
        found: list[Message] = []
        deadline = time.monotonic() + self.timeout
        while self._next < end:
            message = consumer.poll(0.5)
            if message is None:
                if time.monotonic() > deadline:
                    raise self._error(KafkaError(KafkaError._TIMED_OUT, f"nothing for {self.timeout:g} s"))
                continue
            deadline = time.monotonic() + self.timeout
            problem, offset = message.error(), message.offset() or 0
            if problem is None:
                self._next = offset + 1
                found.append(message)
            elif problem.code() == KafkaError._PARTITION_EOF:
                self._next = max(self._next, offset)  # markers at the end bring nothing
            elif not is_group_error(problem):
                raise self._error(problem)
        return found

    def _at(self, start: int) -> Consumer:
        """The consumer that brings `start` next."""
        if self._consumer is None:
            self._consumer = build_partition_consumer(self.settings, {"error_cb": self._complaints})
        if start != self._next:
            try:
                self._consumer.assign([WirePartition(*self.place, start)])
            except KafkaException as error:
                raise self._error(librdkafka.extract_kafka_error(error)) from None
            self._next = start
        return self._consumer

    def _error(self, problem: KafkaError) -> Exception:
        topic, partition = self.place
        return librdkafka.build_cluster_error(
            self.settings, problem, self._complaints, doing=f"reading {topic}", topic=topic, partition=partition
        )
