"""The ledger of a partition that was taken over often is written anew, and reads the same at every moment of that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.examples import choose_examples
from tests.replicator.test_ledger import KEY, SOURCE, TARGET, block, histories
from watershed.clusters.control_records import ControlRecord
from watershed.clusters.control_topics import LEDGER_TOPIC
from watershed.clusters.errors import ClusterError, Unreachable
from watershed.replicator.batch.record_batch import RawBatch
from watershed.replicator.ledger.consolidation import SPARE_BLOCKS, build_map_blocks, consolidate_map
from watershed.replicator.ledger.ledger import Ledger, assemble_partitions
from watershed.replicator.ledger.ledger_block import BLOCK_RUNS, CLAIM_NUMBER, Generation, LedgerBlock
from watershed.replicator.ledger.ledger_state import LedgerState
from watershed.replicator.ledger.offset_map import OffsetRun
from watershed.replicator.partition_key import ProducerIdentity
from watershed.replicator.recovery.producer_epochs import (
    begin_exclusive_epoch,
    drop_overtaken_epochs,
    drop_unlanded_epochs,
)
from watershed.replicator.recovery.recovery_point import LogInspection, RecoveryPoint, find_recovery_point

Records = dict[str, dict[str, Any]]


class Written:
    """A ledger as compaction leaves it; stops taking records when `fails_at` of them were written."""

    def __init__(self, blocks: list[LedgerBlock], fails_at: int | None = None) -> None:
        self.records: Records = {each.record_key: each.to_json() for each in blocks}
        self.moments: list[Records] = [dict(self.records)]
        self.fails_at = fails_at
        self.told = 0

    def put_nowait(self, topic: str, key: str, value: dict[str, Any] | None, partition: int, on_done: Any) -> None:
        assert topic == LEDGER_TOPIC
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
    blocks = [
        LedgerBlock.from_record(ControlRecord(0, at, 0, key, value)) for at, (key, value) in enumerate(records.items())
    ]
    epochs = {key: block.identity.epoch for key, block in zip(records, blocks, strict=True)}
    return Ledger(assemble_partitions(blocks), records={KEY: epochs})


def known(records: Records) -> LedgerState:
    remembered, _ = read(records).remembered(KEY)
    assert remembered is not None
    return remembered


def consolidated(written: Written, end: int) -> LedgerBlock:
    """The first block of the generation that goes on."""
    ledger = written.ledger()
    remembered, newest = ledger.remembered(KEY)
    assert remembered is not None
    mine = consolidate_map(KEY, Generation(newest + 1, "new"), end, remembered, ledger, written)  # type: ignore[arg-type]
    run = OffsetRun(end, remembered.map.source_position(end))
    return LedgerBlock(KEY, mine, 1, end, remembered.identity, SOURCE, TARGET, (run,), since=remembered.since)


def takeovers(count: int) -> list[LedgerBlock]:
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


def many(blocks: list[LedgerBlock]) -> list[LedgerBlock]:
    """The same history with empty takeovers at its beginning, so that there is something to consolidate."""
    first = min(blocks, key=lambda each: (each.generation, each.number))
    run = first.runs[0]
    repeats = [
        replace(first, generation=Generation(0, f"x{number}"), runs=(run,), number=1) for number in range(40)
    ]  # fmt: skip
    return [*repeats, *blocks]


@given(histories())
@settings(max_examples=choose_examples(25, 300), deadline=None, phases=[Phase.explicit, Phase.generate])
def test_at_every_moment_the_ledger_reads_the_same(history: tuple[list[LedgerBlock], list[int], int]) -> None:
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
@settings(max_examples=choose_examples(40, 300), deadline=None)
def test_a_failure_in_the_middle_is_told_and_changes_nothing(
    history: tuple[list[LedgerBlock], list[int], int], fails_at: int
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


def orders_between() -> Iterator[tuple[str, list[LedgerBlock]]]:
    """Histories with two producer epochs: an accepted gap, and a reseed."""
    old = [block(number + 1, "w", 5 * number, (5 * number, 6 * number)) for number in range(40)]
    gap = LedgerBlock(
        KEY,
        Generation(41, "w"),
        0,
        200,
        ProducerIdentity(7, 1, 200),
        SOURCE,
        TARGET,
        (OffsetRun(200, 900),),
        order="gap",
    )
    yield "gap", [*old, gap, replace(gap, number=1, runs=(OffsetRun(200, 900), OffsetRun(230, 950)))]
    afresh = replace(gap, since=1, runs=(OffsetRun(200, 0),))
    yield "reseed", [*old, afresh, replace(afresh, number=1, runs=(OffsetRun(200, 0), OffsetRun(230, 33)))]


@pytest.mark.parametrize(
    ("kind", "blocks"), list(orders_between()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_consolidated_over_an_order(kind: str, blocks: list[LedgerBlock]) -> None:
    written = Written(blocks)
    before = known(written.records)
    assert before.map.to_source(229) == (929 if kind == "gap" else 29)
    consolidated(written, 240)
    assert len(written.records) == 1
    for moment in written.moments:
        assert known(moment).map == before.map
    assert known(written.records) == before


def test_more_blocks_than_one_survive_a_crash_in_their_middle() -> None:
    blocks = takeovers(2 * BLOCK_RUNS + 100)
    remembered = known(Written(blocks).records)
    parts = build_map_blocks(KEY, Generation(len(blocks) + 1, "new"), 10 * len(blocks), remembered)
    assert len(parts) == 3
    for at in range(1, 4):
        landed = {part.record_key: part.to_json() for part in parts[:at]}
        assert known(Written(blocks).records | landed).map == remembered.map


def test_a_block_that_a_zombie_writes_again_after_its_tombstone_does_no_harm() -> None:
    """Its later blocks alone come back; what the newer generation says of the offsets below stays."""
    long = [OffsetRun(10 * at, 11 * at) for at in range(600)]
    zombie = [replace(block(1, "z", 0), number=1 + at, runs=tuple(long[256 * at : 256 * (at + 1)])) for at in range(3)]
    written = Written([*zombie, *(block(2 + at, "w", 5_900, (5_900, 11 * 590)) for at in range(40))])
    before = known(written.records)
    consolidated(written, 5_995)
    more = replace(zombie[2], runs=(*zombie[2].runs, OffsetRun(6_000, 6_600)))
    found = known(written.records | {more.record_key: more.to_json()})
    assert [found.map.to_source(at) for at in range(6_000)] == [before.map.to_source(at) for at in range(6_000)]
    assert found.map.to_source(6_000) == 6_600


# -- producer epochs that were begun to be alone ---------------------------------------------------------------------

HOLED = (OffsetRun(0, 0), OffsetRun(500, 700), OffsetRun(800, 1500))
LAST = RawBatch(990, 1000, 0, 0, 0, 7, 0, 990, 10, memoryview(b""))


def inspected(end: int = 1000, last: RawBatch = LAST) -> LogInspection:
    return LogInspection(SOURCE, 0, 5000, TARGET, 0, end, last, None, 10**12, 86_400_000, True, True)


def inspected_and_claimed(written: Written, seen: LogInspection, worker: str = "w") -> RecoveryPoint:
    """An inspection of a partition whose producer epoch must not be shared, as `replicator.recovery.takeover` does
    it."""
    remembered, newest = written.ledger().remembered(KEY)
    remembered = drop_overtaken_epochs(remembered, seen)
    assert remembered is not None
    decided = begin_exclusive_epoch(find_recovery_point(remembered, seen, 7, "earliest"), remembered, seen)
    assert isinstance(decided, RecoveryPoint), decided
    mine = consolidate_map(
        KEY,
        Generation(newest + 1, worker),
        decided.target_end,
        drop_unlanded_epochs(remembered, seen),
        written.ledger(),
        written,  # type: ignore[arg-type]
    )
    claim = LedgerBlock(
        KEY, mine, CLAIM_NUMBER, decided.target_end, decided.identity, SOURCE, TARGET,
        (OffsetRun(decided.target_end, decided.position),), needs_epoch=True, after=decided.after,
    )  # fmt: skip
    for each in (claim, replace(claim, number=CLAIM_NUMBER + 1)):
        written.put_nowait(LEDGER_TOPIC, each.record_key, each.to_json(), 0, lambda *_: None)
    return decided


def without_traffic(inspections: int) -> tuple[Written, list[RecoveryPoint]]:
    """Many looks at a compacted partition to which nothing is written; each begins a producer epoch, none lands."""
    first = replace(block(1, "a", 0), runs=HOLED, needs_epoch=True, closed=True)
    written = Written([first])
    return written, [inspected_and_claimed(written, inspected()) for _ in range(inspections)]


def test_claims_that_never_landed_do_not_take_the_map_with_them() -> None:
    written, decided = without_traffic(60)
    assert [each.identity.epoch for each in decided] == list(range(1, 61))
    assert {each.after for each in decided} == {0}
    assert {(each.position, each.target_end) for each in decided} == {(1700, 1000)}
    assert any(len(after) < len(before) for before, after in pairwise(written.moments))
    for moment in written.moments:
        assert len(moment) < 3 * SPARE_BLOCKS
        found = known(moment)
        assert [found.map.to_target(at, 1000) for at in (10, 499, 600, 700, 1600)] == [10, 499, 500, 500, 900]
        assert [found.map.to_source(at) for at in (0, 499, 500, 799, 800, 999)] == [0, 499, 700, 999, 1500, 1699]
        assert found.map.source_position(1000) == 1700


def test_the_claim_that_lands_at_last_goes_on_with_the_whole_map() -> None:
    written, decided = without_traffic(40)
    ours = decided[-1].identity
    more = RawBatch(1000, 1010, 0, 0, 0, 7, ours.epoch, 0, 10, memoryview(b""))
    following = [inspected_and_claimed(written, inspected(1010, more)) for _ in range(40)]
    assert {each.after for each in following} == {ours.epoch}
    for moment in written.moments:
        assert [known(moment).map.to_source(at) for at in (0, 500, 999)] == [0, 700, 1699]
    assert known(written.records).map.to_source(1009) == 1709


def test_a_batch_of_the_older_epoch_after_all() -> None:
    """It landed behind the newest claim's beginning: the claim is disowned, and used up all the same."""
    written, _ = without_traffic(40)
    late = replace_end(LAST, 1000, 1007)
    again = [inspected_and_claimed(written, inspected(1007, late)) for _ in range(40)]
    assert [each.identity.epoch for each in again] == list(range(41, 81))
    assert {(each.after, each.position, each.target_end) for each in again} == {(0, 1707, 1007)}
    for moment in written.moments:
        assert [known(moment).map.to_source(at) for at in (0, 500, 999)] == [0, 700, 1699]


def replace_end(batch: RawBatch, base: int, end: int) -> RawBatch:
    return batch._replace(base=base, end=end, base_sequence=base, records=end - base)


def test_a_failure_among_claims_changes_nothing() -> None:
    for fails_at in range(40):
        written, _ = without_traffic(SPARE_BLOCKS // 2)
        written.told, written.fails_at = 0, fails_at
        with suppress(ClusterError):
            inspected_and_claimed(written, inspected())
        found = known(written.records)
        assert [found.map.to_source(at) for at in (0, 500, 999)] == [0, 700, 1699]
        assert found.last_epoch >= SPARE_BLOCKS // 2
        written.fails_at = None
        decided = inspected_and_claimed(written, inspected())
        assert (decided.after, decided.position) == (0, 1700)
        assert [known(written.records).map.to_source(at) for at in (0, 500, 999)] == [0, 700, 1699]
