"""A rollback that dies at any entry of its journal is resumed to the end; nobody else works meanwhile (C26)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.cutover.fake_log import Crash, FakeLog, list_crash_points
from tests.cutover.moved import QUICK, STRATEGIES, assert_away, assert_home, moved, stopped, straggle_there
from tests.cutover.spoils import upon
from tests.cutover.world import a_migration
from tests.cutover.world_back import BACK, BackWorld, a_rollback, back_plan
from watershed.cutover.actions import ReadLogs
from watershed.cutover.errors import Locked, Superseded
from watershed.cutover.journal.hash_chain import JournalChain
from watershed.cutover.run_abandonment import abandon_run
from watershed.topology.migration_waves import WaveFence

ENTRIES = 80  # of a clean rollback; the test below checks it


def test_a_clean_rollback_writes_this_many_entries() -> None:
    log = FakeLog()
    world = moved(log)
    before = len(log.records)
    assert_home(world, a_rollback(world, log).run())
    assert len(log.records) - before == ENTRIES


@pytest.mark.parametrize(("at", "stored"), list_crash_points(range(ENTRIES)))
def test_a_crash_at_any_entry_is_resumed_to_the_end(at: int, stored: bool) -> None:
    log = FakeLog()
    world = moved(log)
    log.crash_at, log.stored = len(log.records) + at, stored
    with pytest.raises(Crash):
        a_rollback(world, log, run_id="back").run()
    world.tick()
    assert_home(world, a_rollback(world, log, "second", run_id="back").run())


@pytest.mark.parametrize("kind", ["stop", "acl"])
@pytest.mark.parametrize("at", range(0, 60, 3))
def test_a_crash_while_a_rollback_is_taken_back(at: int, kind: str) -> None:
    log = FakeLog()
    world = moved(log, fence=WaveFence(kind))  # type: ignore[arg-type]  # one of them
    fences = dict(world.fences)
    upon(ReadLogs, straggle_there, step="point_of_no_return")(world)
    log.crash_at = len(log.records) + ENTRIES // 2 + at
    policy = replace(BACK, fence=WaveFence(kind))  # type: ignore[arg-type]
    try:
        result = a_rollback(world, log, run_id="back", policy=policy).run()
    except Crash:
        world.tick()
        result = a_rollback(world, log, "second", run_id="back", policy=policy).run()
    assert_away(world, result)
    assert world.fences == fences


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("at", range(1, 60, 6))
def test_a_crash_while_an_unfinished_migration_is_rolled_back(at: int, strategy: str) -> None:
    log = FakeLog()
    world = stopped(log, "canary", strategy)
    log.crash_at = len(log.records) + at
    with pytest.raises(Crash):
        a_rollback(world, log, run_id="back").run()
    world.tick()
    assert_home(world, a_rollback(world, log, "second", run_id="back").run())
    chain = JournalChain("shop")
    chain.follow(log.read(0))
    assert chain.unfinished() == []


def test_given_up_before_its_own_point_of_no_return() -> None:
    log = FakeLog()
    world = moved(log)

    def die(value: dict[str, Any]) -> None:
        if value["step"] == "start_consumers":
            log.on_append = None
            raise Crash

    log.on_append = die
    with pytest.raises(Crash):
        a_rollback(world, log, run_id="back").run()

    def opened(**hooks: Any) -> Any:
        return a_rollback(world, log, "giver", resume=True, abandon=True, **hooks)

    assert_away(world, abandon_run(opened, "given up", lambda _event: None))


def test_two_at_once_are_not_possible() -> None:
    log = FakeLog()
    world = moved(log)
    log.crash_at = len(log.records) + 9
    with pytest.raises(Crash):
        a_rollback(world, log, run_id="back").run()
    with pytest.raises(Locked, match="run back"):
        a_rollback(world, log, "second", run_id="other").run()
    with pytest.raises(Locked, match="topology rollback --resume"):
        a_migration(world, log, "third", plan=back_plan(), policy=QUICK, resume=True).run()
    assert_home(world, a_rollback(world, log, "fourth", resume=True).run())


def test_a_migration_that_is_still_at_work_acts_no_more_once_its_rollback_has_begun() -> None:
    log, world = FakeLog(), BackWorld()

    def meanwhile(value: dict[str, Any]) -> None:
        if value["step"] == "canary":
            log.on_append = None
            assert a_rollback(world, log, run_id="back").run(until_step="preflight_back").state == "paused"

    log.on_append = meanwhile
    with pytest.raises(Superseded, match="must not act any more"):
        a_migration(world, log, plan=back_plan(), policy=QUICK).run()
    assert_home(world, a_rollback(world, log, "second", run_id="back").run())
