"""Texts and tagged fields of Kafka's flexible versions (KIP-482)."""

from __future__ import annotations

from clusters.varints import read_uvarint


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
