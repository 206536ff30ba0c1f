"""CLU106 alias-shadows-topic: a topic begins with the alias of a cluster that it does not come from, and prefix naming
is used.

Why: under prefix naming the first part of a name says where a topic was born. `orders.created` of a cluster `shop` then
looks like `created` of a cluster `orders`: people, consumers with a wildcard and MirrorMaker 2 take it for a copy, and
the latter leaves it out as a loop.

Source: apache/kafka DefaultReplicationPolicy.java, topicSource
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import Flow, Topology
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names, sort_unique_names


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    if topology is None or not any(flow.plan.naming.policy == "prefix" for flow in topology.flows):
        return
    arriving: dict[tuple[str, str], list[Flow]] = {}
    for flow in topology.flows:
        arriving.setdefault((flow.source, flow.target), []).append(flow)
    for flow, topics in context.facts.by_flow:
        if flow.plan.naming.policy != "prefix":
            continue
        separator = flow.plan.naming.before.removeprefix(flow.source)
        shadows: dict[str, list[str]] = {}
        names = [topic.name for topic in topics if topic.name is not None]
        for name in (*names, *_beginnings(flow)):
            alias, found, _ = name.partition(separator)
            copies = arriving.get((alias, flow.source), ())
            if found and alias in topology.clusters and not any(_can_bring(each, name) for each in copies):
                shadows.setdefault(alias, []).append(name)
        for alias, shadowing in sorted(shadows.items()):
            yield _problem(topology, flow, alias, sort_unique_names(shadowing))


def _beginnings(flow: Flow) -> Iterator[str]:
    """What every name that a pattern takes begins with, where that says enough."""
    for selector in flow.plan.topics.include:
        if selector.kind != "literal" and selector.prefix:
            yield selector.prefix


def _can_bring(flow: Flow, name: str) -> bool:
    """Whether the flow creates topics of this name, or of names that begin so."""
    before = flow.plan.naming.before
    return bool(before) and name.startswith(before)


def _problem(topology: Topology, flow: Flow, alias: str, names: tuple[str, ...]) -> Problem:
    cluster = topology.root.at("clusters", alias)
    return Problem(
        "CLU106",
        f"{render_some_names(names)} of {flow.source} looks like a copy from cluster `{alias}`, and is none",
        build_labels(
            (None if cluster is None else cluster.key, f"the alias `{alias}`"),
            (flow.settings.where("topics", "include"), f"{flow.id} takes {render_some_names(names)}"),
        ),
        path=f"{flow.path}.topics.include",
        ids=(flow.id, alias),
        help=f"rename the alias `{alias}` to something that no topic begins with, or use a template such as "
        "`{topic}.from.{source}`",
    )


RULE = Rule("CLU106", "alias-shadows-topic", "error", __doc__, check)
