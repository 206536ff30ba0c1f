"""Windows and chunks against an oracle that knows where every record went."""

from __future__ import annotations

import uuid
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watershed.clusters.cluster_protocol import LogRange
from watershed.replicator.ledger.foreign_part import ForeignPart, JoinedOffsetMap
from watershed.replicator.ledger.offset_map import ExplicitRun, OffsetMap
from watershed.replicator.partition_states import OffsetSpan as Fixed
from watershed.spark.fingerprint import RecordFingerprints
from watershed.spark.judging.proof_inputs import ProofPartition
from watershed.spark.judging.proof_window import EarlierWindow, ObservedPartition, PartitionPair, cut_chunks, fix_window
from watershed.spark.reading.offset_range import OffsetRange

PLACE = PartitionPair("a-to-b", "orders", "orders", 0)
IDS = (uuid.UUID(int=1), uuid.UUID(int=2))


def observed(
    source: tuple[int, int], target: tuple[int, int], runs: list[tuple[int, int]], barrier: int
) -> ObservedPartition:
    return ObservedPartition(PLACE, LogRange(*source), LogRange(*target), OffsetMap.of(runs), barrier, IDS)


@st.composite
def copied_logs(draw: st.DrawFn) -> tuple[list[int], int, OffsetMap, int]:
    """(source offsets that hold a record, first target offset, map, source end): gaps are markers."""
    gaps = draw(st.lists(st.integers(0, 3), min_size=1, max_size=60))
    first = draw(st.integers(0, 5))
    offsets, at = [], draw(st.integers(0, 9))
    for gap in gaps:
        at += gap
        offsets.append(at)
        at += 1
    runs = [
        (first + i, offset)
        for i, offset in enumerate(offsets)
        if i == 0 or offset != offsets[i - 1] + 1
    ]  # fmt: skip
    return offsets, first, OffsetMap.of(runs), at


@given(copied_logs(), st.integers(1, 20), st.integers(0, 60))
def test_chunks_cover_the_window_and_hold_the_same_records(
    log: tuple[list[int], int, OffsetMap, int], size: int, copied: int
) -> None:
    offsets, first, map_, end = log
    copied = min(copied, len(offsets))
    seen = ObservedPartition(PLACE, LogRange(0, end), LogRange(0, first + copied), map_, end, IDS)
    window = fix_window(seen)
    chunks = list(cut_chunks(window.source, window.target, map_, size))
    home = {offset: first + i for i, offset in enumerate(offsets)}
    inside = 0
    for source, target in chunks:
        here = [home[o] for o in offsets if source.start <= o < source.end]
        assert here == [t for t in range(target.start, target.end) if t < first + copied]
        inside += len(here)
    assert inside == copied
    assert sum(1 for o in offsets if window.tail.start <= o < window.tail.end) == len(offsets) - copied
    if chunks:
        assert chunks[0][0].start == window.source.start
        assert chunks[-1][0].end == window.source.end
        assert chunks[-1][1].end == window.target.end
    for (a, x), (b, y) in pairwise(chunks):
        assert a.end == b.start
        assert x.end == y.start


def test_a_flow_that_was_told_where_to_begin_is_compared_from_there() -> None:
    """Also what was never copied there is missing, and not older than the flow."""
    window = fix_window(observed((0, 100), (50, 90), [(50, 60)], barrier=100), start=55)
    assert (window.source, window.target) == (OffsetRange(55, 100), OffsetRange(50, 90))
    assert fix_window(observed((0, 100), (50, 90), [], barrier=100), start=55).tail == OffsetRange(55, 100)
    assert fix_window(observed((70, 100), (50, 90), [(50, 60)], barrier=100), start=55).source == OffsetRange(70, 100)


def test_what_came_after_the_barrier_is_outside() -> None:
    window = fix_window(observed((0, 120), (0, 110), [(0, 0)], barrier=100))
    assert (window.source, window.target, window.tail) == (
        OffsetRange(0, 100),
        OffsetRange(0, 100),
        OffsetRange(100, 100),
    )


def test_more_on_the_target_than_the_source_has_is_looked_at() -> None:
    window = fix_window(observed((0, 100), (0, 103), [(0, 0)], barrier=100))
    assert (window.source, window.target, window.open_end) == (OffsetRange(0, 100), OffsetRange(0, 103), True)


def test_final_takes_the_whole_target() -> None:
    window = fix_window(observed((0, 100), (0, 90), [(0, 0)], barrier=100), final=True)
    assert (window.source, window.target, window.tail) == (OffsetRange(0, 90), OffsetRange(0, 90), OffsetRange(90, 100))


def test_nothing_copied_is_pending_and_strange_records_are_seen() -> None:
    window = fix_window(observed((5, 20), (0, 3), [], barrier=20))
    assert (window.source, window.target, window.tail) == (OffsetRange(5, 5), OffsetRange(0, 3), OffsetRange(5, 20))


def test_a_flow_that_starts_at_the_end_answers_from_there() -> None:
    window = fix_window(observed((0, 50), (0, 10), [(0, 40)], barrier=50), start="latest")
    assert (window.source, window.target) == (OffsetRange(40, 50), OffsetRange(0, 10))


def test_what_expired_since_an_earlier_proof_counts_unless_that_has_proven_it() -> None:
    earlier = EarlierWindow(
        0, 0, ((OffsetRange(0, 30), OffsetRange(0, 30)), (OffsetRange(40, 45), OffsetRange(40, 45)))
    )
    window = fix_window(observed((0, 50), (0, 50), [(0, 0)], barrier=50), earlier=earlier)
    assert (window.source, window.target, window.unverifiable) == (OffsetRange(0, 50), OffsetRange(0, 50), 0)
    window = fix_window(observed((35, 50), (0, 50), [(0, 0)], barrier=50), earlier=earlier)
    assert (window.source, window.target, window.unverifiable) == (OffsetRange(35, 50), OffsetRange(35, 50), 5)
    window = fix_window(observed((35, 50), (42, 50), [(0, 0)], barrier=50), earlier=earlier)
    assert (window.source, window.target, window.unverifiable) == (OffsetRange(42, 50), OffsetRange(42, 50), 10)


def test_heads_that_expired_on_the_target_are_unverifiable() -> None:
    window = fix_window(observed((0, 50), (20, 50), [(0, 0)], barrier=50))
    assert (window.source, window.target, window.unverifiable) == (OffsetRange(20, 50), OffsetRange(20, 50), 20)


def test_what_expired_before_it_was_copied_is_unverifiable() -> None:
    """60 of 100 records are copied, the worker is away, and retention empties the source: nothing proves the rest."""
    window = fix_window(observed((100, 100), (0, 60), [(0, 0)], barrier=100))
    assert window.unverifiable == 40
    assert any("60 to 99 expired before they were copied" in note for note in window.not_compared)


def test_what_expired_after_it_was_copied_is_no_loss() -> None:
    window = fix_window(observed((60, 100), (0, 100), [(0, 0)], barrier=100))
    assert window.unverifiable == 0
    assert (window.source, window.target) == (OffsetRange(60, 100), OffsetRange(60, 100))


@given(st.data())
def test_an_adopted_partition_is_compared_without_what_stands_beside_its_copies(data: st.DataObject) -> None:
    """Two copies stood still in between; what the copier repeated is in no chunk's count, and all else is."""
    counts = data.draw(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 7), st.integers(0, 3)), min_size=1))
    target = source = 0
    stretches, extra, there = [], [], {}
    for records, repeated, gap in counts:
        stretches.append(ExplicitRun(target, source, records))
        there |= {target + n: source + n for n in range(records)}
        target, source = target + records, source + records
        if repeated:
            extra.append(Fixed(target, target + repeated))
        target, source = target + repeated, source + gap
    ours = data.draw(st.integers(0, 10))
    there |= {target + n: source + n for n in range(ours)}
    map_ = JoinedOffsetMap.over(
        ForeignPart("MirrorMaker 2", target, source, tuple(stretches), tuple(extra)), OffsetMap.of([(target, source)])
    )
    ends = source + ours, target + ours
    seen = ObservedPartition(PLACE, LogRange(0, ends[0]), LogRange(0, ends[1]), map_, ends[0], IDS)
    window = fix_window(seen)
    subject = ProofPartition(window, map_, ("a", "b"))
    compared = {}
    for here, other in cut_chunks(window.source, window.target, map_, data.draw(st.integers(1, 20))):
        unit = subject.build_request(1, other, 0)
        kept = [at for at in range(unit.start, unit.end) if not any(a <= at < b for a, b in unit.left_out)]
        assert [there[at] for at in kept] == sorted(at for at in there.values() if here.start <= at < here.end)
        compared |= {at: there[at] for at in kept}
    assert compared == there
    assert bool(extra) == any("was accepted when the flow went on behind it" in note for note in window.not_compared)


def test_prints_without_some_offsets() -> None:
    column = np.arange(6, dtype=np.uint64)
    offsets = np.array([3, 4, 7, 8, 9, 20], dtype=np.int64)
    prints = RecordFingerprints(offsets, column, column, column, column, offsets, offsets * 10)
    assert prints.without([(100, 200)]) is prints
    kept = prints.without([(0, 4), (8, 10)])
    assert (kept.offset.tolist(), kept.fp.tolist(), kept.size.tolist()) == ([4, 7, 20], [1, 2, 5], [40, 70, 200])


class Case(NamedTuple):
    """Source and target as (log start, last stable offset), runs as (target, source), the barrier → what is in the
    window on both sides, the tail, and what is gone."""

    name: str
    source: tuple[int, int]
    target: tuple[int, int]
    runs: list[tuple[int, int]]
    barrier: int
    expected: tuple[tuple[int, int], tuple[int, int], tuple[int, int], int]
    start: str = "earliest"
    final: bool = False


CASES = [
    Case("all copied", (0, 9), (0, 9), [(0, 0)], 9, ((0, 9), (0, 9), (9, 9), 0)),
    Case("half copied", (0, 9), (0, 4), [(0, 0)], 9, ((0, 4), (0, 4), (4, 9), 0)),
    Case("nothing copied, latest", (3, 9), (0, 0), [], 9, ((9, 9), (0, 0), (9, 9), 0), "latest"),
    Case("nothing copied, all expired", (12, 12), (0, 0), [], 9, ((12, 12), (0, 0), (12, 12), 0), "latest"),
    Case("latest, what is older expired", (6, 9), (0, 4), [(0, 5)], 9, ((6, 9), (1, 4), (9, 9), 0), "latest"),
    Case("copied past the barrier", (0, 20), (0, 20), [(0, 0)], 9, ((0, 9), (0, 9), (9, 9), 0)),
    Case(
        "fenced, and written to all the same",
        (0, 12),
        (0, 11),
        [(0, 0)],
        9,
        ((0, 11), (0, 11), (11, 12), 0),
        final=True,
    ),
    Case("expired above the barrier", (12, 20), (0, 20), [(0, 0)], 9, ((12, 12), (12, 12), (12, 12), 0)),
    Case("expired before it was copied", (7, 9), (0, 4), [(0, 0)], 9, ((7, 7), (4, 4), (7, 9), 3)),
    Case("expired whole before it was copied", (15, 15), (0, 4), [(0, 0)], 9, ((15, 15), (4, 4), (15, 15), 5)),
    Case("target expired", (0, 9), (4, 9), [(0, 0)], 9, ((4, 9), (4, 9), (9, 9), 4)),
    Case("target expired above the barrier", (0, 20), (15, 20), [(0, 0)], 9, ((9, 9), (9, 9), (9, 9), 9)),
    Case("target expired whole", (0, 9), (9, 9), [(0, 0)], 9, ((9, 9), (9, 9), (9, 9), 9)),
    Case("both expired", (3, 9), (5, 9), [(0, 0)], 9, ((5, 9), (5, 9), (9, 9), 2)),
    Case("the target has more", (0, 9), (0, 11), [(0, 0)], 9, ((0, 9), (0, 11), (9, 9), 0)),
    Case("the source was truncated", (0, 5), (0, 9), [(0, 0)], 5, ((0, 5), (0, 9), (5, 5), 0)),
    Case("markers between", (0, 9), (0, 6), [(0, 1), (2, 5)], 9, ((0, 9), (0, 6), (9, 9), 0)),
    Case("a marker at the end", (0, 9), (0, 8), [(0, 0)], 9, ((0, 8), (0, 8), (8, 9), 0)),
    Case("older records on the target", (0, 9), (0, 12), [(3, 0)], 9, ((0, 9), (3, 12), (9, 9), 0)),
    Case("aligned, both begin late", (50, 59), (50, 59), [(50, 50)], 59, ((50, 59), (50, 59), (59, 59), 0)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_windows(case: Case) -> None:
    window = fix_window(observed(case.source, case.target, case.runs, case.barrier), start=case.start, final=case.final)
    assert (window.source, window.target, window.tail, window.unverifiable) == case.expected


@settings(deadline=None)
@given(copied_logs(), st.data())
def test_a_window_leaves_nothing_out_in_silence(
    log: tuple[list[int], int, OffsetMap, int], data: st.DataObject
) -> None:
    """A faithful copy, of which both sides may have expired in part, while a worker goes on: every record below the
    barrier that both sides can still show is in the window, on both sides; all else is pending, gone, or named."""
    offsets, first, map_, end = log
    copied = data.draw(st.integers(1, len(offsets)))
    barrier = data.draw(st.integers(0, end))
    source_start, target_start = data.draw(st.integers(0, end)), data.draw(st.integers(0, first + copied))
    runs = tuple(run for run in map_.runs if run.target < first + copied)
    seen = ObservedPartition(
        PLACE, LogRange(source_start, end), LogRange(target_start, first + copied), OffsetMap(runs), barrier, IDS
    )
    final = data.draw(st.booleans())
    window = fix_window(seen, final=final)
    until = end if final else barrier
    home = {offset: first + i for i, offset in enumerate(offsets)}
    there = {target for offset, target in home.items() if target < first + copied and target >= target_start}
    both = {o for o in offsets if o >= source_start and home[o] in there and o < until}
    inside = {o for o in offsets if window.source.start <= o < window.source.end}
    assert both <= inside
    assert {home[o] for o in inside} == {t for t in there if window.target.start <= t < window.target.end}
    lost = {o for o in offsets if source_start <= o < until and home[o] < first + copied} - both
    before = {o for o in offsets[copied:] if o < min(source_start, until)}  # expired before anybody copied it
    assert (window.unverifiable > 0) >= bool(lost or before)
    if not before and source_start <= offsets[copied - 1]:
        assert window.unverifiable == len(lost)
    waiting = {o for o in offsets[copied:] if source_start <= o < until}
    assert waiting == {o for o in offsets if window.tail.start <= o < window.tail.end}
