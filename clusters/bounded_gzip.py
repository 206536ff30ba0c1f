"""Gzip of somebody else, opened within a bound."""

from __future__ import annotations

import zlib

_FRAME = 31  # zlib's name for "with gzip's frame"
_PIECE = 64 << 10  # bytes given to zlib at a time: it copies what stands behind a member, and members may be tiny


class GzipTooLarge(ValueError):
    """It holds more than may be opened."""


def gunzip(packed: bytes | bytearray | memoryview, most: int) -> bytes:
    """What all members hold together, as java.util.zip.GZIPInputStream reads on behind the first.

    Raises GzipTooLarge when that is more than `most` bytes, ValueError when the data is no gzip; never makes more than
    `most` + 1.
    """
    view, at = memoryview(packed), 0
    found, left = bytearray(), most + 1  # one more, to see that there is more
    unpacker, rest, fresh = zlib.decompressobj(wbits=_FRAME), b"", True
    while rest or at < len(view):
        piece = rest or bytes(view[at : at + _PIECE])
        at += 0 if rest else len(piece)
        try:
            out = unpacker.decompress(piece, left)
        except zlib.error as error:
            raise ValueError(f"its gzip data cannot be read ({error})") from None
        found += out
        left -= len(out)
        if left <= 0:
            raise GzipTooLarge(f"its gzip data holds more than {most} bytes")
        fresh = unpacker.eof
        if unpacker.eof:
            rest = unpacker.unused_data
            unpacker = zlib.decompressobj(wbits=_FRAME)
        else:
            rest = unpacker.unconsumed_tail
    if not fresh:
        raise ValueError("its gzip data ends too early")
    return bytes(found)
