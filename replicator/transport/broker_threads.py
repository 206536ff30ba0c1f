"""Moving the bytes: a link to each source broker that fetches, a link to each target broker that sends.

Links only carry; what may be done with a partition is decided by its `PartitionCopy`. Each link has two lanes
(`replicator.transport.broker_connection`), and a partition is in the one that its `ActiveCopy` says.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from threading import Lock

from clusters.settings import ConnectionSettings
from replicator.recovery.log_inspection import BrokerAddress
from replicator.transport.active_copy import ActiveCopy
from replicator.transport.broker_connection import BrokerConnectionThread, TrafficClass
from replicator.transport.fetcher import Fetcher
from replicator.transport.sender import Sender

_KINDS: tuple[TrafficClass, ...] = ("live", "bulk")


class BrokerThreads:
    """What both kinds of links share: the routes they serve, their lanes, and how they end."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._routes: dict[int, ActiveCopy] = {}
        self._now: tuple[ActiveCopy, ...] = ()
        self._lanes: dict[TrafficClass, BrokerConnectionThread] = {}
        self._unused_since = time.monotonic()

    def start(self) -> None:
        for lane in self._lanes.values():
            lane.start()

    def is_alive(self) -> bool:
        return all(lane.is_alive() for lane in self._lanes.values())

    def add(self, route: ActiveCopy) -> None:
        with self._lock:
            self._routes[id(route)] = route
            self._now = tuple(self._routes.values())

    def remove(self, route: ActiveCopy) -> None:
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


class SourceBrokerThreads(BrokerThreads):
    """Fetches for all partitions led by one source broker; `memory` says how many bytes the worker may still hold."""

    def __init__(self, settings: ConnectionSettings, address: BrokerAddress, memory: Callable[[], int]) -> None:
        super().__init__()
        self._lanes = {kind: Fetcher(kind, settings, address, lambda: self._now, memory) for kind in _KINDS}

    def add(self, route: ActiveCopy) -> None:
        route.room = partial(self._room, route)
        super().add(route)
        self._room(route)

    def _room(self, route: ActiveCopy) -> None:
        self._lanes[route.kind].wake()


class TargetBrokerThreads(BrokerThreads):
    """Sends for all partitions led by one target broker."""

    def __init__(self, settings: ConnectionSettings, address: BrokerAddress) -> None:
        super().__init__()
        self._senders = {kind: Sender(kind, settings, address, self._offer, self._carried) for kind in _KINDS}
        self._lanes = {**self._senders}

    def add(self, route: ActiveCopy) -> None:
        route.wake = partial(self._offer, route)
        super().add(route)
        self._offer(route)

    def _offer(self, route: ActiveCopy) -> None:
        self._senders[route.carrier].put(route)

    def _carried(self, kind: TrafficClass) -> list[ActiveCopy]:
        return [route for route in self._now if route.carrier == kind]
