"""Moving the bytes: a link to each source broker that fetches, a link to each target broker that sends.

Links only carry; what may be done with a partition is decided by its `PartitionCopy`. Each link has two lanes
(`replicator.lane`), and a partition is in the one that its `Route` says.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from threading import Lock

from clusters.settings import ConnectionSettings
from replicator.fetching import FetchLane
from replicator.lane import Kind, Lane
from replicator.look import Address
from replicator.route import Route
from replicator.sending import SendLane

_KINDS: tuple[Kind, ...] = ("live", "bulk")


class Link:
    """What both kinds of links share: the routes they serve, their lanes, and how they end."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._routes: dict[int, Route] = {}
        self._now: tuple[Route, ...] = ()
        self._lanes: dict[Kind, Lane] = {}
        self._unused_since = time.monotonic()

    def start(self) -> None:
        for lane in self._lanes.values():
            lane.start()

    def is_alive(self) -> bool:
        return all(lane.is_alive() for lane in self._lanes.values())

    def add(self, route: Route) -> None:
        with self._lock:
            self._routes[id(route)] = route
            self._now = tuple(self._routes.values())

    def remove(self, route: Route) -> None:
        with self._lock:
            if self._routes.pop(id(route), None) is not None:
                self._now = tuple(self._routes.values())
                self._unused_since = time.monotonic()

    def unused_s(self, now: float) -> float:
        """For how long it has had no routes, at `now` (monotonic seconds)."""
        return 0.0 if self._now else now - self._unused_since

    def end(self) -> None:
        for lane in self._lanes.values():
            lane.end()

    def counters(self) -> dict[str, float]:
        """What this link has counted since it started, by metric name."""
        return {"throttled_seconds": sum(lane.throttled_s for lane in self._lanes.values())}


class SourceLink(Link):
    """Fetches for all partitions led by one source broker; `memory` says how many bytes the worker may still hold."""

    def __init__(self, settings: ConnectionSettings, address: Address, memory: Callable[[], int]) -> None:
        super().__init__()
        self._lanes = {kind: FetchLane(kind, settings, address, lambda: self._now, memory) for kind in _KINDS}

    def add(self, route: Route) -> None:
        route.room = partial(self._room, route)
        super().add(route)
        self._room(route)

    def _room(self, route: Route) -> None:
        self._lanes[route.kind].wake()


class TargetLink(Link):
    """Sends for all partitions led by one target broker."""

    def __init__(self, settings: ConnectionSettings, address: Address) -> None:
        super().__init__()
        self._senders = {kind: SendLane(kind, settings, address, self._offer, self._carried) for kind in _KINDS}
        self._lanes = {**self._senders}

    def add(self, route: Route) -> None:
        route.wake = partial(self._offer, route)
        super().add(route)
        self._offer(route)

    def _offer(self, route: Route) -> None:
        self._senders[route.carrier].put(route)

    def _carried(self, kind: Kind) -> list[Route]:
        return [route for route in self._now if route.carrier == kind]
