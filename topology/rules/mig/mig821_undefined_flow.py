"""MIG821 undefined-flow: a migration names a flow that the topology does not have, or moves a topic that the flow does
not carry.

Why: the applications of that wave would find nothing at the target.

Source: own; rhysd/actionlint rule_job_needs.go for the offer of the nearest name
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.model import CheckedValue, Topology
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.spelling import suggest_word


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    migration = topology.root.at("migration") if topology else None
    if topology is None or migration is None:
        return
    named = migration.at("flow")
    if named is not None and _flows_are_whole(context, topology):
        yield from _unknown(topology, named, "migration.flow")
    flow = topology.flow(named.data) if named is not None else None
    for index, wave in enumerate(migration.list("waves")):
        path = f"migration.waves[{index}]"
        for topic in wave.list("topics") if flow is not None else ():
            if flow is not None and not flow.plan.selects(topic.data.text):
                yield Problem(
                    "MIG821",
                    f"wave {wave.get('name')} moves `{topic.data}`, which flow {flow.id} does not carry",
                    (Label(topic.span), Label(flow.settings.where("topics", "include"), "what it carries")),
                    path=f"{path}.topics",
                    ids=(flow.id, topic.data.text),
                    help="add the topic to the flow, or take it out of the wave",
                )


def _flows_are_whole(context: RuleContext, topology: Topology) -> bool:
    """Whether the flows are those that were meant: after a mistake in them, a missing one says nothing."""
    broken = any(
        problem.code == "SYN014" or problem.path.startswith(("pattern", "flows", "defaults"))
        for problem in context.loaded.problems
    )
    return not broken and all({flow.source, flow.target} <= topology.clusters.keys() for flow in topology.flows)


def _unknown(topology: Topology, value: CheckedValue, path: str) -> Iterator[Problem]:
    if topology.flow(value.data) is None:
        known = [flow.id for flow in topology.flows]
        near = suggest_word(value.data, known)
        yield Problem(
            "MIG821",
            f"there is no flow `{value.data}`",
            (Label(value.span),),
            path=path,
            ids=(value.data,),
            help=(f"did you mean `{near}`? " if near else "") + f"flows: {', '.join(known) or 'none'}",
        )


RULE = Rule("MIG821", "undefined-flow", "error", __doc__, check)
