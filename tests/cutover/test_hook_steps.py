"""Hooks in a run: when they are called, under which key, and that nothing they say breaks a rollback."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.cutover.fake_log import Crash, FakeLog
from tests.cutover.spoils import straggle, upon
from tests.cutover.world import POLICY, World, a_migration
from watershed.cutover.actions import Action, CallHook, CheckHooks, ReadLogs
from watershed.cutover.hooks.hook_caller import HookCaller
from watershed.cutover.observations import ActionFailed, HookAnswer, HookProblems, Observation
from watershed.cutover.policy import WavePolicy
from watershed.topology.migration_waves import PlanHook, WaveFence, WaveHooks

AT = WaveHooks(("page",), ("flush",), ("warm",), ("sorry", "page"))
HOOKED = replace(POLICY, hooks=AT, checks_before=("calendar",), checks_after=("calendar",))


def run(world: World, log: FakeLog, policy: WavePolicy = HOOKED, **more: Any) -> Any:
    return a_migration(world, log, policy=policy, **more).run()


def test_each_hook_is_called_at_its_point() -> None:
    world = World()
    assert run(world, FakeLog()).state == "done"
    assert [(name, point) for name, point, _ in world.called] == [
        ("calendar", "check"), ("page", "before"), ("calendar", "check"), ("flush", "fenced"), ("warm", "switched"),
    ]  # fmt: skip
    keys = [key for *_, key in world.called]
    assert len(set(keys)) == len(keys), "a check that is asked twice is asked for two purposes"


def test_a_run_that_dies_in_a_call_repeats_it_under_the_same_key() -> None:
    log = FakeLog()
    a_migration(World(), log, policy=HOOKED, run_id="r1").run()
    called = next(n for n, entry in enumerate(log.records) if entry["deed"] == "CallHook" and "flush" in str(entry))
    world, log = World(), FakeLog(crash_at=called + 1, stored=False)  # the call was made, its outcome is not known
    with pytest.raises(Crash):
        run(world, log, run_id="r1")
    assert run(world, log, holder="second", resume=True).state == "done"
    flushed = [key for name, _, key in world.called if name == "flush"]
    assert len(flushed) == 2
    assert len(set(flushed)) == 1


def test_a_hook_that_says_no_refuses_its_step() -> None:
    world = World()
    world.refusing_hooks = {"flush"}
    result = run(world, FakeLog())
    assert (result.state, result.step) == ("rolled_back", "hooks_fenced")
    assert "hook flush said no: flush answered" in result.reason
    assert [name for name, point, _ in world.called if point == "rolled_back"] == ["sorry", "page"]


def test_hooks_are_told_of_a_rollback_and_cannot_break_it() -> None:
    world, log = World(), FakeLog()
    world.refusing_hooks = {"sorry"}
    upon(ReadLogs, straggle, nth=11, step="standstill")(world)
    assert run(world, log).state == "rolled_back"
    assert [name for name, point, _ in world.called if point == "rolled_back"] == ["sorry", "page"]
    (outcome,) = [e for e in log.records if e["step"] == "undo_hooks" and e["kind"] == "outcome" and not e["deed"]]
    assert outcome["observation"]["outcome"]["hooks"]["sorry"]["agreed"] is False


def test_a_hook_that_cannot_even_be_asked_does_not_break_a_rollback() -> None:
    world = World()

    def hook(action: Action) -> Observation | None:
        if isinstance(action, CallHook) and action.point in ("rolled_back", "fenced"):
            return ActionFailed(int(world.now * 1000), "the network is gone", transient=False)
        return None

    world.hook = hook
    assert run(world, FakeLog()).state == "rolled_back"


def test_nothing_was_done_so_nobody_is_told() -> None:
    world = World()
    world.flow_state = "paused"
    assert run(world, FakeLog()).state == "refused"
    assert world.called == []


def test_hooks_that_cannot_be_called_are_found_before_anything_is_stopped() -> None:
    world = World()
    asked: list[str] = []

    def hook(action: Action) -> Observation | None:
        if isinstance(action, CheckHooks):
            asked.extend(action.names)
            return HookProblems(int(world.now * 1000), ("hook warm: set WATERSHED_HOOK_HOSTS",))
        return None

    world.hook = hook
    fenced = replace(HOOKED, fence=WaveFence("external", "lock"))
    result = run(world, FakeLog(), fenced)
    assert (result.state, result.step) == ("refused", "preflight")
    assert "set WATERSHED_HOOK_HOSTS" in result.reason
    assert sorted(asked) == ["calendar", "flush", "lock", "page", "sorry", "warm"]


def test_no_secret_reaches_the_journal() -> None:
    told = HookCaller(
        {"page": PlanHook(http="http://127.0.0.1:1/")}, "shop", "all", lambda: "r1", environ={"KEY": "hunter2"}
    )
    world, log = World(), FakeLog()

    def hook(action: Action) -> Observation | None:
        if isinstance(action, CallHook):
            return replace(told.call(action.name, action.point, action.key, action.body), agreed=True)
        return None

    world.hook = hook
    assert run(world, log).state == "done"
    assert isinstance(told.call("page", "before", "k", {}), HookAnswer)
    assert "hunter2" not in json.dumps(log.records)
