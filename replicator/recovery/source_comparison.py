"""Whether a source topic without an id still is the one that was copied: the last copied records, at both ends.

Brokers before 2.8 give topics no ids, so a topic that was deleted and made anew has the name, and often the leader
epoch, of the old one. What was copied last stands at the target; the source must hold the same records at the same
offsets still. The comparison is made whenever a partition is taken over: at a start, and after a lost connection or a
refusal. While a partition is read, its last batch is read again after a silence (`replicator.transport.confirmation`).
Decision 0081 lists what neither can tell.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from watershed.clusters.errors import ClusterError, Unreachable
from watershed.clusters.provenance_header import ProvenanceHeader
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.broker_pool import BrokerPool
from watershed.clusters.wire.connection import Connection, open_connection
from watershed.clusters.wire.messages import READ_UNCOMMITTED, FetchPartition
from watershed.clusters.wire.topic_names import is_stand_in_id
from watershed.replicator.batch.legacy_formats import decode_records_of_any_format
from watershed.replicator.batch.provenance import ProvenanceWriter, RecordChange
from watershed.replicator.batch.record_batch import LOG_APPEND_TIME, BatchChecksum, RawBatch, decode_batches
from watershed.replicator.batch.records import RawRecord
from watershed.replicator.errors import ReplicatorError
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.recovery.log_inspection import LeaderLog, build_refusal

_SEARCHED: Final = 100  # records in front of the last one, where that is gone by itself
_PATIENCE_S: Final = 30.0  # for a quota that is used up
_FETCH_BYTES: Final = 128 << 10  # a partition and Fetch; one batch that is larger comes whole (KIP-74)


@dataclass(frozen=True, slots=True)
class LastCopied:
    """What to compare of one partition: records at target offsets first <= offset < end.

    to_source: target offset → source offset; raises ReplicatorError where it cannot tell. exact: keys, values and
    headers are copied as they are; otherwise ids of schemas in them are replaced, which keeps their lengths. is_ours:
    whether the record at a target offset was copied; None where all were, as nobody else writes there. header: what
    the flow adds to each record.
    """

    source: LeaderLog
    target: LeaderLog
    first: int
    end: int
    to_source: Callable[[int], int]
    exact: bool
    is_ours: Callable[[int], bool] | None = None
    header: ProvenanceHeader | None = None


class SourceComparison(NamedTuple):
    """is_same: True where the source still holds what was copied last, or nothing was copied; False where other records
    stand at its offsets; None where nothing is left to compare. last_batch: the source's batch with the last of them.
    """

    is_same: bool | None
    last_batch: BatchChecksum | None = None


NOT_COMPARED: Final = SourceComparison(None)


def needs_comparison(known: uuid.UUID, seen: uuid.UUID) -> bool:
    """True if the id in the ledger (`known`), or the one that the source shows now, stands in for none."""
    return is_stand_in_id(known) or is_stand_in_id(seen)


def compare_last_copied(
    source: ConnectionSettings, target: ConnectionSettings, copied: Mapping[PartitionKey, LastCopied]
) -> dict[PartitionKey, SourceComparison | ClusterError]:
    """Both ends are asked once a leader, for all partitions together. What one partition is refused stands in its
    place. Raises Unreachable."""
    found: dict[PartitionKey, SourceComparison | ClusterError] = {
        key: SourceComparison(True) for key, each in copied.items() if each.end <= each.first
    }
    with (
        BrokerPool(partial(open_connection, source)) as at_source,
        BrokerPool(partial(open_connection, target)) as at_target,
    ):
        for back in (1, _SEARCHED):
            asked = {key: each for key, each in copied.items() if found.get(key, NOT_COMPARED) == NOT_COMPARED}
            found |= _compare(at_source, at_target, asked, back)
    return found


def _compare(
    at_source: BrokerPool[Connection],
    at_target: BrokerPool[Connection],
    copied: Mapping[PartitionKey, LastCopied],
    back: int,
) -> dict[PartitionKey, SourceComparison | ClusterError]:
    """By the batches that begin, or stand, `back` records in front of the end."""
    found: dict[PartitionKey, SourceComparison | ClusterError] = {}
    wanted = {key: (each.target, key.target_topic, max(each.first, each.end - back)) for key, each in copied.items()}
    ours: dict[PartitionKey, dict[int, _PlacedRecord]] = {}
    for key, batches in read_batches_at(at_target, wanted).items():
        try:
            ours[key] = {} if isinstance(batches, ClusterError) else _place_records(copied[key], batches)
        except ReplicatorError:  # a damaged batch, or a map that contradicts itself: judged elsewhere
            ours[key] = {}
        found[key] = batches if isinstance(batches, ClusterError) else NOT_COMPARED
    there = {key: (copied[key].source, key.topic, min(placed)) for key, placed in ours.items() if placed}
    for key, batches in read_batches_at(at_source, there).items():
        if isinstance(batches, ClusterError):
            found[key] = batches
            continue
        try:
            found[key] = _judge(ours[key], batches, copied[key])
        except (ReplicatorError, IndexError, ValueError):
            found[key] = NOT_COMPARED
    return found


class _PlacedRecord(NamedTuple):
    record: RawRecord
    is_stamped: bool  # the broker gave it the time of its append


def _place_records(copied: LastCopied, batches: list[RawBatch]) -> dict[int, _PlacedRecord]:
    """Records at the target by the source offset that they were copied from. Raises ReplicatorError."""
    return {
        copied.to_source(record.offset): _PlacedRecord(record, bool(batch.attributes & LOG_APPEND_TIME))
        for batch in batches
        if not batch.control and batch.records
        for record in decode_records_of_any_format(batch)
        if copied.first <= record.offset < copied.end and (copied.is_ours is None or copied.is_ours(record.offset))
    }


def _judge(ours: Mapping[int, _PlacedRecord], batches: list[RawBatch], copied: LastCopied) -> SourceComparison:
    """Raises BadBatch; IndexError or ValueError for a record that cannot be read."""
    alike: list[bool] = []
    header = copied.header
    change: RecordChange = (lambda record: record) if header is None else ProvenanceWriter(header).add_header
    last_batch: BatchChecksum | None = None
    for batch in batches:
        if batch.control or not batch.records:
            continue
        for record in decode_records_of_any_format(batch):
            if record.offset in ours:
                alike.append(_are_alike(ours[record.offset], change(record), copied.exact))
                last_batch = BatchChecksum.of(batch)
    return SourceComparison(all(alike), last_batch) if alike else NOT_COMPARED


def _are_alike(ours: _PlacedRecord, theirs: RawRecord, exact: bool) -> bool:
    content = ours.record.rest == theirs.rest if exact else len(ours.record.rest) == len(theirs.rest)
    return content and (ours.is_stamped or ours.record.timestamp == theirs.timestamp)


def read_batches_at(
    pool: BrokerPool[Connection], wanted: Mapping[PartitionKey, tuple[LeaderLog, str, int]]
) -> dict[PartitionKey, list[RawBatch] | ClusterError]:
    """At least one whole batch of each (leader, topic, offset), and what comes with it; none where nothing is there.
    What one partition is refused stands in its place. Raises Unreachable."""
    found: dict[PartitionKey, list[RawBatch] | ClusterError] = {}
    by_leader: dict[tuple[str, int], dict[PartitionKey, tuple[LeaderLog, str, int]]] = defaultdict(dict)
    for key, (led, topic, offset) in wanted.items():
        if led.start <= offset < led.end:
            by_leader[led.leader][key] = led, topic, offset
        else:
            found[key] = []
    for address, asked in by_leader.items():
        connection = pool.get(address)
        deadline = time.monotonic() + _PATIENCE_S
        while asked:
            came = _read_once(connection, asked)
            found |= came
            asked = {key: each for key, each in asked.items() if key not in came}
            if asked and not came:  # a quota is used up (KIP-219)
                if time.monotonic() > deadline:
                    raise Unreachable(f"cluster {connection.alias} brings nothing to compare", alias=connection.alias)
                time.sleep(min(max(connection.throttle_ms, 100), 5_000) / 1000)
    return found


def _read_once(
    connection: Connection, asked: Mapping[PartitionKey, tuple[LeaderLog, str, int]]
) -> dict[PartitionKey, list[RawBatch] | ClusterError]:
    """What one Fetch brings: something for its first partition in any case, so that asking again comes to an end."""
    by_partition = {(led.topic_id, key.partition): key for key, (led, _, _) in asked.items()}
    answers = connection.fetch(
        tuple(
            FetchPartition(led.topic_id, key.partition, offset, max_bytes=_FETCH_BYTES)
            for key, (led, _, offset) in asked.items()
        ),
        max_wait_ms=0,
        isolation=READ_UNCOMMITTED,
    )
    found: dict[PartitionKey, list[RawBatch] | ClusterError] = {}
    for answer in answers:
        key = by_partition[answer.topic_id, answer.partition]
        if answer.error:
            found[key] = build_refusal(connection.alias, "Fetch", asked[key][1], key.partition, answer.error)
            continue
        try:
            batches = list(decode_batches(answer.records))
        except ReplicatorError:
            batches = []
        if batches or answer.high_watermark <= asked[key][2]:
            found[key] = batches
    return found
