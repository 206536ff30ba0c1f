"""When a budget stops a flow (`slo.on_breach`): the decision for one partition, exhaustively; what workers do."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from watershed.clusters.budget_breaches import BudgetBreach, explain_breach, pick_open_breach
from watershed.clusters.flow_records import FlowRecord
from watershed.replicator.flow_state_order import answer_breach, apply_flow_order
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.topic_mapping import HoldReason, MappedTopic
from watershed.replicator.worker.assignment import assign_partitions, can_keep_copying
from watershed.replicator.worker.breach_watch import (
    OUTAGE_S,
    BreachWatch,
    BudgetProgress,
    ObservedLag,
    follow_budget,
)
from watershed.topology.breach_policy import BREACH_HOLD_S, BreachPolicy
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

LIMIT = 1_000
FLOW = PlanFlow(
    "a-to-b", "a", "b", TopicSelection((Selector("literal", "orders"),)), breach=BreachPolicy("pause", LIMIT)
)
RECORD = FlowRecord(FLOW, "sha256:0", "shop")
BREACH = BudgetBreach("a-to-b", 1, "pause", "slo.lag.max", LIMIT, 40_000, "orders", 0, "w1", 1_750_000_000_000)

CAUGHT_UP, LATE, AT_LIMIT, FAR = (
    ObservedLag(12, 12, 0),
    ObservedLag(10, 12, LIMIT + 1),
    ObservedLag(10, 12, LIMIT),
    ObservedLag(3, 10, 10 * LIMIT),
)


def follow(*looks: tuple[float, ObservedLag | None]) -> tuple[BudgetProgress, float]:
    progress, now = BudgetProgress(), 0.0
    for now, seen in looks:
        progress = follow_budget(progress, seen, LIMIT, now)
    return progress, now


def is_breach(*looks: tuple[float, ObservedLag | None]) -> bool:
    progress, now = follow(*looks)
    return progress.is_breach(now)


def test_late_for_half_a_minute_after_it_was_within_the_budget() -> None:
    assert is_breach((0, CAUGHT_UP), (1, LATE), (1 + BREACH_HOLD_S, LATE))
    assert not is_breach((0, CAUGHT_UP), (1, LATE), (BREACH_HOLD_S, LATE))
    assert not is_breach((0, CAUGHT_UP), (1, AT_LIMIT), (1_000, AT_LIMIT)), "the budget itself is allowed"


def test_what_was_there_when_copying_began_is_no_breach() -> None:
    """A first copy takes hours. So does what piled up in a pause that this budget caused."""
    assert not is_breach(*((at, FAR) for at in range(1_000)))
    young = ObservedLag(3, 10, 0)  # a new worker counts from its first look
    assert not is_breach((0, young), (1, FAR), (1_000, FAR))
    assert is_breach((0, FAR), (50, ObservedLag(10, 10, 0)), (51, LATE), (51 + BREACH_HOLD_S, LATE))


def test_the_goal_does_not_move() -> None:
    """A source that is written to all the time is caught up with when what was there at first is copied."""
    busy = [(at, ObservedLag(10 * at, 10 * at + 40, 200)) for at in range(20)]
    assert follow(*busy)[0].is_armed
    assert follow(*busy)[0].goal == 40


def test_within_the_budget_for_a_moment_begins_anew() -> None:
    assert not is_breach((0, CAUGHT_UP), (1, LATE), (25, CAUGHT_UP), (26, LATE), (26 + BREACH_HOLD_S - 1, LATE))


def test_brokers_that_do_not_answer_are_no_breach() -> None:
    assert not is_breach((0, CAUGHT_UP), (1, LATE), (500, None))
    assert not is_breach((0, CAUGHT_UP), (1, LATE), (500, None), (501, LATE))
    back = OUTAGE_S - 1
    short = (0, CAUGHT_UP), (1, None), (back, LATE), (back + BREACH_HOLD_S, LATE)
    assert is_breach(*short), "a leader that moves changes nothing"


def test_the_end_of_an_outage_is_no_breach() -> None:
    """What piled up in it is caught up with, as at a first copy, and then the budget counts again."""
    looks: list[tuple[float, ObservedLag | None]] = [(0, CAUGHT_UP), (1, LATE)]
    looks += [(at, None) for at in range(2, 3_600, 30)]
    looks += [(at, ObservedLag(at - 3_590, 100, 10 * LIMIT)) for at in range(3_600, 3_680)]
    assert not is_breach(*looks)
    recovered = [*looks, (3_700, ObservedLag(101, 101, 0)), (3_701, LATE)]
    assert not is_breach(*recovered)
    assert is_breach(*recovered, (3_701 + BREACH_HOLD_S, LATE))


@pytest.mark.parametrize("length", range(1, 6))
def test_every_sequence_of_looks(length: int) -> None:
    """A breach needs: caught up since the last outage, then late at every look for so long. Nothing else is one."""
    step = BREACH_HOLD_S / 2
    assert step < OUTAGE_S <= 2 * step, "two looks without an answer are an outage, one is none"
    for seen in product((CAUGHT_UP, LATE, FAR, None), repeat=length):
        looks = [(number * step, each) for number, each in enumerate(seen)]
        over = 0
        for each in reversed(seen):
            if each not in (LATE, FAR):
                break
            over += 1
        before = seen[: len(seen) - over]
        outages = [number + 2 for number in range(len(before) - 1) if before[number : number + 2] == (None, None)]
        armed_before = CAUGHT_UP in before[max(outages, default=0) :]
        assert is_breach(*looks) == (armed_before and over >= 3), seen


class FakeWriter:
    def __init__(self) -> None:
        self.records: list[tuple[str, dict[str, Any]]] = []

    def put_nowait(self, topic: str, key: str, value: Any, partition: int | None = None, on_done: Any = None) -> None:
        assert (topic, partition) == ("watershed.flows", 0)
        self.records.append((key, value))


def build_task(seen: ObservedLag | None, partition: int = 0, **more: Any) -> Any:
    report = None
    if seen is not None:
        report = SimpleNamespace(lag_ms=seen.lag_ms, source_position=seen.position, source_end=seen.end, aligning=None)
    active = None
    if seen is not None:
        source = SimpleNamespace(end=seen.end)
        active = SimpleNamespace(copy=SimpleNamespace(trouble=None, source=source), source_seen_at=time.monotonic())
    return SimpleNamespace(
        **{
            "key": PartitionKey("a-to-b", "orders", "orders", partition), "record": RECORD, "latest": report,
            "active": active, "wanted": True, "held": None, "stopped": None, "is_ordered_to_run": True,
        } | more
    )  # fmt: skip


class Scene:
    """Workers that look at one flow; time is set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.writer = 1_000.0, FakeWriter()
        monkeypatch.setattr("watershed.replicator.worker.breach_watch.time.monotonic", lambda: self.now)

    def build_watch(self, worker: str = "w1") -> BreachWatch:
        return BreachWatch(self.writer, worker)  # type: ignore[arg-type]

    def look(
        self, watch: BreachWatch, seen: ObservedLag | None, record: FlowRecord = RECORD,
        breaches: dict[str, BudgetBreach] | None = None, **more: Any,
    ) -> None:  # fmt: skip
        watch.step([build_task(seen, **more)], {"a-to-b": record}, breaches or {})

    def make_late(self, watch: BreachWatch, record: FlowRecord = RECORD, **more: Any) -> None:
        for _ in range(2):  # the first look finds what the source told before it
            self.now += 1
            self.look(watch, CAUGHT_UP, record, **more)
        self.stay_late(watch, BREACH_HOLD_S + 1, record, **more)

    def stay_late(self, watch: BreachWatch, seconds: float, record: FlowRecord = RECORD, **more: Any) -> None:
        for _ in range(round(seconds)):
            self.now += 1
            self.look(watch, LATE, record, **more)

    @property
    def breaches(self) -> list[BudgetBreach]:
        return [BudgetBreach.from_json(value, key) for key, value in self.writer.records if key.startswith("breach|")]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def test_a_worker_tells_it_once(scene: Scene) -> None:
    watch = scene.build_watch()
    scene.make_late(watch)
    for _ in range(3):
        scene.now += 1
        scene.look(watch, LATE)
    [breach] = scene.breaches
    assert (breach.number, breach.action, breach.topic, breach.lag_ms) == (1, "pause", "orders", LIMIT + 1)
    line = next(value for key, value in scene.writer.records if key.startswith("journaled|"))
    assert (line["kind"], line["id"], line["before"], line["after"]) == ("pause", "breach-1", "running", "paused")
    scene.now += 10  # the record did not come back: it was lost on its way
    scene.look(watch, LATE)
    assert [each.number for each in scene.breaches] == [1, 1]


def test_a_breach_behind_a_record_that_lost_its_number_is_the_next(scene: Scene) -> None:
    scene.make_late(scene.build_watch(), RECORD, breaches={"a-to-b": replace(BREACH, answered=True)})
    assert [each.number for each in scene.breaches] == [2]


def test_two_workers_at_once_make_one_breach(scene: Scene) -> None:
    scene.make_late(scene.build_watch("w1"))
    scene.make_late(scene.build_watch("w2"), partition=1)
    assert len({key for key, _ in scene.writer.records}) == 2, "a record and a line, whoever wrote them"
    assert [each.number for each in scene.breaches] == [1, 1]
    answered = answer_breach(RECORD, scene.breaches[0])
    assert not scene.breaches[1].is_open(answered), "one answer ends both, also where the second comes behind it"


def test_an_answer_ends_it_and_the_same_lateness_does_not_begin_it_again(scene: Scene) -> None:
    watch = scene.build_watch()
    scene.make_late(watch)
    answered, known = answer_breach(RECORD, BREACH), {"a-to-b": BREACH}
    scene.now += 5
    scene.look(watch, LATE, answered, known)  # the pause in between was not even seen
    scene.stay_late(watch, 1_000, answered, breaches=known)
    assert len(scene.breaches) == 1
    scene.make_late(watch, answered, breaches=known)
    assert [each.number for each in scene.breaches] == [1, 2], "within its budget again, and late again"


def test_a_breach_that_an_earlier_one_covers_is_written_again(scene: Scene) -> None:
    """Without its line in the journal, which is there."""
    watch, second = scene.build_watch(), replace(BREACH, number=2)
    for _ in range(3):
        watch.restore([second])
    assert [(each, len(scene.writer.records)) for each in scene.breaches] == [(second, 1)]
    scene.now += 10  # it was lost on its way
    watch.restore([second])
    watch.restore([])
    assert scene.breaches == [second, second]


def test_an_open_breach_is_not_told_again(scene: Scene) -> None:
    watch = scene.build_watch()
    scene.make_late(watch, breaches={"a-to-b": BREACH})
    assert not scene.breaches


def test_a_worker_that_was_frozen_begins_anew(scene: Scene) -> None:
    """Another worker has served its partitions, and may have stopped the flow, and somebody let it go on."""
    watch = scene.build_watch()
    scene.make_late(scene.build_watch("w2"))
    scene.writer.records.clear()
    for seconds in (5, BREACH_HOLD_S - 2):
        scene.look(watch, CAUGHT_UP)
        scene.now += 1
        scene.look(watch, CAUGHT_UP)
        scene.stay_late(watch, seconds)
        scene.now += 600
    scene.stay_late(watch, 5 * BREACH_HOLD_S)
    assert not scene.breaches


def test_a_frozen_worker_does_not_take_what_its_source_told_before_for_new(scene: Scene) -> None:
    """Its report still says that nothing waits, while a backlog of ten minutes does."""
    watch = scene.build_watch()
    told = SimpleNamespace(copy=SimpleNamespace(trouble=None, source=SimpleNamespace(end=12)), source_seen_at=scene.now)
    scene.now += 600
    for _ in range(3):
        scene.look(watch, CAUGHT_UP, active=told)
        scene.now += 1
    backlog = SimpleNamespace(trouble=None, source=SimpleNamespace(end=5_000))
    for _ in range(100):
        scene.now += 1
        scene.look(watch, LATE, active=SimpleNamespace(copy=backlog, source_seen_at=scene.now))
    assert not scene.breaches


def test_a_report_from_before_the_first_answer_arms_nothing(scene: Scene) -> None:
    """It says that nothing waits, because a copy that begins knows no end of the source's log."""
    watch = scene.build_watch()
    for end in (-1, -1, 5_000):
        scene.now += 1
        copy = SimpleNamespace(trouble=None, source=SimpleNamespace(end=end))
        scene.look(watch, ObservedLag(12, 12, 0), active=SimpleNamespace(copy=copy, source_seen_at=scene.now))
    scene.stay_late(watch, 2 * BREACH_HOLD_S)
    assert not scene.breaches


@pytest.mark.parametrize(
    "more",
    [
        {"wanted": False},
        {"is_ordered_to_run": False},
        {"held": HoldReason("unauthorised", "no", "")},
        {"stopped": object()},
        {"record": replace(RECORD, flow=replace(FLOW, breach=None))},
        {"active": None},
    ],
)
def test_what_does_not_copy_does_not_act(scene: Scene, more: dict[str, Any]) -> None:
    """A halted partition stands still already, and the others of its flow go on."""
    scene.make_late(scene.build_watch(), **more)
    assert not scene.breaches


@pytest.mark.parametrize("state", ["paused", "stopped"])
def test_a_flow_that_does_not_run_is_not_stopped(scene: Scene, state: Any) -> None:
    scene.make_late(scene.build_watch(), RECORD.with_state(state))
    assert not scene.breaches


def test_orders_answer_a_breach() -> None:
    assert pick_open_breach(RECORD, {"a-to-b": BREACH}) == BREACH
    assert "`topology flow resume a-to-b FILE`" in explain_breach(RECORD, {"a-to-b": BREACH})
    for order in ("resume", "restart"):
        changed = apply_flow_order(RECORD, order, BREACH)  # type: ignore[arg-type]
        assert (changed.state, changed.answered_breaches) == ("running", 1)
        assert explain_breach(changed, {"a-to-b": BREACH}) == ""
    for order in ("pause", "stop"):
        assert apply_flow_order(RECORD, order, BREACH).answered_breaches == 0  # type: ignore[arg-type]
    again = replace(BREACH, number=2)
    assert pick_open_breach(answer_breach(RECORD, BREACH), {"a-to-b": again}) == again
    assert pick_open_breach(None, {"a-to-b": BREACH}) is None
    marked = replace(BREACH, answered=True)
    assert pick_open_breach(RECORD, {"a-to-b": marked}) is None, (
        "v0.1.0 has written the record again, without the number"
    )


@pytest.mark.parametrize(("action", "state"), [("pause", "paused"), ("fail", "over_budget")])
def test_every_partition_stands_still(action: Any, state: str) -> None:
    topics = {"a-to-b": [MappedTopic("orders", "orders", 3, False, copied=3)]}
    slots, breach = set(range(16)), replace(BREACH, action=action)
    found = assign_partitions({"a-to-b": RECORD}, topics, slots, {}, {"a-to-b": breach})
    assert {each.held.state for each in found.values() if each.held} == {state}
    assert len(found) == 3
    assert all(each.held and "flow resume a-to-b" in each.held.remedy for each in found.values())
    assert not any(each.held for each in assign_partitions({"a-to-b": RECORD}, topics, slots, {}, {}).values())


def test_another_budget_does_not_restart_copies() -> None:
    assert can_keep_copying(FLOW, replace(FLOW, breach=BreachPolicy("fail", 5)))
    assert can_keep_copying(FLOW, replace(FLOW, breach=None))
