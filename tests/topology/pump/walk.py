"""The same oracle over sets, for the many thousands: what a record does next depends on where it is, under which name,
on the path that its producer id tells, and on whether a flow brought it. Counting the records in each such state, hop
by hop, needs no clusters; `test_topology_pump.py` shows that the pump comes to the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.topology.pump.outcome import MAX_BORN_NAME, MAX_NAME, Outcome, Place, named
from watershed.topology.plan import PlanFlow

State = tuple[str, str, frozenset[str], str]  # cluster, topic, known path, flow that brought it ("" at birth)
Way = tuple[str, str]  # the flow that brings, and from which topic


@dataclass(slots=True)
class Walked(Outcome):
    """ways: for each birth and topic, the last steps by which it arrives. returned: births that a guard kept from
    coming home under their name. circling: births that never come to rest."""

    ways: dict[tuple[Place, Place], set[Way]] = field(default_factory=dict)
    returned: set[Place] = field(default_factory=set)
    circling: set[Place] = field(default_factory=set)


def walk(flows: Sequence[PlanFlow], begun: Sequence[Place]) -> Walked:
    flows = [flow for flow in flows if flow.source != flow.target]
    found = Walked()
    found.names, found.finite = named(flows, [place for place in begun if _touched(flows, place)])
    # where names grow, only the first rounds are walked: they double with every one
    reach = _Reach(flows, MAX_NAME if found.finite else MAX_BORN_NAME + 2)
    for birth in begun:
        if not _touched(flows, birth):
            continue
        level: Counter[State] = Counter({(*birth, frozenset({birth[0]}), ""): 1})
        seen = set(level)
        hops = 0
        found.arrivals[birth, birth] += 1
        while level := _hop(birth, level, reach, found):
            hops += 1
            seen |= level.keys()
            if hops > len(seen):  # more hops than states: some state came twice on one way
                found.ends = False
                found.circling.add(birth)
                break
        found.hops = max(found.hops, hops)
    return found


class _Reach:
    """What leaves a place: each flow that selects the topic, with its name at the target."""

    def __init__(self, flows: Sequence[PlanFlow], longest: int) -> None:
        self.flows, self.longest = flows, longest
        self.known: dict[Place, list[tuple[PlanFlow, str]]] = {}

    def out_of(self, place: Place) -> list[tuple[PlanFlow, str]]:
        if place not in self.known:
            cluster, name = place
            leaving = [flow for flow in self.flows if flow.source == cluster and flow.selects(name)]
            steps = [(flow, flow.target_topic(name)) for flow in leaving]
            self.known[place] = [(flow, arriving) for flow, arriving in steps if len(arriving) <= self.longest]
        return self.known[place]


def _hop(birth: Place, level: Counter[State], reach: _Reach, found: Walked) -> Counter[State]:
    """Every record one flow further."""
    following: Counter[State] = Counter()
    for (cluster, name, path, brought), count in level.items():
        for flow, arriving in reach.out_of((cluster, name)):
            if brought and flow.forward == "local":
                continue
            place = (flow.target, arriving)
            guarded = flow.guard == "producer_id"
            if guarded and flow.target in path:
                if place == birth:
                    found.returned.add(birth)
                continue
            known = path | {flow.target} if guarded else frozenset({cluster, flow.target})
            following[flow.target, arriving, known, flow.id] += count
            found.arrivals[birth, place] += count
            found.writers.setdefault(place, set()).add(flow.id)
            found.ways.setdefault((birth, place), set()).add((flow.id, name))
    return following


def _touched(flows: Sequence[PlanFlow], place: Place) -> bool:
    return any(place[0] in (flow.source, flow.target) for flow in flows)
