"""Where each record of the wave stands on both sides, for whoever sets positions: what the flow has copied, and what an
earlier way back has carried."""

from __future__ import annotations

from dataclasses import replace

from clusters.topic_partition import TopicPartition
from cutover.actions import ReadCopies
from cutover.observations import ObservedCopies
from cutover.polling import ActionGenerator, perform_action
from cutover.run_context import RunContext, read_copies
from replicator.ledger.offset_translation import CopiedPartition
from replicator.ledger.round_trip_map import build_round_trip_map

_Copies = dict[TopicPartition, CopiedPartition]


def read_copies_without_holes(context: RunContext, more: tuple[TopicPartition, ...] = ()) -> ActionGenerator[_Copies]:
    """As `copies`, and without holes where applications have been at the target before
    (`replicator.ledger.round_trip_map`).
    """
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
