"""Questions of one fetcher to a broker far away that follow one another before they are answered.

The position of a Fetch is known only from the answer before it. So with one question at a time a record that comes to
the source just behind a question waits there for the next one, a whole round trip. Several questions, a part of the
round trip apart, ask for the same positions; what a later answer repeats is dropped (`cut_answer`). A wire carries a
record several times then, so this is for the few records of partitions that are up to date.
"""

from __future__ import annotations

import select
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from watershed.clusters.errors import Unreachable
from watershed.clusters.wire.connection import Connection
from watershed.clusters.wire.fetch_session import FetchSession
from watershed.clusters.wire.messages import FetchedPartition, FetchPartition

QUESTIONS: Final = 3  # a record waits a third of the round trip at most for the next one to arrive
_MANY_BYTES: Final = 64 << 10  # of an answer: to carry these several times costs more than it saves
_ALONE_S: Final = 1.0  # so long there is one question at a time then
_PATIENCE_S: Final = 10.0  # beyond what an answer may wait for news


@dataclass(slots=True)
class _Lane:
    """A connection and a session. sent, due: when its question left, and when its answer is overdue (monotonic);
    0 while none is under way. lost: how many questions in a row found no session."""

    session: FetchSession
    connection: Connection | None = None
    sent: float = 0.0
    due: float = 0.0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class TurnAnswer:
    """What one question brought; sent: when it left (monotonic). is_incremental: whether partitions that it leaves out
    have nothing new."""

    partitions: list[FetchedPartition]
    sent: float
    throttle_ms: int
    is_incremental: bool


@dataclass(slots=True)
class FetchTurns:
    """first: the session of the fetcher itself, which has asked for everything so far. rack: where the reader stands.
    Not thread-safe."""

    first: FetchSession
    open_connection: Callable[[], Connection]
    rack: str = ""
    _lanes: list[_Lane] = field(default_factory=list)
    _next: float = 0.0  # when the next question may leave, monotonic
    _alone_until: float = 0.0

    def __post_init__(self) -> None:
        self._lanes = [_Lane(self.first), *(_Lane(FetchSession()) for _ in range(QUESTIONS - 1))]
        for part in self.first.list_wanted():
            self.ask(part)

    def ask(self, part: FetchPartition) -> None:
        """From the next questions on: this partition, from this offset on."""
        for lane in self._lanes:
            lane.session.ask(part)

    def leave_out(self, place: tuple[uuid.UUID, int]) -> None:
        """From the next questions on: not this partition (topic id, number)."""
        for lane in self._lanes:
            lane.session.leave_out(place)

    @property
    def is_waiting(self) -> bool:
        """Whether an answer is awaited."""
        return any(lane.sent for lane in self._lanes)

    def send_due(self, now: float, round_trip_s: float, wait_s: float, max_bytes: int) -> None:
        """Send the next question, if it is time and one of the connections is free. Raises ClusterError."""
        lanes = self._lanes[:1] if now < self._alone_until else self._lanes
        free = next((lane for lane in lanes if not lane.sent), None)
        if free is None or now < self._next:
            return
        if free.connection is None or free.connection.ended():
            self._close(free)
            free.connection = self.open_connection()
        free.connection.send_session_fetch(
            free.session, max_wait_ms=int(wait_s * 1000), max_bytes=max_bytes, rack=self.rack
        )
        free.sent, free.due = now, now + wait_s + _PATIENCE_S
        self._next = now + round_trip_s / len(lanes)

    def receive_ready(self, longest_s: float, *, can_ask: bool = True) -> list[TurnAnswer]:
        """The answers that are there, after at most so many seconds, or when the next question is due. can_ask: whether
        there will be one. Raises ClusterError."""
        now = time.monotonic()
        asked = {lane.connection.fileno(): lane for lane in self._lanes if lane.sent and lane.connection is not None}
        poll = select.poll()
        for descriptor in asked:
            poll.register(descriptor, select.POLLIN)
        lanes = self._lanes[:1] if now < self._alone_until else self._lanes
        has_free = can_ask and any(not lane.sent for lane in lanes)
        pause = max(min(longest_s, self._next - now if has_free else longest_s), 0.0)
        # What TLS has read already is nothing that poll sees.
        here = [lane for lane in asked.values() if lane.connection is not None and lane.connection.buffered]
        ready = here or [asked[descriptor] for descriptor, _event in poll.poll(pause * 1000)]
        late = next((lane for lane in asked.values() if lane not in ready and now > lane.due), None)
        if late is not None and late.connection is not None:
            raise Unreachable(f"{late.connection.address} does not answer a Fetch", alias=late.connection.alias)
        return [answer for lane in ready if (answer := self._receive(lane)) is not None]

    def _receive(self, lane: _Lane) -> TurnAnswer | None:
        assert lane.connection is not None
        sent, lane.sent = lane.sent, 0.0
        partitions = lane.connection.receive_session_fetch(lane.session, may_be_lost=lane.lost == 0)
        lane.lost = lane.lost + 1 if partitions is None else 0
        if partitions is None:
            return None
        if sum(len(each.records) for each in partitions) > _MANY_BYTES:
            self._alone_until = time.monotonic() + _ALONE_S
        return TurnAnswer(partitions, sent, lane.connection.throttle_ms, lane.session.is_incremental)

    def close(self) -> None:
        """Close all connections; answers under way are lost."""
        for lane in self._lanes:
            self._close(lane)

    def _close(self, lane: _Lane) -> None:
        if lane.connection is not None:
            with suppress(OSError):
                lane.connection.close()
        lane.connection, lane.sent = None, 0.0
