"""Hosts of Airflow with a state folder each: what a run needs reaches them without it (decision 0095)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import get_current_context
from airflow.sdk.bases.xcom import BaseXCom
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.sdk.execution_time.context import OutletEventAccessors

from tests.airflow.test_airflow_dags import MIGRATION, TOPOLOGY
from tests.airflow.test_airflow_proof import attempt
from watershed.cutover.actions import RequestProof
from watershed.plugins import api_server_watch, state_folder
from watershed.plugins.api_server_watch import ApiServerWatch
from watershed.plugins.detached_process import DetachedProcess
from watershed.plugins.operators import spark_application
from watershed.plugins.operators.decommission import _read_newest_verdict
from watershed.plugins.operators.fleet_actions import FleetsSized
from watershed.plugins.operators.proof import ProofOperator, PublishProofOperator, find_run_verdict
from watershed.plugins.operators.replication import FreezePlanOperator
from watershed.plugins.operators.spark_application import SparkApplicationOperator
from watershed.plugins.state_folder import FrozenPlan, bring_plan, find_frozen_plan, freeze_plan, is_state_shared
from watershed.plugins.steps.step_driver import StepOrder, find_proof_base

Move = Callable[[str], Path]
RUN = "manual__1"


@dataclass
class Instance:
    """A task instance whose XComs are the run's."""

    task_id: str
    xcoms: dict[tuple[str, str], Any] = field(default_factory=dict)
    dag_id: str = "verify__x"
    run_id: str = RUN
    map_index: int = -1

    def xcom_push(self, key: str, value: Any) -> None:
        self.xcoms[self.task_id, key] = value

    def xcom_pull(self, task_ids: str, key: str = "return_value") -> Any:
        return self.xcoms.get((task_ids, key))


@pytest.fixture
def host(tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> Move:
    """Go to another host: its folder is empty at first."""
    monkeypatch.setenv("WATERSHED_STATE_SHARED", "no")

    def move(name: str) -> Path:
        monkeypatch.setenv("WATERSHED_STATE", str(tmp_path / name))
        return tmp_path / name

    return move


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], Any]:
    """The XComs of a run, by task and key, as Airflow's own class gives them."""
    found: dict[tuple[str, str], Any] = {}

    def get_one(*, key: str, dag_id: str, task_id: str, run_id: str) -> Any:
        assert (dag_id, run_id) == ("verify__x", RUN)
        return found.get((task_id, key))

    monkeypatch.setattr(BaseXCom, "get_one", get_one)
    return found


@pytest.fixture(params=["a file", "a folder"])
def topology(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    text = TOPOLOGY.replace("NAME", "orders") + MIGRATION
    if request.param == "a file":
        (tmp_path / "orders.yaml").write_text(text)
        return tmp_path / "orders.yaml"
    (tmp_path / "orders").mkdir()
    head, _, migration = text.partition("migration:")
    name = "apiVersion: topology/v1alpha1\nkind: Topology\nmetadata: {name: orders}\n"
    (tmp_path / "orders" / "a.yaml").write_text(head)
    (tmp_path / "orders" / "b.yaml").write_text(f"{name}migration:{migration}")
    return tmp_path / "orders"


def test_a_task_on_another_host_gets_the_plan_of_the_run(
    host: Move, run: dict[tuple[str, str], Any], topology: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was compiled: the file has changed since."""
    host("a")
    plan = FreezePlanOperator(task_id="compile", path=str(topology)).execute({"ti": Instance("compile", run)})
    for path in [topology] if topology.is_file() else topology.iterdir():
        path.write_text(path.read_text() + "# later\n")
    b = host("b")
    with pytest.raises(FileNotFoundError, match="WATERSHED_STATE_SHARED=no"):
        find_frozen_plan(plan)  # not in a task
    monkeypatch.setattr("airflow.sdk.get_current_context", lambda: {"ti": Instance("prove", run)})
    found = find_frozen_plan(plan)
    assert found.hash == found.read().hash == plan
    assert found.folder.is_relative_to(b)
    assert freeze_plan(found.topology).hash == plan


def test_a_trigger_brings_the_plan_before_others_ask_for_it(
    host: Move, run: dict[tuple[str, str], Any], topology: Path
) -> None:
    host("a")
    plan = FreezePlanOperator(task_id="compile", path=str(topology)).execute({"ti": Instance("compile", run)})
    host("b")
    trigger = FleetsSized(plan, "all")
    trigger._task_instance = Instance("wait", run)  # type: ignore[assignment]  # as the triggerer does
    asyncio.run(bring_plan(trigger, plan))
    run.clear()
    asyncio.run(bring_plan(trigger, plan))  # it is there: nobody is asked
    assert find_frozen_plan(plan).read().topology == "orders"


def test_another_plan_than_the_runs_is_not_found(
    host: Move, run: dict[tuple[str, str], Any], topology: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host("a")
    FreezePlanOperator(task_id="compile", path=str(topology)).execute({"ti": Instance("compile", run)})
    host("b")
    monkeypatch.setattr("airflow.sdk.get_current_context", lambda: {"ti": Instance("prove", run)})
    with pytest.raises(FileNotFoundError, match="no frozen plan sha256:1"):
        find_frozen_plan("sha256:1")


def test_where_hosts_share_the_folder_nothing_is_written_to_airflows_database(
    state: Path, run: dict[tuple[str, str], Any], topology: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FreezePlanOperator(task_id="compile", path=str(topology)).execute({"ti": Instance("compile", run)})
    assert run == {}
    monkeypatch.setenv("WATERSHED_STATE_SHARED", "perhaps")
    with pytest.raises(ValueError, match="yes or no, not 'perhaps'"):
        is_state_shared()


def proof(state: Path, monkeypatch: pytest.MonkeyPatch, verdict: str, seconds: float = 0.0) -> ProofOperator:
    monkeypatch.setattr(spark_application, "find_frozen_plan", lambda hash_: FrozenPlan(hash_, state / "plans" / "1"))
    monkeypatch.setattr(spark_application, "_LOOK_S", 0.05)
    words = ["--topology", "{topology}", "--out", "{out}", "--verdict", verdict, "--seconds", str(seconds)]
    return ProofOperator(
        task_id="prove", module="tests.airflow.programs.proof", arguments=words, plan="sha256:1", incremental=False
    )


def test_a_proof_is_waited_for_in_its_task(
    host: Move, run: dict[tuple[str, str], Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    a = host("a")
    summary = proof(a, monkeypatch, "proven").execute({"ti": Instance("prove", run)})
    assert summary == str(a / "runs" / "verify__x" / RUN / "prove" / "1" / "summary.json")
    assert "comparing" in capsys.readouterr().out  # the application's own words, in the task's log


@pytest.mark.parametrize("verdict", ["proven", "different"])
def test_a_verdict_reaches_tasks_on_other_hosts(host: Move, run: dict[tuple[str, str], Any], verdict: str) -> None:
    """Also one for which its own task fails."""
    folder = attempt(host("a"), verdict=verdict, unproven=3)
    (folder / "exit").write_text("0" if verdict == "proven" else "1")
    done = Instance("prove", run, "verify__orders", folder.parent.parent.name)
    task = ProofOperator(task_id="prove", plan="sha256:1", arguments=[], incremental=False)
    with nullcontext() if verdict == "proven" else pytest.raises(AirflowFailException, match="different"):
        task.collect({"ti": done}, {"folder": str(folder)})
    host("b")
    other = replace(done, task_id="publish")
    told = find_run_verdict(other, "prove")
    assert told is not None
    assert (told["verdict"], told["path"]) == (verdict, str(folder / "summary.json"))
    assert _read_newest_verdict(other, "prove") == f"{verdict}, 3 unproven"
    assert (find_run_verdict(other, "another"), _read_newest_verdict(other, "another")) == (None, "")
    seen = {"ti": other, "outlet_events": OutletEventAccessors()}
    assert PublishProofOperator(task_id="publish", topology="orders", proof="prove").execute(seen)["unproven"] == 3


def test_an_older_verdict_in_the_hosts_own_folder_does_not_count(host: Move, run: dict[tuple[str, str], Any]) -> None:
    """The proof was cleared, and another host did it again: Airflow has removed what the first try told."""
    first = attempt(host("a"), verdict="different", unproven=3)
    done = Instance("prove", run, "verify__orders", first.parent.parent.name)
    assert (find_run_verdict(done, "prove"), _read_newest_verdict(done, "prove")) == (None, "")
    again = attempt(host("b"), verdict="proven")
    (again / "exit").write_text("0")
    ProofOperator(task_id="prove", plan="sha256:1", arguments=[], incremental=False).collect(
        {"ti": done}, {"folder": str(again)}
    )
    host("a")
    told = find_run_verdict(done, "prove")
    assert told is not None
    assert (told["verdict"], _read_newest_verdict(done, "prove")) == ("proven", "proven, 0 unproven")


def test_who_marks_a_task_that_waits_ends_its_application(
    host: Move, run: dict[tuple[str, str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    a = host("a")
    task = proof(a, monkeypatch, "proven", 600.0)
    killed: list[DetachedProcess] = []

    def sleep(_seconds: float) -> None:
        if task.awaited is not None and not killed:
            killed.append(task.awaited)
            task.on_kill()

    monkeypatch.setattr(spark_application.time, "sleep", sleep)
    monkeypatch.setattr(api_server_watch, "is_api_server_there", lambda _address: True)
    with pytest.raises(AirflowException):
        task.execute({"ti": Instance("prove", run)})
    assert killed
    assert not killed[0].alive()


class Killed(BaseException):
    """The process of a task is gone."""


def test_an_api_server_that_is_away_does_not_end_the_application_and_the_next_try_finds_it(
    host: Move, run: dict[tuple[str, str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow ends the task by the same signal as where a person has cleared it."""
    a, real_sleep = host("a"), time.sleep
    task = proof(a, monkeypatch, "proven", 5.0)
    monkeypatch.setattr(api_server_watch, "is_api_server_there", lambda _address: False)
    left: list[DetachedProcess] = []

    def sleep(seconds: float) -> None:
        if task.awaited is not None and not left:
            left.append(task.awaited)
            task.on_kill()
            raise Killed
        real_sleep(seconds)

    monkeypatch.setattr(spark_application.time, "sleep", sleep)
    with pytest.raises(Killed):
        task.execute({"ti": Instance("prove", run)})
    assert left[0].alive()
    assert (left[0].folder / "asked-to-end").exists()  # nobody may come back
    found = proof(a, monkeypatch, "proven", 5.0).execute({"ti": Instance("prove", run)})
    assert found == str(left[0].folder / "summary.json")
    assert not (left[0].folder / "asked-to-end").exists()


@pytest.mark.parametrize(
    ("away_at", "asked_at", "away"), [(0, 0, True), (0, 59, True), (0, 61, False), (None, 0, False)]
)
def test_an_api_server_that_is_back_was_away_for_a_minute(away_at: int | None, asked_at: int, away: bool) -> None:
    now = [0.0]
    watch = ApiServerWatch(lambda: now[0] != away_at, lambda: now[0])
    watch.look()
    now[0] = asked_at
    assert watch.has_been_away() is away


@pytest.mark.parametrize(
    ("told", "address"),
    [
        ({("core", "execution_api_server_url"): "http://a:1/execution/"}, "http://a:1/execution/health"),
        ({("edge", "api_url"): "http://b:2/edge_worker/v1/rpcapi"}, "http://b:2/execution/health"),
        ({("api", "base_url"): "https://c/air"}, "https://c/air/execution/health"),
        ({}, "http://localhost:8080/execution/health"),
    ],
)
def test_the_api_server_is_asked_where_tasks_reach_it(
    told: dict[tuple[str, str], str], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = SimpleNamespace(get=lambda section, key, fallback="": told.get((section, key), fallback))
    monkeypatch.setattr(api_server_watch, "conf", conf)
    assert api_server_watch.find_health_address() == address


def test_a_triggerer_that_does_not_see_the_folder_is_told_of(state: Path) -> None:
    """It sees no program there, and calls it ended."""
    task = SparkApplicationOperator(task_id="prove", module="m", arguments=[], plan="sha256:1")
    with pytest.raises(AirflowFailException, match="WATERSHED_STATE_SHARED=no"):
        task.collect({}, {"folder": str(state / "runs" / "of another host")})


def test_a_tail_builds_on_what_its_own_host_has_proven(state: Path) -> None:
    order = StepOrder("sha256:1", "all", ("tail_proof",), "migrate__shop", "r")
    wanted = RequestProof("a-to-b", ("t",), "L1", final=True, since=str(state / "elsewhere" / "summary.json"))
    assert find_proof_base(order, wanted).since is None
    own = order.standby.process.folder / "summary.json"
    own.parent.mkdir(parents=True)
    own.write_text("{}")
    assert find_proof_base(order, wanted).since is None  # it says of nothing that it is proven
    here = state / "summary.json"
    here.write_text("{}")
    assert find_proof_base(order, RequestProof("f", ("t",), "L1", final=True, since=str(here))).since == str(here)


def test_the_context_of_a_task_is_asked_for_as_airflow_means_it() -> None:
    """`find_frozen_plan` relies on it: outside a task there is none, and that is no error of its own kind."""
    with pytest.raises(RuntimeError):
        get_current_context()
    assert state_folder._find_task_run() is None
