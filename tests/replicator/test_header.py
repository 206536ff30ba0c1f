"""The rewritten header: the CRC by delta, and nothing changed that may not change."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import choose_examples
from watershed.clusters.record_batch import (
    RECORD_BATCH_HEADER_BYTES,
    BatchRecord,
    assign_batch_offset,
    build_batch,
    compute_batch_crc,
    decode_batch_header,
    decode_batch_records,
)
from watershed.replicator.batch.header_rewrite import rewrite_header

identities = {
    "producer_id": st.integers(0, 2**63 - 1),
    "epoch": st.integers(0, 2**15 - 1),
    "sequence": st.integers(0, 2**31 - 1),
}
contents = st.none() | st.binary(max_size=300)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """As stored on a source: any producer, codec, times, and place."""
    count = draw(st.integers(1, 6))
    records = [
        BatchRecord(delta, draw(st.integers(-1, 2**41)), draw(contents), draw(contents), (("h", draw(contents)),))
        for delta in range(count)
    ]
    batch = build_batch(
        records,
        codec=draw(st.sampled_from(("none", "gzip"))),
        producer_id=draw(st.integers(-1, 2**63 - 1)),
        epoch=draw(st.integers(-1, 2**15 - 1)),
        base_sequence=draw(st.integers(-1, 2**31 - 1)),
        transactional=draw(st.booleans()),
    )
    return assign_batch_offset(batch, draw(st.integers(0, 2**62)), draw(st.integers(-1, 2**31 - 1)))


@given(batches(), *identities.values())
@settings(max_examples=choose_examples(60, 200), deadline=None)
def test_crc_by_delta_is_the_crc(batch: bytes, producer_id: int, epoch: int, sequence: int) -> None:
    head = rewrite_header(batch[:RECORD_BATCH_HEADER_BYTES], producer_id=producer_id, epoch=epoch, sequence=sequence)
    sent = head + batch[RECORD_BATCH_HEADER_BYTES:]
    assert decode_batch_header(sent).crc == compute_batch_crc(sent)


@given(batches(), *identities.values())
@settings(max_examples=choose_examples(30, 100), deadline=None)
def test_only_what_must_change_changes(batch: bytes, producer_id: int, epoch: int, sequence: int) -> None:
    before = decode_batch_header(batch)
    sent = (
        rewrite_header(batch[:RECORD_BATCH_HEADER_BYTES], producer_id=producer_id, epoch=epoch, sequence=sequence)
        + batch[RECORD_BATCH_HEADER_BYTES:]
    )
    after = decode_batch_header(sent)
    assert (after.base_offset, after.leader_epoch) == (0, -1)
    assert (after.producer_id, after.producer_epoch, after.base_sequence) == (producer_id, epoch, sequence)
    assert after.attributes == before.attributes & 0x07
    for kept in ("length", "magic", "last_offset_delta", "base_timestamp", "max_timestamp", "count"):
        assert getattr(after, kept) == getattr(before, kept), kept
    assert [(r.timestamp, r.key, r.value, r.headers) for r in decode_batch_records(sent)] == [
        (r.timestamp, r.key, r.value, r.headers) for r in decode_batch_records(batch)
    ]


@pytest.mark.parametrize("bits", [0x08, 0x10, 0x20, 0x40, 0x80, 0x7FF8], ids=hex)
def test_attributes_beside_the_codec_are_cleared(bits: int) -> None:
    """LogAppendTime, transactional, control, delete horizon, and what no version uses yet."""
    batch = bytearray(build_batch([BatchRecord(0, 5, b"k", b"v")], codec="gzip"))
    batch[21:23] = (int.from_bytes(batch[21:23], "big") | bits).to_bytes(2, "big")
    batch[17:21] = compute_batch_crc(batch).to_bytes(4, "big")
    sent = (
        rewrite_header(batch[:RECORD_BATCH_HEADER_BYTES], producer_id=1, epoch=0, sequence=0)
        + batch[RECORD_BATCH_HEADER_BYTES:]
    )
    assert decode_batch_header(sent).attributes == 0x01
    assert decode_batch_header(sent).crc == compute_batch_crc(sent)


@given(batches(), st.data())
@settings(max_examples=choose_examples(30, 100), deadline=None)
def test_damage_is_not_laundered(batch: bytes, data: st.DataObject) -> None:
    """One flipped bit behind the header, or in the timestamps or counts: the target must see a wrong CRC."""
    damaged = bytearray(batch)
    at = data.draw(st.integers(23, 42) | st.integers(57, len(batch) - 1))
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    sent = (
        rewrite_header(damaged[:RECORD_BATCH_HEADER_BYTES], producer_id=3, epoch=0, sequence=9)
        + damaged[RECORD_BATCH_HEADER_BYTES:]
    )
    assert decode_batch_header(sent).crc != compute_batch_crc(sent)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65_537, 1_048_576, 3_000_001])
def test_payload_sizes(size: int) -> None:
    batch = build_batch([BatchRecord(0, 7, None, bytes(size))])
    sent = rewrite_header(memoryview(batch)[:RECORD_BATCH_HEADER_BYTES], producer_id=2**40, epoch=1, sequence=2**31 - 1)
    sent += batch[RECORD_BATCH_HEADER_BYTES:]
    assert decode_batch_header(sent).crc == compute_batch_crc(sent)


@pytest.mark.parametrize(
    ("producer_id", "epoch", "sequence"),
    [(-1, 0, 0), (5, -1, 0), (5, 0, -1), (5, 0, 2**31), (-1, -1, -1)],
)
def test_no_identity_is_refused(producer_id: int, epoch: int, sequence: int) -> None:
    """Producer id -1 would be written without any protection."""
    batch = build_batch([BatchRecord(0, 7, None, b"v")])
    with pytest.raises(ValueError, match="no producer identity"):
        rewrite_header(batch[:RECORD_BATCH_HEADER_BYTES], producer_id=producer_id, epoch=epoch, sequence=sequence)
