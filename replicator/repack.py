"""Repacking: building v2 batches from the records of batches that cannot be passed on as they are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rejected:
    """A record that the target does not take, with its bytes as they stood on the source.

    timestamp in ms (-1: none); headers in order, repeats kept, a value may be null; reason: what the target said.
    """

    source_offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]
    reason: str
