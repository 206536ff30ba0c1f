"""Amounts as people read them in a report: rounded, with a unit, `unknown` where nobody knows."""

from __future__ import annotations

from datetime import UTC, datetime

_UNKNOWN = "unknown"
GIB_BYTES = 2**30
_STEPS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def render_rounded_size(count: float | None) -> str:
    """`1.5 GiB`; at most three digits before the point."""
    if count is None:
        return _UNKNOWN
    step = 0
    while abs(count) >= 1000 and step < len(_STEPS) - 1:
        count, step = count / 1024, step + 1
    return f"{count:,.0f} {_STEPS[step]}" if step == 0 or count >= 100 else f"{count:,.1f} {_STEPS[step]}"


def render_decimal_size(count: float) -> str:
    """`512 B`, `1.2 kB`; in powers of ten, as disks and links are sold."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.95:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def render_rounded_rate(per_second: float | None) -> str:
    """`1.5 GiB/s`; per_second in bytes."""
    return _UNKNOWN if per_second is None else f"{render_rounded_size(per_second)}/s"


def render_number(count: int | None) -> str:
    """`1,200`."""
    return _UNKNOWN if count is None else f"{count:,}"


def render_counted_noun(count: int, noun: str) -> str:
    """`1 broker`, `1,200 brokers`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def render_rounded_duration(seconds: float | None) -> str:
    """`3 h 20 min`; the two largest units."""
    if seconds is None:
        return _UNKNOWN
    if seconds < 1:
        return "under 1 s"
    whole = round(seconds)
    parts: list[tuple[int, str]] = []
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        amount, whole = divmod(whole, length)
        if amount or parts:
            parts.append((amount, unit))
    return " ".join(f"{amount:,} {unit}" for amount, unit in parts[:2] if amount)


def render_utc_minute(ms: int | None) -> str:
    """UTC, to the minute."""
    return _UNKNOWN if ms is None else datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")


def render_cost(amount: float | None) -> str:
    """Without a currency: it is that of the price."""
    return _UNKNOWN if amount is None else f"{amount:,.2f}"


def render_first_names(names: tuple[str, ...], shown: int = 5) -> str:
    """The first names and how many more."""
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {more:,} more" if more > 0 else "")
