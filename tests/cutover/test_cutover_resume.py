"""A driver that dies anywhere is followed by one that finishes; two at once are impossible; a run keeps its plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cutover.fake_log import Crash, FakeLog
from tests.cutover.judging import assert_back, assert_moved
from tests.cutover.spoils import straggle, upon
from tests.cutover.world import POLICY, PRODUCER, World, a_migration, a_plan
from watershed.cutover.actions import ReadLogs
from watershed.cutover.driver import RunEvent
from watershed.cutover.errors import Locked, NothingToResume, PlanChanged, Superseded
from watershed.cutover.journal.hash_chain import JournalChain, find_step_outcome
from watershed.cutover.migration_step_order import list_strategy_steps
from watershed.cutover.run_claim import find_begun_strategy, find_started_waves
from watershed.cutover.run_plan import plan_migration
from watershed.topology.migration_waves import WaveStrategy, compute_wave_hash


def test_a_second_run_is_refused_and_names_the_holder() -> None:
    world, log = World(), FakeLog(crash_at=20)
    with pytest.raises(Crash):
        a_migration(world, log, run_id="r1").run()
    with pytest.raises(Locked, match=r"run r1, begun by ann at .* is at step \w+") as locked:
        a_migration(world, log, "second").run()
    assert locked.value.exit_code == 1
    with pytest.raises(Locked, match="r1"):
        a_migration(world, log, "second", run_id="r2").run()


def test_two_that_begin_at_once_are_decided_by_the_log() -> None:
    world, log = World(), FakeLog()
    first, second = a_migration(world, log, "first"), a_migration(world, log, "second")
    second.journal.refresh()

    def meanwhile(_value: dict[str, object]) -> None:
        log.on_append = None
        second.journal.refresh = lambda: second.journal.chain  # type: ignore[method-assign]  # read before, writes after

    log.on_append = meanwhile
    first.run(until_step="preflight")
    with pytest.raises(Locked):
        second.run()


def test_a_process_whose_run_was_taken_over_acts_no_more() -> None:
    world, log = World(), FakeLog()

    def takeover(value: dict[str, object]) -> None:
        if value["step"] == "fence_producers":
            log.on_append = None
            a_migration(world, log, "second", resume=True).run(until_step="approval")

    log.on_append = takeover
    with pytest.raises(Superseded, match="must not act any more"):
        a_migration(world, log, "first").run()
    assert world.apps[PRODUCER].running  # the intent was there, the deed was not done
    assert_moved(world, a_migration(world, log, "third", resume=True).run())


def test_a_process_that_stood_still_before_a_deed_does_not_do_it_when_another_has_taken_over() -> None:
    """Whoever holds its terminal (Ctrl-S) stops it there; meanwhile a colleague continues the run, or takes it back."""
    world, log = World(), FakeLog()

    def held(event: RunEvent) -> None:
        if event.kind == "deed" and event.text.startswith("StopApplication checkout") and world.apps[PRODUCER].running:
            world.now += 60
            assert a_migration(world, log, "second", resume=True).run().state == "done"

    with pytest.raises(Superseded):
        a_migration(world, log, say=held).run()
    assert world.apps[PRODUCER].running
    assert world.apps[PRODUCER].side == "target"


def test_a_changed_plan_is_refused() -> None:
    world, log = World(), FakeLog(crash_at=20)
    with pytest.raises(Crash):
        a_migration(world, log, run_id="r1").run()
    with pytest.raises(PlanChanged, match="a run keeps its plan"):
        a_migration(world, log, "second", plan=a_plan("changed"), resume=True).run()
    assert_moved(world, a_migration(world, log, "third", resume=True).run())


def test_resume_without_a_run() -> None:
    world, log = World(), FakeLog()
    with pytest.raises(NothingToResume):
        a_migration(world, log, resume=True).run()
    assert log.records == []


def test_a_new_run_after_a_finished_one() -> None:
    world, log = World(), FakeLog()
    upon(ReadLogs, straggle, nth=11, step="standstill")(world)
    assert a_migration(world, log, run_id="r1").run().state == "rolled_back"
    world.tick()
    assert_moved(world, a_migration(world, log, "second", run_id="r2").run())


@pytest.mark.parametrize("strategy", ["producers_first", "fenced"])
def test_a_run_keeps_the_strategy_with_which_it_was_begun(strategy: WaveStrategy) -> None:
    """Begun in Airflow with another strategy than the file's, gone on with from a terminal, which has to be told only
    the file."""
    world, log = World(), FakeLog()
    plan = a_plan(strategy="consumers_first")
    theirs = plan_migration(plan, policy=POLICY, strategy=strategy)
    a_migration(world, log, "airflow", plan=plan, run_plan=theirs, policy=None, run_id="r1").run("fence_producers")
    chain = JournalChain(plan.topology)
    chain.follow(log.read(0))
    assert find_begun_strategy(chain, "all") == strategy
    assert find_begun_strategy(chain, "other") is None
    with pytest.raises(PlanChanged, match=f"begun with the strategy {strategy}, this is consumers_first.*--strategy"):
        a_migration(world, log, "terminal", plan=plan, resume=True).run()
    ours = plan_migration(plan, policy=POLICY, strategy=find_begun_strategy(chain, "all"))
    result = a_migration(world, log, "terminal", plan=plan, run_plan=ours, policy=None, resume=True).run()
    assert_moved(world, result)
    chain.follow(log.read(chain.next_offset))
    assert find_begun_strategy(chain, "all") is None, "it is over"


def test_step_by_step_by_one_process_each() -> None:
    """As Airflow does it: every task is a process of its own that knows the run's name and its step."""
    world, log = World(), FakeLog()
    names = [step.name for step in list_strategy_steps(a_migration(world, log).run_plan.policy)]
    for at, name in enumerate(names):
        result = a_migration(world, log, f"task {at}", run_id="dag-1").run_step(name)
        world.tick()
        assert result.state == ("done" if name == "seal" else "paused"), result
        again = a_migration(world, log, f"retry {at}", run_id="dag-1").run_step(name)
        assert again.exit_code == 0
    assert_moved(world, result)


def test_a_step_before_its_turn_is_refused() -> None:
    world, log = World(), FakeLog()
    with pytest.raises(NothingToResume, match="begin with preflight"):
        a_migration(world, log, run_id="dag-1").run_step("drain")
    assert log.records == []
    a_migration(world, log, run_id="dag-1").run_step("preflight")
    with pytest.raises(NothingToResume, match="lag_gate before it is not done"):
        a_migration(world, log, "other", run_id="dag-1").run_step("drain")
    assert world.apps[PRODUCER].side == "source"


def test_a_refused_step_rolls_back_at_once_and_ends_the_run() -> None:
    world, log = World(), FakeLog()
    a_migration(world, log, run_id="dag-1").run(until_step="fence_producers")
    upon(ReadLogs, straggle, nth=11)(world)
    result = a_migration(world, log, "second", run_id="dag-1").run_step("standstill")
    assert_back(world, result)
    after = a_migration(world, log, "third", run_id="dag-1").run_step("barrier")
    assert after == result


def test_the_evidence_tells_the_whole_run(tmp_path: Path) -> None:
    import json

    world, log = World(), FakeLog()
    migration = a_migration(world, log, run_id="<r1>", evidence=tmp_path / "pack")
    migration.run()
    document = json.loads((tmp_path / "pack" / "evidence.json").read_text())
    assert document["plan"] == a_plan().hash
    assert document["journal"]["root"].startswith("sha256:")
    assert document["proofs"]["tail_proof"]["unproven"] == 0
    steps = {step["name"]: step for step in document["steps"]}
    assert all(steps[name]["duration_ms"] is not None for name in steps if name != "seal")
    assert document["producers_stopped_ms"] > 0
    assert [deed["deed"] for deed in document["deeds"]][-1] == "StopFlow"
    moved = document["groups"]["billing"]
    assert moved["committed"] == moved["translated"]
    page = (tmp_path / "pack" / "evidence.html").read_text()
    assert "<r1>" not in page
    assert "&lt;r1&gt;" in page
    assert "<script" not in page
    found = find_step_outcome(migration.journal.chain.entries, "seal")
    assert found is not None
    assert found[0]["evidence"] == str(tmp_path / "pack" / "evidence.json")


def test_waves_under_way_or_done_are_known_by_what_they_move_and_those_taken_back_are_not() -> None:
    plan = a_plan()
    assert plan.migration is not None
    [wave] = plan.migration.waves
    known = {f"{plan.topology}/{wave.name}": compute_wave_hash(wave)}

    def started(log: FakeLog) -> dict[str, str]:
        chain = JournalChain(plan.topology)
        chain.follow(log.read(0))
        return find_started_waves(chain)

    world, under_way = World(), FakeLog(crash_at=20)
    assert started(under_way) == {}
    with pytest.raises(Crash):
        a_migration(world, under_way, run_id="r1").run()
    assert started(under_way) == known
    done = FakeLog()
    a_migration(World(), done).run()
    assert started(done) == known
    world, back = World(), FakeLog()
    upon(ReadLogs, straggle, nth=11, step="standstill")(world)
    assert a_migration(world, back).run().state == "rolled_back"
    assert started(back) == {}
