"""A migration, its way back and a hook in a real Airflow with its LocalExecutor, on Postgres where there is one; its
parts are killed with SIGKILL meanwhile. The journal and the applications' own records are the judges."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.airflow.live import (
    DATABASE,
    Live,
    assert_nothing_is_lost,
    kill_program,
    read_journal,
    running,
    until,
)
from watershed.clusters.flow_records import read_flows
from watershed.clusters.settings import resolve_connection_settings
from watershed.cutover.hooks.hook_caller import HookCaller
from watershed.cutover.live.application_control import DeclaredApplications
from watershed.cutover.live.applications.application_adapter import ApplicationOrder
from watershed.lab import postgres
from watershed.lab.airflow_client import AirflowRequestFailed
from watershed.plugins.steps.run_journal import find_done_waves, open_migration_journal
from watershed.replicator.worker.fleet_status import read_fleet_rows
from watershed.topology.application_controls import AirflowControl, PlanApplication
from watershed.topology.migration_waves import PlanHook

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

pytestmark = [pytest.mark.kafka, pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(2000)]
RUN = "live"
DAG = '''
"""A dag of somebody's: airflow runs it when a migration asks."""
from pathlib import Path
from airflow.sdk import dag, task

@dag(schedule=None, dag_id="warm_caches")
def warm_caches():
    @task
    def warm(dag_run=None):
        told = dag_run.conf["watershed"]
        with Path({folder!r}, "warmed").open("a") as file:
            file.write(told["key"] + "\\n")
        if told.get("point") == "fenced" and not Path({folder!r}, "mended").exists():
            raise RuntimeError("the caches are cold")

    warm()

warm_caches()
'''


@pytest.fixture(scope="module")
def live(kafka_pair: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    home = tmp_path_factory.mktemp("live")
    (home / "dags").mkdir()
    (home / "dags" / "warm_caches.py").write_text(DAG.format(folder=str(home)))
    with running(kafka_pair, "move", home) as found:
        found.client.unpause(found.dag)
        found.client.trigger(found.dag, RUN, {"waves": ["orders"]})
        yield found


def test_the_database_is_postgres(live: Live) -> None:
    if why := postgres.find_missing_postgres() or (
        "SQLite is asked for" if os.environ.get(DATABASE) == "sqlite" else ""
    ):
        pytest.skip(f"{why}: the other tests of this file ran on SQLite")
    assert "airflow.db" not in {path.name for path in (live.home / "airflow").iterdir()}


def test_a_killed_task_process_is_followed_by_one_that_goes_on(live: Live) -> None:
    """C02: the step is begun in the journal, and its process dies."""
    live.wait_task(RUN, "orders.check", "running")
    until(lambda: [e for e in read_journal(live, RUN, "orders") if e.step == "lag_gate"], "lag_gate in the journal")
    os.kill(live.task_process("orders.check").pid, signal.SIGKILL)
    until(lambda: [e for e in read_journal(live, RUN, "orders") if e.step == "history_proof"], "a process that goes on")
    assert "up_for_retry" not in live.states(RUN).values()
    assert {entry.actor for entry in read_journal(live, RUN, "orders")} == {f"airflow {live.dag} for admin"}


@pytest.mark.soak
def test_a_killed_spark_application_is_started_again(live: Live) -> None:
    """C29"""
    folder = live.folder(RUN, "orders.history_proof")
    first = kill_program(folder / "1")
    live.wait_task(RUN, "orders.check", "success")
    assert sorted(path.name for path in folder.iterdir()) == ["1", "2"]
    assert first


@pytest.mark.soak
def test_a_killed_triggerer_is_followed_by_one_that_waits_on(live: Live) -> None:
    """C07: the hold waits in the triggerer."""
    live.wait_task(RUN, "orders.hold_before", "deferred")
    live.kill("triggerer", whole=True)
    live.wait_task(RUN, "orders.hold_before", "success")


def approve(live: Live) -> None:
    """Unless it is approved: in `make soak` the test of the approval is not run."""
    if live.task(RUN, "orders.approval").state != "success":
        live.user("ops").answer(live.question(RUN, "orders.approval"), "Approve")
        live.wait_task(RUN, "orders.approval", "success")


def test_approval_is_a_persons_with_the_evidence_in_view(live: Live) -> None:
    question = live.question(RUN, "orders.approval")
    assert "team-orders" in question.body
    assert "lag records" in question.body
    assert "proven" in question.body
    with pytest.raises(AirflowRequestFailed, match="403"):
        live.user("view").answer(question, "Approve")
    live.user("ops").answer(question, "Approve")
    live.wait_task(RUN, "orders.approval", "success")
    [granted] = [e for e in read_journal(live, RUN, "orders") if e.step == "approval" and e.kind == "outcome"]
    assert granted.observation["outcome"]["approvals"][0]["by"] == "ops"


@pytest.mark.soak
def test_a_killed_scheduler_is_followed_by_one_that_goes_on(live: Live) -> None:
    """C01: its workers live on for a moment; what they and their successors do at once, the journal decides (C04)."""
    approve(live)
    until(lambda: [e for e in read_journal(live, RUN, "orders") if e.step == "stop_consumers"], "the first deed")
    live.kill("scheduler", whole=False)
    assert_wave_is_moved(live)


def test_a_wave_is_moved(live: Live) -> None:
    assert_wave_is_moved(live)


def assert_wave_is_moved(live: Live) -> None:
    live.wait_task(RUN, "orders.end", "success")
    last = read_journal(live, RUN, "orders")[-1]
    assert (last.step, last.observation["state"]) == ("run", "done")
    assert set(live.where("orders", f"{live.name}-billing").values()) == {("running", "cloud")}


@pytest.mark.soak
def test_a_flow_is_paused_by_who_approves_and_resumed_without_being_asked(live: Live) -> None:
    """`operate__`, with what would be done in view; `inspect__` shows who it was."""
    flow, dag, seen = "onprem-to-cloud-move", f"operate__{live.name}", f"inspect__{live.name}"
    target = resolve_connection_settings(live.plan.cluster("cloud"))
    for each in (dag, seen):
        live.client.wait_for_dag(each)
        live.client.unpause(each)
    live.client.trigger(dag, "pause", {"operation": "pause", "flow": flow})
    question = live.question("pause", "approve", dag)
    assert f"{flow} (onprem -> cloud) copies nothing more for now" in question.body
    assert "records not copied yet" in question.body
    assert read_flows(target)[flow].state == "running"
    live.user("ops").answer(question, "Approve")
    live.wait_task("pause", "carry_out", "success", dag=dag)
    assert read_flows(target)[flow].state == "paused"
    live.client.trigger(dag, "resume", {"operation": "resume", "flow": flow, "approval": "auto"})
    live.wait_task("resume", "carry_out", "success", dag=dag)
    assert read_flows(target)[flow].state == "running"
    live.client.trigger(seen, "orders", {"operation": "orders"})
    live.wait_task("orders", "inspect", "success", dag=seen)
    told = "\n".join(live.client.log(seen, "orders", "inspect"))
    assert f"ops, in Airflow ({dag}): pause {flow}, running -> paused" in told
    assert f"admin, in Airflow ({dag}): resume {flow}, paused -> running" in told


@pytest.mark.soak
def test_a_file_that_does_not_compile_does_not_stop_healing(live: Live) -> None:
    """A dead supervisor is followed by one that goes on with the last plan that compiled. Other orders fail."""
    dag, file = f"fleet__{live.name}", live.home / "topologies" / f"{live.name}.yaml"
    whole = file.read_text()
    live.client.wait_for_dag(dag)
    live.client.unpause(dag)

    def order(run: str, action: str, task: str, *states: str) -> str:
        live.client.trigger(dag, run, {"action": action, "target": "cloud"})
        live.wait_task(run, task, *states, dag=dag)
        return "\n".join(live.client.log(dag, run, task))

    order("start", "start", "act", "success")
    first = until(lambda: find_supervisor(live), "a supervisor")
    try:
        file.write_text(whole.replace("owner: tests", "ownr: tests"))
        [program] = [each for each in (live.home / "state").rglob("process.json") if "fleet" in each.read_text()]
        kill_program(program.parent)
        until(lambda: find_supervisor(live) != first, "the end of the dead one's lease")
        order("heal", "heal", "act", "success")
        second = until(lambda: {find_supervisor(live)} - {"", first}, "another supervisor")
        told = "\n".join(live.client.log(dag, "heal", "compile"))
        assert "goes on with the last plan that compiled" in told
        assert f"{file.name}:4" in told, told
        assert f"{file.name}:4" in order("refused", "stop", "compile", "failed")
        assert {find_supervisor(live)} == second, "nothing was stopped"
    finally:
        file.write_text(whole)
        order("stop", "stop", "act", "success")


def find_supervisor(live: Live) -> str:
    connect = {str(each.alias): resolve_connection_settings(each) for each in live.plan.clusters}
    [row] = read_fleet_rows(live.plan, connect.__getitem__, "cloud")
    return row.supervisor


@pytest.mark.soak
def test_a_wave_goes_back_by_a_dag_of_its_own(live: Live) -> None:
    """Triggered and approved through the REST interface; the journal and the applications say what came of it."""
    approve(live)
    assert_wave_is_moved(live)
    dag = f"rollback__{live.name}"
    live.client.unpause(dag)
    live.client.trigger(dag, "back", {"waves": ["orders"]})
    question = live.question("back", "orders.approval", dag)
    assert "written since the switch" in question.body
    live.user("ops").answer(question, "Approve")
    until(lambda: live.client.run_state(dag, "back") in ("success", "failed"), "the end of the rollback")
    assert live.client.run_state(dag, "back") == "success", live.failures(dag, "back")
    chain = open_migration_journal(live.plan, "a test").refresh()
    entries = chain.run("rollback.back.orders")
    assert entries[-1].observation["state"] == "done"
    assert entries[0].observation["takes_back"] == f"migrate.{RUN}.orders"
    [granted] = [e for e in entries if e.step == "approval" and e.kind == "outcome"]
    assert granted.observation["outcome"]["approvals"][0]["by"] == "ops"
    assert find_done_waves(live.plan, chain) == {}
    assert set(live.where("orders", f"{live.name}-billing").values()) == {("running", "onprem")}
    assert_nothing_is_lost(live)


def test_nothing_is_lost_and_nothing_repeated(live: Live) -> None:
    assert_nothing_is_lost(live)


def hooks(live: Live, task: str, account: str = "ops:ops") -> HookCaller:
    environ = {
        "WATERSHED_AIRFLOW_URL": live.airflow.url,
        "WATERSHED_AIRFLOW_CREDENTIALS": "env:ACCOUNT",
        "ACCOUNT": account,
    }
    return HookCaller(
        {"warm": PlanHook(airflow_task=task, timeout_ms=240_000)}, "shop", "all", lambda: "run 1", environ=environ
    )


def test_a_hook_is_a_run_of_a_dag(live: Live) -> None:
    """Triggered once, attached to, refused, cleared."""
    client = live.client
    client.wait_for_dag("warm_caches", 480)
    assert "is paused" in hooks(live, "warm_caches").problems(["warm"])[0]
    client.unpause("warm_caches")
    assert hooks(live, "warm_caches/warm").problems(["warm"]) == ()
    assert "answered 404" in hooks(live, "warm_caches/absent").problems(["warm"])[0]
    assert "gives user ops no token" in hooks(live, "warm_caches", "ops:wrong").problems(["warm"])[0]
    assert "answered 403" in hooks(live, "warm_caches", "view:view").call("warm", "before", "k", {}).text

    first = hooks(live, "warm_caches/warm").call("warm", "before", "all/before/warm", {"source": "onprem"})
    assert first.agreed, first
    again = hooks(live, "warm_caches").call("warm", "before", "all/before/warm", {"source": "onprem"})
    assert again.agreed, again
    warmed = live.home / "warmed"
    assert warmed.read_text().splitlines() == ["shop/run 1/all/before/warm"]

    failed = hooks(live, "warm_caches").call("warm", "fenced", "all/fenced/warm", {})
    assert (failed.agreed, failed.seen["answer"]) == (False, "no"), failed
    assert "Clear it in Airflow" in failed.text
    (warmed.parent / "mended").touch()
    client.clear("warm_caches", failed.text.split("run ")[1].split(":")[0], ["warm"])
    mended = hooks(live, "warm_caches").call("warm", "fenced", "all/fenced/warm", {})
    assert mended.agreed, mended


@pytest.mark.soak
def test_an_application_is_stopped_by_a_run_of_a_dag(live: Live) -> None:
    """Triggered once, followed, found again."""
    live.client.wait_for_dag("warm_caches", 480)
    live.client.unpause("warm_caches")
    environ = {
        "WATERSHED_AIRFLOW_URL": live.airflow.url,
        "WATERSHED_AIRFLOW_CREDENTIALS": "env:ACCOUNT",
        "ACCOUNT": "ops:ops",
    }
    control = AirflowControl("warm_caches", "warm_caches/warm")
    told = DeclaredApplications(
        {"stats": PlanApplication(airflow=control)}, prefix=lambda: "shop/run 2/all/", environ=environ
    )
    stop = ApplicationOrder("stop", "stats", "consumer", "source", "onprem", ("b1:9092",), "stop/source/stats")
    assert told.look("stats").state == "unknown"
    assert told.tell(stop).state in ("stopping", "stopped")
    until(lambda: told.follow(stop).state == "stopped", "the run that stops it")
    assert told.tell(stop).state == "stopped"
    assert (live.home / "warmed").read_text().splitlines().count("shop/run 2/all/stop/source/stats") == 1
