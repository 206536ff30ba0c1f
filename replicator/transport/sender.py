"""The threads that send: one batch a partition and request, several requests in flight, answers in order."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

from watershed.clusters.errors import ProtocolError
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.messages import ProducePartition
from watershed.replicator.batch.repack import choose_merging
from watershed.replicator.copy.flow_latency import measure_age_s
from watershed.replicator.copy.partition_copy import OutgoingBatch
from watershed.replicator.recovery.log_inspection import BrokerAddress
from watershed.replicator.transport import stall_detector
from watershed.replicator.transport.active_copy import ActiveCopy
from watershed.replicator.transport.broker_connection import LONGEST_SLEEP_S, BrokerConnectionThread, TrafficClass
from watershed.replicator.transport.fair_scheduling import FairScheduler
from watershed.replicator.transport.stall_detector import StallDetector

_REQUEST_BYTES: Final = 8 << 20
_REQUESTS_IN_FLIGHT: Final = 5
# Of the live thread to a target nearby. A broker works on one request of a connection after the other (its channel is
# muted meanwhile), so a second one only keeps the records that come next from going together: with one, 1,000 records
# a second have a p99.9 of 8 to 27 ms where five have 50, and as good a p50.
_LIVE_REQUESTS_IN_FLIGHT: Final = 1
# A broker that hangs has been replaced by then; giving up early costs an inspection and is never wrong, as nothing is
# resent.
_PATIENCE_S: Final = 10.0
_SLOWEST_BYTES_S: Final = 200_000  # for what is on its way to get there at all
_SESSION_S: Final = stall_detector.WORKER_SESSION_MS / 1000
_STALLS: Final = StallDetector(_SESSION_S / 2, _SESSION_S)  # of this process
_SESSION_IS_OVER: Final = "this worker stood still for longer than its session; the partition may be another's"


class Sender(BrokerConnectionThread):
    """offer: gives a partition to the sender that carries it now. copies_of: the active copies of a traffic class."""

    def __init__(
        self,
        kind: TrafficClass,
        settings: ConnectionSettings,
        address: BrokerAddress,
        offer: Callable[[ActiveCopy], None],
        copies_of: Callable[[TrafficClass], list[ActiveCopy]],
    ) -> None:
        super().__init__("send", kind, settings, address)
        self._offer, self._copies_of = offer, copies_of
        self._shares: FairScheduler[ActiveCopy] = FairScheduler()
        self._requests: deque[list[tuple[ActiveCopy, OutgoingBatch]]] = deque()
        self._sent_at: deque[float] = deque()  # of each request, monotonic
        self._last_sent = 0.0
        self._stalls = _STALLS.count_stalls()

    def start(self) -> None:
        """Start the stall detector of the process, then the thread."""
        _STALLS.start()
        super().start()

    def put(self, active: ActiveCopy) -> None:
        """The partition may have something to send."""
        self._shares.put(active)
        self.wake()

    def _round(self) -> None:
        now = time.monotonic()
        self._note_stalls()
        if not self._requests:
            self._check_connection()
            if self._connection is None and self._copies_of(self.kind):
                self._connected()  # ahead of what comes; and where the broker is gone its partitions have to know
        most = _LIVE_REQUESTS_IN_FLIGHT if self.kind == "live" and not self.is_far else _REQUESTS_IN_FLIGHT
        open_ = len(self._requests) < most and now >= self._not_before
        pause = self._find_pause(now)
        if open_:
            self._asleep = True
            request = self._gather_request() if pause <= 0 else []
            if request:
                self._asleep = False
                self._send(request)
                return
        self._wait(open_, now, pause)

    def _find_pause(self, now: float) -> float:
        """Seconds until the next request should leave. To a target far away those of the live thread leave at even
        distances within a round trip: five at once would let whatever comes next wait for the first answer."""
        if self.kind != "live" or not self._requests or not self.is_far:
            return 0.0
        return self._last_sent + self._round_trip_s / _REQUESTS_IN_FLIGHT - now

    def _note_stalls(self) -> None:
        """After half a session without a beat every copy checks whether the broker may have forgotten its sequence
        numbers. After a whole one, the partitions are another's, who may have claimed a producer epoch that the broker
        has not seen yet: only we can keep our batches out (docs/research/sequence-numbers.md, §4 R5)."""
        stalls = _STALLS.count_stalls()
        if stalls == self._stalls:
            return
        is_over, self._stalls = stalls[1] != self._stalls[1], stalls
        for active in self._copies_of(self.kind):
            if is_over:
                active.sequenced_copy.halt(_SESSION_IS_OVER)
            else:
                active.sequenced_copy.note_stall(int(time.time() * 1000))

    def _wait(self, open_: bool, now: float, pause: float) -> None:
        """Wait for the oldest answer or for something to send. open_: one more request may be sent at `now`, or `pause`
        seconds later."""
        if self._requests:
            # Full or throttled: nothing to do but to wait for the oldest answer. Else whatever comes first.
            longest = pause if pause > 0 else LONGEST_SLEEP_S
            if not open_ or self._connected().buffered or self._sleep(longest, until_answer=True):
                self._receive()
        else:
            self._asleep = True
            if self._not_before > now:
                self._sleep(min(self._not_before - now, LONGEST_SLEEP_S))
            elif not self._shares:
                self._sleep(LONGEST_SLEEP_S)

    def _send(self, request: list[tuple[ActiveCopy, OutgoingBatch]]) -> None:
        self._requests.append(request)
        self._last_sent = time.monotonic()
        self._sent_at.append(self._last_sent)
        self._connected().send_produce(
            tuple(
                ProducePartition(active.copy.target_id, active.copy.key.partition, outgoing.pieces)
                for active, outgoing in request
            )
        )

    def _receive(self) -> None:
        connection = self._connected()
        waiting = sum(outgoing.size for request in self._requests for _, outgoing in request)
        connection.patience_s = _PATIENCE_S + waiting / _SLOWEST_BYTES_S
        answers = {(a.topic_id, a.partition): a for a in connection.receive_produce()}
        request = self._requests[0]
        if any((active.copy.target_id, active.copy.key.partition) not in answers for active, _ in request):
            raise ProtocolError("an answer to Produce leaves a partition out", alias=self.settings.alias)
        self._requests.popleft()
        now, arrived = int(time.time() * 1000), time.monotonic()
        self._note_answer(arrived - self._sent_at.popleft())
        for active, outgoing in request:
            answer = answers[active.copy.target_id, active.copy.key.partition]
            active.sequenced_copy.answered(answer, now)
            if answer.error == error_codes.NONE:
                age_s = measure_age_s(now, outgoing.max_timestamp)
                active.latency.add(arrived - outgoing.received_at, outgoing.records, age_s)
            if active.sequenced_copy.has_unsent:
                self._offer(active)
            active.terms = choose_merging(active.terms, is_far=self.is_far)
            active.room()
        self._apply_throttle(connection.throttle_ms)

    def _gather_request(self) -> list[tuple[ActiveCopy, OutgoingBatch]]:
        request: list[tuple[ActiveCopy, OutgoingBatch]] = []
        size = 0
        now = int(time.time() * 1000)
        while size < _REQUEST_BYTES and (active := self._shares.next(size)) is not None:
            if active.carrier != self.kind:  # put in here before it changed threads; it may be on its way over there
                self._offer(active)
                continue
            wanted = active.kind  # the fetching side may change it at any time
            if wanted != self.kind:
                if active.copy.is_idle:  # it changes threads while nothing of it is on its way
                    active.carrier = wanted
                    self._offer(active)
                continue
            outgoing = active.sequenced_copy.next_outgoing(now)
            if outgoing is not None:
                request.append((active, outgoing))
                size += outgoing.size
                self._shares.spent(active, outgoing.size)
                if active.sequenced_copy.has_unsent:
                    self._shares.put(active)
            else:
                active.between()
        self._shares.complete()
        return request

    def _dropped(self, reason: str, closed: bool) -> None:
        """A partition that had nothing to send goes on over the next connection, as long as the broker knows its
        sequence numbers: nothing about it is in doubt."""
        lost = {id(active): active for request in self._requests for active, _ in request}
        self._requests.clear()
        self._sent_at.clear()
        now = int(time.time() * 1000)
        for active in self._copies_of(self.kind):
            copy = active.sequenced_copy
            if closed and copy.is_idle and not copy.has_unsent and id(active) not in lost:
                copy.note_stall(now, reason)
            else:
                lost[id(active)] = active
        for active in lost.values():
            active.sequenced_copy.connection_lost(reason)
