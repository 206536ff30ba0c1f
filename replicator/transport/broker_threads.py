"""Moves the bytes: threads that fetch from a source broker, threads that send to a target broker.

They only carry; `replicator.copy` decides what may be done with a partition. Each broker has threads for each traffic
class (`replicator.transport.broker_connection`), and an `ActiveCopy` says which class serves its partition.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Final

from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.recovery.log_inspection import BrokerAddress
from watershed.replicator.transport.active_copy import ActiveCopy
from watershed.replicator.transport.broker_connection import BrokerConnectionThread, TrafficClass
from watershed.replicator.transport.fetcher import ROOM_SOON_S, Fetcher, FetchPlace, find_fetch_place
from watershed.replicator.transport.sender import Sender

# A fetcher asks again when it has the answer. On a long wire nothing would be on its way meanwhile: the other one's is.
# Nearby one is quicker: two would only wait for each other's Python (a third fewer records a second).
_BULK_FETCHERS: Final = 2
# A quiet partition that has become busy waits so long at most for a question that was under way.
_BUSY_POLL_S: Final = 0.03
_KINDS: tuple[TrafficClass, ...] = ("live", "bulk")


class BrokerThreads:
    """The threads of one broker, one for each traffic class, and the active copies that they serve."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._active_copies: dict[int, ActiveCopy] = {}
        self._threads: list[BrokerConnectionThread] = []
        self._unused_since = time.monotonic()

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def is_alive(self) -> bool:
        """False once one of the threads has ended."""
        return all(thread.is_alive() for thread in self._threads)

    def add(self, active: ActiveCopy) -> None:
        """Serve this active copy from now on."""
        with self._lock:
            self._active_copies[id(active)] = active

    def remove(self, active: ActiveCopy) -> None:
        """Stop serving this active copy; an answer that is under way may still come."""
        with self._lock:
            if self._active_copies.pop(id(active), None) is not None:
                self._unused_since = time.monotonic()

    def is_serving(self, active: ActiveCopy) -> bool:
        """Whether this active copy is served here."""
        return id(active) in self._active_copies

    def unused_s(self, now: float) -> float:
        """For how many seconds it has served no active copy, at `now` (monotonic)."""
        return 0.0 if self._active_copies else now - self._unused_since

    def end(self) -> None:
        """Ask all threads to end; does not wait."""
        for thread in self._threads:
            thread.end()

    def counters(self) -> dict[str, float]:
        """What these threads have counted since they started, by metric name."""
        return {"throttled_seconds": sum(thread.throttled_s for thread in self._threads)}


class SourceBrokerThreads(BrokerThreads):
    """Fetches for all partitions that are read from one source broker, which leads most of them; `memory` says how many
    bytes the worker may still hold. The rack of `settings` is told in each Fetch."""

    def __init__(self, settings: ConnectionSettings, address: BrokerAddress, memory: Callable[[], int]) -> None:
        super().__init__()
        self._bulk = [Fetcher("bulk", settings, address, memory) for _ in range(_BULK_FETCHERS)]
        self._quiet = Fetcher("live", settings, address, memory)
        self._busy = Fetcher("live", settings, address, memory, is_busy=True, coming_s=self._find_coming_s)
        self._fetchers = [self._quiet, self._busy, *self._bulk]
        self._threads = [*self._fetchers]
        self._bulk_of: dict[int, Fetcher] = {}  # which of them has an active copy while it is bulk
        self._by_place: dict[FetchPlace, ActiveCopy] = {}

    def can_add(self, active: ActiveCopy) -> bool:
        """Whether no other active copy is served that reads the same partition, for another flow. A fetch session has a
        partition once, at one position (KIP-227)."""
        with self._lock:
            return self._by_place.get(find_fetch_place(active), active) is active

    def add(self, active: ActiveCopy) -> None:
        """Fetch for this active copy, and look at it again when its buffer has room."""
        active.room = partial(self._room, active)
        with self._lock:
            self._by_place[find_fetch_place(active)] = active
        super().add(active)
        self._room(active)

    def remove(self, active: ActiveCopy) -> None:
        """Stop fetching for this active copy; an answer that is under way may still come."""
        super().remove(active)
        with self._lock:
            self._bulk_of.pop(id(active), None)
            if self._by_place.get(find_fetch_place(active)) is active:
                del self._by_place[find_fetch_place(active)]
        for fetcher in self._fetchers:
            fetcher.remove(active)

    def counters(self) -> dict[str, float]:
        """See `BrokerThreads.counters`; and the bytes that came from a follower that the leader named."""
        return {**super().counters(), "follower_bytes": sum(each.follower_bytes for each in self._fetchers)}

    def list_holders(self) -> list[ActiveCopy]:
        """Those that may hold bytes; one may be there twice."""
        return [active for fetcher in self._fetchers for active in fetcher.list_holders()]

    def _room(self, active: ActiveCopy) -> None:
        with self._lock:  # the room of one that is removed by now is nobody's
            if id(active) in self._active_copies:
                self._find_fetcher(active).put(active)

    def _find_fetcher(self, active: ActiveCopy) -> Fetcher:
        if active.kind == "bulk":
            return self._find_bulk(active)
        return self._busy if active.is_busy else self._quiet

    def _find_coming_s(self) -> float:
        """How long a question for the busy partitions may wait, for others that may come to that fetcher."""
        return ROOM_SOON_S if any(each.is_used for each in self._bulk) else _BUSY_POLL_S

    def _find_bulk(self, active: ActiveCopy) -> Fetcher:
        """The fetcher that it keeps whenever it is to catch up."""
        if id(active) not in self._bulk_of:
            among = self._bulk if self._quiet.is_far else self._bulk[:1]
            self._bulk_of[id(active)] = among[len(self._bulk_of) % len(among)]
        return self._bulk_of[id(active)]


class TargetBrokerThreads(BrokerThreads):
    """Sends for all partitions led by one target broker."""

    def __init__(self, settings: ConnectionSettings, address: BrokerAddress) -> None:
        super().__init__()
        self._senders = {kind: Sender(kind, settings, address, self._offer, self._copies_of) for kind in _KINDS}
        self._threads = [*self._senders.values()]

    def add(self, active: ActiveCopy) -> None:
        """Send for this active copy, and schedule it when it has something to send."""
        active.wake = partial(self._offer, active)
        super().add(active)
        self._offer(active)

    def _offer(self, active: ActiveCopy) -> None:
        self._senders[active.carrier].put(active)

    def _copies_of(self, kind: TrafficClass) -> list[ActiveCopy]:
        with self._lock:
            return [active for active in self._active_copies.values() if active.carrier == kind]
