"""Codecs against another implementation (Arrow's), and bytes that are not what they say."""

from __future__ import annotations

import struct
import zlib

import cramjam
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watershed.replicator.batch import codecs
from watershed.replicator.batch.codecs import (
    CODEC_NAMES,
    GZIP,
    LZ4,
    MAX_DECOMPRESSED_BYTES,
    NONE,
    SNAPPY,
    ZSTD,
    CodecError,
    compress_payload,
    decompress_payload,
)

ALL = tuple(range(5))
TEXT = b"a line that comes again and again\n" * 5_000


@pytest.mark.parametrize("codec", ALL, ids=CODEC_NAMES.__getitem__)
@given(raw=st.one_of(st.binary(max_size=300), st.binary(max_size=40).map(lambda each: each * 4_000)))
@settings(max_examples=30, deadline=None)
def test_what_was_packed_is_unpacked(codec: int, raw: bytes) -> None:
    packed = compress_payload(codec, raw)
    assert decompress_payload(codec, packed) == raw
    assert decompress_payload(codec, memoryview(bytearray(b"x" + packed))[1:]) == raw


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD], ids=CODEC_NAMES.__getitem__)
def test_others_read_what_we_pack(codec: int) -> None:
    with pa.input_stream(pa.py_buffer(compress_payload(codec, TEXT)), compression=CODEC_NAMES[codec]) as stream:
        assert stream.read() == TEXT


@pytest.mark.parametrize("codec", [SNAPPY, GZIP, LZ4, ZSTD], ids=CODEC_NAMES.__getitem__)
def test_we_read_what_others_pack(codec: int) -> None:
    """Arrow's snappy is bare, as that of librdkafka."""
    assert decompress_payload(codec, pa.compress(TEXT, codec=CODEC_NAMES[codec], asbytes=True)) == TEXT


def test_snappy_has_the_frame_that_java_reads() -> None:
    packed = compress_payload(SNAPPY, TEXT)
    assert packed.startswith(b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1))
    at, raw = 16, b""
    while at < len(packed):
        (size,) = struct.unpack_from(">i", packed, at)
        block = pa.decompress(packed[at + 4 : at + 4 + size], len(TEXT[len(raw) : len(raw) + (32 << 10)]), "snappy")
        raw, at = raw + bytes(block), at + 4 + size
    assert raw == TEXT


def test_lz4_blocks_are_independent_as_java_demands() -> None:
    flags = compress_payload(LZ4, TEXT)[4]
    assert flags >> 6 == 1  # the frame's version
    assert flags & 0x20  # KafkaLZ4BlockInputStream: "Dependent block stream is unsupported"


def test_several_gzip_members() -> None:
    assert decompress_payload(GZIP, compress_payload(GZIP, b"one") + compress_payload(GZIP, b"two")) == b"onetwo"


def test_a_frame_that_says_little_and_holds_much() -> None:
    raw = bytes(3 << 20)
    for codec in (GZIP, LZ4, ZSTD):
        assert decompress_payload(codec, compress_payload(codec, raw)) == raw


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD], ids=CODEC_NAMES.__getitem__)
def test_more_than_any_batch_holds_is_refused(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codecs, "MAX_DECOMPRESSED_BYTES", 1 << 20)
    with pytest.raises(CodecError, match=f"{CODEC_NAMES[codec]} data holds more than"):
        decompress_payload(codec, compress_payload(codec, bytes((1 << 20) + 1)))
    assert len(decompress_payload(codec, compress_payload(codec, bytes(1 << 20)))) == 1 << 20
    assert MAX_DECOMPRESSED_BYTES == 128 << 20


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD], ids=CODEC_NAMES.__getitem__)
@pytest.mark.parametrize("cut", [0, 1, 5, 17, -1])
def test_cut_off(codec: int, cut: int) -> None:
    packed = compress_payload(codec, TEXT)[:cut]
    if codec == GZIP and not packed:
        assert decompress_payload(codec, packed) == b""
        return
    with pytest.raises(CodecError, match=CODEC_NAMES[codec]):
        decompress_payload(codec, packed)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD], ids=CODEC_NAMES.__getitem__)
@given(packed=st.binary(min_size=1, max_size=60))
@settings(max_examples=60, deadline=None)
def test_nonsense_is_undecodable_or_something(codec: int, packed: bytes) -> None:
    """No other error than the one that the caller expects."""
    for data in (packed, compress_payload(codec, b"abc")[:7] + packed):
        try:
            assert isinstance(decompress_payload(codec, data), bytes)
        except CodecError:
            continue


def test_unknown_codecs() -> None:
    with pytest.raises(CodecError, match="codec 5 does not exist"):
        decompress_payload(5, b"")
    with pytest.raises(KeyError):
        compress_payload(6, b"")
    assert decompress_payload(NONE, memoryview(b"abc")) == b"abc"


def test_the_old_lz4_checksum_is_repaired_only_where_it_is_wrong() -> None:
    frame = bytes(cramjam.lz4.compress(TEXT))
    broken = frame[:6] + bytes([frame[6] ^ 0x5A]) + frame[7:]
    with pytest.raises(CodecError):
        decompress_payload(LZ4, broken)
    assert codecs.repair_lz4_frame(broken) == codecs.repair_lz4_frame(frame) == frame
    assert codecs.repair_lz4_frame(b"short") == b"short"
    assert zlib.crc32(decompress_payload(LZ4, codecs.repair_lz4_frame(broken))) == zlib.crc32(TEXT)
