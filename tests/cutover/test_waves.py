"""Several waves of one migration: their order, what each leaves of the others, and what is known of each (C24)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.cutover.fake_log import Crash, FakeLog
from tests.cutover.judging import assert_moved, assert_whole, lost_and_repeated, out_of_order
from tests.cutover.spoils import upon
from tests.cutover.world import POLICY, REVERSE, World, a_migration, a_plan
from watershed.cutover.actions import ReadLogs, StartApplication
from watershed.cutover.errors import Locked, NothingToResume, WaveBlocked, WaveDone
from watershed.cutover.journal.hash_chain import Journal, JournalChain
from watershed.cutover.policy import build_wave_policy
from watershed.cutover.rollback.rollback_plan import plan_rollback
from watershed.cutover.run_claim import ClaimRequest, claim_run
from watershed.cutover.run_plan import plan_migration
from watershed.cutover.step_runner import RunResult
from watershed.cutover.wave_states import find_next_wave, list_wave_states, refuse_early_wave
from watershed.topology.migration_waves import RollbackPolicy, Wave
from watershed.topology.plan import Plan

NAMES = ("a", "b", "c")
BACK = RollbackPolicy(until_ms=3_600_000, reverse=REVERSE)


def a_wave(name: str, strategy: Any, *after: str) -> Wave:
    return Wave(name, (name,), (f"group-{name}",), (f"app-{name}",), after=after, strategy=strategy, rollback=BACK)


WAVES = (a_wave("a", "consumers_first"), a_wave("b", "producers_first", "a"), a_wave("c", "fenced", "a", "b"))


def three() -> tuple[World, FakeLog, Plan]:
    writes = {f"app-{name}": (name,) for name in NAMES}
    reads = {f"group-{name}": (name,) for name in NAMES}
    return World({"a": 2, "b": 1, "c": 1}, writes, reads), FakeLog(), a_plan(topics=NAMES, waves=WAVES)


def run(world: World, log: FakeLog, plan: Plan, wave: str, holder: str = "first", **changes: Any) -> RunResult:
    declared = build_wave_policy(plan.migration.wave(wave)) if plan.migration is not None else POLICY
    policy = replace(POLICY, strategy=declared.strategy, reverse=declared.reverse, after_ms=1_000)
    return a_migration(world, log, f"{holder} {wave}", plan=plan, wave=wave, policy=policy, **changes).run()


def chain_of(log: FakeLog) -> JournalChain:
    chain = JournalChain("shop")
    chain.follow(log.read(0))
    return chain


def states(plan: Plan, log: FakeLog) -> dict[str, str]:
    return {each.name: each.state for each in list_wave_states(plan, chain_of(log))}


def test_three_waves_of_different_strategies_lose_and_repeat_nothing() -> None:
    world, log, plan = three()
    for at, name in enumerate(NAMES):
        assert states(plan, log) == {
            n: "done" if n in NAMES[:at] else "next" if n == name else "blocked" for n in NAMES
        }
        assert find_next_wave(plan, chain_of(log)) == name
        assert run(world, log, plan, name).state == "done"
        assert world.retired[None] == set(NAMES[: at + 1])
        assert world.flow_state == ("stopped" if name == "c" else "running")
        world.tick()
    assert_moved(world, RunResult("done", "seal"))
    assert_whole(log)
    assert {each.truth for each in list_wave_states(plan, chain_of(log))} == {"cloud"}
    with pytest.raises(WaveDone, match="every wave of shop is done: a, b, c"):
        find_next_wave(plan, chain_of(log))


@pytest.mark.parametrize(("wave", "waits"), [("b", "a, which is"), ("c", "a, b, which are")])
def test_a_wave_before_its_turn_is_refused_with_the_waves_it_waits_for(wave: str, waits: str) -> None:
    world, log, plan = three()
    with pytest.raises(WaveBlocked, match=f"wave {wave} of shop comes after {waits} not done") as blocked:
        run(world, log, plan, wave)
    assert blocked.value.exit_code == 1
    assert log.records == []


def test_a_wave_that_is_done_is_left_alone_without_being_an_error() -> None:
    world, log, plan = three()
    run(world, log, plan, "a")
    entries = len(log.records)
    with pytest.raises(WaveDone, match=r"wave a of shop is done already .*its applications are at cloud") as done:
        run(world, log, plan, "a")
    assert done.value.exit_code == 0
    assert len(log.records) == entries


def test_a_failure_in_the_second_wave_leaves_the_first_done_and_may_be_tried_again() -> None:
    world, log, plan = three()
    assert run(world, log, plan, "a").state == "done"
    world.said.clear()
    upon(ReadLogs, lambda w: w.write("source", next(p for p in w.logs["source"] if p.topic == "b")),
         step="tail_proof")(world)  # fmt: skip
    assert run(world, log, plan, "b").state == "rolled_back"
    assert states(plan, log) == {"a": "done", "b": "next", "c": "blocked"}
    assert {each.name: each.truth for each in list_wave_states(plan, chain_of(log))} == {
        "a": "cloud",
        "b": "onprem",
        "c": "onprem",
    }
    sides = {name: app.side for name, app in world.apps.items()}
    assert sides == {n: "target" if n.endswith("-a") else "source" for n in sides}
    assert world.reverse_state == "running"  # of the first wave, and as it was
    assert world.retired[REVERSE] == {"dc.b", "dc.c"}  # it carries what has moved
    world.hook = lambda _action: None
    world.tick()
    assert run(world, log, plan, "b").state == "done"
    assert run(world, log, plan, "c").state == "done"
    assert lost_and_repeated(world) == (0, 0)
    assert out_of_order(world) == 0


def test_an_unfinished_wave_holds_the_lock_of_all_and_its_truth_is_where_its_producers_write() -> None:
    world, log, plan = three()
    for step, truth in (("drain", "onprem"), ("canary", "cloud")):
        log.on_append = lambda value, step=step: _die_at(log, value, step)
        with pytest.raises(Crash):
            run(world, log, plan, "a", resume=bool(log.records))
        state = list_wave_states(plan, chain_of(log))[0]
        assert (state.state, state.step, state.truth, state.ended) == ("unfinished", step, truth, None)
        assert find_next_wave(plan, chain_of(log)) == "a"
        with pytest.raises(Locked, match="is unfinished"):
            run(world, log, plan, "b")
    assert run(world, log, plan, "a", resume=True).state == "done"


def _die_at(log: FakeLog, value: dict[str, Any], step: str) -> None:
    if value["step"] == step:
        log.on_append = None
        raise Crash


def test_a_rollback_makes_a_wave_due_again_and_a_rehearsal_changes_nothing() -> None:
    world, log, plan = three()
    run(world, log, plan, "a")
    for kind, state in (("drill", "done"), ("rollback", "next"), ("failover", "done"), ("failback", "next")):
        _write_a_run(log, kind, "a+b" if kind == "failover" else "a")
        assert states(plan, log)["a"] == state
    with pytest.raises(WaveBlocked):
        refuse_early_wave(plan, "c", chain_of(log))


def _write_a_run(log: FakeLog, kind: str, wave: str) -> None:
    from watershed.cutover.journal.hash_chain import RUN_STEP, Journal

    journal = Journal(log, "shop", kind)
    journal.refresh()
    who: Any = {"actor": "ann", "plan_hash": "sha256:1", "wave": wave}
    journal.append(kind, RUN_STEP, "intent", {"kind": kind}, **who)
    journal.append(kind, RUN_STEP, "outcome", {"state": "done", "step": "seal", "reason": ""}, **who)


def test_the_course_of_a_wave_has_its_own_order() -> None:
    plan = three()[2]
    orders = {name: [step.name for step in plan_migration(plan, name).steps] for name in NAMES}
    assert orders["a"].index("start_consumers") < orders["a"].index("fence_producers")
    assert orders["b"].index("switch_producers") < orders["b"].index("drain_consumers")
    assert orders["c"].index("fence_producers") < orders["c"].index("stop_consumers") < orders["c"].index("barrier")


def test_started_clients_of_one_wave_touch_no_other() -> None:
    world, log, plan = three()
    started: list[str] = []
    world.hook = lambda action: started.append(action.name) if isinstance(action, StartApplication) else None
    run(world, log, plan, "a")
    assert set(started) == {"group-a", "app-a"}


@pytest.mark.parametrize("kind", ["wave", "way back"])
def test_the_name_of_a_run_that_was_something_else_is_refused(kind: str) -> None:
    """Not answered with how that one ended: nobody moved this wave."""
    world, log, plan = three()
    assert run(world, log, plan, "a", run_id="r1").state == "done"
    journal = Journal(log, "shop", "second", world.clock)
    chain = journal.refresh()
    course = plan_rollback(plan, "a", chain, POLICY) if kind == "way back" else plan_migration(plan, "b", POLICY)
    with pytest.raises(NothingToResume, match="r1 was the migrate of wave a") as refused:
        claim_run(journal, plan, course, ClaimRequest("ann", "r1"), begin=True)
    assert "--run" in str(refused.value)
    assert states(plan, log)["b"] == "next"
