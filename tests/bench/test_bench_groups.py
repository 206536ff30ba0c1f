"""The parts of `bench.groups` that need no brokers: above all, that its judge is no friend of ours."""

from __future__ import annotations

import pytest

from watershed.bench.goals import build_group_goals
from watershed.bench.lagging_group import StoppedGroup
from watershed.bench.moved_group import GroupMoveVerdict, RecordsReadOn, judge_moved_group
from watershed.bench.numbered_topics import GROUP_BENCH_PARTITIONS, NumberedRecord, NumberedRecords

ABORTED = {5, 6}


def rows(*found: tuple[int, int] | tuple[int, int, bytes]) -> NumberedRecords:
    """Partition 0 with (offset, number[, key]); the others are empty."""
    return {0: [NumberedRecord(each[0], each[1], each[2] if len(each) > 2 else None) for each in found]} | {
        number: [] for number in range(1, GROUP_BENCH_PARTITIONS)
    }


def stand(at: int, read: set[int]) -> StoppedGroup:
    return StoppedGroup("readers", 3, {0: at} | dict.fromkeys(range(1, GROUP_BENCH_PARTITIONS), 0), frozenset(read))


SOURCE = rows((0, 0), (1, 1), (2, 2), (6, 7), (7, 8), (8, 9))  # offsets 3 to 5: rolled back, and a marker
HAS_READ = {0, 1, 2}


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ([7, 8, 9], GroupMoveVerdict()),
        ([1, 2, 7, 8, 9], GroupMoveVerdict(reread=2)),
        ([8, 9], GroupMoveVerdict(lost=1)),
        ([7, 8, 8, 9], GroupMoveVerdict(reread=1)),
        ([2, 5, 6, 7, 8, 9], GroupMoveVerdict(reread=1, never_committed=2)),
        ([], GroupMoveVerdict(lost=3)),
    ],
    ids=["exact", "too early", "too late", "twice", "rolled back", "nothing"],
)
def test_verdicts(seen: list[int], expected: GroupMoveVerdict) -> None:
    target = rows(*((100 + at, number) for at, number in enumerate(seen)))
    assert judge_moved_group(stand(3, HAS_READ), SOURCE, RecordsReadOn(target), ABORTED, compacted=False) == expected


def test_a_group_at_the_end_reads_nothing_more() -> None:
    everything = stand(9, HAS_READ | {7, 8, 9})
    assert judge_moved_group(everything, SOURCE, RecordsReadOn(rows()), ABORTED, compacted=False) == GroupMoveVerdict()
    assert judge_moved_group(
        everything, SOURCE, RecordsReadOn(rows((5, 9))), ABORTED, compacted=False
    ) == GroupMoveVerdict(reread=1)


def test_what_compaction_took_below_the_position_is_re_read_when_seen() -> None:
    source = rows((4, 4, b"a"), (8, 8, b"b"))
    seen = RecordsReadOn(rows((2, 2, b"c"), (8, 8, b"b")))  # number 2 is gone at the source, the group never had it
    assert judge_moved_group(stand(5, {4}), source, seen, set(), compacted=True) == GroupMoveVerdict(reread=1)


def test_a_record_is_not_lost_when_its_key_was_seen_later() -> None:
    source = rows((4, 4, b"a"), (5, 5, b"b"), (9, 9, b"a"))
    cleaned = RecordsReadOn(rows((5, 5, b"b"), (9, 9, b"a")))
    assert judge_moved_group(stand(4, set()), source, cleaned, set(), compacted=True) == GroupMoveVerdict()
    assert judge_moved_group(stand(4, set()), source, cleaned, set(), compacted=False) == GroupMoveVerdict(lost=1)
    assert judge_moved_group(
        stand(4, set()), source, RecordsReadOn(rows((9, 9, b"a"))), set(), compacted=True
    ) == GroupMoveVerdict(lost=1)


def test_a_partition_without_a_place_is_told_apart_from_loss() -> None:
    seen = RecordsReadOn(rows(), {0: "no committed offset"})
    assert judge_moved_group(stand(3, HAS_READ), SOURCE, seen, ABORTED, compacted=False) == GroupMoveVerdict(unmoved=1)


@pytest.mark.parametrize("read", [{0, 1}, {0, 1, 2, 7}], ids=["less than committed", "more than committed"])
def test_a_past_that_contradicts_the_commit_is_refused(read: set[int]) -> None:
    with pytest.raises(RuntimeError, match="readers committed 3 in partition 0, but has read something else"):
        judge_moved_group(stand(3, read), SOURCE, RecordsReadOn(rows()), ABORTED, compacted=False)


def test_goals_count_ours_only() -> None:
    figures = {"lost": 0, "never_committed": 0, "unmoved_partitions": 0}
    table = [
        {"case": "plain", "lag": lag, "contender": name, "reread": reread} | figures
        for lag in (0, 10)
        for name, reread in (("watershed", 0), ("mm2 default", 50))
    ]
    assert all(goal.holds for goal in build_group_goals(table))
    table[2]["reread"] = 1
    assert [goal.name for goal in build_group_goals(table) if not goal.holds] == ["plain: records re-read, all lags"]
