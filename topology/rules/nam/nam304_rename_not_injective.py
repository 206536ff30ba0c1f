"""NAM304 rename-not-injective: two topics of one source get one name at the target.

Why: their records are mixed, offsets have two origins, and nothing can be taken apart again. A map does it when it
gives a topic a name that another selected topic keeps; two flows on one route do it when their renames meet, which
`merge: {allowed: true}` hides (a warning: `merge` is about several sources).

Source: apache/kafka MirrorSourceConnector.java, which keeps its new topics by their new name
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from watershed.topology.finding import Confidence, Label, Problem
from watershed.topology.model import Flow, Topology
from watershed.topology.naming import Naming
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels
from watershed.topology.selectors import TopicSelection
from watershed.topology.topic_symbols import TopicSymbol, carry_symbol, list_source_symbols

_MANY = 20  # flows on one route that are compared with each other


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    if topology is None:
        return
    known: dict[tuple[TopicSelection, Naming], list[tuple[str, str]]] = {}
    for flow in topology.flows:
        if flow.plan.naming.map:
            key = (flow.plan.topics, flow.plan.naming)
            if key not in known:
                known[key] = _clashes(*key)
            yield from _in_a_map(context, flow, known[key])
    yield from _on_one_route(topology)


def _clashes(topics: TopicSelection, naming: Naming) -> list[tuple[str, str]]:
    """Entries whose target's name another selected topic keeps; sorted."""
    renamed = dict(naming.map)
    return sorted(
        (name, to)
        for name, to in renamed.items()
        if to not in renamed and name != to and topics.selects(name) and topics.selects(to)
    )


def _in_a_map(context: RuleContext, flow: Flow, clashes: list[tuple[str, str]]) -> Iterator[Problem]:
    if clashes:
        [(name, to), *others] = clashes
        entry = flow.settings.at("naming", "map", name)
        yield Problem(
            "NAM304",
            f"flow {flow.id} maps `{name}` to `{to}`, and copies {flow.source}'s own `{to}` under that name too"
            + (f" ({len(others)} more like it)" if others else ""),
            build_labels((None if entry is None else entry.span, "mapped here"), (flow.declared, "this flow")),
            path=f"{flow.path}.naming.map",
            ids=(flow.id, name, to),
            help=f"exclude `{to}`, map it to a name of its own, or map `{name}` to another one",
            confidence=_confidence(context, flow, to),
        )


def _confidence(context: RuleContext, flow: Flow, name: str) -> Confidence:
    """Whether the topic that keeps its name is there."""
    scanned = context.inventory.cluster(flow.source) if context.inventory is not None else None
    if scanned is not None:
        return "certain" if name in scanned.topics else "possible"
    literal = any(each.kind == "literal" and each.text == name for each in flow.plan.topics.include)
    return "certain" if literal else "likely"


def _on_one_route(topology: Topology) -> Iterator[Problem]:
    """Flows that all allow a merge; without it GRF204 speaks."""
    routes: dict[tuple[str, str], list[Flow]] = {}
    for flow in topology.flows:
        if flow.merge_allowed and flow.source != flow.target:
            routes.setdefault((flow.source, flow.target), []).append(flow)
    for flows in routes.values():
        for one, two in combinations(flows[:_MANY], 2):
            name = None if one.plan.naming == two.plan.naming else _met(one, two)
            if name is not None:
                yield Problem(
                    "NAM304",
                    f"{one.id} and {two.id} bring two topics of {one.source} to {one.target} under one name (`{name}`)",
                    tuple(sorted({Label(one.declared, one.id), Label(two.declared, two.id)})),
                    path=two.path,
                    ids=(one.id, two.id),
                    help="give them the same naming, or let them select different topics",
                    severity="warning",
                )


def _met(one: Flow, two: Flow) -> str | None:
    """The shorter description of what both write, of different topics."""
    for first in _arriving(one):
        for second in _arriving(two):
            if first.collides(second) and not first.meets(second):
                return min(str(first), str(second), key=lambda text: (len(text), text))
    return None


def _arriving(flow: Flow) -> list[TopicSymbol]:
    return [symbol for birth in list_source_symbols(flow.plan) for symbol in carry_symbol(flow.plan, birth)]


RULE = Rule("NAM304", "rename-not-injective", "error", __doc__, check)
