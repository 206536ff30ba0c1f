"""Headers of a record, as the record holds them: a count, then name and content of each with their sizes."""

from __future__ import annotations

from watershed.clusters.varints import decode_zigzag


def list_headers(data: bytes) -> list[tuple[str, bytes | None]]:
    """Name and content of each."""
    count, at = decode_zigzag(data, 0)
    found: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _read_sized(data, at)
        content, at = _read_sized(data, at)
        found.append(((name or b"").decode(errors="replace"), content))
    return found


def list_raw_headers(data: bytes) -> list[tuple[str, bytes]]:
    """Name of each, and the header as it is encoded."""
    count, at = decode_zigzag(data, 0)
    found: list[tuple[str, bytes]] = []
    for _ in range(count):
        began = at
        name, at = _read_sized(data, at)
        _, at = _read_sized(data, at)
        found.append(((name or b"").decode(errors="replace"), data[began:at]))
    return found


def _read_sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = decode_zigzag(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)
