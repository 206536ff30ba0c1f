"""Chunks of which some batches are known to be the same: what moved over them, or is only like them, is found."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from tests.spark.logs import Packed
from tests.spark.memory import Stored
from watershed.clusters.cluster_protocol import LogRange
from watershed.replicator.ledger.offset_map import OffsetMap
from watershed.spark.fingerprint import ConsumedRecord
from watershed.spark.judging.proof import ComparisonOutcome, compare_and_judge
from watershed.spark.judging.proof_inputs import ProofPartition
from watershed.spark.judging.proof_window import ObservedPartition, PartitionPair, fix_window

PLACE = PartitionPair("onprem-to-cloud", "t", "t", 0)
IDS = (uuid.UUID(int=1), uuid.UUID(int=2))


def packed(first: int, end: int) -> Packed:
    return Packed(tuple(ConsumedRecord(b"k%d" % i, b"%d" % i + b"." * 4_000, 1_000 + i) for i in range(first, end)))


LARGE, ONE, TWO = packed(10, 20), packed(1, 2), packed(2, 3)
Sides = tuple[Sequence[Packed], Sequence[int]]  # batches and their offsets


def proof_of(source: Sides, target: Sides, map_: OffsetMap) -> ComparisonOutcome:
    stored = Stored()
    ends = [stored.put((alias, "t", 0), tuple(log), at) for alias, (log, at) in (("onprem", source), ("cloud", target))]
    seen = ObservedPartition(PLACE, LogRange(0, ends[0]), LogRange(0, ends[1]), map_, ends[0], IDS)
    with stored.in_place_of_clusters() as readers:
        return compare_and_judge([ProofPartition(fix_window(seen), map_, ("onprem", "cloud"), chunk=1_000)], readers)


def test_a_record_that_moved_over_a_known_batch_is_reordered() -> None:
    """A marker stands where it should be on the target, so that the batch behind it is where the map says."""
    proof = proof_of(((ONE, LARGE, TWO), (0, 1, 11)), ((LARGE, ONE, TWO), (1, 11, 12)), OffsetMap.of([(0, 0)]))
    assert [row.by for row in proof.rows] == ["both"]
    assert (proof.judgement.total.reordered, proof.judgement.total.proven) == (1, 11)


def test_a_batch_that_is_lost_is_not_proven_by_its_like() -> None:
    """As a producer's retry without idempotence leaves two of: the map lacks the first."""
    proof = proof_of(((LARGE, LARGE, TWO), (0, 10, 20)), ((LARGE, TWO), (0, 10)), OffsetMap.of([(0, 10)]))
    assert [row.by for row in proof.rows] == ["both"]
    assert (proof.judgement.total.missing, proof.judgement.total.proven) == (10, 11)


def test_what_is_packed_otherwise_around_known_batches_is_equal() -> None:
    rest = Packed((*ONE.records, *TWO.records))
    source = (LARGE, ONE, TWO, packed(20, 30)), (0, 10, 11, 12)
    proof = proof_of(source, ((LARGE, rest, packed(20, 30)), (0, 10, 12)), OffsetMap.of([(0, 0)]))
    assert [(row.status, row.by) for row in proof.rows] == [("equal", "both")]
    assert proof.judgement.verdict == "proven"
