"""Numbers of variable length, as Kafka writes them: seven bits a byte, the lowest first.

Unsigned in flexible versions of requests (KIP-482), zigzag (small whatever the sign) in record batches (KIP-98).
"""

from __future__ import annotations

from collections.abc import Sequence


def encode_uvarint(value: int) -> bytes:
    """`value` (≥ 0) as an unsigned varint."""
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_uvarint(body: Sequence[int], at: int) -> tuple[int, int]:
    """(value, position behind it). Raises IndexError when `body` ends before, ValueError beyond ten bytes."""
    value = shift = 0
    while True:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("holds a number of more than 64 bits")


def encode_zigzag(number: int) -> bytes:
    """`number` (of 64 bits, with a sign) as a zigzag varint."""
    return encode_uvarint((number << 1) ^ (number >> 63))


def decode_zigzag(body: Sequence[int], at: int) -> tuple[int, int]:
    """The inverse of `encode_zigzag`: (number, position behind it). Raises like `decode_uvarint`."""
    value, at = decode_uvarint(body, at)
    return (value >> 1) ^ -(value & 1), at


_ONE_BYTE = [bytes((value,)) for value in range(0x80)]
