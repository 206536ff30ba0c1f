"""Where partitions begin that were never copied, as the file says it (`delivery.start`), looked up at the source.

Done once for all deliveries. What is found is in the ledger with the first record of the copy, so it is never looked up
again. A start that the source's log does not have halts the partition: nothing is skipped, and nothing is copied that
was not asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import NamedTuple

from watershed.clusters.errors import ClusterError, Unauthorised
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.group_offsets import CommittedOffsets, GroupOffsets
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire.connection import open_connection
from watershed.clusters.wire.messages import LATEST
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import Halt, OffsetSpan, Reinspect
from watershed.replicator.recovery.log_inspection import BrokerAddress, LeaderLog, build_refusal
from watershed.replicator.recovery.recovery_point import FoundStart
from watershed.topology.copy_bounds import CopyBound

StartOrTrouble = FoundStart | Halt | Reinspect


class SourceRange(NamedTuple):
    """A source's log: its start, its last stable offset, and the end of all its records (the high watermark)."""

    start: int
    stable: int
    end: int


def find_starts(
    record: FlowRecord, fresh: Mapping[PartitionKey, LeaderLog], source: ConnectionSettings
) -> dict[PartitionKey, StartOrTrouble]:
    """Where each of these partitions begins, or why it cannot yet. Nobody has copied any of them. Never raises
    ClusterError: partitions that were copied before are looked at together with them."""
    found: dict[PartitionKey, StartOrTrouble] = {}
    bounds: dict[PartitionKey, CopyBound] = {}
    for key in fresh:
        start = record.start_of(key.topic, key.partition)
        if isinstance(start, CopyBound):
            bounds[key] = start
        else:
            found[key] = start
    if not bounds:
        return found
    try:
        return found | _look_up(bounds, fresh, source)
    except Unauthorised as error:
        return found | dict.fromkeys(bounds, Halt("unauthorised", str(error)))
    except ClusterError as error:
        return found | dict.fromkeys(bounds, Reinspect(str(error)))


def _look_up(
    bounds: Mapping[PartitionKey, CopyBound], logs: Mapping[PartitionKey, LeaderLog], source: ConnectionSettings
) -> dict[PartitionKey, StartOrTrouble]:
    """Raises ClusterError."""
    groups = {bound.group for bound in bounds.values() if bound.group is not None}
    committed = _read_groups(source, groups) if groups else {}
    by_leader: dict[BrokerAddress, list[PartitionKey]] = defaultdict(list)
    for key in bounds:
        by_leader[logs[key].leader].append(key)
    found: dict[PartitionKey, StartOrTrouble] = {}
    for leader, keys in by_leader.items():
        ends = ask_offsets(source, leader, keys, LATEST)
        instants: dict[int, list[PartitionKey]] = defaultdict(list)
        for key in keys:
            if (at_ms := bounds[key].timestamp_ms) is not None:
                instants[at_ms].append(key)
        firsts = {
            key: at for when, some in instants.items() for key, at in ask_offsets(source, leader, some, when).items()
        }
        for key in keys:
            end = ends[key]
            if isinstance(end, ClusterError):
                found[key] = Reinspect(str(end))
            else:
                log = SourceRange(logs[key].start, logs[key].end, end)
                found[key] = _judge(bounds[key], key, log, firsts.get(key, -1), committed)
    return found


def _judge(
    bound: CopyBound,
    key: PartitionKey,
    log: SourceRange,
    first: int | ClusterError,
    committed: Mapping[str, CommittedOffsets],
) -> StartOrTrouble:
    if bound.timestamp_ms is not None:
        return judge_first_offset(bound, first, log)
    if bound.group is not None:
        return judge_group_position(bound.group, TopicPartition(key.topic, key.partition), committed[bound.group], log)
    at = bound.find_offset(key.topic, key.partition)
    assert at is not None, "the others begin at the log's start"
    return judge_start_offset(f"`delivery.start` is offset {at}", at, log)


def judge_first_offset(bound: CopyBound, answer: int | ClusterError, log: SourceRange) -> StartOrTrouble:
    """Judge what the source says of the first record of an instant: -1 where no record is that new."""
    if isinstance(answer, ClusterError):
        return Reinspect(str(answer))
    if answer < 0:
        return "latest"
    return judge_start_offset(f"`delivery.start` is {bound}, which is offset {answer}", answer, log)


def judge_group_position(
    group: str, place: TopicPartition, committed: CommittedOffsets, log: SourceRange
) -> StartOrTrouble:
    """Judge what a group has committed for a partition."""
    name = f"{place.topic}-{place.partition}"
    if committed.is_unauthorised:
        return Halt("unauthorised", f"the position of group {group} for {name} cannot be read: {committed.error}")
    if committed.error:
        return Reinspect(f"the position of group {group} for {name} is not known: {committed.error}")
    if place in committed.unstable:
        return Reinspect(f"the position of group {group} for {name} is part of a transaction that is still open")
    position = committed.positions.get(place)
    if position is None:
        return Halt("start_missing", f"`delivery.start` is group {group}, and it has no position for {name}")
    asked = f"`delivery.start` is group {group}, which stands at offset {position.offset}"
    return judge_start_offset(asked, position.offset, log)


def judge_start_offset(asked: str, offset: int, log: SourceRange) -> StartOrTrouble:
    """Judge an offset. asked: where it comes from, for the message. The log's end is a place to begin at; an offset in
    front of the log is not, because records are gone there."""
    if offset < log.start:
        text = f"{asked}, and the source's log begins at {log.start}"
        return Halt("start_missing", text, source=OffsetSpan(offset, log.start))
    if offset > log.end:
        text = f"{asked}, and the source's log ends at {log.end}"
        return Halt("start_missing", text, source=OffsetSpan(log.end, offset))
    if offset > log.stable:
        return Reinspect(f"{asked}; in front of it, from offset {log.stable} on, a transaction is still open")
    return offset


def _read_groups(source: ConnectionSettings, groups: Iterable[str]) -> dict[str, CommittedOffsets]:
    with GroupOffsets(source) as asking:
        return asking.held(groups)


def ask_offsets(
    source: ConnectionSettings, leader: BrokerAddress, keys: Iterable[PartitionKey], when: int
) -> dict[PartitionKey, int | ClusterError]:
    """What a leader answers to ListOffsets: for LATEST the high watermark, for an instant (ms since 1970) the first
    offset whose record is not older, -1 if there is none. Trouble with one partition stands in its place. Raises
    ClusterError."""
    by_place = {(key.topic, key.partition): key for key in keys}
    with closing(open_connection(source, leader)) as connection:
        answers = connection.list_offsets(tuple(by_place), when)
    return {
        by_place[each.topic, each.partition]: (
            build_refusal(source.alias, "ListOffsets", each.topic, each.partition, each.error)
            if each.error
            else each.offset
        )
        for each in answers
    }
