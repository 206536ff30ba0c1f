"""SYC507 offset-expiry: a synchronised group has nothing new to read for longer than the target keeps positions.

Why: the brokers forget the positions of an empty group after `offsets.retention.minutes` (7 days by default). A copied
group is empty at the target, and where its topics rest, nothing renews its positions: after the failover it begins at
its own default, the beginning or the end.

Source: apache/kafka GroupCoordinatorConfig.java, OFFSETS_RETENTION_MINUTES_DOC; KIP-211
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.inventory import InventoryCluster, InventoryGroup
from watershed.topology.model import Flow
from watershed.topology.quantities import render_duration
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names
from watershed.topology.rules.syc.declared_group_sync import build_declared_group_sync, list_scanned_groups

_KEY = "offsets.retention.minutes"


def check(context: RuleContext) -> Iterator[Problem]:
    if context.topology is None or context.inventory is None:
        return
    for flow in context.topology.flows:
        source, target = context.inventory.cluster(flow.source), context.inventory.cluster(flow.target)
        minutes = target.configs.get(_KEY, "") if target is not None else ""
        groups = build_declared_group_sync(flow)
        if source is None or not minutes.isdecimal() or not groups.running:
            continue
        kept = int(minutes) * 60_000
        resting = {
            group.id: topic
            for group in list_scanned_groups(context, groups)
            if (topic := _resting(flow, source, group, kept))
        }
        if resting:
            group, topic = next(iter(resting.items()))
            idle = source.taken_ms - (source.topics[topic].last_append_ms or 0)
            yield Problem(
                "SYC507",
                f"{flow.target} forgets the positions of {render_some_names(list(resting))} after "
                f"{render_duration(kept)}, and for "
                "longer than that there was nothing new to read",
                build_labels((groups.span, "carries positions over")),
                path=f"{flow.path}.sync.groups",
                ids=(flow.id, *list(resting)[:3]),
                notes=(f"`{group}`: the newest record of `{topic}` is {idle // 86_400_000} days old",),
                help=f"raise {_KEY} at {flow.target} above the longest rest, or move these groups by hand",
                confidence="likely",
            )


def _resting(flow: Flow, source: InventoryCluster, group: InventoryGroup, kept: int) -> str | None:
    """A carried topic that the group has read to its end, and that got nothing for longer than positions are kept."""
    for name in sorted(group.offsets):
        topic = source.topics.get(name)
        if topic is None or topic.last_append_ms is None or group.lag.get(name) != 0 or not flow.plan.selects(name):
            continue
        if source.taken_ms - topic.last_append_ms > kept:
            return name
    return None


RULE = Rule("SYC507", "offset-expiry", "warning", __doc__, check, needs="inventory")
