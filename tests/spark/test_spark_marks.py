"""Batches that another tool brought to the source: a proof does not count them, whatever their codec is."""

from __future__ import annotations

import gzip
import struct
import uuid
from typing import Any, cast

import pytest
from crc32c import crc32c

from watershed.clusters.record_batch import BatchRecord, assign_batch_offset, build_batch
from watershed.clusters.settings import ConnectionSettings
from watershed.spark.errors import NotReadable
from watershed.spark.reading import range_reader
from watershed.spark.reading.batch_headers import find_batch_edges
from watershed.spark.reading.external_marks import ExternalMarks
from watershed.spark.reading.fetch_answers import FetchAnswer, PartitionAddress
from watershed.spark.reading.offset_range import OffsetRange
from watershed.spark.reading.range_address import build_partition_address
from watershed.spark.reading.range_reader import read_all_fingerprints
from watershed.spark.reading.range_requests import RangeRequest
from watershed.topology.plan import PlanCluster

SETTINGS = ConnectionSettings("onprem", ("localhost:1",))
MARK, OTHER = ("mark", None), ("remark", b"mark")


def stored(
    base: int, *headers: tuple[tuple[str, bytes | None], ...], codec: str = "none", producer_id: int = -1
) -> bytes:
    records = [BatchRecord(at, 1_000, b"mark", b"the mark", each) for at, each in enumerate(headers)]
    return assign_batch_offset(build_batch(records, codec=codec, producer_id=producer_id), base, 0)


def read(monkeypatch: pytest.MonkeyPatch, log: bytes, *headers: str, flows: tuple[int, ...] = ()) -> list[int]:
    """Offsets that count."""

    def answer(_address: Any, span: OffsetRange, _connections: Any, **_more: Any) -> Any:
        yield FetchAnswer(span.start, memoryview(log), find_batch_edges(memoryview(log)))

    monkeypatch.setattr(range_reader, "fetch_range", answer)
    address = PartitionAddress(SETTINGS, "orders", uuid.UUID(int=1), 0, marks=ExternalMarks(headers, flows))
    found = read_all_fingerprints(address, OffsetRange(0, 100), cast(Any, object()))
    return [int(offset) for offset in found.offset]


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_only_whole_batches_with_the_header_are_left_out(monkeypatch: pytest.MonkeyPatch, codec: str) -> None:
    log = b"".join(
        (
            stored(0, (), (OTHER,), codec=codec),
            stored(2, (MARK,), (OTHER, MARK), codec=codec),
            stored(4, (MARK,), (), codec=codec),  # the worker halts there
            stored(6, (OTHER,), codec=codec),
        )
    )
    assert read(monkeypatch, log) == [0, 1, 2, 3, 4, 5, 6]
    assert read(monkeypatch, log, "mark") == [0, 1, 4, 5, 6]
    assert read(monkeypatch, log, "mark", "remark") == [0, 1, 4, 5]
    assert read(monkeypatch, log, "ma") == [0, 1, 2, 3, 4, 5, 6]


def test_what_one_of_our_flows_wrote_counts_whatever_its_records_have(monkeypatch: pytest.MonkeyPatch) -> None:
    log = stored(0, (MARK,), producer_id=7) + stored(1, (MARK,), producer_id=8)
    assert read(monkeypatch, log, "mark", flows=(7,)) == [0]


def test_a_batch_that_cannot_be_opened_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    good = stored(0, (MARK,), codec="gzip")
    body = gzip.compress(b"\x7f" * 3, mtime=0)
    checked = good[21:61] + body
    broken = struct.pack(">qiibI", 0, 9 + len(checked), 0, 2, crc32c(checked)) + checked
    with pytest.raises(NotReadable, match="orders-0 on onprem"):
        read(monkeypatch, broken, "mark")


def test_a_request_hands_its_marks_to_the_reader() -> None:
    request = RangeRequest(0, "onprem", "orders", str(uuid.UUID(int=1)), 0, 0, 9, marks=ExternalMarks(("mark",), (7,)))
    address = build_partition_address(PlanCluster("onprem", ("localhost:1",)), request)
    assert address.marks == request.marks
