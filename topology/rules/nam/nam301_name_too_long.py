"""NAM301 name-too-long: a topic gets a name of more than 249 characters at a target.

Why: Kafka refuses to create it. Every hop of a renaming chain makes names longer, so that the last one fails on a name
which was fine at the first.

Source: apache/kafka Topic.java, MAX_NAME_LENGTH
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from watershed.topology.finding import Problem
from watershed.topology.model import Flow
from watershed.topology.regex import MAX_TOPIC_NAME_LETTERS
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_plural
from watershed.topology.text_escaping import shorten_and_escape
from watershed.topology.topic_symbols import TopicSymbol

_MAX_HOPS = 16


@dataclass(slots=True)
class _LongNames:
    """What a flow would create: name at the target → the way of that name, `a/orders -> b/a.orders`."""

    flow: Flow
    names: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Step:
    """A topic on its way: what it is called where it is, the way as text, and the clusters that it passed."""

    name: str
    way: str
    passed: tuple[str, ...]


def check(context: RuleContext) -> Iterator[Problem]:
    if context.topology is None or context.graph is None:
        return
    found: dict[str, _LongNames] = {}
    for written in context.graph.writers.values():
        for (_, symbol), flow in written.items():
            if _shortest(symbol) > MAX_TOPIC_NAME_LETTERS:
                found.setdefault(flow.id, _LongNames(flow)).names.setdefault(str(symbol), "")
    for flow, name, way in _walked(context):
        found.setdefault(flow.id, _LongNames(flow)).names.setdefault(name, way)
    for flow_id in sorted(found):
        yield _problem(found[flow_id])


def _problem(long: _LongNames) -> Problem:
    flow, names = long.flow, sorted(long.names, key=lambda name: (-len(name), name))
    longest = names[0]
    more = f" and {render_plural(len(names) - 1, 'other')}" if len(names) > 1 else ""
    naming = flow.settings.at("naming")
    return Problem(
        "NAM301",
        f"flow {flow.id} makes `{shorten_and_escape(longest)}`{more} at {flow.target}: {len(longest)} characters, "
        f"and Kafka allows {MAX_TOPIC_NAME_LETTERS}",
        build_labels((None if naming is None else naming.span, "the rename"), (flow.declared, "this flow")),
        path=f"{flow.path}.naming",
        ids=(flow.id,),
        help="use a shorter alias or template on this way, `naming: {policy: map}` for these topics, or exclude them",
        notes=(f"route: {long.names[longest]}",) if long.names[longest] else (),
    )


def _shortest(symbol: TopicSymbol) -> int:
    """Characters of the shortest name that the symbol may stand for."""
    if symbol.now is not None:
        return len(symbol.now)
    around = len(symbol.before) + len(symbol.after)
    if around + len(symbol.label) <= MAX_TOPIC_NAME_LETTERS:
        return around + 1  # names may be longer, but nothing says that they must
    return max(around + 1, min((len(text) for text in symbol.prefixes), default=0) + len(symbol.after))


def _walked(context: RuleContext) -> Iterator[tuple[Flow, str, str]]:
    """Names that a scan or a declared fact knows, hop by hop; only those that can become too long at all."""
    topology = context.topology
    assert topology is not None, "asked before"
    leaving: dict[str, list[Flow]] = {}
    for flow in topology.flows:
        if flow.source != flow.target:
            leaving.setdefault(flow.source, []).append(flow)
    growth = max((len(each.plan.naming.before) + len(each.plan.naming.after) for each in topology.flows), default=0)
    enough = MAX_TOPIC_NAME_LETTERS - growth * min(_MAX_HOPS, len(topology.clusters))
    for cluster in sorted(leaving) if growth else ():
        for birth in sorted(name for name in _known(context, cluster) if len(name) > enough):
            todo = [_Step(birth, f"{cluster}/{shorten_and_escape(birth)}", (cluster,))]
            while todo:
                step = todo.pop()
                for flow in leaving.get(step.passed[-1], ()):
                    if flow.target in step.passed or len(step.passed) > _MAX_HOPS or not flow.plan.selects(step.name):
                        continue
                    arriving = flow.plan.target_topic(step.name)
                    way = f"{step.way} -> {flow.target}/{shorten_and_escape(arriving)}"
                    if len(arriving) > MAX_TOPIC_NAME_LETTERS:
                        yield flow, arriving, way
                    else:
                        todo.append(_Step(arriving, way, (*step.passed, flow.target)))


def _known(context: RuleContext, alias: str) -> set[str]:
    cluster = context.inventory.cluster(alias) if context.inventory is not None else None
    declared = {match.text for match, _ in context.facts.declared(alias) if match.kind == "literal"}
    return declared | set(cluster.topics if cluster is not None else ())


RULE = Rule("NAM301", "name-too-long", "error", __doc__, check)
