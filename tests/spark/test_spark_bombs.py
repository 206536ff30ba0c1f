"""A small batch may hold gigabytes. A proof opens a bounded part of one, and hashes many a few at a time."""

from __future__ import annotations

import gzip

import pytest

from watershed.replicator.batch import codecs
from watershed.spark.reading import batch_decoding
from watershed.spark.reading.batch_decoding import CorruptBatch, decompress_bounded

BOUND = 1 << 20


@pytest.mark.parametrize(
    "codec", [codecs.GZIP, codecs.SNAPPY, codecs.LZ4, codecs.ZSTD], ids=codecs.CODEC_NAMES.__getitem__
)
def test_a_batch_is_opened_to_the_bound_and_no_further(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_decoding, "_MOST", BOUND)
    fits, bomb = (memoryview(codecs.compress_payload(codec, bytes(size))) for size in (BOUND, 64 * BOUND))
    assert bytes(decompress_bounded(codec, fits, 7)) == bytes(BOUND)
    with pytest.raises((CorruptBatch, ValueError), match=f"holds more than {BOUND} bytes"):
        decompress_bounded(codec, bomb, 7)


def test_raw_snappy_that_promises_much_is_refused_before_room_is_made() -> None:
    with pytest.raises(CorruptBatch, match="offset 7: it holds more than"):
        decompress_bounded(codecs.SNAPPY, memoryview(b"\xff\xff\xff\xff\x0f" + bytes(20)), 7)


def test_members_of_gzip_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_decoding, "_MOST", BOUND)
    with pytest.raises(ValueError, match=f"more than {BOUND} bytes"):
        decompress_bounded(codecs.GZIP, memoryview(gzip.compress(bytes(BOUND // 2)) * 3), 7)
