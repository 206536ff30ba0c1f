"""All rules of a file: its budgets, and what a person should hear of whatever the file promises.

docs/alerts.md says of each fault which alert tells it. One cause has one alert: what follows from another alert is left
out by `unless`, so that nobody is woken twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from watershed.replicator.alerting.budget_rules import AlertPlace, build_budget_groups, match_cluster
from watershed.replicator.alerting.promql import escape_annotation, match_label, render_promql_seconds
from watershed.replicator.alerting.rule_group import AlertRule, RuleGroup
from watershed.replicator.partition_states import REMEDIES, RETRYING
from watershed.topology.metric_catalogue import (
    CLUSTER_UP,
    EXPORTER_READ_AGE_SECONDS,
    FLEET_WORKERS,
    FLOW_LAG_SECONDS,
    FLOW_STATE,
    MIGRATION_STEP,
    OPEN_RECORDS,
    PARTITIONS,
    PARTITIONS_SILENT,
    PROOF_AGE_SECONDS,
    PROOF_PASSED,
    SOURCE_POSITION,
    THROTTLED_SECONDS,
    WORKER_STARTS,
)
from watershed.topology.model import Flow, Topology
from watershed.topology.shell_command import quote_shell_argument

DEFAULT_RUNBOOKS: Final = "docs/runbooks.md"
STALE_AFTER_S: Final = 60
_STARTS_A_WORKER: Final = 3  # in a quarter of an hour: one rolling restart, and a second because of a mistake
_PROOFS_LATE: Final = 2  # times `verify.every`: one proof may be slow
_RESTART_WINDOW: Final = "1h"  # what bridges the gap while an exporter is started again
_NO_MATTER_HOW_LONG: Final = "0s"
_HOLD: Final = "30s"  # with a scrape every 15 s, and 15 s until a worker counts as absent: within a minute
_LONGEST_TRANSACTION: Final = "15m"  # `transaction.max.timeout.ms` of a broker, by default
_BROKEN_RUNS: Final = ("rollback_incomplete", "step_refused", "stopped")
_BROKEN_HOLD: Final = "5m"  # a refused step is taken back by its run, whose next entry follows at once
_TAKEN_BACK_RUNS: Final = ("refused", "rolled_back")


def build_rule_groups(topology: Topology, file: Path, runbooks: str = DEFAULT_RUNBOOKS) -> tuple[RuleGroup, ...]:
    """The groups of the file's rules. file: as a person would name it in a command. runbooks: the address or path at
    which docs/runbooks.md is published. They expect what `topology exporter` serves."""
    place = AlertPlace(topology.name, quote_shell_argument(file), runbooks)
    groups = list(build_budget_groups(topology, place))
    targets = sorted({flow.target for flow in topology.flows})
    rules = [rule for target in targets for rule in _list_target_alerts(topology, target, place)]
    groups.append(RuleGroup(f"watershed-{topology.name}-estate", tuple(rules)))
    groups.append(RuleGroup(f"watershed-{topology.name}-proofs", tuple(_list_proof_alerts(topology, place))))
    if topology.migration is not None:
        groups.append(RuleGroup(f"watershed-{topology.name}-migration", tuple(_list_migration_alerts(place))))
    return tuple(group for group in groups if group.rules)


def _list_target_alerts(topology: Topology, target: str, place: AlertPlace) -> Iterator[AlertRule]:
    """Of one target cluster, its fleet, and the flows into it."""
    yield from _list_cluster_alerts(target, place)
    flows = [flow for flow in topology.flows if flow.target == target]
    copied = [flow for flow in flows if not _has_transform(flow)]
    if copied:
        yield from _list_fleet_alerts(target, copied, place)
    yield from _list_partition_alerts(target, flows, place)
    yield _build_transaction_alert(target, flows, place)
    yield _build_throttle_alert(target, flows, place)


def _list_cluster_alerts(target: str, place: AlertPlace) -> Iterator[AlertRule]:
    matcher, name = match_cluster([target], place.topology), escape_annotation(target)
    yield AlertRule(
        "WatershedClusterUnreachable", f"max by (cluster) ({CLUSTER_UP.name}{{{matcher}}}) == 0", _HOLD, "critical",
        f"The exporter cannot read cluster {name}",
        f"The control topics of {name} cannot be read: the cluster is down, the network is cut, or the exporter lost "
        "its rights. Nothing is known of the flows into it. The exporter's log names the error; "
        f"`topology status {escape_annotation(place.file)}` shows whether it can be read from elsewhere.",
        "a-cluster-cannot-be-read", place.topology, place.runbooks,
    )  # fmt: skip
    yield AlertRule(
        "WatershedExporterMissing", f"absent({CLUSTER_UP.name}{{{matcher}}})", _HOLD, "critical",
        f"No exporter tells anything of cluster {name}",
        f"Prometheus gets no `{CLUSTER_UP.name}` for {name}. `topology exporter` does not run, serves another file, or "
        "is not scraped. No other alert of this file can fire meanwhile: start it, then look at the targets of "
        "Prometheus.",
        "the-exporter-is-silent", place.topology, place.runbooks,
    )  # fmt: skip
    age = f"max by (cluster) ({EXPORTER_READ_AGE_SECONDS.name}{{{matcher}}})"
    yield AlertRule(
        "WatershedExporterStale", f"{age} > {STALE_AFTER_S} {_while_reachable(target, place)}",
        _NO_MATTER_HOW_LONG, "warning",
        f"What the exporter says of {name} is old",
        f"The newest that the exporter knows of {name} is {{{{ $value | humanizeDuration }}}} old, and all values are "
        "as old. Look at its log and its processor time; start it again.",
        "the-exporter-is-silent", place.topology, place.runbooks,
    )  # fmt: skip


def _list_fleet_alerts(target: str, flows: list[Flow], place: AlertPlace) -> Iterator[AlertRule]:
    name, file = escape_annotation(target), escape_annotation(place.file)
    present, wanted = _fleet(target, "present", place), _fleet(target, "wanted", place)
    reachable = _while_reachable(target, place)
    running = f'{FLOW_STATE.name}{{{_match_flows(flows)},state="running"}}'
    yield AlertRule(
        "WatershedNoWorker",
        f"{present} == 0 and on () (max({running}) == 1) unless on (target) ({wanted} == 0) {reachable}",
        _HOLD, "critical",
        f"No worker copies into {name}",
        f"Flows into {name} are meant to run, and no worker has reported for 15 s: nothing is copied. Start one: "
        f"`topology fleet supervise {file} --target {name}`, or `topology worker {file} --target {name}`.",
        "workers-are-missing", place.topology, place.runbooks,
    )  # fmt: skip
    yield AlertRule(
        "WatershedWorkersMissing", f"{wanted} - {present} > 0 and {present} > 0 {reachable}", _HOLD, "warning",
        f"Workers into {name} are missing",
        f"{{{{ $value }}}} fewer than wanted report. The others copy in their place. `topology fleet status {file}` "
        "says what keeps the supervisor.",
        "workers-are-missing", place.topology, place.runbooks,
    )  # fmt: skip
    matcher = _match_target(target, place)
    starts = f"max by (target) (increase({WORKER_STARTS.name}{{{matcher}}}[15m]))"
    size = f"clamp_min(max by (target) ({FLEET_WORKERS.name}{{{matcher}}}), 1)"
    yield AlertRule(
        "WatershedWorkersRestart", f"{starts} > {_STARTS_A_WORKER} * {size}", _NO_MATTER_HOW_LONG, "warning",
        f"Workers into {name} start again and again",
        "{{ $value | humanize }} workers began in a quarter of an hour. Their logs say why the ones before them ended "
        f"(`topology fleet status {file}` names the host).",
        "workers-are-missing", place.topology, place.runbooks,
    )  # fmt: skip


def _list_partition_alerts(target: str, flows: list[Flow], place: AlertPlace) -> Iterator[AlertRule]:
    matcher, file = _match_flows(flows), escape_annotation(place.file)
    halted = f"{PARTITIONS.name}{{{matcher},{match_label('state', REMEDIES)}}}"
    yield AlertRule(
        "WatershedPartitionHalted", f"max by (flow, state) ({halted}) > 0", "10s", "critical",
        "Partitions of flow {{ $labels.flow }} are halted: {{ $labels.state }}",
        "{{ $value }} partitions stand still until somebody decides; the others go on. "
        f"`topology status {file}` names them, the offsets, and the command.",
        "a-partition-is-halted", place.topology, place.runbooks,
    )  # fmt: skip
    served = f"unless on () ({_fleet(target, 'present', place)} == 0)"
    for changing, others in ((False, served), (True, "")):  # a fleet counts only workers of flows without `transform`
        chosen = [flow for flow in flows if _has_transform(flow) == changing]
        if chosen:
            yield from _list_service_alerts(chosen, f"{_while_reachable(target, place)} {others}".strip(), place)


def _list_service_alerts(flows: list[Flow], condition: str, place: AlertPlace) -> Iterator[AlertRule]:
    """Of partitions that nobody serves well. condition: when no other alert tells the cause."""
    matcher, file = _match_flows(flows), escape_annotation(place.file)
    retrying = f'{PARTITIONS.name}{{{matcher},state="{RETRYING}"}}'
    yield AlertRule(
        "WatershedPartitionsRetry", f"max by (flow) ({retrying}) > 0 {condition}", _HOLD, "critical",
        "Brokers or a schema registry keep the workers of flow {{ $labels.flow }} waiting",
        "{{ $value }} partitions wait: brokers do not answer or have too few replicas, or a schema is not at the "
        f"target yet. They go on by themselves. `topology status {file}` names the cause.",
        "a-cluster-does-not-answer-the-workers", place.topology, place.runbooks,
    )  # fmt: skip
    yield AlertRule(
        "WatershedPartitionsSilent",
        f"max by (flow) ({PARTITIONS_SILENT.name}{{{matcher}}}) > 0 {condition}", _HOLD, "critical",
        "Nobody reports of partitions of flow {{ $labels.flow }}",
        "{{ $value }} partitions of a running flow have no worker that reports, though others may. "
        f"`topology fleet status {file}` shows which workers are ill; their logs say why.",
        "workers-are-missing", place.topology, place.runbooks,
    )  # fmt: skip


def _build_transaction_alert(target: str, flows: list[Flow], place: AlertPlace) -> AlertRule:
    """What waits behind an open transaction is no lag, so no budget tells it. A position that moves says that the open
    transactions are different ones."""
    matcher = _match_flows(flows)
    stuck = (
        f"min_over_time({OPEN_RECORDS.name}{{{matcher}}}[2m]) > 0"
        f" unless changes({SOURCE_POSITION.name}{{{matcher}}}[2m]) > 0"
    )
    told_elsewhere = (
        f"unless on (flow) (max by (flow) ({PARTITIONS_SILENT.name}{{{matcher}}}) > 0)"
        f" {_while_reachable(target, place)}"
    )
    return AlertRule(
        "WatershedTransactionHangs", f"max by (flow) ({stuck}) {told_elsewhere}", _LONGEST_TRANSACTION, "critical",
        "A transaction at the source of flow {{ $labels.flow }} does not end",
        "{{ $value }} offsets of a partition wait for a transaction that is open for longer than a broker lets it by "
        f"default. Nothing behind it is copied. `topology status {escape_annotation(place.file)}` names the partition.",
        "a-transaction-hangs", place.topology, place.runbooks,
    )  # fmt: skip


def _build_throttle_alert(target: str, flows: list[Flow], place: AlertPlace) -> AlertRule:
    name = escape_annotation(target)
    waited = f"max by (target) (rate({THROTTLED_SECONDS.name}{{{_match_target(target, place)}}}[5m]))"
    throttled = f"{waited} / clamp_min({_fleet(target, 'present', place)}, 1)"
    behind = f"max(deriv({FLOW_LAG_SECONDS.name}{{{_match_flows(flows)}}}[5m])) > 0.02"
    return AlertRule(
        "WatershedThrottled", f"{throttled} > 0.5 and on () ({behind})", "5m", "warning",
        f"Quotas slow the workers into {name} down, and lag grows",
        "Brokers ask each worker to wait for {{ $value | humanize }} s in each second, added up over its connections, "
        "and the flows fall behind. "
        "Raise the quota of the workers' principal or client id at the source and the target, or lower the traffic.",
        "brokers-throttle", place.topology, place.runbooks,
    )  # fmt: skip


def _list_proof_alerts(topology: Topology, place: AlertPlace) -> Iterator[AlertRule]:
    file = escape_annotation(place.file)
    if topology.flows:
        yield AlertRule(
            "WatershedProofFailed", f"max by (flow) ({PROOF_PASSED.name}{{{_match_flows(topology.flows)}}}) == 0",
            _NO_MATTER_HOW_LONG, "critical",
            "The newest proof of flow {{ $labels.flow }} did not pass",
            "Records are missing, repeated or different, or could not be compared. Move nobody before it is explained: "
            f"`topology verify {file} --flow {{{{ $labels.flow }}}}` names the chunks, and `--explain` the records.",
            "a-proof-did-not-pass", place.topology, place.runbooks,
        )  # fmt: skip
    for flow in topology.flows:
        every = flow.settings.get("verify", "every")
        if every is not None:
            age = f"max by (flow) ({PROOF_AGE_SECONDS.name}{{{match_label('flow', [flow.id])}}})"
            yield AlertRule(
                "WatershedProofOld", f"{age} > {render_promql_seconds(_PROOFS_LATE * every)}", "5m", "warning",
                f"Flow {escape_annotation(flow.id)} was not proven for a long time",
                "The newest proof ended {{ $value | humanizeDuration }} ago; the file asks for one more often "
                f"(`verify.every`). Look at the runs of `verify__{escape_annotation(place.topology)}` in Airflow, or "
                f"run `topology verify {file}`.",
                "a-proof-did-not-pass", place.topology, place.runbooks,
            )  # fmt: skip
            yield _build_unproven_alert(flow, every, place)


def _build_unproven_alert(flow: Flow, every_ms: int, place: AlertPlace) -> AlertRule:
    """Of a flow without a known proof, which has no age. An exporter that starts again begins no time anew."""
    named = match_label("flow", [flow.id])
    runs = f'max by (flow) (max_over_time({FLOW_STATE.name}{{{named},state="running"}}[{_RESTART_WINDOW}])) == 1'
    proven = f"max by (flow) (max_over_time({PROOF_AGE_SECONDS.name}{{{named}}}[{_RESTART_WINDOW}]))"
    return AlertRule(
        "WatershedNeverProven", f"{runs} unless on (flow) {proven}",
        f"{_PROOFS_LATE * every_ms // 1000}s", "warning",
        f"No proof of flow {escape_annotation(flow.id)} is known",
        "The flow runs, its file asks for proofs (`verify.every`), and the exporter knows of none. It sees the proofs "
        "of migrations, and those in folders that it was given: start it with `--proofs FOLDER`. If there are none, "
        f"look at the runs of `verify__{escape_annotation(place.topology)}` in Airflow, or run `topology verify "
        f"{escape_annotation(place.file)}`.",
        "a-proof-did-not-pass", place.topology, place.runbooks,
    )  # fmt: skip


def _list_migration_alerts(place: AlertPlace) -> Iterator[AlertRule]:
    file = escape_annotation(place.file)
    named = "Wave {{ $labels.wave }} of {{ $labels.migration }}"
    yield AlertRule(
        "WatershedMigrationWaits", _steps(place, ["waiting"]), "15m", "warning",
        f"{named} waits for a person",
        f"Step {{{{ $labels.step }}}} has been waiting for a quarter of an hour. `topology migrate {file} --status` "
        "says for whom; in Airflow it is the approval of the run.",
        "before-anything-is-touched", place.topology, place.runbooks,
    )  # fmt: skip
    yield AlertRule(
        "WatershedMigrationBroken", _steps(place, _BROKEN_RUNS), _BROKEN_HOLD, "critical",
        f"{named} stands between the clusters: {{{{ $labels.state }}}}",
        f"The run stands still at {{{{ $labels.step }}}} and is unfinished: it ended, or its process died before it "
        f"took the step back. `topology journal {file}` says what was done; go on with "
        f"`topology migrate {file} --resume`.",
        "behind-the-point-of-no-return", place.topology, place.runbooks,
    )  # fmt: skip
    yield AlertRule(
        "WatershedMigrationOverdue", _steps(place, ["overdue"]), _NO_MATTER_HOW_LONG, "critical",
        f"{named} stands still at {{{{ $labels.step }}}}",
        "The run has written nothing for longer than this step may take, and 5 minutes more: its process is dead, or "
        f"hangs. Producers may be fenced meanwhile. `topology migrate {file} --status` says when it last wrote. End "
        f"the process if it still runs, then go on with `topology migrate {file} --resume` (or clear the task in "
        "Airflow).",
        "behind-the-point-of-no-return", place.topology, place.runbooks,
    )  # fmt: skip
    yield AlertRule(
        "WatershedMigrationTakenBack", _steps(place, _TAKEN_BACK_RUNS), _NO_MATTER_HOW_LONG, "warning",
        f"{named} did not happen: {{{{ $labels.state }}}}",
        "Everything is at the source, as before. The run ended at {{ $labels.step }}; "
        f"`topology journal {file}` has its message. Repair the cause and run again.",
        "while-applications-move-all-of-it-is-taken-back-by-itself", place.topology, place.runbooks,
    )  # fmt: skip


def _steps(place: AlertPlace, states: tuple[str, ...] | list[str]) -> str:
    matchers = f"{match_label('migration', [place.topology])},{match_label('state', states)}"
    return f"max by (migration, wave, step, state) ({MIGRATION_STEP.name}{{{matchers}}}) == 1"


def _fleet(target: str, kind: str, place: AlertPlace) -> str:
    return f'max by (target) ({FLEET_WORKERS.name}{{{_match_target(target, place)},kind="{kind}"}})'


def _match_target(target: str, place: AlertPlace) -> str:
    return f"{match_label('topology', [place.topology])},{match_label('target', [target])}"


def _while_reachable(target: str, place: AlertPlace) -> str:
    """Of two exporters of one file, one that works is enough."""
    return f"unless on () (max({CLUSTER_UP.name}{{{match_cluster([target], place.topology)}}}) == 0)"


def _has_transform(flow: Flow) -> bool:
    return flow.settings.get("transform") is not None


def _match_flows(flows: tuple[Flow, ...] | list[Flow]) -> str:
    return match_label("flow", [flow.id for flow in flows])
