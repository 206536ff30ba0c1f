"""A partition that was copied there, back, and there again: readers go on with the same record, wherever they stand."""

from __future__ import annotations

import random

import pytest

from watershed.replicator.errors import NotCopied
from watershed.replicator.ledger.explicit_runs import ExplicitRunMap, join_explicit_runs
from watershed.replicator.ledger.offset_map import ExplicitRun, OffsetMap, OffsetRun
from watershed.replicator.ledger.round_trip_map import build_round_trip_map

Log = list[str | None]  # None: a marker


def copied(source: Log, target: Log, held: list[ExplicitRun], begin: int, theirs: set[str]) -> int:
    """Everything from `begin` on that the other flow has not brought, in small transactions. → the position"""
    for at in range(begin, len(source)):
        record = source[at]
        if record is None or record in theirs:
            continue
        held.append(ExplicitRun(len(target), at, 1))
        target.append(record)
        if at % 3 == 0:
            target.append(None)
    return len(source)


@pytest.mark.parametrize("seed", range(60))
def test_a_reader_goes_on_with_the_same_record(seed: int) -> None:
    dice = random.Random(seed)
    home, away = Log(), Log([None] * dice.randrange(3))
    there, back = list[ExplicitRun](), list[ExplicitRun]()
    brought_there, brought_back = set[str](), set[str]()
    began: list[OffsetRun] = []
    at_home = at_away = written = 0
    for round_ in range(5):
        for _ in range(dice.randrange(9)):
            log = away if round_ % 2 else home
            log.append(None if dice.random() < 0.2 else f"r{written}")
            written += 1
        if round_ % 2 == 0:
            began = began or [OffsetRun(len(away), 0)]
            at_home = copied(home, away, there, at_home, brought_back)
            brought_there |= {away[each.target] or "" for each in there}
        else:
            at_away = copied(away, home, back, at_away, brought_there)
            brought_back |= {home[each.target] or "" for each in back}
    own = ExplicitRunMap.over(join_explicit_runs(there), began[0], at_home)
    found = build_round_trip_map(own, ExplicitRunMap.over(join_explicit_runs(back), OffsetRun(0, 0), at_away))
    for at in range(len(home) + 1):
        left = [record for record in home[at:] if record is not None]
        if at > at_home:
            with pytest.raises(NotCopied):
                found.to_target(at, len(away))
        else:
            lands = found.to_target(at, len(away))
            assert [record for record in away[lands:] if record is not None] == left
    for at in range(began[0].target, len(away) + 1):
        left = [record for record in away[at:] if record is not None]
        assert [record for record in home[found.to_source(at) :] if record is not None] == left
    assert found.source_position(len(away)) == at_home


def test_what_lies_behind_the_position_is_waited_for() -> None:
    own = ExplicitRunMap.over([ExplicitRun(0, 0, 4)], OffsetRun(0, 0), 6)
    back = ExplicitRunMap.over([ExplicitRun(5, 5, 3)], OffsetRun(4, 4), 8)  # the copy has come to the first of three
    found = build_round_trip_map(own, back)
    assert found.to_target(5, 8) == 5
    with pytest.raises(NotCopied):
        found.to_target(7, 8)


def test_two_sides_that_were_written_to_at_once_have_no_common_history() -> None:
    own = ExplicitRunMap.over([ExplicitRun(0, 0, 2), ExplicitRun(4, 2, 2)], OffsetRun(0, 0), 6)
    assert build_round_trip_map(own, ExplicitRunMap.over([ExplicitRun(4, 2, 2)], OffsetRun(2, 4), 6)) is own


def test_a_map_by_sequence_numbers_is_left_as_it_is() -> None:
    own = OffsetMap((OffsetRun(0, 0),))
    assert build_round_trip_map(own, ExplicitRunMap.over([ExplicitRun(1, 1, 1)], OffsetRun(0, 0), 2)) is own
