"""The gate `consumer_lag`: counted from where groups were translated to, in records and not in offsets; who does not
keep up is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.cutover.world import GROUP, POLICY, a_plan
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import Action, PauseRun, ReadGroup, ReadLogs, ReadRecords, ReportMessage
from watershed.cutover.errors import Refused
from watershed.cutover.groups.consumer_lag import wait_for_consumer_lag
from watershed.cutover.observations import ActionDone, Observation, ObservedGroup, ObservedLogs, ObservedRecords
from watershed.cutover.offsets import encode_offsets
from watershed.cutover.run_context import RunContext
from watershed.cutover.step_outcomes import StepOutcomes

ONE, TWO = TopicPartition("dc.orders", 0), TopicPartition("dc.orders", 1)


@dataclass
class There:
    """The target as the gate sees it. moves: what the group commits from the second look on. nothing: partitions in
    which only markers follow its position."""

    ends: Mapping[TopicPartition, int]
    offsets: Mapping[TopicPartition, int]
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    moves: Mapping[TopicPartition, int] = field(default_factory=dict)
    nothing: frozenset[TopicPartition] = frozenset()
    done: Mapping[TopicPartition, int] = field(default_factory=dict)
    now_ms: int = 0
    looks: int = 0
    asked: list[ReadRecords] = field(default_factory=list)

    def answer(self, action: Action) -> Observation:
        match action:
            case ReadLogs("target", places):
                starts = {place: self.starts.get(place, 0) for place in places}
                return ObservedLogs(self.now_ms, starts, dict(self.ends), dict(self.ends))
            case ReadGroup("target", group):
                self.looks += 1
                offsets = {**self.offsets, **(self.moves if self.looks > 1 else {})}
                return ObservedGroup(self.now_ms, group, "Stable", 1, offsets, done=self.done, who=("billing-1 at h",))
            case ReadRecords("target", at):
                self.asked.append(action)
                return ObservedRecords(self.now_ms, {p: None if p in self.nothing else "record" for p in at})
            case PauseRun(ms):
                self.now_ms += ms
                return ActionDone(self.now_ms)
            case ReportMessage():
                return ActionDone(self.now_ms)
        raise AssertionError(action)


def gate(there: There, most: int, translated: Mapping[TopicPartition, int] | None = None) -> dict[str, Any]:
    plan = a_plan()
    assert plan.migration is not None
    moved = {"source": {}, "target": encode_offsets(there.offsets if translated is None else translated)}
    outcomes = {
        "preflight": {"partitions": {"orders": 2}},
        "translate_offsets": {"groups": {GROUP: moved}},
    }
    policy = replace(POLICY, soak_bound_ms=5_000)
    note: dict[str, Any] = {}
    asking = wait_for_consumer_lag(
        RunContext(plan.flows[0], plan.migration.waves[0], policy, StepOutcomes(outcomes)), note, most
    )
    try:
        action = next(asking)
        while True:
            action = asking.send(there.answer(action))
    except StopIteration:
        return note


def test_what_it_saw_is_told_by_group_and_partition() -> None:
    note = gate(There({ONE: 100, TWO: 40}, {ONE: 97, TWO: 40}), 3)
    assert note["consumer_lag"] == {GROUP: 3}
    assert note["groups"][GROUP] == {"moved": False, "members": 1, "behind": {str(ONE): 3}}


def test_a_group_that_makes_no_progress_is_refused_with_names() -> None:
    with pytest.raises(Refused, match=r"lag 65 records \(gate: 50\)") as refused:
        gate(There({ONE: 100, TWO: 40}, {ONE: 40, TWO: 35}), 50)
    told = (
        f"group {GROUP} lags 65 ({ONE} 60, {TWO} 5), has committed nothing since it came here, with 1 member: billing"
    )
    assert told in str(refused.value)
    assert refused.value.seen["groups"][GROUP]["moved"] is False


def test_one_that_is_on_its_way_is_told_from_one_that_stands() -> None:
    with pytest.raises(Refused) as refused:
        gate(There({ONE: 100, TWO: 40}, {ONE: 40, TWO: 35}, moves={ONE: 45}), 50)
    assert f"lags 60 ({ONE} 55, {TWO} 5), with 1 member" in str(refused.value)
    there = There({ONE: 100, TWO: 40}, {ONE: 40, TWO: 35}, moves={ONE: 100, TWO: 40})
    assert gate(there, 0)["groups"][GROUP]["moved"] is True


def test_a_partition_without_a_commit_counts_from_where_it_was_translated_to() -> None:
    """Not from the log's start: what it had read at the source is not to be read again."""
    there = There({ONE: 100, TWO: 40}, {TWO: 40})
    assert gate(there, 10, {ONE: 95, TWO: 40})["consumer_lag"] == {GROUP: 5}


def test_what_has_expired_is_nobody_s_lag() -> None:
    assert gate(There({ONE: 100, TWO: 40}, {ONE: 10, TWO: 40}, starts={ONE: 98}), 10)["consumer_lag"] == {GROUP: 2}


def test_a_share_group_is_as_far_as_it_is_done() -> None:
    assert gate(There({ONE: 100, TWO: 40}, {ONE: 10, TWO: 40}, done={ONE: 100}), 0)["consumer_lag"] == {GROUP: 0}


def test_markers_at_the_end_are_no_records() -> None:
    there = There({ONE: 101, TWO: 41}, {ONE: 100, TWO: 40}, nothing=frozenset({ONE, TWO}))
    assert gate(there, 0)["consumer_lag"] == {GROUP: 0}
    assert [set(each.at) for each in there.asked] == [{ONE, TWO}]


def test_records_are_looked_for_only_where_offsets_say_too_much() -> None:
    there = There({ONE: 101, TWO: 41}, {ONE: 100, TWO: 40})
    assert gate(there, 2)["consumer_lag"] == {GROUP: 2}
    assert there.asked == []
