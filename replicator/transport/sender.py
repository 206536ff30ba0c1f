"""The lanes that send: one batch a partition and request, several requests on their way, answers in order."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

from clusters.errors import ProtocolError
from clusters.settings import ConnectionSettings
from clusters.wire.messages import ProducePartition
from replicator.copy.partition_copy import OutgoingBatch
from replicator.recovery.log_inspection import BrokerAddress
from replicator.transport.active_copy import ActiveCopy
from replicator.transport.broker_connection import LONGEST_SLEEP_S, BrokerConnectionThread, TrafficClass
from replicator.transport.fair_scheduling import FairScheduler
from replicator.transport.stall_detector import StallDetector
from replicator.worker import membership

_REQUEST_BYTES: Final = 8 << 20
_REQUESTS_IN_FLIGHT: Final = 5
# A broker that hangs has been replaced by then; giving up early costs a look and is never wrong, as nothing is resent.
_PATIENCE_S: Final = 10.0
_SLOWEST_BYTES_S: Final = 200_000  # for what is on its way to get there at all
_PULSE: Final = StallDetector(
    membership.WORKER_SESSION_MS / 2000
)  # of this process; half a session goes on while it is frozen


class Sender(BrokerConnectionThread):
    """`offer` puts a partition into the lane that carries it now; `carried` are the partitions of a lane."""

    def __init__(
        self,
        kind: TrafficClass,
        settings: ConnectionSettings,
        address: BrokerAddress,
        offer: Callable[[ActiveCopy], None],
        carried: Callable[[TrafficClass], list[ActiveCopy]],
    ) -> None:
        super().__init__("send", kind, settings, address)
        self._offer, self._carried = offer, carried
        self._shares: FairScheduler[ActiveCopy] = FairScheduler()
        self._requests: deque[list[tuple[ActiveCopy, OutgoingBatch]]] = deque()
        self._stops = _PULSE.count_stalls()

    def start(self) -> None:
        _PULSE.start()
        super().start()

    def put(self, route: ActiveCopy) -> None:
        """The partition may have something to send."""
        self._shares.put(route)
        self.wake()

    def _round(self) -> None:
        now = time.monotonic()
        if (stops := _PULSE.count_stalls()) != self._stops:
            for route in self._carried(self.kind):
                route.sequenced_copy.note_stall(int(time.time() * 1000))
        self._stops = stops
        if not self._requests:
            self._check_connection()
            if self._connection is None and self._carried(self.kind):
                self._connected()  # ahead of what comes; and where the broker is gone its partitions have to know
        open_ = len(self._requests) < _REQUESTS_IN_FLIGHT and now >= self._not_before
        if open_:
            self._asleep = True
            request = self._gathered()
            if request:
                self._asleep = False
                self._send(request)
                return
        if self._requests:
            # Full or throttled: nothing to do but to wait for the oldest answer. Else whatever comes first.
            if not open_ or self._connected().buffered or self._sleep(LONGEST_SLEEP_S, until_answer=True):
                self._receive()
        else:
            self._asleep = True
            if self._not_before > now:
                self._sleep(min(self._not_before - now, LONGEST_SLEEP_S))
            elif not self._shares:
                self._sleep(LONGEST_SLEEP_S)

    def _send(self, request: list[tuple[ActiveCopy, OutgoingBatch]]) -> None:
        self._requests.append(request)
        self._connected().send_produce(
            tuple(
                ProducePartition(route.copy.target_id, route.copy.key.partition, outgoing.pieces)
                for route, outgoing in request
            )
        )

    def _receive(self) -> None:
        connection = self._connected()
        waiting = sum(outgoing.size for request in self._requests for _, outgoing in request)
        connection.patience_s = _PATIENCE_S + waiting / _SLOWEST_BYTES_S
        answers = {(a.topic_id, a.partition): a for a in connection.receive_produce()}
        request = self._requests[0]
        if any((route.copy.target_id, route.copy.key.partition) not in answers for route, _ in request):
            raise ProtocolError("an answer to Produce leaves a partition out", alias=self.settings.alias)
        self._requests.popleft()
        now = int(time.time() * 1000)
        for route, _ in request:
            route.sequenced_copy.answered(answers[route.copy.target_id, route.copy.key.partition], now)
            if route.sequenced_copy.waiting:
                self._offer(route)
            route.room()
        self._apply_throttle(connection.throttle_ms)

    def _gathered(self) -> list[tuple[ActiveCopy, OutgoingBatch]]:
        request: list[tuple[ActiveCopy, OutgoingBatch]] = []
        size = 0
        now = int(time.time() * 1000)
        while size < _REQUEST_BYTES and (route := self._shares.next(size)) is not None:
            if route.carrier != self.kind:  # put in here before it changed lanes; it may be on its way over there
                self._offer(route)
                continue
            wanted = route.kind  # the fetching side may change it at any time
            if wanted != self.kind:
                if route.copy.idle:  # it changes lanes while nothing of it is on its way
                    route.carrier = wanted
                    self._offer(route)
                continue
            outgoing = route.sequenced_copy.next_outgoing(now)
            if outgoing is not None:
                request.append((route, outgoing))
                size += outgoing.size
                self._shares.spent(route, outgoing.size)
                if route.sequenced_copy.waiting:
                    self._shares.put(route)
            else:
                route.between()
        self._shares.complete()
        return request

    def _dropped(self, reason: str, closed: bool) -> None:
        """A partition that had nothing to send goes on over the next connection, as long as the broker knows its
        sequence numbers: nothing about it is in doubt."""
        lost = {id(route): route for request in self._requests for route, _ in request}
        self._requests.clear()
        now = int(time.time() * 1000)
        for route in self._carried(self.kind):
            copy = route.sequenced_copy
            if closed and copy.idle and not copy.waiting and id(route) not in lost:
                copy.note_stall(now, reason)
            else:
                lost[id(route)] = route
        for route in lost.values():
            route.sequenced_copy.connection_lost(reason)
