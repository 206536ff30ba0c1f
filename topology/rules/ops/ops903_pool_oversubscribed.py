"""OPS903 pool-oversubscribed: the running flows into a cluster ask for more workers than can run there.

Why: the workers of a target share its flows, so with fewer of them every flow gets less than its file says, and the
one with the most partitions falls behind first. Paused flows count when they start: a failback then has to share.

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import Flow, Topology
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_plural

_SHOWN = 3


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    if topology is None:
        return
    into: dict[str, list[Flow]] = {}
    for flow in topology.flows:
        if flow.plan.state == "running":
            into.setdefault(flow.target, []).append(flow)
    for alias, flows in sorted(into.items()):
        slots = topology.root.get("clusters", alias, "limits", "workers")
        asked = sum(flow.plan.workers for flow in flows)
        if slots is not None and asked > slots:
            yield _problem(topology, alias, slots, asked, flows)


def _problem(topology: Topology, alias: str, slots: int, asked: int, flows: list[Flow]) -> Problem:
    most = sorted(flows, key=lambda flow: (-flow.plan.workers, flow.id))
    counts = ", ".join(f"{flow.id} {flow.plan.workers}" for flow in most[:_SHOWN]) + (", …" if most[_SHOWN:] else "")
    return Problem(
        "OPS903",
        f"running flows ask for {render_plural(asked, 'worker')} into {alias}, and {slots} can run there",
        build_labels(
            (topology.root.where("clusters", alias, "limits", "workers"), render_plural(slots, "worker")),
            *((flow.settings.where("workers", "count"), f"{flow.id} asks here") for flow in most[:_SHOWN]),
        ),
        path=f"clusters.{alias}.limits.workers",
        ids=(alias,),
        help=f"lower `workers.count`, pause a flow, or give {alias} room for {render_plural(asked, 'worker')}",
        notes=(f"asked for: {counts}",),
    )


RULE = Rule("OPS903", "pool-oversubscribed", "warning", __doc__, check)
