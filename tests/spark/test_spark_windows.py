"""Windows and chunks against an oracle that knows where every record went."""

from __future__ import annotations

import uuid
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from clusters.surface import LogRange
from replicator.offsetmap import OffsetMap
from spark.window import Earlier, Observed, Place, Span, cut, fix_window

PLACE = Place("a-to-b", "orders", "orders", 0)
IDS = (uuid.UUID(int=1), uuid.UUID(int=2))


def observed(source: tuple[int, int], target: tuple[int, int], runs: list[tuple[int, int]], barrier: int) -> Observed:
    return Observed(PLACE, LogRange(*source), LogRange(*target), OffsetMap.of(runs), barrier, IDS)


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
    seen = Observed(PLACE, LogRange(0, end), LogRange(0, first + copied), map_, end, IDS)
    window = fix_window(seen)
    chunks = list(cut(window, map_, size))
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


def test_what_came_after_the_barrier_is_outside() -> None:
    window = fix_window(observed((0, 120), (0, 110), [(0, 0)], barrier=100))
    assert (window.source, window.target, window.tail) == (Span(0, 100), Span(0, 100), Span(100, 100))


def test_more_on_the_target_than_the_source_has_is_looked_at() -> None:
    window = fix_window(observed((0, 100), (0, 103), [(0, 0)], barrier=100))
    assert (window.source, window.target, window.open_end) == (Span(0, 100), Span(0, 103), True)


def test_final_takes_the_whole_target() -> None:
    window = fix_window(observed((0, 100), (0, 90), [(0, 0)], barrier=100), final=True)
    assert (window.source, window.target, window.tail) == (Span(0, 90), Span(0, 90), Span(90, 100))


def test_nothing_copied_is_pending_and_strange_records_are_seen() -> None:
    window = fix_window(observed((5, 20), (0, 3), [], barrier=20))
    assert (window.source, window.target, window.tail) == (Span(5, 5), Span(0, 3), Span(5, 20))


def test_a_flow_that_starts_at_the_end_answers_from_there() -> None:
    window = fix_window(observed((0, 50), (0, 10), [(0, 40)], barrier=50), start="latest")
    assert (window.source, window.target) == (Span(40, 50), Span(0, 10))


def test_an_earlier_proof_moves_the_start_and_expiry_since_then_counts() -> None:
    earlier = Earlier(source_end=30, target_end=30, proven=30)
    window = fix_window(observed((0, 50), (0, 50), [(0, 0)], barrier=50), earlier=earlier)
    assert (window.source, window.target, window.proven_earlier) == (Span(30, 50), Span(30, 50), 30)
    window = fix_window(observed((35, 50), (0, 50), [(0, 0)], barrier=50), earlier=earlier)
    assert (window.source, window.target, window.unverifiable) == (Span(35, 50), Span(35, 50), 5)


def test_heads_that_expired_on_the_target_are_unverifiable() -> None:
    window = fix_window(observed((0, 50), (20, 50), [(0, 0)], barrier=50))
    assert (window.source, window.target, window.unverifiable) == (Span(20, 50), Span(20, 50), 20)


def test_what_expired_before_it_was_copied_is_unverifiable() -> None:
    """60 of 100 records are copied, the worker is away, and retention empties the source: nothing proves the rest."""
    window = fix_window(observed((100, 100), (0, 60), [(0, 0)], barrier=100))
    assert window.unverifiable == 40
    assert any("60 to 99 expired before they were copied" in note for note in window.not_compared)


def test_what_expired_after_it_was_copied_is_no_loss() -> None:
    window = fix_window(observed((60, 100), (0, 100), [(0, 0)], barrier=100))
    assert window.unverifiable == 0
    assert (window.source, window.target) == (Span(60, 100), Span(60, 100))
