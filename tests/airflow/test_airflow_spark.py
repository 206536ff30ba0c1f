"""The Spark operator and its trigger, with a real process in the application's place."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred

from watershed.plugins.detached_process import DetachedProcess
from watershed.plugins.operators import spark_application
from watershed.plugins.operators.spark_application import ProcessEnded, SparkApplicationOperator
from watershed.plugins.state_folder import FrozenPlan

CONTEXT: Any = {"ti": SimpleNamespace(dag_id="verify__x", run_id="manual__1", task_id="prove", map_index=-1)}


@pytest.fixture(autouse=True)
def plan(monkeypatch: pytest.MonkeyPatch, state: Path) -> None:
    monkeypatch.setattr(spark_application, "find_frozen_plan", lambda hash_: FrozenPlan(hash_, state / "plans" / "1"))


def operator(verdict: str = "proven", seconds: float = 0.0) -> SparkApplicationOperator:
    arguments = ["--topology", "{topology}", "--out", "{out}", "--verdict", verdict, "--seconds", str(seconds), ""]
    return SparkApplicationOperator(
        task_id="prove", module="tests.airflow.programs.proof", arguments=arguments, plan="sha256:1"
    )


def run(task: SparkApplicationOperator) -> Any:
    """As Airflow does: execute, run the trigger to its event, resume."""
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(CONTEXT)
    trigger = deferred.value.trigger
    assert isinstance(trigger, ProcessEnded)
    path, kwargs = trigger.serialize()
    assert path == "watershed.plugins.operators.spark_application.ProcessEnded"
    return getattr(task, deferred.value.method_name)(
        CONTEXT, event_of(ProcessEnded(**{**kwargs, "poll_seconds": 0.05, "settle_seconds": 0.0}))
    )


def event_of(trigger: ProcessEnded) -> dict[str, Any]:
    async def first() -> Any:
        async for event in trigger.run():
            return event.payload
        return None

    return asyncio.run(asyncio.wait_for(first(), 180))


def test_proven_returns_the_summary(state: Path) -> None:
    summary = Path(run(operator()))
    assert summary == state / "runs/verify__x/manual__1/prove/1/summary.json"
    assert f"comparing {state / 'plans/1/topology.yaml'}" in DetachedProcess(summary.parent).tail()


@pytest.mark.parametrize(
    ("master", "address"),
    [(None, "127.0.0.1"), ("local[*]", "127.0.0.1"), ("spark://spark:7077", None), ("yarn", None)],
)
def test_the_environment_names_the_loopback_address_only_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, master: str | None, address: str | None
) -> None:
    for name in ("SPARK_LOCAL_IP", "PYSPARK_PYTHON", "WATERSHED_SPARK_MASTER"):
        monkeypatch.delenv(name, raising=False)
    if master:
        monkeypatch.setenv("WATERSHED_SPARK_MASTER", master)
    monkeypatch.setenv("WATERSHED_SPARK_CONF", "/etc/watershed/spark.conf")
    environ = spark_application.build_spark_environment()
    assert (environ.get("WATERSHED_SPARK_MASTER"), environ.get("SPARK_LOCAL_IP")) == (master, address)
    assert environ["WATERSHED_SPARK_CONF"] == "/etc/watershed/spark.conf"
    assert environ["PYSPARK_PYTHON"] == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert spark_application.build_spark_environment()["PYSPARK_PYTHON"] == "/opt/python"


def test_different_is_never_tried_again() -> None:
    with pytest.raises(AirflowFailException, match="different: unproven 3; evidence in"):
        run(operator("different"))


@pytest.mark.parametrize(("verdict", "message"), [("incomplete", "incomplete: unproven 3"), ("error", "exit 2")])
def test_other_verdicts_fail(verdict: str, message: str) -> None:
    with pytest.raises(AirflowException, match=message) as failure:
        run(operator(verdict))
    assert not isinstance(failure.value, AirflowFailException)


def test_killed_application_is_named_with_its_last_words() -> None:
    task = operator(seconds=60)
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(CONTEXT)
    program = DetachedProcess(Path(deferred.value.trigger.folder))
    while "comparing" not in program.tail():
        pass
    os.kill(program.pid() or 0, signal.SIGKILL)
    with pytest.raises(AirflowException, match=r"was killed; its log ends with:\ncomparing"):
        task.collect(CONTEXT, event_of(deferred.value.trigger))


def test_retry_attaches_to_the_running_application(state: Path) -> None:
    task = operator(seconds=60)
    folders = set()
    for _ in range(2):
        with pytest.raises(TaskDeferred) as deferred:
            task.execute(CONTEXT)
        folders.add(deferred.value.trigger.folder)
    assert folders == {str(state / "runs/verify__x/manual__1/prove/1")}


def test_retry_takes_a_result_that_nobody_collected(state: Path) -> None:
    task = operator()
    with pytest.raises(TaskDeferred) as lost:
        task.execute(CONTEXT)
    event_of(lost.value.trigger)  # Airflow died here
    assert run(task) == str(state / "runs/verify__x/manual__1/prove/1/summary.json")


def test_cleared_task_starts_afresh_and_keeps_the_old_evidence(state: Path) -> None:
    with pytest.raises(AirflowFailException):
        run(operator("different"))
    assert run(operator()) == str(state / "runs/verify__x/manual__1/prove/2/summary.json")
    assert '"different"' in (state / "runs/verify__x/manual__1/prove/1/summary.json").read_text()


def test_user_who_ends_the_task_ends_the_application() -> None:
    task = operator(seconds=60)
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(CONTEXT)
    asyncio.run(deferred.value.trigger.on_kill())
    assert not DetachedProcess(Path(deferred.value.trigger.folder)).alive()


def test_what_a_program_prints_reaches_the_log_of_a_task_visible(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = state / "program"
    folder.mkdir(parents=True)
    (folder / "log").write_text("topic orders\x1b[8m\u202e 100%s\n\tat Main\n", encoding="utf-8")
    spark_application.pass_log_on(DetachedProcess(folder), 0, ProcessEnded(str(folder)).log)
    said = capsys.readouterr().out
    assert "topic orders\\x1b[8m\\u202e 100%s" in said
    assert "    at Main" in said
    assert DetachedProcess(folder).tail() == "topic orders\\x1b[8m\\u202e 100%s\n    at Main"


@pytest.mark.parametrize("forged", ["[]", "3", "[" * 100_000, "no JSON"])
def test_a_summary_that_is_none_counts_nothing(state: Path, forged: str) -> None:
    state.mkdir(parents=True, exist_ok=True)
    summary = state / "summary.json"
    summary.write_text('{"verdict": "proven", "unproven": 0}', encoding="utf-8")
    assert spark_application._counts(summary) == "proven: unproven 0"
    (state / "link.json").symlink_to(summary)
    assert spark_application._counts(state / "link.json") == ""
    summary.write_text(forged, encoding="utf-8")
    assert spark_application._counts(summary) == ""
