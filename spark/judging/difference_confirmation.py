"""What differs, record by record: every range whose sums differ is read once more on both sides and compared.

A range is compared by itself at first. Where one of a partition lost records and another has more than it should,
records may have moved between them: then both are compared with all that stands in between. A record that the range's
source does not hold is looked for near by, so that what was copied twice is told from what is foreign.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import NamedTuple

from watershed.replicator.ledger.explicit_runs import RepeatedRunMap
from watershed.replicator.ledger.offset_map import ExplicitRun, OffsetMap
from watershed.spark.judging.proof_inputs import ProofPartition, ProofReaders, RangeComparison
from watershed.spark.judging.proof_window import PartitionPair
from watershed.spark.judging.verdict import (
    ChunkRow,
    ConfirmedDifference,
    join_different_chunks,
    select_different_chunks,
)
from watershed.spark.reading.offset_range import OffsetRange
from watershed.spark.reading.range_requests import RangeRequest

_JOINED = 2_000_000  # records compared one by one at once; beyond, counts are lower bounds
_NEAR = 2_000_000  # offsets of the source before and behind a range in which a record may stand that its copy has twice
_EVERYTHING = 1 << 62  # a target's end that no offset reaches
_TAIL = 200_000  # pending offsets that are counted record by record; beyond, by offsets


class _ComparedRange(NamedTuple):
    """A range that is compared as one. inside: records of its equal chunks, which are counted already."""

    place: PartitionPair
    source: OffsetRange
    target: OffsetRange
    inside: int = 0


def confirm_differences(
    rows: Sequence[ChunkRow], partitions: dict[PartitionPair, ProofPartition], readers: ProofReaders, named: int
) -> list[ConfirmedDifference]:
    """The differences of all rows that differ. named: how many of a range get an example. Raises SparkError."""
    found = _compared(
        [_ComparedRange(*each) for each in join_different_chunks(select_different_chunks(rows), _JOINED)],
        partitions,
        readers,
        named,
    )
    joined = [
        whole
        for whole in (_joined(some, rows, partitions[some[0].place]) for some in _by_place(found))
        if whole is not None
    ]
    again = {each.place: each for each in _compared(joined, partitions, readers, named)}
    kept = [each for each in found if each.place not in again]
    return sorted([*kept, *again.values()], key=lambda each: (each.place, each.target))


def find_displaced_ranges(
    confirmed: Iterable[ConfirmedDifference], partitions: Mapping[PartitionPair, ProofPartition]
) -> list[str]:
    """Findings: ranges with equal records in equal order that stand at other offsets than the offset map says. Where
    records may repeat: only what the map puts behind its place, because a group would skip it there."""
    return [
        f"{each.place.name}: the records of source offsets {each.source.start} to "
        f"{each.source.end - 1} are on the target, but not at the offsets that the offset map gives; positions "
        "translated by it are wrong there"
        for each in confirmed
        if each.by == "records" and not each.difference.difference_count
        if _is_displaced(each, partitions[each.place].map)
    ]


def _is_displaced(each: ConfirmedDifference, offsets: OffsetMap) -> bool:
    if not isinstance(offsets, RepeatedRunMap):
        return not (each.difference.quarantined or each.difference.repeated)
    return any(_is_behind_its_place(offsets, run) for run in each.difference.taken)


def _is_behind_its_place(offsets: RepeatedRunMap, run: ExplicitRun) -> bool:
    """Whether the map gives a record of the run a later target offset than it has. Between two ends of the map's runs
    both advance alike, or the record's offset does alone. What the ledger does not know yet, the map does not give."""
    end = min(run.source + run.records, run.source + offsets.known_end - run.target, offsets.position)
    sources, records = offsets.counted.columns[1:]
    at = max(0, bisect_right(sources, run.source) - 1)
    edges = {run.source}
    while at < len(sources) and sources[at] < end:
        edges |= {sources[at], sources[at] + records[at]}
        at += 1
    return any(
        offsets.to_target(offset, _EVERYTHING) > run.target + offset - run.source
        for offset in edges
        if run.source <= offset < end
    )


def is_small_tail(tail: OffsetRange) -> bool:
    """Whether its records are counted one by one."""
    return 0 < tail.end - tail.start <= _TAIL


def _compared(
    ranges: Sequence[_ComparedRange], partitions: dict[PartitionPair, ProofPartition], readers: ProofReaders, named: int
) -> list[ConfirmedDifference]:
    jobs = [_job(each, partitions[each.place], named) for each in ranges]
    found = []
    for each, job, difference in zip(ranges, jobs, readers.differences(jobs) if jobs else (), strict=True):
        cut_off = any(
            other.place == each.place
            and (each.target.end == other.target.start or each.target.start == other.target.end)
            for other in ranges
            if other is not each
        )
        if cut_off:  # a neighbour was left apart for its size: what moved over the cut counts twice
            difference = replace(difference, exact=False)
        difference = replace(difference, proven=max(0, difference.proven - each.inside))
        found.append(
            ConfirmedDifference(each.place, OffsetRange(job.source.start, job.source.end), each.target, difference)
        )
    return found


def _job(each: _ComparedRange, s: ProofPartition, named: int) -> RangeComparison:
    source, window = each.source, s.window
    last = each.target.end == window.target.end
    if last and source.end == window.tail.start:
        source = OffsetRange(source.start, _find_reach(s))
    near = (
        OffsetRange(max(window.source.start, source.start - _NEAR), source.start),
        OffsetRange(
            source.end, min(window.tail.end if is_small_tail(window.tail) else window.source.end, source.end + _NEAR)
        ),
    )
    around: tuple[RangeRequest, ...] = tuple(
        s.build_request(0, span, 2 + at) for at, span in enumerate(near) if span.end > span.start
    )
    sides, kept = (s.build_request(0, source, 0), s.build_request(1, each.target, 1)), s.kept_in(source)
    if not isinstance(s.map, RepeatedRunMap):
        return RangeComparison(*sides, last and window.open_end, named, around, kept)
    known = list_known_repeats(s.map, each.target)
    far = sorted({OffsetRange(run.source, run.source + run.records) for run in known if run.source < near[0].start})
    around = (*(s.build_request(0, span, 4 + at) for at, span in enumerate(far)), *around)
    return RangeComparison(*sides, last and window.open_end, named, around, kept, True, known)


def _find_reach(s: ProofPartition) -> int:
    """Up to which source offset the records may stand at the target's end: a lost one makes the map end too early, and
    with repeats the ledger is written behind the answers. A record has a marker behind it at most, so twice as many
    offsets hold them, or more, where many transactions were aborted."""
    window = s.window
    if is_small_tail(window.tail) or not isinstance(s.map, RepeatedRunMap):
        return window.tail.end if is_small_tail(window.tail) else window.source.end
    unknown = max(0, window.target.end - max(s.map.known_end, window.target.start))
    if not unknown:
        return window.source.end
    return min(window.tail.end, window.tail.start + min(max(2 * unknown, _TAIL), _JOINED))


def list_known_repeats(offsets: RepeatedRunMap, target: OffsetRange) -> tuple[ExplicitRun, ...]:
    """What stands in this range of the target once more, as the ledger says: it tells where to look far back."""
    return tuple(run for run in offsets.repeated if run.target < target.end and run.target + run.records > target.start)


def _by_place(found: Iterable[ConfirmedDifference]) -> Iterable[list[ConfirmedDifference]]:
    ordered = sorted(found, key=lambda each: (each.place, each.target))
    return (list(some) for _, some in groupby(ordered, key=lambda each: each.place))


def _joined(
    found: Sequence[ConfirmedDifference], rows: Sequence[ChunkRow], partition: ProofPartition
) -> _ComparedRange | None:
    """One range from the first to the last of a partition's differing ranges (the tail counts as one), if records may
    have moved between them and everything in between can be compared. None otherwise."""
    lost = sum(each.difference.missing + each.difference.pending for each in found)
    more = sum(each.difference.duplicates + each.difference.foreign for each in found)
    window, ends = partition.window, (found[-1].source.end, found[-1].target.end)
    tail = is_small_tail(window.tail) and ends[0] < window.tail.end
    if (len(found) < 2 and not tail) or not (lost or tail) or not more:
        return None
    if tail:
        ends = window.source.end, window.target.end
    place, source = found[0].place, OffsetRange(found[0].source.start, ends[0])
    target = OffsetRange(found[0].target.start, ends[1])
    if max(source.end - source.start, target.end - target.start) > _JOINED:
        return None
    within = sorted(
        (row for row in rows if row.place == place and _inside(row.source, source) and _inside(row.target, target)),
        key=lambda row: (row.target, row.source),
    )
    whole = all((a.source.end, a.target.end) == (b.source.start, b.target.start) for a, b in pairwise(within)) and all(
        row.status in ("equal", "different") for row in within
    )
    ends = min(ends[0], window.source.end), ends[1]
    if not whole or (within[-1].source.end, within[-1].target.end) != ends:  # not read in this proof, or gone
        return None
    inside = sum(row.source_sum.n for row in within if row.status == "equal")
    return _ComparedRange(place, OffsetRange(source.start, within[-1].source.end), target, inside)


def _inside(span: OffsetRange, whole: OffsetRange) -> bool:
    return whole.start <= span.start and span.end <= whole.end
