"""`producers_first` and `fenced` in the small world: clean, refused at every step, and what stands behind the point of
no return. `consumers_first` has its own file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.cutover.fake_log import FakeLog
from tests.cutover.judging import assert_back, assert_moved, where
from tests.cutover.spoils import Spoil, corrupt, expire, failing, run_ahead, straggle, stranger, upon, verdict
from tests.cutover.world import GROUP, POLICY, PRODUCER, REVERSE, World, a_migration, a_plan, target_of
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import (
    Action,
    AskApproval,
    CommitOffsets,
    ReadGroup,
    ReadLogs,
    RetireTopics,
    StartApplication,
    StopApplication,
    StopFlow,
)
from watershed.cutover.migration_step_order import STRATEGY_STEPS, estimate_write_pause_ms, list_strategy_steps
from watershed.cutover.observations import ApprovalAnswer, Observation, ObservedFlow
from watershed.cutover.policy import WavePolicy, build_wave_policy
from watershed.cutover.step_runner import RunResult
from watershed.topology.migration_waves import StragglersGate, Wave, WaveFence

STRATEGIES = ("consumers_first", "producers_first", "fenced")
LATER = ("producers_first", "fenced")


def policy(strategy: Any, **changes: Any) -> WavePolicy:
    return replace(POLICY, strategy=strategy, reverse=REVERSE, fence=WaveFence("acl"), after_ms=1_000, **changes)


def run(world: World, strategy: Any, log: FakeLog | None = None, holder: str = "first", **changes: Any) -> RunResult:
    wanted = changes.pop("policy", policy(strategy))
    plan = a_plan(strategy=strategy)
    return a_migration(world, log or FakeLog(), holder, plan=plan, policy=wanted, **changes).run()


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("reverse", [REVERSE, None])
def test_each_strategy_runs_through_clean(strategy: Any, reverse: str | None) -> None:
    world = World()
    assert_moved(world, run(world, strategy, policy=replace(policy(strategy), reverse=reverse)))
    assert world.fenced is not None
    assert world.reverse_state == ("running" if reverse else "paused")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_way_back_that_runs_already_disturbs_nobody(strategy: Any) -> None:
    """Of an earlier wave, say: what it carries to the source is no straggler's, and nobody reads it there."""
    world = World()
    world.reverse_state = "running"
    assert_moved(world, run(world, strategy))


def test_the_way_back_is_held_while_consumers_are_at_the_source() -> None:
    world, seen = World(), []
    world.reverse_state = "running"

    def hook(action: Action) -> Observation | None:
        if isinstance(action, ReadGroup) and world.apps[PRODUCER].side == "target":
            seen.append((world.apps[GROUP].side, bool(world.retired[REVERSE])))
        return None

    world.hook = hook
    assert run(world, "producers_first").state == "done"
    assert ("source", True) in seen
    assert ("source", False) not in seen


# Each row: at which step of which strategies what goes wrong before the point of no return.
REFUSALS: list[tuple[str, tuple[str, ...], Spoil, str]] = [
    ("hold_reverse", ("producers_first",), failing(RetireTopics, "hold_reverse"), "no"),
    ("fence_producers", LATER, failing(StopApplication, "fence_producers"), "no"),
    ("standstill", LATER, upon(ReadLogs, straggle, nth=11, step="standstill"), "orders-1 by +1"),
    ("stop_consumers", ("fenced",), failing(StopApplication, "stop_consumers"), "no"),
    ("stop_consumers", ("fenced",), upon(StopApplication, stranger("source"), nth=2), "with 1 member"),
    ("barrier", LATER, upon(ReadLogs, straggle, step="barrier"), "straggler"),
    ("barrier", LATER,
     upon(ReadLogs, lambda w: w.open_transaction.update({TopicPartition("orders", 0): 1}), step="barrier"),
     "open transactions on orders-0"),
    ("drain", LATER, upon(StopApplication, expire), "expired before they were copied"),
    ("drain", LATER, upon(StopApplication, run_ahead), "copied nothing"),
    ("tail_proof", LATER, upon(ReadLogs, verdict("different", 3), step="drain"), "3 unproven"),
    ("translate_offsets", ("fenced",), upon(ReadGroup, stranger("source"), step="translate_offsets"), "alive at"),
    ("commit_offsets", ("fenced",), upon(ReadGroup, stranger("target"), step="commit_offsets"), "never reset"),
    ("commit_offsets", ("fenced",), failing(CommitOffsets, "commit_offsets"), "no"),
    ("landing_test", ("fenced",), upon(CommitOffsets, corrupt), "landing test"),
    ("start_consumers", ("fenced",), failing(StartApplication, "start_consumers"), "no"),
    ("point_of_no_return", LATER, upon(ReadLogs, straggle, step="point_of_no_return"), "straggler"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("strategy", "step", "spoil", "words"),
    [(strategy, step, spoil, words) for step, which, spoil, words in REFUSALS for strategy in which],
)
def test_a_refusal_before_the_line_takes_everything_back(strategy: str, step: str, spoil: Spoil, words: str) -> None:
    world = World()
    world.reverse_state = "running"  # whatever the way back was, it is again
    spoil(world)
    result = run(world, strategy)
    if result.state == "rollback_incomplete":  # a stranger in the group keeps its offsets from going back
        assert "members" in result.reason
    assert (result.step, words in result.reason) == (step, True), result
    world.hook = lambda _action: None
    world.strangers = {"source": 0, "target": 0}
    world.verdict, world.copying = None, True
    world.starts.clear()
    if step == "landing_test":  # the spoilt target is part of the story
        assert where(world) == {("source", True)}
        return
    assert_back(world, result)
    assert world.reverse_state == "running"


@pytest.mark.parametrize("strategy", LATER)
@pytest.mark.parametrize(
    ("step", "spoil", "words"),
    [
        ("switch_producers", failing(StartApplication, "switch_producers"), "no"),
        ("retire_topics", failing(RetireTopics, "retire_topics"), "no"),
        ("retire_topics", failing(StopFlow, "retire_topics"), "no"),
        ("reverse_flow", lambda w: _silent(w, "reverse_flow"), "the reverse flow"),
        ("soak", lambda w: _lagging(w), "lag"),
    ],
)
def test_a_refusal_behind_the_line_stops_and_is_gone_on_from(
    strategy: str, step: str, spoil: Spoil, words: str
) -> None:
    world, log = World(), FakeLog()
    spoil(world)
    result = run(world, strategy, log, policy=policy(strategy, consumer_lag=2))
    assert (result.state, result.step) == ("stopped", step), result
    assert words in result.reason
    assert "nothing is switched back" in result.reason
    assert "run again with --resume" in result.reason
    assert f"`topology rollback`: the flow {REVERSE} carries back" in result.reason
    assert world.fenced is not None
    world.hook = lambda _action: None
    world.apps[PRODUCER].running = True
    assert_moved(world, run(world, strategy, log, "second", resume=True))


def _silent(world: World, step: str) -> None:
    """The way back is started and does not run."""

    def hook(action: Action) -> Observation | None:
        now = next((line for line in reversed(world.said) if ": begin" in line), "")
        if now.startswith(f"{step}: ") and type(action).__name__ == "StartFlow":
            return ObservedFlow(int(world.now * 1000), "paused", same_plan=True)
        return None

    world.hook = hook


def _lagging(world: World) -> None:
    """Consumers at the target read nothing while the soak looks."""

    def hook(action: Action) -> Observation | None:
        now = next((line for line in reversed(world.said) if ": begin" in line), "")
        if now.startswith("soak: ") and isinstance(action, ReadGroup):
            seen = world._group(int(world.now * 1000), action.side, action.group)
            return replace(seen, offsets=dict.fromkeys(seen.offsets, 0))
        return None

    world.hook = hook


def test_consumers_that_never_reach_the_barrier_are_named() -> None:
    world, log = World(), FakeLog()
    world.apps[GROUP].running = False
    result = run(world, "producers_first", log)
    assert (result.state, result.step) == ("stopped", "drain_consumers")
    assert "group billing still reads" in result.reason
    world.apps[GROUP].running = True
    assert_moved(world, run(world, "producers_first", log, "second", resume=True))


def test_a_group_that_read_beyond_the_barrier_is_not_translated() -> None:
    """What it read there was written by a straggler, and is not on the target."""
    world = World()

    def late(world: World) -> None:
        world.write("source", TopicPartition("clicks", 0))
        world.offsets["source"][GROUP][TopicPartition("clicks", 0)] = len(
            world.logs["source"][TopicPartition("clicks", 0)]
        )

    upon(ReadGroup, late, step="translate_offsets")(world)
    result = run(world, "producers_first")
    assert (result.state, result.step) == ("stopped", "translate_offsets")
    assert "read beyond the barrier" in result.reason
    assert "clicks-0" in result.reason


def test_a_group_that_read_everything_lands_on_the_first_record_of_the_target() -> None:
    world, log = World(), FakeLog()
    assert run(world, "producers_first", log).state == "done"
    landed = next(r for r in log.records if (r["step"], r["kind"], r["deed"]) == ("landing_test", "outcome", ""))
    assert landed["observation"]["outcome"]["groups"][GROUP] == {"same_record": 0, "at_end": 3, "waiting": []}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_consumers_that_never_join_are_seen(strategy: str) -> None:
    """Started first, looked for later; under `fenced` that is behind the line, so that nobody waits to write."""
    world, log = World(), FakeLog()

    def hook(action: Action) -> Observation | None:
        if isinstance(action, ReadGroup) and action.side == "target" and world.apps[GROUP].side == "target":
            return replace(world._group(int(world.now * 1000), "target", action.group), members=0)
        return None

    world.hook = hook
    result = run(world, strategy, log)
    assert result.step == "consumers_joined"
    assert result.state == ("rolled_back" if strategy == "consumers_first" else "stopped")
    assert "has 0 members at cloud" in result.reason
    world.hook = lambda _action: None
    if strategy == "consumers_first":
        assert_back(world, result)
    else:
        assert_moved(world, run(world, strategy, log, "second", resume=True))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_questions_are_about_what_is_about_to_happen(strategy: str) -> None:
    asked: dict[str, str] = {}

    def approve(ask: AskApproval) -> ApprovalAnswer:
        asked[ask.gate] = ask.question
        return ApprovalAnswer(0, True, "ann")

    assert run(World(), strategy, policy=policy(strategy, soak_approvals=("bob",)), approve=approve).state == "done"
    order = {
        "consumers_first": "move billing and then checkout from onprem to cloud?",
        "producers_first": "move checkout and then billing from onprem to cloud?",
        "fenced": "move billing and checkout together from onprem to cloud?",
    }
    assert asked["approval"] == order[strategy]
    before = strategy == "consumers_first"
    assert asked["soak"] == (
        "fence checkout and move them to cloud?" if before else
        "is wave all done, with its applications at cloud for good?"
    )  # fmt: skip


def test_a_soak_denied_behind_the_line_stops_and_is_asked_again() -> None:
    world, log = World(), FakeLog()
    wanted = policy("fenced", soak_approvals=("bob",))
    deny = lambda ask: ApprovalAnswer(0, ask.gate != "soak", "bob", "errors in the logs")  # noqa: E731
    result = run(world, "fenced", log, policy=wanted, approve=deny)
    assert (result.state, result.step) == ("stopped", "soak")
    assert "errors in the logs" in result.reason
    assert_moved(world, run(world, "fenced", log, "second", policy=wanted, resume=True))


def test_a_topic_that_has_moved_is_not_moved_again() -> None:
    world = World()
    world.retired[None] = {"orders"}
    result = run(world, "fenced")
    assert (result.state, result.step) == ("refused", "preflight")
    assert "topic orders has moved already" in result.reason
    assert target_of(TopicPartition("orders", 0)).topic in result.reason


def test_each_order_has_the_steps_that_make_it_safe() -> None:
    for strategy, order in STRATEGY_STEPS.items():
        at = {name: order.index(name) for name in order}
        assert len(at) == len(order), strategy
        rising = ("preflight", "lag_gate", "history_proof", "approval", "fence_producers", "standstill", "barrier",
                  "drain", "tail_proof", "point_of_no_return", "switch_producers", "canary", "retire_topics",
                  "straggler_watch", "seal")  # fmt: skip
        if strategy == "consumers_last":  # producers have moved with an earlier wave
            rising = ("preflight", "lag_gate", "history_proof", "approval", "seal")
            assert not {"fence_producers", "switch_producers", "retire_topics", "reverse_flow"} & set(order)
        assert [at[name] for name in rising] == sorted(at[name] for name in rising), strategy
        groups = ("stop_consumers", "translate_offsets", "commit_offsets", "landing_test", "start_consumers",
                  "consumers_joined")  # fmt: skip
        assert [at[name] for name in groups] == sorted(at[name] for name in groups), strategy
    fenced, later = STRATEGY_STEPS["fenced"], STRATEGY_STEPS["producers_first"]
    assert fenced.index("start_consumers") < fenced.index("switch_producers") < fenced.index("consumers_joined")
    assert later.index("drain_consumers") < later.index("stop_consumers") < later.index("reverse_flow")


def test_what_a_strategy_costs_in_writes_is_told_beforehand() -> None:
    """Under consumers_first groups move before the fence; under fenced while nobody writes."""
    costs = {strategy: estimate_write_pause_ms(list_strategy_steps(policy(strategy))) for strategy in STRATEGIES}
    assert costs["consumers_first"] == costs["producers_first"]
    assert costs["consumers_first"] < costs["fenced"]  # type: ignore[operator]


def test_two_watches_one_while_nobody_writes_and_one_after() -> None:
    both = Wave("all", ("orders",), gates_before=(StragglersGate(2_000),), gates_after=(StragglersGate(360_000),))
    assert (build_wave_policy(both).watch_ms, build_wave_policy(both).after_ms) == (2_000, 360_000)
    one = Wave("all", ("orders",), gates_after=(StragglersGate(7_000),))
    assert (build_wave_policy(one).watch_ms, build_wave_policy(one).after_ms) == (7_000, 0)
