"""Whether a standby receives everything that its active holds and the pattern selects, wherever it was born."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from topology.graph import Route, TopicGraph
from topology.model import Topology
from topology.overlap import Constraint, shares
from topology.plan import TopicSelection
from topology.resolve import selection_of
from topology.selectors import Selector
from topology.symbols import Symbol, carried_through

_ANYTHING = (Selector("glob", "*"),)
_MAX_CASES = 64


@dataclass(frozen=True, slots=True)
class _Missing:
    """example: a birth name that shows it. Without certainty the patterns were too many to compare. paused: only paused
    flows bring it."""

    example: str | None
    certain: bool = True
    paused: bool = False


@dataclass(frozen=True, slots=True)
class _Starved:
    """`route` brings `topic` to the active cluster (or it is born there); it never comes to the standby."""

    active: str
    standby: str
    topic: str
    route: Route
    missing: _Missing


def starved(topology: Topology, graph: TopicGraph) -> Iterator[_Starved]:
    """In the order of births; nothing without a pattern `active_standby`."""
    body = topology.root.at("pattern", "active_standby")
    if body is None or body.get("active") is None or body.get("standby") is None:
        return
    active, standby = body.get("active"), body.get("standby")
    wanted = selection_of(body, topology.root.at("defaults"))
    if wanted is None or active == standby:
        return
    at_home = [
        route
        for birth, routes in graph.deliveries.items()
        if birth[0] == active
        for route in routes
        if route.end[0] == standby
    ]
    for symbol in carried_through(wanted):
        if (missing := _unserved(symbol, wanted, at_home)) is not None:
            yield _Starved(active, standby, str(symbol), Route(((active, symbol),)), missing)
    for birth in sorted(graph.deliveries, key=lambda node: (node[0], str(node[1]))):
        if birth[0] in (active, standby):
            continue  # told above, or held there already
        routes = graph.deliveries[birth]
        arrivals = [route for route in routes if route.end[0] == standby]
        for route in routes:
            if route.end[0] == active and (missing := _unserved(route.end[1], wanted, arrivals)) is not None:
                yield _Starved(active, standby, str(route.end[1]), route, missing)
                break


def _unserved(held: Symbol, wanted: TopicSelection, arrivals: list[Route]) -> _Missing | None:
    missing = _missing(held, wanted, [route.end[1] for route in arrivals])
    if missing is None and not all(route.running for route in arrivals):
        missing = _missing(held, wanted, [route.end[1] for route in arrivals if route.running])
        return None if missing is None else replace(missing, paused=True)
    return missing


def _missing(held: Symbol, wanted: TopicSelection, arrivals: list[Symbol]) -> _Missing | None:
    """What of `held` the pattern wants and no arrival brings; None when there is nothing."""
    if held.birth is not None and held.now is not None:
        if not wanted.selects(held.now) or any(arrival.holds_birth(held.birth) for arrival in arrivals):
            return None
        return _Missing(held.birth)
    literal = sorted({arrival.birth for arrival in arrivals if arrival.birth is not None})
    without = TopicSelection(_ANYTHING, tuple(Selector("literal", name) for name in literal))
    cases: list[frozenset[Constraint]] = [held.constraints | {(held.before, held.after, wanted), ("", "", without)}]
    for arrival in arrivals:
        if arrival.birth is None:
            outside = [
                (before, after, other)
                for before, after, selection in sorted(arrival.constraints, key=str)
                for other in _outside(selection)
            ]
            cases = [case for one in cases for each in outside if shares(case := one | {each}).found]
            if len(cases) > _MAX_CASES:
                return _Missing(None, certain=False)
    answers = [shares(case) for case in cases]
    found = [answer for answer in answers if answer.found]
    certain = [answer.name for answer in found if answer.certain and answer.name is not None]
    if certain:
        return _Missing(min(certain, key=lambda name: (len(name), name)))
    return _Missing(None, certain=False) if found else None


def _outside(selection: TopicSelection) -> Iterator[TopicSelection]:
    """What a selection does not take, as selections: not included, or excluded."""
    yield TopicSelection(_ANYTHING, selection.include)
    if selection.exclude:
        yield TopicSelection(selection.exclude)
