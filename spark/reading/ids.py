"""Schema ids and what a flow writes in their place, as it travels to Spark's tasks."""

from __future__ import annotations

Pairs = tuple[tuple[int, int], ...]  # id at the source → id at the target
Ids = tuple[Pairs | None, Pairs | None]  # of keys, of values; None: they travel as they are
AS_THEY_ARE: Ids = (None, None)
