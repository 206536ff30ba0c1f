"""MIG803 group-split: a consumer group would have to move twice, or in halves.

Why: a group is at one cluster at a time. When its topics lie in different waves, its consumers need both clusters at
once, or stop reading half of what they read. A wave with `strategy: consumers_last` moves groups of topics that several
waves have moved. With a scan every group with positions in the topics is looked at, also
those that no wave names.

Source: own
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import Topology
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names
from watershed.topology.rules.mig.declared_waves import (
    MAX_SHOWN_WAVES,
    DeclaredWave,
    find_migration_flow,
    find_shared_entries,
    list_declared_waves,
)
from watershed.topology.selectors import Selector
from watershed.topology.sync_settings import TOOL_GROUP_GLOBS
from watershed.topology.text_escaping import shorten_and_escape


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    waves = list_declared_waves(topology)
    split = find_shared_entries(waves, "consumers")
    for group, places in split.items():
        names = [move.name for move, _ in places]
        yield Problem(
            "MIG803",
            f"group `{shorten_and_escape(group)}` is moved by the waves {render_some_names(names)}",
            build_labels(*((span, f"in wave `{move.name}`") for move, span in places[:MAX_SHOWN_WAVES])),
            path=f"{places[-1][0].path}.consumers",
            ids=(group, *names),
            help="put all topics of the group into one wave",
        )
    if topology is not None and waves:
        yield from _seen(context, topology, waves, split.keys())


def _seen(
    context: RuleContext, topology: Topology, waves: tuple[DeclaredWave, ...], told: Collection[str]
) -> Iterator[Problem]:
    """Groups whose positions at the source lie in topics of several waves."""
    flow = find_migration_flow(topology)
    cluster = context.inventory.cluster(flow.source) if context.inventory is not None and flow is not None else None
    if cluster is None:
        return
    by_topic = {topic: move for move in waves if not move.wave.is_late for topic in move.wave.topics}
    late = {group for move in waves if move.wave.is_late for group in move.wave.consumers}
    tools = tuple(Selector("glob", text) for text in TOOL_GROUP_GLOBS)
    for name, group in sorted(cluster.groups.items()):
        parts: dict[int, str] = {}
        for topic in sorted(group.offsets.keys() & by_topic.keys()):
            parts.setdefault(by_topic[topic].index, topic)
        if len(parts) < 2 or name in told or name in late or any(tool.matches(name) for tool in tools):
            continue
        found = sorted(((waves[index], topic) for index, topic in parts.items()), key=lambda part: part[0].name)
        yield Problem(
            "MIG803",
            f"group `{shorten_and_escape(name)}` reads topics of the waves "
            f"{render_some_names([move.name for move, _ in found])}",
            build_labels(
                *((move.value.where("topics"), f"it reads `{topic}`") for move, topic in found[:MAX_SHOWN_WAVES])
            ),
            path=f"{found[-1][0].path}.topics",
            ids=(name, *(move.name for move, _ in found)),
            help="put these topics into one wave, or the group into a later one with `strategy: consumers_last`; "
            "when nobody uses the group any more, delete its positions at "
            f"{cluster.alias}",
            confidence="likely",
        )


RULE = Rule("MIG803", "group-split", "error", __doc__, check)
