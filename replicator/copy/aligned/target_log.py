"""The log of one target partition, as alignment sees it: who leads it, where it begins and ends, what stands in it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeVar

from watershed.clusters.cluster_protocol import LogRange
from watershed.clusters.errors import (
    ClusterError,
    ProtocolError,
    RequestRefused,
    TopicMissing,
    Unanswered,
    Unauthorised,
)
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.alignment_requests import AlignmentWire
from watershed.clusters.wire.answered_fetch import fetch_one
from watershed.clusters.wire.connection import open_connection
from watershed.clusters.wire.messages import EARLIEST, LATEST, READ_UNCOMMITTED, FetchPartition
from watershed.replicator.batch.record_batch import RawBatch, decode_batches
from watershed.replicator.recovery.log_inspection import BrokerAddress

_Answer = TypeVar("_Answer")
AlignmentConnect = Callable[[BrokerAddress | None], AlignmentWire]  # None: any broker

_PAUSE_S: Final = 0.1  # between two questions while leaders move
_PATIENCE_S: Final = 30.0
_HEARD_S: Final = 5.0
_MOVING: Final = error_codes.REINSPECT_CODES | {error_codes.OFFSET_NOT_AVAILABLE}


def take_only_answer(answers: Sequence[_Answer], doing: str) -> _Answer:
    """The answer to a request about one partition. Raises Unanswered where there is none, ProtocolError where there is
    another one, too."""
    if not answers:
        raise Unanswered(f"{doing} for one partition is answered for none: that says nothing of it")
    if len(answers) > 1:
        raise ProtocolError(f"{doing} for one partition is answered for {len(answers)}")
    return answers[0]


def build_deleter_connect(target: ConnectionSettings) -> AlignmentConnect | None:
    """Opens connections as the account that deletes records; None where that is the one that does the rest."""
    if not target.has_aligner:
        return None
    return lambda address: open_connection(target.aligning(), address)


@dataclass(slots=True)
class TargetLog:
    """`connect` opens connections to the target cluster; one to the leader is kept. Not thread-safe. `deleting` opens
    those on which records are deleted, where another account does that.

    Methods raise ClusterError: Unreachable when a connection is lost (what was under way may have been done),
    TopicMissing when the topic is gone or is another one, Unauthorised, RequestRefused.
    """

    connect: AlignmentConnect
    alias: str
    topic: str
    topic_id: uuid.UUID
    partition: int
    deleting: AlignmentConnect | None = None
    _leader: AlignmentWire | None = field(default=None, init=False)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} on cluster {self.alias}"

    def leader(self) -> AlignmentWire:
        """A connection to the leader, the same one until `lost`. Waits for a leader for up to 30 s, and for brokers
        that have not heard of the topic yet for up to 5 s: one learns of a new topic after the other."""
        now = time.monotonic()
        deadline, heard = now + _PATIENCE_S, now + _HEARD_S
        while self._leader is None:
            try:
                address = self._led_by()
                leader = None if address is None else self._aware(self.connect(address))
            except TopicMissing:
                if time.monotonic() > heard:
                    raise
                leader = None
            if leader is not None:
                self._leader = leader
            elif time.monotonic() > deadline:
                raise self.refused("Metadata", error_codes.LEADER_NOT_AVAILABLE)
            else:
                time.sleep(_PAUSE_S)
        return self._leader

    def lost(self) -> None:
        """The connection is no good any more, or the leader has moved: the next request finds the leader anew."""
        if self._leader is not None:
            with suppress(OSError):
                self._leader.close()
            self._leader = None

    close = lost

    def confirm(self) -> None:
        """Raises TopicMissing where the topic of this name is another one than it was."""
        self._led_by()

    def range(self) -> LogRange:
        """Log start and end (the high watermark) as the leader has them now."""
        return LogRange(self._offset(EARLIEST), self._offset(LATEST))

    def appended(self) -> int:
        """Where the leader's own log ends, at the high watermark or behind it (OffsetForLeaderEpoch, KIP-320)."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            found = self.leader().metadata((self.topic,)).topics
            epochs = [
                part.leader_epoch for each in found for part in each.partitions if part.partition == self.partition
            ]
            error, end = self.leader().end_of_epoch(self.topic, self.partition, epochs[0]) if epochs else (-1, -1)
            if not error and end >= 0:
                return end
            self._again_or_raise(
                error if error > 0 else error_codes.LEADER_NOT_AVAILABLE, "OffsetForLeaderEpoch", deadline
            )

    def delete_below(self, offset: int) -> None:
        """DeleteRecords; returns when the log start is `offset` or more on every in-sync replica."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            error = self._delete(offset)
            if error == error_codes.NONE:
                return
            self._again_or_raise(error, "DeleteRecords", deadline)

    def _delete(self, offset: int) -> int:
        if self.deleting is None:
            return self.leader().delete_records(self.topic, self.partition, offset)[0]
        address = self._led_by()
        if address is None:
            return error_codes.LEADER_NOT_AVAILABLE
        other = self.deleting(address)
        try:
            return other.delete_records(self.topic, self.partition, offset)[0]
        finally:
            other.close()

    def batches(self, start: int, end: int, *, max_wait_ms: int = 0) -> Iterator[RawBatch]:
        """What is stored between two offsets, control batches as well; ends early where nothing more comes.

        max_wait_ms: how long one Fetch may wait for something to be there.
        """
        position, deadline = start, time.monotonic() + _PATIENCE_S
        while position < end:
            part = FetchPartition(self.topic_id, self.partition, position, max_bytes=8 << 20)
            answer = fetch_one(self.leader(), part, max_wait_ms=max_wait_ms, isolation=READ_UNCOMMITTED)
            if answer.error == error_codes.OFFSET_OUT_OF_RANGE and (begins := self._offset(EARLIEST)) > position:
                position = begins  # deleted meanwhile
                continue
            if answer.error:
                self._again_or_raise(answer.error, "Fetch", deadline)
                continue
            before = position
            for batch in decode_batches(answer.records):
                if batch.end > position:
                    yield batch
                    position = batch.end
            if position == before:
                return

    def refused(self, doing: str, code: int) -> ClusterError:
        """The error for an answer of the leader."""
        reason = (
            f"cluster {self.alias} answers {error_codes.describe_error_code(code)} to {doing} for "
            f"{self.topic}-{self.partition}"
        )
        if code in (error_codes.TOPIC_AUTHORIZATION_FAILED, error_codes.CLUSTER_AUTHORIZATION_FAILED):
            return Unauthorised(reason, alias=self.alias, topic=self.topic, partition=self.partition)
        if code in (error_codes.UNKNOWN_TOPIC_ID, error_codes.INCONSISTENT_TOPIC_ID):
            return self._gone()
        error = RequestRefused(reason, alias=self.alias, topic=self.topic, partition=self.partition)
        error.code = code
        return error

    def _offset(self, which: int) -> int:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            answers = self.leader().list_offsets(((self.topic, self.partition),), which)
            answer = take_only_answer(answers, "ListOffsets")
            if not answer.error:
                return answer.offset
            self._again_or_raise(answer.error, "ListOffsets", deadline)

    def _aware(self, leader: AlignmentWire) -> AlignmentWire:
        """The same connection, to a broker that knows the topic by its id. Raises TopicMissing."""
        try:
            part = FetchPartition(self.topic_id, self.partition, 0, max_bytes=1)
            answer = fetch_one(leader, part)
            if answer.error in (error_codes.UNKNOWN_TOPIC_ID, error_codes.INCONSISTENT_TOPIC_ID):
                raise self._gone()
        except BaseException:
            leader.close()
            raise
        return leader

    def _led_by(self) -> BrokerAddress | None:
        asked = self.connect(None)
        try:
            metadata = asked.metadata((self.topic,))
        finally:
            asked.close()
        described = next((topic for topic in metadata.topics if topic.name == self.topic), None)
        if described is None or described.error == error_codes.UNKNOWN_TOPIC_OR_PARTITION:
            raise self._gone()
        if described.error:
            raise self.refused("Metadata", described.error)
        if described.topic_id != self.topic_id:
            raise self._gone()
        node = next((each.node for each in described.partitions if each.partition == self.partition), -1)
        found = metadata.brokers.get(node)
        return None if found is None else BrokerAddress(*found)

    def _again_or_raise(self, error: int, doing: str, deadline: float) -> None:
        if error not in _MOVING or time.monotonic() > deadline:
            raise self.refused(doing, error)
        self.lost()
        time.sleep(_PAUSE_S)

    def _gone(self) -> TopicMissing:
        return TopicMissing(
            f"cluster {self.alias} has no topic {self.topic} with id {self.topic_id} any more",
            alias=self.alias,
            topic=self.topic,
            partition=self.partition,
        )
