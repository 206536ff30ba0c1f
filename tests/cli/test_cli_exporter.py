"""What the exporter tells of control topics, without brokers: all that the catalogue says, and nothing else."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from watershed.cli.estate_collector import EstateCollector
from watershed.cli.main import main
from watershed.clusters.budget_breaches import BudgetBreach
from watershed.clusters.fleet import FleetRecord
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.flow_totals import FlowTotals
from watershed.clusters.partition_status_records import PartitionStatus
from watershed.clusters.sync_reports import SyncReport
from watershed.clusters.worker_heartbeats import WorkerHeartbeat
from watershed.cutover.journal.hash_chain import JournalEntry
from watershed.plugins.page.cluster_snapshots import ClusterSnapshot, JournalView
from watershed.topology import compile_path
from watershed.topology.metric_catalogue import METRICS
from watershed.topology.plan import Plan

MIGRATION = Path(__file__).parents[2] / "topology" / "examples" / "migration.yaml"
FLOW, TARGET = "onprem-to-cloud", "cloud"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return compile_path(MIGRATION)


def report(partition: int, age_ms: int = 0, **more: Any) -> PartitionStatus:
    return PartitionStatus(
        FLOW, "orders", "orders", partition, "running", 10, 12, 9, lag_records=2 + partition, lag_bytes=100,
        lag_ms=1_500 * (partition + 1), event_age_ms=5, worker="w1", at_ms=int(time.time() * 1000) - age_ms, **more,
    )  # fmt: skip


NOW = int(time.time() * 1000)


def entry(step: str, kind: Any, observation: dict[str, Any], deed: str = "", wave: str = "canary") -> JournalEntry:
    return JournalEntry("shop", "migrate.1", 0, step, kind, deed, "ann", "h", "sha256:1", wave, NOW, observation, "")


PROOF = {"outcome": {"flow": FLOW, "verdict": "different", "unproven": 3}, "refused": "not proven"}
ENTRIES = (
    entry("run", "intent", {"kind": "migrate"}),
    entry("history_proof", "intent", {}),
    entry("history_proof", "outcome", PROOF),
    entry("approval", "intent", {}),
)


def build_snapshot(plan: Plan, *reports: PartitionStatus, beats: tuple[WorkerHeartbeat, ...] = ()) -> ClusterSnapshot:
    flow = FlowRecord(plan.flow(FLOW), plan.hash, plan.topology)
    fleet = FleetRecord(plan.topology, TARGET, "running", plan.hash, workers=3)
    sync = SyncReport(FLOW, "groups", "billing", "equal").to_json()
    assert plan.migration is not None
    return ClusterSnapshot(
        flows={FLOW: flow.to_json()},
        fleets={(plan.topology, TARGET): fleet.to_json()},
        reports={FLOW: {each.key: each for each in reports}},
        sync={FLOW: {"a": sync}},
        journals={(plan.topology, plan.migration.journal is not None): JournalView(ENTRIES)},
        heartbeats=beats,
        answered_at=time.time(),
        complete=True,
    )


def build_breach(action: Any) -> BudgetBreach:
    return BudgetBreach(FLOW, 1, action, "slo.lag.max", 60_000, 91_000, "orders", 0, "w1", NOW)


def heartbeat(worker: str, age_ms: int, records: int = 0, **more: Any) -> WorkerHeartbeat:
    at_ms = int(time.time() * 1000) - age_ms
    totals = {FLOW: FlowTotals(records, 1.0, {5: records}, 2.0, {9: records})}
    return WorkerHeartbeat(worker, 4, at_ms, began_ms=7, totals=totals, tells_all=True, version="1.2", **more)


class Scraped:
    """The collector over one snapshot a cluster, which a test replaces."""

    def __init__(self, plan: Plan, snapshot: ClusterSnapshot, **more: Any) -> None:
        self.snapshots = {flow.target: ClusterSnapshot() for flow in plan.flows} | {TARGET: snapshot}
        self.collector = EstateCollector([plan], more.pop("most", 1_000), read=self._read, **more)

    def _read(self, cluster: Any) -> Any:
        look: Callable[[], ClusterSnapshot] = lambda: self.snapshots[cluster.alias]  # noqa: E731
        return SimpleNamespace(look=look, stop=lambda: None)

    def turn(self, snapshot: ClusterSnapshot | None = None) -> dict[tuple[str, ...], float]:
        if snapshot is not None:
            self.snapshots[TARGET] = snapshot
        self.collector.turn()
        return {
            (sample.name, *(value for label, value in sample.labels.items())): sample.value
            for family in self.collector.collect()
            for sample in family.samples
        }


def test_it_serves_what_the_catalogue_says_and_nothing_else(plan: Plan) -> None:
    beats = (heartbeat("w1", 0, topology=plan.topology),)
    snapshot = build_snapshot(plan, report(0), beats=beats)
    scraped = Scraped(plan, replace(snapshot, breaches={FLOW: build_breach("fail")}))
    scraped.turn()
    served = {
        (f"{each.name}_total" if each.type == "counter" else each.name): each for each in scraped.collector.collect()
    }
    defined = {each.name: each for each in METRICS if each.served_by != "worker"}
    assert served.keys() == defined.keys()
    for name, family in served.items():
        assert (family.type, family.documentation) == (defined[name].kind, defined[name].meaning)
        for sample in family.samples:
            assert tuple(label for label in sample.labels if label != "le") == defined[name].labels
        assert family.samples or name == "watershed_filling_offsets", name


@pytest.mark.parametrize(("action", "state"), [("pause", "paused"), ("fail", "running")])
def test_a_flow_that_its_budget_stopped(plan: Plan, action: Any, state: str) -> None:
    snapshot = replace(build_snapshot(plan, report(0, age_ms=60_000)), breaches={FLOW: build_breach(action)})
    told = Scraped(plan, snapshot).turn()
    assert told["watershed_flow_stopped_by_budget", FLOW, action] == 1
    assert [each for each in ("running", "paused", "stopped") if told["watershed_flow_state", FLOW, each]] == [state]
    assert told["watershed_partitions_silent", FLOW] == (1 if state == "running" else 0)


def test_lag_states_and_silence(plan: Plan) -> None:
    scraped = Scraped(plan, build_snapshot(plan, report(0), report(1, age_ms=60_000)))
    told = scraped.turn()
    assert told["watershed_flow_lag_records", FLOW] == 5
    assert told["watershed_flow_lag_seconds", FLOW] == pytest.approx(63.0, abs=5), "what is silent goes on waiting"
    assert told["watershed_lag_records", FLOW, "orders", "orders", "1"] == 3
    assert told["watershed_partitions", FLOW, "silent"] == 1
    assert told["watershed_partitions_silent", FLOW] == 1
    assert told["watershed_flow_state", FLOW, "running"] == 1
    assert told["watershed_flow_state", FLOW, "paused"] == 0
    assert told["watershed_beside", FLOW, "groups", "equal"] == 1
    assert not any(
        name == "watershed_lag_records" for name, *_ in Scraped(plan, scraped.snapshots[TARGET], most=1).turn()
    )


def test_a_caught_up_partition_that_nobody_serves_ages_and_a_halt_stays_told(plan: Plan) -> None:
    halted = replace(report(1, age_ms=60_000), state="source_expired")
    told = Scraped(plan, build_snapshot(plan, replace(report(0, age_ms=7_200_000), lag_ms=0), halted)).turn()
    assert told["watershed_flow_lag_seconds", FLOW] == pytest.approx(7_200, abs=5)
    assert told["watershed_partitions", FLOW, "source_expired"] == 1
    assert told["watershed_partitions", FLOW, "silent"] == 1
    assert told["watershed_partitions_silent", FLOW] == 2


def test_a_flow_that_is_not_meant_to_run_is_not_silent(plan: Plan) -> None:
    snapshot = build_snapshot(plan, report(0, age_ms=60_000))
    flows = {FLOW: dict(snapshot.flows[FLOW]) | {"state": "stopped"}}
    told = Scraped(plan, replace(snapshot, flows=flows)).turn()
    assert (told["watershed_partitions_silent", FLOW], told["watershed_flow_state", FLOW, "stopped"]) == (0, 1)
    assert told["watershed_flow_lag_seconds", FLOW] == 1.5, "nobody waits for it"


def test_workers_are_counted_while_they_are_heard_and_their_counts_stay(plan: Plan) -> None:
    ours = {"topology": plan.topology}
    first = build_snapshot(plan, report(0), beats=(heartbeat("w1", 0, 10, **ours),))
    scraped = Scraped(plan, first)
    assert scraped.turn()["watershed_copied_records_total", FLOW] == 0
    two = (
        heartbeat("w1", 20_000, 15, **ours),
        heartbeat("w2", 0, 4, throttled_s=0.5, **ours),
        heartbeat("changes", 0, transforms=True, **ours),
        heartbeat("foreign", 0, topology="other"),
        heartbeat("gone", 700_000, **ours),
    )
    told = scraped.turn(build_snapshot(plan, report(0), beats=two))
    assert told["watershed_fleet_workers", plan.topology, TARGET, "present"] == 1
    assert told["watershed_fleet_workers", plan.topology, TARGET, "wanted"] == 3
    assert told["watershed_worker_last_seen_seconds", TARGET, "w1"] == pytest.approx(20, abs=5)
    assert ("watershed_worker_last_seen_seconds", TARGET, "gone") not in told
    assert told["watershed_worker_info", "w2", TARGET, "4", "1.2"] == 1
    assert told["watershed_copied_records_total", FLOW] == 9
    assert told["watershed_replication_latency_seconds_count", FLOW] == 9
    assert told["watershed_throttled_seconds_total", plan.topology, TARGET] == 0.5
    assert scraped.turn(build_snapshot(plan, beats=()))["watershed_copied_records_total", FLOW] == 9


def test_a_cluster_that_is_down_is_told_and_keeps_what_was_known(plan: Plan) -> None:
    scraped = Scraped(plan, build_snapshot(plan, report(0)))
    assert scraped.turn()["watershed_cluster_up", plan.topology, TARGET] == 1
    old = replace(scraped.snapshots[TARGET], answered_at=time.time() - 100, problem="unreachable")
    told = scraped.turn(old)
    assert told["watershed_cluster_up", plan.topology, TARGET] == 0
    assert told["watershed_exporter_read_age_seconds", plan.topology, TARGET] == pytest.approx(100, abs=5)
    assert told["watershed_partitions_silent", FLOW] == 0, "nobody knows"
    assert told["watershed_flow_lag_records", FLOW] == 2


def test_topologies_that_share_a_cluster_have_series_of_their_own(plan: Plan) -> None:
    other = replace(
        plan, topology="other", migration=None, flows=tuple(replace(each, id=f"{each.id}-2") for each in plan.flows)
    )
    ours, theirs = {"topology": plan.topology}, {"topology": "other"}
    beats = (heartbeat("w1", 0, **ours), heartbeat("w2", 0, **theirs), heartbeat("w3", 0, **theirs))
    scraped = Scraped(plan, build_snapshot(plan, beats=beats))
    scraped.collector = EstateCollector([plan, other], 1_000, read=scraped._read)
    scraped.turn()
    later = (
        *(replace(each, throttled_s=0.5) for each in beats),
        heartbeat("w4", 0, **theirs),
        heartbeat("changes", 0, transforms=True, **theirs),
        heartbeat("foreign", 0, topology="a third"),
    )
    told = scraped.turn(build_snapshot(plan, beats=later))
    kinds = {"watershed_fleet_workers": ["present"], "watershed_worker_starts_total": []}
    kinds["watershed_throttled_seconds_total"] = []
    of = {
        topology: [told[name, topology, TARGET, *kind] for name, kind in kinds.items()]
        for topology in (plan.topology, "other")
    }
    assert of == {plan.topology: [1, 0, 0.5], "other": [3, 1, 1.0]}
    assert told["watershed_cluster_up", "other", TARGET] == told["watershed_cluster_up", plan.topology, TARGET] == 1


def test_what_it_knows_is_as_old_as_the_last_turn_of_its_loop(plan: Plan) -> None:
    scraped = Scraped(plan, build_snapshot(plan, report(0)))
    scraped.turn()
    scraped.collector._turned_at -= 90  # its loop hangs, and the thread of the cluster goes on
    told = {each.name: each for each in scraped.collector.collect()}
    [age] = told["watershed_exporter_read_age_seconds"].samples
    assert age.value == pytest.approx(90, abs=5)
    up = [each.value for each in told["watershed_cluster_up"].samples if each.labels["cluster"] == TARGET]
    assert up == [1]


def test_it_is_ready_when_each_cluster_was_read_or_does_not_answer(plan: Plan) -> None:
    scraped = Scraped(plan, ClusterSnapshot())
    assert scraped.turn()["watershed_cluster_up", plan.topology, TARGET] == 0
    others = [alias for alias in scraped.snapshots if alias != TARGET]
    for alias in others:
        scraped.snapshots[alias] = ClusterSnapshot(problem="unreachable")
    health = scraped.collector.read_health()
    assert (health.is_live, health.is_ready, health.why) == (True, False, "not read yet: cloud")
    scraped.turn(ClusterSnapshot(problem="unreachable"))
    assert scraped.collector.read_health().is_ready


def test_proofs_and_migrations_come_from_the_journal_and_newer_proofs_from_folders(plan: Plan, tmp_path: Path) -> None:
    told = Scraped(plan, build_snapshot(plan)).turn()
    assert told["watershed_proof_passed", FLOW] == 0
    assert told["watershed_proof_unproven_records", FLOW] == 3
    assert told["watershed_migration_step", plan.topology, "canary", "approval", "waiting"] == 1
    summary = {"verdict": "proven", "unproven": 0, "flows": [{"id": FLOW}], "ended_at": "2999-01-01T00:00:00+00:00"}
    folder = tmp_path / "proofs" / "one"
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps(summary))
    (tmp_path / "summary.json").write_text("[]")
    told = Scraped(plan, build_snapshot(plan), proofs=[tmp_path]).turn()
    assert told["watershed_proof_passed", FLOW] == 1
    assert told["watershed_proof_age_seconds", FLOW] == 0


def test_two_files_with_the_same_flow_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exporter", str(MIGRATION), str(MIGRATION), "--listen", "127.0.0.1:0"]) == 2
    assert "is in several files" in capsys.readouterr().err
    assert main(["exporter", str(MIGRATION), "--listen", "nowhere"]) == 2
    assert "--listen nowhere: say HOST:PORT" in capsys.readouterr().err
