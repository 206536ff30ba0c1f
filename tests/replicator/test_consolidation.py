"""The ledger of a partition that was taken over often is written anew, and reads the same at every moment of that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from clusters.control import LEDGER
from clusters.errors import ClusterError, Unreachable
from clusters.records import ControlRecord
from replicator.consolidation import SPARE_BLOCKS, consolidate, whole
from replicator.ledger import BLOCK_RUNS, Block, Generation, Ledger, assembled
from replicator.offsetmap import Run
from replicator.partition import Identity
from replicator.resume import Remembered
from tests.replicator.test_ledger import KEY, SOURCE, TARGET, block, histories

Records = dict[str, dict[str, Any]]


class Written:
    """A ledger as compaction leaves it; stops taking records when `fails_at` of them were written."""

    def __init__(self, blocks: list[Block], fails_at: int | None = None) -> None:
        self.records: Records = {each.record_key: each.to_json() for each in blocks}
        self.moments: list[Records] = [dict(self.records)]
        self.fails_at = fails_at
        self.told = 0

    def put_nowait(self, topic: str, key: str, value: dict[str, Any] | None, partition: int, on_done: Any) -> None:
        assert topic == LEDGER
        self.told += 1
        if self.fails_at is not None and self.told > self.fails_at:
            on_done(Unreachable("no acknowledgement"), -1)
            return
        if value is None:
            self.records.pop(key, None)
        else:
            self.records[key] = value
        self.moments.append(dict(self.records))
        on_done(None, self.told)

    def flush(self) -> None:
        pass

    def ledger(self) -> Ledger:
        return read(self.records)


def read(records: Records) -> Ledger:
    blocks = [Block.from_record(ControlRecord(0, at, 0, key, value)) for at, (key, value) in enumerate(records.items())]
    return Ledger(assembled(blocks), records={KEY: tuple(records)})


def known(records: Records) -> Remembered:
    remembered, _ = read(records).remembered(KEY)
    assert remembered is not None
    return remembered


def consolidated(written: Written, end: int) -> Block:
    """The first block of the generation that goes on."""
    ledger = written.ledger()
    remembered, newest = ledger.remembered(KEY)
    assert remembered is not None
    mine = consolidate(KEY, Generation(newest + 1, "new"), end, ledger, written)  # type: ignore[arg-type]
    run = Run(end, remembered.map.source_position(end))
    return Block(KEY, mine, 1, end, remembered.identity, SOURCE, TARGET, (run,), since=remembered.since)


def takeovers(count: int) -> list[Block]:
    return [block(number + 1, "w", 10 * number, (10 * number, 11 * number)) for number in range(count)]


def test_a_young_ledger_is_left_alone() -> None:
    written = Written(takeovers(SPARE_BLOCKS + 1))
    assert consolidated(written, 500).generation.number == SPARE_BLOCKS + 2
    assert written.told == 0


@pytest.mark.parametrize("count", [SPARE_BLOCKS + 2, 100, 700])
def test_many_takeovers_become_as_few_blocks_as_the_map_needs(count: int) -> None:
    written = Written(takeovers(count))
    before = known(written.records)
    after = consolidated(written, 10 * count)
    assert known(written.records) == before
    assert len(written.records) == -(-count // BLOCK_RUNS)
    assert after.generation.number == count + 2
    told = written.told
    consolidated(written, 10 * count)
    assert written.told == told


def many(blocks: list[Block]) -> list[Block]:
    """The same history with empty takeovers at its beginning, so that there is something to consolidate."""
    first = min(blocks, key=lambda each: (each.generation, each.number))
    run = first.runs[0]
    repeats = [
        replace(first, generation=Generation(0, f"x{number}"), runs=(run,), number=1) for number in range(40)
    ]  # fmt: skip
    return [*repeats, *blocks]


@given(histories())
@settings(max_examples=60, deadline=None, phases=[Phase.explicit, Phase.generate])
def test_at_every_moment_the_ledger_reads_the_same(history: tuple[list[Block], list[int], int]) -> None:
    blocks, sources, end = history
    written = Written(many(blocks))
    before, (_, newest) = known(written.records), written.ledger().remembered(KEY)
    following = consolidated(written, end)
    assert following.generation.number == newest + 2
    for moment in written.moments:
        found = known(moment)
        assert [found.map.to_source(at) for at in range(end)] == sources[:end]
        assert found.map.source_position(end) == before.map.source_position(end)
        # What an older worker announced beyond the end still counts: its batches may be under way.
        last = before.map.runs[-1]
        for at in range(last.target + 3):
            assert found.map.to_source(at) == before.map.to_source(at)
        for at in range(last.source + 3):
            assert found.map.to_target(at, last.target + 3) == before.map.to_target(at, last.target + 3)
        with_next = known(moment | {following.record_key: following.to_json()})
        assert [with_next.map.to_source(at) for at in range(end)] == sources[:end]


@given(histories(), st.integers(0, 60))
@settings(max_examples=100, deadline=None)
def test_a_failure_in_the_middle_is_told_and_changes_nothing(
    history: tuple[list[Block], list[int], int], fails_at: int
) -> None:
    blocks, sources, end = history
    written = Written(many(blocks), fails_at)
    try:
        consolidated(written, end)
    except ClusterError:
        pass
    else:
        assert written.told <= fails_at
    assert [known(written.records).map.to_source(at) for at in range(end)] == sources[:end]


def orders_between() -> Iterator[tuple[str, list[Block]]]:
    """Histories with two producer epochs: an accepted gap, and a reseed."""
    old = [block(number + 1, "w", 10 * number, (10 * number, 11 * number)) for number in range(20)]
    gap = Block(KEY, Generation(21, "w"), 0, 200, Identity(7, 1, 200), SOURCE, TARGET, (Run(200, 900),), order="gap")
    yield "gap", [*old, gap, replace(gap, number=1, runs=(Run(200, 900), Run(230, 950)))]
    afresh = replace(gap, since=1, runs=(Run(200, 0),))
    yield "reseed", [*old, afresh, replace(afresh, number=1, runs=(Run(200, 0), Run(230, 33)))]


@pytest.mark.parametrize(
    ("kind", "blocks"), list(orders_between()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_consolidated_over_an_order(kind: str, blocks: list[Block]) -> None:
    written = Written(blocks)
    before = known(written.records)
    assert before.map.to_source(229) == (929 if kind == "gap" else 29)
    consolidated(written, 240)
    assert len(written.records) == 1
    for moment in written.moments:
        assert known(moment).map == before.map
    assert known(written.records) == before


def test_more_blocks_than_one_survive_a_crash_in_their_middle() -> None:
    blocks = takeovers(700)
    remembered = known(Written(blocks).records)
    parts = whole(KEY, Generation(701, "new"), 7_000, remembered)
    assert len(parts) == 3
    for at in range(1, 4):
        landed = {part.record_key: part.to_json() for part in parts[:at]}
        assert known(Written(blocks).records | landed).map == remembered.map


def test_a_block_that_a_zombie_writes_again_after_its_tombstone_does_no_harm() -> None:
    """Its later blocks alone come back; what the newer generation says of the offsets below stays."""
    long = [Run(10 * at, 11 * at) for at in range(600)]
    zombie = [
        replace(block(1, "z", 0), number=1 + at, runs=tuple(long[BLOCK_RUNS * at : BLOCK_RUNS * (at + 1)]))
        for at in range(3)
    ]
    written = Written([*zombie, *(block(2 + at, "w", 5_900, (5_900, 11 * 590)) for at in range(20))])
    before = known(written.records)
    consolidated(written, 5_995)
    more = replace(zombie[2], runs=(*zombie[2].runs, Run(6_000, 6_600)))
    found = known(written.records | {more.record_key: more.to_json()})
    assert [found.map.to_source(at) for at in range(6_000)] == [before.map.to_source(at) for at in range(6_000)]
    assert found.map.to_source(6_000) == 6_600
