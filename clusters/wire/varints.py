"""The variable-length pieces of Kafka's flexible versions (KIP-482)."""

from __future__ import annotations


def uvarint(value: int) -> bytes:
    """`value` as an unsigned varint."""
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(body: memoryview, at: int) -> tuple[int, int]:
    """(value, position behind it). Raises IndexError when `body` ends before."""
    value = shift = 0
    while True:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def read_text(body: memoryview, at: int) -> tuple[str, int]:
    """A compact nullable string and the position behind it; null reads as empty."""
    length, at = read_uvarint(body, at)
    if length < 2:
        return "", at
    return str(body[at : at + length - 1], "utf-8", "replace"), at + length - 1


def skip_tags(body: memoryview, at: int) -> int:
    """The position behind a section of tagged fields."""
    tags, at = read_uvarint(body, at)
    for _ in range(tags):
        _tag, at = read_uvarint(body, at)
        size, at = read_uvarint(body, at)
        at += size
    return at


_ONE_BYTE = [bytes((value,)) for value in range(0x80)]
