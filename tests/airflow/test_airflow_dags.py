"""The DAGs: one set a topology file, whatever the other files look like."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import TriggerRule
from airflow.sdk.exceptions import AirflowFailException, ParamValidationError

from watershed.cutover.run_preview import describe_run
from watershed.plugins.state_folder import freeze_plan
from watershed.plugins.steps.migration_dag_tasks import list_stage_tasks, preview_run_plan
from watershed.topology import compile_path

TOPOLOGY = """
apiVersion: topology/v1alpha1
kind: Topology
metadata: {name: NAME, owner: team-orders}
clusters:
  onprem: {bootstrap: ["127.0.0.1:9"], cluster_id: OnpremAAAAAAAAAAAAAAAA, security: {protocol: PLAINTEXT}}
  cloud: {bootstrap: ["127.0.0.1:10"], cluster_id: CloudAAAAAAAAAAAAAAAAA, security: {protocol: PLAINTEXT}}
pattern:
  active_standby:
    active: onprem
    standby: cloud
    topics: {include: [{glob: "orders.*"}]}
    naming: {policy: identity}
    failback: {reverse: declared_paused, on_divergence: stop}
"""
MIGRATION = """
migration:
  flow: onprem-to-cloud
  strategy: consumers_first
  applications:
    billing: {http: "http://127.0.0.1:11"}
    checkout: {http: "http://127.0.0.1:11"}
    shelf: {http: "http://127.0.0.1:11"}
    warehouse: {http: "http://127.0.0.1:11"}
  waves:
    - name: orders
      topics: [orders.created]
      consumers: [billing]
      producers: [checkout]
      gates:
        before: [{lag: {max_records: 0, hold: 2s}}, {verify: {level: L1}}, {approval: team-orders}]
        after: [{stragglers: {watch: 6m}}, {verify: {level: L1}}]
      rollback: {until: 24h, reverse: cloud-to-onprem}
"""
SECOND = """
    - name: stock
      after: [orders]
      topics: [orders.stock]
      consumers: [shelf]
      producers: [warehouse]
      strategy: fenced
      gates:
        before: [{lag: {max_records: 0, hold: 2s}}, {verify: {level: L1}}, {approval: team-a}, {approval: team-b}]
        after: [{stragglers: {watch: 6m}}, {verify: {level: L1}}]
      rollback: {none: it is only stock}
"""
KINDS = ["migrate", "rollback", "failover", "failback", "after_cutover", "drill", "abandon"]
ALWAYS = ["replicate", "fleet", "verify", "inspect", "operate", "decide"]


@pytest.fixture
def folder(tmp_path: Path, state: Path, airflow_database: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of topologies: `orders` with a migration, `plain` without."""
    path = tmp_path / "topologies"
    path.mkdir()
    (path / "orders.yaml").write_text(TOPOLOGY.replace("NAME", "orders") + MIGRATION)
    (path / "plain.yaml").write_text(TOPOLOGY.replace("NAME", "plain"))
    monkeypatch.setenv("WATERSHED_TOPOLOGIES", str(path))
    return path


def load(*broken: str) -> DagBag:
    """broken: the files that the one import error names, which there is not without them."""
    bag = DagBag(dag_folder=str(Path(__file__).resolve().parents[2] / "dags"))
    errors = {Path(path).name: told for path, told in bag.import_errors.items()}
    assert set(errors) == ({"broken_topologies.py"} if broken else set())
    for name in broken:
        assert f"{name}: the report is in the DAG" in errors["broken_topologies.py"]
    return bag


def test_every_file_has_its_dags(folder: Path) -> None:
    assert set(load().dags) == {
        *(f"{kind}__orders" for kind in (*ALWAYS, *KINDS)),
        *(f"{kind}__plain" for kind in ALWAYS),
    }


def test_a_file_may_have_its_fleets_healed_and_supervised_by_airflow(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load().dags["fleet__plain"].schedule is None
    path = folder / "plain.yaml"
    path.write_text(path.read_text().replace("    naming:", "    workers: {placement: task, heal: 30s}\n    naming:"))
    dags = load().dags
    assert dags["fleet__plain"].schedule == timedelta(seconds=30)
    assert dags["fleet__plain"].is_paused_upon_creation is False
    assert list_supervised(dags) == {"supervise__plain": {"default"}}
    assert set(dags["supervise__plain"].task_ids) == {"compile", "supervise_cloud", "supervise_onprem"}


def list_supervised(dags: dict[str, Any]) -> dict[str, set[str]]:
    """Queues of the tasks that supervise, by DAG."""
    found = {name: dag for name, dag in dags.items() if name.startswith("supervise")}
    return {name: {t.queue for t in dag.tasks if t.task_id != "compile"} for name, dag in found.items()}


def test_tasks_stand_by_in_dags_of_their_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its next run when its last one has failed, whatever the others do."""
    path = folder / "plain.yaml"
    path.write_text(path.read_text().replace("    naming:", "    workers: {placement: task}\n    naming:"))
    monkeypatch.setenv("WATERSHED_STATE_SHARED", "no")
    assert list_supervised(load().dags) == {"supervise__plain": {"default"}, "supervise_2__plain": {"default"}}
    monkeypatch.setenv("WATERSHED_SUPERVISOR_QUEUES", "rack-1, rack-2,rack-3")
    dags = load().dags
    assert list_supervised(dags) == {
        "supervise__plain": {"rack-1"},
        "supervise_2__plain": {"rack-2"},
        "supervise_3__plain": {"rack-3"},
    }
    for name in list_supervised(dags):
        assert set(dags[name].task_ids) == {"compile", "supervise_cloud", "supervise_onprem"}
        assert dags[name].get_task("compile").queue == "default"
        assert (dags[name].schedule, dags[name].max_active_runs) == ("@continuous", 1)
        assert dags[name].max_active_tasks == 4
    monkeypatch.setenv("WATERSHED_SUPERVISOR_QUEUES", ",".join(f"rack-{number}" for number in range(10)))
    [(name, _)] = list_supervised(dags := load().dags).items()
    assert name == "supervise__plain"
    assert "names 10 queues, and takes up to 9" in (dags[name].doc_md or "")


def test_without_a_folder_there_are_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WATERSHED_TOPOLOGIES")
    assert load().dags == {}


@pytest.mark.parametrize(
    "content",
    ["", "a: [", "kind: Other\n", TOPOLOGY.replace("NAME", "broken").replace("active: onprem", "activ: onprem")],
)
def test_broken_file_becomes_a_report_and_harms_no_other(folder: Path, content: str) -> None:
    (folder / "broken.yaml").write_text(content)
    dags = load("broken.yaml").dags
    assert {"replicate__orders", "migrate__orders", "replicate__plain", "replicate__broken"} <= set(dags)
    report = dags["replicate__broken"]
    assert "broken" in report.tags
    assert "broken.yaml" in (report.doc_md or "")
    with pytest.raises(AirflowFailException, match=r"broken\.yaml"):
        report.get_task("report").execute({})


def test_a_file_that_breaks_keeps_its_dags_for_the_runs_that_are_under_way(folder: Path) -> None:
    """Airflow ends a run whose tasks vanish. A new run fails at its first task."""
    before = load().dags["migrate__orders"].task_ids
    (folder / "orders.yaml").write_text((folder / "orders.yaml").read_text().replace("active: onprem", "activ: onprem"))
    dag = load("orders.yaml").dags["migrate__orders"]
    assert dag.task_ids == before
    assert "broken" in dag.tags
    assert "orders.yaml does not compile any more" in (dag.doc_md or "")
    with pytest.raises(AirflowFailException, match="activ"):
        dag.get_task("compile").execute({})


def test_second_file_of_a_name_does_not_replace_the_first(folder: Path) -> None:
    (folder / "twin.yaml").write_text(TOPOLOGY.replace("NAME", "orders"))
    dags = load("twin.yaml").dags
    assert "orders.check" in dags["migrate__orders"].task_ids
    assert "taken by" in (dags["replicate__orders.twin"].doc_md or "")


def test_dags_are_small_files() -> None:
    dags = Path(__file__).resolve().parents[2] / "dags"
    assert max(len(path.read_text().splitlines()) for path in dags.glob("*.py")) <= 80


def test_compiled_plan_is_remembered_and_renewed(folder: Path, state: Path) -> None:
    load()
    assert len(list((state / "compiled").glob("*.json"))) == 2
    (folder / "plain.yaml").write_text(TOPOLOGY.replace("NAME", "renamed"))
    assert "replicate__renamed" in load().dags


def stages_of_wave(folder: Path, wave: str) -> list[str]:
    """Task ids."""
    run_plan = preview_run_plan(compile_path(folder / "orders.yaml"), "migrate", wave)
    return [f"{wave}.{row.task}" for row in list_stage_tasks(run_plan)]


def test_a_wave_is_a_chain_of_its_stages_and_takes_back_only_itself(folder: Path) -> None:
    (folder / "orders.yaml").write_text(TOPOLOGY.replace("NAME", "orders") + MIGRATION.rstrip() + SECOND)
    dag = load().dags["migrate__orders"]
    assert dag.max_active_runs == 1
    orders, stock = stages_of_wave(folder, "orders"), stages_of_wave(folder, "stock")
    assert stock == [
        f"stock.{name}" for name in ("check", "approval_team-a", "approval_team-b", "move_applications", "seal")
    ]
    for wave, chain in (("orders", orders), ("stock", stock)):
        for task, following in zip([f"{wave}.begin", *chain], [*chain, f"{wave}.end"], strict=True):
            assert following in dag.get_task(task).downstream_task_ids
        undo = dag.get_task(f"{wave}.take_back")
        assert {task.partition(".")[0] for task in undo.upstream_task_ids} == {wave}
        assert set(chain) <= undo.upstream_task_ids
        assert undo.trigger_rule == TriggerRule.ONE_FAILED
    assert "stock.begin" in dag.get_task("orders.end").downstream_task_ids
    assert dag.get_task("watcher").upstream_task_ids == set(dag.task_ids) - {"watcher"}
    assert type(dag.get_task("stock.approval_team-b")).__name__ == "CutoverApprovalOperator"
    assert {asset.uri for asset in dag.get_task("stock.end").outlets} == {"watershed://orders/cutover"}


def test_the_waves_go_in_the_order_of_after(folder: Path) -> None:
    head, orders = MIGRATION.split("  waves:")
    (folder / "orders.yaml").write_text(TOPOLOGY.replace("NAME", "orders") + head + "  waves:" + SECOND + orders[1:])
    dags = load().dags
    assert dags["migrate__orders"].params["waves"] == ["orders", "stock"]
    assert dags["rollback__orders"].params.get_param("waves").value == []
    assert "orders.begin" in dags["rollback__orders"].get_task("stock.end").downstream_task_ids


def test_what_comes_after_a_cutover_begins_by_its_asset(folder: Path) -> None:
    dag = load().dags["after_cutover__orders"]
    assert "watershed://orders/cutover" in repr(dag.timetable.asset_condition)
    assert dag.task_ids == ["compile", "straggler_watch", "verify"]
    (folder / "orders.yaml").write_text(
        TOPOLOGY.replace("NAME", "orders") + MIGRATION + "  decommission: {not_before: 7d, requires: [verify_full]}\n"
    )
    assert load().dags["after_cutover__orders"].task_ids[-1] == "what_is_left"


@pytest.mark.parametrize("dag_id", [f"{kind}__orders" for kind in (*ALWAYS, *KINDS)])
def test_every_parameter_is_described_and_has_a_valid_default(folder: Path, dag_id: str) -> None:
    dag = load().dags[dag_id]
    for name in dag.params:
        param = dag.params.get_param(name)
        assert param.description, name
        # Airflow's form keeps its button disabled while a parameter that may not be null is empty.
        assert param.value not in (None, "") or "null" in param.schema["type"], name
    dag.params.validate()


@pytest.mark.parametrize(
    ("dag_id", "wrong"),
    [
        ("migrate__orders", {"waves": ["none"]}),
        ("migrate__orders", {"waves": "orders"}),
        ("migrate__orders", {"strategy": "at once"}),
        ("migrate__orders", {"approval": "yes"}),
        ("migrate__orders", {"plan_hash": "sha256:1"}),
        ("failover__orders", {"accept_loss": "-1"}),
        ("failover__orders", {"accept_loss": -1}),
        ("failover__orders", {"accept_loss": "some"}),
        ("failover__orders", {"though_source_answers": "yes"}),
        ("failover__orders", {"waves": ["none"]}),
        ("failback__orders", {"divergence": "merge"}),
        ("rollback__orders", {"stranded": "drop"}),
        ("verify__orders", {"flow": "a-to-b"}),
        ("verify__orders", {"level": "L9"}),
        ("replicate__orders", {"workers": 0}),
        ("replicate__orders", {"approval": "yes"}),
        ("migrate__orders", {"waves": []}),
        ("rollback__orders", {"waves": []}),
        ("operate__orders", {"operation": "accept-gap"}),
        ("operate__orders", {"flow": "a-to-b"}),
        ("decide__orders", {"operation": "pause"}),
        ("decide__orders", {"partition": -1}),
        ("decide__orders", {"accept": ["changed"]}),
        ("inspect__orders", {"operation": "worker"}),
        ("inspect__orders", {"cluster": "elsewhere"}),
        ("drill__orders", {"wave": "none"}),
        ("drill__orders", {"records": 0}),
    ],
)
def test_wrong_parameters_are_refused(folder: Path, dag_id: str, wrong: dict[str, object]) -> None:
    params = load().dags[dag_id].params
    [(name, value)] = wrong.items()
    with pytest.raises(ParamValidationError):
        params.get_param(name).resolve(value)


# That of the file is consumers_first.
@pytest.mark.parametrize("strategy", ["as in the file", pytest.param("fenced", marks=pytest.mark.soak)])
def test_dry_run_tells_every_step_and_touches_nothing(folder: Path, strategy: str) -> None:
    """Its clusters do not exist: a step that looked at them would fail. Nobody can take the run for a move."""
    run = load().dags["migrate__orders"].test(run_conf={"dry_run": True, "strategy": strategy})
    assert run.state == "success"
    states = {ti.task_id: ti.state for ti in run.get_task_instances()}
    assert {name for name, state in states.items() if state == "success"} == {
        *("compile", "orders.begin", "orders.dry_run")
    }
    assert set(states.values()) == {"success", "skipped"}
    told = next(ti for ti in run.get_task_instances() if ti.task_id == "orders.dry_run").xcom_pull("orders.dry_run")
    plan = compile_path(folder / "orders.yaml")
    run_plan = preview_run_plan(plan, "migrate", "orders", strategy)
    assert told == "\n".join([*describe_run(plan, run_plan), "", "Nothing was touched."])
    assert "POINT OF NO RETURN" in told


@pytest.mark.parametrize("kind", ["rollback", "failover", "failback"])
def test_dry_run_of_a_way_back(folder: Path, kind: str) -> None:
    run = load().dags[f"{kind}__orders"].test(run_conf={"dry_run": True})
    assert run.state == "success"
    states = {ti.task_id: ti.state for ti in run.get_task_instances()}
    group = "orders" if kind == "rollback" else "everything"
    assert {name for name, state in states.items() if state == "success"} == {
        *("compile", f"{group}.begin", f"{group}.dry_run")
    }


def test_a_rollback_of_one_wave_is_preselected_and_one_of_several_is_asked_for(folder: Path) -> None:
    """A run that would fail after a minute is not accepted at all."""
    assert load().dags["rollback__orders"].params["waves"] == ["orders"]
    more = SECOND.replace("{none: it is only stock}", "{until: 24h, reverse: cloud-to-onprem}")
    (folder / "orders.yaml").write_text(TOPOLOGY.replace("NAME", "orders") + MIGRATION.rstrip() + more)
    dag = load().dags["rollback__orders"]
    with pytest.raises(ParamValidationError, match="should be non-empty"):
        dag.params.validate()
    dag.params.get_param("waves").resolve(["stock"])


def test_a_wave_that_is_not_chosen_is_skipped(folder: Path) -> None:
    (folder / "orders.yaml").write_text(TOPOLOGY.replace("NAME", "orders") + MIGRATION.rstrip() + SECOND)
    run = load().dags["migrate__orders"].test(run_conf={"dry_run": True, "waves": ["stock"]})
    states = {ti.task_id: ti.state for ti in run.get_task_instances()}
    assert {state for name, state in states.items() if name.startswith("orders.")} == {"skipped"}
    assert (states["stock.begin"], states["stock.dry_run"]) == ("success", "success")


def test_plan_hash_other_than_asked_for_ends_the_run(folder: Path) -> None:
    run = load().dags["replicate__orders"].test(run_conf={"plan_hash": "sha256:" + "0" * 64})
    assert run.state == "failed"
    assert {ti.task_id: ti.state for ti in run.get_task_instances()}["apply"] == "upstream_failed"


def test_a_folder_of_parts_is_one_topology(folder: Path) -> None:
    parts = folder / "shared"
    parts.mkdir()
    head, _, flows = TOPOLOGY.replace("NAME", "shared").partition("pattern:")
    (parts / "clusters.yaml").write_text(head)
    (parts / "flows.yaml").write_text(
        head.partition("clusters:")[0].replace(", owner: team-orders", "") + "pattern:" + flows
    )
    (folder / "topology.lint.yaml").write_text("profile: strict\n")
    dags = load().dags
    assert {name for name in dags if name.endswith("__shared")} == {f"{kind}__shared" for kind in ALWAYS}
    assert not [name for name in dags if "lint" in name]
    frozen = freeze_plan(parts)
    assert compile_path(frozen.topology).hash == frozen.hash == frozen.read().hash


def test_a_proof_on_a_schedule(folder: Path) -> None:
    (folder / "plain.yaml").write_text(
        TOPOLOGY.replace("NAME", "plain").replace("    naming:", "    verify: {every: 6h}\n    naming:")
    )
    dags = load().dags
    assert dags["verify__plain"].schedule == timedelta(hours=6)
    assert dags["verify__orders"].schedule is None


LATE = """
    - name: reports
      strategy: consumers_last
      topics: [orders.created]
      consumers: [monthly-reports]
      gates:
        before: [{lag: {max_records: 0, hold: 2s}}, {verify: {level: L1}}, {approval: team-reports}]
"""


def test_a_wave_of_late_groups_has_its_tasks_in_every_dag(folder: Path) -> None:
    """It comes last, moves nobody but consumers, and has one order of steps."""
    path = folder / "orders.yaml"
    first = MIGRATION.replace("    billing:", '    monthly-reports: {http: "http://127.0.0.1:11"}\n    billing:')
    path.write_text(TOPOLOGY.replace("NAME", "orders") + first + LATE)
    dags = load().dags
    dag = dags["migrate__orders"]
    tasks = [task for task in dag.task_ids if task.startswith("reports.")]
    assert not any("other_strategy" in task for task in tasks)
    assert any("orders.other_strategy" in task for task in dag.task_ids)
    assert {"reports.check", "reports.approval", "reports.move_consumers", "reports.dry_run", "reports.end"} <= set(
        tasks
    )
    assert not any("producers" in task for task in tasks)
    assert "orders.end" in dag.get_task("reports.begin").upstream_task_ids
    told = {task: dag.get_task(f"reports.{task}").row.steps for task in ("check", "move_consumers")}
    assert told["check"] == ("preflight", "lag_gate", "history_proof")
    assert told["move_consumers"][:3] == ("stop_consumers", "translate_offsets", "commit_offsets")
    plan = compile_path(path)
    asked = preview_run_plan(plan, "migrate", "reports", "fenced")
    assert [step.name for step in asked.steps] == [
        step.name for step in preview_run_plan(plan, "migrate", "reports").steps
    ]
    back = dags["rollback__orders"]
    assert "reports.end" in back.get_task("orders.begin").upstream_task_ids
    steps = [
        step
        for task in back.tasks
        if task.task_id.startswith("reports.")
        for step in getattr(getattr(task, "row", None), "steps", ())
    ]
    assert "forget_groups" in steps
    assert "fence_producers" not in steps
