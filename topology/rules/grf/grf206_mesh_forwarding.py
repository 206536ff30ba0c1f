"""GRF206 mesh-forwarding: three or more clusters all send to each other and forward what the others sent.

Why: every record reaches a member directly and once more over each of the others, n - 1 copies in a mesh of n. The loop
guard does not help: no cluster is passed twice. Only records born at a member may leave it.

Source: own simulation (a path guard in a mesh of three delivers two copies to two members)
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.grf.grf205_diamond_double_delivery import find_double_deliveries, is_mesh_path


def check(context: RuleContext) -> Iterator[Problem]:
    told: set[frozenset[str]] = set()
    for one, two in find_double_deliveries(context):
        members = frozenset(cluster for cluster, _ in two.nodes)
        if members in told or not is_mesh_path(context, two):
            continue
        told.add(members)
        born, name = one.birth
        forwarding = sorted({flow for flow in two.flows[1:] if flow.plan.forward == "all"}, key=lambda flow: flow.id)
        yield Problem(
            "GRF206",
            f"{', '.join(sorted(members))} all send to each other and forward: "
            f"records of `{born}/{name}` arrive twice in {two.end[0]}",
            tuple(sorted({Label(flow.declared, flow.id) for flow in (*one.flows, *two.flows)})),
            path=two.flows[-1].path,
            ids=tuple(sorted({*one.ids, *two.ids})),
            notes=(f"one way:   {one}", f"the other: {two}"),
            help=f"set `provenance: {{forward: local}}` (on {', '.join(flow.id for flow in forwarding)} and its like)",
            severity="error" if one.running and two.running else "warning",
        )


RULE = Rule("GRF206", "mesh-forwarding", "error", __doc__, check)
