"""One proof from facts to judgement: cut the windows, have the chunks read, confirm what differs.

How ranges are read is handed in (`Readers`), so that Spark is one way and a plain loop (for tests) another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from replicator.offsetmap import OffsetMap
from spark.difference import Difference
from spark.fingerprint import ChunkSum
from spark.source import Unit
from spark.sums import UnitSum
from spark.verdict import (
    ChunkRow,
    Confirmed,
    Counts,
    Judgement,
    as_unverifiable,
    judge,
    spans_to_compare,
    status_of,
    suspects,
)
from spark.window import Place, Span, Window, cut

CHUNK = 50_000  # source offsets
JOINED = 2_000_000  # records compared one by one at once; beyond, counts are lower bounds
TAIL = 200_000  # pending offsets that are counted record by record; beyond, by offsets


@dataclass(frozen=True, slots=True)
class Subject:
    """One partition to prove. `clusters` and `topic_ids`: source, then target."""

    window: Window
    map: OffsetMap
    clusters: tuple[str, str]
    compacted: bool = False
    timestamps: bool = True
    skip: tuple[int, ...] = ()


class Job(NamedTuple):
    """Two ranges to be compared record by record; `open_end` as in `difference.compare`."""

    source: Unit
    target: Unit
    open_end: bool = False


@dataclass(frozen=True, slots=True)
class Readers:
    sums: Callable[[Sequence[Unit]], dict[int, UnitSum]]
    differences: Callable[[Sequence[Job]], list[Difference]]


class Proof(NamedTuple):
    judgement: Judgement
    rows: list[ChunkRow]
    confirmed: list[Confirmed]


class _Chunk(NamedTuple):
    subject: Subject
    source: Span
    target: Span
    reads: int = 1


def prove(
    subjects: Sequence[Subject],
    readers: Readers,
    *,
    chunk: int = CHUNK,
    blocks: Sequence[str] = (),
    outside: dict[Place, Counts] | None = None,
) -> Proof:
    """Read everything once, what differs twice, and what still differs record by record.

    `outside`: counts of partitions that have no window (their topic is missing on the target).
    """
    counts = dict(outside or {})
    chunks = [_Chunk(s, *spans) for s in subjects for spans in cut(s.window, s.map, chunk)]
    tails = [s for s in subjects if _small(s.window.tail)]
    units = [unit for at, c in enumerate(chunks) for unit in _units(c, 2 * at)]
    first_tail = 2 * len(chunks)
    units += [_unit(s, 0, s.window.tail, first_tail + at) for at, s in enumerate(tails)]
    read = readers.sums(units) if units else {}
    errors = [f"{r.detail}." for r in read.values() if r.state == "failed"]

    for s in subjects:
        pending = max(0, s.window.tail.end - s.window.tail.start)
        counts[s.window.place] = Counts(
            unverifiable=s.window.unverifiable, pending=pending, proven_earlier=s.window.proven_earlier
        )
    no_tail: set[Place] = set()
    for at, s in enumerate(tails):
        seen, before = read[first_tail + at], counts[s.window.place]
        if seen.state == "expired":  # nobody can tell any more what was in it
            lost = s.window.tail.end - s.window.tail.start
            counts[s.window.place] = replace(before, pending=0, unverifiable=before.unverifiable + lost)
            no_tail.add(s.window.place)
        else:
            counts[s.window.place] = replace(before, pending=seen.sums.n)
    if errors:
        return Proof(judge((), (), counts, blocks=blocks, errors=errors), [], [])

    rows, again = _rows(chunks, read)
    if again:
        read = readers.sums([unit for at, c in enumerate(again) for unit in _units(c, 2 * at)])
        errors = [f"{r.detail}." for r in read.values() if r.state == "failed"]
        if errors:
            return Proof(judge((), (), counts, blocks=blocks, errors=errors), [], [])
        second, expired = _rows(again, read)
        rows += second
        rows += [_gone(c, c.target.end - c.target.start, "expired while it was read") for c in expired]
    by_place = {s.window.place: _without_tail(s) if s.window.place in no_tail else s for s in subjects}
    rows = [
        as_unverifiable(row, "compacted: the cleaner works on each side for itself")
        if row.status == "different" and by_place[row.place].compacted
        else row
        for row in rows
    ]
    confirmed = _confirm(suspects(rows), by_place, readers)
    for each in confirmed:
        if each.source.end > by_place[each.place].window.source.end:  # its tail was compared as well
            counts[each.place] = replace(counts[each.place], pending=0)
    return Proof(judge(rows, confirmed, counts, blocks=blocks), rows, confirmed)


def _rows(chunks: Sequence[_Chunk], read: dict[int, UnitSum]) -> tuple[list[ChunkRow], list[_Chunk]]:
    """(rows, chunks to read again without their expired heads)."""
    rows, again = [], []
    for at, c in enumerate(chunks):
        source, target = read[2 * at], read[2 * at + 1]
        if "expired" in (source.state, target.state):
            low = c.target.start
            if source.state == "expired":
                low = max(low, _forward(c, source.log_start))
            if target.state == "expired":
                low = max(low, min(target.log_start, c.target.end))
            rows.append(_gone(c, low - c.target.start, "expired while it was read"))
            if low < c.target.end:
                begin = min(max(c.source.start, c.subject.map.to_source(low)), c.source.end)
                again.append(_Chunk(c.subject, Span(begin, c.source.end), Span(low, c.target.end), c.reads + 1))
            continue
        status = status_of(source.sums, target.sums)
        if status == "different" and c.reads == 1:
            again.append(c._replace(reads=2))
            continue
        place = c.subject.window.place
        rows.append(ChunkRow(place, c.source, c.target, source.sums, target.sums, status, c.reads))
    return rows, again


def _forward(c: _Chunk, source_offset: int) -> int:
    if source_offset >= c.source.end:
        return c.target.end
    return min(c.target.end, c.subject.map.to_target(source_offset, c.subject.window.target.end))


def _without_tail(s: Subject) -> Subject:
    """Its tail expired while it was read: there is nothing left to compare there."""
    start = s.window.tail.start
    return replace(s, window=replace(s.window, tail=Span(start, start)))


def _small(tail: Span) -> bool:
    return 0 < tail.end - tail.start <= TAIL


def _gone(c: _Chunk, count: int, why: str) -> ChunkRow:
    empty = ChunkSum()
    return ChunkRow(c.subject.window.place, c.source, c.target, empty, empty, "unverifiable", c.reads, count, why)


def _confirm(rows: Sequence[ChunkRow], subjects: dict[Place, Subject], readers: Readers) -> list[Confirmed]:
    spans = spans_to_compare(rows, JOINED)
    jobs = []
    for place, source, target in spans:
        s = subjects[place]
        last = target.end == s.window.target.end
        if last and source.end == s.window.tail.start and _small(s.window.tail):
            source = Span(source.start, s.window.tail.end)  # a lost record makes the map end too early
        jobs.append(Job(_unit(s, 0, source, 0), _unit(s, 1, target, 1), last and s.window.open_end))
    found = []
    differences = readers.differences(jobs) if jobs else []
    for (place, _, target), job, difference in zip(spans, jobs, differences, strict=True):
        cut_off = any(
            p == place and (t.start == target.end or t.end == target.start) for p, _, t in spans if t != target
        )
        if cut_off:  # a neighbour was left apart for its size: what moved over the cut counts twice
            difference = replace(difference, exact=False)
        found.append(Confirmed(place, Span(job.source.start, job.source.end), target, difference))
    return found


def _units(c: _Chunk, first: int) -> tuple[Unit, Unit]:
    return _unit(c.subject, 0, c.source, first), _unit(c.subject, 1, c.target, first + 1)


def _unit(s: Subject, side: int, span: Span, number: int) -> Unit:
    place = s.window.place
    return Unit(
        number,
        s.clusters[side],
        (place.topic, place.target_topic)[side],
        str(s.window.ids[side]),
        place.partition,
        span.start,
        span.end,
        s.timestamps,
        s.skip if side == 0 else (),
    )
