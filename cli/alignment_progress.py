"""How far a partition is that is being brought to the offset at which its source's log begins."""

from __future__ import annotations

from collections.abc import Mapping

_WIDTH = 20


def render_alignment_progress(at: Mapping[str, float | None]) -> str:
    """`[#####---------------]  25%, 1,250,000 of 5,000,000 offsets, about 4 s left` for `PartitionStatus.aligning`."""
    done, of = at["done"] or 0, at["of"] or 0
    part = min(max(done / of, 0.0), 1.0) if of else 1.0
    full = int(part * _WIDTH)
    left = at.get("seconds_left")
    wait = "" if left is None else f", about {_duration(left)} left"
    return f"[{'#' * full}{'-' * (_WIDTH - full)}] {part:4.0%}, {done:,.0f} of {of:,.0f} offsets{wait}"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3600:.1f} h"
