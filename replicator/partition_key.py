"""What all rooms of the replicator share: a partition of a flow, its producer, and what brokers keep of a producer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from watershed.replicator.batch.header_rewrite import SEQUENCE_SPACE

MAX_BATCHES_IN_FLIGHT: Final = 5  # batches a broker remembers of a producer (ProducerStateEntry.NUM_BATCHES_TO_RETAIN)
PRODUCER_EXPIRY_MARGIN_MS: Final = 600_000  # a broker looks for expired producers every ten minutes


class PartitionKey(NamedTuple):
    """Which partition of which flow: names as the topology and the clusters have them."""

    flow: str
    topic: str  # on the source
    target_topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """Who writes: the flow's producer id, and where its sequence numbers begin on this partition."""

    producer_id: int
    epoch: int
    base: int  # target offset that has sequence 0

    def sequence(self, target_offset: int) -> int:
        """Sequence number of the record at `target_offset` (docs/research/sequence-numbers.md, §4 R1)."""
        return (target_offset - self.base) % SEQUENCE_SPACE
