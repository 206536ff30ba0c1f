"""Numbers, offsets and times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

COUNT_NAMES = (
    *("missing", "altered", "reordered", "duplicates", "foreign", "unverifiable", "quarantined", "repeated"),
    "pending",  # the last one: a column of its own
)


def render_offset_range(start: int | None, end: int | None) -> str:
    """Offsets start <= offset < end, as the first and the last of them."""
    if start is None or end is None:
        return "–"
    if end <= start:
        return f"none (at {start:,})"
    return f"{start:,} – {end - 1:,}" if end - start > 1 else f"{start:,}"


def render_percentage(part: int, whole: int) -> str:
    """Per cent, rounded down: 100 means all."""
    if whole <= 0:
        return "–"
    thousandths = part * 100_000 // whole
    return "100 %" if part >= whole else f"{thousandths // 1000}.{thousandths % 1000:03} %"


def render_timestamp(ms: int) -> str:
    """A record's timestamp, which can be any number, in UTC."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{ms:,} ms"


def render_iso_time(text: str | None) -> str:
    """A time of the summary (ISO) without what nobody reads."""
    if not text:
        return "–"
    try:
        return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except ValueError:
        return text


def render_milliseconds(ms: float) -> str:
    """Milliseconds, also negative ones (clocks differ)."""
    sign, ms = ("−" if ms < 0 else ""), abs(ms)
    for unit, factor in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if ms >= factor:
            return f"{sign}{ms / factor:.1f} {unit}"
    return f"{sign}{ms:.0f} ms"


def render_partition_name(line: dict[str, Any]) -> str:
    """`orders-3`, with the target's name where it is another."""
    name = f"{line['topic']}-{line['partition']}"
    return name if line["topic"] == line["target_topic"] else f"{name} → {line['target_topic']}-{line['partition']}"
