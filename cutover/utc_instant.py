"""A moment as people read it."""

from __future__ import annotations

import time


def render_utc_instant(wall_ms: int) -> str:
    """`2026-11-22 02:10:11.250 UTC`"""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(wall_ms / 1000)) + f".{wall_ms % 1000:03d} UTC"
