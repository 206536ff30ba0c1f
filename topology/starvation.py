"""Whether a standby receives everything that its active holds and the pattern selects, wherever it was born."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from topology.graph import Route, TopicGraph
from topology.model import Topology
from topology.overlap import Constraint, holds, shares
from topology.plan import TopicSelection
from topology.resolve import selection_of
from topology.selectors import Selector
from topology.symbols import Symbol, carried_through

ANYTHING = (Selector("glob", "*"),)
MAX_CASES = 64


@dataclass(frozen=True, slots=True)
class Starved:
    """`route` brings `topic` to the active cluster (or it is born there); it never comes to the standby. `example` is a
    name that shows it, where `topic` is a pattern."""

    active: str
    standby: str
    topic: str
    route: Route
    example: str | None


def starved(topology: Topology, graph: TopicGraph) -> Iterator[Starved]:
    """In the order of births; nothing without a pattern `active_standby`."""
    body = topology.root.at("pattern", "active_standby")
    if body is None or body.get("active") is None or body.get("standby") is None:
        return
    active, standby = body.get("active"), body.get("standby")
    wanted = selection_of(body, topology.root.at("defaults"))
    if wanted is None:
        return
    at_home = [
        route.end[1]
        for birth, routes in graph.deliveries.items()
        if birth[0] == active
        for route in routes
        if route.end[0] == standby
    ]
    for symbol in carried_through(wanted):
        if (missing := _missing(symbol, wanted, at_home)) is not None:
            yield Starved(active, standby, str(symbol), Route(((active, symbol),)), missing)
    for birth in sorted(graph.deliveries, key=lambda node: (node[0], str(node[1]))):
        if birth[0] in (active, standby):
            continue  # told above, or held there already
        routes = graph.deliveries[birth]
        arrivals = [route.end[1] for route in routes if route.end[0] == standby]
        for route in routes:
            if route.end[0] == active and (missing := _missing(route.end[1], wanted, arrivals)) is not None:
                yield Starved(active, standby, str(route.end[1]), route, missing)
                break


def _missing(held: Symbol, wanted: TopicSelection, arrivals: list[Symbol]) -> str | None:
    """A birth name of `held` that the pattern wants and no arrival brings; None when there is none."""
    if held.birth is not None and held.now is not None:
        if not wanted.selects(held.now):
            return None
        return None if any(arrival.holds_birth(held.birth) for arrival in arrivals) else held.birth
    cases: list[frozenset[Constraint]] = [held.constraints | {(held.before, held.after, wanted)}]
    literal = {arrival.birth for arrival in arrivals if arrival.birth is not None}
    for arrival in arrivals:
        if arrival.birth is None:
            for before, after, selection in sorted(arrival.constraints, key=str):
                cases = [case | {(before, after, other)} for case in cases for other in _outside(selection)]
                if len(cases) > MAX_CASES:
                    return None  # too many ways to tell apart; never a false alarm
                cases = [case for case in cases if shares(case).found]
    without = TopicSelection(ANYTHING, tuple(sorted(Selector("literal", name) for name in literal)))
    for case in cases:
        found = shares(case | {("", "", without)})
        if found.found and found.certain and found.name is not None and holds(case, found.name):
            return found.name
    return None


def _outside(selection: TopicSelection) -> Iterator[TopicSelection]:
    """What a selection does not take, as selections: not included, or excluded."""
    yield TopicSelection(ANYTHING, selection.include)
    if selection.exclude:
        yield TopicSelection(selection.exclude)
