"""Flows that keep the positions of one group equal in both directions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from topology.model import Flow, Topology
from topology.rules.syc.groups import Groups, groups_of
from topology.symbols import births, carried


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two running flows, there and back; `group` that both write (`*`: any), in `topic` that goes round."""

    one: Groups
    two: Groups
    group: str
    topic: str


def both_ways(topology: Topology) -> Iterator[_Pair]:
    """Pairs in the order of their flow ids."""
    continuous: dict[tuple[str, str], list[Groups]] = {}
    for flow in topology.flows:
        groups = groups_of(flow)
        if groups.running and groups.mode == "continuous":
            continuous.setdefault((flow.source, flow.target), []).append(groups)
    for (source, target), there in sorted(continuous.items()):
        for one in there:
            for two in continuous.get((target, source), ()):
                if one.flow.id < two.flow.id:
                    group, topic = one.share(two), comes_back(one.flow, two.flow)
                    if group is not None and topic is not None:
                        yield _Pair(one, two, group, topic)


def comes_back(there: Flow, back: Flow) -> str | None:
    """A topic that comes back under its own name, as only its positions are written by both."""
    for birth in births(there.plan):
        for arrived in carried(there.plan, birth):
            for returned in carried(back.plan, arrived):
                if returned.meets(birth):
                    return birth.label
    return None
