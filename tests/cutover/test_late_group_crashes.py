"""Moves of late groups, and their ways back, that die at any entry of the journal; and those that are refused at any
step: each group goes on exactly where it was (issue 21, decision 0121)."""

from __future__ import annotations

import pytest

from tests.cutover.fake_log import Crash, FakeLog, list_crash_points
from tests.cutover.judging import assert_whole
from tests.cutover.late_world import REPORTS, LateWorld, assert_exact, back, move, pass_time, switched
from watershed.cutover.step_runner import RunResult

ENTRIES, ENTRIES_BACK, ENTRIES_REFUSED = 34, 44, 50
# of a clean move of a late group, of its way back, and of a move that is refused at its end; the test below checks them


@pytest.fixture(autouse=True)
def _no_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in an evidence pack has its own tests."""
    monkeypatch.setattr(
        "watershed.cutover.driver.write_run_evidence", lambda directory, *_rest: directory / "evidence.json"
    )


def moved(log: FakeLog) -> LateWorld:
    world = switched(log)
    assert move(world, log, REPORTS).run().state == "done"
    pass_time(world)
    return world


def refused(world: LateWorld, log: FakeLog, holder: str = "first") -> RunResult:
    """The file's own check says no when the group has read at the target for a while."""
    world.refusing_hooks = {"well"}
    policy = {"checks_after": ("well",), "hold_after_ms": 3_000}
    return move(world, log, REPORTS, holder, run_id="late", policy=policy).run()


def test_clean_runs_write_this_many_entries() -> None:
    log = FakeLog()
    world = switched(log)
    counts = []
    for run in (move, back):
        before = len(log.records)
        assert run(world, log, REPORTS).run().state == "done"
        counts.append(len(log.records) - before)
    assert tuple(counts) == (ENTRIES, ENTRIES_BACK)


def test_a_refused_run_writes_this_many_entries() -> None:
    log = FakeLog()
    world = switched(log)
    before = len(log.records)
    assert refused(world, log).state == "rolled_back"
    assert len(log.records) - before == ENTRIES_REFUSED


@pytest.mark.parametrize(("at", "stored"), list_crash_points(range(ENTRIES)))
def test_a_move_that_dies_is_resumed_to_the_end(at: int, stored: bool) -> None:
    log = FakeLog()
    world = switched(log)
    log.crash_at, log.stored = len(log.records) + at, stored
    with pytest.raises(Crash):
        move(world, log, REPORTS, run_id="late").run()
    world.tick()
    result = move(world, log, REPORTS, "second", run_id="late").run()
    assert world.side_of(REPORTS) == "target"
    assert_exact(world, result)
    assert_whole(log)


@pytest.mark.parametrize(("at", "stored"), list_crash_points(range(ENTRIES_BACK)))
def test_a_way_back_that_dies_is_resumed_to_the_end(at: int, stored: bool) -> None:
    log = FakeLog()
    world = moved(log)
    log.crash_at, log.stored = len(log.records) + at, stored
    with pytest.raises(Crash):
        back(world, log, REPORTS, run_id="home").run()
    world.tick()
    result = back(world, log, REPORTS, "second", run_id="home").run()
    assert world.side_of(REPORTS) == "source"
    assert_exact(world, result)
    assert_whole(log)


@pytest.mark.parametrize(("at", "stored"), list_crash_points(range(ENTRIES_REFUSED)))
def test_a_refused_move_that_dies_is_taken_back_to_the_end(at: int, stored: bool) -> None:
    log = FakeLog()
    world = switched(log)
    log.crash_at, log.stored = len(log.records) + at, stored
    with pytest.raises(Crash):
        refused(world, log)
    world.tick()
    result = refused(world, log, "second")
    assert world.side_of(REPORTS) == "source"
    assert not world.offsets["target"].get(REPORTS)
    assert_exact(world, result, "rolled_back")
    assert_whole(log)
