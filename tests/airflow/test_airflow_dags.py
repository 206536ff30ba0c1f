"""The DAGs: one set a topology file, whatever the other files look like."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import TriggerRule
from airflow.sdk.exceptions import AirflowFailException, ParamValidationError

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
STEPS = [
    "preflight", "lag_gate", "history_proof", "approval", "stop_consumers", "translate_offsets", "commit_offsets",
    "landing_test", "start_consumers", "soak", "fence_producers", "standstill", "barrier", "drain", "tail_proof",
    "point_of_no_return", "switch_producers", "canary", "seal",
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, state: Path, airflow_database: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of topologies: `orders` with a migration, `plain` without."""
    path = tmp_path / "topologies"
    path.mkdir()
    (path / "orders.yaml").write_text(TOPOLOGY.replace("NAME", "orders") + MIGRATION)
    (path / "plain.yaml").write_text(TOPOLOGY.replace("NAME", "plain"))
    monkeypatch.setenv("WATERSHED_TOPOLOGIES", str(path))
    return path


def load() -> DagBag:
    bag = DagBag(dag_folder=str(Path(__file__).resolve().parents[2] / "dags"))
    assert bag.import_errors == {}
    return bag


def test_every_file_has_its_dags(folder: Path) -> None:
    assert set(load().dags) == {
        *("replicate__orders", "verify__orders", "migrate__orders"),
        *("replicate__plain", "verify__plain"),
    }


def test_without_a_folder_there_are_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WATERSHED_TOPOLOGIES")
    assert load().dags == {}


@pytest.mark.parametrize(
    "content",
    ["", "a: [", "kind: Other\n", TOPOLOGY.replace("NAME", "broken").replace("active: onprem", "activ: onprem")],
)
def test_broken_file_becomes_a_report_and_harms_no_other(folder: Path, content: str) -> None:
    (folder / "broken.yaml").write_text(content)
    dags = load().dags
    assert {"replicate__orders", "migrate__orders", "replicate__plain", "replicate__broken"} <= set(dags)
    report = dags["replicate__broken"]
    assert "broken" in report.tags
    assert "broken.yaml" in (report.doc_md or "")
    with pytest.raises(AirflowFailException, match=r"broken\.yaml"):
        report.get_task("report").execute({})


def test_second_file_of_a_name_does_not_replace_the_first(folder: Path) -> None:
    (folder / "twin.yaml").write_text(TOPOLOGY.replace("NAME", "orders"))
    dags = load().dags
    assert "preflight" in dags["migrate__orders"].task_ids
    assert "taken by" in (dags["replicate__orders.twin"].doc_md or "")


def test_dags_are_small_files() -> None:
    dags = Path(__file__).resolve().parents[2] / "dags"
    assert max(len(path.read_text().splitlines()) for path in dags.glob("*.py")) <= 80


def test_compiled_plan_is_remembered_and_renewed(folder: Path, state: Path) -> None:
    load()
    assert len(list((state / "compiled").glob("*.json"))) == 2
    (folder / "plain.yaml").write_text(TOPOLOGY.replace("NAME", "renamed"))
    assert "replicate__renamed" in load().dags


def test_migration_is_a_chain_of_steps_with_rollback_and_watcher(folder: Path) -> None:
    dag = load().dags["migrate__orders"]
    assert dag.max_active_runs == 1
    chain = ["compile", *STEPS]
    for task, following in zip(chain, STEPS, strict=False):
        assert following in dag.get_task(task).downstream_task_ids
    rollback, watcher = dag.get_task("rollback"), dag.get_task("watcher")
    assert rollback.upstream_task_ids == set(STEPS)
    assert watcher.upstream_task_ids == {*STEPS, "rollback"}
    assert rollback.trigger_rule == watcher.trigger_rule == TriggerRule.ONE_FAILED
    assert {dag.get_task(step).retries for step in STEPS} == {0}
    assert type(dag.get_task("approval")).__name__ == "CutoverApprovalOperator"


@pytest.mark.parametrize("dag_id", ["replicate__orders", "verify__orders", "migrate__orders"])
def test_every_parameter_is_described_and_has_a_valid_default(folder: Path, dag_id: str) -> None:
    dag = load().dags[dag_id]
    for name in dag.params:
        assert dag.params.get_param(name).description, name
    dag.params.validate()


@pytest.mark.parametrize(
    ("dag_id", "wrong"),
    [
        ("migrate__orders", {"wave": "none"}),
        ("migrate__orders", {"approval": "yes"}),
        ("migrate__orders", {"plan_hash": "sha256:1"}),
        ("verify__orders", {"flow": "a-to-b"}),
        ("verify__orders", {"level": "L9"}),
        ("replicate__orders", {"workers": 0}),
    ],
)
def test_wrong_parameters_are_refused(folder: Path, dag_id: str, wrong: dict[str, object]) -> None:
    params = load().dags[dag_id].params
    [(name, value)] = wrong.items()
    with pytest.raises(ParamValidationError):
        params.get_param(name).resolve(value)


def test_dry_run_tells_every_step_and_touches_nothing(folder: Path) -> None:
    """Its clusters do not exist: a step that looked at them would fail."""
    run = load().dags["migrate__orders"].test(run_conf={"dry_run": True})
    assert run.state == "success"
    states = {ti.task_id: ti.state for ti in run.get_task_instances()}
    assert {states[step] for step in STEPS} == {"success"}
    assert states["rollback"] == states["watcher"] == "skipped"


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
    assert {name for name in dags if name.endswith("__shared")} == {"replicate__shared", "verify__shared"}
    assert not [name for name in dags if "lint" in name]


def test_a_proof_on_a_schedule(folder: Path) -> None:
    (folder / "plain.yaml").write_text(
        TOPOLOGY.replace("NAME", "plain").replace("    naming:", "    verify: {every: 6h}\n    naming:")
    )
    dags = load().dags
    assert dags["verify__plain"].schedule == timedelta(hours=6)
    assert dags["verify__orders"].schedule is None
