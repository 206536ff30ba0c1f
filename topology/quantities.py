"""Amounts with their unit, as people write them: `30s`, `60MiB/s`, `5%`. A parser raises ValueError: what to write.

`render_duration`, `render_size` and `render_rate` write what the parsers read back to the same number."""

from __future__ import annotations

import re

DURATION_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
SIZE_UNITS_BYTES = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_LIMIT = 2**63 - 1
_MAX_DIGITS = 30
FOREVER_MS = _LIMIT
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s?([A-Za-z%]*)(/s)?", re.ASCII)


class MissingUnit(ValueError):
    """A bare number where a unit belongs."""


def parse_duration(text: str) -> int:
    """`500ms`, `30s`, `5m`, `24h`, `7d`, `2w`, in milliseconds."""
    return _amount(text, DURATION_UNITS_MS, "", "a duration such as `30s`, `5m` or `24h`")


def parse_nonzero_duration(text: str) -> int:
    """The same, of what could not be done in `0s`."""
    duration = parse_duration(text)
    if duration == 0:
        raise ValueError("nothing can be done in no time; expected a duration above zero such as `30s`")
    return duration


def parse_retention(text: str) -> int:
    """A duration, or `forever` (FOREVER: longer than any other)."""
    return FOREVER_MS if text == "forever" else parse_duration(text)


def parse_size(text: str) -> int:
    """`512B`, `16kB`, `1MiB`, in bytes."""
    return _amount(text, SIZE_UNITS_BYTES, "", "a size such as `1MiB` or `16kB`")


def parse_rate(text: str) -> int:
    """`60MiB/s`, in bytes a second."""
    return _amount(text, SIZE_UNITS_BYTES, "/s", "a rate such as `60MiB/s`")


def parse_nonzero_rate(text: str) -> int:
    """The same, of what could not go on at `0B/s`."""
    rate = parse_rate(text)
    if rate == 0:
        raise ValueError("nothing could be read at this rate; expected a rate above zero such as `60MiB/s`")
    return rate


def parse_share(text: str) -> float:
    """`5%` is 0.05; from 0% to 100%."""
    value = _amount(text, {"%": 1_000_000}, "", "a share such as `5%`") / 100_000_000
    if value > 1:
        raise ValueError("a share is at most `100%`")
    return value


def render_duration(ms: int) -> str:
    """`30s`, `5m`, `7d`: the largest unit that gives a whole number (days at most: `14d` is how retention is said);
    `forever` for FOREVER."""
    if ms >= FOREVER_MS:
        return "forever"
    unit = next((name for name in ("d", "h", "m", "s") if ms % DURATION_UNITS_MS[name] == 0), "ms") if ms else "s"
    return f"{ms // DURATION_UNITS_MS[unit]}{unit}"


def render_size(size: int) -> str:
    """`1MiB`, `16kB`, `1048588B`: the shortest whole number of a unit; powers of two where both are as short."""
    exact = [(size // of_unit, unit) for unit, of_unit in SIZE_UNITS_BYTES.items() if size % of_unit == 0]
    texts = (f"{count}{unit}" for count, unit in exact if size or unit == "B")
    return min(texts, key=lambda text: (len(text), "i" not in text))


def render_rate(rate: int) -> str:
    """`60MiB/s`, of bytes a second."""
    return f"{render_size(rate)}/s"


def _amount(text: str, units: dict[str, int], per: str, expected: str) -> int:
    match = _NUMBER.fullmatch(text)
    known = f"units: {', '.join(name + per for name in units)}"
    if match is None:
        raise ValueError(f"expected {expected}; {known}")
    number, unit, rate = match.groups()
    if len(number) > _MAX_DIGITS:
        raise ValueError(f"too large, or more exact than {_MAX_DIGITS} digits can say; expected {expected}")
    if not unit and not rate:
        raise MissingUnit(f"has no unit; expected {expected}")
    if unit not in units or (rate or "") != per:
        raise ValueError(f"expected {expected}; {known}")
    value = float(number) * units[unit] if "." in number else int(number) * units[unit]
    if value != int(value) or value > _LIMIT:
        raise ValueError(f"{'too large' if value > _LIMIT else 'not a whole number of the smallest unit'}")
    return int(value)
