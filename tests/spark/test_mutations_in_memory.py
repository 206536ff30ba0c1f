"""Every mutation is reported as exactly its class and count, whichever way batches are packed: logs in memory."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from tests.spark.logs import T0, Log, a_log, packed, records_of
from tests.spark.memory import Stored
from tests.spark.mutations import CHUNK, COUNT, KINDS, MUTATIONS, Mutation, by_batches
from watershed.clusters.cluster_protocol import LogRange
from watershed.replicator.ledger.offset_map import OffsetMap
from watershed.spark.judging.proof import ComparisonOutcome, compare_and_judge
from watershed.spark.judging.proof_inputs import ProofPartition
from watershed.spark.judging.proof_window import ObservedPartition, PartitionPair, fix_window
from watershed.spark.judging.verdict import Counts

IDS = (uuid.UUID(int=1), uuid.UUID(int=2))
PLACE = PartitionPair("onprem-to-cloud", "t", "t", 0)


def proof_of(source: Log, target: Log, chunk: int = CHUNK, timestamps: bool = True) -> ComparisonOutcome:
    stored = Stored()
    ends = [stored.put((alias, "t", 0), log) for alias, log in (("onprem", source), ("cloud", target))]
    seen = ObservedPartition(PLACE, LogRange(0, ends[0]), LogRange(0, ends[1]), OffsetMap.of([(0, 0)]), ends[0], IDS)
    window = fix_window(seen, start="earliest")
    with stored.in_place_of_clusters() as readers:
        partition = ProofPartition(window, seen.map, ("onprem", "cloud"), timestamps=timestamps, chunk=chunk)
        return compare_and_judge([partition], readers)


def found(counts: Counts) -> dict[str, int]:
    return {kind: getattr(counts, kind) for kind in KINDS if getattr(counts, kind)}


def named(proof: ComparisonOutcome) -> set[str]:
    return {name for each in proof.confirmed for name in each.difference.components}


def equal_by_batches(proof: ComparisonOutcome) -> set[int]:
    """Numbers of chunks."""
    return {round(row.source.start / CHUNK) for row in proof.rows if (row.status, row.by) == ("equal", "batches")}


@pytest.mark.parametrize("chunk", [CHUNK, 7])
@pytest.mark.parametrize("layout", ["as the source packed it", "packed otherwise"])
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_is_reported_as_its_class_and_count(mutation: Mutation, layout: str, chunk: int) -> None:
    source, other = packed(a_log(1, COUNT)), packed(a_log(2, COUNT))
    target = mutation.apply(source, other)
    if layout == "packed otherwise":
        target = packed(records_of(target), (17, 3), "gzip")
    proof = proof_of(source, target, chunk)
    counts = proof.judgement.total
    assert (found(counts), counts.proven) == (mutation.found, mutation.proven)
    assert named(proof) == set(mutation.components)
    assert proof.judgement.exact
    if chunk == CHUNK:
        assert equal_by_batches(proof) == by_batches(source, target)


def test_a_map_that_is_wrong_is_a_finding_and_no_difference() -> None:
    """Somebody's aborted records stand on the target, of which the map knows nothing: all else is behind them."""
    log = packed(a_log(1, COUNT))
    stored = Stored()
    end = stored.put(("onprem", "t", 0), log)
    bases = [base for base, _ in stored.logs["onprem", "t", 0]]
    there = stored.put(("cloud", "t", 0), log, [base if base < 100 else base + 20 for base in bases])
    seen = ObservedPartition(PLACE, LogRange(0, end), LogRange(0, there), OffsetMap.of([(0, 0)]), end, IDS)
    with stored.in_place_of_clusters() as readers:
        proof = compare_and_judge(
            [ProofPartition(fix_window(seen), seen.map, ("onprem", "cloud"), chunk=CHUNK)], readers
        )
    assert (found(proof.judgement.total), proof.judgement.total.proven) == ({}, COUNT)
    assert proof.judgement.verdict == "incomplete"
    [block] = proof.judgement.blocks
    assert "not at the offsets that the offset map gives" in block


def test_examples_have_the_stored_times_where_the_target_stamps_append_times() -> None:
    """Times are then not compared, but the report shows them."""
    log = a_log(1, COUNT)
    stamped = [replace(record, timestamp=T0 + 86_400_000) for record in log]
    source, target = (
        packed(log),
        packed([*stamped[:70], replace(stamped[70], value=b"other"), *stamped[71:80], *stamped[81:]]),
    )
    proof = proof_of(source, target, timestamps=False)
    assert found(proof.judgement.total) == {"altered": 1, "missing": 1}
    times = {e.kind: (e.source_ts, e.target_ts) for each in proof.confirmed for e in each.difference.examples}
    assert times == {"altered": (T0 + 70, T0 + 86_400_000), "missing": (T0 + 80, None)}
    assert named(proof) == {"value"}
