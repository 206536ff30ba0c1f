"""A half-open range of offsets."""

from __future__ import annotations

from typing import NamedTuple


class OffsetRange(NamedTuple):
    """Offsets start <= offset < end."""

    start: int
    end: int
