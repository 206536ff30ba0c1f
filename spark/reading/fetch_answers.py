"""Fetch answers of a range of one partition, one after the other; while one is worked on the broker gathers the next.

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

from clusters.claim_rules import PartitionClaims
from clusters.errors import Unreachable
from clusters.settings import ConnectionSettings
from clusters.wire import error_codes
from clusters.wire.connection import Connection
from clusters.wire.messages import EARLIEST, READ_COMMITTED, FetchedPartition, FetchPartition
from clusters.wire.transport import ReceiveBuffer
from spark.errors import NotReadable
from spark.reading.batch_headers import find_batch_edges, find_next_offset
from spark.reading.broker_connections import BrokerConnections
from spark.reading.offset_range import OffsetRange
from spark.reading.schema_id_pairs import NO_ID_REWRITE, KeyValueIdPairs

_FETCH_BYTES = 4 << 20
NO_PROGRESS_TIMEOUT_S = 60.0  # without any progress
EARLY_END_WAIT_S = (
    10.0  # for a log that ends too early: a new leader knows only after a moment how far the log is committed
)

# unknown topic or partition (a broker that has not heard of it yet), leader not available, not leader, storage error (a
# disk that went away moves its leaders), fenced and unknown epochs
_LEADER_MOVES = frozenset({3, 5, 6, 13, 56, 74, 75, 76})
_FOLLOWER_IS_BEHIND = frozenset({1, 78})  # offset out of range (KIP-392: it may not have it yet), not available


@dataclass(frozen=True, slots=True)
class PartitionAddress:
    """What is read: `skip` are producer ids whose batches the flow leaves out (its loop guard), `ids` the schema ids
    that are read as those that the flow writes in their place. only: producer ids that alone count, where others write,
    too; none: all do. claims: what the flows under the ids to skip have written, by their ledgers; what stands under
    them elsewhere counts. None: all are believed."""

    settings: ConnectionSettings
    topic: str
    topic_id: uuid.UUID
    partition: int
    timestamps: bool = True
    skip: frozenset[int] = frozenset()
    ids: KeyValueIdPairs = NO_ID_REWRITE
    only: frozenset[int] = frozenset()
    claims: PartitionClaims | None = None

    @property
    def whose(self) -> tuple[frozenset[int], frozenset[int], PartitionClaims | None]:
        """Producers that do not count, those that alone do (none: all), and where the former are believed."""
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
    links: BrokerConnections,
    *,
    isolation: int = READ_COMMITTED,
    keep: bool = False,
) -> Iterator[FetchAnswer]:
    """Answers that cover `span`. keep: their bytes stay valid; else only until the next one is asked for.

    Raises Expired, NotReadable, ClusterError, CorruptBatch (a length that no batch has), OldFormat.
    """
    asking = _Asking(address, links, isolation, None if keep else links.room)
    position, since, asked = span.start, time.monotonic(), False
    try:
        while position < span.end:
            try:
                if not asked:
                    asking.ask(position)
                asked = False
                answer = asking.answer(position)
                if asking.silenced:  # a broker's quota: it lives, and we have been told to wait
                    since = time.monotonic()
                    continue
            except Unreachable:
                asking.give_up()
                if time.monotonic() - since > NO_PROGRESS_TIMEOUT_S:
                    raise
                time.sleep(0.5)
                continue
            edges = find_batch_edges(answer.records) if answer is not None else [0]
            if answer is None or len(edges) < 2:
                if answer is not None and asking.elsewhere(answer):
                    continue
                ends_before = answer is not None and max(answer.last_stable, answer.high_watermark) < span.end
                if time.monotonic() - since > (EARLY_END_WAIT_S if ends_before else NO_PROGRESS_TIMEOUT_S):
                    raise _stuck(address, position, span, answer)
                time.sleep(0.05)
                continue
            before, position, since = position, max(position, find_next_offset(answer.records, edges)), time.monotonic()
            if position == before:
                raise NotReadable(f"{address}: the broker sends offsets below {before} when asked for those from there")
            if position < span.end:
                asked = asking.ask_ahead(position)
            yield FetchAnswer(before, answer.records[: edges[-1]], edges, answer.aborted)
            since = time.monotonic()  # what the caller took does not count
    finally:
        if asked:
            asking.give_up()


class _Asking:
    """Questions for one partition, to its leader or to the follower that the leader names for our rack (KIP-392)."""

    def __init__(
        self, address: PartitionAddress, links: BrokerConnections, isolation: int, room: ReceiveBuffer | None
    ) -> None:
        self._address, self._links, self._isolation, self._room = address, links, isolation, room
        self._rack = links.rack
        self._link: Connection | None = None
        self._follower: int | None = None
        self.silenced = False

    def ask(self, position: int) -> None:
        """Raises Unreachable."""
        address, links = self._address, self._links
        links.pace.wait()
        if self._link is None:
            self._link = (
                links.leader(address.topic, address.partition) if self._follower is None else links.node(self._follower)
            )
        most = links.pace.answer_bytes(_FETCH_BYTES)
        wanted = FetchPartition(address.topic_id, address.partition, position, max_bytes=most)
        self._link.send_fetch((wanted,), max_wait_ms=1000, max_bytes=most, isolation=self._isolation, rack=self._rack)

    def ask_ahead(self, position: int) -> bool:
        """Whether the next question is out already. A connection that breaks is looked at when it is needed."""
        try:
            self.ask(position)
        except Unreachable:
            self.give_up()
            return False
        return True

    def answer(self, position: int) -> FetchedPartition | None:
        """To what was asked last; None when somebody else is to be asked, or the same broker later, because a quota is
        used up (`silenced`; the answer names no partition then, KIP-219).

        Raises Expired, NotReadable, ClusterError.
        """
        assert self._link is not None, "something was asked"
        found = self._link.receive_fetch(self._room)
        self._links.pace.record_answer(sum(len(each.records) for each in found), self._link.throttle_ms)
        self.silenced = not found
        if not found:
            return None
        [answer] = found
        if answer.error == 0:
            return answer
        if answer.error in _LEADER_MOVES or (self._follower is not None and answer.error in _FOLLOWER_IS_BEHIND):
            self._to_leader()
            time.sleep(0.3)
            return None
        raise self._refused(answer, position)

    def elsewhere(self, answer: FetchedPartition) -> bool:
        """Whether an answer without records means that another broker is to be asked, and is from now on."""
        if answer.preferred >= 0 and self._rack:
            self._link, self._follower = None, answer.preferred
            return True
        if self._follower is not None:  # it may lag behind what the leader has
            self._to_leader()
            return True
        return False

    def give_up(self) -> None:
        """The connection is lost, or an answer on it that nobody will take."""
        self._links.lost(self._link)
        self._to_leader()

    def _to_leader(self) -> None:
        if self._follower is not None:
            self._rack = ""  # for this range: the follower was no help
        self._link, self._follower = None, None
        self._links.forget()

    def _refused(self, answer: FetchedPartition, position: int) -> Exception:
        address = self._address
        if answer.error == 1:  # offset out of range
            start = answer.log_start if answer.log_start >= 0 else self._log_start()
            if start > position:
                return OffsetsExpired(start)
            return NotReadable(f"{address}: offset {position} is beyond its end; was the log truncated?")
        if answer.error == 100:  # unknown topic id
            return NotReadable(f"{address}: the topic was deleted or made anew while it was read")
        return NotReadable(
            f"{address}: the broker answered {error_codes.describe_error_code(answer.error)} to a fetch at {position}"
        )

    def _log_start(self) -> int:
        assert self._link is not None, "it has answered"
        [answer] = self._link.list_offsets(((self._address.topic, self._address.partition),), EARLIEST)
        return answer.offset


def _stuck(address: PartitionAddress, position: int, span: OffsetRange, answer: FetchedPartition | None) -> NotReadable:
    seen = f"; its log ends at {answer.high_watermark}" if answer is not None else "; its leader keeps moving"
    return NotReadable(f"{address}: nothing more to read at offset {position}, before {span.end}{seen}")
