"""What applications wrote to a cluster behind given offsets: the records that a copy of it never had.

Told by the header of each batch: one whose producer id is in the cluster's registry was brought by a flow, all others
are the applications' own. Aborted records and markers are none. Only batches that count are opened.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final

from watershed.clusters.errors import RequestRefused
from watershed.clusters.flow_records import read_flows
from watershed.clusters.producer_registry import read_producers
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.answered_fetch import fetch_one
from watershed.clusters.wire.connection import open_connection
from watershed.clusters.wire.messages import READ_COMMITTED, FetchPartition
from watershed.replicator.batch.batch_selection import decode_with_outcome
from watershed.replicator.batch.legacy_formats import decode_records_of_any_format
from watershed.replicator.batch.records import RawRecord
from watershed.replicator.recovery.log_inspection import LeaderLog, require_leader_logs

_FETCH_BYTES: Final = 8 << 20
_PATIENCE_S: Final = 60.0  # without any progress


@dataclass(frozen=True, slots=True)
class _DivergentSpan:
    """Records of one partition between which nothing stands that a flow brought: offsets first <= offset <= last,
    `records` of them (markers and compacted records take offsets). Times in ms since 1970."""

    place: TopicPartition
    first: int
    last: int
    records: int
    oldest_ms: int
    newest_ms: int


@dataclass(frozen=True, slots=True)
class _LogDivergence:
    """starts, ends: of the logs (the last stable offsets). ids: topic → its id."""

    stretches: tuple[_DivergentSpan, ...]
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    ids: Mapping[str, str] = field(default_factory=dict)


def read_divergence(settings: ConnectionSettings, since: Mapping[TopicPartition, int]) -> _LogDivergence:
    """Raises ClusterError, also for a topic that is not there, and BadBatch for a damaged one."""
    led = require_leader_logs(settings, sorted(since), READ_COMMITTED)
    brought = _read_flow_producer_ids(settings)
    found: list[_DivergentSpan] = []
    for place in sorted(since):
        open_: _DivergentSpan | None = None
        for record in _records(settings, led[place], place, since[place], brought):
            if record is None:  # something that a flow brought
                found += [open_] if open_ is not None else []
                open_ = None
            elif open_ is None:
                open_ = _DivergentSpan(place, record.offset, record.offset, 1, record.timestamp, record.timestamp)
            else:
                open_ = replace(
                    open_,
                    last=record.offset,
                    records=open_.records + 1,
                    oldest_ms=min(open_.oldest_ms, record.timestamp),
                    newest_ms=max(open_.newest_ms, record.timestamp),
                )
        found += [open_] if open_ is not None else []
    return _LogDivergence(
        tuple(found),
        {place: each.start for place, each in led.items()},
        {place: each.end for place, each in led.items()},
        {place.topic: str(each.topic_id) for place, each in led.items()},
    )


def read_divergent_records(
    settings: ConnectionSettings, since: Mapping[TopicPartition, int]
) -> Iterator[tuple[TopicPartition, RawRecord]]:
    """Each record that is the applications' own, in the order of its partition. Raises as `divergence` does."""
    led = require_leader_logs(settings, sorted(since), READ_COMMITTED)
    brought = _read_flow_producer_ids(settings)
    for place in sorted(since):
        for record in _records(settings, led[place], place, since[place], brought):
            if record is not None:
                yield place, record


def _read_flow_producer_ids(settings: ConnectionSettings) -> frozenset[int]:
    """The producer ids under which Watershed writes to this cluster. Raises ClusterError."""
    flows = (record.producer_id for record in read_flows(settings).values())
    return frozenset(read_producers(settings)) | {each for each in flows if each is not None}


def _records(
    settings: ConnectionSettings, led: LeaderLog, place: TopicPartition, since: int, brought: Collection[int]
) -> Iterator[RawRecord | None]:
    """The applications' records from `since` on; None for a batch that a flow brought."""
    position, moved = max(since, led.start), time.monotonic()
    if position >= led.end:
        return
    with closing(open_connection(settings, led.leader)) as link:
        while position < led.end:
            asked = FetchPartition(led.topic_id, place.partition, position, max_bytes=_FETCH_BYTES)
            answer = fetch_one(link, asked, max_wait_ms=500, isolation=READ_COMMITTED)
            if answer.error:
                raise RequestRefused(
                    f"cluster {settings.alias} answers {error_codes.describe_error_code(answer.error)} to a "
                    f"Fetch of {place}, {position}",
                    alias=settings.alias,
                    topic=place.topic,
                    partition=place.partition,
                )
            before = position
            for batch, is_aborted in decode_with_outcome(answer.records, answer.aborted):
                if batch.end <= position or batch.base >= led.end:
                    continue
                if batch.producer_id in brought and batch.producer_id >= 0:
                    yield None
                elif not batch.control and batch.records and not is_aborted:
                    records = decode_records_of_any_format(batch)
                    yield from (record for record in records if position <= record.offset < led.end)
                position = batch.end
            if position > before:
                moved = time.monotonic()
            elif time.monotonic() - moved > _PATIENCE_S:
                raise settings.unreachable(f"{place} brings nothing at offset {position}, before its end {led.end}")
