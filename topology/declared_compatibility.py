"""What `compatibility` of a flow comes to: its names and intervals, and what it keeps out of flows."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from watershed.topology.mirror_compatibility import CHECKPOINT_INTERVAL_MS, HEARTBEAT_INTERVAL_MS, MirrorCompatibility
from watershed.topology.model import CheckedValue, Flow
from watershed.topology.naming import Naming
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection, sort_selectors
from watershed.topology.sync_settings import NameFilter


def build_mirror_compatibility(settings: CheckedValue, source: str, target: str) -> MirrorCompatibility | None:
    """Of a flow with these settings and aliases; None where nothing is asked for. Without names of their own,
    MirrorMaker's topics get the aliases of this file, and the separator of `naming`."""
    said = settings.at("compatibility")
    if said is None:
        return None
    tool = "mirrormaker"
    at = said.get(tool, "offset_syncs_at", default="source")
    found = MirrorCompatibility(
        source_alias=said.get(tool, "aliases", source, default=source),
        target_alias=said.get(tool, "aliases", target, default=target),
        separator=said.get(tool, "separator", default=settings.get("naming", "separator", default=".")),
        heartbeats=said.get(tool, "heartbeats", default=False),
        checkpoints=said.get(tool, "checkpoints", default=False),
        offset_syncs=at if said.get(tool, "offset_syncs", default=False) else None,
        heartbeat_interval_ms=said.get(tool, "heartbeat_interval", default=HEARTBEAT_INTERVAL_MS),
        checkpoint_interval_ms=said.get(tool, "checkpoint_interval", default=CHECKPOINT_INTERVAL_MS),
        source_group=said.get("source_group"),
    )
    return found if found.list_written_topics() or found.source_group is not None else None


def leave_out_tool_topics(
    topics: TopicSelection, compatibility: MirrorCompatibility | None, naming: Naming
) -> TopicSelection:
    """The selection without topics in which tools talk about themselves. A topic that the file names by its full name
    stays: an exclusion would win over the name (NAM315 says where that cannot go well)."""
    named = topics.included.literals
    if len(named) == len(topics.include):  # no pattern takes anything
        return topics
    left = () if compatibility is None else compatibility.list_left_out_topics(naming)
    left = tuple(each for each in left if not any(each.matches(name) for name in named))
    if not left:
        return topics
    return TopicSelection(topics.include, sort_selectors((*topics.exclude, *left)), topics.allow_internal)


def keep_source_groups_apart(flows: Iterable[Flow]) -> tuple[Flow, ...]:
    """The group under which a flow tells its own position is no application's: no flow from or to that cluster syncs
    it."""
    found = tuple(flows)
    held: dict[str, set[str]] = {}
    for flow in found:
        if flow.plan.compatibility is not None and flow.plan.compatibility.source_group is not None:
            held.setdefault(flow.source, set()).add(flow.plan.compatibility.source_group)
    if not held:
        return found
    none: set[str] = set()
    return tuple(
        replace(flow, plan=_exclude_groups(flow.plan, held.get(flow.source, none) | held.get(flow.target, none)))
        for flow in found
    )


def _exclude_groups(plan: PlanFlow, groups: Collection[str]) -> PlanFlow:
    if not groups:
        return plan
    sync = plan.sync.groups
    excluded = sort_selectors((*sync.names.exclude, *(Selector("literal", group) for group in groups)))
    names = NameFilter(sync.names.include, excluded)
    return replace(plan, sync=replace(plan.sync, groups=replace(sync, names=names)))
