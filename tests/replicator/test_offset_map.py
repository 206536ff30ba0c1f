"""The offset map against the simplest possible oracle: the list of copied source offsets."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import choose_examples
from watershed.replicator.errors import NotCopied, ReplicatorError
from watershed.replicator.ledger.offset_map import ExplicitRun, OffsetMap, OffsetRun


@dataclass(frozen=True)
class Copied:
    """`sources[n]` stands at target offset `base + n`; the source is copied through `position`."""

    base: int
    sources: tuple[int, ...]
    position: int
    runs: tuple[OffsetRun, ...]

    @property
    def end(self) -> int:
        return self.base + len(self.sources)


@st.composite
def copies(draw: st.DrawFn) -> Copied:
    """Data and gaps in turn. Gaps come in one run or in several, runs are sometimes repeated (a takeover)."""
    base, position = draw(st.integers(0, 50)), draw(st.integers(0, 1000))
    runs, sources = [OffsetRun(base, position)], []
    for _ in range(draw(st.integers(0, 8))):
        for _ in range(draw(st.integers(0, 3))):
            position += draw(st.integers(0, 4))
            runs.append(OffsetRun(base + len(sources), position))
        count = draw(st.integers(0, 5))
        sources += range(position, position + count)
        position += count
    return Copied(base, tuple(sources), position, tuple(runs))


@given(copies())
@settings(max_examples=choose_examples(100, 300), deadline=None)
def test_every_offset_both_ways(copied: Copied) -> None:
    offsets = OffsetMap(copied.runs)
    for source in range(copied.runs[0].source - 3, copied.position + 1):
        expected = copied.base + bisect_left(copied.sources, source)  # its own place, or the next record's
        assert offsets.to_target(source, copied.end) == expected, source
    for at, source in enumerate(copied.sources):
        assert offsets.to_source(copied.base + at) == source
    assert offsets.source_position(copied.end) == copied.position


@given(copies(), st.integers(1, 100))
@settings(max_examples=choose_examples(30, 100), deadline=None)
def test_beyond_what_is_copied(copied: Copied, further: int) -> None:
    with pytest.raises(NotCopied) as caught:
        OffsetMap(copied.runs).to_target(copied.position + further, copied.end)
    assert (caught.value.offset, caught.value.copied) == (copied.position + further, copied.position)


@given(copies(), st.data())
@settings(max_examples=choose_examples(60, 200), deadline=None)
def test_announced_but_not_yet_there(copied: Copied, data: st.DataObject) -> None:
    """With runs announced ahead of the target's log end, what is there translates the same; the rest is NotCopied."""
    offsets, end = OffsetMap(copied.runs), data.draw(st.integers(copied.base, copied.end))
    there = copied.sources[: end - copied.base]
    position = offsets.source_position(end)
    assert position <= copied.position
    assert bisect_left(copied.sources, position) == len(there)  # not one record more, not one less
    for source in range(copied.runs[0].source, copied.position + 3):
        if source <= position:
            assert offsets.to_target(source, end) == copied.base + bisect_left(there, source)
        else:
            with pytest.raises(NotCopied):
                offsets.to_target(source, end)


@given(copies())
@settings(max_examples=choose_examples(30, 100), deadline=None)
def test_stretches_hold_every_record_once(copied: Copied) -> None:
    told = [
        (target, source)
        for stretch in OffsetMap(copied.runs).stretches(copied.end)
        for target, source in zip(
            range(stretch.target, stretch.target + stretch.records),
            range(stretch.source, stretch.source + stretch.records),
            strict=True,
        )
    ]
    assert told == [(copied.base + at, source) for at, source in enumerate(copied.sources)]


@given(copies(), st.randoms())
@settings(max_examples=50, deadline=None)
def test_from_pairs_in_any_order(copied: Copied, random) -> None:
    pairs = [(run.target, run.source) for run in copied.runs]
    random.shuffle(pairs)
    assert OffsetMap.of(pairs) == OffsetMap(copied.runs)


def test_one_run_for_a_topic_without_gaps() -> None:
    offsets = OffsetMap.of([(0, 500)])
    assert offsets.to_target(1_000_500, 2_000_000) == 1_000_000
    assert offsets.to_source(1_000_000) == 1_000_500
    assert list(offsets.stretches(7)) == [ExplicitRun(0, 500, 7)]


def test_below_the_first_run_a_reader_starts_at_the_first_record() -> None:
    assert OffsetMap.of([(20, 100)]).to_target(3, 90) == 20


def test_target_offset_that_is_not_ours() -> None:
    with pytest.raises(ReplicatorError, match="before the first copied record"):
        OffsetMap.of([(20, 100)]).to_source(19)


def test_empty_map() -> None:
    empty = OffsetMap(())
    assert empty.source_position(0) == 0
    assert list(empty.stretches(10)) == []
    with pytest.raises(NotCopied):
        empty.to_target(0, 0)


@pytest.mark.parametrize(
    "runs",
    [((10, 10), (9, 20)), ((10, 10), (12, 11)), ((10, 10), (10, 9)), ((0, 0), (5, 4))],
    ids=["target falls", "records from nowhere", "source falls", "source falls behind"],
)
def test_contradictions_are_refused(runs: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ReplicatorError, match="contradicts itself"):
        OffsetMap(tuple(OffsetRun(*run) for run in runs))


def test_extended() -> None:
    offsets = OffsetMap.of([(0, 0)]).extended(OffsetRun(10, 12))
    assert [offsets.to_target(source, 20) for source in (9, 10, 11, 12, 13)] == [9, 10, 10, 10, 11]
