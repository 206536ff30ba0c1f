"""One Airflow on three hosts that share the topology files and nothing else; each of its parts is killed with SIGKILL.

The host `control` has api-server, scheduler, dag-processor and triggerer; `host-b` and `host-c` have a worker of the
edge executor each, and know no database. The fleet's supervisors are tasks (`placement: task`).
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clusters.errors import ClusterError
from clusters.settings import resolve_connection_settings
from cutover.journal.hash_chain import JournalEntry
from lab import postgres, sample_applications
from lab.account import build_account, find_applications
from lab.airflow import LocalAirflow, build_airflow_environment, wait_until_healthy
from lab.airflow_client import AirflowClient
from lab.detached_process import is_alive
from lab.free_ports import find_free_ports
from plugins.watershed.steps.run_journal import open_migration_journal
from replicator.worker.fleet_status import FleetRow, read_fleet_rows
from tests.airflow.hosts import Host, airflow, find_missing_hosts, start_host
from tests.airflow.live import SETTINGS, Live, render_file, start_applications, until
from topology import compile_path

if TYPE_CHECKING:
    from lab.clusters import Lab

pytestmark = [getattr(pytest.mark, mark) for mark in ("kafka", "airflow", "spark", "slow", "soak")]
pytestmark += [pytest.mark.timeout(3600)]
NAME = "hosts"
WORKERS = 2
HOSTS = ("host-b", "host-c")
QUIET_S = 20.0  # longer than a group takes to miss a dead member
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
    workers: {{engine: process, discovery: 1s, count: 2, placement: task}}
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
      rollback: {{none: a test has no way back}}
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
CONTROL = {
    "api-server": ["api-server", "--host", "127.0.0.1", "--workers", "1"],
    "scheduler": ["scheduler", "--skip-serve-logs"],
    "dag-processor": ["dag-processor"],
    "triggerer": ["triggerer", "--skip-serve-logs"],
}


@dataclass(slots=True)
class Watch:
    """Looks at the fleet about once a second, from outside. looks: when, and what was wrong ("" for nothing)."""

    live: Live
    looks: list[tuple[float, str]] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def row(self) -> FleetRow:
        connect = {str(c.alias): resolve_connection_settings(c) for c in self.live.plan.clusters}
        [row] = read_fleet_rows(self.live.plan, connect.__getitem__, "cloud")
        return row

    def follow(self) -> None:
        while not self.over.wait(0.5):
            with contextlib.suppress(ClusterError):
                row = self.row()
                wrong = "" if row.is_at_size and row.wanted == WORKERS else f"{row.present} of {row.wanted} workers"
                self.looks.append((time.monotonic(), wrong or ("" if row.supervisor else "no supervisor")))

    def wait_quiet(self, since: float, seconds: float = 600) -> tuple[float, float]:
        """Until nothing was wrong for a while. Returns how long after `since` workers were missing at last, and workers
        or a supervisor."""

        def is_quiet() -> bool:
            last = max([since, *(at for at, wrong in self.looks if wrong)])
            return time.monotonic() > last + QUIET_S and bool(self.looks) and self.looks[-1][0] > last

        until(is_quiet, "the fleet to be as it should", seconds)
        bad = [(at - since, wrong) for at, wrong in self.looks if wrong and at > since]
        return max([0.0, *(at for at, w in bad if "workers" in w)]), max([0.0, *(at for at, _ in bad)])


@dataclass(slots=True)
class Scene:
    """live: what tests of a real Airflow share. hosts: by name, as they run now."""

    live: Live
    base: Path
    environ: dict[str, dict[str, str]]
    hosts: dict[str, Host]
    watch: Watch
    table: list[tuple[str, float, float, float]] = field(default_factory=list)

    def start_component(self, name: str) -> None:
        argv = [*CONTROL[name], *(["--port", self.environ["control"]["AIRFLOW__API__PORT"]] if "api" in name else [])]
        self.hosts["control"].run(name, airflow(*argv), self.environ["control"])

    def start_worker(self, name: str) -> None:
        others = [each for each in ("control", *HOSTS) if each != name]
        self.hosts[name] = start_host(name, self.base, others)
        argv = airflow("edge", "worker", "--concurrency", "8", "--queues", f"default,{name}", "--edge-hostname", name)
        self.hosts[name].run("worker", argv, self.environ[name])

    def measure(self, what: str, since: float) -> None:
        size, supervised = self.watch.wait_quiet(since)
        self.table.append((what, size, supervised, os.getloadavg()[0]))

    def kill_component(self, name: str) -> None:
        """And start it again at once, as whatever runs it in production does."""
        since = time.monotonic()
        self.hosts["control"].kill_component(name)
        if name in ("scheduler", "triggerer"):
            self.live.make_long_dead(name)
        self.start_component(name)
        self.measure(f"kill -9 of the {name}", since)

    def find_host(self, dag: str, run: str, task: str) -> str:
        """Where a task runs."""
        return until(lambda: self.live.client.task(dag, run, task).host, f"the host of {task}")

    def kill_host(self, name: str, what: str) -> None:
        since = time.monotonic()
        self.hosts[name].kill()
        self.measure(what, since)

    def journal(self, run: str) -> list[JournalEntry]:
        return open_migration_journal(self.live.plan, "a test").refresh().run(run)


@pytest.fixture(scope="module")
def scene(kafka_pair: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    if why := find_missing_hosts() or postgres.find_missing_postgres():
        pytest.skip(why)
    with running(kafka_pair, tmp_path_factory.mktemp("hosts")) as found:
        yield found


@contextmanager
def running(kafka_pair: Lab, base: Path) -> Iterator[Scene]:
    """Everything up to an Airflow on three hosts whose DAGs are parsed."""
    with postgres.run_postgres() as server, _applications(kafka_pair, base) as apps:
        (base / "topologies").mkdir()
        path = base / "topologies" / f"{NAME}.yaml"
        path.write_text(render_file(FILE, kafka_pair, NAME, apps))
        environ = _environments(base, server.url)
        control = start_host("control", base, HOSTS)
        url = f"http://127.0.0.1:{environ['control']['AIRFLOW__API__PORT']}"
        live = Live(NAME, base, compile_path(path), LocalAirflow(base, url, {}), AirflowClient(url), apps, server.url)
        found = Scene(live, base, environ, {"control": control}, Watch(live))
        try:
            _start_control(found)
            for name in HOSTS:
                found.start_worker(name)
            live.client.wait_for_dag(f"supervise__{NAME}", 600)
            live.client.wait_for_dag(live.dag, 600)
            yield found
        finally:
            found.watch.over.set()
            for host in found.hosts.values():
                host.end()


@contextmanager
def _applications(pair: Lab, base: Path) -> Iterator[dict[str, sample_applications.SampleApplication]]:
    try:
        yield start_applications(pair, NAME, base / "apps")
    finally:
        sample_applications.stop_applications(base / "apps")


def _environments(base: Path, database: str) -> dict[str, dict[str, str]]:
    port, found = find_free_ports(1)[0], {}
    url = f"http://127.0.0.1:{port}/edge_worker/v1/rpcapi"
    for name in ("control", *HOSTS):
        home = base / name / "airflow"
        home.mkdir(parents=True)
        found[name] = build_airflow_environment(
            home, port, topologies=base / "topologies", state=base / name / "state"
        ) | {
            **SETTINGS,
            "AIRFLOW__CORE__EXECUTOR": "airflow.providers.edge3.executors.EdgeExecutor",
            "AIRFLOW__EDGE__API_ENABLED": "True",
            "AIRFLOW__EDGE__API_URL": url,
            "AIRFLOW__EDGE__JOB_POLL_INTERVAL": "1",
            "AIRFLOW__EDGE__HEARTBEAT_INTERVAL": "10",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",
            "WATERSHED_STATE_SHARED": "no",
            "WATERSHED_SUPERVISOR_QUEUES": ",".join(HOSTS),
        }
    secret = ("AIRFLOW__API_AUTH__JWT_SECRET", "AIRFLOW__CORE__FERNET_KEY", "AIRFLOW__API__SECRET_KEY")
    for name in HOSTS:
        found[name] |= {each: found["control"][each] for each in secret}
    found["control"]["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = database
    users = {user: user for user in ("admin", "ops", "view")}
    Path(found["control"]["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"]).write_text(json.dumps(users))
    return found


def _start_control(scene: Scene) -> None:
    control = scene.hosts["control"]
    control.run("db-migrate", airflow("db", "migrate"), scene.environ["control"])
    migration = control.components.pop("db-migrate")
    until(lambda: not is_alive(migration), "the database")
    assert "Database migration done" in (control.home / "db-migrate.log").read_text()
    for name in CONTROL:
        scene.start_component(name)
    wait_until_healthy(LocalAirflow(control.home, scene.live.airflow.url, control.components), timeout=600)


def test_an_airflow_on_three_hosts_keeps_a_fleet_and_moves_applications_whoever_is_killed(scene: Scene) -> None:
    live, client = scene.live, scene.live.client
    _start_fleet(scene)
    _kill_a_worker_and_a_supervisor(scene)
    _move_the_first_wave(scene)
    scene.kill_component("api-server")
    _kill_a_host_in_the_second_wave(scene)
    _assert_nothing_is_lost(live)
    _assert_nothing_is_shared(scene)
    assert client.import_errors() == []
    print(f"\n{'what':44} {'workers':>8} {'supervisor':>10}  load")
    for what, size, supervised, load in scene.table:
        print(f"{what:44} {size:8.1f} {supervised:10.1f}  {load:.0f}")


def _start_fleet(scene: Scene) -> None:
    """The plan is compiled on a worker's host; the triggerer on the control host waits until it runs."""
    client = scene.live.client
    for kind in ("supervise", "replicate", "migrate"):
        client.wait_for_dag(f"{kind}__{NAME}", 600)
        client.unpause(f"{kind}__{NAME}")
    client.trigger(f"replicate__{NAME}", "first", {"approval": "auto"})
    until(lambda: client.run_state(f"replicate__{NAME}", "first") in ("success", "failed"), "the fleet")
    assert client.run_state(f"replicate__{NAME}", "first") == "success", scene.live.failures(
        f"replicate__{NAME}", "first"
    )
    threading.Thread(target=scene.watch.follow, daemon=True).start()
    scene.watch.wait_quiet(time.monotonic())


def _kill_a_worker_and_a_supervisor(scene: Scene) -> None:
    [host] = {scene.watch.row().supervisor.rpartition("-")[0]}
    assert host in HOSTS
    since = time.monotonic()
    scene.hosts[host].processes("cli.main", "worker")[0].kill()
    scene.measure("kill -9 of a worker", since)
    [supervisor] = scene.hosts[host].processes("cli.main", "fleet", "supervise")
    family = [supervisor, *supervisor.parents()[:2]]  # the task's process, and Airflow's, which watches the task
    since = time.monotonic()
    for process in family:
        process.kill()
    scene.measure("kill -9 of the supervisor's task", since)
    assert scene.watch.row().supervisor.rpartition("-")[0] in set(HOSTS) - {host}


def _move_the_first_wave(scene: Scene) -> None:
    """The task that checks, the triggerer and the scheduler are killed in turn."""
    live, run = scene.live, "migrate.first.orders"
    live.client.trigger(live.dag, "first", {"waves": ["orders"]})
    until(lambda: [e for e in scene.journal(run) if e.step == "lag_gate"], "lag_gate in the journal")
    host = scene.hosts[scene.find_host(live.dag, "first", "orders.check")]
    for process in host.processes("-m", "plugins.watershed.detached_process"):
        process.kill()  # a proof's application, where there is one already
    live.wait_task("first", "orders.hold_before", "deferred")
    scene.kill_component("triggerer")
    live.client.answer(live.question("first", "orders.approval"), "Approve")
    until(lambda: [e for e in scene.journal(run) if e.step == "stop_consumers"], "the first deed")
    scene.kill_component("scheduler")
    live.wait_task("first", "orders.end", "success")
    _assert_moved(scene, run, "orders", f"{NAME}-billing")


def _kill_a_host_in_the_second_wave(scene: Scene) -> None:
    """The one that moves the applications, then the one that supervises. The journal has a task on the other go on."""
    live, run = scene.live, "migrate.second.paid"
    live.client.trigger(live.dag, "second", {"waves": ["paid"], "approval": "auto"})
    until(lambda: [e for e in scene.journal(run) if e.step == "stop_consumers"], "the first deed")
    moving = scene.find_host(live.dag, "second", "paid.move_consumers")
    supervising = scene.watch.row().supervisor.rpartition("-")[0]
    told = "supervises and moves applications" if moving == supervising else "moves applications"
    scene.kill_host(moving, f"kill -9 of the host that {told}")
    scene.start_worker(moving)
    until(lambda: live.client.run_state(live.dag, "second") in ("success", "failed"), "the end of the second wave")
    assert live.client.run_state(live.dag, "second") == "success", live.failures(live.dag, "second")
    _assert_moved(scene, run, "payments", f"{NAME}-ledger")
    supervising = scene.watch.row().supervisor.rpartition("-")[0]
    scene.kill_host(supervising, "kill -9 of the host that supervises")
    scene.start_worker(supervising)


def _assert_moved(scene: Scene, run: str, *applications: str) -> None:
    last = scene.journal(run)[-1]
    assert (last.step, last.observation["state"]) == ("run", "done")
    assert set(scene.live.where(*applications).values()) == {("running", "cloud")}


def _assert_nothing_is_lost(live: Live) -> None:
    for name in ("orders", "payments"):
        sample_applications.stop_client(live.apps[name])

    def account() -> list[tuple[int, int, int]]:
        groups = build_account(find_applications(live.home / "apps")).groups
        return [(each.lost, each.repeated, each.out_of_order_per_key) for each in groups]

    until(lambda: all(lost == 0 for lost, _, _ in account()), "the consumers to read everything", 180)
    assert account() == [(0, 0, 0)] * 2
    assert open_migration_journal(live.plan, "a test").refresh().foreign == ()


def _assert_nothing_is_shared(scene: Scene) -> None:
    """Each host has the plan, and the file of nobody else; the two with workers never opened a database."""
    for name in ("control", *HOSTS):
        plans = [path.parent.name for path in (scene.base / name / "state" / "plans").glob("*/plan.json")]
        assert scene.live.plan.hash.rpartition(":")[2] in plans, name
    for name in HOSTS:
        assert not (scene.base / name / "airflow" / "airflow.db").exists()
