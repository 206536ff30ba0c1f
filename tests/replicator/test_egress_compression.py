"""Which batches are compressed before they are sent, and that nothing but their bytes becomes different."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from tests.replicator.build import (
    answer,
    batch_of,
    commit,
    damaged,
    data,
    transactional,
    with_attributes,
    with_crc,
)
from watershed.clusters.record_batch import (
    BatchRecord,
    assign_batch_offset,
    build_batch,
    compute_batch_crc,
    decode_batch_header,
)
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.messages import ProducedPartition
from watershed.replicator.batch.batch_selection import select_batches
from watershed.replicator.batch.egress_compression import compress_batch
from watershed.replicator.batch.filler_batch import is_filler_batch
from watershed.replicator.batch.header_rewrite import BATCH_HEADER_BYTES, rewrite_header
from watershed.replicator.batch.record_batch import RawBatch
from watershed.replicator.batch.records import RawRecord, decode_records
from watershed.replicator.batch.repack import RepackTerms
from watershed.replicator.copy.copy_state import SourceCursor, TargetProgress
from watershed.replicator.copy.partition_copy import PartitionCopy
from watershed.replicator.copy.repeatable_copy import RepeatableCopy
from watershed.replicator.partition_key import PartitionKey
from watershed.topology.egress_compression import CODEC_LEVELS, EgressCompression, build_egress_compression

KEY, IDS = PartitionKey("a-to-b", "orders", "orders", 0), (uuid.UUID(int=1), uuid.UUID(int=2))
ZSTD = EgressCompression("zstd", 3)
LEVELS = [
    EgressCompression(codec, level)
    for codec, levels in CODEC_LEVELS.items()
    for level in ((None,) if levels is None else levels)
]


def compress(batch: bytes, compression: EgressCompression = ZSTD) -> RawBatch:
    return compress_batch(batch_of(batch), compression)


@pytest.mark.parametrize("compression", LEVELS, ids=str)
def test_only_codec_length_and_crc_change(compression: EgressCompression) -> None:
    before = transactional(7, 40, producer_id=9)
    after = compress(before, compression)
    head, was = decode_batch_header(after.data), decode_batch_header(before)
    assert head.codec == after.codec > 0
    assert head.crc == compute_batch_crc(after.data)
    assert head.size == len(after.data) < len(before)
    assert replace(head, length=was.length, crc=was.crc, attributes=was.attributes) == was
    assert head.attributes & ~0x07 == was.attributes
    assert decode_records(after) == decode_records(batch_of(before))
    assert after.saved == len(before) - len(after.data)
    same = batch_of(before)
    assert after == same._replace(data=after.data, attributes=after.attributes, saved=after.saved)


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(data(0, 40, codec="gzip"), id="has a codec"),
        pytest.param(data(0, 1), id="gets no smaller"),
        pytest.param(commit(0, 7), id="a marker"),
        pytest.param(damaged(data(0, 40)), id="damaged: the target refuses it"),
        pytest.param(
            assign_batch_offset(build_batch([BatchRecord(at, 0, None, None) for at in range(40)]), 0, 0), id="of 1970"
        ),
    ],
)
def test_as_it_is(batch: bytes) -> None:
    assert compress(batch) == batch_of(batch)


def test_no_batch_of_an_application_becomes_filler() -> None:
    """Filler is empty records of 1970 in zstd (`replicator.copy.loop_guard`); it is carried on by no flow."""
    empty = assign_batch_offset(build_batch([BatchRecord(at, 0, None, None) for at in range(40)]), 0, 0)
    assert is_filler_batch(batch_of(empty)), "by its content"
    assert compress(empty).codec == 0


def test_the_damage_of_one_batch_is_not_hidden_and_keeps_no_other_back() -> None:
    good, bad = data(0, 40), damaged(data(40, 40))
    selected = select_batches(answer(good, bad), 0, terms=RepackTerms(small=0, compression=ZSTD))
    first, second = selected.batches
    assert (first.codec, second.codec) == (4, 0)
    head = decode_batch_header(bytes(second.data))
    assert head.crc != compute_batch_crc(second.data)


def test_what_was_merged_or_repacked_is_compressed_then() -> None:
    stamped = with_crc(with_attributes(data(40, 40), 0x08))
    tiny = [data(at, 1, size=90) for at in range(40)]
    terms = RepackTerms(compression=ZSTD)
    batches = select_batches(answer(*tiny, stamped, data(80, 40, offsets=range(0, 40, 2), span=40)), 0, terms=terms)
    plain = select_batches(answer(*tiny, stamped, data(80, 40, offsets=range(0, 40, 2), span=40)), 0)
    assert [each.codec for each in batches.batches] == [4] * len(plain.batches)
    for packed, batch in zip(batches.batches, plain.batches, strict=True):
        assert packed.spans == batch.spans
        assert decode_records(packed) == decode_records(batch)
    assert batches._replace(batches=[]) == plain._replace(batches=[])


def test_an_id_that_was_rewritten_is_compressed_then() -> None:
    def change(record: RawRecord) -> RawRecord:
        return record._replace(rest=record.rest.replace(b"v", b"w"))

    terms = RepackTerms(change=lambda: change, compression=ZSTD)
    (batch,) = select_batches(answer(data(0, 40)), 0, terms=terms).batches
    assert batch.codec == 4
    assert all(b"wwwww" in record.rest for record in decode_records(batch))


def test_the_header_that_is_sent_fits_the_compressed_bytes() -> None:
    batch = compress(transactional(7, 40, producer_id=9))
    header = rewrite_header(batch.data[:BATCH_HEADER_BYTES], producer_id=3, epoch=2, sequence=11)
    sent = header + batch.data[BATCH_HEADER_BYTES:]
    head = decode_batch_header(sent)
    assert head.crc == compute_batch_crc(sent)
    assert (head.codec, head.count, head.last_offset_delta, head.base_sequence) == (4, 40, 39, 11)


def test_what_was_saved_is_counted_when_it_is_stored() -> None:
    copy = RepeatableCopy(KEY, *IDS, SourceCursor(0), TargetProgress(0))
    batch = data(0, 400)
    copy.accept(select_batches(answer(batch), 0, terms=RepackTerms(small=0, compression=ZSTD)))
    outgoing = copy.next_outgoing()
    assert outgoing is not None
    assert copy.queue.buffered == outgoing.size < len(batch), "memory is what is held"
    assert copy.queue.buffered + copy.queue.saved == len(batch)
    assert (copy.progress.copied_bytes, copy.progress.saved_bytes) == (0, 0)
    copy.answered(ProducedPartition(IDS[1], 0, error_codes.NONE, 0, 0, ""))
    assert copy.progress.copied_bytes == len(batch)
    assert copy.progress.saved_bytes == len(batch) - outgoing.size
    assert copy.queue.buffered == copy.queue.saved == 0


def test_batches_that_were_large_before_do_not_crowd() -> None:
    """They cannot be merged with their neighbours, so leaving them on the source would only cost time."""
    large = [data(1000 * number, 1000) for number in range(6)]
    crowded: dict[bool, bool] = {}
    for compression in (None, ZSTD):
        copy = RepeatableCopy(KEY, *IDS, SourceCursor(0), TargetProgress(0))
        copy.accept(select_batches(answer(*large), 0, terms=RepackTerms(compression=compression)))
        assert isinstance(copy, PartitionCopy)
        assert len(copy.queue.ready) == 6
        crowded[compression is not None] = copy.is_crowded
    assert crowded == {False: False, True: False}
    assert copy.queue.buffered < 6 * 8192


@pytest.mark.parametrize(
    ("codec", "level", "told"),
    [("lz4", 13, "`level: 13` does not exist for lz4; it has 1 to 12"), ("snappy", 1, "codec snappy takes no `level`")],
)
def test_a_level_that_the_codec_lacks(codec: str, level: int, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        build_egress_compression(codec, level)


def test_levels_where_none_is_said() -> None:
    assert [str(build_egress_compression(codec)) for codec in CODEC_LEVELS] == [
        "zstd, level 3", "lz4, level 1", "gzip, level 6", "snappy",
    ]  # fmt: skip
    assert build_egress_compression("none") is None
