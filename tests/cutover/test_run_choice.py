"""What is asked for, and the run that file and journal make of it: the same for a terminal and for Airflow."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from tests.cutover.fake_log import FakeLog
from tests.cutover.world import World, a_migration, a_plan
from tests.cutover.world_back import back_plan
from watershed.cutover.errors import WaveDone
from watershed.cutover.journal.hash_chain import RUN_STEP, Journal
from watershed.cutover.migration_step_order import STRATEGY_STEPS
from watershed.cutover.run_choice import RunChoice, choose_wave, plan_run, preview_run
from watershed.cutover.run_plan import RunKind
from watershed.cutover.step_definitions import STEPS
from watershed.topology.migration_waves import Wave


@pytest.mark.parametrize("kind", get_args(RunKind))
def test_every_kind_of_run_is_shown_from_the_file_alone_by_steps_of_the_table(kind: Any) -> None:
    shown = preview_run(back_plan(), RunChoice(kind))
    assert shown.kind == kind
    assert {step.name for step in shown.steps} <= set(STEPS)
    assert all(shown.find_text(step.name).doing for step in shown.steps)


@pytest.mark.parametrize("strategy", [None, *STRATEGY_STEPS])
def test_a_strategy_that_is_asked_for_counts_more_than_the_files(strategy: Any) -> None:
    shown = preview_run(a_plan(strategy="fenced"), RunChoice("migrate", strategy=strategy))
    assert shown.policy.strategy == (strategy or "fenced")


@pytest.mark.parametrize("choice", [{"accept_loss": 5}, {"though_source_answers": True}])
def test_choices_of_a_failover_reach_its_policy_and_its_steps(choice: dict[str, Any]) -> None:
    chain = Journal(FakeLog(), "shop", "first").refresh()
    asked = RunChoice("failover", **choice)
    for found in (preview_run(a_plan(), asked), plan_run(a_plan(), asked, chain)):
        assert {name: getattr(found.policy, name) for name in choice} == choice
        assert ("fence_source" in [step.name for step in found.steps]) == found.policy.though_source_answers


def test_the_next_wave_is_chosen_and_a_begun_run_keeps_its_strategy() -> None:
    waves = tuple(Wave(name, (name,), (), (f"writes {name}",), strategy="fenced") for name in "ab")
    plan, log = a_plan(waves=waves), FakeLog()
    journal = Journal(log, "shop", "first")
    who: dict[str, Any] = {"actor": "ann", "plan_hash": plan.hash}
    assert choose_wave(plan, None, journal.refresh()) == "a"
    journal.append("r1", RUN_STEP, "intent", {"kind": "migrate", "strategy": "consumers_first"}, wave="a", **who)
    journal.append("r1", "preflight", "intent", {"undo": False}, wave="a", **who)
    chosen = plan_run(plan, RunChoice("migrate", "a"), journal.refresh())
    assert (chosen.wave.name, chosen.policy.strategy) == ("a", "consumers_first")
    assert plan_run(plan, RunChoice("migrate", "b"), journal.chain).policy.strategy == "fenced"
    asked = RunChoice("migrate", "a", "producers_first")
    assert plan_run(plan, asked, journal.chain).policy.strategy == "producers_first"


def test_when_every_wave_has_moved_nothing_is_left_to_choose() -> None:
    waves = tuple(
        Wave(name, (topic,), (group,), (producer,), strategy="fenced")
        for name, topic, group, producer in (
            ("a", "clicks", "reports", "tracker"),
            ("b", "orders", "billing", "checkout"),
        )
    )
    plan, log = a_plan(waves=waves), FakeLog()
    world = World(writes={"tracker": ("clicks",), "checkout": ("orders",)},
                  reads={"reports": ("clicks",), "billing": ("orders",)})  # fmt: skip
    for name in "ab":
        found = a_migration(world, log, name, plan=plan, wave=name, policy=None, run_id=name).run()
        assert found.state == "done", found
    with pytest.raises(WaveDone):
        choose_wave(plan, None, Journal(log, "shop", "first").refresh())
