"""The codecs of record batches, by the number in a batch's attributes (org.apache.kafka.common.record.CompressionType).

What the Java client reads and writes: gzip; snappy in blocks with the frame of xerial's snappy-java, and bare snappy as
other clients write it; lz4 in frames of independent blocks (Java refuses linked ones); zstd frames. Levels are the
libraries' defaults, as they are the producers', where none is asked for.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

import cramjam
import xxhash

from watershed.clusters.bounded_gzip import GzipTooLarge, gunzip

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")
MAX_DECOMPRESSED_BYTES: Final = (
    128 << 20
)  # bytes of one batch; producers send at most max.request.size, 1 MiB by default

_Buffer = bytes | bytearray | memoryview

_GZIP_FRAME = 31  # zlib's name for "with gzip's frame"
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_FRONT = _XERIAL + struct.pack(">ii", 1, 1)  # version, and the oldest version that can read it
_XERIAL_BLOCK = 32 << 10  # SnappyOutputStream.DEFAULT_BLOCK_SIZE
_I32 = struct.Struct(">i")
_LZ4_MAGIC = b"\x04\x22\x4d\x18"


class CodecError(ValueError):
    """The bytes are not what their codec says, or hold more than may be opened."""


class DecompressedTooLarge(CodecError):
    """They hold more than may be opened."""


def compress_payload(codec: int, raw: _Buffer, level: int | None = None) -> bytes:
    """The payload of a v2 batch. level: of the codec (`topology.egress_compression.CODEC_LEVELS`); snappy has none.
    Raises KeyError for a codec that does not exist."""
    if codec == NONE:
        return bytes(raw)
    return _COMPRESS[codec](raw, level)


def decompress_payload(codec: int, packed: _Buffer, most: int | None = None) -> bytes:
    """Raises CodecError; DecompressedTooLarge for more than `most` bytes, and never opens more than
    MAX_DECOMPRESSED_BYTES."""
    if codec == NONE:
        return bytes(packed)
    if codec not in _DECOMPRESS:
        raise CodecError(f"codec {codec} does not exist")
    try:
        return _DECOMPRESS[codec](packed, MAX_DECOMPRESSED_BYTES if most is None else min(most, MAX_DECOMPRESSED_BYTES))
    except (cramjam.DecompressionError, struct.error) as error:
        raise CodecError(f"its {CODEC_NAMES[codec]} data cannot be read ({error})") from None


def repair_lz4_frame(packed: _Buffer) -> bytes:
    """A frame of a format v0 message with the header checksum that the LZ4 specification asks for.

    Clients before Kafka 0.10 computed it over the magic bytes too (KAFKA-3160), and brokers keep what they wrote.
    """
    frame = bytes(packed)
    if not frame.startswith(_LZ4_MAGIC) or len(frame) < 7:
        return frame
    at = 6 + 8 * bool(frame[4] & 0x08)  # behind flags, block size and the content's size if it is there
    return frame[:at] + bytes([xxhash.xxh32_intdigest(frame[4:at]) >> 8 & 0xFF]) + frame[at + 1 :]


def _gzipped(raw: _Buffer, level: int | None) -> bytes:
    packer = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, wbits=_GZIP_FRAME)
    return packer.compress(raw) + packer.flush()


def _ungzipped(packed: _Buffer, most: int) -> bytes:
    try:
        return gunzip(packed, most)
    except GzipTooLarge as error:
        raise DecompressedTooLarge(str(error)) from None
    except ValueError as error:
        raise CodecError(str(error)) from None


def _snappied(raw: _Buffer, _level: int | None) -> bytes:
    pieces = [_XERIAL_FRONT]
    for at in range(0, len(raw), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(raw[at : at + _XERIAL_BLOCK]))
        pieces += [_I32.pack(len(block)), block]
    return b"".join(pieces)


def _unsnappied(packed: _Buffer, most: int) -> bytes:
    data = bytes(packed)
    if not data.startswith(_XERIAL):
        return _unsnappied_block(data, most, most)
    found, at, left = [], len(_XERIAL_FRONT), most
    while at < len(data):
        (size,) = _I32.unpack_from(data, at)
        if size < 0 or at + 4 + size > len(data):
            raise CodecError("its snappy data ends too early")
        found.append(_unsnappied_block(data[at + 4 : at + 4 + size], left, most))
        left -= len(found[-1])
        at += 4 + size
    return b"".join(found)


def _unsnappied_block(block: bytes, left: int, most: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(block) > left:
        raise DecompressedTooLarge(_too_much("snappy", most))
    return bytes(cramjam.snappy.decompress_raw(block))


def _lz4ed(raw: _Buffer, level: int | None) -> bytes:
    # level, checksum of the content, linked blocks
    packer = cramjam.lz4.Compressor(1 if level is None else level, False, False)
    packer.compress(bytes(raw))  # it takes nothing else
    return bytes(packer.finish())


def _unlz4ed(packed: _Buffer, most: int) -> bytes:
    return _grown("lz4", packed, most)


def _zstded(raw: _Buffer, level: int | None) -> bytes:
    return bytes(cramjam.zstd.compress(raw, level=level))


def _unzstded(packed: _Buffer, most: int) -> bytes:
    return _grown("zstd", packed, most)


def _grown(name: str, packed: _Buffer, most: int) -> bytes:
    """Into a buffer that is large enough, found by trying: a frame need not say how much it holds, and a small one
    may hold gigabytes."""
    into = cramjam.lz4.decompress_into if name == "lz4" else cramjam.zstd.decompress_into
    room = min(max(16 * len(packed), 4 << 10), most)
    while True:
        buffer = bytearray(room)
        try:
            size = into(packed, buffer)
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise
            if room == most:
                raise DecompressedTooLarge(_too_much(name, most)) from None
            room = min(8 * room, most)
            continue
        return bytes(memoryview(buffer)[:size])


def _too_much(name: str, most: int) -> str:
    return f"its {name} data holds more than {most} bytes"


_COMPRESS = {GZIP: _gzipped, SNAPPY: _snappied, LZ4: _lz4ed, ZSTD: _zstded}
_DECOMPRESS = {GZIP: _ungzipped, SNAPPY: _unsnappied, LZ4: _unlz4ed, ZSTD: _unzstded}
