"""Comparing and carrying over by hand: what `topology plan` shows and `topology apply` does of `sync:`.

A kind that a cluster refuses to tell about is a difference itself: the others are compared all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from watershed.clusters.errors import ClusterError, RequestRefused, Unauthorised, WrongCluster
from watershed.clusters.settings import SettingsLookup
from watershed.replicator.sync.all_kinds import SYNC_KINDS
from watershed.replicator.sync.sync_kind import DifferenceOutcome, SyncClusters, SyncKind
from watershed.topology.drift import FieldDrift
from watershed.topology.plan import Plan, PlanFlow


def find_sync_differences(
    plan: Plan, connect: SettingsLookup, kinds: tuple[SyncKind, ...] = SYNC_KINDS
) -> list[FieldDrift]:
    """What `once` and `continuous` would change now, each difference once, in the order of flows and kinds. Raises
    ClusterError when a cluster cannot be used at all."""
    found: dict[FieldDrift, None] = {}
    for flow, kind in _asked(plan, kinds):
        try:
            found |= dict.fromkeys(kind.compare(flow, _sides(plan, flow, connect)))
        except (Unauthorised, RequestRefused, WrongCluster) as error:
            found[_not_told(flow, kind, error)] = None
    return list(found)


def apply_sync_differences(
    plan: Plan,
    connect: SettingsLookup,
    kinds: tuple[SyncKind, ...] = SYNC_KINDS,
    left: Callable[[FieldDrift], None] = lambda _difference: None,
) -> Iterator[DifferenceOutcome]:
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
            yield DifferenceOutcome(_not_told(flow, kind, error), str(error))


def _sides(plan: Plan, flow: PlanFlow, connect: SettingsLookup) -> SyncClusters:
    beside = tuple(each for each in plan.flows if each.target == flow.target and each.state == "running")
    return SyncClusters(connect(flow.source), connect(flow.target), beside)


def _not_told(flow: PlanFlow, kind: SyncKind, error: ClusterError) -> FieldDrift:
    """What a refused kind looks like beside the differences of the others."""
    why = f"not compared, nothing of it is carried over: {error}"
    return FieldDrift(flow.target, kind.name, f"of flow {flow.id}", kind.mode(flow), None, None, "unknown", False, why)


def _asked(plan: Plan, kinds: tuple[SyncKind, ...]) -> Iterator[tuple[PlanFlow, SyncKind]]:
    for flow in plan.flows:
        if flow.state == "running":
            yield from ((flow, kind) for kind in kinds if kind.mode(flow) != "never")
