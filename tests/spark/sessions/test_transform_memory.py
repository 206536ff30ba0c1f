"""Batches in shared memory come back as those that travel through Java, whichever task gets which part."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from tests.spark.test_record_rows import encode
from watershed.replicator.batch.records import RawRecord, build_raw_batch
from watershed.replicator.batch.untransformed_selection import UntransformedPart
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.transport.transform_thread import TransformedPart, TransformFailed, TransformRequest
from watershed.spark.transform.shared_memory import SharedMemory, can_share_memory
from watershed.spark.transform.spark_engine import SparkTransformEngine
from watershed.topology.record_transform import RecordTransform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.skipif(not can_share_memory(), reason="this system has no memory files")]

KEPT = RecordTransform(where="value is not null", changes=(("headers.origin", "'prod'"),))
PLACED = RecordTransform(
    where="topic = 'orders' and partition < 9 and timestamp > timestamp'2000-01-01 00:00:00'",
    changes=(("headers.at", "concat(topic, '-', cast(partition as string), '@', cast(offset as string))"),),
)
ALIKE = RecordTransform(  # looks at nothing else of a record, so that one row stands for many
    where="value is not null or (partition < 3 and topic like 'order_')",
    changes=(("headers.at", "concat(if(value is null, 'none', 'some'), '-', cast(partition as string))"),),
)
FAILING = RecordTransform(value_format="string", where="cast(value as int) > 0")


def build_request(number: int, values: Sequence[bytes | None]) -> TransformRequest:
    raw = [RawRecord(at, 1_700_000_000_000, encode(b"k", value, [])) for at, value in enumerate(values)]
    batch = build_raw_batch(raw, 0, len(raw))
    part = UntransformedPart(0, 0)
    part.add(batch)
    part.advance(batch, None)
    return TransformRequest(PartitionKey("f", "orders", "t", number), part, {}, 3_000)


def list_contents(parts: Sequence[TransformedPart]) -> list[tuple[list[tuple[bytes, object]], list[tuple[int, str]]]]:
    return [
        (
            [(bytes(batch.data), batch.spans) for batch in part.batches],
            [(each.source_offset, each.reason) for each in part.rejected],
        )
        for part in parts
    ]


@pytest.mark.parametrize("transform", [KEPT, PLACED, ALIKE])
def test_parts_of_any_sizes_are_the_same_both_ways(spark: SparkSession, transform: RecordTransform) -> None:
    """Spark deals parts out by their number, not by their size: parts of one group go to several tasks."""
    sizes = [900, 3, 2, 400, 1, 1, 350]
    requests = [
        build_request(number, [None if at % 7 == 3 else b"%d of %d" % (at, number) for at in range(size)])
        for number, size in enumerate(sizes)
    ]
    memory = SharedMemory()
    sharing = SparkTransformEngine(spark, 2, memory)
    expected = list_contents(SparkTransformEngine(spark, 2).transform(transform, requests))
    assert sum(len(batches) for batches, _ in expected) > len(sizes)
    for _ in range(2):  # the memory is used again
        assert list_contents(sharing.transform(transform, requests)) == expected
    sharing.close()


@pytest.mark.parametrize("tasks", [2, 4])
def test_a_plan_serves_other_records_in_each_job(spark: SparkSession, tasks: int) -> None:
    """Spark analyses it once; what its tasks are to do stands in memory when they run. Some may have nothing to do."""
    plain, sharing = SparkTransformEngine(spark, 2), SparkTransformEngine(spark, tasks, SharedMemory())
    for job, count in enumerate((3, 1, 3, 2)):
        requests = [build_request(number, [b"%d of job %d" % (number, job)] * 50) for number in range(count)]
        expected = list_contents(plain.transform(KEPT, requests))
        assert list_contents(sharing.transform(KEPT, requests)) == expected
        assert b"of job %d" % job in expected[0][0][0][0]
    assert sorted(each for _, each in sharing._plans) == [1, tasks]
    sharing.close()


def test_a_task_that_finds_nothing_to_do_fails_its_job(spark: SparkSession) -> None:
    """Its records would be left out otherwise."""
    sharing = SparkTransformEngine(spark, 2, SharedMemory())
    requests = [build_request(number, [b"v"] * 20) for number in range(2)]
    assert sharing.memory is not None
    kept = sharing.memory.assign
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SharedMemory, "assign", lambda _self, tasks: kept([tasks[0], pickle.dumps([])]))
        with pytest.raises(TransformFailed, match="1 of 2 parts were not answered to their end"):
            sharing.transform(KEPT, requests)
    assert [len(part.batches) for part in sharing.transform(KEPT, requests)] == [1, 1]
    sharing.close()


def test_a_job_that_failed_leaves_nothing_to_the_next(spark: SparkSession) -> None:
    requests = [build_request(0, [b"1", b"no number"])]
    memory = SharedMemory()
    sharing = SparkTransformEngine(spark, 2, memory)
    expected = list_contents(SparkTransformEngine(spark, 2).transform(FAILING, requests))
    assert [rejected for _, rejected in expected] == [
        [(1, "an expression fails for it: Spark says CAST_INVALID_INPUT")]
    ]
    assert list_contents(sharing.transform(FAILING, requests)) == expected
    sharing.close()
