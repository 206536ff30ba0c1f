"""A flow goes on where applications have come back: behind what they wrote at its target, and a flow back carried home.

After a migration and its rollback both logs hold the same records: up to the cut as the flow copied them, behind it as
applications wrote them at the target and the flow back carried them to the source. So the flow's map goes on with the
inverse of the flow back's, and the flow may copy again from the two log ends at which producers came home. Nothing is
read for it: both maps are exact, and the rollback has proven what was carried back.

It needs an order (`rejoin`), because a flow that copies by sequence numbers takes any record of others behind its own
for a foreign writer's. One that copies in transactions goes on by itself: its loop guard leaves out what was carried.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.errors import ReplicatorError
from watershed.replicator.ledger.foreign_part import ForeignPart, JoinedOffsetMap
from watershed.replicator.ledger.ledger import Ledger
from watershed.replicator.ledger.offset_map import ExplicitRun, OffsetMap
from watershed.replicator.ledger.switchover_map import join_switchover_runs
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import OffsetSpan
from watershed.replicator.recovery.operator_decisions import DecisionWithMap, OperatorDecision


@dataclass(frozen=True, slots=True)
class RejoinPoint:
    """Where applications left a partition of the flow, and came home. Offsets of the target: cut, where their own
    records begin; base, the log's end when they came home. Of the source: copied, up to which the flow had copied (a
    fence in the log may stand between that and the cut); position, the log's end when they came home."""

    cut: int
    copied: int
    base: int
    position: int


def build_rejoin_part(
    own: OffsetMap, back: Iterable[ExplicitRun], at: RejoinPoint, flow_back: str, *, guarded: bool
) -> ForeignPart:
    """What stands before the place where the flow goes on. own: its map. back: what the flow back has carried, ever;
    `target` is an offset of our source there.

    guarded: a loop guard leaves what was carried back out at the source, so a proof leaves the applications' own
    records out at the target. Raises ReplicatorError where the maps contradict each other or the offsets.
    """
    runs = join_switchover_runs(own, back, at.cut, at.copied)
    if runs and (runs[-1].target + runs[-1].records > at.base or _end(runs[-1]) > at.position):
        raise ReplicatorError(f"{flow_back} has carried back more than {at}: {runs[-1]}")
    left_out = own.extra if isinstance(own, JoinedOffsetMap) else ()
    if guarded and at.base > at.cut:
        left_out = (*left_out, OffsetSpan(at.cut, at.base))
    return ForeignPart(f"applications ({flow_back} carried it back)", at.base, at.position, tuple(runs), left_out)


def _end(stretch: ExplicitRun) -> int:
    return stretch.source + stretch.records


@dataclass(frozen=True, slots=True)
class _RejoinPlan:
    """What is ordered, and source topics that are not, with the reason."""

    decisions: Sequence[DecisionWithMap]
    left: Mapping[str, str]


def plan_rejoin(
    flow: str,
    returns: Mapping[TopicPartition, RejoinPoint],
    ledgers: tuple[Ledger, Ledger],
    flow_back: str,
    name: str,
    *,
    guarded: bool,
    aligned: frozenset[str] = frozenset(),
) -> _RejoinPlan:
    """Orders for the partitions (of the flow's source) in `returns`. ledgers: of the flow, and of the flow back. name:
    the same however often this is done for one return. aligned: source topics with equal offsets, which cannot be gone
    on with: what was carried back has others."""
    own, back = ledgers
    keys = {TopicPartition(key.topic, key.partition): key for key in own.partitions if key.flow == flow}
    left: dict[str, str] = {}
    decisions: list[DecisionWithMap] = []
    for place, at in sorted(returns.items()):
        if place.topic in aligned:
            left[place.topic] = "it has equal offsets at both ends, and what was carried back has others"
            continue
        key = keys.get(place)
        if key is None:  # nothing was ever copied: it begins like any partition that is new to the flow
            if at.base > 0:
                left[place.topic] = "the flow has copied nothing into it, and it holds what applications wrote"
            continue
        try:
            decisions.append(_order(key, at, own, _carried(back, flow_back, key), flow_back, name, guarded=guarded))
        except ReplicatorError as error:
            left[place.topic] = str(error)
    return _RejoinPlan([each for each in decisions if each.key.topic not in left], left)


def _carried(back: Ledger, flow_back: str, key: PartitionKey) -> list[ExplicitRun]:
    """Of a flow that copies in transactions, what its map holds does not depend on the log's end."""
    for theirs, (known, _) in back.partitions.items():
        if (theirs.flow, theirs.topic, theirs.partition) == (flow_back, key.target_topic, key.partition):
            if theirs not in back.positions:
                raise ReplicatorError(f"flow {flow_back} does not copy in transactions")
            return list(known.map.stretches(1 << 62))
    return []


def _order(
    key: PartitionKey,
    at: RejoinPoint,
    own: Ledger,
    carried: list[ExplicitRun],
    flow_back: str,
    name: str,
    *,
    guarded: bool,
) -> DecisionWithMap:
    known, generation = own.remembered(key)
    assert known is not None
    foreign = build_rejoin_part(known.map, carried, at, flow_back, guarded=guarded)
    decision = OperatorDecision(
        "rejoin",
        key.flow,
        key.topic,
        key.partition,
        "target_foreign_write",
        generation,
        "topology rollback",
        target_id=known.target_id,
        id=name,
        at_ms=int(time.time() * 1000),
        source_id=known.source_id,
        base=at.base,
        position=at.position,
        tool=flow_back,
    )
    return DecisionWithMap(decision, key, foreign, {"cut": at.cut, "carried": sum(each.records for each in carried)})
