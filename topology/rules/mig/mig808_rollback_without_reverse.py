"""MIG808 rollback-without-reverse: the way back of a wave does not lead back.

Why: after the switch new records are at the target only; going back without a flow that carries them strands every
one of them. `reverse` must name a flow that is declared, runs in the opposite direction, carries the wave's topics
back under their old names, and is guarded by producer id, so that it does not bring back what came from the source.

Source: confluentinc/kcp getting-started guide; own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import Flow, Topology
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names
from watershed.topology.rules.mig.declared_waves import DeclaredWave, find_migration_flow, list_declared_waves
from watershed.topology.spelling import suggest_word


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    flow = find_migration_flow(topology) if topology is not None else None
    flows = {each.id: each for each in topology.flows} if topology is not None else {}
    for move in list_declared_waves(topology):
        rollback = move.wave.rollback
        if (
            topology is None
            or flow is None
            or (move.wave.is_late and move.value.at("rollback") is None)  # said of the wave of its producers
            or rollback is None
            or (rollback.until_ms, rollback.reverse) == (None, None)
        ):
            continue
        named = rollback.reverse
        back = flows.get(named) if named is not None else None
        wrong = _wrong(flow, named, back, move)
        if wrong is not None:
            yield Problem(
                "MIG808",
                f"the rollback of wave `{move.name}` {wrong}",
                build_labels(
                    (move.value.where("rollback", "reverse"), "the way back"),
                    (back.declared if back is not None else None, "this flow"),
                ),
                path=f"{move.path}.rollback.reverse",
                ids=(move.name, named or ""),
                help=_help(topology, flow, named),
            )


def _wrong(flow: Flow, named: str | None, back: Flow | None, move: DeclaredWave) -> str | None:
    if named is None:
        return "says how long, but no flow in `reverse`"
    if back is None:
        return f"names no declared flow: `{named}`"
    if (back.source, back.target) != (flow.target, flow.source):
        return f"names {back.id}, which does not lead from {flow.target} back to {flow.source}"
    left = [topic for topic in move.wave.topics if flow.plan.selects(topic) and _returns_as(flow, back, topic) != topic]
    if left:
        return f"names {back.id}, which does not carry {render_some_names(left)} back under the old name"
    if "none" in (flow.plan.guard, back.plan.guard):
        return f"names {back.id}, which is not guarded: it would bring back what {flow.id} copied"
    return None


def _returns_as(flow: Flow, back: Flow, topic: str) -> str | None:
    """What a topic is called at the source when it comes back; None: it does not."""
    there = flow.plan.target_topic(topic)
    return back.plan.target_topic(there) if back.plan.selects(there) else None


def _help(topology: Topology, flow: Flow, named: str | None) -> str:
    ways = [each.id for each in topology.flows if (each.source, each.target) == (flow.target, flow.source)]
    near = suggest_word(named or "", ways) or (ways[0] if ways else None)
    if near is not None and near != named:
        return f"did you mean `{near}`?" if named else f"say `reverse: {near}`"
    return (
        f"declare a flow {flow.target} to {flow.source} with `state: paused` for these topics, with naming that undoes "
        f"that of {flow.id}, and `guard: producer_id` on both"
    )


RULE = Rule("MIG808", "rollback-without-reverse", "error", __doc__, check)
