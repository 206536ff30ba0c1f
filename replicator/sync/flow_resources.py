"""What a kind of sync keeps open for each flow from one round to the next: connections, and what it has written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from watershed.replicator.sync.sync_kind import SyncClusters
from watershed.topology.plan import PlanFlow


class _Closable(Protocol):
    def close(self) -> None: ...


_Kept = TypeVar("_Kept", bound=_Closable)
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
# Brokers forget positions of a group without members one by one, `offsets.retention.minutes` (seven days) after each
# commit. And a worker that stood still may write an older value when it goes on. So all is written again at times.
_AGAIN_S: Final = 3_600.0


@dataclass(slots=True)
class FlowResources(Generic[_Kept]):
    """By flow; thread-safe as long as one flow is used by one thread at a time. make: opens what a flow needs. is_used:
    whether a running flow needs any."""

    make: Callable[[PlanFlow, SyncClusters], _Kept]
    is_used: Callable[[PlanFlow], bool]
    _kept: dict[str, tuple[object, _Kept]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _closed: int = 0  # how often all were closed

    @contextmanager
    def use(self, flow: PlanFlow, sides: SyncClusters) -> Iterator[_Kept]:
        """What is kept for the flow; made anew when the flow or its clusters have changed, and after a round that
        failed. What belongs to flows that need it no more is closed."""
        of = flow, sides.source, sides.target
        running = {each.id for each in sides.flows if self.is_used(each)} | {flow.id}
        with self._lock:
            gone = [self._kept.pop(name)[1] for name in self._kept.keys() - running]
            known, kept = self._kept.pop(flow.id, (None, None))
            closed = self._closed
        if kept is not None and known != of:
            gone.append(kept)
            kept = None
        for each in gone:
            each.close()
        kept = self.make(flow, sides) if kept is None else kept
        try:
            yield kept
        except BaseException:
            kept.close()
            raise
        with self._lock:
            is_current = closed == self._closed
            if is_current:
                self._kept[flow.id] = of, kept
        if not is_current:
            kept.close()

    def close(self) -> None:
        """Close everything; what is used just now is closed by its user."""
        with self._lock:
            self._closed += 1
            found = [kept for _, kept in self._kept.values()]
            self._kept.clear()
        for each in found:
            each.close()


@dataclass(slots=True)
class WrittenValues(Generic[_Key, _Value]):
    """What was written last under each key; after an hour nothing counts as written."""

    _values: dict[_Key, _Value] = field(default_factory=dict)
    _until: float = 0.0  # monotonic

    def select_changed(self, found: Mapping[_Key, _Value], now: float) -> dict[_Key, _Value]:
        """Those of `found` that have to be written at `now` (monotonic seconds)."""
        if now >= self._until:
            self._values.clear()
            self._until = now + _AGAIN_S
        return {key: value for key, value in found.items() if self._values.get(key) != value}

    def note(self, written: Mapping[_Key, _Value]) -> None:
        """These have been written."""
        self._values.update(written)
