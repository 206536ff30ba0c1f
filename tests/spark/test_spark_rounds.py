"""Chunks whose cuts move to where batches begin, against an oracle: every record is compared once, on both sides."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

from watershed.clusters.cluster_protocol import LogRange
from watershed.replicator.ledger.offset_map import OffsetMap
from watershed.spark.fingerprint import RecordFingerprints, sum_fingerprints
from watershed.spark.judging.earlier_proof import EarlierProof
from watershed.spark.judging.proof import ComparisonOutcome, compare_and_judge
from watershed.spark.judging.proof_inputs import ProofPartition, ProofReaders, RangeComparison
from watershed.spark.judging.proof_window import ObservedPartition, PartitionPair, fix_window
from watershed.spark.judging.range_comparison import split_window
from watershed.spark.judging.record_difference import RecordDifference, compare_records
from watershed.spark.judging.verdict import ChunkRow
from watershed.spark.reading.batch_digests import BatchDigests, sum_batch_digests
from watershed.spark.reading.offset_range import OffsetRange
from watershed.spark.reading.range_requests import RangeRequest
from watershed.spark.reading.range_sums import RangeSum

PLACE = PartitionPair("a-to-b", "orders", "orders", 0)
IDS = (uuid.UUID(int=1), uuid.UUID(int=2))


@dataclass
class Log:
    """Batches of one log: base offset and records, each a number that stands for all that is in it; offsets within a
    batch follow one another. starts: where the log begins now; it moves on to the next of `expiring` when it is read.
    """

    batches: list[tuple[int, tuple[int, ...]]]
    end: int
    expiring: list[int] = field(default_factory=list)
    start: int = 0

    @property
    def records(self) -> list[tuple[int, int]]:
        return [(base + at, record) for base, records in self.batches for at, record in enumerate(records)]

    def digests(self, start: int, end: int) -> BatchDigests:
        """Batches that the range touches."""
        touched = [b for b in self.batches if b[0] < end and b[0] + len(b[1]) > start]
        base, count = ([f(b) for b in touched] for f in (lambda b: b[0], lambda b: len(b[1])))
        last = [b + n - 1 for b, n in zip(base, count, strict=True)]
        digest = [hash(b[1]) & (2**64 - 1) for b in touched]
        ints = [np.array(column, dtype=np.int64) for column in (base, last, count, base, base, count)]
        return BatchDigests(*ints, np.array(digest, dtype=np.uint64))

    def prints(self, start: int, end: int) -> RecordFingerprints:
        inside = [each for each in self.records if start <= each[0] < end]
        offset = np.array([each[0] for each in inside], dtype=np.int64)
        hashes = np.array([hash((7, each[1])) & (2**64 - 1) for each in inside], dtype=np.uint64)
        return RecordFingerprints(offset, hashes, hashes, hashes, hashes, offset * 0, offset * 0 + 1)


@dataclass
class Memory:
    """Two logs, and every range that a proof has had read of them."""

    logs: tuple[Log, Log]
    read: list[RangeRequest] = field(default_factory=list)

    def readers(self) -> ProofReaders:
        return ProofReaders(self.sums, self.differences)

    def log(self, unit: RangeRequest) -> Log:
        return self.logs[unit.cluster == "b"]

    def sums(self, units: Sequence[RangeRequest]) -> dict[int, RangeSum]:
        for log in self.logs:
            if log.expiring:
                log.start = max(log.start, log.expiring.pop(0))
        self.read += units
        return {unit.id: self.sum(unit) for unit in units}

    def sum(self, unit: RangeRequest) -> RangeSum:
        log, base = self.log(unit), 0 if unit.in_place else None
        if unit.start < min(log.start, unit.end):
            return RangeSum(unit.id, "expired", "", log.start, sum_fingerprints(log.prints(0, 0)), 0)
        if unit.by == "records":
            prints = log.prints(unit.start, unit.end).without(unit.left_out)
            return RangeSum(unit.id, "read", "", -1, sum_fingerprints(prints, base=base), 0)
        touched = log.digests(unit.start, unit.end)
        here = touched.between(unit.start, unit.end)
        marks = (int(here.base[0]), int(here.last[-1]) + 1) if len(here) else (-1, -1)
        straddled = len(here) < len(touched)
        listed = here if unit.by == "lists" else None
        return RangeSum(unit.id, "read", "", -1, sum_batch_digests(here, base=base), 0, *marks, straddled, listed)

    def differences(self, jobs: Sequence[RangeComparison]) -> list[RecordDifference]:
        return [
            compare_records(
                self.logs[0].prints(job.source.start, job.source.end),
                self.logs[1].prints(job.target.start, job.target.end),
                open_end=job.open_end,
                in_place=job.source.in_place,
            )
            for job in jobs
        ]


@st.composite
def logs(draw: st.DrawFn, in_place: bool = False) -> tuple[Log, Log, OffsetMap]:
    """A source with markers between batches, and a target that is its copy, packed alike or otherwise, with batches
    and records edited; and the map that a faithful copy has."""
    sizes = draw(st.lists(st.integers(1, 30), max_size=14))
    gaps = draw(st.lists(st.sampled_from((0, 0, 0, 1, 2, 9)), min_size=len(sizes) + 1, max_size=len(sizes) + 1))
    batches, at, record, runs = [], 0, 0, []
    for size, gap in zip(sizes, gaps, strict=False):
        at += gap
        if gap or not batches:
            runs.append((at if in_place else record, at))
        batches.append((at, tuple(range(record, record + size))))
        at, record = at + size, record + size
    source = Log(batches, at + gaps[-1])

    copies = [batch[1] for batch in batches]
    if draw(st.booleans()) and not in_place:  # repacked from some batch on
        first = draw(st.integers(0, len(copies)))
        rest = [record for copy in copies[first:] for record in copy]
        width = draw(st.integers(1, 25))
        copies[first:] = [tuple(rest[n : n + width]) for n in range(0, len(rest), width)]
    for _ in range(draw(st.integers(0, 3)) if copies else 0):
        which = draw(st.integers(0, len(copies) - 1))
        copy = list(copies[which])
        kind = draw(st.sampled_from(("lose", "twice", "alter", "swap", "foreign", "lose batch", "batch twice")))
        where = draw(st.integers(0, max(0, len(copy) - 1)))
        if kind == "lose":
            del copy[where : where + 1]
        elif kind == "twice":
            copy[where:where] = copy[where : where + 1]
        elif kind == "alter" and copy:
            copy[where] += 1_000_000
        elif kind == "swap" and len(copy) > 1:
            copy[0], copy[where] = copy[where], copy[0]
        elif kind == "foreign":
            copy.insert(where, 2_000_000)
        elif kind == "lose batch":
            copy = []
        elif kind == "batch twice" and not in_place:
            copies.insert(which, tuple(copy))
        copies[which] = tuple(copy)
    there, target = 0, []
    for number, copy in enumerate(copies):
        if in_place:  # an edit may not move what stands behind it
            there = batches[number][0]
            copy = copy[: len(batches[number][1])]
        if copy:
            target.append((there, copy))
            there += len(copy)
    end = there if not in_place else source.end
    return source, Log(target, end), OffsetMap.of(runs or [(0, 0)])


def observed(source: Log, target: Log, map_: OffsetMap) -> ObservedPartition:
    spans = (LogRange(log.start, log.end) for log in (source, target))
    return ObservedPartition(PLACE, *spans, map_, source.end, IDS)


def proof_of(
    source: Log, target: Log, map_: OffsetMap, size: int, hasty: bool = False, **subject: object
) -> tuple[ComparisonOutcome, Memory, ProofPartition]:
    memory = Memory((source, target))
    seen = observed(source, target, map_)
    one = ProofPartition(fix_window(seen, final=True), map_, ("a", "b"), chunk=size, **subject)  # type: ignore[arg-type]
    return compare_and_judge([one], memory.readers(), hasty=hasty), memory, one


def each_once(rows: Sequence[ChunkRow], subject: ProofPartition) -> None:
    """The rows' spans follow one another and cover the window."""
    rows = sorted(rows, key=lambda row: (row.source, row.target))
    window = subject.window
    if not rows:
        assert window.source.start == window.source.end
        assert window.target.start == window.target.end
        return
    assert (rows[0].source.start, rows[0].target.start) == (window.source.start, window.target.start)
    assert (rows[-1].source.end, rows[-1].target.end) == (window.source.end, window.target.end)
    for one, two in pairwise(rows):
        assert (one.source.end, one.target.end) == (two.source.start, two.target.start)


@settings(deadline=None)
@given(logs(), st.integers(1, 40), st.booleans())
def test_every_record_is_in_one_chunk_and_what_is_equal_is_equal(
    world: tuple[Log, Log, OffsetMap], size: int, hasty: bool
) -> None:
    source, target, map_ = world
    proof, memory, subject = proof_of(source, target, map_, size, hasty)
    if hasty:
        assert {unit.by for unit in memory.read} <= {"records"}
    each_once(proof.rows, subject)
    for row in proof.rows:
        event(f"{row.status} by {row.by}")
        here, there = source.prints(*row.source), target.prints(*row.target)
        assert (row.source_sum.n, row.target_sum.n) == (len(here), len(there)), row
        assert (row.status == "equal") == (here.fp.tolist() == there.fp.tolist()), row
    total = proof.judgement.total
    whole = source.prints(0, source.end), target.prints(0, target.end)
    kept = total.proven + total.missing + total.altered + total.reordered + total.pending
    assert kept == len(whole[0])
    assert kept - total.missing - total.pending + total.duplicates + total.foreign == len(whole[1])
    assert (total.unproven + total.pending == 0) == (whole[0].fp.tolist() == whole[1].fp.tolist())


@settings(deadline=None)
@given(logs(in_place=True), st.integers(1, 40), st.data())
def test_an_aligned_copy_is_judged_by_its_offsets(
    world: tuple[Log, Log, OffsetMap], size: int, data: st.DataObject
) -> None:
    source, target, map_ = world
    if len(target.batches) and data.draw(st.booleans()):  # a batch that slid into the gap behind it
        at = data.draw(st.integers(0, len(target.batches) - 1))
        base, records = target.batches[at]
        following = target.batches[at + 1][0] if at + 1 < len(target.batches) else target.end
        target.batches[at] = (base + data.draw(st.integers(0, following - base - len(records))), records)
    proof, _, subject = proof_of(source, target, map_, size, in_place=True)
    each_once(proof.rows, subject)
    assert (proof.judgement.total.difference_count + proof.judgement.total.pending == 0) == (
        source.records == target.records
    )
    for row in proof.rows:
        inside = [
            [r for r in log.records if a <= r[0] < b] for log, (a, b) in ((source, row.source), (target, row.target))
        ]
        assert (row.status == "equal") == (inside[0] == inside[1])


@settings(deadline=None)
@given(logs(), st.integers(1, 40), st.data())
def test_what_expires_meanwhile_is_unverifiable_and_all_else_is_compared(
    world: tuple[Log, Log, OffsetMap], size: int, data: st.DataObject
) -> None:
    source, target, map_ = world
    for log in (source, target):
        moves = data.draw(st.lists(st.integers(0, max(1, log.end)), max_size=3))
        log.expiring = sorted(moves)
    before = [log.prints(0, log.end) for log in (source, target)]
    proof, _, _ = proof_of(source, target, map_, size)
    assert not proof.judgement.errors
    total = proof.judgement.total
    if before[0].fp.tolist() == before[1].fp.tolist():  # a faithful copy is never called different
        assert total.difference_count == 0
        if not source.start and not target.start:
            assert (total.unverifiable, total.pending, total.proven) == (0, 0, len(before[0]))
        elif total.proven < len(before[0]):
            assert total.unverifiable + total.pending > 0


@settings(deadline=None)
@given(logs(), st.integers(1, 40), st.data())
def test_a_proof_built_on_another_reads_only_what_that_has_not_proven(
    world: tuple[Log, Log, OffsetMap], size: int, data: st.DataObject
) -> None:
    source, target, map_ = world
    first, _, _ = proof_of(source, target, map_, size)
    key = PLACE, (str(IDS[0]), str(IDS[1]))
    equal = sorted((row for row in first.rows if row.status == "equal"), key=lambda row: (row.source, row.target))
    known = tuple(row for row in equal if data.draw(st.integers(0, 3)))
    altered = -1
    if data.draw(st.booleans()) and target.records:  # meanwhile something is altered at the target
        at = data.draw(st.integers(0, len(target.batches) - 1))
        base, records = target.batches[at]
        target = replace(target, batches=list(target.batches))
        here = data.draw(st.integers(0, len(records) - 1))
        target.batches[at] = base, (*records[:here], records[here] + 3_000_000, *records[here + 1 :])
        altered = base + here
    seen = observed(source, target, map_)
    before, kept = EarlierProof(1, {key: (0, 0)}, {key: known}).of(seen)
    again = tuple(row for row in kept if data.draw(st.integers(0, 3)) == 0)
    window = fix_window(seen, final=True, earlier=before)
    memory = Memory((source, target))
    other = data.draw(st.integers(1, 80))
    subject = ProofPartition(window, map_, ("a", "b"), chunk=other, earlier=kept, again=again)
    proof = compare_and_judge([subject], memory.readers(), hasty=data.draw(st.booleans()))
    each_once(proof.rows, subject)
    unread = {row.source for row in kept} - {row.source for row in again}
    for unit in memory.read:
        if unit.cluster == "a" and unit.end > unit.start:
            assert not any(max(unit.start, a) < min(unit.end, b) for a, b in unread)
    if not any(row.target.start <= altered < row.target.end and row.source in unread for row in kept):
        plain, _, _ = proof_of(source, target, map_, size)
        assert (proof.judgement.total.difference_count == 0) == (plain.judgement.total.difference_count == 0)
    now = [row for row in again if source.prints(*row.source).fp.tolist() != target.prints(*row.target).fp.tolist()]
    assert len(now) == sum("differ now" in block for block in proof.judgement.blocks)
    early = sum(row.source_sum.n for row in kept if row.source in unread)
    assert proof.judgement.total.proven_earlier == early
    assert [p.again for p in split_window(subject) if p.again] == list(again), (window, kept)


@settings(deadline=None)
@given(logs(), st.integers(1, 40), st.data())
def test_what_was_proven_stays_so_when_it_expires(
    world: tuple[Log, Log, OffsetMap], size: int, data: st.DataObject
) -> None:
    """Whatever expires before or during a second proof: the records of a faithful copy that the first has proven are
    proven earlier, or proven again, and none twice."""
    source, _, map_ = world
    if not source.records:
        return
    copy = [record for _, record in source.records]
    target = Log(
        [(0, tuple(copy))] if data.draw(st.booleans()) else [(at, (r,)) for at, r in enumerate(copy)], len(copy)
    )
    first, _, _ = proof_of(source, target, map_, size)
    known = tuple(
        sorted((row for row in first.rows if row.status == "equal"), key=lambda row: (row.source, row.target))
    )
    known = tuple(row for row in known if data.draw(st.integers(0, 3)))
    key = PLACE, (str(IDS[0]), str(IDS[1]))
    for log in (source, target):
        log.start = data.draw(st.integers(0, log.end))
        log.expiring = sorted(data.draw(st.lists(st.integers(0, log.end), max_size=2)))
    seen = ObservedPartition(
        PLACE, LogRange(source.start, source.end), LogRange(target.start, target.end), map_, source.end, IDS
    )
    before, kept = EarlierProof(1, {key: (0, 0)}, {key: known}).of(seen)
    again = tuple(row for row in kept if data.draw(st.booleans()))
    subject = ProofPartition(
        fix_window(seen, final=True, earlier=before), map_, ("a", "b"), chunk=size, earlier=kept, again=again
    )
    total = compare_and_judge([subject], Memory((source, target)).readers()).judgement.total
    assert total.difference_count == 0
    earlier = sum(row.source_sum.n for row in kept)
    assert earlier <= total.proven + total.proven_earlier <= len(copy)
    if total.proven + total.proven_earlier < len(copy) and before is not None:
        assert total.unverifiable + total.pending > 0


def test_a_piece_that_begins_within_a_batch_is_opened() -> None:
    """An earlier proof has proven the first half of a batch; in the other half a record is altered."""
    source = Log([(0, tuple(range(10))), (10, tuple(range(10, 20)))], 20)
    target = Log([(0, (*range(7), 77, 8, 9)), (10, tuple(range(10, 20)))], 20)
    map_ = OffsetMap.of([(0, 0)])
    sums = sum_fingerprints(source.prints(0, 5))
    half = ChunkRow(PLACE, OffsetRange(0, 5), OffsetRange(0, 5), sums, sums, "equal")
    subject = ProofPartition(fix_window(observed(source, target, map_)), map_, ("a", "b"), chunk=40, earlier=(half,))
    total = compare_and_judge([subject], Memory((source, target)).readers()).judgement.total
    assert (total.proven_earlier, total.proven, total.difference_count) == (5, 14, 2)
