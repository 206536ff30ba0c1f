"""A worker: serves its share of all flows into one target cluster until it is stopped.

One loop on one thread decides; fetching and sending run on their own threads (`replicator.transport.broker_threads`),
looks at logs and topic discovery in a small pool. The worker keeps nothing on disk: everything it needs to know stands
on the target cluster.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from clusters.admin import Admin
from clusters.control_topics import ControlWriter
from clusters.errors import ClusterError
from clusters.fleet import PlacementRecord, build_fleet_group_id, build_fleet_key, build_placement_key
from clusters.flow_records import FlowRecord
from clusters.partition_status import PartitionStatus, delete_partition_status, write_partition_status
from clusters.settings import ConnectionSettings
from replicator.copy import log_append_time
from replicator.copy.aligned.aligned_copy import AlignedCopy
from replicator.copy.aligned.alignment_decisions import AlignmentDecisions
from replicator.copy.partition_copy import PartitionKey
from replicator.copy.transactions.slot_sender import SlotSenders
from replicator.copy.transactions.slot_takeover import TakenTransactionPartition
from replicator.errors import LedgerThreadEnded
from replicator.ledger.ledger_thread import LedgerThread
from replicator.recovery.ambiguous_answers import AmbiguousAnswers
from replicator.recovery.takeover import TakenPartition
from replicator.states import Halt, Reinspect
from replicator.sync.continuous_sync import ContinuousSync
from replicator.transport.copy_registry import CopyRegistry
from replicator.worker.assignment import assign_partitions, can_keep_copying, compute_quota_shares, needs_report
from replicator.worker.desired_state import DesiredState
from replicator.worker.inspection_pool import InspectionPool
from replicator.worker.loop_guards import LoopGuards
from replicator.worker.membership import Membership
from replicator.worker.metrics_snapshot import MetricsSnapshot
from replicator.worker.partition_task import PartitionTask
from replicator.worker.placement_leader import PlacementLeader
from replicator.worker.topic_discovery import TopicDiscovery

log = logging.getLogger("watershed.worker")

Connect = Callable[[str], ConnectionSettings]
_STATUS_S = 1.0
_PLACED_EVERY_S = 60.0
_DRAIN_S = 5.0
_SWITCH_S = 0.0005  # a live record does not wait longer for a thread that counts or reports (Python's own: 5 ms)
_PACE_S = 0.02
_IDLE_PACE_S = 0.1  # while nothing waits for the loop; bytes move without it
_WAIT_FOR_APPLY_S = 3.0
_DEFAULT_EXPIRATION_MS = 86_400_000  # producer.id.expiration.ms of Apache Kafka


def run_worker(
    target: ConnectionSettings,
    connect: Connect,
    *,
    topology: str,
    worker_id: str,
    stop: threading.Event,
    metrics: tuple[str, int] | None = None,
) -> None:
    """Serve the flows of `topology` into `target` until `stop` is set or the fleet's record says stopped.

    metrics is where Prometheus may ask (address, port). `connect` gives the settings of a cluster by alias (it may
    raise ClusterError). Raises Unreachable or WrongCluster when the target cannot be used at all, NoMetrics when that
    address cannot be opened; everything later is retried and reported as status.
    """
    worker = Worker(target, connect, topology, worker_id)
    sys.setswitchinterval(_SWITCH_S)
    gc.freeze()  # what start-up left is not looked through again by each full collection
    try:
        if metrics is not None:
            from replicator.worker.metrics import WorkerCollector, serve_metrics

            serve_metrics(WorkerCollector(worker.scrape, worker_id, target.alias), *metrics)
        while not stop.is_set() and not worker.is_fleet_stopped():
            worker.step()
    finally:
        worker.close()


class Worker:
    """See `run_worker`. `step` is one round of the loop, at most IDLE_PACE_S long while nothing waits for it."""

    def __init__(self, target: ConnectionSettings, connect: Connect, topology: str, worker_id: str) -> None:
        self.target, self.connect, self.topology, self.worker_id = target, connect, topology, worker_id
        with Admin(target) as admin:
            admin.check_identity()
            guards = LoopGuards(admin.cluster_id())
            expiration_ms = int(admin.broker_config("producer.id.expiration.ms") or _DEFAULT_EXPIRATION_MS)
        self._desired = DesiredState(target)
        self._desired.catch_up()
        self._ask_again = 0.0
        self._fleet_at_start = self._desired.fleets.get(build_fleet_key(topology, target.alias))
        self._writer = ControlWriter(target, client_id=f"watershed-{worker_id}")
        self._acknowledger = LedgerThread(self._writer)
        self._acknowledger.start()
        self._pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix="look")
        self._stored = AmbiguousAnswers(target, self._pool)
        decisions = AlignmentDecisions(target, self._writer, f"worker {worker_id}")
        self._discovery = TopicDiscovery(target, connect, decisions=decisions)
        self._senders = SlotSenders(target, self._writer)
        self._looks = InspectionPool(
            target, connect, self._pool, self._writer, worker_id, expiration_ms, self._senders, guards
        )
        later = self._acknowledger.later
        self._routes = CopyRegistry(target, connect, self._writer, guards, expiration_ms, later, self._discovery)
        self._looks.schema_ids = self._routes.schema_ids
        self._guards = guards
        self._tasks: dict[PartitionKey, PartitionTask] = {}
        self._assigned_from: tuple[object, ...] | None = None  # what the seats were last derived from
        self._placer = PlacementLeader(target, topology, worker_id, self._writer, period_s=_PLACED_EVERY_S)
        self._keeper = ContinuousSync(target, connect, worker_id, self._writer)
        self._published = 0.0
        self._reports: list[PartitionStatus] = []
        self._membership = Membership(target, build_fleet_group_id(topology), f"watershed-{worker_id}", self._give_up)
        log.info("worker started", extra={"worker": worker_id, "target": target.alias, "pid": os.getpid()})

    def is_fleet_stopped(self) -> bool:
        """Whether the fleet was told to stop since this worker started."""
        fleet = self._desired.fleets.get(build_fleet_key(self.topology, self.target.alias))
        return fleet is not None and fleet.state == "stopped" and fleet != self._fleet_at_start

    def scrape(self) -> MetricsSnapshot:
        """What metrics tell, as of the last report."""
        return MetricsSnapshot(self._reports, self._routes.counters(), self._routes.buffered(), self._keeper.told())

    def step(self) -> None:
        """One round: membership, desired state, discovery, takeovers, status."""
        self._membership.poll(self._pace())
        self._check_ledger()
        self._follow()
        flows = self._flows()
        self._discovery.step(flows)
        self._assign_tasks(flows)
        self._placer.step(self._membership.slots, flows, self._placement)
        self._keeper.step(self._membership.slots, flows)
        self._retire()
        self._take_over()
        now = time.monotonic()
        if now - self._published >= _STATUS_S:
            self._published = now
            self._publish()

    def _pace(self) -> float:
        """How long the next round may wait for news of the group, in seconds."""
        soon = time.monotonic() + _IDLE_PACE_S
        if not self._membership.slots or any(seat.waits(soon) for seat in self._tasks.values()):
            return _PACE_S
        return _IDLE_PACE_S

    def close(self) -> None:
        """Finish what is in flight, publish, leave the group."""
        for seat in self._tasks.values():
            seat.wanted = False
        self._drain(list(self._tasks.values()))
        self._publish()
        self._membership.close()
        self._routes.end()
        self._senders.end()
        self._discovery.close()
        self._placer.close()
        self._keeper.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._acknowledger.end(timeout=2)
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
            self._ask_again = time.monotonic() + _WAIT_FOR_APPLY_S
            try:
                self._desired.catch_up()
            except ClusterError as error:
                log.warning("desired state unknown", extra={"reason": str(error)})
            if not self._desired.there:
                log.info("no flows yet", extra={"remedy": "run `topology apply`", "target": self.target.alias})
        for gone in before.keys() - self._desired.flows.keys():
            self._senders.forget(gone)
        for flow_id, record in self._desired.flows.items():
            old = before.get(flow_id)
            if old is not None and not can_keep_copying(old.flow, record.flow):
                self._routes.forget(flow_id)
                self._senders.forget(flow_id)
                self._guards.forget(flow_id)

    @property
    def _placement(self) -> PlacementRecord | None:
        return self._desired.placements.get(build_placement_key(self.topology, self.target.alias))

    def _flows(self) -> dict[str, FlowRecord]:
        return {
            flow_id: record
            for flow_id, record in self._desired.flows.items()
            if record.topology == self.topology and record.flow.target == self.target.alias
        }

    def _assign_tasks(self, flows: dict[str, FlowRecord]) -> None:
        placed = self._placement.slots if self._placement is not None else {}
        inputs = (tuple(flows.values()), self._discovery.version, frozenset(self._membership.slots), placed)
        if inputs != self._assigned_from:
            self._assigned_from = inputs
            found = assign_partitions(flows, self._discovery.topics, self._membership.slots, placed)
            self._routes.rates.share(compute_quota_shares(found, flows, self._discovery.topics))
            for key, place in found.items():
                seat = self._tasks.setdefault(key, PartitionTask(key, place.record))
                seat.wanted, seat.serving, seat.held, seat.hint = True, place.serving, place.held, place.hint
                seat.way = place.way
                if seat.held is not None:
                    self._halt(seat, seat.held.error)
                if seat.record is not place.record:
                    self._changed(seat, place.record)
            for key, seat in self._tasks.items():
                seat.wanted = key in found
        for seat in [seat for seat in self._tasks.values() if not seat.wanted]:
            self._halt(seat, "handed over")
            if seat.route is None and not seat.looking:
                self._leave(seat, flows.get(seat.key.flow))

    def _leave(self, seat: PartitionTask, record: FlowRecord | None) -> None:
        """The partition is another worker's now, or no longer anybody's: then its last report goes as well."""
        del self._tasks[seat.key]
        self._looks.stillness.forget(seat.key)
        selected = record is not None and record.selects(seat.key.topic)
        if not selected and seat.published is not None:
            delete_partition_status(self._writer, seat.published)

    def _changed(self, seat: PartitionTask, record: FlowRecord) -> None:
        """Another desired state: a restart (a new generation) also forgets a loud state."""
        if record.generation != seat.record.generation:
            seat.stopped = None
            self._halt(seat, "restarted")
        if not can_keep_copying(seat.record.flow, record.flow):
            self._halt(seat, "changed")
        if record.state != "running":
            self._halt(seat, record.state)
        seat.record = record
        seat.not_before = 0.0

    def _halt(self, seat: PartitionTask, reason: str) -> None:
        if seat.route is not None:
            seat.route.copy.halt(reason)

    def _retire(self) -> None:
        """Take partitions in trouble off their links, once nothing of them is in flight."""
        now = time.monotonic()
        for seat in self._tasks.values():
            route = seat.route
            if route is None or route.copy.trouble is None:
                continue
            if isinstance(route.copy, AlignedCopy):
                route.copy.stop.set()
            if not route.copy.idle:
                continue
            trouble = route.copy.trouble
            if isinstance(trouble, Halt) and trouble.sent is not None:
                told = self._stored.told(seat.key, trouble)
                if told is None:
                    continue
                trouble = told
            self._routes.remove(route)
            seat.detach_copy()
            if isinstance(trouble, Halt):
                self._log_halt(seat, trouble)  # also where the partition is another worker's by now
                if trouble.state == log_append_time.APPEND_TIME_STATE:
                    self._discovery.ask_limits(seat.key.flow)  # so that a restart does not begin before it is mended
            if seat.wanted and (seat.record.state == "running" or isinstance(trouble, Halt)):
                seat.found(trouble, now)
                if seat.stopped is not None and seat.stopped is not trouble:
                    self._log_halt(seat, seat.stopped)

    def _take_over(self) -> None:
        """Put those on their way that were looked at, and look at those that wait."""
        for seat, found in self._looks.finished():
            if isinstance(found, Halt | Reinspect):
                seat.found(found, time.monotonic())
                if seat.stopped is not None:
                    self._log_halt(seat, seat.stopped)
            elif seat.wanted and seat.held is None and seat.record.state == "running":
                self._looks.stillness.forget(seat.key)
                self._go(seat, found)
        self._hand_orders()
        self._looks.start(self._tasks.values())

    def _go(self, seat: PartitionTask, found: TakenPartition | TakenTransactionPartition) -> None:
        try:
            if isinstance(found, TakenPartition):
                self._routes.go(seat, found)
            else:
                self._routes.start_transaction_copy(seat, found)
        except ClusterError as error:  # a secret of the source is missing meanwhile, say
            self._halt(seat, str(error))
            seat.found(Reinspect(str(error)), time.monotonic())

    def _hand_orders(self) -> None:
        """What persons decided about single partitions of ours."""
        for order in self._desired.orders.values():
            record = self._desired.flows.get(order.flow)
            if record is not None:
                target_topic = record.flow.target_topic(order.topic)
                seat = self._tasks.get(PartitionKey(order.flow, order.topic, target_topic, order.partition))
                if seat is not None:
                    seat.given(order)

    def _give_up(self, slots: set[int]) -> None:
        """Slots are about to belong to somebody else: finish what is in flight first."""
        seats = [seat for seat in self._tasks.values() if seat.serving in slots]
        self._assigned_from = None  # they may be given back before the next round
        for seat in seats:
            seat.wanted = False
        self._drain(seats)
        self._senders.give_up(slots)

    def _drain(self, seats: list[PartitionTask]) -> None:
        for seat in seats:
            self._halt(seat, "handed over")
        deadline = time.monotonic() + _DRAIN_S
        while time.monotonic() < deadline:
            self._retire()
            if all(seat.route is None for seat in seats):
                return
            time.sleep(0.005)

    def _publish(self) -> None:
        self._reports = [seat.report(self.worker_id, os.getpid()) for seat in self._tasks.values()]
        for seat, report in zip(self._tasks.values(), self._reports, strict=True):
            if needs_report(report, seat.published):
                seat.published = report
                write_partition_status(self._writer, report, on_done=_not_missed)
        self._routes.sweep()

    def _check_ledger(self) -> None:
        """Copies that may have missed an acknowledgement begin anew from the logs, rather than wait for ever."""
        if not self._acknowledger.is_alive():
            raise LedgerThreadEnded
        failure = self._acknowledger.failure()
        if failure:
            for seat in self._tasks.values():
                self._halt(seat, f"the ledger's acknowledgements failed: {failure}")

    def _log_halt(self, seat: PartitionTask, found: Halt) -> None:
        log.error(
            found.state,
            extra={"flow": seat.key.flow, "topic": seat.key.topic, "partition": seat.key.partition,
                   "seen": found.error,
                   "remedy": found.remedy_for(seat.key.flow, seat.key.topic, seat.key.partition)},
        )  # fmt: skip


def _not_missed(error: ClusterError | None, _offset: int) -> None:
    """A lost report is followed by a newer one a second later."""
    if error is not None:
        log.warning("report lost", extra={"reason": str(error)})
