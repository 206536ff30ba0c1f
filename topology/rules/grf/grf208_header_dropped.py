"""GRF208 header-dropped: records pass one flow that writes hop headers and another one that does not.

Why: the header is there so that people and other tools can read the way of a record. A hop that does not append leaves
a hole in it, and the reader takes the record for one that was born later than it was. (The loop guard does not depend
on it.)

Bad:

    flows:
      - source: a
        target: b
        topics: {include: [orders]}
        provenance: {header: hops}
      - source: b
        target: c
        topics: {include: [orders]}

Good:

    defaults:
      provenance: {header: hops}
    flows:
      - source: a
        target: b
        topics: {include: [orders]}
      - source: b
        target: c
        topics: {include: [orders]}

Source: header copying is off by default in Lenses K2K (configuration reference)
"""

from __future__ import annotations

from collections.abc import Iterator

from topology.finding import Label, Problem
from topology.model import Flow
from topology.rule import Context, Rule


def header_of(flow: Flow) -> str | None:
    header: str | None = flow.settings.get("provenance", "header")
    return header


def consecutive(context: Context) -> Iterator[tuple[Flow, Flow]]:
    """Pairs of flows that a record can pass one after the other, each pair once, in order."""
    found = context.graph.consecutive if context.graph is not None else {}
    return iter([found[key] for key in sorted(found)])


def check(context: Context) -> Iterator[Problem]:
    for one, two in consecutive(context):
        if (header_of(one) is None) != (header_of(two) is None):
            silent, saying = (one, two) if header_of(one) is None else (two, one)
            yield Problem(
                "GRF208",
                f"{saying.id} writes the header `{header_of(saying)}`, {silent.id} on the same way does not",
                (Label(silent.declared, "no header"), Label(saying.settings.where("provenance", "header"), saying.id)),
                path=silent.path,
                ids=tuple(sorted((one.id, two.id))),
                help="say `provenance.header` under `defaults:`, or on neither",
            )


RULE = Rule("GRF208", "header-dropped", "error", __doc__, check)
