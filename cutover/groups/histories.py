"""Where each record of the wave stands on both sides, for whoever sets positions: what the flow has copied, and what a
way back has carried."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import ReadCopies
from watershed.cutover.errors import Refused
from watershed.cutover.observations import ObservedCopies
from watershed.cutover.polling import ActionGenerator, perform_action
from watershed.cutover.run_context import RunContext, read_copies, read_source_logs, read_target_logs
from watershed.cutover.step_outcomes import StepOutcomes
from watershed.replicator.ledger.offset_map import OffsetMap
from watershed.replicator.ledger.offset_translation import CopiedPartition
from watershed.replicator.ledger.round_trip_map import build_round_trip_map
from watershed.replicator.ledger.switchover_map import SwitchoverMap

_Copies = dict[TopicPartition, CopiedPartition]


def read_copies_without_holes(context: RunContext, more: tuple[TopicPartition, ...] = ()) -> ActionGenerator[_Copies]:
    """As `read_copies`, and without holes where applications have been at the target before
    (`replicator.ledger.round_trip_map`).

    For a wave of late groups: the whole history of each partition, across the switch of its producers.
    """
    if context.is_late:
        return (yield from _read_histories(context))
    found, reverse = dict((yield from read_copies(context, more)).copies), context.policy.reverse
    if context.flow.delivery != "transactions" or reverse is None:
        return found
    carried = (
        yield from perform_action(ReadCopies(context.target_places(), reverse), ObservedCopies, context.policy)
    ).copies
    for place, held in found.items():
        back = carried.get(context.at_target(place))
        if back is not None:
            found[place] = replace(held, map=build_round_trip_map(held.map, back.map))
    return found


def _read_histories(context: RunContext) -> ActionGenerator[_Copies]:
    """By source partition. What stands at the target behind the last carried record is part of no history yet.

    The target's ends are read after the maps, and from the log: of a partition that was added after the switch the
    migration's flow has no ledger. The source's ends are read before them: what stands there and is in no map was
    written by somebody else, or is looked for by `late_groups.find_unsettled_positions`.
    """
    source = yield from read_source_logs(context)
    maps = yield from read_switchover_maps(context)
    target = yield from read_target_logs(context)
    return {
        place: CopiedPartition(each.build_history(source.ends[place]), target.ends[context.at_target(place)])
        for place, each in maps.items()
    }


def read_switchover_maps(context: RunContext) -> ActionGenerator[dict[TopicPartition, SwitchoverMap]]:
    """Of a wave of late groups: the maps of both flows across the switch of the producers, by source partition."""
    assert context.policy.reverse is not None, "preflight refuses late groups without a way back"
    pairs = [(place, context.at_target(place)) for place in context.source_places()]
    there = (yield from read_copies(context)).copies
    back = (
        yield from perform_action(
            ReadCopies(context.target_places(), context.policy.reverse), ObservedCopies, context.policy
        )
    ).copies
    return build_switchover_maps(context.flow.id, context.outcomes, pairs, there, back)


def build_switchover_maps(
    flow: str,
    outcomes: StepOutcomes,
    pairs: Iterable[tuple[TopicPartition, TopicPartition]],
    there: Mapping[TopicPartition, CopiedPartition],
    back: Mapping[TopicPartition, CopiedPartition],
) -> dict[TopicPartition, SwitchoverMap]:
    """The maps of both flows across a switch, by partition of the old source.

    outcomes: of the run that knows barrier and cut. pairs: partitions of the old source and of its target. there: what
    `flow` has copied, by the former; back: what the flow back has carried, by the latter. Raises Refused where the
    ledger of `flow` lacks a partition.
    """
    cut, barrier = outcomes.cut, outcomes.barrier
    found: dict[TopicPartition, SwitchoverMap] = {}
    for old, new in pairs:
        if new not in cut:  # added after the switch: all its records were written by the applications there
            found[old] = SwitchoverMap(0, 0, OffsetMap(()), back.get(new))
            continue
        held, carried = there.get(old), back.get(new)
        if held is None:
            raise Refused(
                f"the ledger of flow {flow} has no records of {old}, so nothing says where a group goes on there. "
                "Records of watershed.ledger must not be deleted"
            )
        history = build_round_trip_map(held.map, carried.map) if carried is not None else held.map
        found[old] = SwitchoverMap(cut[new], barrier[old], history, carried)
    return found
