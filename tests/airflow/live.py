"""A real Airflow on a real database, real brokers, real applications, and a topology file with two waves."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import DateTime, column, create_engine, select, table, update

from tests.replicator.status_view import read_statuses
from watershed.clusters.settings import resolve_connection_settings
from watershed.cutover.journal.hash_chain import JournalEntry
from watershed.lab import airflow, postgres, process_sessions, sample_applications
from watershed.lab.account import build_account, find_applications
from watershed.lab.airflow_client import AirflowClient, ApprovalQuestion, TaskInstance
from watershed.lab.detached_process import ProcessIdentity, is_alive, list_children
from watershed.lab.preload import create_lab_topics
from watershed.plugins.steps.run_journal import open_migration_journal
from watershed.replicator.apply import apply_plan
from watershed.topology import compile_path
from watershed.topology.plan import Plan

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

_T = TypeVar("_T")
PARTITIONS = 2
SECONDS = 900.0  # for what takes seconds on a quiet machine, and minutes on one where every core has twenty takers
THINK_SECONDS = 8.0  # Airflow 3.3.2 fails a task whose approval comes before the scheduler has seen its process end
DATABASE = "WATERSHED_LIVE_DATABASE"  # `sqlite` in the environment: not on Postgres though there is one
SETTINGS = {
    # On a busy machine heartbeats come late, and Airflow takes the living for dead: nobody is dead before two minutes.
    # Those whom a test kills, it makes look long dead in the database (`Live.kill`).
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "120",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "10",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "120",
    "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "120",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "10",
    # No file changes while Airflow runs, so each is parsed once, however long that takes on a busy machine.
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
    "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "3600",
    "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "900",
    "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "600",
}
JOBS = {"scheduler": "SchedulerJob", "triggerer": "TriggererJob"}
LONG_DEAD = timedelta(hours=1)
FILE = """
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: {name}, owner: tests}}
clusters:
  onprem: {{bootstrap: ["{onprem}"], cluster_id: {onprem_id}, security: {{protocol: PLAINTEXT}}}}
  cloud: {{bootstrap: ["{cloud}"], cluster_id: {cloud_id}, security: {{protocol: PLAINTEXT}}}}
flows:
  - source: onprem
    target: cloud
    suffix: {name}
    topics: {{include: [{name}.orders, {name}.paid]}}
    workers: {{engine: process, discovery: 1s}}
  - source: cloud
    target: onprem
    suffix: {name}
    state: paused
    topics: {{include: [{name}.orders]}}
    workers: {{engine: process, discovery: 1s}}
migration:
  flow: onprem-to-cloud-{name}
  applications:
    {name}-billing: {{http: "{billing}"}}
    orders: {{http: "{orders}"}}
    {name}-ledger: {{http: "{ledger}"}}
    payments: {{http: "{payments}"}}
  waves:
    - name: orders
      topics: [{name}.orders]
      consumers: [{name}-billing]
      producers: [orders]
      gates:
        before: [{{lag: {{max_records: 5000, hold: 10s}}}}, {{verify: {{level: L1}}}}, {{hold: {{for: 15s}}}}, {{approval: team-orders}}]
        after: [{{stragglers: {{watch: 2s}}}}, {{verify: {{level: L1}}}}]
      rollback: {{until: 1h, reverse: cloud-to-onprem-{name}}}
    - name: paid
      after: [orders]
      topics: [{name}.paid]
      consumers: [{name}-ledger]
      producers: [payments]
      gates:
        before: [{{lag: {{max_records: 5000, hold: 1s}}}}, {{verify: {{level: L1}}}}, {{approval: team-paid}}]
        after: [{{stragglers: {{watch: 2s}}}}, {{verify: {{level: L1}}}}]
      rollback: {{none: a test has no way back}}
"""  # noqa: E501


@dataclass(slots=True)
class Live:
    """`client` is the admin's; DAGs are called KIND__name."""

    name: str
    home: Path
    plan: Plan
    airflow: airflow.LocalAirflow
    client: AirflowClient
    apps: dict[str, sample_applications.SampleApplication]
    database: str

    @property
    def dag(self) -> str:
        return f"migrate__{self.name}"

    def user(self, name: str) -> AirflowClient:
        return AirflowClient(self.airflow.url, name)

    def folder(self, run: str, task: str) -> Path:
        return self.home / "state" / "runs" / self.dag / run / task

    def task(self, run: str, name: str, dag: str = "") -> TaskInstance:
        return self.client.task(dag or self.dag, run, name)

    def wait_task(self, run: str, name: str, *states: str, dag: str = "") -> TaskInstance:
        """Raises AssertionError with the log's end when the task fails instead."""

        def there() -> TaskInstance | None:
            task = self.task(run, name, dag)
            if task.state in ("failed", "upstream_failed") and task.state not in states:
                raise AssertionError(f"{name} is {task.state}: {self.client.log(dag or self.dag, run, name)[-15:]}")
            return task if task.state in states else None

        return until(there, f"task {name} to be {' or '.join(states)}")

    def question(self, run: str, task: str, dag: str = "") -> ApprovalQuestion:
        """Once it is asked, and Airflow is ready to be answered."""

        def asked() -> ApprovalQuestion | None:
            return next((q for q in self.client.questions(dag or self.dag, run) if q.task == task), None)

        found = until(asked, f"the question of {task}")
        time.sleep(THINK_SECONDS)
        return found

    def install(self, version: Mapping[str, str], python: str = sys.executable) -> None:
        """Ends all of Airflow and starts it on the same folder and database with these settings, as whoever installs
        another version does. Returns when it is healthy and has parsed our DAGs anew."""
        airflow.stop_airflow(self.home / "airflow")
        began = datetime.now(UTC)
        web = launch(self.home, self.database, version, python)
        self.airflow, self.client = airflow.wait_until_healthy(web, timeout=600), AirflowClient(web.url)
        until(lambda: self._parsed_at() > began, f"{self.dag} as this version makes it")

    def _parsed_at(self) -> datetime:
        dags = table("dag", column("dag_id"), column("last_parsed_time", DateTime(timezone=True)))
        engine = create_engine(self.database)
        try:
            with engine.connect() as connection:
                found = connection.execute(
                    select(dags.c.last_parsed_time).where(dags.c.dag_id == self.dag)
                ).scalar_one()
        finally:
            engine.dispose()
        return found if found.tzinfo else found.replace(tzinfo=UTC)  # SQLite has no zones

    def task_process(self, task: str) -> ProcessIdentity:
        """The process in which the running task's own code runs: the child of its supervisor."""
        return until(lambda: self._task_process(), f"the process of {task}")

    def _task_process(self) -> ProcessIdentity | None:
        scheduler = self.airflow.components["scheduler"]
        for worker in list_children(scheduler):
            for runner in list_children(worker):
                return runner
        return None

    def kill(self, component: str, *, whole: bool) -> None:
        """SIGKILL, a while ago. whole: with everything that it has started, as when its container dies."""
        leader = self.airflow.components[component]
        for process in process_sessions.list_session_members(leader) if whole else [leader]:
            os.kill(process.pid, signal.SIGKILL)
        until(lambda: not is_alive(leader), f"the end of {component}")
        self.make_long_dead(component)
        self.airflow = airflow.restart_dead_components(self.airflow)

    def make_long_dead(self, component: str) -> None:
        """In Airflow's database: it waits for two minutes before it takes somebody for dead."""
        job = JOBS[component]
        jobs = table("job", column("job_type"), column("latest_heartbeat", DateTime(timezone=True)))
        engine = create_engine(self.database)
        with engine.begin() as connection:
            connection.execute(
                update(jobs).where(jobs.c.job_type == job).values(latest_heartbeat=datetime.now(UTC) - LONG_DEAD)
            )
        engine.dispose()

    def states(self, run: str) -> dict[str, str | None]:
        return {task.name: task.state for task in self.client.tasks(self.dag, run)}

    def failures(self, dag: str, run: str) -> dict[str, list[str]]:
        """The ends of the logs of what failed."""
        failed = [task.name for task in self.client.tasks(dag, run) if task.state == "failed"]
        return {name: self.client.log(dag, run, name)[-8:] for name in failed}

    def where(self, *names: str) -> dict[str, tuple[str, str]]:
        seen = {name: sample_applications.ask_application(self.apps[name]) for name in names}
        return {name: (found["state"], found["cluster"]) for name, found in seen.items()}


def read_journal(live: Live, run: str, wave: str) -> list[JournalEntry]:
    return open_migration_journal(live.plan, "a test").refresh().run(f"migrate.{run}.{wave}")


def assert_nothing_is_lost(live: Live) -> None:
    for name in ("orders", "payments"):
        sample_applications.stop_client(live.apps[name])
    deadline = time.monotonic() + 180
    while (
        any(g.lost for g in build_account(find_applications(live.home / "apps")).groups) and time.monotonic() < deadline
    ):
        time.sleep(0.5)
    found = build_account(find_applications(live.home / "apps"))
    assert [(each.lost, each.repeated, each.out_of_order_per_key) for each in found.groups] == [(0, 0, 0)] * 2
    # It reads whole: no link of the chain is missing.
    assert open_migration_journal(live.plan, "a test").refresh().foreign == ()


def until(look: Callable[[], _T | None], what: str, seconds: float = SECONDS) -> _T:
    """What it gives once that is true."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what}"
        time.sleep(1.5)  # each look is a request to Airflow, and costs it 30 ms
    return found


def kill_program(folder: Path) -> int:
    """SIGKILL to a detached program (a Spark application) with all it has started; its pid."""
    record = until(lambda: folder / "process.json" if (folder / "process.json").exists() else None, f"{folder}")
    known = json.loads(record.read_text())
    for process in process_sessions.list_session_members(ProcessIdentity(known["pid"], known["started"])):
        os.kill(process.pid, signal.SIGKILL)
    return int(known["pid"])


def launch(
    home: Path, database: str | None, version: Mapping[str, str] | None = None, python: str = sys.executable
) -> airflow.LocalAirflow:
    """Starts an Airflow with our DAGs and those in `home`/dags. version: settings that choose another Watershed."""
    bundles = {"AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": _bundles(home / "dags")}
    return airflow.launch_airflow(
        home / "airflow",
        topologies=home / "topologies",
        state=home / "state",
        database=database,
        settings=SETTINGS | bundles | dict(version or {}),
        python=python,
    )


@contextmanager
def running(
    pair: Lab, name: str, home: Path, version: Mapping[str, str] | None = None, python: str = sys.executable
) -> Iterator[Live]:
    """Everything up to a flow that copies, and an Airflow whose DAGs, ours and those in `home`/dags, are parsed.

    version, python: as `launch` takes them."""
    with database() as url:
        (home / "topologies").mkdir(parents=True)
        (home / "dags").mkdir(exist_ok=True)
        try:
            started = start_applications(pair, name, home / "apps")
            path = home / "topologies" / f"{name}.yaml"
            path.write_text(render_file(FILE, pair, name, started))
            web = launch(home, url, version, python)  # not before: it parses its DAGs once
            plan = compile_path(path)
            apply_plan(plan, lambda alias: resolve_connection_settings(plan.cluster(alias)))
            with _workers(plan, home):
                own = url or f"sqlite:///{home / 'airflow' / 'airflow.db'}?timeout=60"
                live = Live(
                    name, home, plan, airflow.wait_until_healthy(web, timeout=600), AirflowClient(web.url), started, own
                )
                _served(plan)
                live.client.wait_for_dag(live.dag, 600)
                yield live
        finally:
            airflow.stop_airflow(home / "airflow", grace=5.0)
            sample_applications.stop_applications(home / "apps")
            for record in (home / "state").rglob("process.json"):
                kill_program(record.parent)


def _bundles(somebodys: Path) -> str:
    """Our DAGs as they are installed, and a folder of somebody's."""
    ours = "watershed.plugins.installed_dags.InstalledDagBundle"
    local = "airflow.dag_processing.bundles.local.LocalDagBundle"
    bundles = (("watershed", ours, {}), ("own", local, {"path": str(somebodys)}))
    return json.dumps([{"name": name, "classpath": kind, "kwargs": where} for name, kind, where in bundles])


@contextmanager
def database() -> Iterator[str | None]:
    """Postgres where there is one, else SQLite."""
    if postgres.find_missing_postgres() or os.environ.get(DATABASE) == "sqlite":
        yield None
        return
    with postgres.run_postgres() as server:
        yield server.url


def start_applications(pair: Lab, name: str, home: Path) -> dict[str, sample_applications.SampleApplication]:
    here = pair.clusters["onprem"]
    create_lab_topics(here.bootstrap, [f"{name}.orders", f"{name}.paid"], PARTITIONS)
    at = ["--cluster", "onprem", "--bootstrap", here.bootstrap]
    found = {
        "orders": sample_applications.start_application(
            home, "orders", ["watershed.lab.orders_producer", "--topics", f"{name}.orders", "--rate", "20", *at]
        ),
        "payments": sample_applications.start_application(
            home, "payments", ["watershed.lab.orders_producer", "--topics", f"{name}.paid", "--rate", "10", *at]
        ),
    }
    for group, topic in ((f"{name}-billing", "orders"), (f"{name}-ledger", "paid")):
        found[group] = sample_applications.start_application(
            home, group, ["watershed.lab.billing_consumer", "--group", group, "--topics", f"{name}.{topic}", *at]
        )
    for group in (f"{name}-billing", f"{name}-ledger"):
        sample_applications.wait_for_count(found[group], "processed", 20, seconds=180)
    return found


def render_file(text: str, pair: Lab, name: str, started: dict[str, sample_applications.SampleApplication]) -> str:
    """A topology file, from a text with the names that FILE has."""
    http = {each: app.http for each, app in started.items()}
    return text.format(
        name=name,
        onprem=pair.clusters["onprem"].bootstrap,
        onprem_id=pair.clusters["onprem"].cluster_id,
        cloud=pair.clusters["cloud"].bootstrap,
        cloud_id=pair.clusters["cloud"].cluster_id,
        billing=http[f"{name}-billing"],
        ledger=http[f"{name}-ledger"],
        orders=http["orders"],
        payments=http["payments"],
    )


@contextmanager
def _workers(plan: Plan, home: Path) -> Iterator[None]:
    from tests.replicator.real import workers

    with workers(plan, "cloud", home) as start, workers(plan, "onprem", home) as start_back:
        start()
        start_back()
        yield


def _served(plan: Plan) -> None:
    target = resolve_connection_settings(plan.cluster("cloud"))
    assert plan.migration is not None
    flow = plan.migration.flow

    def copying() -> bool:
        reports = [each for each in read_statuses(target) if each.flow == flow]
        return len([each for each in reports if each.source_position > 0]) == 2 * PARTITIONS

    until(copying, "a worker that copies every partition")
