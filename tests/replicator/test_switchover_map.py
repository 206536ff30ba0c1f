"""A reader that crosses a switch and comes back, against a brute force over the records themselves."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import choose_examples
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.errors import NotCopied, ReplicatorError
from watershed.replicator.ledger.explicit_runs import ExplicitRunMap
from watershed.replicator.ledger.offset_map import ExplicitRun, OffsetMap, OffsetRun
from watershed.replicator.ledger.offset_translation import CopiedPartition
from watershed.replicator.ledger.switchover_map import SwitchoverMap, translate_returning_group

HERE, THERE = TopicPartition("orders", 0), TopicPartition("dc.orders", 0)


class Scene:
    """Two logs as lists; a record is a number, None a marker. `kinds` are what happens, letter by letter:
    before the switch s(ource record) m(arker there); after it w(rite at the target) a(borted there) c(ommit of the flow
    back, which carries what is new)."""

    def __init__(self, before: str, after: str) -> None:
        self.home: list[int | None] = []
        self.away: list[int | None] = []
        runs = [OffsetRun(0, 0)]
        for letter in before:
            if letter == "s":
                self.home.append(len(self.home))
                self.away.append(self.home[-1])
            else:
                self.home.append(None)
                runs.append(OffsetRun(len(self.away), len(self.home)))
        self.cut, self.barrier = len(self.away), len(self.home)
        there = OffsetMap(tuple(runs))
        stretches: list[ExplicitRun] = []
        position = self.cut
        begin = OffsetRun(self.barrier, self.cut)
        for letter in (*after, "c"):
            if letter == "w":
                self.away.append(1_000 + len(self.away))
            elif letter == "a":
                self.away.append(None)
            else:
                new = range(position, len(self.away))
                for at in new:
                    if self.away[at] is not None:
                        stretches.append(ExplicitRun(len(self.home), at, 1))
                        self.home.append(self.away[at])
                if any(self.away[at] is not None for at in new):
                    self.home.append(None)
                position = len(self.away)
        back = CopiedPartition(ExplicitRunMap.over(stretches, begin, position), len(self.home))
        self.crossing = SwitchoverMap(self.cut, self.barrier, there, back)

    @staticmethod
    def left(log: list[int | None], at: int) -> list[int]:
        """What a reader at that offset has still to read."""
        return [record for record in log[at:] if record is not None]


SCENES = st.builds(Scene, st.text("ssm", max_size=12), st.text("wwac", max_size=14))


@settings(max_examples=choose_examples(100, 300))
@given(SCENES, st.data())
def test_a_reader_goes_on_with_the_very_next_record_either_way(scene: Scene, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(scene.away)))
    home = scene.crossing.to_source(at)
    assert scene.left(scene.home, home) == scene.left(scene.away, at)
    back = data.draw(st.integers(home, len(scene.home)))
    away = scene.crossing.to_target(back)
    assert scene.left(scene.away, away) == scene.left(scene.home, back)


@settings(max_examples=choose_examples(100, 300))
@given(SCENES)
def test_the_whole_history_as_one_map_leads_to_the_very_next_record(scene: Scene) -> None:
    history = scene.crossing.build_history()
    for at in range(len(scene.home) + 1):
        there = history.to_target(at, len(scene.away))
        assert scene.left(scene.away, there) == scene.left(scene.home, at)


def test_a_history_of_nothing_begins_at_the_cut() -> None:
    """Nothing was ever copied, and nothing is carried back yet."""
    empty = SwitchoverMap(4, 6, OffsetMap(()), None).build_history()
    assert (empty.to_target(6, 9), empty.position) == (4, 6)


def test_a_reader_behind_records_that_nobody_carried_goes_on_at_the_cut() -> None:
    """Somebody else wrote them behind the barrier, and the log ends behind them."""
    history = SwitchoverMap(4, 6, OffsetMap(()), None).build_history(source_end=8)
    assert [history.to_target(at, 9) for at in (6, 7, 8)] == [4, 4, 4]
    with pytest.raises(NotCopied):
        history.to_target(9, 9)


@given(SCENES)
def test_translations_never_go_backwards(scene: Scene) -> None:
    there = [scene.crossing.to_source(at) for at in range(len(scene.away) + 1)]
    assert there == sorted(there)
    back = [scene.crossing.to_target(at) for at in range(len(scene.home) + 1)]
    assert back == sorted(back)


def test_at_the_cut_a_reader_stands_at_the_barrier_itself_and_meets_whatever_else_is_there() -> None:
    back = CopiedPartition(
        ExplicitRunMap.over([ExplicitRun(14, 7, 3)], OffsetRun(12, 5), 10), 18
    )  # somebody wrote 10 to 13 at home
    crossing = SwitchoverMap(5, 10, OffsetMap((OffsetRun(0, 5),)), back)
    assert [crossing.to_source(at) for at in (5, 6, 7, 8, 10)] == [10, 10, 10, 15, 17]
    assert [crossing.to_target(at) for at in (10, 13, 14, 15, 17)] == [5, 5, 5, 8, 10]


def test_what_is_not_carried_back_cannot_be_crossed_by() -> None:
    there = OffsetMap((OffsetRun(0, 0),))
    behind = CopiedPartition(ExplicitRunMap.over([], OffsetRun(5, 5), 6), 5)
    with pytest.raises(NotCopied):
        SwitchoverMap(5, 5, there, behind).to_source(7)
    with pytest.raises(NotCopied):
        SwitchoverMap(5, 5, there, None).to_source(6)
    assert SwitchoverMap(5, 5, there, None).to_source(5) == 5
    with pytest.raises(ReplicatorError, match="before the first copied record"):
        SwitchoverMap(5, 5, OffsetMap((OffsetRun(3, 0),)), None).to_source(1)


def _returns(at: dict, given: dict, before: dict, policy: str | None = None):
    scene = Scene("sssms", "ww")
    return translate_returning_group(at, given, before, {HERE: scene.crossing}, [(HERE, THERE)], policy, {HERE: 0})


def test_a_group_that_has_not_moved_returns_to_its_very_offset() -> None:
    assert _returns({THERE: 3}, {THERE: 3}, {HERE: 3}).offsets == {HERE: 3}
    assert _returns({THERE: 3}, {}, {}).offsets == {HERE: 4}, "translated: behind the marker"
    assert _returns({}, {}, {HERE: 2}).offsets == {HERE: 2}, "never committed at the target"


def test_a_group_without_any_commit_follows_a_declared_policy_or_is_refused() -> None:
    assert _returns({}, {}, {}).silent == (HERE,)
    assert _returns({}, {}, {}, "earliest").offsets == {HERE: 0}
    assert _returns({}, {}, {}, "latest").offsets == {HERE: 5}, "the barrier: what came since is not skipped"


def test_a_group_that_is_ahead_of_what_was_carried_is_told_so() -> None:
    crossing = SwitchoverMap(
        5, 5, OffsetMap((OffsetRun(0, 0),)), CopiedPartition(ExplicitRunMap.over([], OffsetRun(5, 5), 6), 5)
    )
    found = translate_returning_group({THERE: 9}, {}, {}, {HERE: crossing}, [(HERE, THERE)], None, {HERE: 0})
    assert [str(each) for each in found.ahead] == ["dc.orders-0 committed 9, copied through 6 (3 to go)"]
