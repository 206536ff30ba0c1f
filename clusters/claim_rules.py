"""What the flows into a cluster claim as their own writes: the only trust in a producer id.

Whoever may write to a topic may write under any producer id, also under one that a flow has registered. A flow's ledger
is nobody else's to write, and says what the flow has written: one that copies in transactions tells its offsets, one
that copies by sequence numbers where each producer epoch began, and so which number belongs to which offset. A batch
that no ledger claims is not a flow's, whatever its header says (decision 0052). `replicator.ledger.claims` reads them.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

SEQUENCE_MODULUS: Final = 1 << 31  # sequence numbers begin anew behind the last of them
UNBOUNDED_END_OFFSET: Final = (1 << 63) - 1


class ClaimedPartition(NamedTuple):
    """A partition, by its topic's name and id: claims in a topic that was deleted say nothing of the next one."""

    topic: str
    topic_id: uuid.UUID
    partition: int


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
    return claims.get(ClaimedPartition(topic, topic_id, partition), _NOTHING)
