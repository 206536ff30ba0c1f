"""MIG831 migrated-flow-ends: the flow of a migration, or its way back, has an end (`delivery.end`).

Why: a migration waits until everything in front of the fence is copied, and the flow stops in front of its end. The
wave would wait until its time is up, with the producers fenced, or leave records behind.

Source: own; a bounded copy and a migration want opposite things of one flow
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    if topology is None or topology.migration is None:
        return
    backs = (wave.rollback.reverse for wave in topology.migration.waves if wave.rollback is not None)
    for flow_id in dict.fromkeys((topology.migration.flow, *backs)):
        flow = None if flow_id is None else topology.flow(flow_id)
        if flow is not None and flow.plan.end is not None:
            what = "is migrated" if flow_id == topology.migration.flow else "is the way back of a wave"
            yield Problem(
                "MIG831",
                f"flow {flow.id} {what}, and its copy ends at {flow.plan.end}",
                build_labels((flow.settings.where("delivery", "end"), "ends here")),
                path=f"{flow.path}.delivery.end",
                ids=(flow.id,),
                help="leave `delivery.end` out; a bounded copy is a flow of its own, with a suffix and target names of "
                "its own",
            )


RULE = Rule("MIG831", "migrated-flow-ends", "error", __doc__, check)
