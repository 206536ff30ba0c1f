"""Proofs that build on one another: which chunks count, which are read again, and what is no ground to build on."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow import parquet

from tests.spark.logs import a_log, packed
from tests.spark.memory import Stored
from tests.spark.sessions.test_spark_proof import Bench, changed, log
from watershed.clusters.cluster_protocol import LogRange
from watershed.replicator.ledger.offset_map import OffsetMap
from watershed.spark.errors import WrongUse
from watershed.spark.evidence.evidence_folder import write_evidence_folder
from watershed.spark.evidence.proof_results import ProofFindings, build_results
from watershed.spark.fingerprint import ConsumedRecord, fingerprint_records, sum_fingerprints
from watershed.spark.judging.earlier_proof import (
    EarlierProof,
    merge_neighbour_chunks,
    read_earlier_proof,
    select_rechecked_chunks,
)
from watershed.spark.judging.proof import compare_and_judge
from watershed.spark.judging.proof_inputs import ProofPartition
from watershed.spark.judging.proof_window import ObservedPartition, PartitionPair, ProofWindow, fix_window
from watershed.spark.judging.verdict import ChunkRow, encode_chunk_row, judge_proof
from watershed.spark.proof_request import ProofRequest
from watershed.spark.reading.offset_range import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from watershed.lab.clusters import Lab

PLACE = PartitionPair("a-to-b", "orders", "orders", 0)
IDS = (uuid.UUID(int=1), uuid.UUID(int=2))
KEY = (PLACE, (str(IDS[0]), str(IDS[1])))


def row(start: int, status: str = "equal") -> ChunkRow:
    sums = sum_fingerprints(fingerprint_records([ConsumedRecord(b"k", None, start + i) for i in range(10)]))
    span = OffsetRange(start, start + 10)
    return ChunkRow(PLACE, span, span, sums, sums, status)  # type: ignore[arg-type]


def test_a_difference_in_front_of_what_is_not_read_again_is_counted_by_itself() -> None:
    """Records may have moved to the pending tail, but not over chunks that an earlier proof has proven."""
    source = a_log(1, 45)
    target = [*source[:5], a_log(2, 1)[0], *source[6:40]]
    stored = Stored()
    ends = [stored.put((alias, "t", 0), packed(log)) for alias, log in (("onprem", source), ("cloud", target))]
    place = PartitionPair("onprem-to-cloud", "t", "t", 0)
    seen = ObservedPartition(place, LogRange(0, ends[0]), LogRange(0, ends[1]), OffsetMap.of([(0, 0)]), ends[0], IDS)
    proven = tuple(replace(row(start), place=place) for start in (20, 30))
    subject = ProofPartition(fix_window(seen), seen.map, ("onprem", "cloud"), chunk=20, earlier=proven)
    with stored.in_place_of_clusters() as readers:
        total = compare_and_judge([subject], readers).judgement.total
    assert (total.missing, total.foreign, total.duplicates, total.pending) == (1, 1, 0, 5)
    assert (total.proven, total.proven_earlier) == (19, 20)


def written(directory: Path, rows: list[ChunkRow], **facts: Any) -> Path:
    window = ProofWindow(PLACE, OffsetRange(0, 40), OffsetRange(0, 40), OffsetRange(40, 40), IDS)
    told = {
        "run_id": "20261121T221648-3fa9c1d2",
        "topology": "shop",
        "plan_hash": "sha256:00",
        "level": "L2",
        "mode": "rolling",
        "started_at": "2026-11-21T22:16:48.000+00:00",
        "fixed_at": "2026-11-21T22:16:50.000+00:00",
        "ended_at": "2026-11-21T22:17:48.000+00:00",
        "seconds": 60.0,
        "flows": ["a-to-b"],
        "policy": ProofRequest().to_json(),
        "recheck": {"run": 4, "chunks": 0},
    } | facts
    document, tables = build_results(ProofFindings(judge_proof(rows, (), {}), rows, (), [window]), told, ())
    write_evidence_folder(directory, document, tables)
    return directory / "summary.json"


def seen(runs: list[tuple[int, int]] | None = None, ids: tuple[uuid.UUID, uuid.UUID] = IDS) -> ObservedPartition:
    return ObservedPartition(PLACE, LogRange(0, 60), LogRange(0, 60), OffsetMap.of(runs or [(0, 0)]), 60, ids)


def test_a_chunk_comes_back_from_its_table_as_it_was(tmp_path: Path) -> None:
    path = written(tmp_path, [row(0), row(10, "earlier"), row(20, "unverifiable"), row(30)])
    found = read_earlier_proof(path)
    assert found.run == 4
    assert [(chunk.source, chunk.status) for chunk in found.chunks[KEY]] == [
        ((0, 10), "equal"),
        ((10, 20), "equal"),
        ((30, 40), "equal"),
    ]
    lines = [encode_chunk_row(chunk) for chunk in (row(0), found.chunks[KEY][0])]
    assert lines[0] == lines[1]


def test_chunks_count_while_topics_and_map_are_the_same(tmp_path: Path) -> None:
    found = read_earlier_proof(written(tmp_path, [row(0), row(10), row(30)]))
    before, chunks = found.of(seen())
    assert [chunk.source for chunk in chunks] == [(0, 10), (10, 20), (30, 40)]
    assert before is not None
    assert (before.source_start, before.target_start) == (0, 0)
    assert found.of(seen(ids=(IDS[0], uuid.UUID(int=3)))) == (None, ())
    moved = [(0, 0), (15, 17)]  # as the map tells it now, two offsets were left out
    assert [chunk.source for chunk in found.of(seen(moved))[1]] == [(0, 10)]


def test_without_its_table_a_partition_counts_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    path = written(tmp_path, [row(0), row(10), row(20), row(30)])
    (tmp_path / "chunks.parquet").unlink()
    [chunk] = read_earlier_proof(path).chunks[KEY]
    assert (chunk.source, chunk.source_sum.n) == ((0, 40), 40)
    assert select_rechecked_chunks([chunk], 0, 1.0) == ()
    document = json.loads(path.read_text())
    document["window"]["partitions"][0]["unproven"] = 1
    path.write_text(json.dumps(document))
    with pytest.raises(WrongUse, match="proves nothing to build on"):
        read_earlier_proof(path)


def test_a_table_that_was_changed_is_no_ground(tmp_path: Path) -> None:
    path = written(tmp_path, [row(0), row(10, "different")])
    table = parquet.read_table(tmp_path / "chunks.parquet")
    statuses = table.column_names.index("status")
    import pyarrow as pa

    forged = table.set_column(statuses, table.schema.field("status"), pa.array(["equal"] * table.num_rows))
    parquet.write_table(forged, tmp_path / "chunks.parquet")
    with pytest.raises(WrongUse, match="was changed"):
        read_earlier_proof(path)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"schema": 99}', '{"schema": 2, "window": 3}'])
def test_what_is_no_summary(tmp_path: Path, content: str) -> None:
    (tmp_path / "summary.json").write_text(content)
    with pytest.raises(WrongUse):
        read_earlier_proof(tmp_path / "summary.json")
    with pytest.raises(WrongUse, match="cannot read"):
        read_earlier_proof(tmp_path / "none.json")


def test_every_chunk_comes_round_once() -> None:
    chunks = [row(start) for start in range(0, 5_000, 10)]
    turns = [select_rechecked_chunks(chunks, run, 0.01) for run in range(100)]
    assert sorted(chunk.source for turn in turns for chunk in turn) == [chunk.source for chunk in chunks]
    assert max(map(len, turns)) < 25
    assert select_rechecked_chunks(chunks, 7, 0.0) == ()
    assert select_rechecked_chunks(chunks, 7, 1.0) == tuple(chunks)
    with pytest.raises(WrongUse, match="between 0 and 1"):
        select_rechecked_chunks(chunks, 0, 1.5)


def test_crumbs_of_one_chunk_become_one() -> None:
    rows = [row(start) for start in (0, 10, 20, 40, 50)]
    whole = merge_neighbour_chunks(rows, 30)
    assert [chunk.source for chunk in whole] == [(0, 30), (40, 60)]
    records = [ConsumedRecord(b"k", None, at) for at in range(30)]
    assert whole[0].source_sum == whole[0].target_sum == sum_fingerprints(fingerprint_records(records))
    assert merge_neighbour_chunks(rows, 10) == tuple(rows)
    assert merge_neighbour_chunks((), 10) == ()
    by_batches = replace(rows[1], by="batches")
    assert [chunk.source for chunk in merge_neighbour_chunks([rows[0], by_batches], 30)] == [(0, 10), (10, 20)]


def test_nothing_earlier_is_nothing() -> None:
    assert EarlierProof().of(seen()) == (None, ())


@pytest.mark.kafka
@pytest.mark.spark
def test_a_proof_goes_on_from_one_that_found_differences(
    kafka_pair: Lab, topic_name: str, tmp_path: Path, spark: SparkSession
) -> None:
    bench = Bench(kafka_pair, topic_name, tmp_path, spark)
    records = log(200)
    bench.write("onprem", records)
    bench.write("cloud", changed(records, 50, value=b"altered"))
    first = bench.verify(chunk=20)
    assert (first["verdict"], first["proven"], first["altered"]) == ("different", 199, 1)
    folders = sorted(path for path in tmp_path.iterdir() if path.is_dir())
    more = [ConsumedRecord(b"k", b"late %d" % i, 1_700_000_001_000 + i) for i in range(30)]
    for alias in ("onprem", "cloud"):
        bench.write(alias, more)
    second = bench.verify(chunk=20, since=folders[-1] / "summary.json", recheck=0.0)
    assert (second["verdict"], second["altered"], second["recheck"]["run"]) == ("different", 1, 2)
    assert second["proven"] + second["proven_earlier"] == 229
    assert 31 <= second["records"] <= 90  # a batch that is opened, and what is new
    latest = max(path for path in tmp_path.iterdir() if path.is_dir())
    third = bench.verify(chunk=20, since=latest / "summary.json", recheck=1.0)
    assert (third["proven"], third["proven_earlier"], third["altered"]) == (229, 0, 1)
