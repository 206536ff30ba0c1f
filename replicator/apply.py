"""`topology apply`: make the clusters ready for the plan and write the desired flows.

Nothing is ever deleted, no existing topic is changed, and applying the same plan again changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace

from clusters.admin import Admin
from clusters.control import FLOWS, ControlWriter, ensure_control_topics, read_log
from clusters.flows import FlowRecord, read_flows, write_flow
from clusters.settings import ConnectionSettings
from clusters.wire.connection import connect
from replicator.errors import ReplicatorError
from replicator.targets import Mapped, copied_topics, mapped_topics
from topology.plan import Plan, PlanFlow

Connect = Callable[[str], ConnectionSettings]


class CannotApply(ReplicatorError):
    """The plan asks for something that this version does not do, or that would change what is copied already."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that apply did (or would do): `what` happened to `name` on `cluster`."""

    cluster: str
    what: str
    name: str


def apply_plan(plan: Plan, connect_to: Connect, say: Callable[[Change], None] = lambda _change: None) -> list[Change]:
    """Create control topics and target topics, and write every flow's desired state. Returns what changed.

    Raises CannotApply before anything is changed, ClusterError when a cluster cannot be used.
    """
    for flow in plan.flows:
        _refuse_unsupported(plan, flow)
    settings = {alias: connect_to(alias) for flow in plan.flows for alias in (flow.source, flow.target)}
    for each in settings.values():
        with Admin(each) as admin:
            admin.check_identity()
    changes: list[Change] = []

    def changed(change: Change) -> None:
        changes.append(change)
        say(change)

    for target in sorted({flow.target for flow in plan.flows}):
        with Admin(settings[target]) as admin, ControlWriter(settings[target], "watershed-apply") as writer:
            before = set(admin.topics())
            ensure_control_topics(admin)
            for name in sorted(set(admin.topics()) - before):
                changed(Change(target, "created control topic", name))
            there, copied = read_flows(settings[target]), copied_topics(settings[target])
            for flow in plan.flows:
                if flow.target == target:
                    _apply_flow(plan, flow, settings, admin, writer, there.get(flow.id), copied, changed)
    return changes


def _apply_flow(
    plan: Plan,
    flow: PlanFlow,
    settings: dict[str, ConnectionSettings],
    target: Admin,
    writer: ControlWriter,
    before: FlowRecord | None,
    copied: dict[str, dict[str, Mapped]],
    changed: Callable[[Change], None],
) -> None:
    if before is not None and before.topology != plan.topology:
        raise CannotApply(
            f"flow {flow.id} into {flow.target} belongs to topology {before.topology}; "
            f"give the flow of {plan.topology} a suffix, or remove it from one of the two files"
        )
    if before is not None and before.flow.naming != flow.naming:
        raise CannotApply(
            f"flow {flow.id} already copies with other target names; a changed naming would copy everything again. "
            "Give the flow a suffix to start a second one, or restore the naming"
        )
    with Admin(settings[flow.source]) as source:
        source_id = source.cluster_id()
        if flow.state == "running":
            for mapped in mapped_topics(flow, source, target, copied.get(flow.id)):
                if mapped.created:
                    changed(Change(flow.target, "created topic", mapped.target_topic))
                if mapped.grown:
                    changed(Change(flow.target, "added partitions to topic", mapped.target_topic))
                if mapped.held is not None and mapped.held.cause is not None:
                    raise mapped.held.cause
        existed = _existed(flow, source, before) if flow.start == "latest" else None
    if before is not None and (before.flow, before.plan_hash, before.source_cluster_id) == (flow, plan.hash, source_id):
        return
    if before is not None and before.source_cluster_id != source_id:
        raise CannotApply(
            f"flow {flow.id} copied from cluster {before.source_cluster_id} so far, and {flow.source} is {source_id}; "
            "give the flow a suffix to copy from the other cluster"
        )
    producer_id = before.producer_id if before else None
    record = FlowRecord(
        flow=flow,
        plan_hash=plan.hash,
        topology=plan.topology,
        generation=before.generation if before else 1,
        state=before.state if before and before.flow.state == flow.state else flow.state,
        producer_id=producer_id if producer_id is not None else _producer_id(settings[flow.target]),
        source_cluster_id=source_id,
        existed=existed,
    )
    write_flow(writer, record)
    agreed = _agreed_producer_id(settings[flow.target], flow.id)
    if agreed != record.producer_id:
        write_flow(writer, replace(record, producer_id=agreed))
    changed(Change(flow.target, "updated flow" if before else "wrote flow", flow.id))


def _existed(flow: PlanFlow, source: Admin, before: FlowRecord | None) -> dict[str, int]:
    """Topics that were there before the flow asked for them, with their partition counts (FlowRecord.existed)."""
    asked = before if before is not None and before.existed is not None else None
    known = dict(asked.existed or {}) if asked is not None else {}
    for name, shape in source.shapes().items():
        if flow.selects(name) and (asked is None or not asked.flow.selects(name)):
            known[name] = shape.partitions
    return known


def _producer_id(target: ConnectionSettings) -> int:
    with closing(connect(target)) as connection:
        return connection.issue_producer_id()


def _agreed_producer_id(target: ConnectionSettings, flow_id: str) -> int | None:
    """The first producer id that was ever written for the flow: two first applies at once agree on it."""
    for record in read_log(target, FLOWS):
        if record.key == flow_id and record.value is not None:
            return FlowRecord.from_json(record.value).producer_id
    return None


def _refuse_unsupported(plan: Plan, flow: PlanFlow) -> None:
    if flow.offsets != "mapped":
        raise CannotApply(f"flow {flow.id} asks for offsets: {flow.offsets}; this version copies with `mapped` only")
    if flow.merge:
        raise CannotApply(
            f"flow {flow.id} merges into a topic with several writers, which this version does not copy; "
            "use `naming: {policy: prefix}` so that each source keeps its own target topic"
        )
    if flow.guard == "producer_id" and flow.forward == "all" and _returns(plan, flow):
        raise CannotApply(
            f"flow {flow.id} lies on a ring of three or more clusters with `forward: all`; stopping loops there needs "
            "one producer id a path, which this version does not have. Use `forward: local` or prefix naming"
        )


def _returns(plan: Plan, flow: PlanFlow) -> bool:
    """Whether what this flow brings can come back to its source by a way of two or more other hops."""
    following: dict[str, set[str]] = {}
    for other in plan.flows:
        following.setdefault(other.source, set()).add(other.target)
    todo, seen = [(flow.target, 1)], {(flow.target, 1)}
    while todo:
        cluster, hops = todo.pop()
        for reached in following.get(cluster, ()):
            if reached == flow.source and hops > 1:
                return True
            step = (reached, min(hops + 1, 2))
            if reached != flow.source and step not in seen:
                seen.add(step)
                todo.append(step)
    return False
