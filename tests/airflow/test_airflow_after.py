"""What comes after a cutover: who strands records, when a source may be taken down, and what is told."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from tests.cutover.fake_log import FakeLog
from tests.cutover.late_world import late_plan
from tests.cutover.world import POLICY, REVERSE, World, a_migration, a_plan
from tests.cutover.world_back import BackWorld, a_rollback, back_plan
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import FindWriters, PauseRun, ReadLogs
from watershed.cutover.errors import Refused
from watershed.cutover.observations import ActionDone, ObservedLogs
from watershed.plugins.operators import decommission, straggler_watch
from watershed.plugins.operators.decommission import check_requirements, list_cleanup_tasks
from watershed.plugins.operators.straggler_watch import (
    MovedWave,
    RecordsStranded,
    WavesSoaked,
    drive_questions,
    list_moved_waves,
)
from watershed.plugins.steps.run_journal import find_done_waves
from watershed.topology.migration_waves import PlanMigration, RollbackPolicy
from watershed.topology.plan import Plan

DAY = 86_400_000


def done(plan: Plan) -> tuple[World, FakeLog]:
    world, log = World(), FakeLog()
    assert a_migration(world, log, plan=plan, run_id="r1").run().state == "done"
    return world, log


def with_rollback(rollback: RollbackPolicy | None) -> Plan:
    return a_plan(rollback=rollback)


def test_a_wave_soaks_until_it_cannot_be_rolled_back() -> None:
    plan = with_rollback(RollbackPolicy(until_ms=DAY, none_because="a test"))
    world, log = done(plan)
    chain = a_migration(world, log, "reader", plan=plan).journal.refresh()
    [wave] = list_moved_waves(plan, chain)
    assert (wave.wave, wave.run) == ("all", "r1")
    assert wave.soaked_ms - wave.sealed_ms == DAY
    assert wave.outcomes["tail_proof"]["verdict"] == "proven"
    assert "ends" in wave.outcomes["barrier"]


def test_what_was_taken_back_is_not_done() -> None:
    log = FakeLog()
    world, plan = BackWorld(), back_plan()
    policy = replace(POLICY, reverse=REVERSE, consumer_lag=None)
    assert a_migration(world, log, plan=plan, policy=policy, run_id="r1").run().state == "done"
    journal = a_migration(world, log, "reader", plan=plan).journal
    assert find_done_waves(plan, journal.refresh()) == {"all": "r1"}
    assert a_rollback(world, log).run().state == "done"
    assert find_done_waves(plan, journal.refresh()) == {}


def a_wave(**changes: Any) -> MovedWave:
    outcomes = {"tail_proof": {"verdict": "proven", "unproven": 0, "level": "L1"}}
    return replace(MovedWave("all", "r1", 1_000, 2_000, outcomes), **changes)


@pytest.mark.parametrize(
    ("wave", "proof", "missing"),
    [
        (a_wave(), "proven, 0 unproven", []),
        (a_wave(soaked_ms=9_000), "proven, 0 unproven", ["all_waves_soaked"]),
        (a_wave(outcomes={}), "proven, 0 unproven", ["verify_full"]),
        (a_wave(), "repeated, 0 unproven", []),
        (a_wave(), "repeated, 1 unproven", ["verify_full"]),
        (a_wave(), "different, 3 unproven", ["verify_full"]),
        (a_wave(), "", ["verify_full"]),
    ],
)
def test_what_is_required_is_checked_by_journal_and_proof(wave: MovedWave, proof: str, missing: list[str]) -> None:
    rows, unmet = check_requirements([wave], ("all_waves_soaked", "verify_full"), proof, 3_000)
    assert [each.partition(":")[0] for each in unmet] == missing
    assert len(rows) == 3
    assert check_requirements([wave], (), proof, 3_000)[1] == []


def test_without_a_way_back_there_is_none_to_be_proven() -> None:
    assert check_requirements([a_wave()], ("verify_full",), None, 3_000)[1] == []


def test_who_strands_records_is_told_and_what_cannot_be_asked_is_asked_again() -> None:
    def asks(answer: Any):  # type: ignore[no-untyped-def]
        seen = yield ReadLogs("source", ())
        assert isinstance(seen, ObservedLogs)
        assert isinstance((yield PauseRun(0)), ActionDone)
        raise answer

    logs = ObservedLogs(0, {}, {}, {})
    with pytest.raises(RecordsStranded, match="somebody"):
        drive_questions(asks(Refused("somebody", {"stranded": {}})), lambda _action: logs)
    with pytest.raises(AirflowException, match="no answer"):
        drive_questions(asks(Refused("no answer")), lambda _action: logs)


class Watching:
    """In the watch's place: what it sees, one look after the other."""

    def __init__(self, *looks: Any) -> None:
        self.looks = list(looks)

    def look(self) -> Any:
        seen = self.looks.pop(0)
        if isinstance(seen, Exception):
            raise seen
        return seen


def event_of(watch: Watching, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(
        straggler_watch, "find_frozen_plan", lambda _hash: type("F", (), {"read": staticmethod(a_plan)})
    )
    monkeypatch.setattr(straggler_watch, "SourceWatchProxy", lambda _plan: watch)

    async def first() -> Any:
        return await anext(WavesSoaked("sha256:1", poll_seconds=0.0, settle_seconds=0.0).run())

    return dict(asyncio.run(asyncio.wait_for(first(), 30)).payload)


def test_the_watch_survives_a_cluster_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watching(AirflowException("onprem is away"), ("soaking", "", False), ("every wave has soaked", "", True))
    assert event_of(watch, monkeypatch) == {"seen": "every wave has soaked", "problem": ""}


def test_the_watch_ends_with_whoever_writes_to_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watching(("soaking", "", False), ("", "wave all: stranded", True))
    assert event_of(watch, monkeypatch)["problem"] == "wave all: stranded"


def test_a_look_asks_who_it_was_and_goes_on_behind_what_the_reverse_flow_brought(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The ends of one look are where the next begins."""
    asked: list[Any] = []
    place = TopicPartition("orders", 0)

    def stranded(_plan: Plan, _wave: MovedWave, ends: Any) -> Any:
        asked.append(dict(ends))
        return {place: ends[place] + 5}

    plan = a_plan()
    world, log = done(plan)
    chain = a_migration(world, log, "reader", plan=plan).journal.refresh()
    monkeypatch.setattr(straggler_watch, "read_chain_or_fail", lambda _plan: chain)
    monkeypatch.setattr(straggler_watch, "require_no_stranded_records", stranded)
    watch = straggler_watch.SourceWatch(plan)
    assert watch.look() == ("every wave has soaked", "", True)
    watch.look()
    assert asked[1][place] == asked[0][place] + 5
    assert FindWriters.__doc__ is not None


def test_nothing_is_deleted_by_what_is_left() -> None:
    plan = with_rollback(RollbackPolicy(until_ms=DAY, reverse="cloud-to-onprem"))
    assert isinstance(plan.migration, PlanMigration)
    told = list_cleanup_tasks(plan)
    assert told[0].startswith("stop flow cloud-to-onprem (`topology flow stop cloud-to-onprem FILE`)")
    assert any("delete at onprem" in line and "clicks, orders" in line for line in told)


def decided(plan: Plan, journal: Any, monkeypatch: pytest.MonkeyPatch, *, granted: bool, run: str = "asset__1") -> None:
    monkeypatch.setattr(decommission, "open_migration_journal", lambda _plan, _holder: journal)
    ti = SimpleNamespace(dag_id="after_cutover__shop", run_id=run)
    decommission.journal_decommission_answer(plan, ti, "ann", granted=granted, evidence="| what | seen |")


@pytest.mark.parametrize("granted", [True, False])
def test_who_gave_the_source_up_is_in_the_journal_once(granted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = with_rollback(RollbackPolicy(until_ms=DAY, none_because="a test"))
    world, log = done(plan)
    journal = a_migration(world, log, "airflow", plan=plan).journal
    for _ in range(2):  # the task is tried again
        decided(plan, journal, monkeypatch, granted=granted)
    chain = journal.refresh()
    [entry] = chain.run("decommission.asset__1")
    [approval] = entry.observation["outcome"]["approvals"]
    assert (approval["by"], approval["granted"]) == ("ann", granted)
    assert entry.observation["outcome"]["waves"] == {"all": "r1"}
    assert entry.observation["state"] == ("done" if granted else "refused")
    assert chain.unfinished() == []
    assert find_done_waves(plan, chain) == {"all": "r1"}  # it is no run of a wave


def test_a_wave_that_was_taken_back_meanwhile_keeps_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    log, world, plan = FakeLog(), BackWorld(), back_plan()
    policy = replace(POLICY, reverse=REVERSE, consumer_lag=None)
    assert a_migration(world, log, plan=plan, policy=policy, run_id="r1").run().state == "done"
    journal = a_migration(world, log, "airflow", plan=plan).journal
    back = a_rollback(world, log, run_id="back")
    back.run(until_step="carry_back")
    with pytest.raises(AirflowFailException, match="are being moved: run back"):
        decided(plan, journal, monkeypatch, granted=True)
    assert back.run().state == "done"
    with pytest.raises(AirflowFailException, match="not done any more: all"):
        decided(plan, journal, monkeypatch, granted=True)
    assert [entry for entry in journal.refresh().entries if entry.run.startswith("decommission")] == []


def test_a_decision_that_meets_another_writer_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = with_rollback(RollbackPolicy(until_ms=DAY, none_because="a test"))
    world, log = done(plan)
    journal = a_migration(world, log, "airflow", plan=plan).journal

    def meanwhile(_value: dict[str, Any]) -> None:
        log.on_append = None
        a_migration(world, log, "other", plan=plan, run_id="r2").run_step("preflight")

    log.on_append = meanwhile
    monkeypatch.setattr("watershed.cutover.run_claim.refuse_early_wave", lambda *_: None)
    with pytest.raises(AirflowException, match="wrote to the journal") as again:
        decided(plan, journal, monkeypatch, granted=True)
    assert not isinstance(again.value, AirflowFailException)


def test_the_answer_is_journaled_before_anybody_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, bool, str]] = []
    monkeypatch.setattr(decommission, "find_frozen_plan", lambda _hash: SimpleNamespace(read=a_plan))
    monkeypatch.setattr(
        decommission,
        "journal_decommission_answer",
        lambda _plan, _ti, who, *, granted, evidence: asked.append((who, granted, evidence)),
    )
    task = decommission.DecommissionApprovalOperator(
        task_id="approve_decommission", plan="sha256:1", evidence="requirements", question="May it?"
    )
    work = {"ti": SimpleNamespace(xcom_pull=lambda _task: "| seen |", dag_id="d", run_id="r")}
    event: dict[str, Any] = {
        "chosen_options": ["Approve"],
        "params_input": {},
        "responded_by_user": {"id": "1", "name": "ann"},
    }
    event["responded_at"] = datetime.now(UTC)
    task.execute_complete(work, event)
    with pytest.raises(AirflowException):
        task.execute_complete(work, event | {"chosen_options": ["Reject"]})
    assert asked == [("ann", True, "| seen |"), ("ann", False, "| seen |")]


def test_a_watch_over_what_was_taken_back_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = a_plan()
    chain = a_migration(World(), FakeLog(), "reader", plan=plan).journal.refresh()
    monkeypatch.setattr(straggler_watch, "find_frozen_plan", lambda _hash: SimpleNamespace(read=lambda: plan))
    monkeypatch.setattr(straggler_watch, "read_chain_or_fail", lambda _plan: chain)
    task = straggler_watch.StragglerWatchOperator(task_id="straggler_watch", plan="sha256:1")
    with pytest.raises(AirflowSkipException, match="taken back"):
        task.come_back({}, {"seen": "every wave has soaked", "problem": ""})


def test_late_groups_are_proven_by_what_came_back_to_them_and_are_waited_for_by_name() -> None:
    outcomes = {"preflight": {"switch": {}}, "history_proof": {"verdict": "proven", "unproven": 0, "level": "L1"}}
    rows, unmet = check_requirements([a_wave(wave="reports", outcomes=outcomes)], ["verify_full"], None, 3_000)
    assert unmet == []
    assert ("proof of wave reports", "proven, 0 unproven, level L1") in rows
    plan = late_plan()
    assert plan.migration is not None
    named = decommission._name_late_groups(plan.migration, {"reports", "producers"})
    assert named == " (groups that stay longer: reports)"
