"""Records out of batches and into batches, against the plain reader and builder of `clusters.record_batch`."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import choose_examples
from tests.replicator.build import NOW, batch_of, damaged, data, with_attributes, with_crc
from watershed.clusters import record_batch as plain
from watershed.clusters.record_batch import assign_batch_offset, build_batch, compute_batch_crc, decode_batch_header
from watershed.replicator.batch.codecs import GZIP, NONE
from watershed.replicator.batch.records import (
    RawRecord,
    build_raw_batch,
    decode_record_bodies,
    decode_record_fields,
    decode_records,
    encode_key_and_value,
)
from watershed.replicator.errors import BadBatch

BYTES = st.one_of(st.none(), st.binary(max_size=20), st.binary(min_size=63, max_size=66).map(lambda b: b * 70))
HEADERS = st.lists(
    st.tuples(st.sampled_from(["", "a", "a", "trace", "é"]), st.one_of(st.none(), st.binary(max_size=9))), max_size=4
).map(tuple)


@st.composite
def logs(draw: st.DrawFn) -> list[plain.BatchRecord]:
    """Records at rising deltas, with holes, times in any order, nulls, repeated headers."""
    delta, found = -1, []
    for _ in range(draw(st.integers(1, 9))):
        delta += draw(st.sampled_from((1, 1, 1, 2, 70, 9_000)))
        time = draw(st.sampled_from((NOW, NOW + 1, NOW - 90, NOW + 10**9, -1, 0)))
        found.append(plain.BatchRecord(delta, time, draw(BYTES), draw(BYTES), draw(HEADERS)))
    return found


@given(logs(), st.sampled_from(["none", "gzip"]), st.integers(0, 2**50))
@settings(max_examples=choose_examples(60, 200), deadline=None)
def test_out_and_in_again(records: list[plain.BatchRecord], codec: str, base: int) -> None:
    source = assign_batch_offset(build_batch(records, codec=codec), base, 4)
    opened = decode_records(batch_of(source))
    assert [(each.offset, each.timestamp) for each in opened] == [
        (base + each.offset, each.timestamp) for each in records
    ]
    assert [decode_record_fields(each.rest) for each in opened] == [
        (each.key, each.value, tuple((name.encode(), content) for name, content in each.headers)) for each in records
    ]
    batch = build_raw_batch(opened, GZIP if codec == "gzip" else NONE, base + 99_999, 4)
    head = decode_batch_header(batch.data)
    assert (head.count, head.last_offset_delta, head.crc) == (
        len(records),
        len(records) - 1,
        compute_batch_crc(batch.data),
    )
    assert (head.codec, head.attributes, head.producer_id) == (batch.codec, batch.codec, -1)
    assert head.max_timestamp == batch.max_timestamp == max(each.timestamp for each in records)
    assert (batch.base, batch.end, batch.records) == (base + records[0].offset, base + 99_999, len(records))
    again = plain.decode_batch_records(batch.data)
    assert [(each.timestamp, each.key, each.value, each.headers) for each in again] == [
        (each.timestamp, each.key, each.value, each.headers) for each in records
    ]
    offsets = [offset for first, count in batch.spans for offset in range(first, first + count)]
    assert (
        offsets == [base + each.offset for each in records] == [batch.source_offset(at) for at in range(len(records))]
    )
    assert all(first + count < after for (first, count), (after, _) in zip(batch.spans, batch.spans[1:], strict=False))


def test_a_thousand_records_have_offset_deltas_of_two_bytes() -> None:
    batch = build_raw_batch(decode_records(batch_of(data(7, 20_000))), NONE, 20_007)
    assert batch.spans == ((7, 20_000),)
    assert [each.offset for each in plain.decode_batch_records(batch.data)] == list(range(7, 20_007))


def test_append_time_is_every_records_time() -> None:
    stamped = with_attributes(data(5, 3), 0x08)
    newest = decode_batch_header(stamped).max_timestamp
    assert [each.timestamp for each in decode_records(batch_of(with_crc(stamped)))] == [newest] * 3


def test_a_delete_horizon_is_no_timestamp() -> None:
    """Bit 6: the field of the first timestamp holds the horizon, and the records count from it (KIP-534)."""
    records = [plain.BatchRecord(0, NOW, b"k", None), plain.BatchRecord(1, NOW + 5, b"l", b"v")]
    held = with_crc(with_attributes(assign_batch_offset(build_batch(records), 0, 0), 0x40))
    batch = build_raw_batch(decode_records(batch_of(held)), NONE, 2)
    assert [each.timestamp for each in plain.decode_batch_records(batch.data)] == [NOW, NOW + 5]
    assert batch.attributes == 0


def test_encoded() -> None:
    assert decode_record_fields(encode_key_and_value(None, b"")) == (None, b"", ())
    assert decode_record_fields(encode_key_and_value(b"k" * 200, None)) == (b"k" * 200, None, ())


def changed(count: int | None = None, cut: int = 0, extra: bytes = b"") -> bytes:
    """A batch of three records at offset 8 whose header or payload says something else; its CRC is right."""
    batch = data(8, 3)
    batch = batch[: len(batch) - cut] + extra
    batch = batch[:8] + struct.pack(">i", len(batch) - 12) + batch[12:]
    if count is not None:
        batch = batch[:57] + struct.pack(">i", count) + batch[61:]
    return with_crc(batch)


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (damaged(data(8, 3)), "damaged"),
        (changed(count=2), "bytes behind its last record"),
        (changed(count=4), "cut off"),
        (changed(cut=1), "contradict its header"),
        (changed(cut=15), "contradict|cut off"),
        (changed(extra=b"\0"), "1 bytes behind"),
        (with_crc(data(8, offsets=(0, 1, 5), span=4)), "behind its own end"),
        (with_crc(data(8, offsets=(1, 1))), "contradict"),
        (with_crc(data(8, offsets=(2, 1))), "contradict"),
        (with_crc(with_attributes(data(8, 3), 1)), "gzip data cannot be read"),
    ],
)
def test_what_cannot_be_trusted(batch: bytes, reason: str) -> None:
    with pytest.raises(BadBatch, match=f"source offset 8: .*({reason})") as caught:
        decode_records(batch_of(batch))
    assert caught.value.state == "rejected"
    assert caught.value.passing == (reason == "damaged")


@given(st.binary(max_size=80), st.integers(1, 5))
@settings(max_examples=choose_examples(100, 300), deadline=None)
def test_no_bytes_end_otherwise_than_as_records_or_refused(body: bytes, count: int) -> None:
    try:
        found = decode_record_bodies(body, count, 0, NOW)
    except (ValueError, IndexError):
        return
    assert len(found) == count
    assert all(isinstance(each, RawRecord) for each in found)
