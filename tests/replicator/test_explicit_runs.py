"""Maps of partitions that others write to as well, and how the ledger keeps them."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watershed.clusters.control_records import ControlRecord
from watershed.clusters.errors import ProtocolError
from watershed.replicator.errors import NotCopied, ReplicatorError
from watershed.replicator.ledger.explicit_runs import ExplicitRunMap, join_explicit_runs
from watershed.replicator.ledger.offset_map import ExplicitRun, OffsetRun
from watershed.replicator.ledger.transaction_positions import (
    RUNS_IN_POSITION,
    RUNS_PER_BLOCK,
    PositionAndRuns,
    PositionTracker,
    TransactionPosition,
    decode_explicit_runs,
    decode_positions,
    encode_explicit_runs,
)
from watershed.replicator.partition_key import PartitionKey

KEY = PartitionKey("flow", "orders", "all-orders", 0)
SOURCE, TARGET = uuid.uuid4(), uuid.uuid4()


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[ExplicitRun], OffsetRun, int]:
    """Stretches with gaps of any kind on both sides, where they began, and how far the source is copied."""
    begin = OffsetRun(draw(st.integers(0, 5)), draw(st.integers(0, 5)))
    target, source = begin
    stretches: list[ExplicitRun] = []
    for _ in range(draw(st.integers(0, 8))):
        target += draw(st.integers(0, 3))
        source += draw(st.integers(0, 3))
        stretches.append(ExplicitRun(target, source, draw(st.integers(1, 4))))
        target, source = target + stretches[-1].records, source + stretches[-1].records
    return stretches, begin, source + draw(st.integers(0, 3))


@given(logs(), st.integers(0, 4))
def test_every_offset_is_answered_both_ways(log: tuple[list[ExplicitRun], OffsetRun, int], further: int) -> None:
    stretches, begin, position = log
    offsets = ExplicitRunMap.over(stretches, begin, position)
    place = {s.source + n: s.target + n for s in stretches for n in range(s.records)}
    back = {target: source for source, target in place.items()}
    end = (stretches[-1].target + stretches[-1].records) if stretches else begin.target
    target_end = end + further
    for source in range(position + 1):
        following = [place[at] for at in sorted(place) if at >= source]
        assert offsets.to_target(source, target_end) == (following[0] if following else end)
    for target in range(begin.target, target_end + 1):
        following = [back[at] for at in sorted(back) if at >= target]
        assert offsets.to_source(target) == (following[0] if following else position)
    assert offsets.source_position(target_end) == position
    assert list(offsets.stretches(target_end)) == stretches
    with pytest.raises(NotCopied):
        offsets.to_target(position + 1, target_end)


@given(logs())
def test_coalescing_changes_no_answer(log: tuple[list[ExplicitRun], OffsetRun, int]) -> None:
    stretches, _, _ = log
    single = [ExplicitRun(s.target + n, s.source + n, 1) for s in stretches for n in range(s.records)]
    assert join_explicit_runs(single) == join_explicit_runs(stretches)
    assert decode_explicit_runs(encode_explicit_runs(stretches)) == tuple(stretches)


def test_a_target_that_ends_earlier_than_the_map_says_no_more_than_it_holds() -> None:
    offsets = ExplicitRunMap.over([ExplicitRun(0, 100, 5), ExplicitRun(9, 105, 5)], OffsetRun(0, 100), 110)
    assert offsets.source_position(12) == 108
    assert list(offsets.stretches(11)) == [ExplicitRun(0, 100, 5), ExplicitRun(9, 105, 2)]
    assert offsets.to_target(107, 11) == 11
    with pytest.raises(NotCopied) as raised:
        offsets.to_target(109, 12)
    assert raised.value.copied == 108


def test_before_the_beginning() -> None:
    offsets = ExplicitRunMap.over([ExplicitRun(7, 100, 5)], OffsetRun(4, 90), 105)
    assert offsets.to_target(3, 20) == 7
    assert offsets.to_source(5) == 100
    with pytest.raises(ReplicatorError, match="before the first copied record"):
        offsets.to_source(3)


@pytest.mark.parametrize(
    ("stretches", "position"),
    [
        ([ExplicitRun(0, 0, 5), ExplicitRun(4, 9, 1)], 10),
        ([ExplicitRun(0, 5, 5), ExplicitRun(5, 9, 1)], 20),
        ([ExplicitRun(0, 0, 5)], 4),
    ],
)
def test_what_contradicts_itself_is_refused(stretches: list[ExplicitRun], position: int) -> None:
    with pytest.raises(ReplicatorError, match="contradicts itself"):
        ExplicitRunMap.over(stretches, OffsetRun(0, 0), position)


class Log:
    """The ledger as compaction leaves it."""

    def __init__(self) -> None:
        self.records: dict[str, ControlRecord] = {}

    def write(self, entries: list) -> None:
        for key, value in entries:
            if value is None:
                del self.records[key]  # a tombstone for what was never written would be a mistake
            else:
                self.records[key] = ControlRecord(0, len(self.records), 0, key, value)

    def known(self) -> PositionAndRuns:
        (found,) = decode_positions(self.records.values()).values()
        return found


def begun() -> PositionAndRuns:
    return PositionAndRuns(TransactionPosition(KEY, SOURCE, TARGET, OffsetRun(0, 0), 0))


COUNTS = st.integers(0, 90) | st.sampled_from((2047, 5000))


@given(st.lists(st.tuples(COUNTS, st.booleans(), st.booleans()), max_size=8))
@settings(max_examples=50, deadline=None)
def test_nothing_is_lost_from_block_to_block_and_from_owner_to_owner(
    transactions: list[tuple[int, bool, bool]],
) -> None:
    log, track, target, source = Log(), PositionTracker(begun()), 0, 0
    log.write(track.advance([], 0, -1))
    track.committed()
    expected: list[ExplicitRun] = []
    for count, commits, changes_hands in transactions:
        landed = [ExplicitRun(target + 2 * n, source + n, 1) for n in range(count)]
        target += 2 * count + 1
        entries = track.advance(landed, source + count, 3)
        if commits:
            log.write(entries)
            track.committed()
            expected += landed
            source += count
        else:
            track.rolled_back()
        if changes_hands:
            track = PositionTracker(log.known())
    known = log.known()
    assert list(known.map.counted) == expected
    assert known.map.position == source
    blocks = [known.blocks[number] for number in sorted(known.blocks)]
    assert all(len(block) == RUNS_PER_BLOCK for block in blocks[:-1])
    assert len(known.position.stretches) <= RUNS_IN_POSITION


def test_blocks_go_when_the_target_has_deleted_their_records() -> None:
    log, track = Log(), PositionTracker(begun())
    for number in range(3 * RUNS_PER_BLOCK + 100):
        log.write(track.advance([ExplicitRun(2 * number, number, 1)], number + 1, 0, log_start=0))
        track.committed()
    assert sorted(log.known().blocks) == [0, 1, 2, 3]
    assert {len(log.known().blocks[number]) for number in range(3)} == {RUNS_PER_BLOCK}
    log_start = 4 * RUNS_PER_BLOCK
    track.advance([], 4 * RUNS_PER_BLOCK, 0, log_start=log_start)
    track.rolled_back()
    assert sorted(log.known().blocks) == [0, 1, 2, 3]
    log.write(track.advance([], 4 * RUNS_PER_BLOCK, 0, log_start=log_start))
    track.committed()
    assert sorted(log.known().blocks) == [2, 3]
    assert log.known().map.to_target(0, 100_000) == log.known().blocks[2][0].target


def test_a_position_that_is_older_than_its_block() -> None:
    """A reader may stop between the two records of one transaction: the block has grown, the position says less."""
    log, track = Log(), PositionTracker(begun())
    seen: list[ControlRecord] = []
    for number in range(3 * RUNS_IN_POSITION):
        before = [each for key, each in log.records.items() if key.endswith("position")]
        expected = list(log.known().map.counted) if before else []
        log.write(track.advance([ExplicitRun(2 * number, number, 1)], number + 1, 0))
        track.committed()
        blocks = [each for key, each in log.records.items() if not key.endswith("position")]
        if before and blocks and not seen:
            seen = [*before, *blocks]
            (mixed,) = decode_positions(seen).values()
            assert list(mixed.map.counted) == expected
    assert seen


def test_what_earlier_versions_wrote() -> None:
    """Schema 1: full blocks of 64 below `block`, of which the position's stretches are the beginning."""
    about = {"schema": 1, "flow": KEY.flow, "topic": KEY.topic, "partition": KEY.partition}
    block = about | {"kind": "stretches", "block": 0, "stretches": [[0, 0, 3], [1, 1, 2]]}
    position = about | {
        "kind": "position", "target_topic": KEY.target_topic, "source_id": str(SOURCE), "target_id": str(TARGET),
        "begin": [0, 0], "position": 9, "leader_epoch": 3, "block": 1, "stretches": [[7, 7, 1]], "generation": 1,
        "order": "", "note": "", "since": 0,
    }  # fmt: skip
    log = Log()
    log.write([("p|stretches|0", block), ("p|position", position)])
    assert list(log.known().map.counted) == [ExplicitRun(0, 0, 3), ExplicitRun(4, 4, 2), ExplicitRun(7, 7, 1)]
    track = PositionTracker(log.known())
    entries = track.advance([ExplicitRun(20 + 2 * at, 10 + at, 1) for at in range(100)], 200, 3)
    log.records.update({key: ControlRecord(0, 9, 0, key, value) for key, value in entries})
    found = [ControlRecord(0, 1, 0, "p|stretches|0", block), *log.records.values()]
    (known,) = decode_positions(found[:1] + [each for each in found[1:] if not each.key.startswith("p|")]).values()
    assert len(known.map.counted) == 103


def test_an_unreadable_record_is_named() -> None:
    record = ControlRecord(3, 17, 0, "k", {"schema": 1, "kind": "position", "flow": "f", "topic": "t", "partition": 0})
    with pytest.raises(ProtocolError, match="partition 3 offset 17"):
        decode_positions([record])


def test_a_block_that_is_missing_is_named() -> None:
    """Otherwise the map would silently lack what it held."""
    log, track = Log(), PositionTracker(begun())
    log.write(track.advance([ExplicitRun(2 * at, at, 1) for at in range(RUNS_IN_POSITION + 9)], 99, 0))
    log.records = {key: each for key, each in log.records.items() if key.endswith("position")}
    with pytest.raises(ProtocolError, match="block 0 holds 0, and the position counts"):
        log.known()
