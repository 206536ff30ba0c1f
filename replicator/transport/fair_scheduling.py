"""Who sends next: flows share a connection by weight, the partitions of a flow take turns.

Start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996): a flow's clock runs by the bytes it sent divided by its
weight, and the flow whose clock is behind goes first. A flow that comes back from idleness starts at the present time,
so that it gets its share from now on and no arrears.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, Generic, Protocol, TypeVar

_AHEAD_BYTES: Final = 1 << 20  # how far a flow may run ahead of one that has more to send but had its turns
_LEAST_REQUEST: Final = 64 << 10


class _WeightedPartition(Protocol):
    """A partition on its way: its flow, and the flow's weight."""

    @property
    def flow(self) -> str: ...

    @property
    def weight(self) -> int: ...


Part = TypeVar("Part", bound=_WeightedPartition)


@dataclass(slots=True)
class _Flow(Generic[Part]):
    clock: float = 0.0  # bytes by weight
    waiting: deque[Part] = field(default_factory=deque)
    again: list[Part] = field(default_factory=list)  # had their turn in this request and have more


class FairScheduler(Generic[Part]):
    """`put` from any thread; the others from the one thread that makes requests.

    A part gets one turn a request: a Produce must not name a partition twice.
    """

    def __init__(self) -> None:
        self._flows: dict[str, _Flow[Part]] = {}
        self._queued: set[int] = set()
        self._had_turn: set[int] = set()
        self._now = 0.0
        self._lock = Lock()

    def __bool__(self) -> bool:
        """Whether anything waits for a turn."""
        return bool(self._queued)

    def put(self, part: Part) -> None:
        """This part may have something to send."""
        with self._lock:
            if id(part) in self._queued:
                return
            self._queued.add(id(part))
            flow = self._flows.setdefault(part.flow, _Flow())
            if not flow.waiting and not flow.again:
                flow.clock = max(flow.clock, self._now)
            (flow.again if id(part) in self._had_turn else flow.waiting).append(part)

    def next(self, size: int) -> Part | None:
        """Whose turn it is in this request, which has `size` bytes so far; None when it is complete.

        A flow that is behind and had all its turns makes the others wait for the next request, unless this one would
        be so small that waiting costs more than the share is worth: a flow of one partition with tiny batches cannot
        use its share, and what it does not use is forgiven.
        """
        with self._lock:
            flow = min((each for each in self._flows.values() if each.waiting), key=_clock, default=None)
            if flow is None:
                return None
            behind = min((each.clock for each in self._flows.values() if each.again), default=flow.clock)
            if flow.clock - behind > _AHEAD_BYTES:
                if size >= _LEAST_REQUEST:
                    return None
                for each in self._flows.values():
                    each.clock = max(each.clock, flow.clock - _AHEAD_BYTES)
                behind = flow.clock - _AHEAD_BYTES
            self._now = max(self._now, min(flow.clock, behind))
            part = flow.waiting.popleft()
            self._queued.discard(id(part))
            self._had_turn.add(id(part))
            return part

    def spent(self, part: Part, size: int) -> None:
        """The part sends `size` bytes now."""
        with self._lock:
            self._flows[part.flow].clock += size / part.weight

    def complete(self) -> None:
        """The request is made; everybody has a turn again."""
        with self._lock:
            self._had_turn.clear()
            for flow in self._flows.values():
                flow.waiting.extend(flow.again)
                flow.again.clear()


def _clock(flow: _Flow[Part]) -> float:
    return flow.clock
