"""A worker: serves its share of all flows into one target cluster until it is stopped.

One loop on one thread decides; fetching and sending run on their own threads (`replicator.links`), looks at logs
and topic discovery in a small pool. The worker keeps nothing on disk: everything it needs to know stands on the
target cluster.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from clusters.admin import Admin
from clusters.control import ControlWriter
from clusters.errors import ClusterError
from clusters.fleet import fleet_key
from clusters.flows import FlowRecord
from clusters.settings import ConnectionSettings
from clusters.status import write_status
from replicator.batches import Batch
from replicator.desired import DesiredState
from replicator.guard import Guard
from replicator.ledger import PartitionLedger
from replicator.links import Link, Route, SourceLink, TargetLink
from replicator.look import Address, Stillness
from replicator.membership import Membership
from replicator.offsetmap import Run
from replicator.partition import PartitionCopy, PartitionKey
from replicator.rate import Rate
from replicator.seat import Seat
from replicator.states import LookAgain, Loud
from replicator.takeover import Taken, take_over
from replicator.targets import Mapped, mapped_topics

log = logging.getLogger("watershed.worker")

Connect = Callable[[str], ConnectionSettings]
BUDGET_BYTES = 128 << 20  # record batches in memory, whatever the partition count
STATUS_S = 1.0
DRAIN_S = 5.0
PACE_S = 0.02
WAIT_FOR_APPLY_S = 3.0
DEFAULT_EXPIRATION_MS = 86_400_000  # producer.id.expiration.ms of Apache Kafka


def run_worker(
    target: ConnectionSettings, connect: Connect, *, topology: str, worker_id: str, stop: threading.Event
) -> None:
    """Serve the flows of `topology` into `target` until `stop` is set or the fleet's record says stopped.

    `connect` gives the settings of a cluster by alias (it may raise ClusterError). Raises Unreachable or
    WrongCluster when the target cannot be used at all; everything later is retried and reported as status.
    """
    worker = Worker(target, connect, topology, worker_id)
    try:
        while not stop.is_set() and not worker.fleet_stopped():
            worker.step()
    finally:
        worker.close()


class Worker:
    """See `run_worker`. `step` is one round of the loop, about PACE_S long."""

    def __init__(self, target: ConnectionSettings, connect: Connect, topology: str, worker_id: str) -> None:
        self.target, self.connect, self.topology, self.worker_id = target, connect, topology, worker_id
        with Admin(target) as admin:
            admin.check_identity()
            self._target_id = admin.cluster_id()
            self._expiration_ms = int(admin.broker_config("producer.id.expiration.ms") or DEFAULT_EXPIRATION_MS)
        self._desired = DesiredState(target)
        self._desired.catch_up()
        self._ask_again = 0.0
        self._fleet_at_start = self._desired.fleets.get(fleet_key(topology, target.alias))
        self._writer = ControlWriter(target, client_id=f"watershed-{worker_id}")
        self._acknowledging = True
        self._after_acknowledgement: deque[Callable[[], None]] = deque()
        self._acknowledger = threading.Thread(target=self._acknowledge, name="ledger", daemon=True)
        self._acknowledger.start()
        self._seats: dict[PartitionKey, Seat] = {}
        self._links: dict[tuple[str, str, Address], Link] = {}
        self._rates: dict[str, Rate] = {}
        self._guards: dict[str, Guard] = {}
        self._stillness = Stillness()
        self._pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix="look")
        self._looks: dict[str, tuple[list[Seat], Future[dict[PartitionKey, Taken | Loud | LookAgain]]]] = {}
        self._discoveries: dict[str, tuple[float, Future[list[Mapped]] | None]] = {}
        self._topics: dict[str, list[Mapped]] = {}
        self._published = 0.0
        self._membership = Membership(target, f"watershed.{topology}", f"watershed-{worker_id}", self._give_up)
        log.info("worker started", extra={"worker": worker_id, "target": target.alias, "pid": os.getpid()})

    def fleet_stopped(self) -> bool:
        """Whether the fleet was told to stop since this worker started."""
        fleet = self._desired.fleets.get(fleet_key(self.topology, self.target.alias))
        return fleet is not None and fleet.state == "stopped" and fleet != self._fleet_at_start

    def step(self) -> None:
        """One round: membership, desired state, discovery, takeovers, status."""
        self._membership.poll(PACE_S)
        self._follow()
        flows = self._flows()
        self._discover(flows)
        self._assign_seats(flows)
        self._retire()
        self._finish_looks()
        self._start_looks()
        now = time.monotonic()
        if now - self._published >= STATUS_S:
            self._published = now
            self._publish()

    def close(self) -> None:
        """Finish what is in flight, publish, leave the group."""
        for seat in self._seats.values():
            seat.wanted = False
        self._drain(list(self._seats.values()))
        self._publish()
        self._membership.close()
        for link in self._links.values():
            link.end()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._acknowledging = False
        self._acknowledger.join(timeout=2)
        try:
            self._writer.flush(5)
        except ClusterError as error:
            log.warning("last reports lost", extra={"reason": str(error)})
        self._desired.close()
        log.info("worker stopped", extra={"worker": self.worker_id})

    def _follow(self) -> None:
        """Desired state as of now; a flow whose content changed gets fresh limits and a fresh guard."""
        before = dict(self._desired.flows)
        if self._desired.there:
            self._desired.follow(0)
        elif time.monotonic() >= self._ask_again:
            self._ask_again = time.monotonic() + WAIT_FOR_APPLY_S
            try:
                self._desired.catch_up()
            except ClusterError as error:
                log.warning("desired state unknown", extra={"reason": str(error)})
            if not self._desired.there:
                log.info("no flows yet", extra={"remedy": "run `topology apply`", "target": self.target.alias})
        for flow_id, record in self._desired.flows.items():
            old = before.get(flow_id)
            if old is not None and old.flow != record.flow:
                self._rates.pop(flow_id, None)
                self._guards.pop(flow_id, None)

    def _flows(self) -> dict[str, FlowRecord]:
        return {
            flow_id: record
            for flow_id, record in self._desired.flows.items()
            if record.topology == self.topology and record.flow.target == self.target.alias
        }

    def _discover(self, flows: dict[str, FlowRecord]) -> None:
        """Ask each source for its topics every so often; a topic list stays valid until the next one is there."""
        now = time.monotonic()
        for flow_id, record in flows.items():
            due, future = self._discoveries.get(flow_id, (0.0, None))
            if future is not None and future.done():
                self._discoveries[flow_id] = (now + record.flow.discovery_ms / 1000, None)
                try:
                    self._topics[flow_id] = future.result()
                except ClusterError as error:
                    log.warning("discovery failed", extra={"flow": flow_id, "reason": str(error)})
                    self._discoveries[flow_id] = (now + 2.0, None)
            elif future is None and now >= due and record.state == "running":
                self._discoveries[flow_id] = (due, self._pool.submit(self._discovered, record))

    def _discovered(self, record: FlowRecord) -> list[Mapped]:
        with Admin(self.connect(record.flow.source)) as source, Admin(self.target) as target:
            source.check_identity()
            return mapped_topics(record.flow, source, target)

    def _assign_seats(self, flows: dict[str, FlowRecord]) -> None:
        wanted: set[PartitionKey] = set()
        for flow_id, record in flows.items():
            for mapped in self._topics.get(flow_id, []):
                for partition in range(mapped.partitions):
                    key = PartitionKey(flow_id, mapped.topic, mapped.target_topic, partition)
                    seat = self._seats.get(key)
                    if seat is None:
                        seat = Seat(key, record)
                    if seat.slot not in self._membership.slots:
                        continue
                    wanted.add(key)
                    self._seats.setdefault(key, seat)
                    if seat.record is not record:
                        self._changed(seat, record)
        for key, seat in list(self._seats.items()):
            seat.wanted = key in wanted
            if not seat.wanted:
                self._halt(seat, "handed over")
                if seat.route is None and not seat.looking:
                    del self._seats[key]

    def _changed(self, seat: Seat, record: FlowRecord) -> None:
        """Another desired state: a restart (a new generation) also forgets a loud state."""
        if record.generation != seat.record.generation:
            seat.stopped = None
            self._halt(seat, "restarted")
        if record.flow != seat.record.flow:
            self._halt(seat, "changed")
        if record.state != "running":
            self._halt(seat, record.state)
        seat.record = record
        seat.not_before = 0.0

    def _halt(self, seat: Seat, reason: str) -> None:
        if seat.route is not None:
            seat.route.copy.halt(reason)

    def _retire(self) -> None:
        """Take partitions in trouble off their links, once nothing of them is in flight."""
        now = time.monotonic()
        for seat in self._seats.values():
            route = seat.route
            if route is None or route.copy.trouble is None or not route.copy.idle:
                continue
            for link in self._links.values():
                link.remove(route)
            seat.route = None
            seat.leader_epoch = route.copy.leader_epoch
            if seat.wanted and seat.record.state == "running":
                seat.found(route.copy.trouble, now)
                if seat.stopped is not None:
                    self._log_loud(seat)

    def _start_looks(self) -> None:
        now = time.monotonic()
        due: dict[str, list[Seat]] = defaultdict(list)
        for seat in self._seats.values():
            if seat.key.flow not in self._looks and seat.ready_to_look(now):
                due[seat.key.flow].append(seat)
        for flow_id, seats in due.items():
            for seat in seats:
                seat.looking = True
            self._looks[flow_id] = (seats, self._pool.submit(self._look, seats[0].record, seats))

    def _look(self, record: FlowRecord, seats: list[Seat]) -> dict[PartitionKey, Taken | Loud | LookAgain]:
        try:
            source = self.connect(record.flow.source)
        except ClusterError as error:
            return {seat.key: LookAgain(str(error)) for seat in seats}
        slots = {seat.key: seat.slot for seat in seats}
        return take_over(
            record, slots, source, self.target, self._expiration_ms, self._stillness, self.worker_id, self._writer
        )

    def _finish_looks(self) -> None:
        for flow_id, (seats, future) in list(self._looks.items()):
            if not future.done():
                continue
            del self._looks[flow_id]
            now = time.monotonic()
            results = future.result()
            for seat in seats:
                seat.looking = False
                result = results[seat.key]
                if not isinstance(result, Taken):
                    seat.found(result, now)
                    if seat.stopped is not None:
                        self._log_loud(seat)
                elif seat.wanted and seat.record.state == "running":
                    self._go(seat, result)

    def _go(self, seat: Seat, taken: Taken) -> None:
        """Put a partition on its way."""
        decided = taken.resume
        copy = PartitionCopy(
            key=seat.key,
            source_id=taken.source.topic_id,
            target_id=taken.target.topic_id,
            identity=decided.identity,
            position=decided.position,
            acked=decided.target_end,
            depth=decided.depth,
            depth_confirmed=decided.depth_confirmed,
            leader_epoch=seat.leader_epoch,
            expiration_ms=self._expiration_ms,
        )
        self._stillness.forget(seat.key)
        sender = self._link("send", self.target, taken.target.leader)

        def durable(runs: list[Run]) -> None:
            copy.durable(runs)
            sender.wake()

        def failed(error: ClusterError) -> None:
            copy.halt(f"the ledger could not be written: {error}")

        ledger = PartitionLedger(self._writer, taken.block, durable, failed, self._after_acknowledgement.append)
        source = self.connect(seat.record.flow.source)
        route = Route(
            copy=copy,
            ledger=ledger,
            rate=self._rates.setdefault(seat.key.flow, Rate(seat.record.flow.quota)),
            leave_out=_everything if seat.record.flow.guard == "none" else self._guard(seat.record, source),
            source=taken.source.leader,
            target=taken.target.leader,
            wake=sender.wake,
        )
        first = [Run(decided.target_end, decided.position)]
        copy.announce(first)
        ledger.append(first)
        seat.took_route(route)
        sender.add(route)
        self._link("fetch", source, taken.source.leader).add(route)
        log.info(
            "copying",
            extra={"flow": seat.key.flow, "topic": seat.key.topic, "partition": seat.key.partition,
                   "position": decided.position, "target_end": decided.target_end},
        )  # fmt: skip

    def _link(self, kind: str, settings: ConnectionSettings, address: Address) -> Link:
        key = (kind, settings.alias, address)
        link = self._links.get(key)
        if link is None or not link.is_alive():
            link = SourceLink(settings, address, self._may_fetch) if kind == "fetch" else TargetLink(settings, address)
            self._links[key] = link
            link.start()
        return link

    def _guard(self, record: FlowRecord, source: ConnectionSettings) -> Guard:
        guard = self._guards.get(record.flow.id)
        if guard is None:
            registry = DesiredState(source)
            reading = threading.Lock()  # the guard is shared by all fetch links of the flow

            def origins() -> dict[int, str]:
                with reading:
                    registry.catch_up()
                    return {
                        flow.producer_id: flow.source_cluster_id
                        for flow in registry.flows.values()
                        if flow.producer_id is not None and flow.source_cluster_id is not None
                    }

            guard = Guard(self._target_id, record.flow.forward, origins)
            self._guards[record.flow.id] = guard
        return guard

    def _may_fetch(self) -> bool:
        routes = [seat.route for seat in list(self._seats.values())]  # the loop may take one off meanwhile
        return sum(route.copy.buffered for route in routes if route is not None) < BUDGET_BYTES

    def _give_up(self, slots: set[int]) -> None:
        """Slots are about to belong to somebody else: finish what is in flight first."""
        seats = [seat for seat in self._seats.values() if seat.slot in slots]
        for seat in seats:
            seat.wanted = False
        self._drain(seats)

    def _drain(self, seats: list[Seat]) -> None:
        for seat in seats:
            self._halt(seat, "handed over")
        deadline = time.monotonic() + DRAIN_S
        while time.monotonic() < deadline:
            self._retire()
            if all(seat.route is None for seat in seats):
                return
            time.sleep(0.005)

    def _publish(self) -> None:
        report = partial(Seat.report, worker=self.worker_id, pid=os.getpid())
        for seat in self._seats.values():
            write_status(self._writer, report(seat), on_done=_not_missed)
        for key, link in list(self._links.items()):
            if not link.is_alive():
                del self._links[key]

    def _acknowledge(self) -> None:
        while self._acknowledging:
            self._writer.poll(0.02)
            while self._after_acknowledgement:
                self._after_acknowledgement.popleft()()

    def _log_loud(self, seat: Seat) -> None:
        assert seat.stopped is not None
        log.error(
            seat.stopped.state,
            extra={"flow": seat.key.flow, "topic": seat.key.topic, "partition": seat.key.partition,
                   "seen": seat.stopped.error, "remedy": seat.stopped.remedy},
        )  # fmt: skip


def _everything(_batch: Batch) -> bool:
    return False


def _not_missed(error: ClusterError | None, _offset: int) -> None:
    """A lost report is followed by a newer one a second later."""
    if error is not None:
        log.warning("report lost", extra={"reason": str(error)})
