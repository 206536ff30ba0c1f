"""A rehearsal in memory, there and back: nothing lost, copies removed whatever happens, the journal tells it from the
real thing; and one whose process died anywhere is refused, and ended by what its journal says."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import pytest

from tests.cutover.drivers import build_driver
from tests.cutover.fake_log import Crash, FakeLog
from tests.cutover.judging import lost_and_repeated
from tests.cutover.spoils import Spoil, straggle, upon
from tests.cutover.world import EVIDENCE, GROUP, POLICY, PRODUCER, REVERSE, World, a_migration
from tests.cutover.world_back import BACK as BACK_POLICY
from tests.cutover.world_back import FORWARD, BackWorld, Mirror, back_plan
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import Action, Deed, ReadLogs
from watershed.cutover.drill.copy_actions import (
    CopiesMade,
    CopiesRemoved,
    CountRecords,
    MakeCopies,
    ObservedOriginals,
    ReadOriginals,
    RecordsCounted,
    RemoveCopies,
)
from watershed.cutover.drill.drill_abandonment import end_drills, find_copies_left_behind
from watershed.cutover.drill.drill_plan import plan_drill
from watershed.cutover.drill.drill_report import build_drill_report
from watershed.cutover.drill.drill_sequence import DrillResult, run_drill
from watershed.cutover.drill.drill_topology import BACK_RUN_SUFFIX, build_drill_topology, name_copy, name_drill_flow
from watershed.cutover.driver import RunDriver
from watershed.cutover.errors import Locked, NothingToResume, NothingToRollBack
from watershed.cutover.journal.hash_chain import RUN_STEP, Journal, JournalChain
from watershed.cutover.observations import ActionFailed, Observation
from watershed.cutover.rollback.rollback_plan import plan_rollback
from watershed.cutover.run_claim import read_run_kind
from watershed.cutover.run_plan import RunPlan
from watershed.cutover.wave_states import list_wave_states
from watershed.replicator.ledger.offset_translation import CopiedPartition

NAME = "drill-1"
PLAN = back_plan()
DRILL = build_drill_topology(PLAN, None, NAME)
QUICK = replace(
    POLICY, reverse=name_drill_flow(NAME, REVERSE), watch_ms=1_000, hold_ms=500, empty_times=2, hold_times=2
)
OURS = {name_copy(NAME, name): name for name in ("orders", "clicks", "dc.orders", "dc.clicks", GROUP, PRODUCER)}
OURS |= {name_drill_flow(NAME, flow): flow for flow in (FORWARD, REVERSE)}
THEIRS = {name: copy for copy, name in OURS.items()}
WHAT: dict[str, Any] = {
    "plan": PLAN.hash, "source": "onprem", "target": "cloud", "flows": {}, "groups": [], "allowed": {}, "keep": False,
    "copies": [{"topic": "orders", "copy": name_copy(NAME, "orders"), "target_copy": name_copy(NAME, "dc.orders")}],
}  # fmt: skip


def called(value: Any, names: dict[str, str]) -> Any:
    """The same with other names, however deep they stand."""
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, TopicPartition):
        return TopicPartition(called(value.topic, names), value.partition)
    if isinstance(value, CopiedPartition):
        return value
    if isinstance(value, dict):
        return {called(key, names): called(each, names) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return type(value)(called(each, names) for each in value)
    if is_dataclass(value) and not isinstance(value, type):
        own = [each for each in fields(value) if each.init and not each.name.startswith("_")]
        return replace(value, **{each.name: called(getattr(value, each.name), names) for each in own})
    return value


@dataclass
class Stage:
    """The small world under the rehearsal's names. made: whether there are copies; broken: removing them fails."""

    world: BackWorld = field(default_factory=BackWorld)
    log: FakeLog = field(default_factory=FakeLog)
    made: bool = False
    problems: tuple[str, ...] = ()
    ended: list[str] = field(default_factory=list)

    def opened(self, course: RunPlan, run: str) -> RunDriver:
        back = run.endswith(BACK_RUN_SUFFIX)
        inner = Mirror(self.world) if back else self.world
        return build_driver(
            DRILL, run_plan=course, run_id=run, actor="ann", clock=self.world.clock, sleep=self.world.sleep,
            handler=Named(self, inner), journal=self.journal, evidence=EVIDENCE,
            prove=lambda wanted: (self.world.prove_back if back else self.world.prove)(called(wanted, OURS)),
            say=lambda event: self.world.said.append(f"{event.step}: {event.kind}: {event.text}"),
        )  # fmt: skip

    def run(self, holder: str = "first") -> DrillResult:
        self.journal = Journal(self.log, "shop", holder, self.world.clock)
        return run_drill(DRILL, NAME, self.opened, self.end, QUICK, BACK_POLICY)

    def end(self, why: str, holder: str = "") -> Any:
        self.ended.append(why)
        journal = Journal(self.log, "shop", holder, self.world.clock) if holder else self.journal
        return end_drills(journal, {}, "bob", why, removing=self.removing)

    def removing(self, _settings: Any, what: Any) -> list[str]:
        assert what == WHAT
        self.made = False
        return []

    @property
    def chain(self) -> JournalChain:
        chain = JournalChain("shop")
        chain.follow(self.log.read(0))
        return chain


@dataclass
class Named:
    stage: Stage
    inner: World | Mirror

    def answer(self, action: Action) -> Observation:
        world, at = self.stage.world, int(self.stage.world.now * 1000)
        hooked = world.hook(action) if isinstance(action, MakeCopies | RemoveCopies | CountRecords) else None
        if hooked is not None:
            return hooked
        match action:
            case ReadOriginals():
                return ObservedOriginals(at, self.stage.problems, (), WHAT)
            case MakeCopies():
                self.stage.made = True
                return CopiesMade(at, {"orders": 1})
            case CountRecords():
                lost, again = lost_and_repeated(world)
                groups = {GROUP: {"read": 1, "lost": lost, "again": again, "out_of_order": 0}}
                return RecordsCounted(at, {"copied": 0, "acknowledged": world.written, "groups": groups, "moves": []})
            case RemoveCopies():
                self.stage.made = False
                return CopiesRemoved(at)
        found: Observation = called(self.inner.answer(called(action, OURS)), THEIRS)
        return found


@pytest.fixture(autouse=True)
def _no_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "watershed.cutover.driver.write_run_evidence", lambda directory, *_rest: directory / "evidence.json"
    )


def assert_over(stage: Stage) -> None:
    assert not stage.made, "copies are left"
    assert find_copies_left_behind(stage.chain) == {}
    assert stage.chain.unfinished() == []


def test_a_wave_goes_there_and_back_and_the_journal_tells_it_from_the_real_thing() -> None:
    stage = Stage()
    done = stage.run()
    assert [each and each.state for each in (done.there, done.back, done.last)] == ["paused", "done", "done"], done
    assert_over(stage)
    assert stage.ended == []
    assert {read_run_kind(stage.chain.run(run)) for run in (NAME, NAME + BACK_RUN_SUFFIX)} == {"drill"}
    [state] = list_wave_states(PLAN, stage.chain)
    assert (state.state, state.truth, state.run) == ("next", "onprem", None)
    with pytest.raises(NothingToRollBack):
        plan_rollback(PLAN, None, stage.chain)
    told = build_drill_report(PLAN, "all", NAME, plan_drill(DRILL, QUICK), stage.chain, done)
    assert told["good"], told
    assert told["counted"] == {"lost": 0, "again": 0, "out_of_order": 0}
    assert {"there", "back"} <= next(row for row in told["steps"] if row["name"] == "drain").keys()
    # and the wave itself can be migrated now, in a world of its own
    assert a_migration(World(), stage.log, "after", plan=PLAN).run().state == "done"


@pytest.mark.parametrize(
    ("spoil", "state", "back"),
    [
        (upon(ReadLogs, straggle, step="point_of_no_return"), "rolled_back", None),
        (upon(ReadLogs, lambda world: world.write("target", TopicPartition("dc.orders", 0)), step="commit_back"),
         "rolled_back", "rolled_back"),
    ],
    ids=["there", "back"],
)  # fmt: skip
def test_what_is_refused_is_the_result_and_the_copies_go(spoil: Spoil, state: str, back: str | None) -> None:
    stage = Stage()
    spoil(stage.world)
    done = stage.run()
    assert (done.result.state, done.back and done.back.state) == (state, back), done
    assert_over(stage)


def test_what_cannot_be_rehearsed_is_refused_before_anything_is_made() -> None:
    stage = Stage(problems=("topic orders cannot be read",))
    done = stage.run()
    assert "topic orders cannot be read" in done.result.reason
    assert not [entry for entry in stage.chain.entries if entry.deed == "MakeCopies"]
    assert stage.chain.unfinished() == []


def test_what_fails_behind_the_switch_is_ended_at_once() -> None:
    stage = Stage()

    def hook(action: Action) -> Observation | None:
        return ActionFailed(0, "no", transient=False) if isinstance(action, CountRecords) else None

    stage.world.hook = hook
    done = stage.run()
    assert (done.result.state, done.result.step) == ("stopped", "count_records")
    assert len(stage.ended) == 1
    assert_over(stage)


def test_a_rehearsal_that_died_anywhere_is_refused_and_ended() -> None:
    whole = Stage()
    whole.run()
    for at in range(1, len(whole.log.records) - 1, 5):  # before and after an entry is stored, by turns
        stage = Stage(log=FakeLog(crash_at=at, stored=at % 2 == 0))
        with pytest.raises(Crash):
            stage.run()
        if stage.chain.unfinished():
            refused_by(stage)
            stage.end("dead", "second")
        with pytest.raises(NothingToResume):
            stage.end("dead", "third")
        assert_over(stage)


def test_a_rehearsal_that_died_in_a_deed_leaves_nothing_either() -> None:
    for nth in range(1, 40):
        stage, count = Stage(), 0

        def hook(action: Action, nth: int = nth) -> Observation | None:
            nonlocal count
            count += isinstance(action, Deed)
            if count == nth:
                raise Crash
            return None

        stage.world.hook = hook
        try:
            stage.run()
            break  # there is no such deed any more
        except Crash:
            refused_by(stage)
            stage.end("dead", "second")
            assert_over(stage)
    assert nth > 12


def refused_by(stage: Stage) -> None:
    """Whoever begins something else is told what ends it, and whoever would resume it as well."""
    for arguments in ({}, {"resume": True}):
        with pytest.raises(Locked, match="--drill --abandon"):
            a_migration(World(), FakeLog(list(stage.log.records)), "other", plan=PLAN, **arguments).run()


def test_a_real_migration_is_never_ended_as_a_rehearsal() -> None:
    stage = Stage()
    a_migration(World(), stage.log, "real", plan=PLAN, run_id="real").run(until_step="landing_test")
    stage.journal = Journal(stage.log, "shop", "drill", stage.world.clock)
    with pytest.raises(Locked, match="run real"):
        stage.end("by mistake", "second")
    with pytest.raises(Locked):
        stage.run()
    assert not stage.made


def test_copies_of_a_rehearsal_that_a_failover_has_ended_are_still_removed() -> None:
    stage = Stage(log=FakeLog(crash_at=40))
    with pytest.raises(Crash):
        stage.run()
    journal = Journal(stage.log, "shop", "failover", stage.world.clock)
    first = journal.refresh().unfinished()[0]
    end = {"state": "abandoned", "step": "x", "reason": "the source was gone"}
    journal.append(NAME, RUN_STEP, "outcome", end, actor="ann", plan_hash=first.plan_hash, wave=first.wave)
    assert stage.made
    assert stage.end("later", "second").runs == ()
    assert_over(stage)
