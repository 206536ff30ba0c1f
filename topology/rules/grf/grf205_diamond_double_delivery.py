"""GRF205 diamond-double-delivery: one record reaches one topic on two ways.

Why: every record is there twice. A guard does not stop it, because neither way passes a cluster twice; three or more
clusters that all copy to each other do it as well, unless they say `forward: local`.

Bad:

    flows:
      - source: a
        target: b
        topics: {include: [orders]}
      - source: a
        target: c
        topics: {include: [orders]}
      - source: b
        target: d
        topics: {include: [orders]}
      - source: c
        target: d
        topics: {include: [orders]}

Good:

    flows:
      - source: a
        target: b
        topics: {include: [orders]}
      - source: a
        target: c
        topics: {include: [orders]}
      - source: b
        target: d
        topics: {include: [orders]}

Source: own simulation of five guards (path guard: D receives 2); apache/kafka docs/ops.html
"""

from __future__ import annotations

from collections.abc import Iterator

from topology.finding import Label, Problem
from topology.rule import Context, Rule


def check(context: Context) -> Iterator[Problem]:
    seen: set[tuple[str, frozenset[str]]] = set()
    for one, two in context.graph.twice if context.graph else ():
        cluster, symbol = one.end
        last = frozenset((one.flows[-1].id, two.flows[-1].id))
        if (cluster, last) in seen:
            continue
        seen.add((cluster, last))
        born, name = one.nodes[0]
        running = one.running and two.running
        yield Problem(
            "GRF205",
            f"records of `{born}/{name}` arrive twice in `{cluster}/{symbol}`",
            tuple(sorted({Label(flow.declared, flow.id) for flow in (*one.flows, *two.flows)})),
            path=two.flows[-1].path,
            ids=tuple(sorted({*one.ids, *two.ids})),
            notes=(f"one way:   {one}", f"the other: {two}"),
            help="remove one of the ways, or set `provenance: {forward: local}` where records should end"
            if running
            else "one of the ways is paused; never run both",
            severity="error" if running else "warning",
            confidence="certain" if one.end[1].certain and symbol.certain else "possible",
        )


RULE = Rule("GRF205", "diamond-double-delivery", "error", __doc__, check, ignorable=False)
