"""GRF208 header-dropped: records pass one flow that writes hop headers and another one that does not.

Why: the header is there so that people and other tools can read the way of a record. A hop that does not append leaves
a hole in it, and the reader takes the record for one that was born later than it was. (The loop guard does not depend
on it.)

Source: header copying is off by default in Lenses K2K (configuration reference)
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext


def find_provenance_header(flow: Flow) -> str | None:
    """Name of the header that the flow adds to records; None if it adds none."""
    header: str | None = flow.settings.get("provenance", "header")
    return header


def list_consecutive_flows(context: RuleContext) -> Iterator[tuple[Flow, Flow]]:
    """Pairs of our flows that a record can pass one after the other, each pair once, in order."""
    found = context.graph.consecutive if context.graph is not None else {}
    pairs = (found[key] for key in sorted(found))
    return ((one, two) for one, two in pairs if one.external is two.external is None)


def check(context: RuleContext) -> Iterator[Problem]:
    for one, two in list_consecutive_flows(context):
        if (find_provenance_header(one) is None) != (find_provenance_header(two) is None):
            silent, saying = (one, two) if find_provenance_header(one) is None else (two, one)
            yield Problem(
                "GRF208",
                f"{saying.id} writes the header `{find_provenance_header(saying)}`, {silent.id} on the same way "
                f"does not",
                (Label(silent.declared, "no header"), Label(saying.settings.where("provenance", "header"), saying.id)),
                path=silent.path,
                ids=tuple(sorted((one.id, two.id))),
                help="say `provenance.header` under `defaults:`, or on neither",
            )


RULE = Rule("GRF208", "header-dropped", "error", __doc__, check)
