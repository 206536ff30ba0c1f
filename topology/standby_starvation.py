"""Topics that the pattern `active_standby` selects at the active cluster and that never arrive at the standby."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from watershed.topology.model import Topology
from watershed.topology.resolver import build_section_selection
from watershed.topology.selection_overlap import NameConstraint, find_overlap
from watershed.topology.selectors import Selector, TopicSelection
from watershed.topology.topic_graph import FlowPath, TopicGraph
from watershed.topology.topic_symbols import TopicSymbol, list_selected_symbols

_ANYTHING = (Selector("glob", "*"),)
_MAX_CASES = 64


@dataclass(frozen=True, slots=True)
class _MissingTopic:
    """example: a topic name that shows it. certain: False if the patterns were too many to compare. paused: only paused
    flows bring the topic."""

    example: str | None
    certain: bool = True
    paused: bool = False


@dataclass(frozen=True, slots=True)
class _StarvedTopic:
    """`route` brings `topic` to the active cluster (or it is born there); it never comes to the standby."""

    active: str
    standby: str
    topic: str
    route: FlowPath
    missing: _MissingTopic


def find_starved_topics(topology: Topology, graph: TopicGraph) -> Iterator[_StarvedTopic]:
    """Sorted by origin; nothing without a pattern `active_standby`."""
    body = topology.root.at("pattern", "active_standby")
    if body is None or body.get("active") is None or body.get("standby") is None:
        return
    active, standby = body.get("active"), body.get("standby")
    wanted = build_section_selection(body, topology.root.at("defaults"))
    if wanted is None or active == standby:
        return
    at_home = [
        route
        for birth, routes in graph.deliveries.items()
        if birth[0] == active
        for route in routes
        if route.end[0] == standby
    ]
    for symbol in list_selected_symbols(wanted):
        if (missing := _unserved(symbol, wanted, at_home)) is not None:
            yield _StarvedTopic(active, standby, str(symbol), FlowPath(((active, symbol),)), missing)
    for birth in sorted(graph.deliveries, key=lambda node: (node[0], str(node[1]))):
        if birth[0] in (active, standby):
            continue  # reported above, or born at the standby
        routes = graph.deliveries[birth]
        arrivals = [route for route in routes if route.end[0] == standby]
        for route in routes:
            if route.end[0] == active and (missing := _unserved(route.end[1], wanted, arrivals)) is not None:
                yield _StarvedTopic(active, standby, str(route.end[1]), route, missing)
                break


def _unserved(held: TopicSymbol, wanted: TopicSelection, arrivals: list[FlowPath]) -> _MissingTopic | None:
    missing = _missing(held, wanted, [route.end[1] for route in arrivals])
    if missing is None and not all(route.running for route in arrivals):
        missing = _missing(held, wanted, [route.end[1] for route in arrivals if route.running])
        return None if missing is None else replace(missing, paused=True)
    return missing


def _missing(held: TopicSymbol, wanted: TopicSelection, arrivals: list[TopicSymbol]) -> _MissingTopic | None:
    """What of `held` the pattern wants and no arrival brings; None when there is nothing."""
    if held.birth is not None and held.now is not None:
        if not wanted.selects(held.now) or any(arrival.holds_birth(held.birth) for arrival in arrivals):
            return None
        return _MissingTopic(held.birth)
    literal = sorted({arrival.birth for arrival in arrivals if arrival.birth is not None})
    without = TopicSelection(_ANYTHING, tuple(Selector("literal", name) for name in literal))
    cases: list[frozenset[NameConstraint]] = [held.constraints | {(held.before, held.after, wanted), ("", "", without)}]
    for arrival in arrivals:
        if arrival.birth is None:
            outside = [
                (before, after, other)
                for before, after, selection in sorted(arrival.constraints, key=str)
                for other in _outside(selection)
            ]
            cases = [case for one in cases for each in outside if find_overlap(case := one | {each}).found]
            if len(cases) > _MAX_CASES:
                return _MissingTopic(None, certain=False)
    answers = [find_overlap(case) for case in cases]
    found = [answer for answer in answers if answer.found]
    certain = [answer.name for answer in found if answer.certain and answer.name is not None]
    if certain:
        return _MissingTopic(min(certain, key=lambda name: (len(name), name)))
    return _MissingTopic(None, certain=False) if found else None


def _outside(selection: TopicSelection) -> Iterator[TopicSelection]:
    """What a selection does not take, as selections: not included, or excluded."""
    yield TopicSelection(_ANYTHING, selection.include)
    if selection.exclude:
        yield TopicSelection(selection.exclude)
