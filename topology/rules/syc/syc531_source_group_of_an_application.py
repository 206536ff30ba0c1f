"""SYC531 source-group-of-an-application: `compatibility.source_group` names a group that is used for something else.

Why: under that group a flow commits how far it has copied. An application that goes on from there leaves out what it
has not read. Moved or synced, it would be a group without an application. Two flows that copy one topic overwrite each
other's positions. Give it a name of its own, such as `mirror-lag`.

Source: Kafka's documentation, OffsetCommit: one position for a group and partition
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import Flow, Topology
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels
from watershed.topology.selection_overlap import find_shortest_overlap


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    for index, flow in enumerate(topology.flows if topology is not None else ()):
        group = get_source_group(flow)
        if topology is None or group is None:
            continue
        uses = [*_find_moves(topology, flow, group), *_find_syncs(topology, flow, group)]
        uses += [
            f"flow {other.id} commits under it, too, and copies topics of this flow"
            for other in topology.flows[:index]
            if other.source == flow.source and get_source_group(other) == group and _share_topics(flow, other)
        ]
        for use in uses:
            yield Problem(
                "SYC531",
                f"flow {flow.id} commits its own position under group `{group}` at {flow.source}, and {use}",
                build_labels((flow.settings.where("compatibility", "source_group"), "this group")),
                path=f"{flow.path}.compatibility.source_group",
                ids=(flow.id, group),
                help="choose a group id that nothing else has",
            )


def get_source_group(flow: Flow) -> str | None:
    """The group under which the flow tells its position at its source."""
    return None if flow.plan.compatibility is None else flow.plan.compatibility.source_group


def _find_moves(topology: Topology, flow: Flow, group: str) -> Iterator[str]:
    migration = topology.migration
    moved = next((each for each in topology.flows if migration is not None and each.id == migration.flow), None)
    if migration is not None and moved is not None and flow.source in (moved.source, moved.target):
        for wave in migration.waves:
            if group in wave.consumers:
                yield f"wave {wave.name} moves that group"


def _find_syncs(topology: Topology, flow: Flow, group: str) -> Iterator[str]:
    for other in topology.flows:
        sync = other.plan.sync.groups
        if other.source == flow.source and any(
            each.kind == "literal" and each.text == group for each in sync.names.include
        ):
            yield f"flow {other.id} names it in `sync.groups.include`"
        if group in (name for pair in sync.rename for name in pair) and flow.source in (other.source, other.target):
            yield f"flow {other.id} names it in `sync.groups.rename`"


def _share_topics(one: Flow, other: Flow) -> bool:
    selections = frozenset({("", "", one.plan.topics), ("", "", other.plan.topics)})
    return one.plan.topics == other.plan.topics or find_shortest_overlap(selections).found


RULE = Rule("SYC531", "source-group-of-an-application", "error", __doc__, check)
