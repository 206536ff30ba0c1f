"""What Prometheus would have scraped, and which alerts of `FILE` fire then: cases for promtool."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

FILE = """apiVersion: topology/v1alpha1
kind: Topology
metadata: {name: move, owner: us}
clusters:
  a: {bootstrap: ["a.example.internal:9092"]}
  b: {bootstrap: ["b.example.internal:9092"]}
  c: {bootstrap: ["c.example.internal:9092"]}
flows:
  - source: a
    target: b
    topics: {include: [orders]}
    slo: {lag: {p99: 5s, max: 1m}, rpo: 10m, outage_allowance: 2h}
    verify: {every: 10m}
  - source: b
    target: c
    topics: {include: [orders]}
    slo: {lag: {max: 5m}, end_to_end: {max: 6m}, on_breach: pause}
migration:
  flow: a-to-b
  waves:
    - name: one
      topics: [orders]
      gates: {before: [{lag: {max_records: 0, hold: 1m}}]}
      rollback: {none: "a test"}
"""
LATENCY = "watershed_replication_latency_seconds"
QUIET = {
    # Another topology shares the cluster and is stopped, and a second exporter of this one does not reach it: neither
    # must silence an alert.
    'watershed_cluster_up{topology="other",cluster="b"}': "0x90",
    'watershed_fleet_workers{topology="other",target="b",kind="wanted"}': "0x90",
    'watershed_fleet_workers{topology="other",target="b",kind="present"}': "0x90",
    'watershed_cluster_up{topology="move",cluster="b",instance="second"}': "0x90",
    'watershed_cluster_up{topology="move",cluster="b"}': "1x90",
    'watershed_cluster_up{topology="move",cluster="c"}': "1x90",
    'watershed_exporter_read_age_seconds{topology="move",cluster="b"}': "1x90",
    'watershed_exporter_read_age_seconds{topology="move",cluster="c"}': "1x90",
    'watershed_fleet_workers{topology="move",target="b",kind="wanted"}': "2x90",
    'watershed_fleet_workers{topology="move",target="b",kind="present"}': "2x90",
    'watershed_fleet_workers{topology="move",target="c",kind="wanted"}': "1x90",
    'watershed_fleet_workers{topology="move",target="c",kind="present"}': "1x90",
    'watershed_worker_starts_total{topology="move",target="b"}': "0x90",
    'watershed_throttled_seconds_total{topology="move",target="b"}': "0x90",
    'watershed_flow_state{flow="a-to-b",state="running"}': "1x90",
    'watershed_flow_state{flow="b-to-c",state="running"}': "1x90",
    'watershed_flow_lag_seconds{flow="a-to-b"}': "1x90",
    'watershed_flow_lag_seconds{flow="b-to-c"}': "2x90",
    'watershed_partitions{flow="a-to-b",state="running"}': "3x90",
    'watershed_partitions{flow="b-to-c",state="running"}': "3x90",
    'watershed_partitions_silent{flow="a-to-b"}': "0x90",
    'watershed_open_records{flow="a-to-b",topic="orders",partition="0"}': "0x90",
    'watershed_source_position{flow="a-to-b",topic="orders",partition="0"}': "700x90",
    'watershed_proof_passed{flow="a-to-b"}': "1x90",
    'watershed_proof_age_seconds{flow="a-to-b"}': "600x90",
    'watershed_migration_step{migration="move",wave="one",step="drain",state="under_way"}': "1x90",
    f'{LATENCY}_bucket{{flow="a-to-b",le="3.2768"}}': "0+100x90",
    f'{LATENCY}_bucket{{flow="a-to-b",le="6.5536"}}': "0+100x90",
    f'{LATENCY}_count{{flow="a-to-b"}}': "0+100x90",
}
STEP = 'watershed_migration_step{migration="move",wave="one",step="drain",state="%s"}'


@dataclass(frozen=True, slots=True)
class AlertScenario:
    """changes: series by name, in place of those of QUIET; "" takes one away. alerts: the names that fire a minute
    after the values have changed (or at `at_minutes`), and no others."""

    name: str
    changes: dict[str, str]
    alerts: tuple[str, ...]
    at_minutes: float = 31


def change_after(before: str, after: str) -> str:
    """Half an hour of one value, then another; a step is half a minute."""
    return f"{before}x59 {after}x30"


def cluster_down(cluster: str) -> dict[str, str]:
    target = f'target="{cluster}"'
    return {
        f'watershed_cluster_up{{topology="move",cluster="{cluster}"}}': change_after("1", "0"),
        f'watershed_exporter_read_age_seconds{{topology="move",cluster="{cluster}"}}': "1x59 30+30x30",
        f'watershed_fleet_workers{{topology="move",{target},kind="present"}}': change_after("2", "0"),
    }


SCENARIOS = (
    AlertScenario("quiet", {}, ()),
    AlertScenario("target down", cluster_down("b"), ("WatershedClusterUnreachable",)),
    AlertScenario(
        "no exporter",
        {key: "1x59 stale" for key in QUIET if "cluster_up" in key},
        ("WatershedExporterMissing", "WatershedExporterMissing"),
    ),
    AlertScenario(
        "exporter stands still",
        {'watershed_exporter_read_age_seconds{topology="move",cluster="b"}': "1x59 30+31x30"},
        ("WatershedExporterStale",),
    ),
    AlertScenario(
        "last worker killed",
        {
            'watershed_fleet_workers{topology="move",target="b",kind="present"}': change_after("2", "0"),
            'watershed_partitions_silent{flow="a-to-b"}': change_after("0", "3"),
        },
        ("WatershedNoWorker",),
    ),
    AlertScenario(
        "fleet stopped on purpose",
        {
            'watershed_fleet_workers{topology="move",target="b",kind="present"}': change_after("2", "0"),
            'watershed_fleet_workers{topology="move",target="b",kind="wanted"}': change_after("2", "0"),
        },
        (),
    ),
    AlertScenario(
        "one of two workers killed",
        {'watershed_fleet_workers{topology="move",target="b",kind="present"}': change_after("2", "1")},
        ("WatershedWorkersMissing",),
    ),
    AlertScenario(
        "a worker freezes",
        {'watershed_partitions_silent{flow="a-to-b"}': change_after("0", "2")},
        ("WatershedPartitionsSilent",),
    ),
    AlertScenario(
        "lag of silent partitions breaks no budget of its own, but a failover would lose it",
        {
            'watershed_partitions_silent{flow="a-to-b"}': change_after("0", "2"),
            'watershed_flow_lag_seconds{flow="a-to-b"}': change_after("1", "601"),
        },
        ("WatershedPartitionsSilent", "WatershedFailoverWouldLoseMore"),
    ),
    AlertScenario(
        "workers start again and again",
        {'watershed_worker_starts_total{topology="move",target="b"}': "0+1x90"},
        ("WatershedWorkersRestart",),
    ),
    AlertScenario(
        "retention overtook",
        {'watershed_partitions{flow="a-to-b",state="source_expired"}': change_after("0", "1")},
        ("WatershedPartitionHalted",),
    ),
    AlertScenario(
        "source down",
        {
            'watershed_partitions{flow="a-to-b",state="retrying"}': change_after("0", "3"),
            'watershed_flow_lag_seconds{flow="a-to-b"}': change_after("1", "100"),
        },
        ("WatershedPartitionsRetry",),
    ),
    AlertScenario(
        "behind",
        {'watershed_flow_lag_seconds{flow="a-to-b"}': change_after("1", "61")},
        ("WatershedLagOverMax",),
    ),
    AlertScenario(
        "behind while paused",
        {
            'watershed_flow_lag_seconds{flow="a-to-b"}': change_after("1", "61"),
            'watershed_flow_state{flow="a-to-b",state="running"}': change_after("1", "0"),
        },
        (),
    ),
    AlertScenario(
        "a failover would lose more",
        {
            'watershed_flow_lag_seconds{flow="a-to-b"}': change_after("1", "601"),
            'watershed_flow_state{flow="a-to-b",state="running"}': change_after("1", "0"),
            'watershed_flow_lag_seconds{flow="b-to-c"}': "",
        },
        ("WatershedFailoverWouldLoseMore",),
    ),
    AlertScenario(
        "a budget paused a flow",
        {
            'watershed_flow_lag_seconds{flow="b-to-c"}': change_after("2", "301"),
            'watershed_flow_state{flow="b-to-c",state="running"}': change_after("1", "0"),
            'watershed_flow_stopped_by_budget{flow="b-to-c",action="pause"}': change_after("0", "1"),
        },
        ("WatershedPausedByBudget",),
    ),
    AlertScenario(
        "a budget paused a flow, and the file says `on_breach: alert` since then",
        {
            'watershed_flow_lag_seconds{flow="a-to-b"}': change_after("1", "61"),
            'watershed_flow_state{flow="a-to-b",state="running"}': change_after("1", "0"),
            'watershed_flow_stopped_by_budget{flow="a-to-b",action="pause"}': change_after("0", "1"),
        },
        ("WatershedPausedByBudget",),
    ),
    AlertScenario(
        "a chain is late though each hop is not",
        {
            'watershed_flow_lag_seconds{flow="a-to-b"}': change_after("1", "60"),
            'watershed_flow_lag_seconds{flow="b-to-c"}': change_after("1", "300.5"),
        },
        ("WatershedEndToEndOverMax", "WatershedLagOverMax"),
    ),
    AlertScenario(
        "half of the allowance is used",
        {
            'watershed_flow_lag_seconds{flow="a-to-b"}': change_after("1", "3601"),
            'watershed_flow_state{flow="a-to-b",state="running"}': change_after("1", "0"),
            'watershed_flow_lag_seconds{flow="b-to-c"}': "",
        },
        ("WatershedFailoverWouldLoseMore", "WatershedRetentionComesNear"),
    ),
    AlertScenario(
        "a fifth of the records is slow",
        {
            f'{LATENCY}_bucket{{flow="a-to-b",le="3.2768"}}': "0+80x90",
            f'{LATENCY}_bucket{{flow="a-to-b",le="6.5536"}}': "0+80x90",
        },
        ("WatershedLatencyBudgetBurnsFast", "WatershedLatencyBudgetBurnsSlowly"),
    ),
    AlertScenario(
        "three in a hundred are slow",
        {
            f'{LATENCY}_bucket{{flow="a-to-b",le="3.2768"}}': "0+97x90",
            f'{LATENCY}_bucket{{flow="a-to-b",le="6.5536"}}': "0+97x90",
        },
        ("WatershedLatencyBudgetBurnsSlowly",),
    ),
    AlertScenario(
        "a failed proof",
        {'watershed_proof_passed{flow="a-to-b"}': change_after("1", "0")},
        ("WatershedProofFailed",),
    ),
    AlertScenario(
        "a flow that nobody proved",
        {'watershed_proof_age_seconds{flow="a-to-b"}': "", 'watershed_proof_passed{flow="a-to-b"}': ""},
        ("WatershedNeverProven",),
    ),
    AlertScenario(
        "a flow that nobody proved, and an exporter that starts again",
        {
            'watershed_proof_age_seconds{flow="a-to-b"}': "",
            'watershed_proof_passed{flow="a-to-b"}': "",
            'watershed_flow_state{flow="a-to-b",state="running"}': "1x38 _x4 1x50",
        },
        ("WatershedNeverProven",),
    ),
    AlertScenario("an old proof", {'watershed_proof_age_seconds{flow="a-to-b"}': "1201x90"}, ("WatershedProofOld",)),
    AlertScenario(
        "the process of a step is dead", {STEP % "overdue": change_after("0", "1")}, ("WatershedMigrationOverdue",)
    ),
    AlertScenario("a step waits", {STEP % "waiting": "1x90"}, ("WatershedMigrationWaits",)),
    AlertScenario("a run stopped", {STEP % "stopped": change_after("0", "1")}, ("WatershedMigrationBroken",), 36),
    AlertScenario("a step was refused just now", {STEP % "step_refused": change_after("0", "1")}, ()),
    AlertScenario(
        "a run died before its rollback",
        {STEP % "step_refused": change_after("0", "1")},
        ("WatershedMigrationBroken",),
        36,
    ),
    AlertScenario(
        "a run was taken back", {STEP % "rolled_back": change_after("0", "1")}, ("WatershedMigrationTakenBack",)
    ),
    AlertScenario(
        "a transaction hangs",
        {'watershed_open_records{flow="a-to-b",topic="orders",partition="0"}': "510x90"},
        ("WatershedTransactionHangs",),
    ),
    AlertScenario(
        "a transaction hangs, and its worker freezes",
        {
            'watershed_open_records{flow="a-to-b",topic="orders",partition="0"}': "510x90",
            'watershed_partitions_silent{flow="a-to-b"}': change_after("0", "2"),
        },
        ("WatershedPartitionsSilent",),
    ),
    AlertScenario(
        "one transaction after the other",
        {
            'watershed_open_records{flow="a-to-b",topic="orders",partition="0"}': "510x90",
            'watershed_source_position{flow="a-to-b",topic="orders",partition="0"}': "700+50x90",
        },
        (),
    ),
    AlertScenario(
        "throttled and ever later",
        {
            'watershed_throttled_seconds_total{topology="move",target="b"}': "0+40x90",
            'watershed_flow_lag_seconds{flow="a-to-b"}': "0x59 0+1.5x30",
        },
        ("WatershedThrottled",),
        40,
    ),
    AlertScenario(
        "throttled, and keeps up", {'watershed_throttled_seconds_total{topology="move",target="b"}': "0+40x90"}, ()
    ),
)


def build_promtool_test(scenario: AlertScenario) -> dict[str, Any]:
    """A test of promtool: which alerts fire, and how many of each name."""
    series = {key: value for key, value in {**QUIET, **scenario.changes}.items() if value}
    firing = {
        "eval_time": f"{int(scenario.at_minutes * 60)}s",
        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
        "exp_samples": [
            {"labels": f'{{alertname="{name}"}}', "value": count} for name, count in Counter(scenario.alerts).items()
        ],
    }
    return {
        "name": scenario.name,
        "interval": "30s",
        "input_series": [{"series": key, "values": value} for key, value in series.items()],
        "promql_expr_test": [firing],
    }
