"""SYC504 offset-beyond-end: a group's position at the target lies behind the end of the topic.

Why: the lag is negative, and the group waits until the topic reaches that offset: everything written until then is
skipped. Positions that were copied without translation end up like this. A scan knows the sum of a topic's ends, so
a single partition beyond its end is seen only when the others do not hide it.

Bad:

    flows:
      - source: a
        target: b
        topics: {include: [orders]}
    --- # topology scan
    b: {topics: {orders: {records_end: 100}}, groups: {billing: {offsets: {orders: {0: 5000}}}}}

Good:

    flows:
      - source: a
        target: b
        topics: {include: [orders]}
    --- # topology scan
    b: {topics: {orders: {records_end: 100}}, groups: {billing: {offsets: {orders: {0: 90}}}}}

Source: KAFKA-12635; apache/kafka#10644, apache/kafka#13178
"""

from __future__ import annotations

from collections.abc import Iterator

from topology.finding import Problem
from topology.inventory import InventoryCluster
from topology.model import Flow
from topology.rule import Context, Rule
from topology.rules.mention import labels, some


def check(context: Context) -> Iterator[Problem]:
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
    """Group → topics whose committed offsets are more than all of its ends together."""
    found: dict[str, list[str]] = {}
    for name, group in sorted(cluster.groups.items()):
        for topic, offsets in sorted(group.offsets.items()):
            ends = cluster.topics[topic].records_end if topic in cluster.topics else None
            if ends is not None and sum(offset for offset in offsets.values() if offset >= 0) > ends:
                found.setdefault(name, []).append(topic)
    return found


def _problem(cluster: InventoryCluster, group: str, writing: dict[str, Flow]) -> Problem:
    topic, flow = next(iter(writing.items()))
    committed = sum(cluster.groups[group].offsets[topic].values())
    return Problem(
        "SYC504",
        f"group `{group}` at {cluster.alias} stands behind the end of {some(list(writing))}",
        labels((flow.declared, "writes there")),
        path=flow.path,
        ids=(cluster.alias, group, *writing),
        notes=(f"`{topic}`: committed offsets sum to {committed}, the ends to {cluster.topics[topic].records_end}",),
        help="stop the group, and set its positions anew from the flow's ledger (`topology offsets`), or to the end",
        confidence="likely",
    )


RULE = Rule("SYC504", "offset-beyond-end", "error", __doc__, check, needs="live")
