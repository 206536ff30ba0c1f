"""One fingerprint, three engines: the C library record by record, numpy on raw batches, Spark SQL."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest
import xxhash
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from watershed.clusters.record_fingerprint import encode_headers_bin
from watershed.clusters.varints import encode_zigzag
from watershed.spark.fingerprint import (
    SPARK_SQL,
    ChunkSum,
    ConsumedRecord,
    fingerprint_records,
    fingerprint_slices,
    sum_fingerprints,
)
from watershed.spark.reading.batch_decoding import (
    CorruptBatch,
    locate_payload_records,
    locate_records,
    split_checked_batches,
)
from watershed.spark.reading.xxh64 import hash_slices

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

texts = st.one_of(st.none(), st.binary(max_size=40), st.binary(min_size=150, max_size=400))
headers = st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=5))), max_size=3)
records = st.lists(
    st.builds(ConsumedRecord, texts, texts, st.integers(0, 2**42), headers.map(tuple)), min_size=1, max_size=20
)


def batch_bytes(
    batch: list[ConsumedRecord], base: int, *, attributes: int = 0, producer: int = -1, payload: bytes | None = None
) -> bytes:
    """A record batch as a broker stores it (uncompressed unless `payload` is given)."""
    first = batch[0].timestamp
    body = b""
    for delta, record in enumerate(batch):
        key = encode_zigzag(-1) if record.key is None else encode_zigzag(len(record.key)) + record.key
        value = encode_zigzag(-1) if record.value is None else encode_zigzag(len(record.value)) + record.value
        rest = b"\x00" + encode_zigzag(record.timestamp - first) + encode_zigzag(delta) + key + value
        rest += encode_headers_bin(record.headers)
        body += encode_zigzag(len(rest)) + rest
    newest = max(record.timestamp for record in batch)
    head = (attributes, len(batch) - 1, first, newest, producer, 0, 0, len(batch))
    checked = struct.pack(">hiqqqhii", *head) + (body if payload is None else payload)
    return struct.pack(">qiibI", base, 9 + len(checked), 0, 2, crc32c(checked)) + checked


@given(st.lists(st.tuples(st.binary(max_size=200), st.integers(0, 2**64 - 1)), min_size=1, max_size=40), st.booleans())
def test_many_hashes_at_once_equal_the_library(pieces: list[tuple[bytes, int]], many: bool) -> None:
    pieces = pieces * (257 // len(pieces) + 1) if many else pieces  # few go to the library one by one
    data = np.frombuffer(b"".join(piece for piece, _ in pieces) + bytes(8), dtype=np.uint8)
    lengths = np.array([len(piece) for piece, _ in pieces], dtype=np.int64)
    seeds = np.array([seed for _, seed in pieces], dtype=np.uint64)
    answer = hash_slices(data, np.cumsum(lengths) - lengths, lengths, seeds)
    assert answer.tolist() == [xxhash.xxh64_intdigest(piece, seed) for piece, seed in pieces]


@given(st.lists(records, min_size=1, max_size=4), st.booleans())
def test_raw_batches_give_the_fingerprints_of_their_records(logs: list[list[ConsumedRecord]], many: bool) -> None:
    logs = logs * 10 if many else logs  # from 24 batches on they are walked side by side
    raw, base = b"", 1000
    for log in logs:
        raw += batch_bytes(log, base)
        base += len(log)
    fast = fingerprint_slices(locate_records(list(split_checked_batches(memoryview(raw)))))
    plain = fingerprint_records([record for log in logs for record in log], 1000)
    for column in ("offset", "fp", "kh", "vh", "hh", "ts", "size"):
        assert getattr(fast, column).tolist() == getattr(plain, column).tolist(), column
    assert sum_fingerprints(fast) == sum_fingerprints(plain)


@given(records, st.integers(0, 20))
def test_sums_of_neighbours_add_up(log: list[ConsumedRecord], at: int) -> None:
    whole = fingerprint_records(log)
    left, right = whole.between(0, at), whole.between(at, len(log))
    joined = sum_fingerprints(left) + sum_fingerprints(right)
    assert joined == sum_fingerprints(whole)
    assert sum_fingerprints(whole) + ChunkSum() == sum_fingerprints(whole)


def test_what_the_fingerprint_tells_apart() -> None:
    base = ConsumedRecord(b"k", b"v", 5, (("h", b"1"), ("i", b"2")))
    others = [
        ConsumedRecord(b"k", b"", 5, base.headers),
        ConsumedRecord(b"k", None, 5, base.headers),
        ConsumedRecord(None, b"v", 5, base.headers),
        ConsumedRecord(b"", b"v", 5, base.headers),
        ConsumedRecord(b"v", b"k", 5, base.headers),
        ConsumedRecord(b"k", b"v", 6, base.headers),
        ConsumedRecord(b"k", b"v", 5),
        ConsumedRecord(b"k", b"v", 5, (("i", b"2"), ("h", b"1"))),
        ConsumedRecord(b"k", b"v", 5, (("h", b"1"), ("i", b"2"), ("i", b"2"))),
        ConsumedRecord(b"k", b"v", 5, (("h", None), ("i", b"2"))),
        ConsumedRecord(b"k", b"v", 5, (("h", b""), ("i", b"2"))),
        ConsumedRecord(b"k", b"v", 5, (("h1", b""), ("i", b"2"))),
    ]
    prints = fingerprint_records([base, *others])
    assert len(set(prints.fp.tolist())) == len(others) + 1


def test_order_counts_but_not_for_the_multiset() -> None:
    one, two = ConsumedRecord(b"a", b"1", 1), ConsumedRecord(b"b", b"2", 2)
    left, right = sum_fingerprints(fingerprint_records([one, two])), sum_fingerprints(fingerprint_records([two, one]))
    assert left.has_same_records(right)
    assert not left.equals(right)


def test_a_damaged_batch_is_named() -> None:
    raw = bytearray(batch_bytes([ConsumedRecord(b"k", b"value", 1)], 77))
    raw[-3] ^= 1
    with pytest.raises(CorruptBatch, match="offset 77"):
        list(split_checked_batches(memoryview(raw)))


def test_a_cut_off_batch_is_left_out() -> None:
    raw = batch_bytes([ConsumedRecord(b"k", b"value", 1)], 0)
    assert len(list(split_checked_batches(memoryview(raw + raw[:-1])))) == 1


@pytest.mark.spark
def test_spark_sql_gives_the_same_hashes(spark: SparkSession) -> None:
    rng = random.Random(7)
    log = [
        ConsumedRecord(
            rng.choice([None, b"", rng.randbytes(rng.randrange(60))]),
            rng.choice([None, b"", rng.randbytes(rng.randrange(400))]),
            rng.randrange(2**42),
            tuple(("h", rng.choice([None, b"x"])) for _ in range(rng.randrange(3))),
        )
        for _ in range(300)
    ]
    frame = spark.createDataFrame(
        [(i, r.key, r.value, encode_headers_bin(r.headers), r.timestamp) for i, r in enumerate(log)],
        "i bigint, key binary, value binary, headers_bin binary, timestamp_ms bigint",
    )
    for name, expression in SPARK_SQL.items():
        frame = frame.selectExpr("*", f"{expression} as {name}")
    halves = frame.selectExpr("count(*) n", "sum(fp & 4294967295) m_lo", "sum(shiftrightunsigned(fp, 32)) m_hi").first()
    rows = frame.orderBy("i").select("kh", "vh", "hh", "fp").collect()
    prints = fingerprint_records(log)
    for name in ("kh", "vh", "hh", "fp"):
        assert [row[name] for row in rows] == getattr(prints, name).view(np.int64).tolist(), name
    sums = sum_fingerprints(prints)
    assert halves is not None
    assert tuple(halves) == (sums.n, sums.m_lo, sums.m_hi)


@pytest.mark.parametrize("count", [-1, 4, 1 << 30])
@pytest.mark.parametrize("batches", [1, 30])
def test_memory_is_taken_for_records_that_fit_only(count: int, batches: int) -> None:
    """A header may announce a thousand million records in twenty bytes."""
    counts = np.zeros(batches, dtype=np.int64)
    counts[-1] = count
    numbers = np.arange(batches, dtype=np.int64)
    with pytest.raises(CorruptBatch, match=rf"offset {batches - 1}: {count} records in 20 bytes"):
        locate_payload_records([b"\0" * 20] * batches, numbers, counts, numbers, numbers, np.zeros(batches, dtype=bool))
