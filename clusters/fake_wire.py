"""A connection to a `FakeCluster`: the `Wire` protocol, answered by the logs in memory."""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import Protocol

from watershed.clusters.cluster_protocol import TopicDescription
from watershed.clusters.errors import ClusterError, ProtocolError, TopicMissing
from watershed.clusters.fake_log import PartitionLog
from watershed.clusters.fake_transactions import CoordinatorHost, FakeCoordinator
from watershed.clusters.record_batch import ABORT, build_marker_batch, split_batches
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.alignment_requests import MAX_MARKERS_PER_REQUEST
from watershed.clusters.wire.error_codes import (
    CLUSTER_AUTHORIZATION_FAILED,
    INVALID_PRODUCER_EPOCH,
    NONE,
    OFFSET_OUT_OF_RANGE,
    POLICY_VIOLATION,
    TRANSACTION_COORDINATOR_FENCED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from watershed.clusters.wire.fetch_session import FetchSession
from watershed.clusters.wire.messages import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    ClusterMetadata,
    FetchedPartition,
    FetchPartition,
    OffsetAnswer,
    PartitionLeader,
    ProducedPartition,
    ProducePartition,
    ProducerState,
    TopicMetadata,
)
from watershed.clusters.wire.transaction_requests import ProducerIdAndEpoch
from watershed.clusters.wire.versions import Api, ApiVersions

_NODE = 1
_session_ids = count(1)


class FakeBroker(CoordinatorHost, Protocol):
    """What a connection needs of its cluster in memory. changed: notified after every write, and its lock."""

    settings: ConnectionSettings
    coordinator: FakeCoordinator
    changed: threading.Condition
    up: bool
    may_alter: bool
    newest_fetch: int
    describes_producers: bool

    def cluster_id(self) -> str:
        """Returns the id that the brokers answer."""
        ...

    def topics(self) -> dict[str, TopicDescription]:
        """Returns the topics by name."""
        ...

    def log(self, topic: str, partition: int) -> PartitionLog:
        """Returns the log of a partition. Raises `TopicMissing`."""
        ...


class FakeWire:
    """A broker handles one connection's requests in order; so does this one, at the time they are sent."""

    throttle_ms = 0

    def __init__(self, cluster: FakeBroker) -> None:
        self._cluster = cluster
        self._answers: deque[list[ProducedPartition]] = deque()
        self._sessions: dict[int, dict[tuple[uuid.UUID, int], tuple[FetchPartition, tuple[int, int] | None]]] = {}
        self._lost = False

    @property
    def alias(self) -> str:
        """Of the cluster in memory."""
        return self._cluster.settings.alias

    def metadata(self, topics: tuple[str, ...] | None = None) -> ClusterMetadata:
        """Answers with one broker, which leads every partition; an unknown topic has an error code."""
        self._check()
        existing = self._cluster.topics()
        found = []
        for name in sorted(existing) if topics is None else topics:
            topic = existing.get(name)
            if topic is None:
                found.append(TopicMetadata(name, uuid.UUID(int=0), (), UNKNOWN_TOPIC_OR_PARTITION))
                continue
            leaders = tuple(
                PartitionLeader(number, _NODE, self._cluster.log(name, number).leader_epoch)
                for number in range(topic.partitions)
            )
            found.append(TopicMetadata(name, topic.topic_id, leaders))
        host = self._cluster.settings.alias
        return ClusterMetadata(self._cluster.cluster_id(), {_NODE: (host, 9092)}, tuple(found))

    def fetch(
        self,
        asked: tuple[FetchPartition, ...] | FetchSession,
        *,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 32 << 20,
        isolation: int = READ_COMMITTED,
        rack: str = "",
    ) -> list[FetchedPartition]:
        """Waits for `min_bytes`, at most `max_wait_ms`; an error or a divergence is answered at once. Nothing is known
        of racks: its one broker serves every reader."""
        if not isinstance(asked, FetchSession):
            return self._fetch(asked, max_wait_ms, min_bytes, max_bytes, isolation)
        question = asked.build_question()
        if question.epoch > 0 and question.id not in self._sessions:
            asked.begin_anew(forgotten=True)
            question = asked.build_question()
        if question.epoch == 0:
            self._sessions = {number: known for number, known in self._sessions.items() if number != question.id}
            question = replace(question, id=next(_session_ids))
        held = self._sessions.setdefault(question.id, {})
        for place in question.forgotten:
            del held[place]
        for each in question.partitions:
            held[each.topic_id, each.partition] = (each, held.get((each.topic_id, each.partition), (each, None))[1])
        parts = tuple(each for each, _told in held.values())
        told = []
        for answer in self._fetch(parts, max_wait_ms, min_bytes, max_bytes, isolation):
            part, before = held[answer.topic_id, answer.partition]
            now = None if answer.error else (answer.high_watermark, answer.log_start)
            held[answer.topic_id, answer.partition] = (part, now)
            if answer.records or answer.error or answer.diverging_epoch or now != before:
                told.append(answer)
        asked.take_answer(question.id)
        return told

    def _fetch(
        self, partitions: tuple[FetchPartition, ...], max_wait_ms: int, min_bytes: int, max_bytes: int, isolation: int
    ) -> list[FetchedPartition]:
        deadline = time.monotonic() + max_wait_ms / 1000
        with self._cluster.changed:
            while True:
                self._check()
                answers = self._fetched(partitions, max_bytes, isolation == READ_COMMITTED)
                size = sum(len(answer.records) for answer in answers)
                left = deadline - time.monotonic()
                if size >= min_bytes or left <= 0 or any(a.error or a.diverging_epoch for a in answers):
                    return answers
                self._cluster.changed.wait(left)

    def send_produce(
        self,
        partitions: tuple[ProducePartition, ...],
        *,
        timeout_ms: int = 30_000,
        transactional_id: str | None = None,
    ) -> None:
        """Appends at once; the answer waits for `receive_produce`."""
        self._check()
        kept = {(entry.topic_id, entry.partition): b"".join(entry.batch) for entry in partitions}
        with self._cluster.changed:
            self._answers.append(self._produced(kept, transactional_id))
            self._cluster.changed.notify_all()

    def receive_produce(self) -> list[ProducedPartition]:
        """Returns the answer to the oldest Produce. Raises ProtocolError when none is unanswered."""
        self._check()
        if not self._answers:
            raise ProtocolError("no Produce of this connection is unanswered", alias=self._cluster.settings.alias)
        return self._answers.popleft()

    def list_offsets(
        self,
        partitions: tuple[tuple[str, int], ...],
        timestamp: int,
        *,
        isolation: int = READ_UNCOMMITTED,
        unreplicated: bool = False,
    ) -> list[OffsetAnswer]:
        """Answers EARLIEST, LATEST (by isolation) and timestamps from the logs. Nothing waits for followers here, so
        nothing is unreplicated."""
        self._check()
        answers = []
        for topic, number in partitions:
            try:
                log = self._cluster.log(topic, number)
            except TopicMissing:
                answers.append(OffsetAnswer(topic, number, UNKNOWN_TOPIC_OR_PARTITION, -1))
                continue
            if timestamp == EARLIEST:
                offset = log.log_start
            elif timestamp == LATEST:
                offset = log.last_stable() if isolation == READ_COMMITTED else log.end
            else:
                offset = log.offset_for(timestamp)
            answers.append(OffsetAnswer(topic, number, NONE, offset, -1 if offset < 0 else log.leader_epoch))
        return answers

    def describe_producers(self, topic: str, partition: int) -> tuple[int, list[ProducerState]]:
        """Returns (error code, states) of one partition. Raises RequestUnsupported as brokers below 2.8 cause it."""
        self._check()
        if not self._cluster.describes_producers:
            ApiVersions(self._cluster.settings.alias, "fake").pick(Api.DESCRIBE_PRODUCERS)
        try:
            return NONE, self._cluster.log(topic, partition).producers.describe()
        except TopicMissing:
            return UNKNOWN_TOPIC_OR_PARTITION, []

    def describe_producers_of(
        self, partitions: tuple[tuple[str, int], ...]
    ) -> dict[tuple[str, int], tuple[int, list[ProducerState]]]:
        """As `describe_producers`, by (topic, partition)."""
        return {(topic, partition): self.describe_producers(topic, partition) for topic, partition in partitions}

    def issue_producer_id(self) -> int:
        """Returns a producer id that nobody had before."""
        self._check()
        return self._cluster.issue_producer_id()

    def find_coordinator(self, transactional_id: str) -> tuple[int, tuple[str, int]]:
        """The one broker coordinates every transactional id."""
        self._check()
        return NONE, (self._cluster.settings.alias, 9092)

    def init_producer(self, transactional_id: str, timeout_ms: int) -> tuple[int, ProducerIdAndEpoch]:
        """Fences the id's earlier producer and aborts its open transaction."""
        self._check()
        with self._cluster.changed:
            return self._cluster.coordinator.init(transactional_id)

    def add_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: tuple[tuple[str, int], ...]
    ) -> dict[tuple[str, int], int]:
        """Returns the error code by (topic, partition)."""
        self._check()
        with self._cluster.changed:
            ids = {name: topic.topic_id for name, topic in self._cluster.topics().items()}
            return {
                (topic, number): self._cluster.coordinator.add(transactional_id, producer, (ids[topic], number))
                if topic in ids
                else UNKNOWN_TOPIC_OR_PARTITION
                for topic, number in partitions
            }

    def end_transaction(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool, bump: bool
    ) -> tuple[int, ProducerIdAndEpoch]:
        """Writes the markers at once. Returns (error, who writes the next transaction)."""
        self._check()
        with self._cluster.changed:
            answer = self._cluster.coordinator.end(transactional_id, producer, commit, bump)
            self._cluster.changed.notify_all()
            return answer

    def delete_records(self, topic: str, partition: int, before: int, timeout_ms: int = 30_000) -> tuple[int, int]:
        """Returns (error, log start); -1 deletes up to the log end."""
        self._check()
        with self._cluster.changed:
            try:
                log = self._cluster.log(topic, partition)
            except TopicMissing:
                return UNKNOWN_TOPIC_OR_PARTITION, -1
            if "delete" not in log.config("cleanup.policy"):
                return POLICY_VIOLATION, -1
            if before > log.end or before < -1:
                return OFFSET_OUT_OF_RANGE, -1
            log.delete_records(log.end if before == -1 else before)
            self._cluster.changed.notify_all()
            return NONE, log.log_start

    def knows(self, api_key: int, version: int) -> bool:
        """Whether it takes this version: every one but those that its cluster is too old for."""
        if api_key == Api.DESCRIBE_PRODUCERS:
            return self._cluster.describes_producers
        return api_key != Api.FETCH or version <= self._cluster.newest_fetch

    def find_epoch_ends(self, asked: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], tuple[int, int, int]]:
        """(topic, partition) → (error, epoch, its end in the log), of topics that exist."""
        self._check()
        return {place: (0, *self._cluster.log(*place).find_epoch_end(epoch)) for place, epoch in asked.items()}

    def end_of_epoch(self, topic: str, partition: int, leader_epoch: int) -> tuple[int, int]:
        """Returns (error, log end), whatever the epoch."""
        self._check()
        try:
            return 0, self._cluster.log(topic, partition).end
        except TopicMissing:
            return UNKNOWN_TOPIC_OR_PARTITION, -1

    def write_markers(
        self, topic: str, partition: int, producer: ProducerIdAndEpoch, count: int, coordinator_epoch: int = 0
    ) -> int:
        """Appends abort markers after the broker's checks of rights and epochs. Returns the error code."""
        self._check()
        if not 0 < count <= MAX_MARKERS_PER_REQUEST:
            raise ValueError(f"{count} markers: a request takes 1 to {MAX_MARKERS_PER_REQUEST}")
        if not self._cluster.may_alter:
            return CLUSTER_AUTHORIZATION_FAILED
        with self._cluster.changed:
            try:
                log = self._cluster.log(topic, partition)
            except TopicMissing:
                return UNKNOWN_TOPIC_OR_PARTITION
            if any(
                state.producer_id == producer.producer_id and state.epoch > producer.epoch
                for state in log.producers.describe()
            ):
                return INVALID_PRODUCER_EPOCH
            if log.coordinators.get(producer.producer_id, 0) > coordinator_epoch:
                return TRANSACTION_COORDINATOR_FENCED
            log.coordinators[producer.producer_id] = coordinator_epoch
            now = self._cluster.clock()
            for _ in range(count):
                log.write(build_marker_batch(producer.producer_id, producer.epoch, ABORT, now, coordinator_epoch), now)
            self._cluster.changed.notify_all()
            return NONE

    def cut(self) -> None:
        """Lose the connection, as a network does: unanswered requests may have been executed."""
        self._lost = True

    def close(self) -> None:
        """Every later request on this connection raises Unreachable."""
        self._lost = True

    def _check(self) -> None:
        if not self._cluster.up:
            self._lost = True
        if self._lost:
            raise self._gone()

    def _gone(self) -> ClusterError:
        return self._cluster.settings.unreachable("the connection was lost")

    def _fetched(
        self, partitions: tuple[FetchPartition, ...], max_bytes: int, committed: bool
    ) -> list[FetchedPartition]:
        answers: list[FetchedPartition] = []
        left, empty_so_far = max_bytes, True
        for asked in partitions:
            log = self._cluster.log_by_id(asked.topic_id, asked.partition)
            if log is None:
                answers.append(_failed(asked, UNKNOWN_TOPIC_ID))
                continue
            diverging = None
            if asked.last_epoch >= 0 and asked.offset >= log.log_start:  # looked at before the end (Partition.scala)
                diverging = log.diverging(asked.offset, asked.last_epoch)
            if diverging is None and not log.log_start <= asked.offset <= log.end:
                answers.append(_failed(asked, OFFSET_OUT_OF_RANGE, log))
                continue
            limit = min(asked.max_bytes, left)
            data, until = (
                (b"", asked.offset)
                if diverging is not None
                else log.read(asked.offset, max(limit, 0), committed, empty_so_far)
            )
            left -= len(data)
            empty_so_far = empty_so_far and not data
            answers.append(
                FetchedPartition(
                    asked.topic_id,
                    asked.partition,
                    NONE,
                    log.end,
                    log.last_stable(),
                    log.log_start,
                    memoryview(data),
                    log.aborted_in(asked.offset, until) if committed else (),
                    diverging,
                )
            )
        return answers

    def _produced(
        self, kept: dict[tuple[uuid.UUID, int], bytes], transactional_id: str | None
    ) -> list[ProducedPartition]:
        if transactional_id is None and any(_is_transactional(data) for data in kept.values()):
            # Without a transactional id the broker refuses the whole request.
            return [
                ProducedPartition(topic_id, number, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1, -1)
                for topic_id, number in kept
            ]
        answers = []
        for (topic_id, number), data in kept.items():
            log = self._cluster.log_by_id(topic_id, number)
            if log is None:
                answers.append(ProducedPartition(topic_id, number, UNKNOWN_TOPIC_ID, -1, -1))
                continue
            if transactional_id is not None and _is_transactional(data):
                place = (topic_id, number)
                error, base, message = self._cluster.coordinator.append(transactional_id, place, log, data)
            else:
                error, base, message = log.append(data, self._cluster.clock())
            log_start = -1 if error else log.log_start
            stamps = not error and log.config("message.timestamp.type") == "LogAppendTime"
            append_time = self._cluster.clock() if stamps else -1
            answers.append(
                ProducedPartition(topic_id, number, error, base, log_start, message, append_time=append_time)
            )
        return answers


def _failed(asked: FetchPartition, error: int, log: PartitionLog | None = None) -> FetchedPartition:
    """An out-of-range answer still tells the log's start and ends; others know nothing (-1)."""
    ends = (-1, -1, -1) if log is None else (log.end, log.last_stable(), log.log_start)
    return FetchedPartition(asked.topic_id, asked.partition, error, *ends, memoryview(b""))


def _is_transactional(data: bytes) -> bool:
    try:
        return any(found.is_transactional for found, _ in split_batches(data))
    except ProtocolError:
        return False
