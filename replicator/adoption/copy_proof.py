"""Whether the target's partitions are copies of the source's, and where copying would go on: both logs are read whole.

Nothing is written. What the copier says about itself only helps to find places faster; every record is compared.
"""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire.messages import READ_COMMITTED, READ_UNCOMMITTED
from watershed.replicator.adoption.digest_reader import NotProvable, PartitionRange, read_log_digests
from watershed.replicator.adoption.duplicates_and_gaps import ComparedRanges, CopyVerdict, judge_alignment
from watershed.replicator.adoption.log_alignment import LogAlignment, align_logs
from watershed.replicator.adoption.log_digests import DigestedLog
from watershed.replicator.adoption.mirrormaker_format import MirrorMakerNotes
from watershed.replicator.ledger.foreign_part import ForeignPart, JoinedOffsetMap
from watershed.replicator.ledger.offset_map import ExplicitRun, OffsetMap, OffsetRun
from watershed.replicator.mirrormaker_records import Checkpoint, OffsetSync
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.recovery.log_inspection import LeaderLog, require_leader_logs

_OPEN_S: Final = 75.0  # a transaction's default timeout is 60 s, and its coordinator looks every 10 s


@dataclass(frozen=True, slots=True)
class PartitionProof:
    """What was found about one partition. reported_position: the next source offset by the copier's own notes, -1
    without. agreeing, syncs: how many of its offset syncs are true, of those in the proven part. groups: where the
    copier would send each group, and the exact target offset."""

    key: PartitionKey
    ends: ComparedRanges
    verdict: CopyVerdict
    source_id: uuid.UUID
    target_id: uuid.UUID
    reported_position: int = -1
    true_syncs: int = 0
    syncs: int = 0
    groups: tuple[tuple[Checkpoint, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ComparisonOptions:
    """How to compare. equal: all offsets have to be the source's. compacted: topics (by source name) on which a cleaner
    works, on either side. directory: for the digests. progress hears how many records were read just now."""

    equal: bool = False
    compacted: frozenset[str] = frozenset()
    directory: Path | None = None
    progress: Callable[[PartitionKey, int], None] = lambda _key, _records: None


def prove_partitions(
    keys: Iterable[PartitionKey],
    source: ConnectionSettings,
    target: ConnectionSettings,
    notes: MirrorMakerNotes,
    options: ComparisonOptions,
) -> list[PartitionProof]:
    """Compare every partition, in the order given.

    Raises NotProvable (somebody still writes to the target, a transaction that does not end, a log that changes while
    it is read), ClusterError.
    """
    wanted = list(keys)
    there = [TopicPartition(key.target_topic, key.partition) for key in wanted]
    before = require_leader_logs(target, there, READ_UNCOMMITTED)
    _ended(target, there, before, "the copier's transaction")
    here = [TopicPartition(key.topic, key.partition) for key in wanted]
    # Whatever the target holds was in the source's log before: up to its end of now, which has to be decided.
    ends = require_leader_logs(source, here, READ_UNCOMMITTED)
    committed = _ended(source, here, ends, "a transaction")
    proofs = []
    for key in wanted:
        at_source = committed[TopicPartition(key.topic, key.partition)]
        at_target = before[TopicPartition(key.target_topic, key.partition)]
        proofs.append(_one(key, at_source, at_target, source, target, notes, options))
    after = require_leader_logs(target, there, READ_UNCOMMITTED)
    moved = {place: (before[place].end, after[place].end) for place in there if before[place].end != after[place].end}
    if moved:
        (topic, partition), (first, last) = next(iter(moved.items()))
        raise NotProvable(
            f"{topic}-{partition} on {target.alias} grew from offset {first} to {last} while it was compared"
            + (f", and so did {len(moved) - 1} more" if len(moved) > 1 else "")
            + ": somebody still writes to it. Stop that copier, then ask again"
        )
    return proofs


def _one(
    key: PartitionKey,
    here: LeaderLog,
    there: LeaderLog,
    source: ConnectionSettings,
    target: ConnectionSettings,
    notes: MirrorMakerNotes,
    options: ComparisonOptions,
) -> PartitionProof:
    place = key.topic, key.partition
    syncs, reported_position = notes.syncs.get(place, []), notes.positions.get(place, -1)
    ends = ComparedRanges(here.start, here.end, there.start, there.end, key.topic in options.compacted)
    secret = secrets.token_bytes(32)

    def compared(timestamps: bool) -> LogAlignment:
        def log(wanted: PartitionRange, aborted: bool) -> DigestedLog:
            return read_log_digests(
                wanted,
                secret,
                timestamps=timestamps,
                aborted=aborted,
                directory=options.directory,
                progress=lambda records: options.progress(key, records),
            )

        copied = log(PartitionRange(target, key.target_topic, key.partition, there.start, there.end), False)
        original = log(PartitionRange(source, key.topic, key.partition, here.start, here.end), True)
        hints = _hints(original, copied, syncs)
        return align_logs(
            original, copied, expired=here.start > 0 or ends.compacted, sparse=ends.compacted, hints=hints
        )

    found, timestamps = compared(True), True
    if _alike(found) * 2 < len(
        found.target
    ):  # most records are not the source's; perhaps only their timestamps are not
        without = compared(False)
        if _alike(without) > _alike(found):
            found, timestamps = without, False
    verdict = judge_alignment(found, ends, hint=reported_position, equal=options.equal, timestamps=timestamps)
    agreeing, checked = _agreeing(verdict.stretches, syncs)
    groups = _groups(verdict, ends, notes.groups.get((key.target_topic, key.partition), {}).values())
    return PartitionProof(
        key, ends, verdict, here.topic_id, there.topic_id, reported_position, agreeing, checked, groups
    )


def _groups(
    verdict: CopyVerdict, ends: ComparedRanges, held: Iterable[Checkpoint]
) -> tuple[tuple[Checkpoint, int], ...]:
    """With the exact target offset of each group's source offset, as far as it was copied."""
    if verdict.position < 0:
        return ()
    behind = OffsetMap((OffsetRun(ends.target_end, verdict.position),))
    offsets = JoinedOffsetMap.over(ForeignPart("", ends.target_end, verdict.position, verdict.stretches), behind)
    return tuple(
        (each, offsets.to_target(each.upstream, ends.target_end))
        for each in sorted(held)
        if each.upstream <= verdict.position
    )


def _alike(alignment: LogAlignment) -> int:
    return sum(pair.records for pair in (*alignment.copied, *alignment.repeated))


def _hints(source: DigestedLog, target: DigestedLog, syncs: Iterable[OffsetSync]) -> Mapping[int, int]:
    """Target index → source index, where both offsets hold a record."""
    hints: dict[int, int] = {}
    for sync in syncs:
        there, here = target.index(sync.downstream), source.index(sync.upstream)
        if there < len(target) and here < len(source):
            hints[there] = here
    return hints


def _agreeing(stretches: Sequence[ExplicitRun], syncs: Sequence[OffsetSync]) -> tuple[int, int]:
    """How many syncs are true, and how many there are about what was proven."""
    agreeing = checked = at = 0
    for sync in sorted(syncs, key=lambda each: each.downstream):
        while at < len(stretches) and stretches[at].target + stretches[at].records <= sync.downstream:
            at += 1
        if at == len(stretches):
            break
        if stretches[at].target <= sync.downstream:
            checked += 1
            agreeing += stretches[at].source + sync.downstream - stretches[at].target == sync.upstream
    return agreeing, checked


def _ended(
    settings: ConnectionSettings, places: Sequence[TopicPartition], ends: Mapping[TopicPartition, LeaderLog], what: str
) -> dict[TopicPartition, LeaderLog]:
    """Wait until every transaction below these ends is decided; the leaders with the ends up to which that is so."""
    deadline = time.monotonic() + _OPEN_S
    while True:
        stable = require_leader_logs(settings, places, READ_COMMITTED)
        open_still = [place for place in places if stable[place].end < ends[place].end]
        if not open_still:
            return {place: replace(stable[place], end=ends[place].end) for place in places}
        if time.monotonic() > deadline:
            topic, partition = open_still[0]
            raise NotProvable(
                f"{what} is open on {topic}-{partition} of {settings.alias} since offset "
                f"{stable[open_still[0]].end}: nobody can say yet what of it counts. When its producer is gone, "
                "`kafka-transactions.sh find-hanging` and `abort` end it; then ask again"
            )
        time.sleep(0.5)
