"""NAM303 metric-collision: two topics of a target differ only where one has `.` and the other `_`.

Why: in metric names Kafka writes both as `_`, so `a.b` and `a_b` would be counted as one. Brokers therefore refuse to
create the second of them, and the flow stops there.

Source: apache/kafka Topic.java, hasCollision
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import sort_unique_names

_Arriving = dict[str, dict[str, Flow]]
_SHOWN = 3


def check(context: RuleContext) -> Iterator[Problem]:
    if context.topology is None or context.graph is None:
        return
    for cluster, names in sorted(_arriving(context).items()):
        by_metric: dict[str, set[str]] = {}
        for name in names:
            by_metric.setdefault(_metric(name), set()).add(name)
        there = set(_there(context, cluster))
        for name in sorted(there):
            if _metric(name) in by_metric:
                by_metric[_metric(name)].add(name)
        # two that both are there already are nobody's doing now
        clashes = [sorted(each) for _, each in sorted(by_metric.items()) if len(each) > 1 and each - there]
        if clashes:
            yield _problem(cluster, names, clashes)


def _problem(cluster: str, names: dict[str, Flow], clashes: list[list[str]]) -> Problem:
    flows = {flow.id: flow for clash in clashes for name in clash if (flow := names.get(name)) is not None}
    pairs = [" and ".join(f"`{name}`" for name in clash) for clash in clashes]
    more = f" ({len(pairs) - 1} more like it)" if len(pairs) > 1 else ""
    first = [names[name] for name in clashes[0] if name in names]
    return Problem(
        "NAM303",
        f"{pairs[0]} cannot both be at {cluster}: their metrics have one name{more}",
        tuple(sorted({Label(flow.settings.where("topics", "include"), flow.id) for flow in first})),
        path=f"{first[0].path}.naming",
        ids=(*sort_unique_names(flows), *clashes[0]),
        help="rename what arrives (`naming: {policy: prefix}`, or a map for this topic), or exclude it",
        notes=tuple(f"also {pair}" for pair in pairs[1 : 1 + _SHOWN]),
    )


def _metric(name: str) -> str:
    return name.replace(".", "_")


def _arriving(context: RuleContext) -> _Arriving:
    """By target what flows create there, as far as names are known, with the first flow of each."""
    found: _Arriving = {}
    assert context.graph is not None, "asked before"
    for cluster, written in context.graph.writers.items():
        for (_, symbol), flow in written.items():
            if symbol.now is not None and "_" in _metric(symbol.now):
                _first(found.setdefault(cluster, {}), symbol.now, flow)
    for flow, topics in context.facts.by_flow:
        for topic in topics:
            if topic.name is not None and "_" in _metric(topic.target_label):
                _first(found.setdefault(flow.target, {}), topic.target_label, flow)
    return found


def _first(names: dict[str, Flow], name: str, flow: Flow) -> None:
    known = names.get(name)
    if known is None or flow.id < known.id:
        names[name] = flow


def _there(context: RuleContext, alias: str) -> Iterator[str]:
    """What the cluster is known to hold already."""
    seen = context.inventory.cluster(alias) if context.inventory is not None else None
    yield from seen.topics if seen is not None else ()
    yield from (match.text for match, _ in context.facts.declared(alias) if match.kind == "literal")


RULE = Rule("NAM303", "metric-collision", "warning", __doc__, check)
