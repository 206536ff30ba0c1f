"""Pairs of flows that write the same topic. Candidates are found by name prefixes, so a cluster with 1000 incoming
flows costs about 1000 comparisons instead of half a million."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from watershed.topology.model import Flow
from watershed.topology.topic_graph import TopicGraph
from watershed.topology.topic_symbols import TopicSymbol


@dataclass(frozen=True, slots=True)
class _WriteCollision:
    """first and second both write `name` in `cluster`; first.id < second.id."""

    cluster: str
    name: str
    first: Flow
    second: Flow


_MAX_PAIRS = 200_000
_MAX_PAIRS_UNPROVEN = 20_000
_MAX_PAIRS_PER_NAME = 20


def find_write_collisions(graph: TopicGraph) -> Iterator[_WriteCollision]:
    """For each pair of flows the shortest common name, sorted by cluster and flow.

    Of many flows that write exactly the same topics, only pairs with the first of them are reported. Pairs that both
    allow a merge are left out. If there are more pairs of names than the bound, `graph.complete` becomes False; a graph
    that is not complete already has a smaller bound.
    """
    left = _MAX_PAIRS + _MAX_PAIRS_PER_NAME * sum(map(len, graph.writers.values()))
    left = left if graph.complete else _MAX_PAIRS_UNPROVEN
    for cluster, written in sorted(graph.writers.items()):
        if len({flow for flow, _ in written}) < 2:
            continue
        by_symbol: dict[TopicSymbol, list[Flow]] = {}
        for (_, symbol), flow in written.items():
            by_symbol.setdefault(symbol, []).append(flow)
        found: dict[tuple[str, str], _WriteCollision] = {}
        for one, two in list_collision_candidates(by_symbol):
            left -= 1
            if left < 0:
                graph.complete = False
                break
            if one is two:
                pairs = _within(by_symbol[one])
            elif all(flow.merge_allowed for flow in (*by_symbol[one], *by_symbol[two])) or not one.collides(two):
                continue
            else:
                pairs = _between(by_symbol[one], by_symbol[two])
            name = max(str(one), str(two), key=lambda text: (len(text), text))  # the narrower of two patterns, mostly
            for first, second in pairs:
                key = (first.id, second.id)
                known = found.get(key)
                if known is None or (len(name), name) < (len(known.name), known.name):
                    found[key] = _WriteCollision(cluster, name, first, second)
        yield from (found[key] for key in sorted(found))


def find_shared_topics(graph: TopicGraph, is_wanted: Callable[[Flow], bool]) -> Iterator[tuple[str, str, Flow, Flow]]:
    """A wanted flow and another one that write one topic, as (cluster, name, wanted, other), once a pair. Whether they
    allow a merge does not count."""
    for cluster, written in sorted(graph.writers.items()):
        wanted = sorted({(flow.id, symbol) for (_, symbol), flow in written.items() if is_wanted(flow)}, key=str)
        told: set[tuple[str, str]] = set()
        for flow_id, symbol in wanted:
            for (other_id, other), flow in sorted(written.items(), key=lambda each: (each[0][0], str(each[0][1]))):
                if other_id != flow_id and (flow_id, other_id) not in told and symbol.collides(other):
                    told.add((flow_id, other_id))
                    name = max(str(symbol), str(other), key=lambda text: (len(text), text))
                    yield cluster, name, written[flow_id, symbol], flow


def list_collision_candidates(by_symbol: Mapping[TopicSymbol, list[Flow]]) -> Iterator[tuple[TopicSymbol, TopicSymbol]]:
    """Pairs of symbols whose names can begin alike, each pair once, and each symbol that several flows write."""
    by_prefix: dict[str, list[TopicSymbol]] = {}
    for symbol, flows in by_symbol.items():
        if len(flows) > 1:
            yield symbol, symbol
        for prefix in sorted(symbol.prefixes):  # always the same questions in the same order
            by_prefix.setdefault(prefix, []).append(symbol)
    lengths = sorted({len(prefix) for prefix in by_prefix})
    told: set[tuple[int, int]] = set()
    for prefix, symbols in by_prefix.items():
        for length in lengths:
            if length > len(prefix):
                break
            for other in by_prefix.get(prefix[:length], ()):
                for symbol in symbols:
                    key = (min(id(symbol), id(other)), max(id(symbol), id(other)))
                    if symbol is not other and key not in told:
                        told.add(key)
                        yield symbol, other


def _within(flows: list[Flow]) -> Iterator[tuple[Flow, Flow]]:
    ordered = sorted(flows, key=lambda flow: flow.id)
    alone = [flow for flow in ordered if not flow.merge_allowed]
    first = (alone or ordered)[0]
    for flow in ordered:
        if flow is not first and not (flow.merge_allowed and first.merge_allowed):
            yield (first, flow) if first.id < flow.id else (flow, first)


def _between(ones: list[Flow], twos: list[Flow]) -> Iterator[tuple[Flow, Flow]]:
    first = sorted(ones, key=lambda flow: (flow.merge_allowed, flow.id))[:50]  # those that do not allow it are told
    second = sorted(twos, key=lambda flow: (flow.merge_allowed, flow.id))[:50]
    for one, two in ((one, two) for one in first for two in second):
        if one.id != two.id and not (one.merge_allowed and two.merge_allowed):
            yield (one, two) if one.id < two.id else (two, one)
