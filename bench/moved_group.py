"""What a group reads at the target after it was moved, and what that means: records re-read, records lost.

Nobody's word is taken for it. The group's place is its committed offset at the source, its past is what a consumer
really read there; a consumer of the same group then reads the target from the group's offset there to the end, and goes
nowhere by itself (`auto.offset.reset=error`). With c the committed source offset of a partition:

* **re-read**: records seen at the target that stand (or stood, before compaction) below c at the source, and every
  sight of a record after its first. For topics without compaction these are exactly records that the group had read.
* **lost**: records that the source still gives from c on, and that were not seen. Where topics are compacted, a record
  is not lost when a later record of its key was seen: the target's cleaner may have been further than the source's.
* **never committed**: records seen that were rolled back at the source; no reader of committed data may see them.
* **unmoved**: partitions where the group has no offset at the target, or one outside the log. Nothing is re-read or
  lost there yet: that is up to `auto.offset.reset` of the application, all or nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Consumer

from watershed.bench.lagging_group import StoppedGroup
from watershed.bench.numbered_topics import (
    GROUP_BENCH_PARTITIONS,
    NumberedRecord,
    NumberedRecords,
    build_reader_settings,
    read_to_end,
)
from watershed.clusters.settings import ConnectionSettings


@dataclass(frozen=True, slots=True)
class RecordsReadOn:
    """What a group read at the target, by partition; `refused`: why a partition gave nothing."""

    rows: NumberedRecords
    refused: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupMoveVerdict:
    """Numbers of records; `unmoved` of partitions."""

    reread: int = 0
    lost: int = 0
    never_committed: int = 0
    unmoved: int = 0

    def __add__(self, other: GroupMoveVerdict) -> GroupMoveVerdict:
        return GroupMoveVerdict(
            self.reread + other.reread,
            self.lost + other.lost,
            self.never_committed + other.never_committed,
            self.unmoved + other.unmoved,
        )


def read_on_at_target(target: ConnectionSettings, group: str, topic: str) -> RecordsReadOn:
    """The group's next member, at the target: everything it gets until the log's end."""
    consumer = Consumer(target.librdkafka(build_reader_settings(group)))
    rows: NumberedRecords = {partition: [] for partition in range(GROUP_BENCH_PARTITIONS)}
    try:
        consumer.subscribe([topic])
        return RecordsReadOn(rows, read_to_end(consumer, rows))
    finally:
        consumer.close()


def judge_moved_group(
    stand: StoppedGroup, source: NumberedRecords, seen: RecordsReadOn, aborted: Collection[int], compacted: bool
) -> GroupMoveVerdict:
    """The verdict on one group. Raises RuntimeError when the group's own past contradicts its committed offsets."""
    total = GroupMoveVerdict()
    for partition, rows in source.items():
        at = stand.committed[partition]
        passed = {row.number for row in rows if row.offset < at}
        if not passed <= stand.read or any(row.number in stand.read for row in rows if row.offset >= at):
            raise RuntimeError(f"{stand.group} committed {at} in partition {partition}, but has read something else")
        if partition in seen.refused:
            total += GroupMoveVerdict(unmoved=1)
            continue
        total += _of_partition([row for row in rows if row.offset >= at], seen.rows[partition], aborted, compacted)
    return total


def _of_partition(
    wanted: Sequence[NumberedRecord], seen: Sequence[NumberedRecord], aborted: Collection[int], compacted: bool
) -> GroupMoveVerdict:
    """wanted: what the source gives from the committed offset on."""
    first = wanted[0].number if wanted else None
    numbers: set[int] = set()
    latest: dict[bytes | None, int] = {}
    reread = never = 0
    for row in seen:
        if row.number in aborted:
            never += 1
        elif first is None or row.number < first or row.number in numbers:
            reread += 1
        numbers.add(row.number)
        latest[row.key] = max(row.number, latest.get(row.key, -1))
    lost = sum(row.number not in numbers and not (compacted and latest.get(row.key, -1) > row.number) for row in wanted)
    return GroupMoveVerdict(reread, lost, never)
