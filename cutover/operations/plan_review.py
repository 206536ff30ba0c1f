"""What `topology apply` would do, with all that a person should know before: `topology plan`, and the tasks `plan` and
`approve_apply` of the DAG `replicate__<name>`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from watershed.clusters import control_topics
from watershed.clusters.fleet import read_fleets
from watershed.clusters.inventory_scan import scan_cluster
from watershed.clusters.missing_rights import find_missing_role_rights
from watershed.clusters.required_role_acls import AccountRole
from watershed.clusters.settings import ConnectionSettings, SettingsLookup
from watershed.cutover.journal.topology_journal import read_journal_chain
from watershed.cutover.operations.moved_applications import describe_moved_applications
from watershed.cutover.run_claim import find_started_waves
from watershed.replicator.apply_fleets import find_fleet_changes
from watershed.replicator.compression_forecast import CompressionForecast, forecast_compression
from watershed.replicator.copy.aligned.offset_mode_plan import TopicOffsetMode, plan_offset_modes
from watershed.replicator.sync.sync_on_apply import find_sync_differences
from watershed.topology.cluster_capabilities import ClusterCapabilities
from watershed.topology.copy_bounds import encode_bound
from watershed.topology.delivery_guarantee import GuaranteeDecision
from watershed.topology.drift import FieldDrift, find_drift
from watershed.topology.external_flows import render_external_flows
from watershed.topology.inventory import Inventory
from watershed.topology.lint import LintResult, lint_path
from watershed.topology.lint_configuration import LintConfiguration
from watershed.topology.loader import load_topology
from watershed.topology.plan import Plan, PlanFlow
from watershed.topology.repeat_obstacles import decide_flow_guarantee
from watershed.topology.reports.text import render_frames
from watershed.topology.rounded_amounts import render_counted_noun, render_first_names
from watershed.topology.unsupported_settings import (
    UnsupportedSetting,
    describe_unsupported_settings,
    find_unsupported_settings,
    list_unsupported_promises,
)

_OWN_TOPICS = (
    control_topics.FLOWS_TOPIC,
    control_topics.LEDGER_TOPIC,
    control_topics.STATUS_TOPIC,
    control_topics.JOURNAL_TOPIC,
)

# A header of the form `v1 CLUSTER PARTITION OFFSET TIMESTAMP` beside the names of header and topic, and the time that
# a record takes which is opened, extended and packed again.
_PROVENANCE_BYTES: Final = 55
_PROVENANCE_US: Final = 5


@dataclass(frozen=True, slots=True)
class PlanReview:
    """The plan beside the live clusters. found: what differs. missing: settings of the file that nothing executes.
    compression: what flows that compress would save. spark_plans: flow id → hash of the plan of Spark that changes its
    records, where somebody had Spark make it."""

    plan: Plan
    inventory: Inventory
    found: list[FieldDrift]
    lint: LintResult
    missing: list[UnsupportedSetting]
    offsets: list[TopicOffsetMode]
    compression: Sequence[CompressionForecast] = ()
    spark_plans: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_changes(self) -> bool:
        """Whether `topology apply` would change something."""
        return any(each.applied for each in self.found)

    @property
    def basis(self) -> str:
        """What would be changed, in one text: equal for equal changes. Without positions of groups: they grow while
        people look, and the file says that they are carried over."""
        changes = {
            (each.cluster, each.kind, each.name, each.field or "", str(each.wanted))
            for each in self.found
            if each.applied and each.kind != "group"
        }
        return json.dumps([self.plan.hash, sorted(changes)])

    def list_unapproved(self, approved_basis: str) -> list[str]:
        """A text for each change that is not among the approved ones; all of them where another plan was approved.
        Changes that are made already, by an earlier try, are no difference."""
        approved_plan, approved = json.loads(approved_basis)
        known = [*approved] if approved_plan == self.plan.hash else []
        _, changes = json.loads(self.basis)
        return [
            " ".join(filter(None, (f"{cluster}:", kind, name, field, wanted and f"-> {wanted}")))
            for cluster, kind, name, field, wanted in changes
            if [cluster, kind, name, field, wanted] not in known
        ]

    def encode(self) -> str:
        """The document of `topology plan --format json`."""
        return json.dumps(_document(self), indent=2, ensure_ascii=False) + "\n"

    def render(self) -> Iterator[str]:
        """The lines of `topology plan`."""
        yield from _lines(self)


def review_plan(
    plan: Plan,
    path: Path,
    connect: SettingsLookup,
    configuration: LintConfiguration,
    probed: Sequence[ClusterCapabilities] = (),
) -> PlanReview:
    """Asks every rule, and all clusters of the plan. path: the file that compiled to it. probed: what `topology probe`
    saw. Raises ClusterError, CutoverError."""
    inventory = _scan_clusters(plan, connect)
    for record in probed:
        inventory = inventory.with_probe(record)
    result = lint_path(path, inventory, configuration)
    targets = sorted({flow.target for flow in plan.flows})
    fleets = {key: each for alias in targets for key, each in read_fleets(connect(alias)).items()}
    found = find_drift(plan, inventory, _OWN_TOPICS) + find_fleet_changes(plan, fleets)
    found += find_sync_differences(plan, connect)
    offsets = plan_offset_modes(plan, connect)
    topology = load_topology(path).topology
    missing = list(find_unsupported_settings(topology)) if topology is not None else []
    return PlanReview(plan, inventory, found, result, missing, offsets, forecast_compression(plan, connect))


def list_missing_apply_rights(plan: Plan, connect: SettingsLookup) -> list[str]:
    """A line for each right that applying needs and this account lacks, then how to give them; empty when all are
    there. Raises ClusterError."""
    roles: tuple[AccountRole, ...] = ("apply", "align")
    lacking = {role: found for role in roles if (found := find_missing_role_rights(plan, role, connect))}
    lines = [str(missing) for found in lacking.values() for missing in found]
    if lacking:
        how = " and ".join(f"`topology acls --role {role} --format commands`" for role in lacking)
        lines.append(f"nothing was changed; {how} shows how to give them")
    return lines


def list_apply_notes(plan: Plan, path: Path, connect: SettingsLookup) -> list[str]:
    """What `topology apply` notes beside its changes: settings that nothing executes, applications that have moved.
    Raises ClusterError, CutoverError."""
    return [*list_unsupported_promises(path), *describe_moved_applications(plan, connect)]


def describe_left_alone(left: Sequence[FieldDrift]) -> str:
    """What differs and waits, or is left alone, by kind."""
    kinds = ", ".join(f"{count} of {kind}" for kind, count in sorted(Counter(each.kind for each in left).items()))
    return f"what differs beside that waits or is left alone ({kinds})"


def _scan_clusters(compiled: Plan, connect: SettingsLookup) -> Inventory:
    """All clusters of the plan, at once. Raises ClusterError for the first that cannot be scanned."""
    # another cluster than the pinned one is a finding here (CLU105), not the end
    settings = {each.alias: replace(connect(each.alias), cluster_id=None) for each in compiled.clusters}
    with ThreadPoolExecutor(8) as pool:
        seen = dict(
            zip(settings, pool.map(lambda alias: scan_cluster(settings[alias], sample_s=0), settings), strict=True)
        )
    if compiled.migration is not None:
        target = compiled.flow(compiled.migration.flow).target
        seen[target] = replace(seen[target], started_waves=_started(compiled, settings[target]))
    return Inventory(seen, live=True)


def _started(compiled: Plan, settings: ConnectionSettings) -> dict[str, str]:
    """The waves that the journal knows. Raises CutoverError, and ClusterError (also without its key)."""
    return find_started_waves(read_journal_chain(compiled, settings))


def _document(review: PlanReview) -> dict[str, Any]:
    compiled, inventory, found = review.plan, review.inventory, review.found
    decisions = decide_guarantees(compiled, inventory)
    return {
        "schema": 1,
        "topology": compiled.topology,
        "plan": compiled.hash,
        "clusters": {
            alias: {"cluster_id": each.cluster_id, "kafka": each.kafka, "taken_ms": each.taken_ms}
            for alias, each in sorted(inventory.clusters.items())
        },
        "changes": [each.to_json() for each in found],
        "flows": [
            {
                "id": each.id,
                "delivery": each.delivery,
                "reason": each.delivery_reason,
                "paths": each.paths,
                **encode_guarantee(decisions.get(each.id)),
                "schema_ids": "translate" if each.sync.schemas.translated else "preserve",
                "start": encode_bound(each.start),
                "end": None if each.end is None else encode_bound(each.end),
                "transform": None if each.transform is None else each.transform.hash,
                "spark_plan": review.spark_plans.get(each.id),
                "breach": None if each.breach is None else each.breach.to_json(),
                "compatibility": None if each.compatibility is None else each.compatibility.to_json(),
            }
            for each in compiled.flows
        ],
        "offsets": [each.to_json() for each in review.offsets],
        "compression": [each.to_json() for each in review.compression],
        "copied_by_others": [each.to_json() for each in compiled.external_flows],
        "not_executed": [asdict(each) for each in review.missing],
        "findings": [finding.to_json() for finding in review.lint.findings],
    }


def _describe_header(flow: PlanFlow) -> Iterator[str]:
    """What `provenance.header` costs. Source: docs/benchmarks.md, measured on one core."""
    if flow.header is not None:
        size = len(flow.header) + _PROVENANCE_BYTES
        yield (
            f"  {flow.id} writes the header `{flow.header}` into each record: about {size} bytes and the topic's name, "
            f"before compression, and {_PROVENANCE_US} µs of a processor a record, because every batch is opened"
        )


def _describe_flow(flow: PlanFlow, spark_plan: str | None) -> Iterator[str]:
    """How a flow copies, where that is not the usual way."""
    yield from _describe_header(flow)
    if flow.start != "earliest" or flow.end is not None:
        until = "never ends" if flow.end is None else f"ends at {flow.end}, nothing behind it is copied"
        yield f"  {flow.id} begins at {flow.start} and {until}"
    if flow.transform is not None:
        planned = "" if spark_plan is None else f", Spark plan {spark_plan[:12]}"
        yield f"  {flow.id} {flow.transform.describe()} (transform {flow.transform.hash[:12]}{planned})"
        if flow.transform.key_changes:
            yield f"  {flow.id} changes keys; records keep their partition, so equal new keys may lie in several"
    if flow.delivery == "transactions":
        told = ", and tells the way of each batch" if flow.paths else ""
        yield f"  {flow.id} copies in transactions{told}: {flow.delivery_reason}"
    if flow.offsets_reason:
        yield f"  {flow.id} translates offsets, though the file asks for `aligned`: {flow.offsets_reason}"
    for tool in flow.beside:
        if tool.target == flow.source and flow.leaves_out_records_of(tool):
            can = "does not copy" if tool.is_recognizable else "cannot tell from what is born there, and copies,"
            yield f"  {flow.id} {can} what {tool.id} brings to {flow.source}"
    yield from () if flow.breach is None else (f"  {flow.id} {flow.breach.describe()}",)
    for line in () if flow.compatibility is None else flow.compatibility.describe(flow.source, flow.target):
        yield f"  {flow.id} {line}"
    if flow.sync.schemas.translated:
        yield f"  {flow.id} writes the schema ids of {flow.target} into the records of topics that have subjects"


def _lines(review: PlanReview) -> Iterator[str]:
    compiled, inventory, found = review.plan, review.inventory, review.found
    for frame in render_frames(review.lint):
        yield f"{frame}\n"
    for alias, cluster in sorted(inventory.clusters.items()):
        yield f"{alias}  (cluster {cluster.cluster_id}, Kafka {cluster.kafka or 'of an unknown release'})"
        mine = [each for each in found if each.cluster == alias]
        for kind, name in dict.fromkeys((each.kind, each.name) for each in mine):
            yield from render_drift(kind, name, [each for each in mine if (each.kind, each.name) == (kind, name)])
        if not mine:
            yield "  no difference"
        yield ""
    yield from (f"! {line}" for line in describe_unsupported_settings(review.missing))
    yield from render_guarantees(compiled, decide_guarantees(compiled, inventory))
    for flow in compiled.flows:
        yield from _describe_flow(flow, review.spark_plans.get(flow.id))
    yield from (f"  {line}" for line in render_external_flows(compiled.external_flows))
    yield from (f"  {each}" for each in (*review.offsets, *review.compression))
    applied = {(each.cluster, each.kind, each.name) for each in found if each.applied}
    left = {(each.cluster, each.kind, each.name) for each in found if not each.applied}
    yield (
        f"{compiled.topology}: {len(applied)} to create or update with `topology apply`, "
        f"{len(left)} differ and are left alone  ({compiled.hash[:19]})"
    )


def decide_guarantees(compiled: Plan, inventory: Inventory) -> dict[str, GuaranteeDecision]:
    """By flow id, from what the brokers of both clusters said just now. A flow is not there whose clusters did not say
    it, unless the one that did lacks something."""
    decisions = {}
    for flow in compiled.flows:
        seen = inventory.cluster(flow.source), inventory.cluster(flow.target)
        source, target = (None if each is None else each.capabilities for each in seen)
        decision = decide_flow_guarantee(flow, source, target, compiled.flows)
        if decision.missing or (source is not None and target is not None):
            decisions[flow.id] = decision
    return decisions


def encode_guarantee(decision: GuaranteeDecision | None) -> dict[str, Any]:
    """Of one flow; null where it is not known."""
    return {
        "guarantee": None if decision is None else decision.guarantee,
        "guarantee_executed": None if decision is None else decision.is_executed,
        "missing": [] if decision is None else [asdict(each) for each in decision.missing],
        "notes": [] if decision is None else list(decision.notes),
    }


def render_guarantees(compiled: Plan, decisions: dict[str, GuaranteeDecision]) -> Iterator[str]:
    """The flows that have a guarantee, by guarantee, with its notes; those that are refused have a finding (CLU113)."""
    told: dict[str, list[str]] = {}
    notes: dict[str, set[str]] = {}
    for flow in compiled.flows:
        decision = decisions.get(flow.id)
        if decision is None:
            title = "! guarantee not known, the brokers could not be asked"
        elif decision.is_executed:
            title = f"  {decision.guarantee}"
        else:
            title = "! refused, see CLU113"
        told.setdefault(title, []).append(flow.id)
        notes.setdefault(title, set()).update(() if decision is None else decision.notes)
    for title, flows in sorted(told.items()):
        yield f"{title}: {render_counted_noun(len(flows), 'flow')} ({render_first_names(tuple(flows))})"
        yield from (f"    {note}" for note in sorted(notes[title]))


def render_drift(kind: str, name: str, fields: list[FieldDrift]) -> Iterator[str]:
    """A line for the thing, and one for each field that differs. `+` is new, `~` changes, `!` is left alone."""
    new = all(each.live is None for each in fields)
    applied = any(each.applied for each in fields)
    sign = "!" if not applied else "+" if new else "~"
    yield f"  {sign} {kind} {name}"
    for each in fields:
        if not each.field:
            continue
        before = "" if each.live is None else f"{each.live} "
        mark = "" if new and each.drift == "safe" else f"  {each.drift}"
        why = f": {each.why}" if each.why else ""
        change = f"{before}-> {'nothing' if each.wanted is None else each.wanted}"
        yield f"      {each.field:<20} {change if before or each.wanted is not None else ''}{mark}{why}"
