"""A worker: serves its share of all flows into one target cluster until it is stopped.

One loop on one thread decides; fetching and sending run on their own threads (`replicator.transport.broker_threads`),
log inspections and topic discovery in a small pool. The worker keeps nothing on disk: everything it needs to know
stands on the target cluster."""

from __future__ import annotations

import gc
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from watershed.clusters.admin import Admin
from watershed.clusters.budget_breaches import BudgetBreach, build_breach_key
from watershed.clusters.capabilities import ask_brokers, check_requests
from watershed.clusters.cluster_protocol import ClusterProtocol
from watershed.clusters.control_topics import FLOWS_TOPIC, ControlWriter
from watershed.clusters.errors import ClusterError
from watershed.clusters.fleet import (
    FleetRecord,
    PlacementRecord,
    build_fleet_group_id,
    build_fleet_key,
    build_placement_key,
    build_supervisor_key,
)
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.partition_end_records import build_end_key
from watershed.clusters.partition_status_records import PartitionStatus, delete_partition_status, write_partition_status
from watershed.clusters.settings import ConnectionSettings, SettingsLookup
from watershed.clusters.wire.versions import Api
from watershed.clusters.worker_heartbeats import WorkerHeartbeat, write_heartbeat
from watershed.product_version import describe_product_version
from watershed.replicator.copy import log_append_time
from watershed.replicator.copy.aligned.aligned_topic_choice import AlignmentDecisions
from watershed.replicator.copy.flow_latency import FlowLatencies
from watershed.replicator.copy.transactions.slot_sender import SlotSenders
from watershed.replicator.copy.transactions.slot_takeover import TakenTransactionPartition
from watershed.replicator.errors import LedgerThreadEnded
from watershed.replicator.ledger.ledger_thread import LedgerThread
from watershed.replicator.ledger.shared_ledger import SharedLedger
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import EndReached, Halt, Reinspect
from watershed.replicator.recovery.ambiguous_answers import AmbiguousAnswers
from watershed.replicator.recovery.found_ends import build_partition_end
from watershed.replicator.recovery.repeat_takeover import TakenRepeatablePartition
from watershed.replicator.recovery.takeover import TakenPartition
from watershed.replicator.sync.continuous_sync import ContinuousSync
from watershed.replicator.topic_mapping import list_copied_topics
from watershed.replicator.transport.active_copy import ActiveCopy
from watershed.replicator.transport.transform_thread import TransformEngine, TransformThread
from watershed.replicator.worker.applied_clusters import AppliedClusters
from watershed.replicator.worker.assignment import (
    assign_partitions,
    can_keep_copying,
    compute_quota_shares,
    needs_report,
)
from watershed.replicator.worker.breach_watch import BreachWatch
from watershed.replicator.worker.copy_registry import CopyRegistry
from watershed.replicator.worker.desired_state import DesiredState
from watershed.replicator.worker.guarantee_check import GuaranteeCheck
from watershed.replicator.worker.inspection_pool import INSPECTION_THREADS, InspectionPool
from watershed.replicator.worker.loop_guards import LoopGuards
from watershed.replicator.worker.membership import Membership
from watershed.replicator.worker.metrics_snapshot import LIVE_S, Health, MetricsSnapshot
from watershed.replicator.worker.partition_task import PartitionTask
from watershed.replicator.worker.paused_log_ends import PausedLogEnds
from watershed.replicator.worker.placement_leader import PlacementLeader
from watershed.replicator.worker.settled_heap import SettledHeap
from watershed.replicator.worker.topic_discovery import TopicDiscovery
from watershed.topology.breach_policy import BreachAction
from watershed.topology.delivery_guarantee import AT_LEAST_ONCE

log = logging.getLogger("watershed.worker")

_STATUS_S = 1.0
_FEW_FLOWS = 50  # whose totals each heartbeat tells; of more, each tells those that copied lately
_TOTALS_EVERY = 10  # and each tenth all
_PLACED_EVERY_S = 60.0
_DRAIN_S = 5.0
_SWITCH_S = 0.0005  # a live record does not wait longer for a thread that counts or reports (Python's own: 5 ms)
_PACE_S = 0.02
_IDLE_PACE_S = 0.1  # while nothing waits for the loop; bytes move without it
_PACE_A_TASK_S = 0.1 / 5_000
_LONGEST_PACE_S = 0.2
_WAIT_FOR_APPLY_S = 3.0
_DEFAULT_EXPIRATION_MS = 86_400_000  # producer.id.expiration.ms of Apache Kafka


def run_worker(
    target: ConnectionSettings,
    connect: SettingsLookup,
    *,
    topology: str,
    worker_id: str,
    stop: threading.Event,
    metrics: tuple[str, int] | None = None,
    plan_hash: str = "",
    epoch: int | None = None,
    engine: TransformEngine | None = None,
) -> None:
    """Serve the flows of `topology` into `target` until `stop` is set, the fleet's record says stopped, or the
    supervisor of a later epoch has its workers ready.

    metrics is where Prometheus may ask (address, port). `connect` gives the settings of a cluster by alias (it may
    raise ClusterError), as the plan with this hash has them; clusters of a plan that is applied later are taken over
    (`replicator.worker.applied_clusters`). epoch: of the supervisor that started the worker, None without one. Raises
    Unreachable or WrongCluster when the target cannot be used at all, MetricsUnavailable when that address cannot be
    opened; everything later is retried and reported as status. engine: what evaluates the expressions of flows with
    `transform`; such a worker serves these flows, and one without serves all others.
    """
    worker = Worker(target, connect, topology, worker_id, plan_hash=plan_hash, epoch=epoch, engine=engine)
    sys.setswitchinterval(_SWITCH_S)
    gc.freeze()  # what start-up left is not looked through again by each full collection
    try:
        if metrics is not None:
            from watershed.replicator.worker.metrics import WorkerCollector
            from watershed.replicator.worker.metrics_endpoint import serve_endpoint

            collector = WorkerCollector(worker.scrape, worker_id, target.alias, topology)
            serve_endpoint(collector, worker.read_health, *metrics)
        while not stop.is_set() and not worker.is_fleet_stopped() and not worker.is_superseded():
            worker.step()
    finally:
        worker.close()


def read_producer_expiration(cluster: ClusterProtocol) -> int:
    """After how many ms brokers forget a producer. Those before Kafka 3.5 (KIP-854) forget it with its transactional
    id; a longer time than the usual one is not trusted there, nor where a vendor hides both configs."""
    own = cluster.broker_config("producer.id.expiration.ms")
    if own:
        return int(own)
    shared = cluster.broker_config("transactional.id.expiration.ms")
    return min(int(shared), _DEFAULT_EXPIRATION_MS) if shared else _DEFAULT_EXPIRATION_MS


class Worker:
    """See `run_worker`. `step` is one round of the loop, at most _LONGEST_PACE_S long while nothing waits for it."""

    def __init__(
        self,
        target: ConnectionSettings,
        connect: SettingsLookup,
        topology: str,
        worker_id: str,
        *,
        plan_hash: str = "",
        epoch: int | None = None,
        engine: TransformEngine | None = None,
    ) -> None:
        self._transforms = None if engine is None else TransformThread(engine)
        self._clusters, self._epoch = AppliedClusters(connect, plan_hash), epoch
        self.target, self.connect, self.topology, self.worker_id = target, self._clusters.connect, topology, worker_id
        connect = self.connect
        with Admin(target) as admin:
            admin.check_identity()
            guards = LoopGuards(admin.cluster_id())
            expiration_ms = read_producer_expiration(admin)
        answers = ask_brokers(target)
        check_requests(answers, "target", allows_repeats=True)
        tells = all(each.has_version(Api.DESCRIBE_PRODUCERS, 0) for each in answers.answers)
        self._desired = DesiredState(target)
        self._desired.catch_up()
        if not any(record.guarantee == AT_LEAST_ONCE for record in self._desired.flows.values()):
            check_requests(answers, "target")
        self._ask_again = 0.0
        self._clusters.follow(self._fleet)
        self._writer = ControlWriter(target, client_id=f"watershed-{worker_id}")
        self._ledger_thread = LedgerThread(self._writer)
        self._ledger_thread.start()
        self._pool = ThreadPoolExecutor(max_workers=INSPECTION_THREADS, thread_name_prefix="look")
        self._ambiguous_answers = AmbiguousAnswers(target, self._pool)
        self._paused_ends = PausedLogEnds(connect, self._pool)
        decisions = AlignmentDecisions(target, self._writer, f"worker {worker_id}")
        check = GuaranteeCheck(target, connect)
        ledger = self._ledger = SharedLedger(target)
        self._discovery = TopicDiscovery(
            target,
            connect,
            lambda flows: list_copied_topics(ledger.read(flows)),
            decisions=decisions,
            find_hold=check.find_hold,
        )
        latencies = FlowLatencies()
        self._senders = SlotSenders(target, self._writer, latencies)
        self._heap = SettledHeap()
        self._inspections = InspectionPool(
            target, connect, self._pool, self._writer, worker_id, expiration_ms, self._senders, guards, ledger
        )
        self._inspections.ends = self._desired.ends
        later = self._ledger_thread.later
        self._registry = CopyRegistry(
            target, connect, self._writer, guards, expiration_ms, later, self._discovery, latencies, self._transforms
        )
        self._inspections.schema_ids = self._registry.schema_ids
        self._guards = guards
        self._tasks: dict[PartitionKey, PartitionTask] = {}
        self._busy: list[PartitionTask] = []  # as the last round left them
        self._assigned_from: tuple[object, ...] | None = None  # what the tasks were last derived from
        self._placement_leader = PlacementLeader(
            target, topology, worker_id, self._writer, period_s=_PLACED_EVERY_S, moves=tells
        )
        self._sync = ContinuousSync(target, connect, worker_id, self._writer)
        self._breach_watch = BreachWatch(self._writer, worker_id)
        self._published = 0.0
        self._turned_at = time.monotonic()
        self._began_ms, self._heartbeats = int(time.time() * 1000), 0
        self._reports: list[PartitionStatus] = []
        self._seen: dict[str, int] = {}  # as WorkerHeartbeat has it
        group = build_fleet_group_id(topology, transforms=engine is not None)
        self._membership = Membership(target, group, f"watershed-{worker_id}", self._give_up)
        log.info("worker started", extra={"worker": worker_id, "target": target.alias, "pid": os.getpid()})

    def is_fleet_stopped(self) -> bool:
        """Whether the fleet is told to be stopped."""
        return self._fleet is not None and self._fleet.state == "stopped"

    def is_superseded(self) -> bool:
        """Whether another supervisor than the one that started this worker has its own workers ready."""
        found = self._desired.supervisors.get(build_supervisor_key(self.topology, self.target.alias))
        return self._epoch is not None and found is not None and found.ready and found.epoch > self._epoch

    def scrape(self) -> MetricsSnapshot:
        """What metrics tell, as of the last report."""
        copies = self._registry
        beside, totals = self._sync.current_reports(), copies.latencies.read_totals()
        return MetricsSnapshot(self._reports, copies.counters(), copies.buffered(), beside, totals)

    def read_health(self) -> Health:
        """Live: the loop turns. Ready: the group has given it its slots (none, where sixteen others serve), and what
        it should do is known. Read on the endpoint's thread."""
        idle_s = time.monotonic() - self._turned_at
        if idle_s > LIVE_S:
            return Health(False, False, f"the main loop has not turned for {idle_s:.0f} s")
        if not self._desired.there:
            return Health(True, False, "the target has no control topics yet: run `topology apply`")
        if not self._membership.has_joined:
            return Health(True, False, "the group has not given it slots yet")
        return Health(True, True)

    def step(self) -> None:
        """One round: membership, desired state, discovery, takeovers, status."""
        self._turned_at = time.monotonic()
        self._membership.poll(self._pace(self._busy))
        self._check_ledger()
        self._follow_desired_state()
        flows = self._select_flows()
        self._discovery.step(flows)
        self._assign_tasks(flows)
        if self._transforms is None:  # transactions, and so transformed records, are never placed
            self._placement_leader.step(self._membership.slots, flows, self._placement, self._discovery.topics)
        self._sync.step(self._membership.slots, self._select_synced_flows(flows))
        busy = self._busy = self._list_busy()
        self._retire(busy)
        self._take_over(busy)
        self._paused_ends.step(busy)
        now = time.monotonic()
        if now - self._published >= _STATUS_S:
            self._published = now
            self._registry.write_positions()
            self._publish()
            breaches = self._desired.breaches
            newest = {breach.flow: breach for breach in breaches.values()}
            self._breach_watch.step(self._tasks.values(), flows, newest)
            overtaken = [breach for key, breach in breaches.items() if key in self._desired.overtaken]
            self._breach_watch.restore(breach for breach in overtaken if breach.flow in flows)

    def _list_busy(self) -> list[PartitionTask]:
        """Those that are not simply being copied. The others, thousands of them, cost a round nothing but this, so it
        is done once a round."""
        return [
            task
            for task in self._tasks.values()
            if (
                (active := task.active) is None or active.copy.trouble is not None or not task.wanted or task.inspecting
            )
            and not task.is_at_rest
        ]

    def _pace(self, busy: list[PartitionTask]) -> float:
        """How long the next round may wait for news of the group, in seconds. A round looks at every task once, so with
        thousands of them there are fewer rounds."""
        pace = max(_IDLE_PACE_S, min(len(self._tasks) * _PACE_A_TASK_S, _LONGEST_PACE_S))
        soon = time.monotonic() + pace
        if not self._membership.slots or any(task.has_work_before(soon) for task in busy):
            return _PACE_S
        return pace

    def close(self) -> None:
        """Finish what is in flight, publish, leave the group."""
        for task in self._tasks.values():
            task.wanted = False
        self._drain(list(self._tasks.values()))
        self._publish()
        self._membership.close()
        self._registry.end()
        self._senders.end()
        self._discovery.close()
        self._placement_leader.close()
        self._sync.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._ledger_thread.end(timeout=2)
        try:
            self._writer.flush(5)
        except ClusterError as error:
            log.warning("last reports lost", extra={"reason": str(error)})
        self._desired.close()
        log.info("worker stopped", extra={"worker": self.worker_id})

    def _follow_desired_state(self) -> None:
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
                self._registry.forget(flow_id)
                self._senders.forget(flow_id)
                self._guards.forget(flow_id)
        self._follow_clusters()

    def _follow_clusters(self) -> None:
        """A cluster that the applied plan reaches otherwise: what is connected to it begins anew from the logs."""
        changed = self._clusters.follow(self._fleet)
        if not changed:
            return
        log.info("clusters changed", extra={"clusters": sorted(changed)})
        for flow_id, record in self._desired.flows.items():
            if record.flow.source in changed:
                self._registry.forget(flow_id)
                self._guards.forget(flow_id)
        for task in self._tasks.values():
            if task.record.flow.source in changed:
                task.not_before = 0.0
                self._halt(task, "changed")

    @property
    def _fleet(self) -> FleetRecord | None:
        return self._desired.fleets.get(build_fleet_key(self.topology, self.target.alias))

    @property
    def _placement(self) -> PlacementRecord | None:
        return self._desired.placements.get(build_placement_key(self.topology, self.target.alias))

    def _select_flows(self) -> dict[str, FlowRecord]:
        """Those that this worker serves. One that stands still by a budget that pauses is a paused one."""
        return {
            flow_id: _pause_breached(record, self._find_breach(record))
            for flow_id, record in self._desired.flows.items()
            if record.topology == self.topology
            and record.flow.target == self.target.alias
            and (record.flow.transform is None) == (self._transforms is None)
        }

    def _select_synced_flows(self, flows: dict[str, FlowRecord]) -> dict[str, FlowRecord]:
        """What travels beside records stands still with any budget that acts, also with one that halts partitions."""
        if not self._desired.breaches:
            return flows
        return {key: _pause_breached(record, self._find_breach(record), "fail") for key, record in flows.items()}

    def _find_breach(self, record: FlowRecord) -> BudgetBreach | None:
        """The budget breach by which the flow stands still."""
        breach = self._desired.breaches.get(build_breach_key(record.key))
        return breach if breach is not None and breach.is_open(record) else None

    def _assign_tasks(self, flows: dict[str, FlowRecord]) -> None:
        placed = self._placement.slots if self._placement is not None else {}
        breaches = {key: each for key, record in flows.items() if (each := self._find_breach(record)) is not None}
        inputs = (tuple(flows.values()), self._discovery.version, frozenset(self._membership.slots), placed, breaches)
        if inputs != self._assigned_from:
            self._assigned_from = inputs
            assigned = assign_partitions(flows, self._discovery.topics, self._membership.slots, placed, breaches)
            self._registry.rates.share(compute_quota_shares(assigned, flows, self._discovery.topics))
            for key, assignment in assigned.items():
                task = self._tasks.get(key)
                if task is None:
                    task = self._tasks[key] = PartitionTask(key, assignment.record)
                    self._find_completion(task)
                if not task.wanted:  # it was another worker's since
                    self._inspections.stillness.forget(key)
                task.wanted, task.serving = True, assignment.serving
                task.held, task.hint = assignment.held, assignment.hint
                task.gap_method = assignment.gap_method
                self._pause(task, is_paused=assignment.is_paused)
                if task.held is not None:
                    task.forget_pending()
                    self._halt(task, task.held.error)
                if task.record is not assignment.record:
                    self._apply_record(task, assignment.record)
            for key, task in self._tasks.items():
                task.wanted = key in assigned
        for task in [task for task in self._tasks.values() if not task.wanted]:
            self._halt(task, "handed over")
            if task.active is None and not task.inspecting:
                self._drop_task(task, self._desired.flows.get(task.key.flow))

    def _pause(self, task: PartitionTask, *, is_paused: bool) -> None:
        """What a person ordered about this partition alone. What is in flight is finished first."""
        if task.is_paused and not is_paused:
            task.not_before = 0.0
        task.is_paused = is_paused
        if is_paused:
            task.waiting_for = ""
            task.forget_pending()
            self._halt(task, "paused")

    def _drop_task(self, task: PartitionTask, record: FlowRecord | None) -> None:
        """The partition belongs to another worker (also where records are changed from now on), or to no flow any more;
        in that case its last report is deleted."""
        del self._tasks[task.key]
        self._inspections.stillness.forget(task.key)
        selected = record is not None and record.selects(task.key.topic)
        if not selected and task.latest is not None:
            delete_partition_status(self._writer, task.latest)

    def _apply_record(self, task: PartitionTask, record: FlowRecord) -> None:
        """The flow's record has changed. A restart (a new generation) also forgets why the partition is halted."""
        if record.generation != task.record.generation:
            task.stopped = None
            self._halt(task, "restarted")
        if not can_keep_copying(task.record.flow, record.flow):
            self._halt(task, "changed")
        if record.state != "running":
            task.forget_pending()
            self._halt(task, record.state)
        is_other_end = record.end_revision != task.record.end_revision
        task.record = record
        task.not_before = 0.0
        if is_other_end:
            task.completion = task.limit = None
            self._find_completion(task)

    def _find_completion(self, task: PartitionTask) -> None:
        """A partition whose end was reached before is complete: nobody looks at it again."""
        end = self._desired.ends.get(build_end_key(task.key.flow, task.key.topic, task.key.partition))
        if end is not None and end.is_reached and end.is_of(task.record):
            task.complete(end)

    def _complete(self, task: PartitionTask, position: int, target_end: int) -> bool:
        """Write down that the partition's end is reached, and leave it alone from now on. False where it is not, or
        where the flow has another end since."""
        limit = task.limit
        if limit is None or limit.revision != task.record.end_revision or not limit.is_reached_at(position):
            return False
        order = "" if task.decision is None else task.decision.id
        end = build_partition_end(task.key, limit, self.worker_id, position, target_end, order)
        # Lost, it costs the next worker one inspection.
        self._writer.put_nowait(FLOWS_TOPIC, end.key, end.to_json(), on_done=partial(_note_written, None))
        task.complete(end)
        log.info(
            "complete",
            extra={"flow": task.key.flow, "topic": task.key.topic, "partition": task.key.partition,
                   "end": limit.offset, "position": position, "target_end": target_end},
        )  # fmt: skip
        return True

    def _halt(self, task: PartitionTask, reason: str) -> None:
        if task.active is not None:
            task.active.copy.halt(reason)

    def _retire(self, tasks: Iterable[PartitionTask]) -> None:
        """Remove the copies that have ended, once nothing of them is in flight."""
        now = time.monotonic()
        for task in tasks:
            if task.active is None or (trouble := self._find_trouble(task, task.active)) is None:
                continue
            progress = task.active.copy.progress
            self._registry.remove(task.active)
            task.detach_copy()
            if isinstance(trouble, EndReached) and self._complete(task, progress.copied_through, progress.acked):
                continue
            if isinstance(trouble, Halt):
                self._log_halt(task, trouble)  # also where the partition is another worker's by now
                if trouble.state == log_append_time.APPEND_TIME_STATE:
                    self._discovery.ask_limits(task.key.flow)  # so that a restart does not begin before it is mended
            if task.wanted and (task.is_ordered_to_run or isinstance(trouble, Halt)):
                task.record_trouble(trouble, now)
                if task.stopped is not None and task.stopped is not trouble:
                    self._log_halt(task, task.stopped)

    def _find_trouble(self, task: PartitionTask, active: ActiveCopy) -> Halt | Reinspect | None:
        """Why copying of this partition ends. None while it goes on, and while something of it is in flight.

        An ambiguous answer (the target took our batch for a repetition) is resolved first: the log is read again.
        """
        if active.copy.trouble is None:
            return None
        active.copy.request_stop()
        if not active.copy.is_idle:
            return None
        trouble = active.copy.trouble  # the last answers may have brought a halt
        if isinstance(trouble, Halt) and trouble.sent is not None:
            return self._ambiguous_answers.judge(task.key, trouble)
        return trouble

    def _take_over(self, waiting: list[PartitionTask]) -> None:
        """Start the copies whose inspection succeeded, and inspect the partitions that wait."""
        for task, result in self._inspections.finished():
            if isinstance(result, Halt | Reinspect):
                task.record_trouble(result, time.monotonic())
                if task.stopped is not None:
                    self._log_halt(task, task.stopped)
            elif task.wanted and task.held is None and task.is_ordered_to_run:
                self._inspections.stillness.forget(task.key)
                if not self._complete(task, result.position, result.target_end):
                    self._start_copy(task, result)
        self._hand_out_decisions()
        self._inspections.start(waiting)
        if self._inspections.is_idle:
            self._heap.settle()

    def _start_copy(
        self, task: PartitionTask, taken: TakenPartition | TakenTransactionPartition | TakenRepeatablePartition
    ) -> None:
        try:
            if isinstance(taken, TakenPartition):
                self._registry.start_copy(task, taken)
            elif isinstance(taken, TakenRepeatablePartition):
                self._registry.start_repeatable_copy(task, taken)
            else:
                self._registry.start_transaction_copy(task, taken)
            self._heap.note_begun()
        except ClusterError as error:  # a secret of the source is missing meanwhile, say
            self._halt(task, str(error))
            task.record_trouble(Reinspect(str(error)), time.monotonic())

    def _hand_out_decisions(self) -> None:
        """What persons decided about single partitions of ours."""
        for decision in self._desired.decisions.values():
            record = self._desired.flows.get(decision.flow)
            if record is not None:
                target_topic = record.flow.target_topic(decision.topic)
                task = self._tasks.get(PartitionKey(decision.flow, decision.topic, target_topic, decision.partition))
                if task is not None:
                    task.take_decision(decision)

    def _give_up(self, slots: set[int]) -> None:
        """Slots are about to belong to somebody else: finish what is in flight first."""
        tasks = [task for task in self._tasks.values() if task.serving in slots]
        self._assigned_from = None  # they may be given back before the next round
        for task in tasks:
            task.wanted = False
        self._drain(tasks)
        self._senders.give_up(slots)

    def _drain(self, tasks: list[PartitionTask]) -> None:
        for task in tasks:
            self._halt(task, "handed over")
        deadline = time.monotonic() + _DRAIN_S
        while time.monotonic() < deadline:
            self._retire(tasks)
            if all(task.active is None for task in tasks):
                return
            time.sleep(0.005)

    def _publish(self) -> None:
        now = time.monotonic()
        for task in self._tasks.values():
            if task.is_quiet(now):
                continue
            report = task.report(self.worker_id, os.getpid())
            if needs_report(report, task.published):
                task.published = report
                write_partition_status(self._writer, report, on_done=partial(_note_written, task))
        self._reports = [task.latest for task in self._tasks.values() if task.latest is not None]
        write_heartbeat(self._writer, self._build_heartbeat(now), on_done=partial(_note_written, None))
        self._seen = self._find_seen()
        self._registry.sweep()
        self._ledger.forget_old()

    def _build_heartbeat(self, now: float) -> WorkerHeartbeat:
        """now: monotonic."""
        copies = self._registry
        recent = copies.latencies.read_recent(now)
        tells_all = self._heartbeats % _TOTALS_EVERY == 0 or copies.latencies.count_flows() <= _FEW_FLOWS
        self._heartbeats += 1
        return WorkerHeartbeat(
            self.worker_id,
            os.getpid(),
            int(time.time() * 1000),
            tuple(sorted(self._membership.slots)),
            self._seen,
            recent,
            pauses_partitions=True,
            topology=self.topology,
            version=describe_product_version(),
            began_ms=self._began_ms,
            totals=copies.latencies.read_totals(None if tells_all else recent),
            throttled_s=copies.counters().get("throttled_seconds", 0.0),
            tells_all=tells_all,
            transforms=self._transforms is not None,
        )

    def _find_seen(self) -> dict[str, int]:
        """Flow → when all its sources that are copied here had told their ends, in ms since 1970. Told with the next
        heartbeat: until then whatever is no longer copied has been reported."""
        earliest: dict[str, float] = {}
        for task in self._tasks.values():
            active = task.active
            if active is not None and (seen := active.source_seen_at) < earliest.get(task.key.flow, math.inf):
                earliest[task.key.flow] = seen
        since = time.time() - time.monotonic()
        return {flow: int((since + seen) * 1000) for flow, seen in earliest.items() if seen > 0}

    def _check_ledger(self) -> None:
        """Copies that may have missed an acknowledgement begin anew from the logs, rather than wait for ever."""
        if not self._ledger_thread.is_alive():
            raise LedgerThreadEnded
        failure = self._ledger_thread.failure()
        if failure:
            for task in self._tasks.values():
                self._halt(task, f"the ledger's acknowledgements failed: {failure}")

    def _log_halt(self, task: PartitionTask, halt: Halt) -> None:
        log.error(
            halt.state,
            extra={"flow": task.key.flow, "topic": task.key.topic, "partition": task.key.partition,
                   "seen": halt.error,
                   "remedy": halt.remedy_for(task.key.flow, task.key.topic, task.key.partition)},
        )  # fmt: skip


def _pause_breached(record: FlowRecord, breach: BudgetBreach | None, action: BreachAction = "pause") -> FlowRecord:
    pauses = breach is not None and breach.action == action and record.state == "running"
    return record.with_state("paused") if pauses else record


def _note_written(task: PartitionTask | None, error: ClusterError | None, _offset: int) -> None:
    """A lost report is followed by another one a second later. task: whose report it is; None: a heartbeat."""
    if error is not None:
        log.warning("report lost", extra={"reason": str(error)})
        if task is not None:
            task.published = None
