"""SLO706 partition-budget: with the topics that flows create a cluster has more partitions than `limits.partitions`.

Why: every partition costs memory, file handles and time when a broker or controller fails over. A renamed copy is a
topic of its own: prefix naming both ways doubles the count on both sides. Counted is what is known: topics that a scan
saw at the cluster (or that the file declares there), and those that flows will create, with the source's count.

Source: KIP-578, a limit of partitions on brokers
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import CheckedValue
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_plural
from watershed.topology.topic_facts import FlowTopic


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    if topology is None:
        return
    clusters = topology.root.at("clusters")
    limits = {
        alias: said
        for alias, cluster in (clusters.fields if clusters is not None else {}).items()
        if (said := cluster.at("limits", "partitions")) is not None
    }
    if not limits:
        return
    arriving: dict[str, list[FlowTopic]] = {}
    for flow, topics in context.facts.by_flow:
        if flow.target in limits:
            arriving.setdefault(flow.target, []).extend(topic for topic in topics if topic.name is not None)
    for alias, limit in sorted(limits.items()):
        yield from _over(context, alias, limit, arriving.get(alias, []))


def _over(context: RuleContext, alias: str, limit: CheckedValue, arriving: list[FlowTopic]) -> Iterator[Problem]:
    there = _there(context, alias)
    new: dict[str, int] = {}
    flows = {}
    for topic in arriving:
        count = topic.source.partitions
        if topic.target_label not in there and count is not None:
            new[topic.target_label] = max(count, new.get(topic.target_label, 0))
            flows[topic.flow.id] = topic.flow
    before, added = sum(there.values()), sum(new.values())
    if before + added <= limit.data:
        return
    first = min(flows) if flows else None
    yield Problem(
        "SLO706",
        f"{alias} would have {before + added:,} partitions; its limit is {limit.data:,}",
        build_labels((limit.span, "the limit"), (flows[first].declared if first else None, "creates topics there")),
        path=f"clusters.{alias}.limits.partitions",
        ids=(alias, *sorted(flows)),
        notes=(
            f"{before:,} in {render_plural(len(there), 'topic')} of the cluster + {added:,} in "
            f"{render_plural(len(new), 'topic')} "
            "that flows create",
        ),
        help="copy fewer topics, or to another cluster; raise the limit only together with the brokers",
    )


def _there(context: RuleContext, alias: str) -> dict[str, int]:
    """Partitions by topic: of a scan, or as the file declares single topics."""
    cluster = context.inventory.cluster(alias) if context.inventory is not None else None
    if cluster is not None:
        return {name: topic.partitions for name, topic in cluster.topics.items()}
    declared = context.facts.declared(alias)
    return {match.text: facts.partitions for match, facts in declared if match.kind == "literal" and facts.partitions}


RULE = Rule("SLO706", "partition-budget", "error", __doc__, check)
