"""Texts and tagged fields of Kafka's flexible versions (KIP-482)."""

from __future__ import annotations

from clusters.varints import decode_uvarint


def decode_compact_string(body: memoryview, at: int) -> tuple[str, int]:
    """A compact nullable string and the position behind it; null reads as empty."""
    length, at = decode_uvarint(body, at)
    if length < 2:
        return "", at
    return str(body[at : at + length - 1], "utf-8", "replace"), at + length - 1


def skip_tagged_fields(body: memoryview, at: int) -> int:
    """The position behind a section of tagged fields."""
    tags, at = decode_uvarint(body, at)
    for _ in range(tags):
        _tag, at = decode_uvarint(body, at)
        size, at = decode_uvarint(body, at)
        at += size
    return at
