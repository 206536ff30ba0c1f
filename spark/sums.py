"""Sums of neighbouring ranges of one partition, read as one stream; and as rows of the data source."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from clusters.errors import ClusterError
from clusters.settings import connection_settings
from spark.errors import NotReadable
from spark.fingerprint import ChunkSum, sum_prints
from spark.read import Expired, PartitionAddress, read_prints
from spark.source import Unit
from spark.window import Span
from topology.plan import PlanCluster


@dataclass(frozen=True, slots=True)
class UnitSum:
    """What reading a unit gave. state: read, expired (`log_start` says where the log starts now) or failed."""

    unit: int
    state: str
    detail: str
    log_start: int
    sums: ChunkSum
    ms: int


def read_units(cluster: PlanCluster, units: Sequence[Unit]) -> Iterator[UnitSum]:
    """Sums of neighbouring units, read as one stream."""
    first, began = units[0], time.monotonic()
    waiting, sums = list(units), ChunkSum()

    def finished(state: str = "read", detail: str = "", log_start: int = -1) -> UnitSum:
        nonlocal sums, began
        now = time.monotonic()
        result = UnitSum(waiting.pop(0).id, state, detail, log_start, sums, int((now - began) * 1000))
        sums, began = ChunkSum(), now
        return result

    try:
        address = PartitionAddress(
            connection_settings(cluster),
            first.topic,
            uuid.UUID(first.topic_id),
            first.partition,
            first.timestamps,
            frozenset(first.skip),
        )
        while waiting:
            try:
                for prints in read_prints(address, Span(waiting[0].start, units[-1].end)):
                    while waiting:
                        here = prints.between(waiting[0].start, waiting[0].end)
                        sums += sum_prints(here)
                        if not len(prints) or int(prints.offset[-1]) < waiting[0].end:
                            break
                        yield finished()
                while waiting:
                    yield finished()
            except Expired as expired:  # what lies above the log's new start can still be read
                yield finished("expired", str(expired), expired.log_start)
                while waiting and waiting[0].start < expired.log_start:
                    yield finished("expired", str(expired), expired.log_start)
    except (ClusterError, NotReadable) as error:
        while waiting:
            yield finished("failed", str(error))


def as_row(result: UnitSum) -> tuple[Any, ...]:
    s = result.sums
    return (
        result.unit,
        result.state,
        result.detail,
        result.log_start,
        s.n,
        s.m_lo,
        s.m_hi,
        f"{s.order:016x}",
        f"{s.kh:016x}",
        f"{s.vh:016x}",
        f"{s.hh:016x}",
        Decimal(s.ts),
        s.size,
        result.ms,
    )


def from_row(row: Any) -> UnitSum:
    sums = ChunkSum(
        row.n,
        row.m_lo,
        row.m_hi,
        int(row.ordered, 16),
        int(row.kh, 16),
        int(row.vh, 16),
        int(row.hh, 16),
        int(row.ts),
        row.size,
    )
    return UnitSum(row.unit, row.state, row.detail, row.log_start, sums, row.ms)
