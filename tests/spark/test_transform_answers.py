"""What Spark answers to a micro-batch counts only where it is whole, and of this one."""

from __future__ import annotations

from typing import Any, cast

import pytest

from watershed.replicator.batch.records import RawRecord, build_raw_batch
from watershed.replicator.batch.untransformed_selection import UntransformedPart
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.transport.transform_thread import TransformedPart, TransformFailed, TransformRequest
from watershed.spark.transform import spark_engine
from watershed.spark.transform.changed_rows import PackedRow
from watershed.spark.transform.shared_memory import MemoryFile, SharedMemory
from watershed.spark.transform.spark_engine import SparkTransformEngine, _Piece, _read_results

BATCH = build_raw_batch([RawRecord(at, 1_700_000_000_000, b"\x01\x02v\x00") for at in (0, 1)], 0, 2)


def build_pieces(count: int) -> list[_Piece]:
    part = UntransformedPart(0, 2)
    return [
        _Piece(TransformRequest(PartitionKey("f", "t", "u", number), part, {}, 1_000), 0, 2) for number in range(count)
    ]


def build_row(part: int) -> PackedRow:
    return PackedRow(part, 2)


def build_batch_row(part: int) -> PackedRow:
    return PackedRow(part, 2, data=bytes(BATCH.data), spans=[0, 2])


def read(rows: list[PackedRow], parts: int, first: int) -> list[list[int]]:
    found = _read_results(build_pieces(parts), rows, first, None)
    return [[batch.records for batch in result.batches] for result in found]


def test_parts_may_be_answered_in_any_order() -> None:
    rows = [build_row(8), build_batch_row(7), build_row(7), build_batch_row(9), build_row(9)]
    assert read(rows, 3, 7) == [[2], [], [2]]


def test_what_compression_saved_is_told() -> None:
    rows = [build_batch_row(0)._replace(saved=12), build_row(0)]
    [result] = _read_results(build_pieces(1), rows, 0, None)
    assert [batch.saved for batch in result.batches] == [12]


def test_numbers_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_engine, "_NUMBERS", 10)
    assert read([build_batch_row(9), build_row(9), build_row(0)], 2, 9) == [[2], []]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([build_batch_row(7), build_row(7)], "1 of 2 parts were not answered to their end"),
        ([build_batch_row(7), build_row(8)], "1 of 2 parts were not answered to their end"),
        ([build_row(7), build_row(7), build_row(8)], "part 7, which is answered already or of another micro-batch"),
        ([build_row(7), build_batch_row(7), build_row(8)], "part 7, which is answered already"),
        ([build_row(6), build_row(7), build_row(8)], "part 6, which is answered already or of another micro-batch"),
        ([], "2 of 2 parts were not answered to their end"),
    ],
)
def test_what_is_not_whole_or_of_another_micro_batch_does_not_count(rows: list[PackedRow], message: str) -> None:
    with pytest.raises(TransformFailed, match=message) as caught:
        read(rows, 2, 7)
    assert not caught.value.is_lasting


def test_a_part_that_cannot_be_opened_is_found_and_named_and_the_others_are_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark's text names neither the part nor its partition."""
    pieces = build_pieces(5)

    def run(_engine: Any, _compiled: Any, asked: list[_Piece]) -> list[TransformedPart]:
        if pieces[3] in asked:
            told = "Traceback\nreplicator.errors.OversizedBatch: batch at source offset 0: it holds too much\n"
            raise spark_engine._judge(Exception(told))
        return [TransformedPart([BATCH], []) for _ in asked]

    monkeypatch.setattr(SparkTransformEngine, "_run", run)
    found = SparkTransformEngine(cast(Any, None))._transform(cast(Any, None), pieces)
    assert [len(each.batches) for each in found] == [1, 1, 1, 0, 1]
    assert found[3].failed == "batch at source offset 0: it holds too much"


def test_a_record_that_fails_is_found_where_the_system_cannot_give_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trouble with the memory must not hide what the job failed for."""
    errors = pytest.importorskip("pyspark.errors")

    def run(*_: Any) -> list[PackedRow]:
        raise errors.PySparkException("[CAST_INVALID_INPUT] The value of a record cannot be cast")

    def refuse(_file: MemoryFile) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(SparkTransformEngine, "_run_job", run)
    monkeypatch.setattr(MemoryFile, "blank", refuse)
    part = UntransformedPart(0, 2)
    part.add(BATCH)
    piece = _Piece(TransformRequest(PartitionKey("f", "t", "u", 0), part, {}, 1_000), 0, 2)
    engine = SparkTransformEngine(cast(Any, None), memory=SharedMemory())
    [found] = engine._transform(cast(Any, None), [piece])
    assert [each.source_offset for each in found.rejected] == [0, 1]
    assert {each.reason for each in found.rejected} == {"an expression fails for it: Spark says CAST_INVALID_INPUT"}
    engine.close()
