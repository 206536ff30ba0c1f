"""Fetch answers of one range of one partition, in order. The next fetch is sent while the caller works on an answer.

Rules, each of them a mistake somebody shipped: the range is half-open and fixed before;
reading ends at an offset, never at an empty answer; a position may step over markers, aborted and compacted records,
so gaps are no loss; a log that starts behind the position is (`OffsetsExpired`); a log that ends before the range does
is an error, as is an answer that does not come.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from watershed.clusters.claim_rules import PartitionClaims
from watershed.clusters.errors import Unreachable
from watershed.clusters.provenance_header import ProvenanceHeader
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.connection import Connection
from watershed.clusters.wire.messages import EARLIEST, READ_COMMITTED, FetchedPartition, FetchPartition
from watershed.clusters.wire.transport import ReceiveBuffer
from watershed.spark.errors import NotReadable
from watershed.spark.reading.batch_headers import find_batch_edges, find_next_offset
from watershed.spark.reading.broker_connections import BrokerConnections
from watershed.spark.reading.external_marks import NO_MARKS, ExternalMarks
from watershed.spark.reading.offset_range import OffsetRange
from watershed.spark.reading.schema_id_pairs import NO_ID_REWRITE, KeyValueIdPairs

_FETCH_BYTES = 4 << 20
NO_PROGRESS_TIMEOUT_S = 60.0  # without any progress
# for a log that ends too early: a new leader knows only after a moment how far the log is committed
EARLY_END_WAIT_S = 10.0

_NETWORK_EXCEPTION = 13
_LEADER_MOVES = frozenset(
    {
        error_codes.UNKNOWN_TOPIC_OR_PARTITION,  # of a broker that has not heard of it yet
        error_codes.LEADER_NOT_AVAILABLE,
        error_codes.NOT_LEADER_OR_FOLLOWER,
        _NETWORK_EXCEPTION,
        error_codes.KAFKA_STORAGE_ERROR,  # a disk that went away moves its leaders
        error_codes.FENCED_LEADER_EPOCH,
        error_codes.UNKNOWN_LEADER_EPOCH,
    }
)
# KIP-392: a follower may not have the offset yet
_FOLLOWER_IS_BEHIND = frozenset({error_codes.OFFSET_OUT_OF_RANGE, error_codes.OFFSET_NOT_AVAILABLE})


@dataclass(frozen=True, slots=True)
class PartitionAddress:
    """What is read: `skip` are producer ids whose batches the flow leaves out (its loop guard), `ids` the schema ids
    that are read as those that the flow writes in their place. only: producer ids that alone count, where others write,
    too; none: all do. claims: what the flows under the ids to skip have written, by their ledgers; what stands under
    them elsewhere counts. None: all are believed. marks: of batches that another tool brought; they do not count.
    header: what the flow adds to each record."""

    settings: ConnectionSettings
    topic: str
    topic_id: uuid.UUID
    partition: int
    timestamps: bool = True
    skip: frozenset[int] = frozenset()
    ids: KeyValueIdPairs = NO_ID_REWRITE
    only: frozenset[int] = frozenset()
    claims: PartitionClaims | None = None
    marks: ExternalMarks = NO_MARKS
    header: ProvenanceHeader | None = None

    @property
    def whose(self) -> tuple[frozenset[int], frozenset[int], PartitionClaims | None]:
        """(producer ids to skip, producer ids that alone count (none: all), claims of the skipped ones)."""
        return self.skip, self.only, self.claims

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} on {self.settings.alias}"


class OffsetsExpired(Exception):
    """The log now starts at `log_start`, behind the position that was to be read."""

    def __init__(self, log_start: int) -> None:
        super().__init__(f"the log starts at {log_start} now")
        self.log_start = log_start


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """Whole batches as stored, `edges` are where they begin and where the last ends; the first may begin below the
    `position` that was asked for. aborted: (producer id, first offset) of transactions that touch them."""

    position: int
    records: memoryview
    edges: list[int]
    aborted: tuple[tuple[int, int], ...] = ()


def fetch_range(
    address: PartitionAddress,
    span: OffsetRange,
    connections: BrokerConnections,
    *,
    isolation: int = READ_COMMITTED,
    keep: bool = False,
) -> Iterator[FetchAnswer]:
    """Answers that cover `span`. keep: their bytes stay valid; else only until the next one is asked for.

    Raises OffsetsExpired, NotReadable, ClusterError, CorruptBatch (a length that no batch has), OldMessageFormat.
    """
    asking = _Asking(address, connections, isolation, None if keep else connections.room)
    patience, position = _Patience(), span.start
    try:
        while position < span.end:
            answer = asking.receive(position, span, patience)
            if answer is None:
                continue
            edges = find_batch_edges(answer.records)
            if len(edges) < 2:
                if not asking.choose_other_broker(answer):
                    _wait_or_fail(address, position, span, answer, patience)
                continue
            before, position = position, max(position, find_next_offset(answer.records, edges))
            if position == before:
                raise NotReadable(f"{address}: the broker sends offsets below {before} when asked for those from there")
            if position < span.end:
                asking.ask_ahead(position)
            yield FetchAnswer(before, answer.records[: edges[-1]], edges, answer.aborted)
            patience.restart()  # the caller's time does not count
    finally:
        asking.drop_question()


class _Patience:
    """How long there was no progress."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    def restart(self) -> None:
        self._since = time.monotonic()

    def is_over(self, seconds: float) -> bool:
        return time.monotonic() - self._since > seconds


class _Asking:
    """Fetches of one partition, from its leader or from the follower that the leader names for our rack (KIP-392)."""

    def __init__(
        self, address: PartitionAddress, connections: BrokerConnections, isolation: int, room: ReceiveBuffer | None
    ) -> None:
        self._address, self._connections, self._isolation, self._room = address, connections, isolation, room
        self._rack = connections.rack
        self._connection: Connection | None = None
        self._follower: int | None = None
        self._is_asked = False  # a question is out whose answer nobody has taken

    def receive(self, position: int, span: OffsetRange, patience: _Patience) -> FetchedPartition | None:
        """The answer to a fetch at `position`; None, after a moment, when it has to be asked again.

        Raises OffsetsExpired, NotReadable, ClusterError.
        """
        try:
            if not self._is_asked:
                self._ask(position)
            self._is_asked = False
            answer, is_silenced = self._answer(position)
        except Unreachable:
            self._give_up()
            if patience.is_over(NO_PROGRESS_TIMEOUT_S):
                raise
            time.sleep(0.5)
            return None
        if is_silenced:
            patience.restart()  # the broker lives; its quota makes us wait
        elif answer is None:
            _wait_or_fail(self._address, position, span, None, patience)
        return answer

    def _ask(self, position: int) -> None:
        """Sends a fetch. Raises Unreachable."""
        address, connections = self._address, self._connections
        connections.pace.wait()
        if self._connection is None:
            self._connection = (
                connections.leader(address.topic, address.partition)
                if self._follower is None
                else connections.node(self._follower)
            )
        most = connections.pace.answer_bytes(_FETCH_BYTES)
        wanted = FetchPartition(address.topic_id, address.partition, position, max_bytes=most)
        self._connection.send_fetch(
            (wanted,), max_wait_ms=1000, max_bytes=most, isolation=self._isolation, rack=self._rack
        )

    def ask_ahead(self, position: int) -> None:
        """Sends the next fetch already. A connection that breaks is opened again when the answer is needed."""
        try:
            self._ask(position)
        except Unreachable:
            self._give_up()
        else:
            self._is_asked = True

    def drop_question(self) -> None:
        """Nobody takes the answer any more: closes the connection on which it would come."""
        if self._is_asked:
            self._give_up()

    def _answer(self, position: int) -> tuple[FetchedPartition | None, bool]:
        """(answer to the last fetch, whether a quota is used up). Without an answer another broker is asked, or the
        same one later: with a quota used up it names no partition (KIP-219).

        Raises OffsetsExpired, NotReadable, ClusterError.
        """
        assert self._connection is not None, "something was asked"
        found = self._connection.receive_fetch(self._room)
        self._connections.pace.record_answer(sum(len(each.records) for each in found), self._connection.throttle_ms)
        if not found:
            return None, True
        [answer] = found
        if answer.error == error_codes.NONE:
            return answer, False
        if answer.error in _LEADER_MOVES or (self._follower is not None and answer.error in _FOLLOWER_IS_BEHIND):
            self._to_leader()
            time.sleep(0.3)
            return None, False
        raise self._refused(answer, position)

    def choose_other_broker(self, answer: FetchedPartition) -> bool:
        """Turns to another broker where an answer without records says so; returns whether it does."""
        if answer.preferred >= 0 and self._rack:
            self._connection, self._follower = None, answer.preferred
            return True
        if self._follower is not None:  # it may lag behind what the leader has
            self._to_leader()
            return True
        return False

    def _give_up(self) -> None:
        """The connection is lost, or an answer on it that nobody will take."""
        self._is_asked = False
        self._connections.lost(self._connection)
        self._to_leader()

    def _to_leader(self) -> None:
        if self._follower is not None:
            self._rack = ""  # for this range: the follower was no help
        self._connection, self._follower = None, None
        self._connections.forget()

    def _refused(self, answer: FetchedPartition, position: int) -> Exception:
        address = self._address
        if answer.error == error_codes.OFFSET_OUT_OF_RANGE:
            start = answer.log_start if answer.log_start >= 0 else self._log_start()
            if start > position:
                return OffsetsExpired(start)
            return NotReadable(f"{address}: offset {position} is beyond its end; was the log truncated?")
        if answer.error == error_codes.UNKNOWN_TOPIC_ID:
            return NotReadable(f"{address}: the topic was deleted or made anew while it was read")
        return NotReadable(
            f"{address}: the broker answered {error_codes.describe_error_code(answer.error)} to a fetch at {position}"
        )

    def _log_start(self) -> int:
        assert self._connection is not None, "it has answered"
        [answer] = self._connection.list_offsets(((self._address.topic, self._address.partition),), EARLIEST)
        return answer.offset


def _wait_or_fail(
    address: PartitionAddress,
    position: int,
    span: OffsetRange,
    answer: FetchedPartition | None,
    patience: _Patience,
) -> None:
    """Waits a moment for a whole batch. Raises NotReadable when none came for too long."""
    ends_before = answer is not None and max(answer.last_stable, answer.high_watermark) < span.end
    if patience.is_over(EARLY_END_WAIT_S if ends_before else NO_PROGRESS_TIMEOUT_S):
        raise _stuck(address, position, span, answer)
    time.sleep(0.05)


def _stuck(address: PartitionAddress, position: int, span: OffsetRange, answer: FetchedPartition | None) -> NotReadable:
    seen = f"; its log ends at {answer.high_watermark}" if answer is not None else "; its leader keeps moving"
    return NotReadable(f"{address}: nothing more to read at offset {position}, before {span.end}{seen}")
