"""The exact translation of a group's positions from side to side.

Pure: offset maps and numbers in, numbers out. Its cases: docs/cutover-cases.md, C14 to C19.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.errors import NotCopied
from watershed.replicator.ledger.offset_map import OffsetMap

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class CopiedPartition:
    """What the target holds of one source partition: its map, and the target's own log end."""

    map: OffsetMap
    target_end: int

    @property
    def position(self) -> int:
        """Everything at the source below this offset is on the target."""
        return self.map.source_position(self.target_end)


@dataclass(frozen=True, slots=True)
class OffsetNotCopied:
    """A committed offset that lies beyond what has been copied: `copied` is how far the copy is."""

    place: TopicPartition
    offset: int
    copied: int

    def __str__(self) -> str:
        return f"{self.place} committed {self.offset}, copied through {self.copied} ({self.offset - self.copied} to go)"


@dataclass(frozen=True, slots=True)
class _GroupTranslation:
    """A group in the other side's offsets. Usable only when `ahead` and `uncommitted` are empty."""

    offsets: dict[TopicPartition, int]  # keyed by the other side's topic names
    ahead: tuple[OffsetNotCopied, ...] = ()
    uncommitted: tuple[TopicPartition, ...] = ()  # partitions for which nobody said where to read


def translate_group(
    committed: Offsets,
    wanted: Iterable[TopicPartition],
    copied: Mapping[TopicPartition, CopiedPartition],
    rename: Callable[[str], str],
    starts: Offsets,
    ends: Offsets,
    uncommitted: str | None = None,
) -> _GroupTranslation:
    """Where a group that committed at the source goes on at the target, for each of the `wanted` source partitions.

    committed, copied, starts, ends: by source partition (`ends`: log ends at the source).
    uncommitted: `earliest` | `latest`, the declared policy for partitions without a commit; None refuses them.
    A partition that holds nothing (start = end) needs no policy: every policy means the same place there.
    """
    offsets: dict[TopicPartition, int] = {}
    ahead: list[OffsetNotCopied] = []
    silent: list[TopicPartition] = []
    for place in wanted:
        at = committed.get(place)
        if at is None and starts[place] == ends[place]:
            at = ends[place]
        elif at is None and uncommitted == "earliest":
            at = starts[place]
        elif at is None and uncommitted == "latest":
            at = ends[place]
        if at is None:
            silent.append(place)
            continue
        found = translate_offset(place, at, copied.get(place), starts[place], ends[place])
        if isinstance(found, OffsetNotCopied):
            ahead.append(found)
        else:
            offsets[TopicPartition(rename(place.topic), place.partition)] = found
    return _GroupTranslation(offsets, tuple(ahead), tuple(silent))


def translate_offset(
    place: TopicPartition, at: int, held: CopiedPartition | None, start: int, end: int
) -> int | OffsetNotCopied:
    """Where a reader of `place` that goes on at `at` goes on at the target. start, end: the log at the source.

    Raises ReplicatorError for a map that contradicts itself.
    """
    if held is None or not held.map.runs:
        if at <= start or start == end:
            return held.target_end if held else 0  # nothing to read before it, on either side
        return OffsetNotCopied(place, at, 0)
    try:
        return held.map.to_target(at, held.target_end)
    except NotCopied as error:
        return OffsetNotCopied(place, at, error.copied)


def translate_group_back(
    at_target: Offsets,
    given: Offsets,
    at_source: Offsets,
    copied: Mapping[TopicPartition, CopiedPartition],
    rename: Callable[[str], str],
) -> dict[TopicPartition, int]:
    """Where a group goes on at the source after it read at the target; by source partition.

    at_target: what it has committed there now; given: what we had committed there for it; at_source: what it
    had committed at the source before the move. A partition that did not advance returns to exactly its old
    source offset; the others go through the map. Partitions with nothing known to return are left out.
    """
    back: dict[TopicPartition, int] = {}
    for place, held in copied.items():
        there = TopicPartition(rename(place.topic), place.partition)
        now = at_target.get(there)
        if now is None or now == given.get(there):
            if place in at_source:
                back[place] = at_source[place]
        elif held.map.runs:
            back[place] = held.map.to_source(min(now, held.target_end))
    return back
