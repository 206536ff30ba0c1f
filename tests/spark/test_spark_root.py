"""What a proof says of a log, its root above all, does not depend on how the reading was shared out."""

from __future__ import annotations

import uuid

import pytest

from tests.spark.logs import SIZES, a_log, packed
from tests.spark.memory import Stored
from watershed.replicator.ledger.offset_map import OffsetMap
from watershed.spark.judging.proof import compare_and_judge
from watershed.spark.judging.proof_inputs import ProofPartition
from watershed.spark.judging.proof_window import PartitionPair, ProofWindow
from watershed.spark.judging.verdict import compute_proof_root, encode_chunk_row
from watershed.spark.reading.offset_range import OffsetRange

COUNT = 600
PLACE = PartitionPair("onprem-to-cloud", "t", "t", 0)


@pytest.mark.parametrize("chunk", [40, 97])
@pytest.mark.parametrize("target", [SIZES, (17, 3), (50,)], ids=["same batches", "others", "large ones"])
def test_answers_and_tasks_of_any_size_give_the_same_rows(target: tuple[int, ...], chunk: int) -> None:
    found = []
    for an_answer, tasks in ((2, 2), (1, 1), (3, 4), (100, 1), (7, 13)):
        stored = Stored(an_answer=an_answer, tasks=tasks)
        records = a_log(1, COUNT)
        stored.put(("onprem", "t", 0), packed(records, SIZES))
        stored.put(("cloud", "t", 0), packed(records, target))
        whole, none = OffsetRange(0, COUNT), OffsetRange(COUNT, COUNT)
        window = ProofWindow(PLACE, whole, whole, none, (uuid.UUID(int=1), uuid.UUID(int=2)))
        with stored.in_place_of_clusters() as readers:
            proof = compare_and_judge(
                [ProofPartition(window, OffsetMap.of([(0, 0)]), ("onprem", "cloud"), chunk=chunk)], readers
            )
        assert (proof.judgement.verdict, proof.judgement.total.proven) == ("proven", COUNT)
        found.append(([encode_chunk_row(row) for row in proof.rows], compute_proof_root(proof.rows)))
    for rows, root in found[1:]:
        assert sorted(rows, key=str) == sorted(found[0][0], key=str)
        assert root == found[0][1]
