"""GRF220 external-loop: records circulate through a copy that another tool makes.

Why: a guard tells our flows' records by the producer id of their batch. Another tool writes with an id of its own, or
without one, so what it brings back looks like an application's, is copied again, and circulates until both clusters are
full. The guard stops records of another tool only where the file says how they are told apart: by a name that only the
tool gives, or by a header (`marks_with`).

Source: apache/kafka IdentityReplicationPolicy.java ("cannot prevent cycles"), apache/kafka#10652; tried with
MirrorMaker 2 of Kafka 4.3.1
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from watershed.topology.finding import Problem
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.grf.grf201_identity_cycle import find_cycle_problems


def check(context: RuleContext) -> Iterator[Problem]:
    message = "records circulate for ever through a copy that another tool makes"
    for route, problem in find_cycle_problems(context, "GRF220", message, _help):
        tools = [flow.external for flow in route.flows if flow.external is not None]
        stopped = ", ".join(tool.id for tool in tools if not tool.enabled)
        if stopped:
            told = f"what {stopped} copied before it stopped is copied back, once"
            yield replace(problem, message=told, severity="warning")
        elif tools:
            yield problem


def _help(flows: tuple[Flow, ...]) -> str:
    unknown = sorted({flow.id for flow in flows if flow.external is not None and not flow.is_told_apart})
    if unknown:
        names = ", ".join(unknown)
        return f"let the tool put a header on its records, and say `marks_with` on {names}; or exclude these topics"
    foreign = ", ".join(sorted({flow.id for flow in flows if flow.external is not None}))
    return (
        f"exclude these topics from one of the copies, remove `guard: none` from ours, or say `cluster_id` of the "
        f"cluster that {foreign} reads, so that guards further on know it"
    )


RULE = Rule("GRF220", "external-loop", "error", __doc__, check, ignorable=False)
