"""`kafka-batches` without a broker: options, how ranges are cut, how far a micro-batch goes, rows back to batches."""

from __future__ import annotations

import json
import uuid
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spark.sessions.test_spark_fingerprint import batch_bytes
from watershed.replicator.batch.record_batch import LOG_APPEND_TIME
from watershed.replicator.batch.records import decode_record_fields, decode_records
from watershed.spark.datasource.columns import BATCH_COLUMNS
from watershed.spark.datasource.log_offsets import LogIdentity
from watershed.spark.datasource.log_slices import LogSlice, plan_task_slices
from watershed.spark.datasource.options import EARLIEST, LATEST, parse_read_options, parse_write_options
from watershed.spark.datasource.row_to_batch import build_batch_from_row
from watershed.spark.datasource.stream_reader import decode_stream_offset, encode_stream_offset, limit_offsets
from watershed.spark.errors import NotAppended, SparkError
from watershed.spark.fingerprint import ConsumedRecord
from watershed.spark.reading.batch_decoding import HEADER_BYTES, HEADER_STRUCT
from watershed.topology.plan import Plan, PlanCluster, encode_plan, seal_plan

ID = uuid.UUID(int=7)
lengths = st.lists(st.integers(0, 60_000), min_size=1, max_size=8)


@pytest.fixture
def plan(tmp_path: Path) -> str:
    path = tmp_path / "plan.json"
    path.write_text(encode_plan(seal_plan(Plan("t", (PlanCluster("a", ("a:1",)), PlanCluster("b", ("b:1",))), ()))))
    return str(path)


@given(lengths, st.integers(1, 40), st.integers(900, 30_000))
def test_ranges_are_cut_without_a_gap_and_a_task_is_never_too_long(sizes: list[int], tasks: int, most: int) -> None:
    ranges = [
        LogSlice(LogIdentity("t", ID, at), 1_000, 1_000 + size, at % 2 == 0) for at, size in enumerate(sizes) if size
    ]
    shared = plan_task_slices(ranges, tasks, most)
    assert all(sum(part.end - part.start for part in task) <= most for task in shared)
    for whole in ranges:
        parts = [part for task in shared for part in task if part.log == whole.log]
        assert (parts[0].start, parts[-1].end) == (whole.start, whole.end)
        assert all(one.end == two.start and not one.whole_end for one, two in pairwise(parts))
        assert parts[-1].whole_end == whole.whole_end


@given(st.lists(st.integers(0, 5_000), min_size=1, max_size=6), st.integers(200, 3_000))
def test_a_limited_stream_reaches_its_end_and_never_stands_still(waiting: list[int], most: int) -> None:
    logs = [LogIdentity("t", ID, number) for number in range(len(waiting))]
    ends = dict(zip(logs, waiting, strict=True))
    at = dict.fromkeys(logs, 0)
    while at != ends:
        further = limit_offsets(at, ends, most)
        assert all(at[log] + (at[log] < ends[log]) <= further[log] <= ends[log] for log in logs)
        assert sum(further.values()) - sum(at.values()) <= max(most, len(logs)) + len(logs)
        at = further
    assert limit_offsets(at, ends, None) == ends


def test_offsets_of_a_stream_survive_a_checkpoint() -> None:
    one, two = LogIdentity("a", ID, 0), LogIdentity("a", ID, 1)
    offset = json.loads(json.dumps(encode_stream_offset({one: 5, two: 7}, {two: 3})))
    assert decode_stream_offset(offset) == ({("a", 0): 5, ("a", 1): 7}, {"a": ID})
    assert offset["a"]["found"] == {"1": 3}


def test_options(plan: str) -> None:
    asked = parse_read_options(
        {"Topology": plan, "CLUSTER": "b", "topics": "x, y.*", "startingoffsets": '{"x": {"0": 5, "1": -1}}'}
    )
    assert asked.cluster.alias == "b"
    assert [asked.topics.selects(name) for name in ("x", "y.z", "z", "__y.z")] == [True, True, False, False]
    assert asked.starting == {"x": {0: 5, 1: LATEST}}
    assert asked.ending == LATEST
    assert parse_read_options(ok(plan, startingOffsets="earliest", partitions="0,2-4")).starting == EARLIEST
    assert parse_read_options(ok(plan, partitions="0,2-4")).partitions == {0, 2, 3, 4}
    assert (
        parse_write_options({"topology": plan, "cluster": "a", "topic": "x", "transactionTimeout": "30"}).timeout == 30
    )


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"cluster": ""}, "the option cluster is missing: .* has a, b"),
        ({"topology": ""}, "the option topology is missing"),
        ({"topology": "/nowhere.json"}, "cannot be read"),
        ({"partitions": "1-x"}, "`1-x` is neither a number nor a range"),
        ({"chunk": "0"}, "chunk=0 is not a whole number of at least 1"),
        ({"pushdown": "yes"}, "pushdown=yes is neither true nor false"),
        ({"startingOffsets": "earliest", "startingTimestamp": "5"}, "both given"),
        ({"endingOffsets": '{"x": {"0": -3}}'}, "-2 is earliest"),
        ({"endingOffsets": '{"x": 5}'}, "endingOffsets="),
        ({"topic": "x"}, "no option topic here"),
    ],
)
def test_options_that_make_no_sense(plan: str, options: dict[str, str], told: str) -> None:
    with pytest.raises(SparkError, match=told):
        parse_read_options(ok(plan, **options))


def ok(plan: str, **more: str) -> dict[str, str]:
    return {"topology": plan, "cluster": "a", "topics": "x"} | more


def row_of(raw: bytes, **more: Any) -> dict[str, Any]:
    head = HEADER_STRUCT.unpack_from(raw)
    attributes = head[5]
    return (
        dict.fromkeys(BATCH_COLUMNS)
        | {
            "partition": 0,
            "base_offset": head[0],
            "last_offset": head[0] + head[6],
            "count": head[12],
            "codec": "none",
            "timestamp_type": "append" if attributes & LOG_APPEND_TIME else "create",
            "first_timestamp_ms": head[7],
            "max_timestamp_ms": head[8],
            "producer_id": head[9],
            "producer_epoch": head[10],
            "sequence": head[11],
            "attributes": attributes,
            "crc": head[4],
            "payload": raw[HEADER_BYTES:],
        }
        | more
    )


LOG = [ConsumedRecord(b"a", b"1", 50), ConsumedRecord(b"b", None, 40, (("h", None),)), ConsumedRecord(b"c", b"3", 60)]


def test_a_row_is_its_batch_again_to_the_byte() -> None:
    raw = batch_bytes(LOG, 700, producer=9)
    assert bytes(build_batch_from_row(row_of(raw)).data)[21:] == raw[21:]
    by_hand = row_of(raw, crc=None, base_offset=None, last_offset=None)  # as somebody may make it himself
    assert bytes(build_batch_from_row(by_hand).data)[HEADER_BYTES:] == raw[HEADER_BYTES:]


def test_append_times_and_holes_are_packed_anew() -> None:
    stamped = decode_records(build_batch_from_row(row_of(batch_bytes(LOG, 700, attributes=LOG_APPEND_TIME))))
    assert [record.timestamp for record in stamped] == [60, 60, 60]
    raw = bytearray(batch_bytes(LOG, 700))
    raw[23:27] = (9).to_bytes(4, "big")  # seven records behind these three were compacted away
    packed = build_batch_from_row(row_of(bytes(raw), crc=None))
    assert packed.records == packed.end - packed.base - 7 == 3
    assert HEADER_STRUCT.unpack_from(packed.data)[6] == 2
    assert [decode_record_fields(record.rest).key for record in decode_records(packed)] == [b"a", b"b", b"c"]


def test_a_changed_payload_is_refused() -> None:
    row = row_of(batch_bytes(LOG, 700))
    with pytest.raises(NotAppended, match="batch at offset 700: its checksum does not fit"):
        build_batch_from_row(row | {"payload": row["payload"] + b"?"})
