"""Where each record of the wave stands on both sides, for whoever sets positions: what the flow has copied, and what an
earlier way back has carried."""

from __future__ import annotations

from dataclasses import replace

from clusters.names import TopicPartition
from cutover.actions import LookAtCopies
from cutover.ground import Ground, copies
from cutover.observations import CopiesSeen
from cutover.waiting import Asking, ask
from replicator.retraced import retraced
from replicator.translation import CopiedPartition

_Copies = dict[TopicPartition, CopiedPartition]


def histories(ground: Ground, more: tuple[TopicPartition, ...] = ()) -> Asking[_Copies]:
    """As `copies`, and without holes where applications have been at the target before (`replicator.retraced`)."""
    found, reverse = dict((yield from copies(ground, more)).copies), ground.policy.reverse
    if ground.flow.delivery != "transactions" or reverse is None:
        return found
    carried = (yield from ask(LookAtCopies(ground.target_places(), reverse), CopiesSeen, ground.policy)).copies
    for place, held in found.items():
        back = carried.get(ground.at_target(place))
        if back is not None:
            found[place] = replace(held, map=retraced(held.map, back.map))
    return found
