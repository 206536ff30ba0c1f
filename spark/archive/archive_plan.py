"""Which offsets a run of `topology archive` reads, and what keeps it from going on. Does no I/O."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from watershed.spark.archive.manifest import ArchivedObject, ArchivedPartition, ArchivedTopic, ArchiveManifest
from watershed.spark.errors import NotArchivable


@dataclass(frozen=True, slots=True)
class PartitionTail:
    """How far a partition is archived. start: the first archived offset; end: behind the last. last_offset,
    leader_epoch: of the last batch that is archived, -1 for none."""

    start: int
    end: int
    last_offset: int = -1
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class SeenPartition:
    """What a cluster says of a partition. start, end: of the log, for readers of committed records; high_watermark: its
    end for all others. epoch_end: where the leader's log ends the leader epoch of the last archived batch, -1: it does
    not know."""

    partition: int
    start: int
    end: int
    high_watermark: int
    epoch_end: int = -1


@dataclass(frozen=True, slots=True)
class SeenTopic:
    """What a cluster says of a topic. configs: what is set on the topic itself."""

    name: str
    topic_id: uuid.UUID
    replication_factor: int
    configs: Mapping[str, str] = field(default_factory=dict)
    partitions: tuple[SeenPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class ArchiveRange:
    """Offsets first <= offset < end of one partition, to be read. start: the first offset that the archive covers."""

    topic: str
    topic_id: uuid.UUID
    partition: int
    start: int
    first: int
    end: int


Tails = Mapping[tuple[str, int], PartitionTail]  # by topic and partition


def find_tails(
    manifest: ArchiveManifest | None, left: Iterable[ArchivedObject] = ()
) -> dict[tuple[str, int], PartitionTail]:
    """How far each partition is archived. left: complete objects behind those of the manifest, in log order."""
    found: dict[tuple[str, int], PartitionTail] = {}
    for topic in manifest.topics if manifest is not None else ():
        for part in topic.partitions:
            found[topic.name, part.partition] = PartitionTail(part.start, part.start)
    for each in (*(manifest.objects if manifest is not None else ()), *left):
        before = found.get((each.topic, each.partition), PartitionTail(each.first, each.first))
        last = (each.last_offset, each.leader_epoch) if each.batches else (before.last_offset, before.leader_epoch)
        found[each.topic, each.partition] = PartitionTail(before.start, each.end, *last)
    return found


def plan_archive_ranges(
    manifest: ArchiveManifest | None, tails: Tails, seen: Sequence[SeenTopic]
) -> list[ArchiveRange]:
    """What is to be read, also where a partition has nothing new. Raises NotArchivable, which names every obstacle."""
    refused: list[str] = []
    ranges: list[ArchiveRange] = []
    for topic in seen:
        before = manifest.find_topic(topic.name) if manifest is not None else None
        if before is not None and (why := _explain_other_topic(before, topic)):
            refused.append(why)
            continue
        for part in topic.partitions:
            tail = tails.get((topic.name, part.partition), PartitionTail(part.start, part.start))
            if why := _explain_broken_log(topic.name, part, tail):
                refused.append(why)
            ranges.append(ArchiveRange(topic.name, topic.topic_id, part.partition, tail.start, tail.end, part.end))
    if refused:
        raise NotArchivable("\n".join(refused))
    return ranges


def build_archived_topic(topic: SeenTopic, ranges: Iterable[ArchiveRange]) -> ArchivedTopic:
    """The topic's entry once its ranges are archived."""
    starts = {each.partition: each.start for each in ranges if each.topic == topic.name}
    return ArchivedTopic(
        topic.name,
        topic.topic_id,
        topic.replication_factor,
        dict(topic.configs),
        tuple(
            ArchivedPartition(
                part.partition, starts[part.partition], part.end, part.start, part.end, part.high_watermark - part.end
            )
            for part in topic.partitions
        ),
    )


def _explain_other_topic(before: ArchivedTopic, topic: SeenTopic) -> str:
    """Why the topic is another one than the archived one; "" where it is the same."""
    if before.topic_id != topic.topic_id:
        return (
            f"topic {topic.name} was deleted and created again: its id is {topic.topic_id}, the archive holds "
            f"{before.topic_id}. Archive it to another folder"
        )
    if len(topic.partitions) < len(before.partitions):
        return (
            f"topic {topic.name} has {len(topic.partitions)} partitions, the archive holds {len(before.partitions)}: "
            "it is another topic. Archive it to another folder"
        )
    return ""


def _explain_broken_log(topic: str, part: SeenPartition, tail: PartitionTail) -> str:
    """Why the log does not go on where the archive ends; "" where it does."""
    where = f"{topic}-{part.partition}"
    if part.start > tail.end:
        return (
            f"{where}: offsets {tail.end} to {part.start - 1} were deleted (retention) before they were archived; the "
            f"log begins at {part.start} now. Archive the topic to another folder, and more often than it forgets"
        )
    if part.end < tail.end or 0 <= part.epoch_end <= tail.last_offset:
        ends = part.end if part.end < tail.end else part.epoch_end
        return (
            f"{where}: the log was cut: what is archived up to offset {tail.end - 1} is in the log only below {ends} "
            "(an unclean leader election). Archive the topic to another folder"
        )
    return ""
