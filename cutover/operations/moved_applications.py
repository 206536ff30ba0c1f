"""Which applications have moved, which have not yet, and what that means for their flows: notes that several commands
print, and the refusal to stop a flow back on which groups at the source depend."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from watershed.cutover.operations.proposal import OperationRefused

if TYPE_CHECKING:
    from watershed.clusters.settings import SettingsLookup
    from watershed.topology.plan import Plan


def describe_moved_applications(plan: Plan, connect: SettingsLookup) -> list[str]:
    """A line for each wave whose applications run at the target, as the journal says. Raises ClusterError and
    BrokenChain."""
    from watershed.clusters.flow_records import read_flows
    from watershed.cutover.journal.topology_journal import read_journal_chain
    from watershed.cutover.wave_states import describe_late_groups, list_wave_states

    if plan.migration is None:
        return []
    flow = plan.flow(plan.migration.flow)
    target = connect(flow.target)
    there = [each for each in list_wave_states(plan, read_journal_chain(plan, target)) if each.truth == flow.target]
    if not there:
        return []
    record = read_flows(target).get(flow.id)
    state = "not there" if record is None else record.state
    late = {wave.name for wave in plan.migration.waves if wave.is_late}
    lines = [
        f"wave {each.name}: {describe_late_groups(each, flow.source)}"
        if each.at_source
        else f"wave {each.name}: its applications are at {flow.target} since {each.kind} {each.run}"
        + ("" if each.name in late else f"; flow {flow.id} does not copy {', '.join(each.topics)} any more")
        for each in there
    ]
    if state == "stopped":
        back = "topology failback" if any(each.kind == "failover" for each in there) else "topology rollback"
        lines.append(f"flow {flow.id} is stopped, and nothing but `topology flow resume` starts it; back: `{back}`")
    return lines


def refuse_end_of_way_back(plan: Plan, connect: SettingsLookup, flows: Collection[str]) -> None:
    """Raises OperationRefused where one of these flows, which are about to be stopped, brings groups at the source what
    their producers write at the target. Raises ClusterError and BrokenChain."""
    from watershed.cutover.journal.topology_journal import read_journal_chain
    from watershed.cutover.wave_states import describe_late_groups, list_wave_states

    migration = plan.migration
    late = [wave for wave in migration.waves if wave.is_late] if migration is not None else []
    backs = {wave.name: wave.rollback.reverse for wave in late if wave.rollback is not None}
    if migration is None or not set(backs.values()) & set(flows):
        return
    there = plan.flow(migration.flow)
    states = list_wave_states(plan, read_journal_chain(plan, connect(there.target)))
    left = [each for each in states if each.at_source and backs.get(each.name) in flows]
    if left:
        groups = "; ".join(describe_late_groups(each, there.source) for each in left)
        raise OperationRefused(
            f"flow {backs[left[0].name]} is not stopped: it brings groups at {there.source} what their producers write "
            f"at {there.target}. {groups}. `topology flow pause` holds it for a while"
        )
