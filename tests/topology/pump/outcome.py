"""What became of births, whoever followed them: the pump with real batches, or the walk over sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from watershed.topology.plan import PlanFlow

Place = tuple[str, str]  # cluster, topic
MAX_NAME = 249  # longer names are refused by Kafka (apache/kafka Topic.java)
MAX_BORN_NAME = 9  # births under names that renames made; longer ones repeat what shorter ones show


@dataclass(slots=True)
class Outcome:
    """ends: records stop moving. finite: so do new names. hops: of the longest way. arrivals: how often each birth is
    in each topic, its birth place included. writers: the flows whose records are in each topic. names: every topic that
    exists. The numbers count only where `ends` and `finite` hold."""

    ends: bool = True
    finite: bool = True
    hops: int = 0
    arrivals: Counter[tuple[Place, Place]] = field(default_factory=Counter)
    writers: dict[Place, set[str]] = field(default_factory=dict)
    names: set[Place] = field(default_factory=set)

    @property
    def settled(self) -> bool:
        return self.ends and self.finite

    @property
    def most(self) -> int:
        """How often a record stands in the topic that has it most often."""
        return max(self.arrivals.values(), default=0)


def named(flows: Sequence[PlanFlow], begun: Iterable[Place], longest: int = MAX_NAME) -> tuple[set[Place], bool]:
    """Every topic that flows create from these on, and whether all names are at most so long.

    Depth first, and over with the first name that is too long: names that grow on two flows double with every round.
    """
    places = set(begun)
    todo = sorted(places)
    while todo:
        cluster, name = todo.pop()
        for flow in flows:
            if flow.source == cluster and flow.source != flow.target and flow.selects(name):
                place = (flow.target, flow.target_topic(name))
                if len(place[1]) > longest:
                    return places, False
                if place not in places:
                    places.add(place)
                    todo.append(place)
    return places, True


def births(flows: Sequence[PlanFlow], names: Iterable[str], more: Iterable[Place] = ()) -> list[Place]:
    """Where a producer may write what some flow takes: each of `names`, and what renames make of them, wherever a flow
    selects it."""
    begun = {(flow.source, name) for flow in flows for name in names} | set(more)
    places = set(begun)
    todo = sorted(begun)
    for cluster, name in todo:
        for flow in flows:
            place = (flow.target, flow.target_topic(name))
            if flow.source == cluster and flow.selects(name) and len(place[1]) <= MAX_BORN_NAME and place not in places:
                places.add(place)
                todo.append(place)
    taken = (
        (cluster, name)
        for cluster, name in places
        if any(flow.source == cluster and flow.source != flow.target and flow.selects(name) for flow in flows)
    )
    return sorted({*taken, *more})
