"""Whether a source topic without an id still is the one that was copied: the last copied records, at both ends.

Brokers before 2.8 give topics no ids, so a topic that was deleted and made anew has the name, and often the leader
epoch, of the old one. What was copied last stands at the target; the source must hold the same records at the same
offsets still. The comparison is made whenever a partition is taken over, which every lost connection, every refusal and
every pause leads to (`replicator.transport.fetcher`).

What it cannot tell: a topic that was made anew and has grown beyond our position between two Fetches that are less than
a second apart; and anything once the last copied records are gone from the source by retention or compaction.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from clusters.settings import ConnectionSettings
from clusters.topic_partition import TopicPartition
from clusters.wire.broker_pool import BrokerPool
from clusters.wire.connection import Connection, open_connection
from clusters.wire.messages import READ_UNCOMMITTED, FetchPartition
from clusters.wire.topic_names import is_stand_in_id
from replicator.batch.legacy_formats import decode_records_of_any_format
from replicator.batch.record_batch import decode_batches
from replicator.batch.records import RawRecord
from replicator.errors import BadBatch
from replicator.partition_key import PartitionKey
from replicator.recovery.log_inspection import LeaderLog, build_refusal

_COMPARED: Final = 100  # records at most
_FETCH_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class LastCopied:
    """What to compare of one partition: the records at target offsets first <= offset < end, the newest first.

    to_source: target offset → source offset. exact: keys, values and headers are copied as they are; otherwise ids of
    schemas in them are replaced, which keeps their lengths.
    """

    source: LeaderLog
    target: LeaderLog
    first: int
    end: int
    to_source: Callable[[int], int]
    exact: bool


def needs_comparison(known: uuid.UUID, seen: uuid.UUID) -> bool:
    """True if the id in the ledger (`known`), or the one that the source shows now, stands in for none."""
    return is_stand_in_id(known) or is_stand_in_id(seen)


def compare_last_copied(
    source: ConnectionSettings, target: ConnectionSettings, copied: Mapping[PartitionKey, LastCopied]
) -> dict[PartitionKey, bool | None]:
    """True where the source still holds what was copied last, or nothing was copied; False where other records stand
    at its offsets; None where they are not to be had any more at one of the ends. Raises ClusterError."""
    found: dict[PartitionKey, bool | None] = {}
    with (
        BrokerPool(partial(open_connection, source)) as at_source,
        BrokerPool(partial(open_connection, target)) as at_target,
    ):
        for key, each in copied.items():
            if each.end <= each.first:
                found[key] = True
                continue
            try:
                found[key] = _compare(at_source, at_target, key, each)
            except BadBatch:  # damaged records tell nothing; copying would have stopped at them
                found[key] = None
    return found


def _compare(
    at_source: BrokerPool[Connection], at_target: BrokerPool[Connection], key: PartitionKey, copied: LastCopied
) -> bool | None:
    place = TopicPartition(key.target_topic, key.partition)
    first = max(copied.first, copied.end - _COMPARED)
    here = _read(at_target.get(copied.target.leader), copied.target, place, first, copied.end)
    ours = {copied.to_source(record.offset): record for record in here}
    if not ours:
        return None
    place = TopicPartition(key.topic, key.partition)
    there = _read(at_source.get(copied.source.leader), copied.source, place, min(ours), max(ours) + 1)
    theirs = {record.offset: record for record in there}
    both = ours.keys() & theirs.keys()
    if not both:
        return None
    return all(_are_alike(ours[offset], theirs[offset], copied.exact) for offset in both)


def _are_alike(one: RawRecord, other: RawRecord, exact: bool) -> bool:
    content = one.rest == other.rest if exact else len(one.rest) == len(other.rest)
    return content and one.timestamp == other.timestamp


def _read(connection: Connection, led: LeaderLog, place: TopicPartition, first: int, end: int) -> list[RawRecord]:
    """The records between two offsets that are still there, at most those of `_FETCH_BYTES` or of one larger batch a
    Fetch."""
    found: list[RawRecord] = []
    position = max(first, led.start)
    while position < min(end, led.end):
        asked = FetchPartition(led.topic_id, place.partition, position, max_bytes=_FETCH_BYTES)
        (answer,) = connection.fetch((asked,), max_wait_ms=0, isolation=READ_UNCOMMITTED)
        if answer.error:
            raise build_refusal(connection.alias, "Fetch", place.topic, place.partition, answer.error)
        before = position
        for batch in decode_batches(answer.records):
            if batch.base >= end:
                return found
            if not batch.control and batch.records:
                found += [record for record in decode_records_of_any_format(batch) if first <= record.offset < end]
            position = max(position, batch.end)
        if position == before:
            break
    return found
