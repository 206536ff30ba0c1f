"""Pairs of schema ids (source, target) as Spark's tasks get them."""

from __future__ import annotations

SchemaIdPairs = tuple[tuple[int, int], ...]  # id at the source → id at the target
KeyValueIdPairs = tuple[SchemaIdPairs | None, SchemaIdPairs | None]  # of keys, of values; None: they travel as they are
NO_ID_REWRITE: KeyValueIdPairs = (None, None)
