"""What Spark's filters let us leave unread. Filters on topic and partition are exact; those on offsets and times only
narrow (a batch may stand over a bound), so Spark applies them again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from watershed.spark.datasource.log_slices import NO_FILTER_BOUNDS, FilterBounds
from watershed.spark.datasource.options import RowKind


def narrow_by_filters(filters: Iterable[Filter], rows: RowKind) -> tuple[FilterBounds, Sequence[Filter]]:
    """(what is left to read, the filters that Spark still has to apply)."""
    narrowing, left = NO_FILTER_BOUNDS, []
    for each in filters:
        [name, *inner] = getattr(each, "attribute", ("",))
        value = getattr(each, "value", None)
        exact = False
        if not inner and value is not None:
            narrowing, exact = _one(narrowing, each, name, value, rows)
        if not exact:
            left.append(each)
    return narrowing, left


def _one(known: FilterBounds, each: Filter, name: str, value: object, rows: RowKind) -> tuple[FilterBounds, bool]:
    if isinstance(each, EqualTo | In):
        values: frozenset[Any] = frozenset(each.value if isinstance(each, In) else (each.value,))
        if name == "topic":
            return replace(known, topics=values if known.topics is None else known.topics & values), True
        if name == "partition":
            return replace(known, partitions=values if known.partitions is None else known.partitions & values), True
    if rows == "sums" or not isinstance(value, int):
        return known, False
    if isinstance(each, EqualTo):
        known, _ = _one(known, GreaterThanOrEqual(each.attribute, value), name, value, rows)
        return _one(known, LessThanOrEqual(each.attribute, value), name, value, rows)[0], False
    least = value + isinstance(each, GreaterThan)
    most = value - isinstance(each, LessThan)
    if isinstance(each, GreaterThan | GreaterThanOrEqual):
        if name in ("offset", "base_offset", "last_offset"):  # a base that high has a last offset as high
            return replace(known, start=max(known.start, least)), False
        if name in ("max_timestamp_ms", "timestamp_ms") and least > 0:  # -1 is a record without a time
            return replace(known, since=max(known.since or 0, least)), False
    if isinstance(each, LessThan | LessThanOrEqual) and name in ("offset", "base_offset", "last_offset"):
        end = most + 1  # batches that begin at or before `most` all touch what lies in front of it
        return replace(known, end=end if known.end is None else min(known.end, end)), False
    return known, False
