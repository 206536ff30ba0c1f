"""The steps of replicate__: frozen plans, fleets, and what counts as running."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException, TaskDeferred
from airflow.triggers.base import TriggerEvent

from tests.airflow.test_airflow_dags import MIGRATION, TOPOLOGY
from tests.replicator.real import applied, plan_for, settings_of
from watershed.clusters.admin import Admin
from watershed.clusters.control_topics import ControlWriter
from watershed.clusters.fleet import FleetRecord
from watershed.clusters.flow_records import read_flows, write_flow
from watershed.clusters.partition_orders import PartitionPause
from watershed.clusters.partition_status_records import PartitionStatus
from watershed.plugins import fleet_supervisors
from watershed.plugins.detached_process import DetachedProcess
from watershed.plugins.fleet_supervisors import Fleet, list_fleets
from watershed.plugins.operators import fleet_actions, flow_status, replication
from watershed.plugins.operators.fleet_actions import (
    FleetActionOperator,
    FleetSizedOperator,
    FleetsSized,
    FreezeFleetPlanOperator,
    SuperviseFleetOperator,
)
from watershed.plugins.operators.replication import (
    ExpectedPartitions,
    FlowsRunning,
    FlowsRunningOperator,
    FreezePlanOperator,
    StartFleetsOperator,
    describe_dead_fleets,
    judge_flow_reports,
)
from watershed.plugins.state_folder import find_frozen_plan, freeze_plan
from watershed.plugins.topology_dags import list_dag_topologies
from watershed.replicator.worker import fleet_status
from watershed.replicator.worker.fleet_orders import change_fleet
from watershed.replicator.worker.fleet_status import FleetRow
from watershed.topology import compile_path

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

PROGRAM = "tests.airflow.programs.proof"
CONTEXT: Any = {"ti": SimpleNamespace(dag_id="replicate__x", run_id="r", task_id="t", map_index=-1)}
WANTED = ExpectedPartitions({"a-to-b": {("orders", 0), ("orders", 1)}})


@pytest.fixture
def file(tmp_path: Path, state: Path) -> Path:
    path = tmp_path / "orders.yaml"
    path.write_text(TOPOLOGY.replace("NAME", "orders") + MIGRATION)
    return path


def status(partition: int, state: str = "running", **more: Any) -> PartitionStatus:
    return PartitionStatus("a-to-b", "orders", "orders", partition, state, lag_records=5, **more)


def view(*reports: PartitionStatus) -> dict[str, PartitionStatus]:
    return {report.key: report for report in reports}


def test_frozen_plan_is_not_reached_by_later_edits(file: Path) -> None:
    frozen = freeze_plan(file)
    file.write_text(file.read_text().replace("orders.*", "orders*"))
    assert find_frozen_plan(frozen.hash).read().flow("onprem-to-cloud").selects("orders.created")
    assert freeze_plan(frozen.topology).hash == frozen.hash
    assert freeze_plan(file).hash != frozen.hash


def test_unknown_plan_says_what_to_do(state: Path) -> None:
    with pytest.raises(FileNotFoundError, match="clear the task that compiles it"):
        find_frozen_plan("sha256:1")


def test_compile_refuses_another_hash_than_reviewed(file: Path) -> None:
    with pytest.raises(AirflowFailException, match="has changed since it was reviewed"):
        FreezePlanOperator(task_id="c", path=str(file), expected="sha256:1").execute(CONTEXT)


def test_compile_reports_a_broken_file_without_traceback(file: Path) -> None:
    file.write_text(file.read_text() + "bogus: 1\n")
    with pytest.raises(AirflowFailException, match=r"orders\.yaml:\d+:\d+: error.*bogus") as told:
        FreezePlanOperator(task_id="c", path=str(file)).execute(CONTEXT)
    assert "go on with the plan that was applied last" in str(told.value)
    assert f"topology lint {file}" in str(told.value)


def test_fleets_are_healed_by_the_last_plan_when_the_file_is_broken(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATERSHED_TOPOLOGIES", str(file.parent))
    assert [each.path for each in list_dag_topologies()] == [file]  # as Airflow parses it: its plan is kept
    good = freeze_plan(file).hash
    file.write_text(file.read_text() + "bogus: 1\n")
    for action in ("heal", "status"):
        compiled = FreezeFleetPlanOperator(task_id="compile", path=str(file), action=action)
        assert compiled.execute(CONTEXT) == good
    assert "bogus" in capsys.readouterr().out
    for action in ("scale", "stop", "restart", "start"):
        with pytest.raises(AirflowFailException, match=r"orders\.yaml:\d+:\d+: error.*bogus"):
            FreezeFleetPlanOperator(task_id="compile", path=str(file), action=action).execute(CONTEXT)


def test_a_fleet_for_every_target_of_a_running_flow_and_for_the_way_back(file: Path) -> None:
    plan = freeze_plan(file).read()
    assert [(fleet.target, fleet.spark) for fleet in list_fleets(plan)] == [("cloud", True), ("onprem", True)]
    assert [fleet.target for fleet in list_fleets(replace(plan, migration=None))] == ["cloud"]
    processes = replace(plan, flows=tuple(replace(flow, engine="process") for flow in plan.flows))
    assert [fleet.spark for fleet in list_fleets(processes)] == [False, False]
    assert list_fleets(processes)[0].program(file) == (
        "watershed.cli.main",
        ["fleet", "supervise", str(file), "--target", "cloud"],
    )


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> dict[str, FleetRow]:
    """The fleets as clusters would tell of them; orders are written down in `orders`."""
    found = {
        target: FleetRow("orders", target, "running", "process", "embedded", wanted=1, workers=("w-1",))
        for target in ("cloud", "onprem")
    }

    def order(_frozen: Any, target: str, order: Any, workers: int | None = None) -> tuple[FleetRecord, FleetRecord]:
        before = FleetRecord("orders", target, found[target].state, "sha256:0", found[target].wanted)  # type: ignore[arg-type]
        after = change_fleet(before, order, workers, 0)
        found[target] = replace(found[target], state=after.state, wanted=after.wanted)
        return before, after

    def read(_plan: Any, target: str | None = None) -> list[FleetRow]:
        return [row for alias, row in sorted(found.items()) if target in (None, alias)]

    for module in (replication, fleet_actions):
        monkeypatch.setattr(module, "order_fleet_of", order)
    for module in (fleet_supervisors, fleet_actions):
        monkeypatch.setattr(module, "read_rows_of", read)
    return found


def test_fleets_into_which_nothing_runs_are_not_waited_for(
    file: Path, rows: dict[str, FleetRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_status, "read_fleet_rows", lambda *_: list(rows.values()))
    assert [each["target"] for each in flow_status.read_fleet_states(freeze_plan(file).hash)] == ["cloud", "onprem"]
    file.write_text(TOPOLOGY.replace("NAME", "orders"))  # without the migration, nothing leads back
    assert [each["target"] for each in flow_status.read_fleet_states(freeze_plan(file).hash)] == ["cloud"]


@pytest.fixture
def sleepers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Supervisors that only sleep."""

    def program(self: Fleet, topology: Path) -> tuple[str, list[str]]:
        return PROGRAM, ["--out", str(self.folder), "--verdict", "proven", "--seconds", "60"]

    monkeypatch.setattr(Fleet, "program", program)


def test_supervisors_are_started_once(file: Path, rows: dict[str, FleetRow], sleepers: None) -> None:
    task = StartFleetsOperator(task_id="s", plan=freeze_plan(file).hash, workers="3")
    there, back = task.execute(CONTEXT)
    assert {row.wanted for row in rows.values()} == {3}
    pid = DetachedProcess(Path(there)).pid()
    assert task.execute(CONTEXT) == [there, back]
    assert DetachedProcess(Path(there)).pid() == pid
    assert describe_dead_fleets([there, back, str(Path(there).with_name("another-host"))]) == ""
    for folder in (there, back):
        DetachedProcess(Path(folder)).end()
        assert "has ended" in describe_dead_fleets([folder])


def test_no_supervisor_is_started_beside_one_of_another_host(
    file: Path, rows: dict[str, FleetRow], sleepers: None
) -> None:
    rows["cloud"] = replace(rows["cloud"], supervisor="elsewhere-1")
    [back] = StartFleetsOperator(task_id="s", plan=freeze_plan(file).hash).execute(CONTEXT)
    assert Path(back).parent.name == "onprem"


def test_a_supervisor_is_replaced_when_other_clusters_were_applied_and_by_no_other_change(
    file: Path, rows: dict[str, FleetRow], sleepers: None
) -> None:
    def heal() -> int | None:
        act(file, "heal", target="cloud")
        [fleet] = [each for each in list_fleets(freeze_plan(file).read()) if each.target == "cloud"]
        return DetachedProcess(fleet.folder).pid()

    rows["cloud"] = replace(rows["cloud"], plan_hash=freeze_plan(file).hash)
    first = heal()
    rows["cloud"] = replace(rows["cloud"], supervisor="here")
    file.write_text(file.read_text().replace("orders.*", "orders*"))
    rows["cloud"] = replace(rows["cloud"], plan_hash=freeze_plan(file).hash)
    assert heal() == first
    alias = next(line for line in file.read_text().splitlines() if line.strip().startswith("cloud:"))
    file.write_text(file.read_text().replace(alias, alias.replace('["', '["other.example.com:9092", "')))
    assert heal() == first  # not applied yet
    rows["cloud"] = replace(rows["cloud"], plan_hash=freeze_plan(file).hash)
    assert heal() != first


@pytest.mark.parametrize("placement", ["task", "external"])
def test_with_other_placements_airflow_starts_no_supervisor(
    file: Path, rows: dict[str, FleetRow], sleepers: None, placement: str
) -> None:
    text = file.read_text().replace("    naming:", f"    workers: {{placement: {placement}}}\n    naming:")
    file.write_text(text)
    assert StartFleetsOperator(task_id="s", plan=freeze_plan(file).hash).execute(CONTEXT) == []


def act(file: Path, action: str, **more: Any) -> list[dict[str, Any]]:
    return FleetActionOperator(task_id="a", plan=freeze_plan(file).hash, action=action, **more).execute(CONTEXT)


def test_orders_reach_the_chosen_fleet_and_heal_starts_what_is_missing(
    file: Path, rows: dict[str, FleetRow], sleepers: None, state: Path
) -> None:
    act(file, "status")
    assert not list(state.rglob("process.json"))
    found = act(file, "scale", target="cloud", workers="4")
    assert [(row["target"], row["wanted"]) for row in found] == [("cloud", 4)]
    assert [path.parent.parent.name for path in state.rglob("process.json")] == ["cloud"]
    act(file, "heal")
    assert sorted(path.parent.parent.name for path in state.rglob("process.json")) == ["cloud", "onprem"]
    act(file, "stop")
    assert {row.state for row in rows.values()} == {"stopped"}
    with pytest.raises(AirflowFailException, match="needs the number"):
        act(file, "scale")
    with pytest.raises(AirflowFailException, match="no running flow goes into mars; fleets are into: cloud, onprem"):
        act(file, "stop", target="mars")


def test_what_an_order_comes_to_is_waited_for(
    file: Path, rows: dict[str, FleetRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = freeze_plan(file).hash
    with pytest.raises(AirflowSkipException):
        FleetSizedOperator(task_id="w", plan=plan, action="heal").execute(CONTEXT)
    with pytest.raises(TaskDeferred) as deferred:
        FleetSizedOperator(task_id="w", plan=plan, action="scale", target="cloud").execute(CONTEXT)
    trigger = deferred.value.trigger
    assert isinstance(trigger, FleetsSized)
    answers = [
        [{"target": "cloud", "at_size": False, "text": "1 of 2"}, {"target": "onprem", "at_size": False, "text": ""}],
        [{"target": "cloud", "at_size": True, "text": "2 of 2"}, {"target": "onprem", "at_size": False, "text": ""}],
    ]
    monkeypatch.setattr(fleet_actions, "ask_client_process", lambda *_: answers.pop(0))
    trigger.poll_seconds = 0.01

    async def first() -> TriggerEvent:
        return await anext(trigger.run())

    event = asyncio.run(first())
    assert event.payload == {"seen": "2 of 2"}
    assert answers == []


def supervise(file: Path) -> SuperviseFleetOperator:
    return SuperviseFleetOperator(task_id="s", plan=freeze_plan(file).hash, target="cloud", path=str(file))


def test_a_supervisor_in_a_task_is_tried_again_when_it_ends(
    file: Path, rows: dict[str, FleetRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fleet, "program", lambda _self, _path: ("this", ["--"]))
    task = supervise(file)
    with pytest.raises(AirflowException, match="the supervisor of the fleet into cloud ended with exit code 0"):
        task.execute(CONTEXT)


def test_a_supervisor_in_a_task_has_the_applied_plan_also_where_this_host_has_not_kept_it(
    file: Path, rows: dict[str, FleetRow], state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run began with an earlier plan. The file is the applied one; or it has been edited since."""
    used: list[Path] = []
    warned: list[str] = []
    task = supervise(file)
    monkeypatch.setattr(Fleet, "program", lambda _self, path: used.append(path) or ("this", ["--"]))
    monkeypatch.setattr(task.log, "warning", lambda form, *words: warned.append(form % words))

    def plan_in_use() -> tuple[str, bool]:
        """And whether the task warns of an applied plan that it has not."""
        warned.clear()
        with pytest.raises(AirflowException, match="ended with exit code 0"):
            task.execute(CONTEXT)
        return freeze_plan(used[-1]).hash, any(f"{newer} was applied last" in each for each in warned)

    file.write_text(file.read_text().replace("orders.*", "orders*"))
    newer = compile_path(file).hash
    rows["cloud"] = replace(rows["cloud"], plan_hash=newer)
    assert plan_in_use() == (newer, False)
    shutil.rmtree(state / "plans" / newer.rpartition(":")[2])
    for text in (file.read_text().replace("orders*", "stock*"), "a: ["):
        file.write_text(text)
        assert plan_in_use() == (task.plan, True)


WORKER_OUTLIVES = """
import os, subprocess, signal, sys
worker = subprocess.Popen(["sleep", "60"])  # has the pipe, too
print("worker", worker.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_supervisor_in_a_task_is_noticed_although_its_workers_hold_the_pipe(
    file: Path, rows: dict[str, FleetRow], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "supervisor_that_dies.py").write_text(WORKER_OUTLIVES)
    monkeypatch.setattr(fleet_actions, "IMPORT_ROOT", tmp_path)
    monkeypatch.setattr(Fleet, "program", lambda _self, _path: ("supervisor_that_dies", []))
    task, told = supervise(file), []
    monkeypatch.setattr(task.log, "info", lambda _form, line: told.append(line))
    try:
        with pytest.raises(AirflowException, match="ended with exit code -9"):
            task.execute(CONTEXT)
    finally:
        [pid] = [int(line.split()[1]) for line in told if line.startswith("worker ")]
        os.kill(pid, signal.SIGKILL)  # it goes on: nobody has ended it


LEAVES = """
import signal, subprocess, time
def leave(*_):
    print("left", flush=True)
    raise SystemExit(0)
signal.signal(signal.SIGUSR1, leave)
print("there", flush=True)
time.sleep(600)
"""


def test_a_task_that_is_ended_ends_no_worker(
    file: Path, rows: dict[str, FleetRow], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Somebody clears it, or the api-server was away: its supervisor leaves, by another signal than the one to end."""
    monkeypatch.setenv("WATERSHED_SUPERVISOR_QUEUES", "rack-1,rack-2")
    (tmp_path / "supervisor_that_leaves.py").write_text(LEAVES)
    monkeypatch.setattr(fleet_actions, "IMPORT_ROOT", tmp_path)
    monkeypatch.setattr(Fleet, "program", lambda _self, _path: ("supervisor_that_leaves", []))
    task, told = supervise(file), []

    def info(_form: str, line: str) -> None:
        told.append(line)
        if line == "there":
            task.on_kill()

    monkeypatch.setattr(task.log, "info", info)
    with pytest.raises(AirflowException, match="ended with exit code 0"):
        task.execute(CONTEXT)
    assert told == ["there", "left"]


def test_all_partitions_served_is_done() -> None:
    found = judge_flow_reports(WANTED, view(status(0), status(1, "catching_up")))
    assert (found.done, found.problem) == (True, "")
    assert found.text == "a-to-b: 2 of 2 partitions served, lag 10 records"


@pytest.mark.parametrize("reports", [(), (status(0),), (status(0), status(1, "starting"))])
def test_less_is_not(reports: tuple[PartitionStatus, ...]) -> None:
    assert not judge_flow_reports(WANTED, view(*reports)).done


def test_a_flow_that_was_stopped_is_told_and_not_waited_for() -> None:
    found = judge_flow_reports(replace(WANTED, standing={"c-to-d": "stopped"}), view(status(0), status(1)))
    assert found.done
    assert found.text == "c-to-d: stopped, not waited for; a-to-b: 2 of 2 partitions served, lag 10 records"
    assert judge_flow_reports(ExpectedPartitions({}, {"a-to-b": "stopped"}), {}).done


@pytest.mark.kafka
def test_what_a_migration_has_stopped_or_retired_is_not_expected(
    kafka_pair: Lab, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        for name in ("moved", "kept"):
            admin.create_topic(f"{topic_name}.{name}", 2, 1)
    plan = applied(settings, plan_for(settings, topic_name, f"{topic_name}.moved", f"{topic_name}.kept"))
    flow = str(plan.flows[0].id)
    moved, kept = ([[f"{topic_name}.{name}", number] for number in (0, 1)] for name in ("moved", "kept"))
    monkeypatch.setattr(flow_status, "find_frozen_plan", lambda _hash: SimpleNamespace(read=lambda: plan))

    def expected() -> tuple[list[list[Any]] | None, dict[str, str]]:
        told = flow_status.read_expected_partitions(plan.hash)
        places = told["places"].get(flow)
        return None if places is None else sorted(places), told["standing"]

    assert expected() == (sorted(moved + kept), {})
    record = read_flows(settings["cloud"])[flow]
    writer = ControlWriter(settings["cloud"], "a test")
    write_flow(writer, replace(record, retired=frozenset({f"{topic_name}.moved"})))
    assert expected() == (kept, {})
    pauses = (PartitionPause(f"{topic_name}.kept", 1, "ann", 0), PartitionPause(f"{topic_name}.moved", None, "ann", 0))
    write_flow(writer, replace(record, pauses=pauses))
    assert expected() == (kept[:1], {f"{flow}, 3 of 4 partitions": "paused"})
    write_flow(writer, replace(record, state="stopped"))
    assert expected() == (None, {flow: "stopped"})


def test_loud_partition_is_a_problem_with_its_remedy() -> None:
    loud = status(1, "source_expired", error="offsets 3 to 9 are gone", remedy="accept the gap")
    found = judge_flow_reports(WANTED, view(status(0), loud))
    assert found.problem == "a-to-b orders-1: source_expired: offsets 3 to 9 are gone accept the gap"


def test_only_new_reports_count(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier fleet left `running` behind; the trigger waits until somebody reports again."""
    looks = [view(status(0, at_ms=1), status(1, at_ms=1))] * 2 + [view(status(0, at_ms=2), status(1, at_ms=2))]
    monkeypatch.setattr(replication, "ask_expected_partitions", lambda *_: WANTED)
    monkeypatch.setattr(replication, "ask_newest_reports", lambda *_: looks.pop(0))

    async def first() -> Any:
        return await anext(FlowsRunning(freeze_plan(file).hash, [], poll_seconds=0.01).run())

    event = asyncio.run(first()).payload
    assert looks == []
    task = FlowsRunningOperator(task_id="w", plan="", fleets=[])
    task.check(CONTEXT, event)


def test_a_task_waits_for_a_while_before_it_leaves_its_worker(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaving the worker costs seconds, and workers are often there sooner."""
    asked: list[Any] = []
    looks = [view(), view(status(0, at_ms=2)), view(status(0, at_ms=3), status(1, at_ms=3))]

    def look(_plan: Any, ask: Any) -> Any:
        asked.append(ask)
        return looks.pop(0)

    monkeypatch.setattr(replication, "ask_expected_partitions", lambda *_: WANTED)
    monkeypatch.setattr(replication, "ask_newest_reports", look)
    monkeypatch.setattr(replication, "_LOOK_S", 0.0)
    task = FlowsRunningOperator(task_id="w", plan=freeze_plan(file).hash, fleets=[])
    task.execute(CONTEXT)
    assert (looks, set(asked)) == ([], {replication.call_here})
    monkeypatch.setattr(replication, "WORKER_WAIT_S", 0.0)
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(CONTEXT)
    assert isinstance(deferred.value.trigger, FlowsRunning)


def test_what_a_task_asks_is_asked_in_its_own_process() -> None:
    assert replication.call_here("orders", "os.path:basename", {"p": "a/b"}) == "b"


def test_dead_fleet_ends_the_wait(file: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication, "ask_expected_partitions", lambda *_: WANTED)
    monkeypatch.setattr(replication, "ask_newest_reports", lambda *_: {})
    gone = state / "fleets" / "gone"
    gone.mkdir(parents=True)
    (gone / "process.json").write_text('{"pid": 1}')

    async def first() -> Any:
        return await anext(FlowsRunning(freeze_plan(file).hash, [str(gone)]).run())

    event = asyncio.run(first()).payload
    with pytest.raises(AirflowFailException, match="has ended"):
        FlowsRunningOperator(task_id="w", plan="", fleets=[]).check(CONTEXT, event)
