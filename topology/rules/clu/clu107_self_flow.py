"""CLU107 self-flow: a flow from a cluster to itself.

Why: under its own name a topic would be copied into itself until the disk is full; under another name it is an echo
that nobody reads.

Source: strimzi/strimzi-kafka-operator#9905
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext


def check(context: RuleContext) -> Iterator[Problem]:
    for flow in context.topology.flows if context.topology else ():
        if flow.source == flow.target:
            yield Problem(
                "CLU107",
                f"flow {flow.id} copies `{flow.source}` into itself",
                (Label(flow.declared),),
                path=flow.path,
                ids=(flow.id,),
                help="source and target are two clusters",
            )


RULE = Rule("CLU107", "self-flow", "error", __doc__, check)
