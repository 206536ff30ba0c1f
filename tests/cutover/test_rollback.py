"""Behind the point of no return: everything written since comes back, once and in order, and groups neither lose nor
repeat a record (C22, C23)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.cutover.fake_log import FakeLog
from tests.cutover.judging import lost_and_repeated
from tests.cutover.moved import PLACE, QUICK, STRATEGIES, assert_all_at_source, assert_home, moved
from tests.cutover.spoils import upon
from tests.cutover.world import GROUP, REVERSE, World, a_migration
from tests.cutover.world_back import BackWorld, a_rollback, back_plan
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import ReadGroup
from watershed.cutover.errors import NothingToResume, WaveBlocked
from watershed.cutover.journal.hash_chain import JournalChain
from watershed.cutover.offsets import decode_offsets
from watershed.cutover.run_claim import find_started_waves
from watershed.topology.migration_waves import RollbackPolicy, Wave, WaveFence


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_everything_written_since_comes_home(strategy: str) -> None:
    log = FakeLog()
    world = moved(log, strategy)
    written = world.written
    assert_home(world, a_rollback(world, log).run())
    assert len(world.came_back) > 6
    assert world.written > written
    assert world.reverse_state == "stopped"


def test_the_way_back_begins_at_the_cut() -> None:
    log = FakeLog()
    world = moved(log)
    cut = {place: len([r for r in world.logs["target"][place] if r in world.brought]) for place in world.logs["target"]}
    assert {place: run.source for place, run in world.began.items()} == cut


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_group_that_was_carried_to_its_very_place_is_taken_home(strategy: str) -> None:
    """`sync.groups` is as quick as the migration at times: then the journal holds no commit of the migration's own."""
    log, world = FakeLog(), BackWorld()

    def carry(_world: World) -> None:
        [told] = [e for e in log.records if (e["step"], e["kind"], e["deed"]) == ("translate_offsets", "outcome", "")]
        world.kept = decode_offsets(told["observation"]["outcome"]["groups"][GROUP]["target"])
        world.groups["target"].commit(GROUP, world.kept)

    upon(ReadGroup, carry, step="commit_offsets")(world)
    policy = replace(QUICK, strategy=strategy)  # type: ignore[arg-type]  # one of them
    assert a_migration(world, log, plan=back_plan(), policy=policy, run_id="there").run().state == "done"
    assert not [e for e in log.records if e["deed"] == "CommitOffsets"]
    world.hook = lambda _action: None
    for _ in range(6):
        world.tick()
    assert_home(world, a_rollback(world, log).run())


@pytest.mark.parametrize("lag", range(12))
def test_wherever_a_group_stands_it_loses_and_repeats_nothing(lag: int) -> None:
    """From far below the cut to the end: its offset is set, and what it has processed by then."""
    log = FakeLog()
    world = moved(log)
    world.lazy, world.processed = True, []
    for place, records in world.logs["target"].items():
        at = max(0, len(records) - 1 - 2 * lag)
        world.processed += [record for record in records[:at] if record is not None]
        world.offsets["target"][GROUP][place] = at
    result = a_rollback(world, log).run()
    world.lazy = False
    assert_home(world, result)


def test_a_group_that_has_not_moved_since_stands_where_it_stood_before() -> None:
    log = FakeLog()
    world = BackWorld()

    def sleepy(value: dict[str, Any]) -> None:
        world.lazy = world.lazy or value["step"] == "start_consumers"

    log.on_append = sleepy
    before: dict[TopicPartition, int] = {}
    assert a_migration(world, log, plan=back_plan(), policy=replace(QUICK, strategy="fenced")).run().state == "done"
    before = dict(world.offsets["source"][GROUP])
    world.tick()
    rollback = a_rollback(world, log)
    result = rollback.run(until_step="commit_back")
    assert result.state == "paused", result
    assert world.offsets["source"][GROUP] == before
    log.on_append, world.lazy = None, False
    assert_home(world, a_rollback(world, log, resume=True).run())


def test_fences_come_down_as_they_rose() -> None:
    log = FakeLog()
    world = moved(log, fence=WaveFence("acl"))
    assert set(world.fences) == {"source"}
    assert_home(world, a_rollback(world, log).run())
    assert any("LowerFence" in str(record["deed"]) for record in log.records)


def test_waves_go_home_one_by_one_the_last_first() -> None:
    log = FakeLog()
    world = BackWorld(
        topics={"orders": 2, "clicks": 1},
        writes={"checkout": ("orders",), "web": ("clicks",)},
        reads={"billing": ("orders",), "dash": ("clicks",)},
    )
    way = RollbackPolicy(reverse=REVERSE)
    waves = (
        Wave("one", ("clicks",), ("dash",), ("web",), rollback=way),
        Wave("two", ("orders",), ("billing",), ("checkout",), after=("one",), rollback=way),
    )
    plan = back_plan(waves=waves)
    for wave in ("one", "two"):
        assert a_migration(world, log, plan=plan, wave=wave, policy=QUICK).run().state == "done"
    for _ in range(4):
        world.tick()
    with pytest.raises(WaveBlocked, match="Roll two back first"):
        a_rollback(world, log, plan=plan, wave="one")
    for wave, app in (("two", "checkout"), ("one", "web")):
        assert world.apps[app].side == "target"
        result = a_rollback(world, log, plan=plan, wave=wave).run()
        assert result.state == "done", result
        assert world.apps[app].side == "source"
        world.tick()
    assert_all_at_source(world)
    assert lost_and_repeated(world) == (0, 0)
    assert world.reverse_state == "stopped"


def test_what_is_rolled_back_is_rolled_back_once_and_by_its_name_again() -> None:
    log = FakeLog()
    world = moved(log)
    done = a_rollback(world, log, run_id="back").run()
    assert a_rollback(world, log, "again", run_id="back").run() == done
    with pytest.raises(NothingToResume, match="was rolled back already, by run back"):
        a_rollback(world, log, "other").run()
    chain = JournalChain("shop")
    chain.follow(log.read(0))
    assert find_started_waves(chain) == {}


@pytest.mark.parametrize("stranded", ["skip", "reread"])
def test_records_of_somebody_who_did_not_move(stranded: str) -> None:
    log = FakeLog()
    world = moved(log)
    world.stranger_writes(PLACE)
    for _ in range(4):
        world.tick()
    result = a_rollback(world, log, stranded=stranded).run()
    assert result.state == "done", result
    world.tick()
    lost, repeated = lost_and_repeated(world)
    if stranded == "skip":
        assert (lost, repeated) == (1, 0)
    else:
        assert lost == 0
        assert repeated > 0
