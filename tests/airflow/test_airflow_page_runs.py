"""What the page Replication says of runs beside the journal: what they would do, who started them, what failed before a
first step, who is waited for, and what they left in the state folder."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.airflow.page_world import Manager, asked, proof_in
from tests.airflow.test_airflow_page_migrations import journaled, run
from tests.cutover.fake_log import FakeLog
from watershed.cutover.driver import RunEvent
from watershed.cutover.observations import ProofOutcome
from watershed.plugins.page import routes
from watershed.plugins.page.airflow_runs import list_open_questions, list_recent_runs
from watershed.plugins.page.run_files import list_run_evidence, read_step_progress
from watershed.plugins.state_folder import locate_run_folder
from watershed.plugins.steps import step_driver
from watershed.plugins.steps.live_messages import keep_live_message, read_live_message
from watershed.plugins.steps.step_driver import StepOrder
from watershed.topology.plan import Plan

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
    assert told["plan"].startswith("sha256:"), "the form starts the run with it: a changed file is refused"


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


def _write_run(
    name: str, state: str, tasks: dict[str, str], *, hours_ago: float = 0, how: str = "manual", **conf: Any
) -> None:
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from airflow.utils.types import DagRunType
    from sqlalchemy import insert

    at = datetime.now(UTC) - timedelta(hours=hours_ago)
    run = DagRun(dag_id="migrate__alone", run_id=name, run_type=DagRunType(how), conf=conf, queued_at=at, run_after=at)
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


def test_what_a_schedule_does_pushes_nothing_out(airflow_runs: Any) -> None:
    """A supervisor and a proof that run every few seconds, beside a migration of yesterday that still goes on."""
    airflow_runs("moves", "running", {}, hours_ago=50)
    airflow_runs("tried", "success", {}, hours_ago=3, dry_run=True)
    airflow_runs("broke", "failed", {"orders.begin": "failed"}, hours_ago=2)
    airflow_runs("heals", "running", {}, how="scheduled")
    airflow_runs("gone", "failed", {}, hours_ago=200)
    for number in range(100):
        airflow_runs(f"scheduled-{number}", "success", {}, how="scheduled")
    assert [each["run"] for each in list_recent_runs(["migrate__alone"])] == ["moves", "heals", "broke", "tried"]
    for number in range(40):
        airflow_runs(f"by-hand-{number}", "success", {})
    found = [each["run"] for each in list_recent_runs(["migrate__alone"])]
    assert found[:3] == ["moves", "heals", "broke"]
    assert len(found) == 2 + 10, "so many runs of one DAG that have ended"


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
    """Questions as Airflow guards them; and Airflow's tables once for a moment, for all who may read the same DAGs."""
    runs: list[tuple[str, ...]] = []
    questions: list[tuple[str, ...]] = []
    monkeypatch.setattr("watershed.plugins.page.airflow_runs.list_recent_runs", lambda dags: runs.append(dags) or [])
    name = "watershed.plugins.page.airflow_runs.list_open_questions"
    monkeypatch.setattr(name, lambda dags: questions.append(dags) or [])
    monkeypatch.setattr(routes, "_REREAD_RUNS_S", 600.0)
    manager.hidden = {"rollback__shop", "after_cutover__shop"}
    for _ in range(3):
        asked(page, "flows", topology="shop")
    assert len(runs) == len(questions) == 1
    assert runs[0] == questions[0]
    assert {"migrate__shop", "supervise__shop", "supervise_2__shop"} <= set(runs[0])
    assert not {"rollback__shop", "after_cutover__shop"} & set(runs[0])
    manager.without = {"HITL_DETAIL"}
    asked(page, "flows", topology="shop")
    assert (runs[1], questions[1]) == (runs[0], ())


# -- what a run left in the state folder ------------------------------------------------------------------------


def an_order(kind: str, *steps: str) -> StepOrder:
    """As the operators of a DAG make it: one task that does these steps."""
    wave = "everything" if kind in ("failover", "failback") else "orders"
    return StepOrder("sha256:1", wave, steps, f"{kind}__shop", RUN, kind)  # type: ignore[arg-type]


def sees(kind: str, step: str) -> Any:
    """What the page says of a step of wave `orders`, as its run is called in the journal."""
    return read_step_progress(f"{kind}__shop", RUN, kind, "orders", step)


@pytest.mark.parametrize("kind", ["migrate", "rollback", "failover", "failback"])
def test_a_step_that_waits_says_what_it_sees_alone_and_in_a_stage(state: Path, kind: str) -> None:
    assert sees(kind, "lag_gate") is None
    for order in (an_order(kind, "lag_gate"), an_order(kind, "preflight", "lag_gate", "history_proof")):
        step_driver._keep_live(order, RunEvent(1, "r", "lag_gate", "seen", f"lag {len(order.steps)}"), None)
        assert sees(kind, "lag_gate")["text"] == f"lag {len(order.steps)}"
    step_driver._keep_live(order, RunEvent(2, "r", "lag_gate", "outcome", "done"), None)
    assert sees(kind, "lag_gate")["text"] == "lag 3"
    assert sees(kind, "preflight") is None, "it is another step that sees this"


def test_a_message_that_cannot_be_kept_or_read_stops_no_step(state: Path, caplog: pytest.LogCaptureFixture) -> None:
    keep_live_message("migrate__shop", RUN, "orders", "lag_gate", "lag 12\x1b[2J" + "x" * 9_000)
    told = read_live_message("migrate__shop", RUN, "orders")
    assert told is not None
    assert len(told["text"]) == 2_000
    assert "\x1b" not in told["text"]
    file = locate_run_folder("migrate__shop", RUN) / "orders.now.json"
    for forged in ("{}", "[]", '{"step": "a", "text": 1, "at_ms": 2}', "{", "null", '{"text": "a", "at_ms": 2}'):
        file.write_text(forged)
        assert read_live_message("migrate__shop", RUN, "orders") is None
    assert read_step_progress("migrate__shop", "r" * 300, "migrate", "orders", "lag_gate") is None
    assert read_step_progress("migrate__shop", RUN, "migrate", "w" * 300, "lag_gate") is None
    order = replace(an_order("migrate", "lag_gate"), wave="w" * 300)
    with caplog.at_level(logging.WARNING):
        step_driver._keep_live(order, RunEvent(1, "r", "lag_gate", "seen", "lag"), logging.getLogger("step"))
    assert "the page is not told" in caplog.text


@pytest.mark.parametrize("kind", ["migrate", "rollback", "failover", "failback"])
def test_a_proof_that_runs_says_how_far_it_is(state: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    order = an_order(kind, "fence_producers", "tail_proof", "switch_producers")
    step_driver._keep_live(order, RunEvent(1, "r", "tail_proof", "seen", "waiting for Spark"), None)
    folder = order.folder("tail_proof") / "1"
    folder.mkdir(parents=True)
    (folder / "process.json").write_text(json.dumps({"pid": 1, "module": "watershed.spark.verify"}))
    log = folder / "log"
    log.write_text("window fixed: 12 partitions of 1 flows\nread 120 of 480 chunks by batches (25%), 6,000 records\n")
    monkeypatch.setattr("watershed.plugins.detached_process.DetachedProcess.alive", lambda _self: True)
    assert sees(kind, "tail_proof") == {"text": "read 120 of 480 chunks by batches (25%), 6,000 records", "at_ms": None}
    log.write_text(
        "window fixed: 1 partitions of 1 flows\nwaiting for Spark: 0 of 2 cores free at spark://m:7077: a holds 2\n"
    )
    assert sees(kind, "tail_proof")["text"] == "waiting for Spark: 0 of 2 cores free at spark://m:7077: a holds 2"
    log.write_text("")
    assert "has not begun to read" in sees(kind, "tail_proof")["text"]
    monkeypatch.setattr("watershed.plugins.detached_process.DetachedProcess.alive", lambda _self: False)
    assert sees(kind, "tail_proof")["text"] == "waiting for Spark"


def test_what_a_step_sees_is_for_whoever_may_read_its_log(
    page: TestClient, topologies: dict[str, Plan], manager: Manager, state: Path
) -> None:
    from watershed.plugins.page.cluster_snapshots import ClusterSnapshot

    log, shop = FakeLog(), topologies["shop"]
    run(shop, log).run(until_step="lag_gate")
    log.records = [value for value in log.records if not (value["step"] == "lag_gate" and value["kind"] == "outcome")]
    snapshot = ClusterSnapshot(journals={("shop", False): journaled(shop, log)}, complete=True)
    routes.build_page_app().state.page.readers.seen = {"cloud": snapshot}
    keep_live_message("migrate__shop", RUN, "orders", "lag_gate", "lag 4,120 records")
    assert asked(page, "migrations", topology="shop")["run"]["progress"]["text"] == "lag 4,120 records"
    manager.without = {"TASK_LOGS"}
    assert asked(page, "migrations", topology="shop")["run"]["progress"] is None


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
    from watershed.plugins.page.cluster_snapshots import ClusterSnapshot

    snapshot.seen = {"cloud": ClusterSnapshot(journals={("shop", False): journaled(shop, log)}, complete=True)}
    evidence_in("migrate__shop")
    proof_in(state, "migrate__shop", RUN, verdict="proven", unproven=0)
    shown = asked(page, "migrations", topology="shop")["run"]
    assert [(each["wave"], each["files"]) for each in shown["evidence"]] == [
        ("orders", ["evidence.html", "evidence.json"])
    ]
    assert [(each["verdict"], each["report"]) for each in shown["proofs"]] == [("proven", True)]
    [found] = shown["evidence"]
    assert (found["sealed"], found["state"]) == (False, "under_way")


def test_only_what_the_journal_sealed_is_called_sealed(topologies: dict[str, Plan], state: Path) -> None:
    """A run that was refused or taken back leaves a pack, too."""
    from watershed.plugins.page.migration_rows import build_migrations_view

    shop, folder = topologies["shop"], evidence_in("migrate__shop")

    def told(log: FakeLog, root: str | None = None) -> tuple[bool, str | None]:
        rows = build_migrations_view(shop, journaled(shop, log), lambda _hash: None)["runs"]
        own = root or rows[0]["sealed_root"] or "none"
        (folder / "evidence.json").write_text(json.dumps({"journal": {"root": own}}))
        [found] = list_run_evidence("migrate__shop", RUN, rows)
        return found["sealed"], found["state"]

    done, back = FakeLog(), FakeLog()
    run(shop, done).run()
    bad = ProofOutcome(0, "different", 3, {"altered": 3}, "/proofs/tail.json", "root")
    good = ProofOutcome(0, "proven", 0, {"proven": 3}, "/proofs/history.json", "root")
    run(shop, back, prove=lambda wanted: bad if wanted.final else good).run()
    assert told(done) == (True, "done")
    assert told(done, "another") == (False, "done")
    assert told(back) == (False, "rolled_back")
    (folder / "evidence.json").write_text("[]")
    assert [each["sealed"] for each in list_run_evidence("migrate__shop", RUN)] == [False]


def test_a_journal_that_names_another_dag_opens_nothing_of_it(
    page: TestClient, topologies: dict[str, Plan], state: Path
) -> None:
    """Whoever may write to the journal must not choose whose evidence is shown."""
    from watershed.plugins.page.cluster_snapshots import ClusterSnapshot

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
    from watershed.plugins.page.migration_rows import build_migrations_view

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
