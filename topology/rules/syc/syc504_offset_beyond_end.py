"""SYC504 offset-beyond-end: a group's position at the target lies behind the end of the topic.

Why: the lag is negative, and the group waits until the topic reaches that offset: everything written until then is
skipped. Positions that were copied without translation end up like this.

Source: KAFKA-12635; apache/kafka#10644, apache/kafka#13178
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.inventory import InventoryCluster
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names


def check(context: RuleContext) -> Iterator[Problem]:
    if context.topology is None or context.inventory is None:
        return
    into: dict[str, list[Flow]] = {}
    for flow in context.topology.flows:
        into.setdefault(flow.target, []).append(flow)
    for alias, flows in sorted(into.items()):
        cluster = context.inventory.cluster(alias)
        for group, topics in _beyond(cluster).items() if cluster is not None else ():
            writing = {topic: flow for topic in topics for flow in flows if flow.plan.source_topic(topic) is not None}
            if cluster is not None and writing:
                yield _problem(cluster, group, writing)


def _beyond(cluster: InventoryCluster) -> dict[str, list[str]]:
    """Group → topics with a committed offset behind the end of its partition."""
    return {
        name: sorted({entry.rpartition(":")[0] for entry in group.beyond})
        for name, group in sorted(cluster.groups.items())
        if group.beyond
    }


def _problem(cluster: InventoryCluster, group: str, writing: dict[str, Flow]) -> Problem:
    topic, flow = next(iter(writing.items()))
    partitions = [entry for entry in cluster.groups[group].beyond if entry.rpartition(":")[0] == topic]
    return Problem(
        "SYC504",
        f"group `{group}` at {cluster.alias} stands behind the end of {render_some_names(list(writing))}",
        build_labels((flow.declared, "writes there")),
        path=flow.path,
        ids=(cluster.alias, group, *writing),
        notes=(f"partitions: {render_some_names(partitions)}",),
        help="stop the group, and set its positions anew from the flow's ledger (`topology offsets`), or to the end",
    )


RULE = Rule("SYC504", "offset-beyond-end", "error", __doc__, check, needs="live")
