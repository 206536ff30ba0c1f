"""Moving the bytes: one thread a source broker that fetches, one thread a target broker that sends.

The threads only carry; what may be done with a partition is decided by its `PartitionCopy`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from clusters.errors import ClusterError, ProtocolError
from clusters.settings import ConnectionSettings
from clusters.wire import codes
from clusters.wire.connection import Connection, connect
from clusters.wire.messages import FetchedPartition, FetchPartition, ProducePartition
from replicator.batches import Batch, sift
from replicator.ledger import PartitionLedger
from replicator.look import Address
from replicator.partition import Outgoing, PartitionCopy
from replicator.rate import Rate
from replicator.repack import Terms
from replicator.states import LookAgain, Loud

log = logging.getLogger("watershed.links")

FETCH_BYTES = 4 << 20  # a partition and Fetch
ANSWER_BYTES = 32 << 20
PARTITION_BUFFER = 8 << 20
REQUEST_BYTES = 8 << 20
REQUESTS_IN_FLIGHT = 5
LONG_POLL_MS = 250
ALIVE_S = 0.05  # how long a link sleeps when it has nothing to do


@dataclass(slots=True)
class Route:
    """A partition on its way: its copy, its ledger, its limits, and the terms on which batches are cut."""

    copy: PartitionCopy
    ledger: PartitionLedger
    rate: Rate
    leave_out: Callable[[Batch], bool]
    source: Address
    target: Address
    wake: Callable[[], None] = field(default=lambda: None)
    terms: Terms = field(default_factory=Terms)


class Link(threading.Thread):
    """What both kinds of links share: the routes they serve and how they end."""

    def __init__(self, kind: str, settings: ConnectionSettings, address: Address) -> None:
        super().__init__(name=f"{kind}-{settings.alias}-{address.port}", daemon=True)
        self.settings, self.address = settings, address
        self._condition = threading.Condition()
        self._routes: tuple[Route, ...] = ()
        self._ending = False
        self._connection: Connection | None = None

    def add(self, route: Route) -> None:
        with self._condition:
            self._routes = (*self._routes, route)
            self._condition.notify()

    def remove(self, route: Route) -> None:
        with self._condition:
            self._routes = tuple(other for other in self._routes if other is not route)

    def wake(self) -> None:
        with self._condition:
            self._condition.notify()

    def end(self) -> None:
        self._ending = True
        self.wake()

    def counters(self) -> dict[str, float]:
        """What this link has counted since it started, by metric name."""
        return {}

    def run(self) -> None:
        while not self._ending:
            try:
                if not self._round():
                    with self._condition:
                        self._condition.wait(ALIVE_S)
            except ClusterError as error:
                self._lost(error)
            except Exception as error:
                log.exception("link failed", extra={"link": self.name})
                self._lost(ProtocolError(f"{type(error).__name__}: {error}", alias=self.settings.alias))
        self._disconnect()

    def _round(self) -> bool:
        """Do something; False when there is nothing to do."""
        raise AssertionError("a link fetches or sends")

    def _lost(self, error: ClusterError) -> None:
        log.warning("link lost", extra={"link": self.name, "reason": str(error)})
        self._disconnect()

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = connect(self.settings, self.address)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(OSError):
                self._connection.close()
            self._connection = None


class SourceLink(Link):
    """Fetches for all partitions led by one source broker, as long as their buffers have room."""

    def __init__(self, settings: ConnectionSettings, address: Address, budget: Callable[[], bool]) -> None:
        super().__init__("fetch", settings, address)
        self._budget = budget  # whether the worker as a whole may hold more bytes
        self._first = 0

    def _round(self) -> bool:
        now = time.monotonic()
        routes = [route for route in self._routes if _fetchable(route, now)] if self._budget() else []
        if not routes:
            return False
        self._first = (self._first + 1) % len(routes)  # the broker fills the answer in this order
        routes = routes[self._first :] + routes[: self._first]
        by_partition = {(route.copy.source_id, route.copy.key.partition): route for route in routes}
        answers = self._connected().fetch(
            tuple(
                FetchPartition(copy.source_id, copy.key.partition, copy.position, copy.leader_epoch, FETCH_BYTES)
                for copy in (route.copy for route in by_partition.values())
            ),
            max_wait_ms=LONG_POLL_MS,
            max_bytes=ANSWER_BYTES,
        )
        for answer in answers:
            self._deliver(by_partition[answer.topic_id, answer.partition], answer)
        return True

    def _deliver(self, route: Route, answer: FetchedPartition) -> None:
        copy = route.copy
        trouble = _fetch_trouble(copy, answer)
        if trouble is not None:
            with copy.lock:
                copy.trouble = copy.trouble or trouble
            return
        copy.source_end, copy.high_watermark = answer.last_stable, answer.high_watermark
        records = answer.records
        if 2 * len(records) < memoryview(records.obj).nbytes:  # a small part must not hold a large answer in memory
            records = memoryview(bytes(records))
        sifted = sift(records, copy.position, answer.aborted, leave_out=route.leave_out, terms=route.terms)
        runs = copy.accept(sifted)
        if runs:
            route.ledger.append(runs)
        route.rate.spend(len(answer.records), time.monotonic())
        if sifted.batches:
            route.wake()

    def _lost(self, error: ClusterError) -> None:
        super()._lost(error)
        for route in self._routes:
            with route.copy.lock:
                route.copy.trouble = route.copy.trouble or LookAgain(str(error))


class TargetLink(Link):
    """Sends for all partitions led by one target broker: one batch a partition and request, several requests on
    their way, answers in order."""

    def __init__(self, settings: ConnectionSettings, address: Address) -> None:
        super().__init__("send", settings, address)
        self._requests: deque[list[tuple[Route, Outgoing]]] = deque()
        self._first = 0

    def _round(self) -> bool:
        if len(self._requests) < REQUESTS_IN_FLIGHT:
            request = self._gathered()
            if request:
                self._requests.append(request)
                self._connected().send_produce(
                    tuple(
                        ProducePartition(route.copy.target_id, route.copy.key.partition, outgoing.pieces)
                        for route, outgoing in request
                    )
                )
                return True
        if not self._requests:
            return False
        answers = {(a.topic_id, a.partition): a for a in self._connected().receive_produce()}
        request = self._requests[0]
        if any((route.copy.target_id, route.copy.key.partition) not in answers for route, _ in request):
            raise ProtocolError("an answer to Produce leaves a partition out", alias=self.settings.alias)
        self._requests.popleft()
        now = int(time.time() * 1000)
        for route, _ in request:
            route.copy.answered(answers[route.copy.target_id, route.copy.key.partition], now)
        return True

    def _gathered(self) -> list[tuple[Route, Outgoing]]:
        routes = self._routes
        if not routes:
            return []
        self._first = (self._first + 1) % len(routes)
        request: list[tuple[Route, Outgoing]] = []
        size = 0
        now = int(time.time() * 1000)
        for route in routes[self._first :] + routes[: self._first]:
            outgoing = route.copy.next_outgoing(now)
            if outgoing is not None:
                request.append((route, outgoing))
                size += outgoing.size
                if size >= REQUEST_BYTES:
                    break
        return request

    def _lost(self, error: ClusterError) -> None:
        super()._lost(error)
        unanswered = {id(route): route for request in self._requests for route, _ in request}
        self._requests.clear()
        for route in (*unanswered.values(), *self._routes):
            route.copy.connection_lost(str(error))


def _fetchable(route: Route, now: float) -> bool:
    copy = route.copy
    return copy.trouble is None and copy.refused is None and copy.buffered < PARTITION_BUFFER and route.rate.allows(now)


def _fetch_trouble(copy: PartitionCopy, answer: FetchedPartition) -> Loud | LookAgain | None:
    if answer.diverging_epoch is not None:
        epoch, end = answer.diverging_epoch
        return Loud(
            "source_truncated",
            f"the source's log now ends epoch {epoch} at offset {end}, copied was through {copy.position}",
        )
    if answer.error in (codes.UNKNOWN_TOPIC_ID, codes.INCONSISTENT_TOPIC_ID):
        return LookAgain("the source topic is not there under its id")
    if answer.error == codes.TOPIC_AUTHORIZATION_FAILED:
        return Loud("unauthorised", f"the source refuses READ on topic {copy.key.topic}")
    if answer.error:
        return LookAgain(f"the source answers {codes.name_of(answer.error)} at offset {copy.position}")
    return None
