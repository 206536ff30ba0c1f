"""Topology files that do not compile, badly named ones among them: what becomes of their DAGs, and of all others.

Airflow marks every DAG of a file as stale when the file has an import error; so only one without DAGs may have one.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowFailException

from tests.airflow.test_airflow_dags import MIGRATION, TOPOLOGY, load
from watershed.plugins import topology_dags

pytestmark = pytest.mark.airflow
KINDS = ("migrate", "rollback", "failover", "failback", "after_cutover", "drill", "abandon")
HEALTHY = {
    *(f"{kind}__orders" for kind in ("replicate", "verify", "inspect", "operate", "decide", "fleet")),
    *(f"{kind}__orders" for kind in KINDS),
}


@pytest.fixture
def folder(tmp_path: Path, state: Path, airflow_database: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One healthy topology with all kinds of DAGs."""
    path = tmp_path / "topologies"
    path.mkdir()
    (path / "orders.yaml").write_text(TOPOLOGY.replace("NAME", "orders") + MIGRATION)
    monkeypatch.setenv("WATERSHED_TOPOLOGIES", str(path))
    return path


@pytest.mark.parametrize(
    ("name", "dag"),
    [
        ("orders (copy).yaml", "orders__copy_"),
        ("$(id).yaml", "__id_"),
        ("über uns.yaml", "_ber_uns"),
        ("...yaml", "_"),
        ("a\u202eb.yaml", "a_b"),
        (f"{'x' * 240}.yaml", "x" * 100),
    ],
)
def test_a_badly_named_broken_file_has_a_report_and_harms_no_other(folder: Path, name: str, dag: str) -> None:
    (folder / name).write_text("kind: Nothing\n")
    dags = load(topology_dags.escape_controls(name)).dags
    assert set(dags) == HEALTHY | {f"{kind}__{dag}" for kind in ("replicate", "verify", "migrate")}
    with pytest.raises(AirflowFailException, match="topology"):
        dags[f"replicate__{dag}"].get_task("report").execute({})


def test_a_name_that_is_no_text_harms_no_other(folder: Path) -> None:
    Path(os.fsdecode(bytes(folder) + b"/caf\xe9.yaml")).write_text(TOPOLOGY.replace("NAME", "cafe"))
    dags = load("caf\\udce9.yaml").dags
    assert set(dags) > HEALTHY
    (dags["replicate__caf_"].doc_md or "").encode()  # as the database takes it


def test_what_is_no_file_is_a_problem_and_is_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe.yaml")
    (folder / "loop.yaml").symlink_to(folder / "loop.yaml")
    dags = load("pipe.yaml", "loop.yaml").dags
    assert "neither a file nor a folder" in (dags["replicate__pipe"].doc_md or "")
    assert set(dags) > HEALTHY


def test_two_broken_files_of_one_name_are_both_named(folder: Path) -> None:
    names = ("orders (copy).yaml", "orders [copy].yaml", "orders {copy}.yaml")
    for name in names:
        (folder / name).write_text("kind: Nothing\n")
    dags = load(*names).dags
    told = dags["replicate__orders__copy_.orders__copy_"].doc_md or ""
    assert all(name in told for name in names[:2])
    assert "rename one of the two files" in told
    third = dags["replicate__orders__copy_.orders__copy_.2"].doc_md or ""
    assert names[2] in third
    assert set(dags) > HEALTHY


def test_a_broken_file_takes_no_name_from_one_that_compiles(folder: Path) -> None:
    (folder / "orders.yaml").rename(folder / "shop.yaml")
    (folder / "orders.yaml").write_text("kind: Nothing\n")
    dags = load("orders.yaml").dags
    assert "orders.check" in dags["migrate__orders"].task_ids
    assert "taken by" in (dags["replicate__orders.orders"].doc_md or "")


def test_a_dag_that_cannot_be_built_becomes_a_report(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a builder stumbles over: not even half a DAG is left of it."""
    (folder / "plain.yaml").write_text(TOPOLOGY.replace("NAME", "plain"))
    from airflow.sdk import DAG, BaseOperator

    def build(file: topology_dags.TopologyFile) -> DAG:
        with DAG(dag_id=f"verify__{file.name}", schedule=None, auto_register=False) as dag:
            BaseOperator(task_id="half")
            if file.name == "plain":
                raise ValueError("no such thing as ```\x1b")
        return dag

    found = topology_dags.build_topology_dags("verify", build, lambda _: True)
    assert found["verify__orders"].task_ids == ["half"]
    assert found["verify__plain"].task_ids == ["report"]
    assert "no such thing as '''\\x1b" in (found["verify__plain"].doc_md or "")


def test_the_import_error_tells_nothing_of_what_is_in_a_file(folder: Path) -> None:
    """Airflow shows it to everybody who may see import errors."""
    (folder / "broken.yaml").write_text("kind: Nothing\nsecretive: hush\n")
    load("broken.yaml")
    with pytest.raises(topology_dags.BrokenTopologies) as told:
        topology_dags.require_compiled_topologies()
    assert "hush" not in str(told.value)
    assert "secretive" not in str(told.value)


def test_no_file_of_dags_registers_by_itself() -> None:
    """What a builder leaves half done would come in beside its report."""
    for path in (Path(__file__).resolve().parents[2] / "dags").glob("*.py"):
        text = path.read_text()
        assert text.count("DAG(\n") == text.count("auto_register=False"), path
