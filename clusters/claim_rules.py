"""What the flows into a cluster claim as their own writes: the only trust in a producer id.

Whoever may write to a topic may write under any producer id, also under one that a flow has registered. A flow's ledger
is nobody else's to write, and says what the flow has written: one that copies in transactions tells its offsets, one
that copies by sequence numbers where each producer epoch began, and so which number belongs to which offset. A batch
that no ledger claims is not a flow's, whatever its header says (decision 0052). `replicator.ledger.claims` reads them.
"""

from __future__ import annotations

import uuid
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from watershed.clusters.wire.topic_names import is_stand_in_id

SEQUENCE_MODULUS: Final = 1 << 31  # sequence numbers begin anew behind the last of them
UNBOUNDED_END_OFFSET: Final = (1 << 63) - 1
_NO_ID: Final = uuid.UUID(int=0)


class ClaimedPartition(NamedTuple):
    """A partition, by its topic's name and id: claims in a topic that was deleted say nothing of the next one.

    A claim in a topic that had no id (`clusters.wire.topic_names`) has id 0 (`name_claimed_partition`). It counts under
    the name still when an upgrade of the brokers gives the topic an id.
    """

    topic: str
    topic_id: uuid.UUID
    partition: int

    def list_places(self) -> tuple[ClaimedPartition, ClaimedPartition]:
        """Where claims on this partition may stand: under its id, and under its name alone."""
        return self, self._replace(topic_id=_NO_ID)


def name_claimed_partition(topic: str, topic_id: uuid.UUID, partition: int) -> ClaimedPartition:
    """What a claim is about, by the topic id that the ledger has."""
    return ClaimedPartition(topic, _NO_ID if is_stand_in_id(topic_id) else topic_id, partition)


class ClaimRule(NamedTuple):
    """Batches of this producer, of an epoch from `epoch` up to, not including, `epochs_end`, at offsets from `first` up
    to, not including, `end`; base: the offset that has sequence 0, -1 where that is not known any more."""

    producer_id: int
    epoch: int
    epochs_end: int
    first: int
    end: int
    base: int

    def covers(self, producer_id: int, epoch: int, sequence: int, first: int, end: int) -> bool:
        """Whether the batch with this header, at offsets from `first` up to, not including, `end`, is meant."""
        return (
            producer_id == self.producer_id
            and self.epoch <= epoch < self.epochs_end
            and self.first <= first
            and end <= self.end
            and (self.base < 0 or (first - self.base) % SEQUENCE_MODULUS == sequence)
        )


@dataclass(frozen=True, slots=True)
class PartitionClaims:
    """Of one partition. firsts, ends: offsets that were written in transactions (first, end), in order, as columns of
    64 bit numbers. begun: where the copy of each flow that writes in transactions began, by flow."""

    rules: tuple[ClaimRule, ...] = ()
    firsts: bytes = b""
    ends: bytes = b""
    begun: tuple[tuple[str, int], ...] = ()


_NOTHING: Final = PartitionClaims()


def find_partition_claims(
    claims: Mapping[ClaimedPartition, PartitionClaims], topic: str, topic_id: uuid.UUID, partition: int
) -> PartitionClaims:
    """Returns the claims on this very partition (name and topic id); none for a topic that was recreated."""
    by_id, by_name = (claims.get(each) for each in ClaimedPartition(topic, topic_id, partition).list_places())
    if by_id is None or by_name is None:
        return by_id or by_name or _NOTHING
    spans = sorted(
        span for each in (by_id, by_name) for span in zip(array("q", each.firsts), array("q", each.ends), strict=True)
    )
    begun = dict(by_id.begun)
    for flow, first in by_name.begun:
        begun[flow] = min(first, begun.get(flow, first))
    return PartitionClaims(
        (*by_name.rules, *by_id.rules),
        array("q", [first for first, _ in spans]).tobytes(),
        array("q", [end for _, end in spans]).tobytes(),
        tuple(sorted(begun.items())),
    )
