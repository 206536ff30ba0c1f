"""The application that is warm when producers are fenced, as real processes in place of Spark; whatever becomes of it,
the tail is proven."""

from __future__ import annotations

import fcntl
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred

from tests.airflow.test_airflow_cutover import ROWS, RUN, _entries, context, operator, perform, world
from tests.cutover.world import POLICY, PRODUCER, World, a_plan
from watershed.cutover.journal.hash_chain import find_step_outcome
from watershed.cutover.run_plan import plan_migration
from watershed.plugins.detached_process import DetachedProcess, ProcessStartFailed, start_detached
from watershed.plugins.operators import cutover_steps
from watershed.plugins.operators.spark_application import ProcessEnded, attach_or_start_spark, list_attempts
from watershed.plugins.steps import standby_proof, step_driver
from watershed.plugins.steps.migration_dag_tasks import list_stage_tasks
from watershed.plugins.steps.standby_proof import STANDBY_SUMMARY_FILE, StandbyProof, read_history_stay
from watershed.plugins.steps.step_driver import StepOrder, StillWaiting

__all__ = ["world"]
MOVE = next(row for row in list_stage_tasks(plan_migration(a_plan(), None, POLICY)) if row.task == "move_producers")
ORDER = StepOrder("sha256:1", "all", ("fence_producers",), "migrate__shop", RUN)
REFUSE_COLD = step_driver.require_warm_standby
BEGIN_EARLY = step_driver.begin_standby_early
OWN = Path("runs") / "migrate__shop" / RUN / "all.tail_proof"


@pytest.fixture
def standby(world: World, state: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], World]:
    """The world up to its fence, with applications that behave so."""

    def begun(mode: str) -> World:
        def begin(folder: Path, module: str, arguments: list[str], environ: Any, *, orders: bool) -> DetachedProcess:
            assert (module, orders) == ("watershed.spark.verify", True)
            return start_detached(folder, "tests.airflow.programs.standby", [mode, *arguments], environ, orders=True)

        monkeypatch.setattr(standby_proof, "start_detached", begin)
        for name in list(ROWS)[: list(ROWS).index("fence_producers")]:
            perform(ROWS[name])
        return world

    monkeypatch.setattr(step_driver, "require_warm_standby", REFUSE_COLD)
    monkeypatch.setattr(step_driver, "begin_standby_early", lambda *_: None)
    return begun


def tail(world: World) -> Any:
    found = find_step_outcome(_entries(world), "tail_proof")
    assert found is not None
    return found[0]


def gone(process: DetachedProcess) -> bool:
    deadline = time.monotonic() + 180
    while process.alive():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return True


def test_the_tail_is_proven_by_the_application_that_is_warm(standby: Callable[[str], World], state: Path) -> None:
    world = standby("proves")
    perform(MOVE)
    assert world.apps[PRODUCER].side == "target"
    assert tail(world)["summary"] == str(state / OWN / "1" / STANDBY_SUMMARY_FILE)
    assert "by" in json.loads(Path(tail(world)["summary"]).read_text())
    assert gone(ORDER.standby.process)
    for name in list(ROWS)[list(ROWS).index("fence_producers") :]:
        perform(ROWS[name])


def test_the_application_that_has_proven_the_history_proves_the_tail(
    standby: Callable[[str], World], state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The approval came soon: no second application is started."""
    started: list[list[str]] = []

    def stays(
        folder: Path, module: str, arguments: list[str], topology: Path, log: Any, *, orders: bool
    ) -> DetachedProcess:
        started.append(arguments)
        told = ["proves", *arguments]
        return attach_or_start_spark(folder, "tests.airflow.programs.standby", told, topology, log, orders=orders)

    monkeypatch.setattr(cutover_steps, "attach_or_start_spark", stays)
    world = standby("proves")
    monkeypatch.setattr(standby_proof, "start_detached", None)  # nobody calls it
    [arguments] = started
    assert arguments[-2:] == ["--stay", "600.0"]
    history = ORDER.folder("history_proof") / "1"
    assert DetachedProcess(history).alive()
    assert not ORDER.standby.begun
    perform(MOVE)
    assert ORDER.standby.process.folder == history
    assert ORDER.standby.summary.exists()
    assert json.loads(Path(tail(world)["summary"]).read_text())["by"] == "proves"
    assert world.apps[PRODUCER].side == "target"
    assert gone(ORDER.standby.process)


def test_an_order_that_no_pipe_holds_is_given_to_another_one(
    standby: Callable[[str], World], state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that has proven the history does not stay for nothing."""

    def stays(folder: Path, _module: str, arguments: list[str], *rest: Any, orders: bool) -> DetachedProcess:
        program = "tests.airflow.programs.standby"
        return attach_or_start_spark(folder, program, ["proves", *arguments], *rest, orders=orders)

    monkeypatch.setattr(cutover_steps, "attach_or_start_spark", stays)
    standby("proves")
    topics = ",".join(f"orders.{number:06}" for number in range(8_000))
    arguments = ["--topology", "{topology}", "--out", "{out}", "--stay", "9", "--topics", topics]
    ORDER.standby.begin(arguments, state, logging.getLogger())
    assert ORDER.standby.process == ORDER.standby.own
    assert gone(DetachedProcess(ORDER.folder("history_proof") / "1"))
    assert ORDER.standby.own.alive()
    ORDER.standby.dismiss()
    assert gone(ORDER.standby.own)


def test_an_application_that_stays_ends_with_its_wave(
    standby: Callable[[str], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stays(folder: Path, _module: str, arguments: list[str], *rest: Any, orders: bool) -> DetachedProcess:
        program = "tests.airflow.programs.standby"
        return attach_or_start_spark(folder, program, ["proves", *arguments], *rest, orders=orders)

    monkeypatch.setattr(cutover_steps, "attach_or_start_spark", stays)
    standby("proves")
    history = DetachedProcess(ORDER.folder("history_proof") / "1")
    assert history.alive()
    ORDER.standby.dismiss()
    assert gone(history)


@pytest.mark.parametrize("early", [False, True])
def test_an_order_that_came_at_the_end_of_its_stay_is_given_to_another_one(
    standby: Callable[[str], World], monkeypatch: pytest.MonkeyPatch, *, early: bool
) -> None:
    """The order is in the pipe, and nobody reads it any more: nothing is fenced before another one is warm."""

    def stays(folder: Path, _module: str, arguments: list[str], *rest: Any, orders: bool) -> DetachedProcess:
        told = ["dies", *arguments]
        return attach_or_start_spark(folder, "tests.airflow.programs.standby", told, *rest, orders=orders)

    monkeypatch.setattr(cutover_steps, "attach_or_start_spark", stays)
    world = standby("proves")
    history = DetachedProcess(ORDER.folder("history_proof") / "1")
    if early:
        monkeypatch.setattr(step_driver, "begin_standby_early", BEGIN_EARLY)
        perform(ROWS["soak"])
        assert gone(history)
        assert not ORDER.standby.begun
    perform(MOVE)
    assert ORDER.standby.process == ORDER.standby.own
    assert ORDER.standby.summary.exists()
    assert json.loads(Path(tail(world)["summary"]).read_text())["by"] == "proves"
    assert gone(ORDER.standby.process)


@pytest.mark.parametrize("patience", [None, 0.0])
def test_one_whose_proof_of_the_history_failed_as_a_tool_is_tried_once_more(
    standby: Callable[[str], World], monkeypatch: pytest.MonkeyPatch, patience: float | None
) -> None:
    """It would have stayed. The verdict is there before its process has ended."""
    modes = ["fails", "proves"]
    asked: list[str] = []

    def stays(folder: Path, _module: str, arguments: list[str], *rest: Any, orders: bool) -> DetachedProcess:
        asked.append(modes[0])
        told = [modes.pop(0), *arguments]
        return attach_or_start_spark(folder, "tests.airflow.programs.standby", told, *rest, orders=orders)

    monkeypatch.setattr(cutover_steps, "attach_or_start_spark", stays)
    if patience is not None:
        monkeypatch.setattr(cutover_steps, "PROOF_WAIT_S", patience)
    world = standby("proves")
    assert asked == ["fails", "proves"]
    attempts = list_attempts(ORDER.folder("history_proof"))
    assert [each.folder.name for each in attempts] == ["1", "2"]
    assert attempts[0].exit_code() == 2
    found = find_step_outcome(_entries(world), "history_proof")
    assert found is not None
    assert found[0]["summary"] == str(attempts[1].folder / STANDBY_SUMMARY_FILE)
    ORDER.standby.dismiss()
    assert gone(attempts[1])


@pytest.mark.parametrize(
    ("variable", "value"), [("WATERSHED_SPARK_MASTER", "spark://elsewhere:7077"), ("WATERSHED_PROOF_STAY", "0")]
)
def test_on_a_cluster_and_where_nobody_wants_it_no_application_stays(
    standby: Callable[[str], World], monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    """It would keep its cores from others, or its memory."""
    seen: list[bool] = []

    def ends(folder: Path, _module: str, _arguments: list[str], *rest: Any, orders: bool) -> DetachedProcess:
        seen.append(orders)
        told = ["--out", "{out}", "--verdict", "proven"]
        return attach_or_start_spark(folder, "tests.airflow.programs.proof", told, *rest)

    monkeypatch.setenv(variable, value)
    monkeypatch.setattr(cutover_steps, "attach_or_start_spark", ends)
    standby("proves")
    assert seen == [False]


def test_how_long_an_application_stays_is_a_setting() -> None:
    assert read_history_stay({"WATERSHED_PROOF_STAY": "90s"}) == 90.0
    assert read_history_stay({"WATERSHED_PROOF_STAY": "90s", "WATERSHED_SPARK_MASTER": "yarn"}) == 0.0
    with pytest.raises(AirflowFailException, match=r"WATERSHED_PROOF_STAY=90: has no unit; .* 0 means"):
        read_history_stay({"WATERSHED_PROOF_STAY": "90"})


def test_nothing_is_fenced_before_it_is_warm(standby: Callable[[str], World], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutover_steps, "PROOF_WAIT_S", 0.0)
    world = standby("proves")
    task = operator(MOVE)
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context("move_producers"))
    assert isinstance(deferred.value.trigger, ProcessEnded)
    assert deferred.value.trigger.serialize()[1]["file"] == str(ORDER.standby.summary)
    assert world.apps[PRODUCER].running
    assert world.apps[PRODUCER].side == "source"
    assert "fence_producers" not in {entry.step for entry in _entries(world)}


def test_it_becomes_warm_while_consumers_move(standby: Callable[[str], World], monkeypatch: pytest.MonkeyPatch) -> None:
    world = standby("proves")
    assert not ORDER.standby.begun
    monkeypatch.setattr(step_driver, "begin_standby_early", BEGIN_EARLY)
    perform(ROWS["soak"])  # again: its own step is done, and the fence is next
    assert ORDER.standby.begun
    assert world.apps[PRODUCER].side == "source"
    perform(MOVE)
    assert "by" in json.loads(Path(tail(world)["summary"]).read_text())


@pytest.mark.parametrize("mode", ["leaves", "dies", "errs", "differs"])
def test_without_it_the_tail_is_proven_by_an_application_of_its_own(
    standby: Callable[[str], World], state: Path, mode: str
) -> None:
    world = standby(mode)
    perform(MOVE)
    assert world.apps[PRODUCER].side == "target"
    # One that leaves may get its order while it leaves.
    told = {"dies": "2", "errs": "2", "differs": "1", "leaves": "12"}[mode]
    assert tail(world)["summary"] in {str(state / OWN / number / STANDBY_SUMMARY_FILE) for number in told}
    assert "by" not in json.loads(Path(tail(world)["summary"]).read_text())


def test_one_that_cannot_be_started_is_done_without(
    standby: Callable[[str], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = standby("proves")

    def fails(*_: Any, **__: Any) -> DetachedProcess:
        raise ProcessStartFailed("no room")

    monkeypatch.setattr(standby_proof, "start_detached", fails)
    perform(MOVE)
    assert tail(world)["verdict"] == "proven"


def test_a_fence_that_was_begun_waits_for_nothing(standby: Callable[[str], World]) -> None:
    """Nobody writes by then."""
    world = standby("leaves")
    world.verdicts["tail_proof"] = "proven"  # type: ignore[attr-defined]
    a_fence = ORDER.migration(prove=world.prove)
    a_fence.run_step("fence_producers")
    assert standby_proof.plan_standby_proof(a_fence, ORDER.journal_run) is None
    perform(MOVE)
    assert not ORDER.standby.begun
    assert world.apps[PRODUCER].side == "target"


def test_a_process_that_comes_later_waits_for_the_order_of_the_one_before_it(state: Path) -> None:
    process = start_detached(
        state / "w",
        "tests.airflow.programs.standby",
        ["proves", "--out", str(state / "w"), "--stay=9"],
        standby_proof.build_spark_environment(),
        orders=True,
    )
    stands_by = StandbyProof(process)
    deadline = time.monotonic() + 180
    while not stands_by.ready:
        assert time.monotonic() < deadline
        time.sleep(0.02)

    def impatient(_seconds: float) -> None:
        raise StillWaiting

    arguments = ["--topology", "{topology}", "--out", "{out}"]
    try:
        stands_by.prove(state / "tail", arguments, state, impatient)
    except StillWaiting:
        assert stands_by.prove(state / "tail", arguments, state, time.sleep)
    assert (state / "tail" / "1" / STANDBY_SUMMARY_FILE).exists()
    assert not process.order("x" * 200_000)  # more than a pipe holds: nothing of it is written
    assert stands_by.prove(state / "tail.again", arguments, state, time.sleep)
    process.dismiss()
    assert gone(process)
    assert not process.order("[]")


def test_a_tail_is_being_proven_while_the_application_that_stands_by_runs(state: Path) -> None:
    """The folder of that proof holds no program: the page does not say that it has ended without a verdict."""
    attempt = DetachedProcess(ORDER.folder("tail_proof") / "1")
    attempt.folder.mkdir(parents=True)
    ORDER.standby.own.folder.mkdir()
    with (ORDER.standby.own.folder / "lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not standby_proof.is_proving(attempt)
        assert standby_proof.locate_proof_log(attempt) == attempt.log
        (attempt.folder / "ordered").touch()
        assert standby_proof.is_proving(attempt)
        assert standby_proof.locate_proof_log(attempt).name == "verify.log"
        (attempt.folder / STANDBY_SUMMARY_FILE).touch()
        assert not standby_proof.is_proving(attempt)
    (attempt.folder / STANDBY_SUMMARY_FILE).unlink()
    assert not standby_proof.is_proving(attempt)


def test_an_order_to_nobody_is_told(state: Path) -> None:
    assert not DetachedProcess(state / "nobody").order("[]")
