"""Topics of a protected flow: opened for applications before producers need them, and protected again by whatever takes
the move back. Crashes of migrations: the matrix, whose stories all protect."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.cutover.failover_world import a_dead_source, a_failover
from tests.cutover.fake_log import Crash, FakeLog
from tests.cutover.judging import assert_back
from tests.cutover.moved import QUICK, assert_home
from tests.cutover.world import POLICY, World, a_denial, a_migration, a_plan, holding_back
from tests.cutover.world_back import BackWorld, a_rollback, back_plan
from watershed.cutover.actions import LiftProtection, RestoreProtection
from watershed.cutover.driver import describe_failed_deed
from watershed.cutover.failover.failover_plan import plan_failover
from watershed.cutover.observations import ObservedRights
from watershed.cutover.run_plan import plan_migration


def moved(log: FakeLog) -> BackWorld:
    world = BackWorld()
    world.protected = set(world.topics)
    assert a_migration(world, log, plan=holding_back(back_plan()), policy=QUICK, run_id="there").run().state == "done"
    for _ in range(6):
        world.tick()
    return world


def test_only_a_protected_flow_has_the_step_and_it_comes_before_the_point_of_no_return() -> None:
    steps = [step.name for step in plan_migration(holding_back(a_plan())).steps]
    assert steps.index("lift_protection") == steps.index("write_rights") - 1 == steps.index("point_of_no_return") - 2
    assert "lift_protection" not in [step.name for step in plan_migration(a_plan()).steps]
    assert "lift_protection" not in [step.name for step in plan_failover(back_plan()).steps]
    over = [step.name for step in plan_failover(holding_back(back_plan())).steps]
    assert over.index("promote") < over.index("cut_workers_off") < over.index("lift_protection")
    assert over.index("lift_protection") < over.index("switch_producers")


def test_a_denial_that_stays_takes_the_migration_back() -> None:
    world = World()
    world.protected = set(world.topics)

    def hook(action: Any) -> Any:
        if isinstance(action, LiftProtection):
            return ObservedRights(0, True, (), (a_denial("orders"),), {"User:checkout DENY": "POLICY_VIOLATION"})
        return None

    world.hook = hook
    result = a_migration(world, FakeLog(), plan=holding_back(a_plan())).run()
    assert result.step == "lift_protection"
    assert "cloud keeps denials that protect its topics: User:checkout DENY: POLICY_VIOLATION" in result.reason
    assert_back(world, result)
    assert world.protected == set(world.topics)


def test_a_deed_that_was_refused_counts_as_failed_in_the_journal() -> None:
    there = ObservedRights(0, True, (), (a_denial("orders"),))
    assert describe_failed_deed(LiftProtection(("orders",)), there) == "denials that are still there: 1"
    assert describe_failed_deed(RestoreProtection(("orders",)), there) is None
    refused = replace(there, refused={"x": "y"})
    assert describe_failed_deed(RestoreProtection(("orders",)), refused) == "rights that were refused: 1"


def test_a_rollback_protects_again() -> None:
    log = FakeLog()
    world = moved(log)
    assert not world.protected
    assert_home(world, a_rollback(world, log, plan=holding_back(back_plan())).run())
    assert world.protected == set(world.topics)


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "not stored"])
def test_a_rollback_that_dies_at_its_end_protects_all_the_same(stored: bool) -> None:
    plan, whole = holding_back(back_plan()), FakeLog()
    assert_home(world := moved(whole), a_rollback(world, whole, plan=plan, run_id="b").run())
    at = [n for n, record in enumerate(whole.records) if record.get("deed") == RestoreProtection.__name__]
    assert at
    for each in at:
        log = FakeLog()
        world = moved(log)
        log.crash_at, log.stored = each, stored
        with pytest.raises(Crash):
            a_rollback(world, log, plan=plan, run_id="b").run()
        log.crash_at = None
        assert_home(world, a_rollback(world, log, "again", plan=plan, run_id="b").run())
        assert world.protected == set(world.topics)


def test_a_failover_opens_the_topics_before_producers_start() -> None:
    world, log = a_dead_source(), FakeLog()
    world.protected = set(world.topics)
    policy = replace(POLICY, accept_loss=10**9)
    result = a_failover(world, log, plan=holding_back(back_plan()), policy=policy).run()
    assert result.state == "done", result
    assert not world.protected
    assert world.unwritten == 0
