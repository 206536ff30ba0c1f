"""SYC534 provenance-header-taken: a flow writes its provenance header under a name by which another tool is told apart.

Why: records with the header `marks_with` of an external flow count as that tool's, and flows leave them out. An
application that passes the headers of our copies on would make its own records look like the tool's, and they would
stay behind. Replicator reads `__replicator_id` in a format of its own, and may fail at ours.

Source: own; docs/external-flows.md; Confluent Replicator's reference, `provenance.header.enable`
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.external_flows import REPLICATOR_HEADER
from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    if topology is None:
        return
    tools = topology.external_flows
    marks = {each.external.marks_with: each for each in tools if each.external is not None and each.external.marks_with}
    for flow in topology.flows:
        header = flow.plan.header
        if header is None:
            continue
        tool = marks.get(header)
        if tool is None and header != REPLICATOR_HEADER:
            continue
        whose = "Replicator reads" if tool is None else f"{tool.id} marks its records with"
        where = None if tool is None else tool.settings.where("marks_with")
        yield Problem(
            "SYC534",
            f"flow {flow.id} writes the header `{header}`, which {whose}",
            build_labels(
                (flow.settings.where("provenance", "header"), "where our records came from"),
                (where, "the tool's mark"),
            ),
            path=f"{flow.path}.provenance.header",
            ids=(flow.id,),
            help="give one of the two another name",
        )


RULE = Rule("SYC534", "provenance-header-taken", "error", __doc__, check)
