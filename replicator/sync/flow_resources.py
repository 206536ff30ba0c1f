"""What a kind of sync keeps open for each flow from one round to the next: connections, and what it has written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from replicator.sync.sync_kind import SyncClusters
from topology.plan import PlanFlow


class _Closable(Protocol):
    def close(self) -> None: ...


_Kept = TypeVar("_Kept", bound=_Closable)


@dataclass(slots=True)
class FlowResources(Generic[_Kept]):
    """By flow; thread-safe as long as one flow is used by one thread at a time. make: opens what a flow needs. is_used:
    whether a running flow needs any."""

    make: Callable[[PlanFlow, SyncClusters], _Kept]
    is_used: Callable[[PlanFlow], bool]
    _kept: dict[str, tuple[object, _Kept]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def use(self, flow: PlanFlow, sides: SyncClusters) -> Iterator[_Kept]:
        """What is kept for the flow; made anew when the flow or its clusters have changed, and after a round that
        failed. What belongs to flows that need it no more is closed."""
        of = flow, sides.source, sides.target
        running = {each.id for each in sides.flows if self.is_used(each)} | {flow.id}
        with self._lock:
            gone = [self._kept.pop(name)[1] for name in self._kept.keys() - running]
            known, kept = self._kept.pop(flow.id, (None, None))
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
            self._kept[flow.id] = of, kept

    def close(self) -> None:
        """Close everything; what is used just now stays with its user."""
        with self._lock:
            found = [kept for _, kept in self._kept.values()]
            self._kept.clear()
        for each in found:
            each.close()
