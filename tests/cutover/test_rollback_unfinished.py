"""A migration that stands behind its point of no return, unfinished, is ended by its rollback."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.cutover.fake_log import FakeLog
from tests.cutover.moved import QUICK, assert_away, assert_home, stopped
from tests.cutover.spoils import verdict
from tests.cutover.world import GROUP, PRODUCER, World, a_migration
from tests.cutover.world_back import BackWorld, a_rollback, back_plan
from watershed.cutover.actions import Action, ReadRecords
from watershed.cutover.journal.hash_chain import JournalChain
from watershed.cutover.observations import ActionFailed, Observation
from watershed.cutover.run_claim import find_started_waves


def test_a_migration_that_stands_behind_the_point_of_no_return_is_ended_by_its_rollback() -> None:
    log = FakeLog()
    world = stopped(log, "canary")
    world.tick()
    result = a_rollback(world, log, run_id="back").run()
    assert_home(world, result)
    ended = [r for r in log.records if r["run"] == "there" and r["step"] == "run" and r["kind"] == "outcome"]
    assert [each["observation"]["state"] for each in ended] == ["rolled_back"]
    assert "run back" in ended[0]["observation"]["reason"]
    chain = JournalChain("shop")
    chain.follow(log.read(0))
    assert chain.unfinished() == []
    assert find_started_waves(chain) == {}


def test_a_refused_rollback_leaves_the_migration_to_be_continued() -> None:
    log = FakeLog()
    world = stopped(log, "canary")
    world.verdict = verdict_of("different")
    assert a_rollback(world, log).run().state == "refused"
    world.verdict = None
    world.tick()
    result = a_migration(world, log, "second", plan=back_plan(), policy=QUICK, resume=True).run()
    assert_away(world, result, "done")


def verdict_of(word: str) -> Any:
    world = World()
    verdict(word, 2)(world)
    return world.verdict


def test_consumers_that_were_never_moved_read_on_at_the_source() -> None:
    """`producers_first`, and the migration stood still before its groups moved."""
    log = FakeLog()
    world = BackWorld()

    def stops(action: Action) -> Observation | None:
        drained = isinstance(action, ReadRecords) and world.apps[PRODUCER].side == "target"
        return ActionFailed(0, "no", transient=False) if drained and action.side == "source" else None

    world.hook = stops
    policy = replace(QUICK, strategy="producers_first")
    result = a_migration(world, log, plan=back_plan(), policy=policy).run()
    assert result.state == "stopped", result
    world.hook = lambda _action: None
    assert world.apps[GROUP].side == "source"
    for _ in range(3):
        world.tick()
    assert_home(world, a_rollback(world, log).run())
