"""There, back, and there again: what a rollback leaves is where the next migration of the same wave begins."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cutover.fake_log import FakeLog
from tests.cutover.judging import lost_and_repeated
from tests.cutover.moved import QUICK, STRATEGIES, assert_home, moved
from tests.cutover.world import a_migration, target_of
from tests.cutover.world_back import FORWARD, BackWorld, a_rollback, back_plan
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import Rejoin
from watershed.cutover.observations import RejoinResult


def again(world: BackWorld, log: FakeLog, strategy: str, run: str) -> None:
    result = a_migration(
        world, log, plan=back_plan(), policy=replace(QUICK, strategy=strategy), run_id=run, holder=run
    ).run()
    assert result.state == "done", result
    for _ in range(5):
        world.tick()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_wave_goes_there_and_back_as_often_as_one_likes(strategy: str) -> None:
    log = FakeLog()
    world = moved(log, strategy)
    for round_ in range(3):
        assert_home(world, a_rollback(world, log, f"back-{round_}").run())
        assert world.retired[None] == set()
        assert any(f"flow {FORWARD} is running and copies clicks, orders again" in said for said in world.said)
        for _ in range(4):  # the flow copies what is written at home since
            world.tick()
        assert_the_same_at_both_ends(world)
        again(world, log, strategy, f"there-{round_}")
    world.settle()
    assert lost_and_repeated(world) == (0, 0)


def test_what_cannot_go_on_is_said_and_left_alone() -> None:
    log = FakeLog()
    world = moved(log)
    why = "it has equal offsets at both ends"
    world.hook = lambda action: RejoinResult(0, ("clicks",), {"orders": why}) if isinstance(action, Rejoin) else None
    assert a_rollback(world, log).run().state == "done"
    assert world.retired[None] == {"orders"}
    told = " ".join(world.said)
    assert f"flow {FORWARD} is running and copies clicks again" in told
    assert f"flow {FORWARD} stays without orders ({why}): cloud holds what applications wrote there." in told


def assert_the_same_at_both_ends(world: BackWorld) -> None:
    for place in world.logs["source"]:
        home, away = ([r for r in world.logs[side][p] if r is not None] for side, p in _both(place))
        assert away == home[: len(away)]
        assert len(home) - len(away) <= 1  # of the producer's newest tick


def _both(place: TopicPartition):
    return (("source", place), ("target", target_of(place)))
