"""The metrics of whole topologies, from the control topics of their target clusters alone.

Each target is followed by a thread of its own, as the page Replication does it, so one that does not answer delays no
other. What is known of it stays as it was at its last answer, and `watershed_cluster_up` says so.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from threading import Event, Lock
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from watershed.clusters.control_follower import ControlFollower
from watershed.clusters.fleet import FleetRecord
from watershed.clusters.partition_status_records import PartitionStatus
from watershed.clusters.settings import resolve_connection_settings
from watershed.clusters.sync_reports import SyncReport
from watershed.clusters.worker_heartbeats import SILENT_MS, WorkerHeartbeat
from watershed.cutover.proof_standing import ProofStanding, find_journal_proofs, pick_newest_proofs, read_folder_proofs
from watershed.cutover.wave_progress import WaveProgress, list_wave_progress
from watershed.plugins.page.cluster_snapshots import ClusterReader, ClusterSnapshot, JournalView
from watershed.replicator.worker.flow_state import is_silent, mark_if_silent
from watershed.replicator.worker.metric_families import build_flow_families, build_partition_families, build_samples
from watershed.replicator.worker.metrics_snapshot import LIVE_S, Health
from watershed.replicator.worker.worker_totals import WorkerTotals
from watershed.topology import metric_catalogue as catalogue
from watershed.topology.plan import Plan, PlanCluster, PlanFlow

TURN_S: Final = 0.5
_UP_S: Final = 10.0  # a cluster is asked every second and may take 4 s to answer
_PROOFS_EVERY_S: Final = 30.0
_FORGOTTEN_MS: Final = 600_000  # workers that have been silent for so long are left out
_STATES: Final = ("running", "paused", "stopped")
_Samples = Iterable[tuple[tuple[str, ...], float]]


class EstateCollector(Collector):
    """Metrics of the plans. `turn` is one round of the main loop; `collect` answers a scrape, on another thread.

    partition_series: as `build_partition_families` has it. proofs: folders with evidence of proofs. read: makes the
    reader of a cluster; for tests.
    """

    def __init__(
        self,
        plans: Sequence[Plan],
        partition_series: int,
        proofs: Sequence[Path] = (),
        read: Callable[[PlanCluster], ClusterReader] | None = None,
    ) -> None:
        self._plans, self._most, self._folders = tuple(plans), partition_series, tuple(proofs)
        build = read or (lambda cluster: ClusterReader(cluster, _follow_cluster))
        clusters = {plan.cluster(flow.target) for plan in plans for flow in plan.flows}
        self._readers = {each.alias: build(each) for each in sorted(clusters, key=lambda each: each.alias)}
        self._fleets = [(plan, target) for plan in plans for target in sorted({flow.target for flow in plan.flows})]
        self._totals = {(plan.topology, target): WorkerTotals() for plan, target in self._fleets}
        self._counted = dict.fromkeys(self._readers, False)  # a cluster was read completely once
        self._lock = Lock()
        self._folder_proofs: list[ProofStanding] = []
        self._proofs_at = -_PROOFS_EVERY_S
        self._turned_at = time.monotonic()

    def run(self, stop: Event) -> None:
        """Follow the clusters until `stop` is set."""
        try:
            while not stop.is_set():
                self.turn()
                stop.wait(TURN_S)
        finally:
            for reader in self._readers.values():
                reader.stop()

    def turn(self) -> None:
        """Count what workers have told since the last turn."""
        self._turned_at = time.monotonic()
        read = {alias: snapshot for alias, reader in self._readers.items() if (snapshot := reader.look()).complete}
        with self._lock:
            for plan, target in self._fleets:
                if target in read:
                    self._totals[plan.topology, target].take(_list_heartbeats(plan, read[target]))
                    self._counted[target] = True
        if self._turned_at - self._proofs_at >= _PROOFS_EVERY_S:
            self._proofs_at = self._turned_at
            self._folder_proofs = [each for folder in self._folders for each in read_folder_proofs(folder)]

    def read_health(self) -> Health:
        """Live: the loop turns. Ready: each cluster has been read once, or is known not to answer."""
        idle_s = time.monotonic() - self._turned_at
        if idle_s > LIVE_S:
            return Health(False, False, f"the main loop has not turned for {idle_s:.0f} s")
        waits = [
            alias
            for alias, reader in self._readers.items()
            if not self._counted[alias] and reader.look().problem is None
        ]
        return Health(True, not waits, f"not read yet: {', '.join(waits)}" if waits else "")

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families; Prometheus calls it for each scrape."""
        seen = {alias: reader.look() for alias, reader in self._readers.items()}
        now, idle_s = time.time(), time.monotonic() - self._turned_at
        clusters = [((plan.topology, target), seen[target]) for plan, target in self._fleets]
        yield build_samples(catalogue.CLUSTER_UP, ((labels, float(_is_up(each, now))) for labels, each in clusters))
        yield build_samples(
            catalogue.EXPORTER_READ_AGE_SECONDS,
            (
                (labels, max(now - each.answered_at, idle_s))
                for labels, each in clusters
                if each.answered_at is not None
            ),
        )
        read = {alias: each for alias, each in seen.items() if each.complete}
        yield from self._collect_flows(read)
        yield from self._collect_workers(read)
        yield from self._collect_proofs(read, now)
        yield build_samples(
            catalogue.MIGRATION_STEP,
            (
                ((plan.topology, each.wave, each.step, each.state), 1.0)
                for plan in self._plans
                for each in _list_progress(plan, read)
            ),
        )

    def _list_applied(self, read: dict[str, ClusterSnapshot]) -> list[tuple[Plan, PlanFlow, ClusterSnapshot]]:
        """The flows of the plans whose record is there, and is of the same topology."""
        return [
            (plan, flow, read[flow.target])
            for plan in self._plans
            for flow in plan.flows
            if flow.target in read and read[flow.target].flows.get(flow.id, {}).get("topology") == plan.topology
        ]

    def _collect_flows(self, read: dict[str, ClusterSnapshot]) -> Iterator[Metric]:
        applied = self._list_applied(read)
        flows = [(flow, snapshot) for _, flow, snapshot in applied]
        reports = [report for flow, snapshot in flows for report in _list_reports(flow, snapshot)]
        beside = [SyncReport.from_json(value) for flow, each in flows for value in each.sync.get(flow.id, {}).values()]
        with self._lock:
            totals = {flow.id: self._totals[plan.topology, flow.target].read_flow(flow.id) for plan, flow, _ in applied}
        yield from build_partition_families(reports, self._most)
        yield from build_flow_families(reports, beside, totals)
        states = {flow.id: _find_state(flow, each) for flow, each in flows}
        yield build_samples(
            catalogue.FLOW_STATE,
            (((flow, state), float(wanted == state)) for flow, wanted in states.items() for state in _STATES),
        )
        yield build_samples(
            catalogue.STOPPED_BY_BUDGET,
            (((flow.id, each.breaches[flow.id].action), 1.0) for flow, each in flows if flow.id in each.breaches),
        )
        silent = [
            flow.id
            for flow, each in flows
            for found in each.reports.get(flow.id, {}).values()
            if is_silent(found, _answered_ms(each))
        ]
        yield build_samples(
            catalogue.PARTITIONS_SILENT,
            (((flow,), silent.count(flow) if wanted == "running" else 0) for flow, wanted in states.items()),
        )

    def _collect_workers(self, read: dict[str, ClusterSnapshot]) -> Iterator[Metric]:
        fleets = [(plan, target) for plan, target in self._fleets if target in read]
        beats = [
            ((plan.topology, target), each, _age_ms(each, read[target]))
            for plan, target in fleets
            for each in _list_heartbeats(plan, read[target])
        ]
        known = [(fleet[1], beat, age) for fleet, beat, age in beats if age <= _FORGOTTEN_MS]
        present = Counter(fleet for fleet, beat, age in beats if age <= SILENT_MS and not beat.transforms)
        yield build_samples(
            catalogue.WORKER_INFO,
            (((beat.worker, alias, str(beat.pid), beat.version), 1) for alias, beat, age in known if age <= SILENT_MS),
        )
        yield build_samples(
            catalogue.WORKER_LAST_SEEN_SECONDS, (((alias, beat.worker), age / 1000) for alias, beat, age in known)
        )
        keys = [(plan.topology, target) for plan, target in fleets]
        wanted = {key: read[key[1]].fleets[key] for key in keys if key in read[key[1]].fleets}
        yield build_samples(
            catalogue.FLEET_WORKERS,
            chain(
                (((*key, "present"), float(present[key])) for key in keys),
                (((*key, "wanted"), float(FleetRecord.from_json(each).wanted)) for key, each in wanted.items()),
            ),
        )
        with self._lock:
            starts: _Samples = [(key, self._totals[key].starts) for key in keys]
            throttled: _Samples = [(key, self._totals[key].throttled_s) for key in keys]
        yield build_samples(catalogue.WORKER_STARTS, starts)
        yield build_samples(catalogue.THROTTLED_SECONDS, throttled)

    def _collect_proofs(self, read: dict[str, ClusterSnapshot], now: float) -> Iterator[Metric]:
        journals = [find_journal_proofs(_find_journal(plan, read).entries) for plan in self._plans]
        flows = {flow.id for plan in self._plans for flow in plan.flows}
        newest = pick_newest_proofs(each for each in chain(*journals, self._folder_proofs) if each.flow in flows)
        proofs = sorted(newest.items())
        yield build_samples(catalogue.PROOF_PASSED, (((flow,), float(each.has_passed)) for flow, each in proofs))
        yield build_samples(
            catalogue.PROOF_AGE_SECONDS, (((flow,), max(now - each.ended_ms / 1000, 0.0)) for flow, each in proofs)
        )
        yield build_samples(
            catalogue.PROOF_UNPROVEN_RECORDS,
            (((flow,), each.unproven) for flow, each in proofs if each.unproven is not None),
        )


def _find_state(flow: PlanFlow, snapshot: ClusterSnapshot) -> str:
    """What workers make of the flow's record: one that a budget has paused is meant to be paused."""
    state, breach = str(snapshot.flows[flow.id].get("state")), snapshot.breaches.get(flow.id)
    return "paused" if state == "running" and breach is not None and breach.action == "pause" else state


def _follow_cluster(cluster: PlanCluster) -> ControlFollower:
    return ControlFollower(resolve_connection_settings(cluster))


def _is_up(snapshot: ClusterSnapshot, now: float) -> bool:
    return snapshot.problem is None and snapshot.answered_at is not None and now - snapshot.answered_at <= _UP_S


def _list_reports(flow: PlanFlow, snapshot: ClusterSnapshot) -> list[PartitionStatus]:
    """As of the cluster's last answer: while it is down, nobody knows whether workers are silent."""
    state = snapshot.flows.get(flow.id, {}).get("state")
    reports = snapshot.reports.get(flow.id, {}).values()
    return [mark_if_silent(report, _answered_ms(snapshot), flow_state=state) for report in reports]


def _answered_ms(snapshot: ClusterSnapshot) -> int:
    return int((snapshot.answered_at or 0.0) * 1000)


def _age_ms(beat: WorkerHeartbeat, snapshot: ClusterSnapshot) -> float:
    return max((snapshot.answered_at or 0.0) * 1000 - beat.at_ms, 0.0)


def _list_heartbeats(plan: Plan, snapshot: ClusterSnapshot) -> list[WorkerHeartbeat]:
    """Those of the topology's workers. Workers of earlier versions do not name theirs: they are known by the partitions
    that they report."""
    by_report = {report.worker for flow in plan.flows for report in snapshot.reports.get(flow.id, {}).values()}
    return [
        beat
        for beat in snapshot.heartbeats
        if (beat.topology == plan.topology if beat.topology else beat.worker in by_report)
    ]


def _list_progress(plan: Plan, read: dict[str, ClusterSnapshot]) -> list[WaveProgress]:
    """As of the last answer of the cluster with the journal: while it is down, nobody knows what was written since."""
    if plan.migration is None or (target := plan.flow(plan.migration.flow).target) not in read:
        return []
    return list_wave_progress(_find_journal(plan, read).entries, _answered_ms(read[target]))


def _find_journal(plan: Plan, read: dict[str, ClusterSnapshot]) -> JournalView:
    if plan.migration is None or plan.flow(plan.migration.flow).target not in read:
        return JournalView()
    journals = read[plan.flow(plan.migration.flow).target].journals
    return journals.get((plan.topology, plan.migration.journal is not None), JournalView())
