"""NAM315 mirrormaker-topic-taken: a flow copies records into a topic that `compatibility` writes, or heartbeats circle.

Why: two writers in one topic. A flow that copies by sequence numbers halts at the first record that is not its own, and
tools that read the topic meet records that they do not understand. Heartbeats stop before a cluster whose alias is in
the topic's name already. Where two flows call that cluster by different `aliases`, they come back to it again and
again, each time under a longer name, so topics grow without end. Circles over several topologies are found where their
files are linted together (`topology lint A.yaml B.yaml`); a cluster of two files is one by its `cluster_id`, or else by
a shared address.

Source: apache/kafka DefaultReplicationPolicy.java (`heartbeats`, `ALIAS.checkpoints.internal`,
`mm2-offset-syncs.ALIAS.internal`)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import networkx as nx

from watershed.topology.finding import Label, Problem
from watershed.topology.mirror_compatibility import MirrorCompatibility
from watershed.topology.model import Flow, Topology
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.same_cluster import number_clusters
from watershed.topology.text_escaping import shorten_and_escape


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    if topology is None:
        return
    for flow in topology.flows:
        if flow.plan.compatibility is not None:
            for side, name in flow.plan.compatibility.list_written_topics():
                yield from _find_copies(topology, flow, flow.source if side == "source" else flow.target, name)
    yield from _find_heartbeat_circles((topology, *context.others))


def _find_copies(topology: Topology, flow: Flow, cluster: str, name: str) -> Iterator[Problem]:
    for other in topology.flows:
        origin = other.plan.source_topic(name) if other.target == cluster else None
        if origin is not None:
            yield Problem(
                "NAM315",
                f"flow {other.id} copies `{origin}` into `{name}` on {cluster}, which `compatibility` of flow "
                f"{flow.id} writes",
                (
                    Label(other.settings.where("topics", "include"), "copied by this"),
                    Label(flow.settings.where("compatibility"), "written by this"),
                ),
                path=f"{other.path}.topics",
                ids=(other.id, flow.id, name),
                help=f"exclude `{origin}` from flow {other.id}",
            )


class _Beat(NamedTuple):
    """A flow that carries heartbeats on. number: of its topology, 0 for the one that is judged. into, out_of: numbers
    of its clusters, whatever they are called."""

    number: int
    flow: Flow
    told: MirrorCompatibility
    out_of: int
    into: int


def _list_beats(topologies: Sequence[Topology]) -> Iterator[_Beat]:
    carrying = [
        (index, flow, told)
        for index, topology in enumerate(topologies)
        for flow in topology.flows
        if (told := flow.plan.compatibility) is not None
        and told.heartbeats
        and {flow.source, flow.target} <= topology.clusters.keys()  # else SYN012 says so
    ]
    if not carrying:  # numbering compares each cluster with each other
        return
    numbers = number_clusters(topologies)
    for index, flow, told in carrying:
        yield _Beat(index, flow, told, numbers[index, flow.source], numbers[index, flow.target])


def _find_heartbeat_circles(topologies: Sequence[Topology]) -> Iterator[Problem]:
    """topologies: the one that is judged, then those that are linted with it."""
    beats = list(_list_beats(topologies))
    ways = nx.DiGraph((each.out_of, each.into) for each in beats)
    for into in beats:
        for out in beats:
            is_apart = into.into != out.out_of or into.told.target_alias == out.told.source_alias
            if is_apart or (into.number and out.number) or not nx.has_path(ways, out.into, into.out_of):
                continue
            yield _describe_circle(topologies, into, out)


def _describe_circle(topologies: Sequence[Topology], into: _Beat, out: _Beat) -> Problem:
    mine = into if into.number == 0 else out
    calls = ((into, into.told.target_alias), (out, out.told.source_alias))
    own = [(each.flow.settings, name) for each, name in calls if each.number == 0]
    names = [_name_flow(topologies, each) for each in (into, out)]
    return Problem(
        "NAM315",
        f"heartbeats go round without end: flow {names[0]} calls cluster {into.flow.target} "
        f"`{into.told.target_alias}`, and flow {names[1]} calls it `{out.told.source_alias}`",
        tuple(Label(settings.where("compatibility"), f"`{name}` here") for settings, name in own),
        path=f"{mine.flow.path}.compatibility",
        ids=(into.flow.id, out.flow.id, out.flow.source if out.number == 0 else into.flow.target),
        help=f"give {mine.flow.target if mine is into else mine.flow.source} the same name in "
        "`compatibility.mirrormaker.aliases` of both flows",
    )


def _name_flow(topologies: Sequence[Topology], beat: _Beat) -> str:
    """Its id, with the file of another topology."""
    there = topologies[beat.number]
    text = f"{shorten_and_escape(there.name)}, {shorten_and_escape(there.file)}"
    return beat.flow.id if beat.number == 0 else f"{beat.flow.id} ({text})"


RULE = Rule("NAM315", "mirrormaker-topic-taken", "error", __doc__, check)
