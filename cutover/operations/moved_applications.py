"""Which applications have moved, and what that means for their flow: notes that several commands print."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clusters.settings import SettingsLookup
    from topology.plan import Plan


def describe_moved_applications(plan: Plan, connect: SettingsLookup) -> list[str]:
    """A line for each wave whose applications run at the target, as the journal says. Raises ClusterError and
    BrokenChain."""
    from clusters.flow_records import read_flows
    from cutover.journal.topology_journal import read_journal_chain
    from cutover.wave_states import list_wave_states

    if plan.migration is None:
        return []
    flow = plan.flow(plan.migration.flow)
    target = connect(flow.target)
    there = [each for each in list_wave_states(plan, read_journal_chain(plan, target)) if each.truth == flow.target]
    if not there:
        return []
    record = read_flows(target).get(flow.id)
    state = "not there" if record is None else record.state
    lines = [
        f"wave {each.name}: its applications are at {flow.target} since {each.kind} {each.run}; flow {flow.id} does "
        f"not copy {', '.join(each.topics)} any more"
        for each in there
    ]
    if state == "stopped":
        back = "topology failback" if any(each.kind == "failover" for each in there) else "topology rollback"
        lines.append(f"flow {flow.id} is stopped, and nothing but `topology flow resume` starts it; back: `{back}`")
    return lines
