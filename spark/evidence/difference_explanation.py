"""Why a chunk differs: the records of its differences on both sides, as they are now, with their neighbours.

What a proof found (tables `chunks` and `diffs`) says where to look; the ranges are read again. A record that is not
what it was then is said to be: expired, or another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np

from watershed.replicator.errors import ReplicatorError
from watershed.spark.fingerprint import RecordFingerprints, fingerprint_records
from watershed.spark.judging.record_difference import DifferenceExample, compare_records
from watershed.spark.reading.fetch_answers import OffsetsExpired
from watershed.spark.reading.offset_range import OffsetRange
from watershed.spark.reading.whole_records import WholeRecord

_NEIGHBOURS: Final = 2  # on each side of a record
_SHOWN: Final = 20  # differences

_Then = Literal["as it was", "expired since", "not there now", "another record now"]


@dataclass(frozen=True, slots=True)
class SideReader:
    """How one side of a chunk is read: fingerprints of a range, and the whole records at some offsets of a range.

    Both raise Expired, NotReadable, ClusterError."""

    prints: Callable[[OffsetRange], RecordFingerprints]
    records: Callable[[OffsetRange, Sequence[int]], Iterable[WholeRecord]]


@dataclass(slots=True)
class _SideNow:
    """A side of a chunk as it is now. expired: how many offsets at its head are gone."""

    reader: SideReader
    span: OffsetRange
    prints: RecordFingerprints
    expired: int = 0
    known: dict[int, WholeRecord] = field(default_factory=dict)

    @staticmethod
    def of(reader: SideReader, span: OffsetRange) -> _SideNow:
        start = span.start
        while start < span.end:
            try:
                return _SideNow(reader, span, reader.prints(OffsetRange(start, span.end)), start - span.start)
            except OffsetsExpired as gone:  # what lies above the log's new start can still be read
                start = min(max(gone.log_start, start + 1), span.end)
        return _SideNow(reader, span, fingerprint_records(()), start - span.start)

    def at(self, offset: int) -> int | None:
        """The index of an offset."""
        index = int(np.searchsorted(self.prints.offset, offset))
        return index if index < len(self.prints) and int(self.prints.offset[index]) == offset else None

    def around(self, index: int, *, gap: bool = False) -> list[int]:
        """Offsets of the neighbours of a record, or of a gap in front of one."""
        behind = index if gap else index + 1
        rows = [*range(max(0, index - _NEIGHBOURS), index), *range(behind, min(len(self.prints), behind + _NEIGHBOURS))]
        return [int(self.prints.offset[row]) for row in rows]

    def look(self, offsets: Iterable[int]) -> None:
        """Read these records, those of the chunk in one go."""
        wanted = sorted(set(offsets) - self.known.keys())
        inside = [at for at in wanted if self.span.start + self.expired <= at < self.span.end]
        ranges = [(OffsetRange(inside[0], inside[-1] + 1), inside)] if inside else []
        ranges += [(OffsetRange(at, at + 1), [at]) for at in wanted if not self.span.start <= at < self.span.end]
        for span, some in ranges:
            try:
                self.known |= {record.offset: record for record in self.reader.records(span, some)}
            except OffsetsExpired:
                continue  # what is not known then is told as expired

    def then(self, offset: int | None, fp: str | None) -> _Then | None:
        """How the record at an offset stands to the one that the proof saw there."""
        if offset is None:
            return None
        if offset not in self.known:
            return "expired since" if self.span.start <= offset < self.span.start + self.expired else "not there now"
        same = fp is None or f"{self.known[offset].fp:016x}" == fp
        return "as it was" if same else "another record now"


@dataclass(frozen=True, slots=True)
class ExplainedDifference:
    """One difference. records: of both sides as they are compared, of a flow that changes records what should stand at
    the target; near: those around them, by side; then: how each stands to what the proof saw. origin: of a flow that
    changes records the source's record as it is, also where it should not travel; None: there is none, or unknown.
    is_left_out: it should not travel."""

    kind: str
    components: tuple[str, ...]
    offsets: tuple[int | None, int | None]
    records: tuple[WholeRecord | None, WholeRecord | None]
    then: tuple[_Then | None, _Then | None]
    near: tuple[tuple[WholeRecord, ...], tuple[WholeRecord, ...]]
    origin: WholeRecord | None = None
    is_left_out: bool = False


@dataclass(frozen=True, slots=True)
class ChunkExplanation:
    """anew: nothing was named by the proof, the chunk was compared again. total: differences, of which `explained` are
    the first. expired: offsets at the head of the chunk, by side, that are gone since. is_transformed: the flow changes
    records."""

    explained: tuple[ExplainedDifference, ...]
    total: int
    anew: bool
    expired: tuple[int, int]
    equal_now: bool
    is_transformed: bool = False


@dataclass(frozen=True, slots=True)
class OriginReader:
    """The source's records of a flow that changes them. find_offset: the source offset that stands at a target offset,
    by the flow's offset map; raises ReplicatorError. records: as `SideReader.records`."""

    find_offset: Callable[[int], int]
    records: Callable[[OffsetRange, Sequence[int]], Iterable[WholeRecord]]

    def read(self, rows: Iterable[Mapping[str, Any]], span: OffsetRange) -> list[WholeRecord | None]:
        """Of each difference its record, as far as it stands in `span`."""
        offsets = [self._find(row) for row in rows]
        inside = sorted({at for at in offsets if at is not None and span.start <= at < span.end})
        known: dict[int, WholeRecord] = {}
        if inside:
            with suppress(OffsetsExpired):  # what is not known is told as that
                known = {each.offset: each for each in self.records(OffsetRange(inside[0], inside[-1] + 1), inside)}
        return [None if at is None else known.get(at) for at in offsets]

    def _find(self, row: Mapping[str, Any]) -> int | None:
        if row["source_offset"] is not None:
            return int(row["source_offset"])
        try:
            return self.find_offset(row["target_offset"])
        except ReplicatorError:  # the map does not know it: somebody else wrote it
            return None


def explain_differences(
    chunk: Mapping[str, Any],
    diffs: Sequence[Mapping[str, Any]],
    source: SideReader,
    target: SideReader,
    limit: int = _SHOWN,
    origin: OriginReader | None = None,
) -> ChunkExplanation:
    """Of a row of `chunks` and its rows of `diffs`. origin: of a flow that changes records; `source` gives those as
    they should stand at the target. Raises NotReadable, SparkError, ClusterError."""
    sides = (
        _SideNow.of(source, OffsetRange(chunk["source_start"], chunk["source_end"])),
        _SideNow.of(target, OffsetRange(chunk["target_start"], chunk["target_end"])),
    )
    here, there = sides[0].prints, sides[1].prints
    equal_now = len(here) == len(there) and bool((here.fp == there.fp).all())
    anew = not diffs and chunk["status"] == "different"
    rows = (
        list(diffs) if not anew else [_row(example) for example in compare_records(here, there, limit=limit).examples]
    )
    first = rows[:limit]
    near = [_near(row, sides) for row in first]
    for side, seen in enumerate(sides):
        name = ("source_offset", "target_offset")[side]
        own = [row[name] for row in first if row[name] is not None]
        seen.look([*own, *(at for some in near for at in some[side])])
    before = [None] * len(first) if origin is None else origin.read(first, sides[0].span)
    explained = tuple(
        replace(
            _explained(row, some, sides),
            origin=each,
            is_left_out=each is not None and sides[0].at(each.offset) is None,
        )
        for row, some, each in zip(first, near, before, strict=True)
    )
    expired = (sides[0].expired, sides[1].expired)
    return ChunkExplanation(explained, len(rows), anew, expired, equal_now, origin is not None)


def _explained(
    row: Mapping[str, Any], near: tuple[list[int], list[int]], sides: tuple[_SideNow, _SideNow]
) -> ExplainedDifference:
    offsets = (row["source_offset"], row["target_offset"])
    prints = (row["source_fp"], row["target_fp"])
    return ExplainedDifference(
        row["kind"],
        tuple(row["components"]),
        offsets,
        (_known(sides[0], offsets[0]), _known(sides[1], offsets[1])),
        (sides[0].then(offsets[0], prints[0]), sides[1].then(offsets[1], prints[1])),
        (tuple(_some(sides[0], near[0])), tuple(_some(sides[1], near[1]))),
    )


def _known(side: _SideNow, offset: int | None) -> WholeRecord | None:
    return None if offset is None else side.known.get(offset)


def _some(side: _SideNow, offsets: Sequence[int]) -> Iterator[WholeRecord]:
    return (side.known[at] for at in offsets if at in side.known)


def _near(row: Mapping[str, Any], sides: tuple[_SideNow, _SideNow]) -> tuple[list[int], list[int]]:
    """Offsets around a difference on both sides. A side without the record shows where it would stand."""
    offsets = (row["source_offset"], row["target_offset"])
    indices = [None if at is None else side.at(at) for side, at in zip(sides, offsets, strict=True)]
    found: list[list[int]] = []
    for side, other in ((0, 1), (1, 0)):
        own, beside = indices[side], indices[other]
        if own is not None:
            found.append(sides[side].around(own))
        elif offsets[side] is None and beside is not None:
            found.append(sides[side].around(_gap(sides[other].prints, beside, sides[side].prints), gap=True))
        else:
            found.append([])
    return found[0], found[1]


def _gap(here: RecordFingerprints, index: int, there: RecordFingerprints) -> int:
    """Where a record of `here` would stand in `there`: behind the nearest one before it that both have."""
    for row in range(index - 1, max(-1, index - 1000), -1):
        at = np.flatnonzero(there.fp == here.fp[row])
        if len(at):
            return int(at[np.argmin(np.abs(at - row))]) + 1
    return 0 if index < len(there) else len(there)


def _row(example: DifferenceExample) -> dict[str, Any]:
    fps = (example.source_fp, example.target_fp)
    hexes = [None if fp is None else f"{fp:016x}" for fp in fps]
    return {
        "kind": example.kind,
        "components": list(example.components),
        "source_offset": example.source_offset,
        "target_offset": example.target_offset,
        "source_fp": hexes[0],
        "target_fp": hexes[1],
    }
