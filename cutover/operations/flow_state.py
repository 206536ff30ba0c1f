"""Pause, resume, stop or restart a flow: `topology flow` and the DAG `operate__<name>`."""

from __future__ import annotations

from collections.abc import Iterator

from watershed.clusters.budget_breaches import BudgetBreach, describe_breach, pick_open_breach, read_budget_breaches
from watershed.clusters.control_topics import ControlWriter
from watershed.clusters.errors import ClusterError
from watershed.clusters.flow_records import FlowRecord, read_flow_to_change
from watershed.clusters.partition_status_records import read_partition_statuses
from watershed.clusters.settings import ConnectionSettings, SettingsLookup
from watershed.cutover.errors import CutoverError
from watershed.cutover.operations.moved_applications import describe_moved_applications, refuse_end_of_way_back
from watershed.cutover.operations.proposal import OperationRefused, Proposal
from watershed.replicator.flow_state_order import FLOW_ORDERS, FlowOrder, apply_flow_order, write_flow_order
from watershed.replicator.sync.protection import remove_protection
from watershed.topology.acl_translation import render_acl
from watershed.topology.plan import Plan, PlanFlow

_MEANINGS: dict[FlowOrder, str] = {
    "pause": "copies nothing more for now; positions are kept",
    "resume": "goes on where it was paused or stopped",
    "stop": "copies nothing more; positions are kept",
    "restart": "goes on, and looks again at partitions that have halted",
}


def propose_flow_order(plan: Plan, connect: SettingsLookup, flow_id: str, order: FlowOrder) -> Proposal:
    """The order, with how the flow is now. Raises ClusterError, BrokenChain, NotInPlan; OperationRefused for a flow
    that was never applied, or whose end would leave groups without records."""
    flow = plan.flow(flow_id)
    if order == "stop":
        refuse_end_of_way_back(plan, connect, {flow_id})
    target = connect(flow.target)
    record = _read_record(target, flow_id)
    breaches = read_budget_breaches(target)
    changed = apply_flow_order(record, order, breaches.get(flow_id))
    is_needed = changed != record
    notes = list_order_notes(plan, connect, order) if is_needed else []
    lines = (f"{flow_id} ({flow.source} -> {flow.target}) {_MEANINGS[order]}", *_describe_flow(flow, target))
    lines += (f"desired now: {record.state}, then: {changed.state}",)
    basis = f"{order} {flow_id}: {_describe_desired(record)}"
    if (breach := pick_open_breach(record, breaches)) is not None:
        lines += (describe_breach(breach),)
        basis += f", breach {breach.number}"

    def carry_out(actor: str) -> Iterator[str]:
        return give_flow_order(target, flow_id, order, actor, _describe_basis(record, order, breach))

    return Proposal(f"{order} flow {flow_id}?", lines, basis, carry_out, tuple(notes), is_needed)


def give_flow_order(
    target: ConnectionSettings, flow_id: str, order: FlowOrder, actor: str, shown: str | None = None
) -> Iterator[str]:
    """Gives the order, and yields what became of it. shown: what a person saw of the flow. Raises ClusterError;
    OperationRefused where the flow was never applied, or is no longer as it was shown.

    The order is applied to the record as it is now: a migration may have retired topics meanwhile.
    """
    record = _read_record(target, flow_id)
    breaches = read_budget_breaches(target)
    breach, changed = pick_open_breach(record, breaches), apply_flow_order(record, order, breaches.get(flow_id))
    now = _describe_basis(record, order, breach)
    if shown not in (None, now):
        raise OperationRefused(
            f"flow {flow_id} was changed meanwhile, so nothing was ordered. Shown: {shown}. Now: {now}. Look again and "
            "decide again"
        )
    if changed == record:
        yield f"{flow_id} is {record.state} already"
        yield from _open_stopped_topics(target, changed)  # an earlier order may have died before it did
        return
    with ControlWriter(target, client_id="watershed-flow") as writer:
        write_flow_order(writer, record, changed, order, actor, breach)
    yield from _open_stopped_topics(target, changed)
    if breach is not None and not breach.is_open(changed):
        yield f"{flow_id} was {describe_breach(breach)}; that is answered now"
    yield f"{flow_id}: {record.state} -> {changed.state}" + (" (restarted)" if order == "restart" else "")


def _describe_basis(record: FlowRecord, order: FlowOrder, breach: BudgetBreach | None) -> str:
    """What the flow has to be still when the order is given. breach: the open one; an order to run would answer it, so
    it has to be the one that a person saw."""
    if breach is None or FLOW_ORDERS[order] != "running":
        return _describe_desired(record)
    return f"{_describe_desired(record)}, breach {breach.number} open"


def _describe_desired(record: FlowRecord) -> str:
    """What another order would have changed; not what a run changes on its way."""
    answered = f", breach {record.answered_breaches} answered" if record.answered_breaches else ""
    return f"{record.state}, generation {record.generation}{answered}"


def _open_stopped_topics(target: ConnectionSettings, record: FlowRecord) -> Iterator[str]:
    """A stopped flow protects nothing. Says what was taken away. Raises ClusterError."""
    if record.state != "stopped" or not record.flow.protect:
        return
    lifted, refused = remove_protection(target, record.key)
    yield f"{record.key}: {len(lifted) - len(refused)} denials that protected {target.alias} are gone"
    yield from (f"still there: {render_acl(acl)}: {why}" for acl, why in refused.items())


def list_order_notes(plan: Plan, connect: SettingsLookup, order: FlowOrder) -> list[str]:
    """What a person should know beside an order. A journal that cannot be read is such a thing, and stops nobody."""
    if FLOW_ORDERS[order] != "running":
        return []
    try:
        return describe_moved_applications(plan, connect)
    except (ClusterError, CutoverError) as problem:
        return [f"not known, whether applications of this flow have moved: {problem}"]


def _read_record(target: ConnectionSettings, flow_id: str) -> FlowRecord:
    record = read_flow_to_change(target, flow_id)
    if record is None:
        raise OperationRefused(f"flow {flow_id} was never applied to {target.alias}; run `topology apply` first")
    return record


def _describe_flow(flow: PlanFlow, target: ConnectionSettings) -> Iterator[str]:
    """How many partitions workers report, in which states, and what they have not copied. An order needs no reports."""
    try:
        reports = [each for each in read_partition_statuses(target) if each.flow == str(flow.id)]
    except ClusterError as problem:
        yield f"not known, how its partitions are: {problem}"
        return
    states: dict[str, int] = {}
    for each in reports:
        states[each.state] = states.get(each.state, 0) + 1
    told = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "no partition was ever reported"
    yield f"partitions as last reported: {told}"
    yield f"records not copied yet, as last reported: {sum(each.lag_records or 0 for each in reports):,}"
