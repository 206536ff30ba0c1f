"""`verify__<name>`: what a run leaves for subscribers and on its page, and who may see it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowSkipException
from airflow.sdk.execution_time.context import OutletEventAccessors
from fastapi.testclient import TestClient

from tests.airflow.page_world import all_known, proof_in
from tests.airflow.test_airflow_dags import TOPOLOGY, load
from watershed.plugins.operators import proof
from watershed.plugins.operators.proof import (
    ProofOperator,
    PublishProofOperator,
    build_proof_asset,
    build_report_path,
    find_newest_proof,
    read_proof_result,
)
from watershed.plugins.operators.spark_application import SparkApplicationOperator
from watershed.plugins.page import proof_reports
from watershed.plugins.state_folder import find_frozen_plan
from watershed.spark.judging.proof_window import PartitionPair

pytestmark = pytest.mark.airflow
RUN = "manual__2026-11-21T22:00:00+00:00"
COUNTS = dict.fromkeys((*proof.PROOF_COUNTS, "proven_earlier"), 0)


def attempt(state: Path, run: str = RUN, task: str = "prove", number: int = 1, **summary: Any) -> Path:
    """The folder of an attempt as `spark.verify` leaves it."""
    folder = proof.locate_run_folder("verify__orders", run) / task / str(number)
    assert folder.is_relative_to(state.resolve())
    folder.mkdir(parents=True)
    (folder / "process.json").write_text(json.dumps({"pid": 1, "module": "watershed.spark.verify"}))
    (folder / "log").write_text("window fixed\nread 3 of 12 <chunks>\n")
    if summary:
        told = {"unproven": 0, **COUNTS, "proof_root": "sha256:1", "plan_hash": "sha256:2", "level": "L2"}
        told |= {"mode": "rolling", "findings": [], "records": 0, "ended_at": "now", "error": "not told"}
        (folder / "summary.json").write_text(json.dumps(told | summary))
        (folder / "report.html").write_text(f"<h1>{summary['verdict']}</h1>")
    return folder


def context(run: str = RUN) -> Any:
    pushed: dict[str, Any] = {}
    ti = SimpleNamespace(
        dag_id="verify__orders", run_id=run, task_id="prove", map_index=-1, pushed=pushed, xcom_push=pushed.__setitem__
    )
    return {"ti": ti, "outlet_events": OutletEventAccessors()}


@pytest.mark.parametrize("verdict", ["proven", "repeated", "different", "incomplete"])
def test_every_verdict_is_an_event(state: Path, verdict: str) -> None:
    attempt(state, verdict="error", number=1)
    newest = attempt(state, verdict=verdict, unproven=3, proven=7, number=2)
    task, seen = PublishProofOperator(task_id="publish", topology="orders", proof="prove"), context()
    task.execute(seen)
    extra = seen["outlet_events"][build_proof_asset("orders")].extra
    assert (extra["verdict"], extra["unproven"], extra["proven"], extra["proof_root"]) == (verdict, 3, 7, "sha256:1")
    assert extra["path"] == str(newest / "summary.json")
    assert extra["report"] == build_report_path("verify__orders", RUN, "prove")
    assert "error" not in extra


def test_a_verdict_is_told_once(state: Path) -> None:
    """A run is cleared and no proof is made: the old verdict is not sent for a new one."""
    attempt(state, verdict="proven")
    task = PublishProofOperator(task_id="publish", topology="orders", proof="prove")
    task.execute(context())
    with pytest.raises(AirflowSkipException, match="told before"):
        task.execute(context())
    attempt(state, verdict="different", number=2)
    assert task.execute(context())["verdict"] == "different"


def test_the_level_comes_from_the_file(tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = TOPOLOGY.replace("NAME", "deep").replace("    naming:", "    verify: {level: L3}\n    naming:")
    (tmp_path / "deep.yaml").write_text(text)
    (tmp_path / "plain.yaml").write_text(TOPOLOGY.replace("NAME", "plain"))
    monkeypatch.setenv("WATERSHED_TOPOLOGIES", str(tmp_path))
    dags = load().dags
    assert [dags[f"verify__{name}"].params["level"] for name in ("deep", "plain")] == ["L3", "L1"]


def test_no_verdict_is_no_event(state: Path) -> None:
    task = PublishProofOperator(task_id="publish", topology="orders", proof="prove")
    with pytest.raises(AirflowSkipException):
        task.execute(context())
    attempt(state, verdict="error")
    with pytest.raises(AirflowSkipException):
        task.execute(context())


def test_a_broken_summary_is_no_silence(state: Path) -> None:
    folder = attempt(state, verdict="proven")
    (folder / "summary.json").write_text('{"verdict": "proven"}')
    with pytest.raises(AirflowException, match="not the summary of a proof"):
        read_proof_result(folder.parent)


def test_a_failed_proof_is_told_and_fails_the_run(
    tmp_path: Path, state: Path, airflow_database: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole DAG, with a program in the proof's place that finds a difference."""
    folder = tmp_path / "topologies"
    folder.mkdir()
    (folder / "orders.yaml").write_text(TOPOLOGY.replace("NAME", "orders"))
    monkeypatch.setenv("WATERSHED_TOPOLOGIES", str(folder))
    dag = load().dags["verify__orders"]
    prove = dag.get_task("prove")
    assert isinstance(prove, ProofOperator)
    prove.module = "tests.airflow.programs.proof"
    prove.arguments = ["--out", "{out}", "--verdict", "different", "--whole"]
    run = dag.test()
    states = {ti.task_id: ti.state for ti in run.get_task_instances()}
    assert states == {"compile": "success", "prove": "failed", "publish": "success"}
    assert run.state == "failed"
    [event] = _events("watershed://proof/orders")
    assert (event["verdict"], event["unproven"]) == ("different", 3)


def _events(uri: str) -> list[dict[str, Any]]:
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        found = session.scalars(
            select(AssetEvent).join(AssetModel, AssetModel.id == AssetEvent.asset_id).where(AssetModel.uri == uri)
        )
        return [dict(event.extra) for event in found]


def test_a_proof_builds_on_the_newest_one_that_has_proven_something(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(SparkApplicationOperator, "execute", lambda self, _context: started.append(self.arguments))
    proven = _summary(attempt(state, "run1", verdict="proven"))
    _summary(attempt(state, "run2", verdict="error"))
    for incremental in (True, False):
        ProofOperator(task_id="prove", plan="sha256:1", arguments=["--x"], incremental=incremental).execute(context())
    assert started == [["--x", "--since", str(proven)], ["--x"]]


def test_without_an_earlier_proof_everything_is_read(state: Path) -> None:
    attempt(state, "run1", verdict="error")
    assert find_newest_proof(proof.locate_run_folder("verify__orders", RUN) / "prove") is None


def _summary(folder: Path) -> Path:
    """A summary that a proof can build on, unless it is an error's."""
    from watershed.clusters.record_fingerprint import FINGERPRINT_VERSION
    from watershed.spark.evidence.parquet_tables import encode_parquet
    from watershed.spark.judging.merkle_tree import compute_merkle_root

    verdict = json.loads((folder / "summary.json").read_text())["verdict"]
    empty = {**PartitionPair("f", "t", "t", 0)._asdict(), "source_start": 0, "source_end": 0, "target_start": 0}
    document = {
        "schema": 2,
        "verdict": verdict,
        "level": "L2",
        "fingerprint": FINGERPRINT_VERSION,
        "proof_root": compute_merkle_root([]),
    }
    document |= {"window": {"partitions": [empty | {"source_id": "a", "target_id": "b", "target_end": 0}]}}
    (folder / "chunks.parquet").write_bytes(encode_parquet("chunks", []))
    (folder / "summary.json").write_text(json.dumps(document))
    return folder / "summary.json"


def test_the_link_is_there_while_the_proof_runs(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkApplicationOperator, "execute", lambda *_: None)
    seen = context()
    ProofOperator(task_id="prove", plan="sha256:1", arguments=[], incremental=False).execute(seen)
    [link] = seen["ti"].pushed.values()
    assert link == (
        "/watershed/proof?dag_id=verify__orders&run_id=manual__2026-11-21T22%3A00%3A00%2B00%3A00&task_id=prove"
    )


@pytest.fixture
def allowed(airflow_database: None) -> Iterator[TestClient]:
    """The route as a user sees it who may read everything."""
    from airflow.api_fastapi.core_api import security

    routes = proof_reports._routes()
    client = TestClient(routes)
    routes.dependency_overrides[security.get_user] = lambda: SimpleNamespace(get_id=lambda: "1", get_name=lambda: "a")
    manager = SimpleNamespace(is_authorized_dag=lambda **asked: asked["details"].id != "verify__secret")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(security, "get_auth_manager", lambda: manager)
        patch.setattr("watershed.plugins.page.user_rights._known", all_known)
        yield client
    routes.dependency_overrides.clear()


def get(client: TestClient, **query: str) -> Any:
    return client.get("/proof", params={"dag_id": "verify__orders", "run_id": RUN, **query})


def test_the_tab_shows_the_newest_report(state: Path, allowed: TestClient) -> None:
    attempt(state, verdict="error")
    attempt(state, verdict="proven", number=2)
    answer = get(allowed)
    assert answer.text == "<h1>proven</h1>"
    assert "script" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert get(allowed, task_id="prove").text == answer.text


def test_the_tab_of_a_run_without_a_report_says_why(state: Path, allowed: TestClient) -> None:
    assert "holds no proof" in get(allowed).text
    attempt(state)
    assert "read 3 of 12 &lt;chunks&gt;" in get(allowed).text


def test_the_tab_shows_the_log_of_a_tail_that_another_application_proves(state: Path, allowed: TestClient) -> None:
    folder = proof.locate_run_folder("verify__orders", RUN) / "all.tail_proof" / "1"
    folder.mkdir(parents=True)
    (folder / "ordered").touch()
    (folder / "verify.log").write_text("round 1: 5 of 9 records read")
    assert "round 1: 5 of 9" in get(allowed).text
    (folder / "verify.log").rename(state / "verify.log")
    (folder / "verify.log").symlink_to(state / "verify.log")
    assert "(no log)" in get(allowed).text


def test_several_proofs_of_a_run_are_listed(state: Path, allowed: TestClient) -> None:
    attempt(state, verdict="proven")
    attempt(state, verdict="proven", task="tail_proof")
    assert "task_id=tail_proof" in get(allowed).text


def test_nobody_sees_it_without_a_right(state: Path, allowed: TestClient) -> None:
    attempt(state, verdict="proven")
    assert get(allowed, dag_id="verify__secret").status_code == 403
    proof_reports._routes().dependency_overrides.clear()
    assert get(allowed).status_code == 401


@pytest.mark.parametrize("name", ["../../plans", "..", ".", "/etc", "prove/../../..", "%2e%2e%2fplans"])
def test_no_name_leads_out_of_the_folder(state: Path, allowed: TestClient, name: str) -> None:
    attempt(state, verdict="proven")
    secret = state / "plans" / "1"
    secret.mkdir(parents=True)
    (secret / "report.html").write_text("secret")
    (secret / "process.json").write_text(json.dumps({"pid": 1, "module": "watershed.spark.verify"}))
    for asked in ({"task_id": name}, {"run_id": name}, {"dag_id": name}):
        assert "secret" not in get(allowed, **asked).text


def test_no_link_leads_out_of_the_folder(state: Path, allowed: TestClient, tmp_path: Path) -> None:
    folder = attempt(state, verdict="proven")
    (tmp_path / "secret.html").write_text("secret")
    (folder / "report.html").unlink()
    (folder / "report.html").symlink_to(tmp_path / "secret.html")
    assert "secret" not in get(allowed).text


@pytest.mark.parametrize("linked", ["report.html", "log", "1", "prove", "run", "dag"])
def test_no_link_leads_to_a_proof_with_other_readers(state: Path, allowed: TestClient, linked: str) -> None:
    """Wherever on the way it stands: whoever may read this DAG need not be let into that one."""
    hidden = proof_in(state, "verify__hidden", RUN, verdict="proven")
    (hidden / "report.html").write_text("secret")
    (hidden / "log").write_text("secret")
    folder = attempt(state, **({"verdict": "proven"} if linked == "report.html" else {}))
    steps = {"1": folder, "prove": folder.parents[0], "run": folder.parents[1], "dag": folder.parents[2]}
    here = steps.get(linked, folder / linked)
    there = hidden / here.relative_to(folder) if here.is_relative_to(folder) else hidden
    for _ in range(len(folder.parts) - len(here.parts)):
        there = there.parent
    here.rename(here.with_name("aside"))
    here.symlink_to(there)
    assert "secret" in (folder / ("report.html" if linked == "report.html" else "log")).read_text()
    assert "secret" not in get(allowed).text


@pytest.mark.parametrize("dag_id", [".verify__hidden", "..verify__hidden", "verify__hid/den", "~", "", "never__parsed"])
def test_rights_are_asked_for_what_is_opened(
    state: Path, allowed: TestClient, monkeypatch: pytest.MonkeyPatch, dag_id: str
) -> None:
    """Airflow lets everybody read a DAG that it does not know; no letter of its id is dropped after that."""
    proof_in(state, "verify__hidden", RUN, verdict="proven")
    for name in ("verify__hid_den", "_", "never__parsed"):
        proof_in(state, name, RUN, verdict="proven")
    known = {"verify__orders", "verify__hidden", ".verify__hidden"}
    monkeypatch.setattr(
        "watershed.plugins.page.user_rights._known", lambda ids: all_known([i for i in ids if i in known])
    )
    answer = get(allowed, dag_id=dag_id)
    assert (answer.status_code, "report" in answer.text) == (404, False)


def test_rights_are_asked_for_one_dag(state: Path, allowed: TestClient) -> None:
    proof_in(state, "verify__hidden", RUN, verdict="proven")
    for pair in (("verify__orders", "verify__hidden"), ("verify__hidden", "verify__orders")):
        assert allowed.get("/proof", params={"dag_id": pair, "run_id": RUN}).status_code == 404


def test_a_dag_whose_id_is_no_folder_keeps_no_files(state: Path) -> None:
    """One team's `.verify__x` would write into the folder of another's `verify__x`."""
    with pytest.raises(ValueError, match="rename it"):
        proof.locate_run_folder(".verify__hidden", RUN)


@pytest.mark.parametrize("plan_hash", ["sha256:../../secret", "..", "sha256:", "a/b"])
def test_a_hash_out_of_a_journal_leads_nowhere(state: Path, plan_hash: str) -> None:
    with pytest.raises(FileNotFoundError, match="not the hash of a plan"):
        find_frozen_plan(plan_hash)


def test_the_plugin_is_as_airflow_wants_it() -> None:
    [mounted] = proof_reports.WatershedReports.fastapi_apps
    [view] = proof_reports.WatershedReports.external_views
    assert mounted["url_prefix"] + "/proof" == build_report_path("d", "r").partition("?")[0]
    assert view["href"].startswith("watershed/proof?")
    assert view["destination"] == "dag_run"


def test_airflow_finds_the_three_plugins_as_entry_points() -> None:
    """They import nothing that only the DAGs need."""
    from airflow.plugins_manager import _get_plugins

    plugins, errors = _get_plugins()
    assert not [path for path in errors if "watershed" in path]
    ours = sorted(str(plugin.name) for plugin in plugins if "watershed" in str(plugin.name))
    assert ours == ["watershed_listeners", "watershed_page", "watershed_reports"]
    assert "spark_application" not in sys.modules


def test_reports_and_summaries_come_as_downloads(state: Path, allowed: TestClient) -> None:
    attempt(state, verdict="proven")
    answer = get(allowed, download="report.html")
    assert (answer.status_code, answer.text) == (200, "<h1>proven</h1>")
    assert answer.headers["content-disposition"].startswith('attachment; filename="proof.')
    assert get(allowed, download="summary.json").headers["content-type"] == "application/json"
    for other in ("log", "../summary.json", "process.json", "report.html/"):
        assert get(allowed, download=other).status_code == 404


def test_evidence_is_for_whoever_may_read_runs_of_its_dag(state: Path, allowed: TestClient) -> None:
    from watershed.plugins.state_folder import locate_run_folder

    for dag in ("migrate__orders", "verify__secret"):
        folder = locate_run_folder(dag, RUN) / "evidence" / "first"
        folder.mkdir(parents=True)
        (folder / "evidence.html").write_text("<h1>evidence</h1>")
        (folder / "evidence.json").write_text("{}")
        (folder / "other.txt").write_text("no")

    def ask(file: str, dag: str = "migrate__orders", wave: str = "first", **more: str) -> Any:
        query = {"dag_id": dag, "run_id": RUN, "wave": wave, "file": file} | more
        return allowed.get("/evidence", params=query)

    assert ask("evidence.html").text == "<h1>evidence</h1>"
    assert "script-src" not in ask("evidence.html").headers["content-security-policy"]
    assert ask("evidence.json", download="true").headers["content-disposition"].startswith("attachment")
    assert ask("evidence.html", "verify__secret").status_code == 403
    for file, wave in (("other.txt", "first"), ("evidence.html", "second"), ("evidence.html", "../../../x")):
        assert ask(file, wave=wave).status_code == 404
    for too_long in ({"wave": "w" * 300}, {"run_id": "r" * 300}):  # no file system takes such a folder
        assert ask("evidence.html", **too_long).status_code == 404
    assert get(allowed, run_id="r" * 300).status_code == 200
    assert get(allowed, task_id="t" * 300, download="report.html").status_code == 404
