"""What `topology trace` says of a batch's sequence number."""

from __future__ import annotations

import pytest

from tests.replicator.test_resume_aligned import COPYING, ours
from watershed.clusters.producer_registry import ProducerRecord
from watershed.replicator.ledger.ledger import Ledger
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.trace import TraceHop, _out_of_place

KEY = PartitionKey("f", "orders", "orders", 0)
PRODUCER = ProducerRecord(7, "f", ("onprem",), "sequence", "orders-move")


@pytest.mark.parametrize(
    ("base", "sequence", "aligned", "strange"),
    [
        (5, 0, False, False),
        (9, 4, False, False),
        (9, 2, False, True),
        (9, 2, True, False),  # two of the offsets from 5 to 8 hold no records
        (9, 4, True, False),
        (9, 5, True, True),  # more records than offsets
    ],
)
def test_a_place_is_strange_where_the_sequence_number_cannot_stand(
    base: int, sequence: int, aligned: bool, strange: bool
) -> None:
    hop = TraceHop("cloud", "id", "orders", 0, base, 7, 0)
    said = _out_of_place(Ledger({KEY: (COPYING, 1)}), PRODUCER, ours(base, 1, sequence), hop, aligned)
    assert bool(said) == strange
