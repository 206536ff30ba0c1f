"""Pause, resume, stop or restart a flow: `topology flow` and the DAG `operate__<name>`."""

from __future__ import annotations

from collections.abc import Iterator

from clusters.control_topics import ControlWriter
from clusters.flow_records import read_flows
from clusters.partition_status_records import read_partition_statuses
from clusters.settings import ConnectionSettings, SettingsLookup
from cutover.operations.moved_applications import describe_moved_applications
from cutover.operations.proposal import OperationRefused, Proposal
from replicator.flow_state_order import FlowOrder, apply_flow_order, write_flow_order
from topology.plan import Plan, PlanFlow

_MEANINGS: dict[FlowOrder, str] = {
    "pause": "copies nothing more for now; positions are kept",
    "resume": "goes on where it was paused or stopped",
    "stop": "copies nothing more; positions are kept",
    "restart": "goes on, and looks again at partitions that have halted",
}


def propose_flow_order(plan: Plan, connect: SettingsLookup, flow_id: str, order: FlowOrder) -> Proposal:
    """The order, with how the flow is now. Raises ClusterError, NotInPlan; OperationRefused for a flow that was never
    applied."""
    flow = plan.flow(flow_id)
    target = connect(flow.target)
    record = read_flows(target).get(flow_id)
    if record is None:
        raise OperationRefused(f"flow {flow_id} was never applied to {target.alias}; run `topology apply` first")
    changed = apply_flow_order(record, order)

    def carry_out(actor: str) -> Iterator[str]:
        if changed == record:
            yield f"{flow_id} is {record.state} already"
            return
        with ControlWriter(target, client_id="watershed-flow") as writer:
            write_flow_order(writer, record, changed, order, actor)
        yield f"{flow_id}: {record.state} -> {changed.state}" + (" (restarted)" if order == "restart" else "")

    is_needed = changed != record
    notes = describe_moved_applications(plan, connect) if is_needed and changed.state == "running" else []
    lines = (f"{flow_id} ({flow.source} -> {flow.target}) {_MEANINGS[order]}", *_describe_flow(flow, target))
    lines += (f"desired now: {record.state}, then: {changed.state}",)
    basis = f"{order} {flow_id}: {record.state}, generation {record.generation}"
    return Proposal(f"{order} flow {flow_id}?", lines, basis, carry_out, tuple(notes), is_needed)


def _describe_flow(flow: PlanFlow, target: ConnectionSettings) -> Iterator[str]:
    """How many partitions workers report, in which states, and what they have not copied."""
    reports = [each for each in read_partition_statuses(target) if each.flow == str(flow.id)]
    states: dict[str, int] = {}
    for each in reports:
        states[each.state] = states.get(each.state, 0) + 1
    told = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "no partition was ever reported"
    yield f"partitions as last reported: {told}"
    yield f"records not copied yet, as last reported: {sum(each.lag_records or 0 for each in reports):,}"
