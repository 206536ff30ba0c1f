"""`watch__NAME`: a run fails for each budget that stopped a flow with `slo.on_breach: fail`."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred

from tests.airflow.test_airflow_dags import TOPOLOGY, load
from tests.replicator.real import applied, settings_of
from watershed.clusters.admin import Admin
from watershed.clusters.budget_breaches import BudgetBreach
from watershed.clusters.control_topics import FLOWS_TOPIC, ControlWriter
from watershed.clusters.errors import ClusterError
from watershed.clusters.flow_records import FlowRecord, read_flows, write_flow
from watershed.plugins.operators import budget_watch, flow_status
from watershed.plugins.operators.budget_watch import BudgetBroken, BudgetWatchOperator, judge_breaches
from watershed.plugins.state_folder import freeze_plan
from watershed.replicator.flow_state_order import answer_breach
from watershed.topology import compile_path

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

SLO = "    naming: {policy: identity}\n    slo: {lag: {max: 15m}, on_breach: ACTION}\n"
FLOW = "onprem-to-cloud"


def render_topology(name: str, action: str) -> str:
    text = TOPOLOGY.replace("NAME", name)
    return text.replace("    naming: {policy: identity}\n", SLO.replace("ACTION", action))


@pytest.fixture
def folder(tmp_path: Path, state: Path, airflow_database: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "topologies"
    path.mkdir()
    monkeypatch.setenv("WATERSHED_TOPOLOGIES", str(path))
    return path


def test_only_files_with_a_budget_that_fails_are_watched(folder: Path) -> None:
    for name, action in (("strict", "fail"), ("careful", "pause"), ("plain", "alert")):
        (folder / f"{name}.yaml").write_text(render_topology(name, action))
    dags = load().dags
    assert [name for name in dags if name.startswith("watch__")] == ["watch__strict"]
    assert dags["watch__strict"].task_ids == ["compile", "watch"]
    assert f"`{FLOW}`" in dags["watch__strict"].doc_md
    assert "cloud-to-onprem" not in dags["watch__strict"].doc_md, "a way back only alerts"


def test_each_breach_is_told_once() -> None:
    assert judge_breaches({}, ["a/1"]) is None
    assert judge_breaches({"a/1": "one"}, ["a/1"]) is None
    assert judge_breaches({"a/1": "one"}, []) == {"told": ["a/1"], "problem": "one"}
    assert judge_breaches({"a/2": "two", "b/7": "seven"}, ["a/1", "b/7"]) == {"told": ["a/2", "b/7"], "problem": "two"}
    event = judge_breaches({"a/2": "two"}, ["b/7"], is_complete=False)
    assert event == {"told": ["a/2", "b/7"], "problem": "two"}, "b/7 is where nobody answers, and is told already"


def test_what_is_applied_counts_and_a_target_that_is_away_hides_no_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "strict.yaml").write_text(render_topology("strict", "fail"))
    plan = compile_path(folder / "strict.yaml")
    forward, back = plan.flow(FLOW), plan.flow("cloud-to-onprem")
    added = FlowRecord(replace(forward, id="added-later"), "sha256:1", plan.topology)
    foreign = FlowRecord(replace(forward, id="foreign"), "sha256:2", "another")
    records = {each.key: each for each in (added, foreign, FlowRecord(forward, plan.hash, plan.topology))}
    told: Any = ("fail", "slo.lag.max", 900_000, 930_000, "orders", 0, "w1", 0)
    breaches = {name: BudgetBreach(name, 3, *told) for name in ("added-later", "foreign")}
    asked: list[str] = []

    def read(settings: Any, found: Any) -> Any:
        asked.append(settings.alias)
        if settings.alias == back.target:
            raise ClusterError("onprem does not answer")
        return found

    monkeypatch.setattr("watershed.clusters.flow_records.read_flows", lambda settings: read(settings, records))
    monkeypatch.setattr(
        "watershed.clusters.budget_breaches.read_budget_breaches", lambda settings: read(settings, breaches)
    )
    seen = flow_status.read_failed_budgets(freeze_plan(folder / "strict.yaml").hash)
    assert list(seen["breaches"]) == ["added-later/3"]
    assert "flow resume added-later" in seen["breaches"]["added-later/3"]
    assert seen["unread"] == {back.target: "onprem does not answer"}
    assert {*asked} == {forward.target, back.target}


def test_a_run_without_a_breach_ends_after_a_day(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "strict.yaml").write_text(render_topology("strict", "fail"))
    frozen = freeze_plan(folder / "strict.yaml").hash
    seen = {"breaches": {"a/1": "one"}, "unread": {"cloud": "cloud does not answer"}}
    monkeypatch.setattr(budget_watch, "ask_client_process", lambda *_: seen)

    async def follow() -> list[Any]:
        return [event.payload async for event in BudgetBroken(frozen, ["a/1"], time.time() + 0.2, 0.01).run()]

    assert asyncio.run(follow()) == [{"told": ["a/1"], "problem": ""}]
    assert capsys.readouterr().out.count("cloud does not answer") == 1
    pushed: list[Any] = []
    ti = SimpleNamespace(xcom_push=lambda key, value: pushed.append((key, value)))
    BudgetWatchOperator(task_id="watch", plan=frozen).end_watch({"ti": ti}, {"told": ["a/1"], "problem": ""})
    assert pushed == [("told", ["a/1"])]


def test_a_run_waits_for_what_no_other_has_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pushed: dict[str, Any] = {}
    ti = SimpleNamespace(
        xcom_pull=lambda **asked: ["a/1"] if asked == {"task_ids": "watch", "key": "told", "include_prior_dates": True}
        else pytest.fail(str(asked)),
        xcom_push=lambda key, value: pushed.update({key: value}),
    )  # fmt: skip
    operator = BudgetWatchOperator(task_id="watch", plan="sha256:0")
    with pytest.raises(TaskDeferred) as deferred:
        operator.execute({"ti": ti})
    name, arguments = deferred.value.trigger.serialize()
    assert (name, arguments["told"]) == ("watershed.plugins.operators.budget_watch.BudgetBroken", ["a/1"])
    with pytest.raises(AirflowFailException, match="flow resume"):
        operator.end_watch({"ti": ti}, {"told": ["a/2"], "problem": "flow a is stopped; `topology flow resume a`"})
    assert pushed == {"told": ["a/2"]}


@pytest.mark.kafka
@pytest.mark.soak
def test_a_run_of_the_dag_fails_for_each_breach(
    kafka_pair: Lab, topic_name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 1, 1)
        source_id = admin.cluster_id()
    with Admin(settings["cloud"]) as admin:
        target_id = admin.cluster_id()
    text = render_topology("strict", "fail").replace("orders.*", topic_name)
    for old, new in (
        ('"127.0.0.1:9"', f'"{settings["onprem"].bootstrap[0]}"'),
        ('"127.0.0.1:10"', f'"{settings["cloud"].bootstrap[0]}"'),
        ("OnpremAAAAAAAAAAAAAAAA", source_id),
        ("CloudAAAAAAAAAAAAAAAAA", target_id),
    ):
        text = text.replace(old, new)
    (folder / "strict.yaml").write_text(text)
    plan = applied(settings, compile_path(folder / "strict.yaml"))
    assert plan.flow(FLOW).breach is not None
    asked: list[list[str]] = []
    monkeypatch.setattr(
        budget_watch,
        "judge_breaches",
        lambda found, told, is_complete: asked.append(told) or judge_breaches(found, told, is_complete),
    )
    monkeypatch.setattr(
        budget_watch, "ask_client_process", lambda _topology, _function, given: flow_status.read_failed_budgets(**given)
    )
    with ControlWriter(settings["cloud"], "a test") as writer:
        for number in (1, 2):
            breach = BudgetBreach(FLOW, number, "fail", "slo.lag.max", 900_000, 930_000, topic_name, 0, "w1", 0)
            writer.put(FLOWS_TOPIC, breach.key, breach.to_json(), 0)
            found = flow_status.read_failed_budgets(freeze_plan(folder / "strict.yaml").hash)
            assert list(found["breaches"]) == [f"{FLOW}/{number}"]
            run = load().dags["watch__strict"].test()
            states = {each.task_id: str(each.state) for each in run.get_task_instances()}
            assert (str(run.state), states) == ("failed", {"compile": "success", "watch": "failed"})
        assert asked[0] == []
        assert asked[-1] == [f"{FLOW}/1"], "the run before has told of it"
        write_flow(writer, answer_breach(read_flows(settings["cloud"])[FLOW], breach))
    assert flow_status.read_failed_budgets(plan.hash) == {"breaches": {}, "unread": {}}
    monkeypatch.setattr(budget_watch, "_RUN_S", 0.0)
    assert str(load().dags["watch__strict"].test().state) == "success", "nothing came in its time"
    assert BudgetBroken(plan.hash, [], 0.0).serialize()[1]["told"] == []
