"""`topology apply`: make the clusters ready for the plan and write the desired flows.

Nothing is ever deleted, an existing topic is changed only in configs that are kept equal (`sync.configs: continuous`)
and where that is safe, and applying the same plan again changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

from watershed.clusters.admin import Admin
from watershed.clusters.budget_breaches import read_budget_breaches
from watershed.clusters.capabilities import ask_brokers, check_requests
from watershed.clusters.control_records import read_control_log
from watershed.clusters.control_topics import FLOWS_TOPIC, ControlWriter, ensure_control_topics
from watershed.clusters.control_values import log_invalid_record
from watershed.clusters.errors import RequestRefused
from watershed.clusters.fleet import build_fleet_key, read_fleets, write_fleet
from watershed.clusters.flow_records import FlowRecord, read_flow_to_change, read_flows, write_flow
from watershed.clusters.producer_registry import ProducerRecord, read_producers, register_producer
from watershed.clusters.protection_records import read_protections
from watershed.clusters.settings import ConnectionSettings, SettingsLookup
from watershed.clusters.wire.connection import open_connection
from watershed.replicator.apply_fleets import build_fleet_record
from watershed.replicator.apply_neighbours import adapt_to_neighbours
from watershed.replicator.apply_refusals import (
    CannotApply,
    combine_with_probes,
    keep_delivery,
    keep_guarantee,
    refuse_change,
    refuse_changed_header,
    refuse_changed_schema_ids,
    refuse_newer_record,
    refuse_reserved_targets,
    require_guarantee,
)
from watershed.replicator.copy.aligned.aligned_topic_choice import AlignmentDecisions
from watershed.replicator.flow_state_order import write_breach_answer
from watershed.replicator.ledger.ledger import read_ledger
from watershed.replicator.sync.protection import remove_protection
from watershed.replicator.sync.schemas import require_registries
from watershed.replicator.sync.sync_on_apply import apply_sync_differences
from watershed.replicator.topic_mapping import MappedTopic, map_topics, read_copied_topics
from watershed.topology.acl_translation import render_acl
from watershed.topology.cluster_capabilities import ClusterCapabilities
from watershed.topology.delivery_guarantee import AT_LEAST_ONCE, Guarantee
from watershed.topology.drift import FieldDrift
from watershed.topology.plan import Plan, PlanFlow


@dataclass(frozen=True, slots=True)
class AppliedChange:
    """One thing that apply did (or would do): `what` happened to `name` on `cluster`. error: why it did not."""

    cluster: str
    what: str
    name: str
    error: str = ""


def apply_plan(
    plan: Plan,
    connect_to: SettingsLookup,
    say: Callable[[AppliedChange], None] = lambda _change: None,
    left: Callable[[FieldDrift], None] = lambda _difference: None,
    probed: Iterable[ClusterCapabilities] = (),
) -> list[AppliedChange]:
    """Create control topics and target topics, and write every flow's desired state. Returns what changed; `left` is
    told of what differs beside the records and is not carried over. probed: what `topology probe` saw of clusters.

    Raises CannotApply and UnreadableInventory (a probe of another cluster) before anything is changed, ClusterError
    when a cluster cannot be used.
    """
    for flow in plan.flows:
        refuse_reserved_targets(flow)
    settings = {alias: connect_to(alias) for flow in plan.flows for alias in (flow.source, flow.target)}
    ids: dict[str, str] = {}
    for alias, each in settings.items():
        with Admin(each) as admin:
            admin.check_identity()
            ids[alias] = admin.cluster_id()
    targets = sorted({flow.target for flow in plan.flows})
    able = _require_requests(plan, settings, probed)
    unreadable: dict[str, dict[str, ValueError]] = {alias: {} for alias in settings}
    there = {alias: read_flows(each, unreadable[alias]) for alias, each in settings.items()}
    for flow in plan.flows:
        refuse_newer_record(flow, unreadable[flow.target].get(flow.id))
    wanted = adapt_to_neighbours(plan.topology, list(plan.flows), ids, there)
    flows = [_as_before(plan, flow, there[flow.target].get(flow.id), ids, settings) for flow in wanted]
    guarantees = {
        flow.id: keep_guarantee(
            flow,
            require_guarantee(flow, able[flow.source], able[flow.target], flows),
            there[flow.target].get(flow.id),
            partial(_has_copied, flow, settings),
            flows,
        )
        for flow in flows
    }
    require_registries((flow for flow in flows if flow.state == "running"), connect_to)
    changes: list[AppliedChange] = []

    def changed(change: AppliedChange) -> None:
        changes.append(change)
        say(change)

    for target in targets:
        with Admin(settings[target]) as admin, ControlWriter(settings[target], "watershed-apply") as writer:
            names = set(admin.topics())
            ensure_control_topics(admin)
            for name in sorted(set(admin.topics()) - names):
                changed(AppliedChange(target, "created control topic", name))
            _apply_fleet(plan, settings[target], writer, changed)
            copied, producers = read_copied_topics(settings[target]), read_producers(settings[target])
            decisions = AlignmentDecisions(settings[target], writer, "apply")
            for flow in flows:
                if flow.target == target:
                    before = there[target].get(flow.id)
                    _apply_flow(
                        plan,
                        flow,
                        guarantees[flow.id],
                        settings,
                        admin,
                        writer,
                        before,
                        copied,
                        producers,
                        decisions,
                        changed,
                    )
    copying = [_serving(flow, there[flow.target].get(flow.id)) for flow in flows]
    beside = tuple(flow for flow in copying if flow is not None)
    protecting = {flow.id for flow in beside if flow.protect}
    unasked = [flow for flow in flows if flow.id not in protecting]
    _lift_unasked_protection(unasked, {target: settings[target] for target in targets}, changed)
    for done in apply_sync_differences(replace(plan, flows=beside), connect_to, left=left):
        difference = done.difference
        name = f"{difference.kind} {difference.name}" + (f" {difference.field}" if difference.field else "")
        changed(AppliedChange(difference.cluster, "could not set" if done.error else "set", name, done.error or ""))
    return changes


def _apply_fleet(
    plan: Plan, target: ConnectionSettings, writer: ControlWriter, changed: Callable[[AppliedChange], None]
) -> None:
    """Before the records of the flows: workers must know a source's address before its flow."""
    before = read_fleets(target).get(build_fleet_key(plan.topology, target.alias))
    record = build_fleet_record(plan, target.alias, before)
    if record != before:
        write_fleet(writer, record)
        if read_fleets(target).get(record.key) != record:
            raise CannotApply(
                f"the record of fleet {plan.topology} at {target.alias} is another one than was just written: an order "
                "to the fleet, or another `apply`, came at the same time. Look at `topology fleet status`, and apply "
                "again"
            )
        changed(AppliedChange(target.alias, "updated fleet" if before else "wrote fleet", plan.topology))


def _lift_unasked_protection(
    flows: Iterable[PlanFlow], targets: Mapping[str, ConnectionSettings], changed: Callable[[AppliedChange], None]
) -> None:
    """Of flows that the file protects no more, and of stopped ones: a worker that died may have left denials. One that
    was resumed meanwhile keeps them."""
    standing = {alias: read_protections(target) for alias, target in targets.items()}
    for flow in flows:
        if flow.id in standing[flow.target] and not _is_protected_now(targets[flow.target], flow):
            lifted, refused = remove_protection(targets[flow.target], flow.id)
            for acl in lifted:
                changed(AppliedChange(flow.target, "took away", f"protection {render_acl(acl)}", refused.get(acl, "")))


def _is_protected_now(target: ConnectionSettings, flow: PlanFlow) -> bool:
    record = read_flows(target).get(flow.id)
    return record is not None and record.flow.protect and record.state != "stopped"


def _serving(flow: PlanFlow, before: FlowRecord | None) -> PlanFlow | None:
    """The flow without what its record has let go of; None for one that was stopped since it was applied (by hand, by a
    migration, by a failover): what it would bring is not the target's any more."""
    if before is None:
        return flow
    stopped = before.state == "stopped" and before.flow.state == flow.state
    return None if stopped else replace(before, flow=flow).serving


def _require_requests(
    plan: Plan, settings: Mapping[str, ConnectionSettings], probed: Iterable[ClusterCapabilities]
) -> dict[str, ClusterCapabilities]:
    """What the brokers of each cluster said, and a probe saw, by alias. Raises CannotApply and RequestRefused."""
    answers = {alias: ask_brokers(each) for alias, each in sorted(settings.items())}
    able = combine_with_probes(answers, probed)
    try:
        for alias in sorted({flow.source for flow in plan.flows}):
            check_requests(answers[alias], "source")
        for alias in sorted({flow.target for flow in plan.flows}):
            check_requests(
                answers[alias], "target", allows_repeats=True
            )  # what a flow needs more is told with the flow
    except RequestRefused:
        for flow in plan.flows:  # its message names the flow, everything that is missing, and what to do
            require_guarantee(flow, able[flow.source], able[flow.target], plan.flows)
        raise
    return able


def _as_before(
    plan: Plan, flow: PlanFlow, before: FlowRecord | None, ids: dict[str, str], settings: dict[str, ConnectionSettings]
) -> PlanFlow:
    """The flow as it may go on from what was applied before. Raises CannotApply."""
    if before is None:
        return flow
    refuse_change(plan, flow, before, ids[flow.source])
    copied = partial(_has_copied, flow, settings)
    refuse_changed_schema_ids(flow, before.flow, copied)
    refuse_changed_header(flow, before.flow, copied)
    return keep_delivery(flow, before.flow, copied)


def _has_copied(flow: PlanFlow, settings: Mapping[str, ConnectionSettings]) -> bool:
    ledger = read_ledger(settings[flow.target], flow=flow.id)
    return bool(ledger.partitions or ledger.positions)


def _apply_flow(
    plan: Plan,
    flow: PlanFlow,
    guarantee: Guarantee,
    settings: dict[str, ConnectionSettings],
    target: Admin,
    writer: ControlWriter,
    before: FlowRecord | None,
    copied: dict[str, dict[str, MappedTopic]],
    producers: dict[int, ProducerRecord],
    decisions: AlignmentDecisions,
    changed: Callable[[AppliedChange], None],
) -> None:
    with Admin(settings[flow.source]) as source:
        source_id = source.cluster_id()
        serving = _serving(flow, before)
        if flow.state == "running" and serving is not None:
            topics = map_topics(serving, source, target, copied.get(flow.id))
            for mapped in topics:
                if mapped.created:
                    changed(AppliedChange(flow.target, "created topic", mapped.target_topic))
                if mapped.grown:
                    changed(AppliedChange(flow.target, "added partitions to topic", mapped.target_topic))
                if mapped.held is not None and mapped.held.cause is not None:
                    raise mapped.held.cause
            decisions.placed(
                flow, topics, source, target, lambda text: changed(AppliedChange(flow.target, "decided", text))
            )
        existed = _existed(flow, source, before) if flow.start == "latest" else None
    producer_id = None
    if guarantee != AT_LEAST_ONCE:  # its batches carry no producer id
        producer_id = before.producer_id if before else None
        if producer_id is None:
            producer_id = _producer_id(settings[flow.target])
        _register(writer, plan, flow, producer_id, source_id, producers)
    if before is not None and _is_as_applied(before, flow, plan.hash, source_id, guarantee):
        return
    # a person may have ordered something meanwhile, or a newer version have written
    before = read_flow_to_change(settings[flow.target], flow.id) or before
    record = FlowRecord(
        flow=flow,
        plan_hash=plan.hash,
        topology=plan.topology,
        generation=before.generation if before else 1,
        state=before.state if before and before.flow.state == flow.state else flow.state,
        producer_id=producer_id,
        source_cluster_id=source_id,
        existed=existed,
        retired=before.retired if before else frozenset(),
        begins=before.begins if before else {},
        guarantee=guarantee,
        end_revision=before.end_revision + (before.flow.end != flow.end) if before else 0,
        pauses=before.pauses if before else (),
        moves=before.moves if before else (),
        unprotected=before.unprotected if before else frozenset(),
        answered_breaches=before.answered_breaches if before else 0,
    )
    record = _answer_old_breach(before, record, settings[flow.target], writer)
    write_flow(writer, record)
    agreed = None if producer_id is None else _agreed_producer_id(settings[flow.target], flow.id)
    if agreed != record.producer_id:
        write_flow(writer, replace(record, producer_id=agreed))
    changed(AppliedChange(flow.target, "updated flow" if before else "wrote flow", flow.id))


def _answer_old_breach(
    before: FlowRecord | None, record: FlowRecord, target: ConnectionSettings, writer: ControlWriter
) -> FlowRecord:
    """The record of a flow that begins anew: a tombstone may have taken the one before and left its breach."""
    breach = None if before else read_budget_breaches(target).get(record.key)
    if breach is None:
        return record
    answered = replace(record, answered_breaches=breach.number)
    write_breach_answer(writer, record, answered, breach)
    return answered


def _is_as_applied(before: FlowRecord, flow: PlanFlow, plan_hash: str, source_id: str, guarantee: Guarantee) -> bool:
    told = before.flow, before.plan_hash, before.source_cluster_id, before.guarantee
    return told == (flow, plan_hash, source_id, guarantee)


def _register(
    writer: ControlWriter,
    plan: Plan,
    flow: PlanFlow,
    producer_id: int,
    source_id: str,
    producers: dict[int, ProducerRecord],
) -> None:
    """Before the flow's record, which is what workers wait for: the registry must know an id before its first batch."""
    if producer_id not in producers:
        register_producer(writer, ProducerRecord(producer_id, flow.id, (source_id,), "sequence", plan.topology))


def _existed(flow: PlanFlow, source: Admin, before: FlowRecord | None) -> dict[str, int]:
    """Topics that were there before the flow asked for them, with their partition counts (FlowRecord.existed)."""
    asked = before if before is not None and before.existed is not None else None
    known = dict(asked.existed or {}) if asked is not None else {}
    for name, shape in source.shapes().items():
        if flow.selects(name) and (asked is None or not asked.flow.selects(name)):
            known[name] = shape.partitions
    return known


def _producer_id(target: ConnectionSettings) -> int:
    with closing(open_connection(target)) as connection:
        return connection.issue_producer_id()


def _agreed_producer_id(target: ConnectionSettings, flow_id: str) -> int | None:
    """The first producer id that was ever written for the flow: two first applies at once agree on it."""
    for record in read_control_log(target, FLOWS_TOPIC):
        if record.key == flow_id and record.value is not None:
            try:
                return FlowRecord.from_json(record.value).producer_id
            except ValueError as error:
                log_invalid_record(record.invalid(target.alias, FLOWS_TOPIC, str(error)))
    return None
