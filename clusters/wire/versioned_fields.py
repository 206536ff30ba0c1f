"""Counts, texts and tagged fields of a request, in both layouts: compact in its flexible versions (KIP-482), of fixed
size in the older ones, which have no tagged fields either."""

from __future__ import annotations

import struct

from watershed.clusters.varints import decode_uvarint, encode_uvarint

_I16, _I32 = struct.Struct(">h"), struct.Struct(">i")


def encode_count(count: int, flexible: bool) -> bytes:
    """The length of an array, or of bytes, that follows."""
    return encode_uvarint(count + 1) if flexible else _I32.pack(count)


def encode_text(text: str | None, flexible: bool) -> bytes:
    """A string; None is null."""
    if text is None:
        return b"\x00" if flexible else b"\xff\xff"
    encoded = text.encode()
    return (encode_uvarint(len(encoded) + 1) if flexible else _I16.pack(len(encoded))) + encoded


def decode_count(body: memoryview, at: int, flexible: bool) -> tuple[int, int]:
    """The length of an array, or of bytes, and the position behind it; -1 is null."""
    if flexible:
        count, at = decode_uvarint(body, at)
        return count - 1, at
    return int(_I32.unpack_from(body, at)[0]), at + 4


def decode_bytes(body: memoryview, at: int, flexible: bool) -> tuple[memoryview, int]:
    """A view of bytes and the position behind them; null reads as empty. Raises ValueError where some are missing."""
    length, at = decode_count(body, at, flexible)
    end = at + max(length, 0)
    if end > len(body):
        raise ValueError(f"{end - len(body)} bytes are missing")
    return body[at:end], end


def decode_text(body: memoryview, at: int, flexible: bool) -> tuple[str, int]:
    """A nullable string and the position behind it; null reads as empty. Raises ValueError where bytes are missing."""
    if flexible:
        length, at = decode_count(body, at, flexible)
    else:
        length, at = int(_I16.unpack_from(body, at)[0]), at + 2
    end = at + max(length, 0)
    if end > len(body):
        raise ValueError(f"{end - len(body)} bytes are missing")
    return str(body[at:end], "utf-8", "replace"), end


def skip_tagged_fields(body: memoryview, at: int, flexible: bool = True) -> int:
    """The position behind a section of tagged fields, which only flexible versions have."""
    if not flexible:
        return at
    tags, at = decode_uvarint(body, at)
    for _ in range(tags):
        _tag, at = decode_uvarint(body, at)
        size, at = decode_uvarint(body, at)
        at += size
    return at
