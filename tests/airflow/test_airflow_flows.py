"""The steps of replicate__: frozen plans, fleets, and what counts as running."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from clusters.admin import Admin
from clusters.control_topics import ControlWriter
from clusters.flow_records import read_flows, write_flow
from clusters.partition_status_records import PartitionStatus
from plugins.watershed.detached_process import DetachedProcess
from plugins.watershed.operators import flow_status, replication
from plugins.watershed.operators.replication import (
    ExpectedPartitions,
    Fleet,
    FlowsRunning,
    FlowsRunningOperator,
    FreezePlanOperator,
    StartFleetsOperator,
    describe_dead_fleets,
    judge_flow_reports,
    list_fleets,
)
from plugins.watershed.state_folder import find_frozen_plan, freeze_plan
from tests.airflow.test_airflow_dags import MIGRATION, TOPOLOGY
from tests.replicator.real import applied, plan_for, settings_of

if TYPE_CHECKING:
    from lab.clusters import Lab

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
    file.write_text("a: [")
    with pytest.raises(AirflowFailException, match=r"orders\.yaml"):
        FreezePlanOperator(task_id="c", path=str(file)).execute(CONTEXT)


def test_a_fleet_for_every_target_of_a_running_flow_and_for_the_way_back(file: Path) -> None:
    plan = freeze_plan(file).read()
    assert [(fleet.target, fleet.spark) for fleet in list_fleets(plan)] == [("cloud", True), ("onprem", True)]
    assert [fleet.target for fleet in list_fleets(replace(plan, migration=None))] == ["cloud"]
    processes = replace(plan, flows=tuple(replace(flow, engine="process") for flow in plan.flows))
    module, arguments = list_fleets(processes)[0].program(file, 2, file.parent)
    assert (module, arguments[0]) == ("cli.main", "worker")


def test_fleet_is_started_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def program(self: Fleet, topology: Path, workers: int, folder: Path) -> tuple[str, list[str]]:
        return PROGRAM, ["--out", str(folder), "--verdict", "proven", "--seconds", "60"]

    monkeypatch.setattr(Fleet, "program", program)
    task = StartFleetsOperator(task_id="s", plan=freeze_plan(file).hash)
    there, back = task.execute(CONTEXT)
    pid = DetachedProcess(Path(there)).pid()
    assert task.execute(CONTEXT) == [there, back]
    assert DetachedProcess(Path(there)).pid() == pid
    assert describe_dead_fleets([there, back]) == ""
    for folder in (there, back):
        DetachedProcess(Path(folder)).end()
        assert "has ended" in describe_dead_fleets([folder])


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
    write_flow(writer, replace(record, state="stopped"))
    assert expected() == (None, {flow: "stopped"})


def test_loud_partition_is_a_problem_with_its_remedy() -> None:
    loud = status(1, "source_expired", error="offsets 3 to 9 are gone", remedy="accept the gap")
    found = judge_flow_reports(WANTED, view(status(0), loud))
    assert found.problem == "a-to-b orders-1: source_expired: offsets 3 to 9 are gone accept the gap"


def test_only_new_reports_count(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier fleet left `running` behind; the trigger waits until somebody reports again."""
    looks = [view(status(0, at_ms=1), status(1, at_ms=1))] * 2 + [view(status(0, at_ms=2), status(1, at_ms=2))]
    monkeypatch.setattr(replication, "ask_expected_partitions", lambda plan: WANTED)
    monkeypatch.setattr(replication, "ask_newest_reports", lambda plan: looks.pop(0))

    async def first() -> Any:
        return await anext(FlowsRunning(freeze_plan(file).hash, [], poll_seconds=0.01).run())

    event = asyncio.run(first()).payload
    assert looks == []
    task = FlowsRunningOperator(task_id="w", plan="", fleets=[])
    task.check(CONTEXT, event)


def test_dead_fleet_ends_the_wait(file: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication, "ask_expected_partitions", lambda plan: WANTED)
    monkeypatch.setattr(replication, "ask_newest_reports", lambda plan: {})

    async def first() -> Any:
        return await anext(FlowsRunning(freeze_plan(file).hash, [str(state / "fleets" / "gone")]).run())

    event = asyncio.run(first()).payload
    with pytest.raises(AirflowException, match="has ended"):
        FlowsRunningOperator(task_id="w", plan="", fleets=[]).check(CONTEXT, event)
