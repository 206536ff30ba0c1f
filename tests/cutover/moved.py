"""Worlds whose wave has moved, or stands half-way behind its point of no return; and what is true at home, and away."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.cutover.fake_log import FakeLog
from tests.cutover.judging import lost_and_repeated
from tests.cutover.spoils import failing
from tests.cutover.world import GROUP, POLICY, PRODUCER, REVERSE, World, a_migration, target_of
from tests.cutover.world_back import BackWorld, back_plan
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import ReadRecords
from watershed.cutover.step_runner import RunResult

PLACE = TopicPartition("orders", 0)
QUICK = replace(POLICY, reverse=REVERSE, consumer_lag=None)
STRATEGIES = ("consumers_first", "producers_first", "fenced")


def moved(log: FakeLog, strategy: str = "consumers_first", **policy: Any) -> BackWorld:
    """A world whose wave has moved, and in which applications went on for a while."""
    world = BackWorld()
    chosen = replace(QUICK, strategy=strategy, **policy)
    result = a_migration(world, log, plan=back_plan(), policy=chosen, run_id="there").run()
    assert result.state == "done", result
    for _ in range(6):
        world.tick()
    world.said.clear()
    return world


def stopped(log: FakeLog, step: str, strategy: str = "consumers_first") -> BackWorld:
    """A migration that stands behind its point of no return, unfinished."""
    world = BackWorld()
    failing(ReadRecords, step)(world)
    result = a_migration(world, log, plan=back_plan(), policy=replace(QUICK, strategy=strategy), run_id="there").run()
    assert (result.state, result.step) == ("stopped", step), result
    world.hook = lambda _action: None
    return world


def where(world: World) -> dict[str, tuple[str, bool]]:
    return {name: (app.side, app.running) for name, app in world.apps.items()}


def straggle_there(world: World) -> None:
    world.write("target", target_of(PLACE))


def assert_home(world: BackWorld, result: RunResult) -> None:
    assert result.state == "done", result
    assert where(world) == {GROUP: ("source", True), PRODUCER: ("source", True)}
    assert world.fences == {}
    world.tick()
    assert_all_at_source(world)
    assert lost_and_repeated(world) == (0, 0)


def assert_away(world: BackWorld, result: RunResult, state: str = "rolled_back") -> None:
    """The rollback was taken back: applications go on at the target, and the migration's fence stands as it did."""
    assert result.state == state, result
    assert where(world) == {GROUP: ("target", True), PRODUCER: ("target", True)}
    world.tick()
    assert lost_and_repeated(world) == (0, 0)


def assert_all_at_source(world: BackWorld) -> None:
    """Whatever was ever written, once, and in the order in which it was written."""
    for place, log in world.logs["source"].items():
        records = [record for record in log if record is not None]
        written = [record for record, birth in world.births.items() if birth == place]
        assert sorted(records, key=lambda record: int(record.split()[1])) == records, place
        assert records == written, place
