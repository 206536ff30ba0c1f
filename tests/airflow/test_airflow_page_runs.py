"""What the page Replication says of runs beside the journal: what they would do, who started them, what failed before a
first step, who is waited for, and what they left in the state folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from plugins.watershed.page import routes
from plugins.watershed.page.airflow_runs import list_open_questions, list_recent_runs
from plugins.watershed.page.run_files import list_run_evidence, read_step_progress
from plugins.watershed.state_folder import locate_run_folder
from plugins.watershed.steps.live_messages import keep_live_message, read_live_message
from tests.airflow.page_world import Manager, asked, proof_in
from tests.airflow.test_airflow_page_migrations import journaled, run
from tests.cutover.fake_log import FakeLog
from topology.plan import Plan

pytestmark = pytest.mark.airflow
RUN = "manual__2026-11-22T01:30:00+00:00"


# -- what a run would do ----------------------------------------------------------------------------------------


def test_the_form_says_what_the_dry_run_of_the_command_says(page: TestClient) -> None:
    told = asked(page, "preview", topology="shop", what="migrate", waves="orders")
    [wave] = told["waves"]
    steps = {step["name"]: step for step in wave["steps"]}
    assert (wave["wave"], wave["source"], wave["target"]) == ("orders", "onprem", "cloud")
    assert (wave["strategy"], wave["producers"]) == ("consumers_first", ["checkout"])
    assert wave["without_writes_ms"] > 0
    assert "no way back" in wave["way_back"]
    assert steps["approval"]["actor"] == "a person"
    assert [name for name, step in steps.items() if step["point_of_no_return"]] == ["point_of_no_return"]
    other = asked(page, "preview", topology="shop", what="migrate", waves="orders", strategy="fenced")["waves"][0]
    assert other["strategy"] == "fenced"
    both = asked(page, "preview", topology="shop", what="migrate")["waves"]
    assert [each["wave"] for each in both] == ["orders", "invoices"]
    assert asked(page, "preview", topology="shop", what="verify")["waves"] == []


def test_what_a_run_would_do_is_for_whoever_may_see_its_runs(page: TestClient, manager: Manager) -> None:
    manager.hidden = {"migrate__shop"}
    assert page.get("/api/preview", params={"topology": "shop", "what": "migrate"}).status_code == 404
    assert page.get("/api/preview", params={"topology": "shop", "what": "drop"}).status_code == 404
    assert asked(page, "preview", topology="shop", what="verify")["waves"] == []


def test_every_button_says_what_it_does_and_which_are_dangerous(page: TestClient) -> None:
    actions = {each["what"]: each for each in asked(page, "flows", topology="shop")["actions"]}
    assert all(len(each["does"]) > 40 for each in actions.values())
    dangerous = {"decide", "rollback", "failover", "failback", "abandon"}
    assert {what for what, each in actions.items() if each["danger"]} == dangerous


# -- what Airflow knows of runs ---------------------------------------------------------------------------------


@pytest.fixture
def airflow_runs(airflow_database: None) -> Iterator[Any]:
    """A function that writes a run of `migrate__alone`, and its tasks, into Airflow's tables."""
    from airflow.models.dag import DagModel
    from airflow.models.dagbundle import DagBundleModel
    from airflow.models.dagrun import DagRun
    from airflow.models.hitl import HITLDetail
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import delete, select

    def forget() -> None:
        with create_session() as session:
            mine = select(TaskInstance.id).where(TaskInstance.dag_id == "migrate__alone")
            session.execute(delete(HITLDetail).where(HITLDetail.ti_id.in_(mine)))
            session.execute(delete(TaskInstance).where(TaskInstance.dag_id == "migrate__alone"))
            session.execute(delete(DagRun).where(DagRun.dag_id == "migrate__alone"))
            session.execute(delete(DagModel).where(DagModel.dag_id == "migrate__alone"))
            session.execute(delete(DagBundleModel).where(DagBundleModel.name == "alone"))

    forget()
    with create_session() as session:
        session.add(DagBundleModel(name="alone"))
        session.flush()
        session.add(DagModel(dag_id="migrate__alone", bundle_name="alone", fileloc="x"))
    yield _write_run
    forget()


def _write_run(name: str, state: str, tasks: dict[str, str], *, hours_ago: float = 0, **conf: Any) -> None:
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from airflow.utils.types import DagRunType
    from sqlalchemy import insert

    at = datetime.now(UTC) - timedelta(hours=hours_ago)
    run = DagRun(
        dag_id="migrate__alone", run_id=name, run_type=DagRunType.MANUAL, conf=conf, queued_at=at, run_after=at
    )
    run.triggering_user_name = "ops"
    run._state = state
    run.start_date, run.end_date = at, None if state in ("running", "queued") else at
    with create_session() as session:
        session.add(run)
        session.flush()
        from airflow.models.taskinstance import TaskInstance

        for task, task_state in tasks.items():
            row = {"task_id": task, "dag_id": "migrate__alone", "run_id": name, "map_index": -1, "state": task_state}
            session.execute(insert(TaskInstance).values(**row, try_number=2, pool="default_pool", start_date=at))


def test_a_run_that_failed_before_its_first_step_is_told_with_its_task_and_its_user(airflow_runs: Any) -> None:
    airflow_runs("old", "failed", {"begin": "failed"}, hours_ago=30)
    airflow_runs(
        "bad", "failed", {"orders.begin": "failed", "orders.preflight": "upstream_failed", "watcher": "failed"}
    )
    airflow_runs("dry", "success", {}, dry_run=True)
    airflow_runs("now", "running", {}, hours_ago=50)
    found = {each["run"]: each for each in list_recent_runs(["migrate__alone"])}
    assert set(found) == {"bad", "dry", "now"}
    assert found["bad"]["failed"] == [{"task": "orders.begin", "try": 2, "index": -1}]
    assert {each["by"] for each in found.values()} == {"ops"}
    assert {name for name, each in found.items() if each["dry_run"]} == {"dry"}
    assert (list_recent_runs([]), list_open_questions([])) == ([], [])


def test_a_person_is_awaited_while_nobody_has_answered(airflow_runs: Any) -> None:
    from airflow.models.hitl import HITLDetail
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select

    airflow_runs("asks", "running", {"orders.approval": "awaiting_input", "orders.soak": "success"})
    with create_session() as session:
        for task, number in session.execute(
            select(TaskInstance.task_id, TaskInstance.id).where(TaskInstance.dag_id == "migrate__alone")
        ).all():
            session.add(HITLDetail(ti_id=number, options=["Approve"], subject=f"{task} " + "x" * 900, params={}))
    [question] = list_open_questions(["migrate__alone", "another"])
    assert (question["task"], question["run"], len(question["subject"])) == ("orders.approval", "asks", 300)
    with create_session() as session:
        for detail in session.scalars(select(HITLDetail)):
            detail.responded_at = datetime.now(UTC)
    assert list_open_questions(["migrate__alone"]) == []


def test_runs_and_questions_are_asked_for_dags_that_the_user_may_read(
    page: TestClient, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    monkeypatch.setattr("plugins.watershed.page.airflow_runs.list_recent_runs", lambda dags: seen.append(dags) or [])
    monkeypatch.setattr("plugins.watershed.page.airflow_runs.list_open_questions", lambda dags: seen.append(dags) or [])
    manager.hidden = {"rollback__shop", "after_cutover__shop"}
    asked(page, "flows", topology="shop")
    assert seen[0] == seen[1]
    assert "migrate__shop" in seen[0]
    assert not {"rollback__shop", "after_cutover__shop"} & set(seen[0])


# -- what a run left in the state folder ------------------------------------------------------------------------


def test_a_step_that_waits_says_what_it_sees(state: Path) -> None:
    folder = locate_run_folder("migrate__shop", RUN) / "orders.lag_gate"
    assert read_step_progress("migrate__shop", RUN, "orders", "lag_gate") is None
    keep_live_message(folder, "lag 4,120 records")
    told = read_step_progress("migrate__shop", RUN, "orders", "lag_gate")
    assert told is not None
    assert told["text"] == "lag 4,120 records"
    keep_live_message(folder, "lag 12 records" + "x" * 9_000)
    assert len(read_live_message(folder)["text"]) == 2_000  # type: ignore[index]
    for forged in ("{}", "[]", '{"text": 1, "at_ms": 2}', "{", "null"):
        (folder / "live.json").write_text(forged)
        assert read_live_message(folder) is None
    assert read_step_progress("migrate__shop", "r" * 300, "orders", "lag_gate") is None


def test_a_proof_that_runs_says_how_far_it_is(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = locate_run_folder("migrate__shop", RUN) / "orders.tail_proof"
    keep_live_message(folder, "waiting for Spark")
    (folder / "1").mkdir()
    (folder / "1" / "process.json").write_text(json.dumps({"pid": 1, "module": "spark.verify"}))
    log = folder / "1" / "log"
    log.write_text("window fixed: 12 partitions of 1 flows\nread 120 of 480 chunks by batches (25%), 6,000 records\n")
    monkeypatch.setattr("plugins.watershed.detached_process.DetachedProcess.alive", lambda _self: True)
    told = read_step_progress("migrate__shop", RUN, "orders", "tail_proof")
    assert told == {"text": "read 120 of 480 chunks by batches (25%), 6,000 records", "at_ms": None}
    log.write_text("")
    assert "has not begun to read" in read_step_progress("migrate__shop", RUN, "orders", "tail_proof")["text"]  # type: ignore[index]
    monkeypatch.setattr("plugins.watershed.detached_process.DetachedProcess.alive", lambda _self: False)
    assert read_step_progress("migrate__shop", RUN, "orders", "tail_proof")["text"] == "waiting for Spark"  # type: ignore[index]


def evidence_in(dag: str, wave: str = "orders") -> Path:
    folder = locate_run_folder(dag, RUN) / "evidence" / wave
    folder.mkdir(parents=True)
    (folder / "evidence.html").write_text("<h1>evidence</h1>")
    (folder / "evidence.json").write_text('{"state": "done"}')
    return folder


def test_the_timeline_names_evidence_and_proofs_with_their_verdicts(
    page: TestClient, topologies: dict[str, Plan], state: Path
) -> None:
    log, shop = FakeLog(), topologies["shop"]
    run(shop, log).run(until_step="tail_proof")
    snapshot = routes.build_page_app().state.page.readers
    from plugins.watershed.page.cluster_snapshots import ClusterSnapshot

    snapshot.seen = {"cloud": ClusterSnapshot(journals={("shop", False): journaled(shop, log)}, complete=True)}
    evidence_in("migrate__shop")
    proof_in(state, "migrate__shop", RUN, verdict="proven", unproven=0)
    shown = asked(page, "migrations", topology="shop")["run"]
    assert [(each["wave"], each["files"]) for each in shown["evidence"]] == [
        ("orders", ["evidence.html", "evidence.json"])
    ]
    assert [(each["verdict"], each["report"]) for each in shown["proofs"]] == [("proven", True)]


def test_a_journal_that_names_another_dag_opens_nothing_of_it(
    page: TestClient, topologies: dict[str, Plan], state: Path
) -> None:
    """Whoever may write to the journal must not choose whose evidence is shown."""
    from plugins.watershed.page.cluster_snapshots import ClusterSnapshot

    log, shop = FakeLog(), topologies["shop"]
    run(shop, log, actor="airflow verify__sites").run(until_step="lag_gate")
    seen = {"cloud": ClusterSnapshot(journals={("shop", False): journaled(shop, log)}, complete=True)}
    routes.build_page_app().state.page.readers.seen = seen
    evidence_in("verify__sites")
    proof_in(state, "verify__sites", RUN, verdict="proven", unproven=0)
    shown = asked(page, "migrations", topology="shop")["run"]
    assert (shown["dag"], shown["evidence"], shown["proofs"], shown["progress"]) == ("verify__sites", [], [], None)


def test_evidence_behind_a_link_is_not_shown(state: Path) -> None:
    folder = evidence_in("migrate__shop")
    other = evidence_in("migrate__shop", "invoices")
    (folder / "evidence.html").unlink()
    (folder / "evidence.html").symlink_to(other / "evidence.html")
    found = {each["wave"]: each["files"] for each in list_run_evidence("migrate__shop", RUN)}
    assert found == {"orders": ["evidence.json"], "invoices": ["evidence.html", "evidence.json"]}


# -- seconds without writes -------------------------------------------------------------------------------------


def test_seconds_without_writes_run_until_the_first_write_is_read_back(topologies: dict[str, Plan]) -> None:
    from plugins.watershed.page.migration_rows import build_migrations_view

    shop, log = topologies["shop"], FakeLog()
    run(shop, log).run(until_step="soak")
    before = build_migrations_view(shop, journaled(shop, log), lambda _hash: None)["run"]["writes"]
    assert (before["measured_ms"], before["since_ms"]) == (None, None)
    assert before["usual_ms"] > 0
    log = FakeLog()
    run(shop, log).run(until_step="tail_proof")
    still = build_migrations_view(shop, journaled(shop, log), lambda _hash: None)["run"]["writes"]
    assert still["measured_ms"] is None
    assert still["since_ms"] > 0
    log = FakeLog()
    run(shop, log).run()
    over = build_migrations_view(shop, journaled(shop, log), lambda _hash: None)["run"]["writes"]
    assert over["measured_ms"] > 0
    assert over["since_ms"] is None


def test_the_help_explains_words_that_the_glossary_has(page: TestClient) -> None:
    """A word of the page means the same in docs/glossary.md."""
    root = Path(__file__).resolve().parents[2]
    glossary = (root / "docs" / "glossary.md").read_text().casefold()
    text = page.get("/static/help.js").text
    for word in ("barrier", "soak", "canary", "seal", "mapped", "sequence", "fence", "wave", "straggler", "journal"):
        assert f"\n  {word}: " in text, word
        assert f"| {word}" in glossary, word
    assert all(f"\n  {level}: " in text for level in ("L0", "L1", "L2", "L3"))
