"""Flows that keep the positions of one group equal in both directions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from watershed.topology.model import Flow, Topology
from watershed.topology.rules.syc.declared_group_sync import DeclaredGroupSync, build_declared_group_sync
from watershed.topology.topic_symbols import carry_symbol, list_source_symbols


@dataclass(frozen=True, slots=True)
class _TwoWayFlows:
    """Two running flows, there and back; `group` that both write (`*`: any), in `topic` that goes round."""

    one: DeclaredGroupSync
    two: DeclaredGroupSync
    group: str
    topic: str


def find_two_way_flows(topology: Topology) -> Iterator[_TwoWayFlows]:
    """Pairs in the order of their flow ids."""
    continuous: dict[tuple[str, str], list[DeclaredGroupSync]] = {}
    for flow in topology.flows:
        groups = build_declared_group_sync(flow)
        if groups.running and groups.mode == "continuous":
            continuous.setdefault((flow.source, flow.target), []).append(groups)
    for (source, target), there in sorted(continuous.items()):
        for one in there:
            for two in continuous.get((target, source), ()):
                if one.flow.id < two.flow.id:
                    group, topic = one.share(two), find_returning_topic(one.flow, two.flow)
                    if group is not None and topic is not None:
                        yield _TwoWayFlows(one, two, group, topic)


def find_returning_topic(there: Flow, back: Flow) -> str | None:
    """A topic that `back` brings to the source under its own name; None if there is none. Only for such a topic do both
    flows write positions of the same group."""
    for birth in list_source_symbols(there.plan):
        for arrived in carry_symbol(there.plan, birth):
            for returned in carry_symbol(back.plan, arrived):
                if returned.meets(birth):
                    return birth.label
    return None
