"""SYC533 provenance-with-transform: a flow changes records by expressions, and is to write a provenance header, too.

Why: a flow with `transform` writes what its expressions give, headers too, and leaves records out. `provenance.header`
is written where batches are repacked, which such a flow does not do. An expression can write the same text: it knows
`topic`, `partition`, `offset` and `timestamp` of the source.

Source: own; docs/provenance.md
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels


def check(context: RuleContext) -> Iterator[Problem]:
    for flow in context.topology.flows if context.topology is not None else ():
        header = flow.plan.header
        if header is None or flow.plan.transform is None:
            continue
        yield Problem(
            "SYC533",
            f"flow {flow.id} changes records, so it cannot write the header `{header}` beside that",
            build_labels(
                (flow.settings.where("provenance", "header"), "a header for each record"),
                (flow.settings.where("transform"), "records are written as expressions give them"),
            ),
            path=f"{flow.path}.provenance.header",
            ids=(flow.id,),
            help=f"take `provenance.header` out, and say `transform: {{set: {{headers.{header}: …}}}}` with an "
            "expression over `topic`, `partition`, `offset`",
        )


RULE = Rule("SYC533", "provenance-with-transform", "error", __doc__, check)
