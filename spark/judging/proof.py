"""One proof from facts to judgement: have the chunks read, and confirm record by record what differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from watershed.spark.judging.compacted_partitions import judge_compacted_partitions
from watershed.spark.judging.difference_confirmation import confirm_differences, find_displaced_ranges, is_small_tail
from watershed.spark.judging.proof_inputs import (
    ProofPartition,
    ProofReaders,
    RangeComparison,
    ReadFailed,
    require_range_sums,
)
from watershed.spark.judging.proof_window import PartitionPair
from watershed.spark.judging.range_comparison import compare_chunks
from watershed.spark.judging.record_difference import MAX_DIFFERENCE_EXAMPLES
from watershed.spark.judging.verdict import (
    ChunkRow,
    ConfirmedDifference,
    Counts,
    ProofJudgement,
    judge_proof,
    mark_unverifiable,
)
from watershed.spark.reading.offset_range import OffsetRange


class ComparisonOutcome(NamedTuple):
    """Judgement, one row a chunk, and the differences record by record or key by key."""

    judgement: ProofJudgement
    rows: list[ChunkRow]
    confirmed: list[ConfirmedDifference]


def compare_and_judge(
    partitions: Sequence[ProofPartition],
    readers: ProofReaders,
    *,
    blocks: Sequence[str] = (),
    outside: dict[PartitionPair, Counts] | None = None,
    named: int = MAX_DIFFERENCE_EXAMPLES,
    hasty: bool = False,
) -> ComparisonOutcome:
    """Reads every chunk once, those that differ twice, and compares what still differs record by record.

    Batches are compared first where a copy can hold the source's as they are; what differs is judged by its records.
    outside: counts of partitions that have no window (their topic is missing on the target). named: so many
    differences of a range get an example; counts do not depend on it. hasty: as in `compare_chunks`.
    """
    counts = dict(outside or {})
    for s in partitions:
        pending = max(0, s.window.tail.end - s.window.tail.start)
        counts[s.window.place] = Counts(unverifiable=s.window.unverifiable, pending=pending)
    try:
        no_tail = _count_tails(partitions, counts, readers)
        compared = compare_chunks(partitions, readers, hasty=hasty)
    except ReadFailed as failed:
        return ComparisonOutcome(judge_proof((), (), counts, blocks=blocks, errors=failed.errors), [], [])

    by_place = {s.window.place: _without_tail(s) if s.window.place in no_tail else s for s in partitions}
    states, findings = judge_compacted_partitions(list(by_place.values()), compared.rows, readers, named)
    judged = {each.place for each in states}
    rows = [_of_compacted(row, judged) if by_place[row.place].compacted else row for row in compared.rows]
    confirmed = [*states, *confirm_differences(rows, by_place, readers, named)]
    for each in confirmed:
        window = by_place[each.place].window
        if each.source.end > window.source.end and each.by == "records":
            counts[each.place] = replace(counts[each.place], pending=max(0, window.tail.end - each.source.end))
    tails = _kept_in_tails(partitions, confirmed, readers, named)
    for each in tails:
        counts[each.place] = replace(counts[each.place], pending=0)
    confirmed = [*confirmed, *tails]
    rows = [_of_repeats(row, confirmed) for row in rows] + _earlier(partitions, compared.not_again)
    blocks = [*blocks, *findings, *_no_longer(partitions, rows), *find_displaced_ranges(confirmed, by_place)]
    return ComparisonOutcome(judge_proof(rows, confirmed, counts, blocks=blocks), rows, confirmed)


def _of_compacted(row: ChunkRow, judged: set[PartitionPair]) -> ChunkRow:
    """The cleaner works on each side for itself: the difference of a chunk proves nothing."""
    if row.status != "different":
        return row
    if row.place in judged:
        return replace(row, status="state", why="compacted: judged by the state of its keys")
    return mark_unverifiable(row, "compacted: the cleaner works on each side for itself")


def _of_repeats(row: ChunkRow, confirmed: Sequence[ConfirmedDifference]) -> ChunkRow:
    """A chunk of a range that differs by nothing but repeats is not different."""
    if row.status != "different":
        return row
    for each in confirmed:
        inside = each.target.start <= row.target.start and row.target.end <= each.target.end
        again = each.difference.repeated or each.difference.unverifiable
        if each.place == row.place and inside and again and not each.difference.difference_count:
            return replace(row, status="repeated", why="records stand on the target once more than they should")
    return row


def _earlier(partitions: Sequence[ProofPartition], not_again: Sequence[ChunkRow]) -> list[ChunkRow]:
    """Rows of chunks that an earlier proof has proven and this one did not read again."""
    again = {id(row) for s in partitions for row in s.again} - {id(row) for row in not_again}
    return [replace(row, status="earlier") for s in partitions for row in s.earlier if id(row) not in again]


def _no_longer(partitions: Sequence[ProofPartition], rows: Sequence[ChunkRow]) -> list[str]:
    """Findings: chunks that were proven before and differ now."""
    ends = {(s.window.place, row.source, row.target) for s in partitions for row in s.again}
    return [
        f"{row.place.name}: source offsets {row.source.start} to {row.source.end - 1} were "
        "proven by an earlier proof and differ now"
        for row in rows
        if row.status == "different" and (row.place, row.source, row.target) in ends
    ]


def _count_tails(
    partitions: Sequence[ProofPartition], counts: dict[PartitionPair, Counts], readers: ProofReaders
) -> set[PartitionPair]:
    """Counts the pending records of small tails; answers whose tail expired meanwhile."""
    tails = [s for s in partitions if is_small_tail(s.window.tail)]
    read = require_range_sums([s.build_request(0, s.window.tail, at) for at, s in enumerate(tails)], readers)
    no_tail: set[PartitionPair] = set()
    for at, s in enumerate(tails):
        seen, before = read[at], counts[s.window.place]
        if seen.state == "expired":  # nobody can tell any more what was in it
            lost = s.window.tail.end - s.window.tail.start
            counts[s.window.place] = replace(before, pending=0, unverifiable=before.unverifiable + lost)
            no_tail.add(s.window.place)
        else:
            counts[s.window.place] = replace(before, pending=seen.sums.n)
    return no_tail


def _kept_in_tails(
    partitions: Sequence[ProofPartition], confirmed: Sequence[ConfirmedDifference], readers: ProofReaders, named: int
) -> list[ConfirmedDifference]:
    """Tails that hold records in quarantine, where nothing was copied behind them yet."""
    found: list[tuple[ProofPartition, RangeComparison]] = []
    for s in partitions:
        tail, end = s.window.tail, s.window.target.end
        kept = s.kept_in(tail)
        if kept and is_small_tail(tail) and not _reached(s, confirmed):
            sides = s.build_request(0, tail, 0), s.build_request(1, OffsetRange(end, end), 1)
            found.append((s, RangeComparison(*sides, open_end=True, limit=named, kept=kept)))
    differences = readers.differences([job for _, job in found]) if found else []
    return [
        ConfirmedDifference(s.window.place, s.window.tail, OffsetRange(job.target.start, job.target.end), difference)
        for (s, job), difference in zip(found, differences, strict=True)
    ]


def _reached(s: ProofPartition, confirmed: Sequence[ConfirmedDifference]) -> bool:
    """Whether its tail was compared already."""
    return any(each.place == s.window.place and each.source.end > s.window.source.end for each in confirmed)


def _without_tail(s: ProofPartition) -> ProofPartition:
    """Its tail expired while it was read: there is nothing left to compare there."""
    start = s.window.tail.start
    return replace(s, window=replace(s.window, tail=OffsetRange(start, start)))
