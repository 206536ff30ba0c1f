"""Rights to write that wait for applications: a migration gives them before producers need them, and whatever takes the
move back takes away those and no others. Crashes: the matrix, whose stories all hold rights back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.cutover.fake_log import Crash, FakeLog
from tests.cutover.judging import assert_back
from tests.cutover.moved import QUICK, assert_home
from tests.cutover.spoils import failing
from tests.cutover.world import A_RIGHT, REVERSE, World, a_migration, a_plan, holding_back
from tests.cutover.world_back import BackWorld, a_rollback, back_plan
from watershed.cutover.actions import GiveRights, JsonObject, ReadLogs, ReadRights, TakeRights
from watershed.cutover.journal.hash_chain import JournalChain
from watershed.cutover.observations import ActionFailed, ObservedRights
from watershed.cutover.run_plan import plan_migration
from watershed.cutover.step_definitions import STEPS
from watershed.cutover.withheld_rights_steps import find_rights_to_take, find_standing_rights
from watershed.topology.acl_translation import is_acl_about
from watershed.topology.inventory import InventoryAcl
from watershed.topology.migration_waves import RollbackPolicy, Wave

BEFORE: JsonObject = {**A_RIGHT, "principal": "User:before"}


def a_right(name: str, pattern: str = "LITERAL", resource: str = "TOPIC") -> JsonObject:
    return {**A_RIGHT, "name": name, "pattern": pattern, "resource": resource}


def moved_with_rights(log: FakeLog) -> BackWorld:
    world = BackWorld()
    world.withheld, world.given = (A_RIGHT, BEFORE), [BEFORE]
    plan = holding_back(back_plan())
    assert a_migration(world, log, plan=plan, policy=QUICK, run_id="there").run().state == "done"
    for _ in range(6):
        world.tick()
    return world


def test_only_a_flow_that_holds_rights_back_has_the_step_and_it_can_be_undone() -> None:
    held = [step.name for step in plan_migration(holding_back(a_plan())).steps]
    assert "write_rights" not in [step.name for step in plan_migration(a_plan()).steps]
    assert held.index("tail_proof") < held.index("write_rights") == held.index("point_of_no_return") - 1
    assert STEPS["write_rights"].undo is not None


def test_preflight_refuses_what_we_may_not_give_before_anything_is_stopped() -> None:
    world, log = World(), FakeLog()
    world.withheld, world.unable = (A_RIGHT,), "cluster cloud: ALTER on the cluster is missing"
    result = a_migration(world, log, plan=holding_back(a_plan())).run()
    assert (result.state, result.step) == ("refused", "preflight")
    assert (
        "ALTER on the cluster is missing: User:checkout WRITE topic dc.orders are held back at cloud" in result.reason
    )
    world.given = [A_RIGHT]  # nothing is left to give, so nothing is needed
    assert a_migration(world, FakeLog(), plan=holding_back(a_plan())).run().state == "done"


def test_rights_that_cannot_be_looked_at_are_refused_in_preflight() -> None:
    world = World()
    failing(ReadRights, "preflight", "cluster onprem refused DescribeAcls")(world)
    result = a_migration(world, FakeLog(), plan=holding_back(a_plan())).run()
    assert (result.state, result.step) == ("refused", "preflight")
    assert "holds back cannot be looked at: cluster onprem refused DescribeAcls" in result.reason


@pytest.mark.parametrize("how", ["refused", "in part"])
def test_a_target_that_refuses_them_takes_the_whole_migration_back(how: str) -> None:
    world = World()
    world.withheld = (A_RIGHT, BEFORE)

    def hook(action: Any) -> Any:
        if not isinstance(action, GiveRights):
            return None
        if how == "refused":
            return ActionFailed(0, "cluster cloud refused it", transient=False)
        world.given.append(A_RIGHT)
        return ObservedRights(0, True, (BEFORE,), (A_RIGHT,), {"User:before WRITE topic dc.orders": "POLICY_VIOLATION"})

    world.hook = hook
    result = a_migration(world, FakeLog(), plan=holding_back(a_plan())).run()
    assert result.step == "write_rights"
    assert_back(world, result)
    assert world.given == []


def test_a_rollback_takes_away_what_was_given_and_nothing_else() -> None:
    log = FakeLog()
    world = moved_with_rights(log)
    assert world.given == [BEFORE, A_RIGHT]
    assert_home(world, a_rollback(world, log, plan=holding_back(back_plan())).run())
    assert world.given == [BEFORE]
    chain = JournalChain("shop")
    chain.follow(log.read(0))
    assert find_standing_rights(chain.entries) == ()


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "not stored"])
def test_a_rollback_that_dies_at_its_end_takes_them_away_all_the_same(stored: bool) -> None:
    plan = holding_back(back_plan())
    whole = FakeLog()
    assert_home(world := moved_with_rights(whole), a_rollback(world, whole, plan=plan, run_id="b").run())
    at = [n for n, record in enumerate(whole.records) if record["step"] == "end_migration"]
    assert len(at) > 3
    for each in at:
        log = FakeLog()
        world = moved_with_rights(log)
        log.crash_at, log.stored = each, stored
        with pytest.raises(Crash):
            a_rollback(world, log, plan=plan, run_id="b").run()
        log.crash_at = None
        assert_home(world, a_rollback(world, log, "again", plan=plan, run_id="b").run())
        assert world.given == [BEFORE]


def test_a_right_that_another_wave_needs_stays_until_that_one_leaves_too() -> None:
    """Wave a gave the right to everything that begins with `dc.`; wave b found it there."""
    shared, own = a_right("dc.", "PREFIXED"), a_right("dc.clicks")
    back = RollbackPolicy(until_ms=86_400_000, reverse=REVERSE)
    one = Wave("a", ("clicks",), ("reports",), ("tracker",), strategy="fenced", rollback=back)
    other = Wave("b", ("orders",), ("billing",), ("checkout",), strategy="fenced", rollback=back)
    plan = holding_back(a_plan(waves=(one, other)))
    writes, reads = {"tracker": ("clicks",), "checkout": ("orders",)}, {"reports": ("clicks",), "billing": ("orders",)}
    world, log = BackWorld(writes=writes, reads=reads), FakeLog()
    world.withheld = (shared, own)
    policy = replace(QUICK, strategy="fenced")
    for wave in ("a", "b"):
        assert a_migration(world, log, wave, plan=plan, policy=policy, wave=wave, run_id=wave).run().state == "done"
    assert world.given == [shared, own]
    chain = JournalChain("shop")
    chain.follow(log.read(0))
    flow = plan.flows[0]
    assert find_rights_to_take(plan, chain, flow, "a") == (own,)
    assert find_rights_to_take(plan, chain, flow, "b") == (), "wave a is there still, and needs both"
    assert find_rights_to_take(plan, chain, flow, "a+b") == (shared, own)
    for wave, left in (("a", [shared]), ("b", [])):
        result = a_rollback(world, log, f"back {wave}", plan=plan, wave=wave).run()
        assert result.state == "done", result
        assert world.given == left


@pytest.mark.parametrize(
    ("right", "there"),
    [
        (a_right("dc.orders"), True),
        (a_right("dc.", "PREFIXED"), True),
        (a_right("*"), True),
        (a_right("dc.order"), False),
        (a_right("billing", resource="GROUP"), True),
        (a_right("orders", resource="GROUP"), False),
        (a_right("kafka-cluster", resource="CLUSTER"), False),
    ],
)
def test_what_a_right_is_about(right: JsonObject, there: bool) -> None:
    assert is_acl_about(InventoryAcl(**right), ["dc.orders"], ["billing"]) is there


def test_rights_of_a_rolled_back_run_are_nobody_s() -> None:
    """Given, then taken away by its own undo: another run that finds them there gave nothing."""
    world, log = World(), FakeLog()
    world.withheld = (A_RIGHT,)
    failing(object, "point_of_no_return")(world)  # type: ignore[arg-type]
    result = a_migration(world, log, plan=holding_back(a_plan())).run()
    assert (result.state, result.step) == ("rolled_back", "point_of_no_return")
    chain = JournalChain("shop")
    chain.follow(log.read(0))
    assert any(entry.deed == TakeRights.__name__ for entry in chain.entries)
    assert find_standing_rights(chain.entries) == ()
    assert world.given == []


def test_rights_that_could_not_be_taken_away_stay_in_the_journal() -> None:
    world, log = World(), FakeLog()
    world.withheld = (A_RIGHT,)
    failing(ReadLogs, "point_of_no_return")(world)
    spoil = world.hook

    def hook(action: Any) -> Any:
        if isinstance(action, TakeRights):
            return ObservedRights(0, True, (), (A_RIGHT,), {"User:checkout WRITE topic dc.orders": "POLICY_VIOLATION"})
        return spoil(action)

    world.hook = hook
    result = a_migration(world, log, plan=holding_back(a_plan())).run()
    assert result.state == "rollback_incomplete", result
    chain = JournalChain("shop")
    chain.follow(log.read(0))
    assert find_standing_rights(chain.entries) == (A_RIGHT,)
