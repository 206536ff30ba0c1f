"""Comparing and carrying over by hand: what `topology plan` shows and `topology apply` does of `sync:`.

A kind that a cluster refuses to tell about is a difference itself: the others are compared all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from clusters.errors import ClusterError, RequestRefused, Unauthorised, WrongCluster
from clusters.settings import ConnectionSettings
from replicator.sync.kind import Done, Kind, Sides
from replicator.sync.kinds import KINDS
from topology.drift import Difference
from topology.plan import Plan, PlanFlow

Connect = Callable[[str], ConnectionSettings]


def sync_differences(plan: Plan, connect: Connect, kinds: tuple[Kind, ...] = KINDS) -> list[Difference]:
    """What `once` and `continuous` would change now, each difference once, in the order of flows and kinds. Raises
    ClusterError when a cluster cannot be used at all."""
    found: dict[Difference, None] = {}
    for flow, kind in _asked(plan, kinds):
        try:
            found |= dict.fromkeys(kind.compare(flow, _sides(plan, flow, connect)))
        except (Unauthorised, RequestRefused, WrongCluster) as error:
            found[_not_told(flow, kind, error)] = None
    return list(found)


def sync_carried(
    plan: Plan,
    connect: Connect,
    kinds: tuple[Kind, ...] = KINDS,
    left: Callable[[Difference], None] = lambda _difference: None,
) -> Iterator[Done]:
    """Carry everything over that can be, one kind of one flow after the other; `left` is told of what differs and is
    not carried over. Raises ClusterError."""
    for flow, kind in _asked(plan, kinds):
        sides = _sides(plan, flow, connect)
        try:
            found = kind.compare(flow, sides)
            for each in found:
                if not each.applied:
                    left(each)
            yield from kind.carry(flow, sides, [each for each in found if each.applied])
        except (Unauthorised, RequestRefused) as error:
            yield Done(_not_told(flow, kind, error), str(error))


def _sides(plan: Plan, flow: PlanFlow, connect: Connect) -> Sides:
    beside = tuple(each for each in plan.flows if each.target == flow.target and each.state == "running")
    return Sides(connect(flow.source), connect(flow.target), beside)


def _not_told(flow: PlanFlow, kind: Kind, error: ClusterError) -> Difference:
    """What a refused kind looks like beside the differences of the others."""
    why = f"not compared, nothing of it is carried over: {error}"
    return Difference(flow.target, kind.name, f"of flow {flow.id}", kind.mode(flow), None, None, "unknown", False, why)


def _asked(plan: Plan, kinds: tuple[Kind, ...]) -> Iterator[tuple[PlanFlow, Kind]]:
    for flow in plan.flows:
        if flow.state == "running":
            yield from ((flow, kind) for kind in kinds if kind.mode(flow) != "never")
