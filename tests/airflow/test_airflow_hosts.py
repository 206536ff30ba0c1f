"""One Airflow on three hosts that share the topology files and nothing else; each of its parts is killed with SIGKILL.

The host `control` has api-server, scheduler, dag-processor and triggerer; `host-b` and `host-c` have a worker of the
edge executor each, and know no database. The fleet's supervisors are tasks (`placement: task`).
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.airflow.hosts import Host, airflow, find_missing_hosts, start_host
from tests.airflow.live import SETTINGS, Live, render_file, start_applications, until
from watershed.clusters.errors import ClusterError
from watershed.clusters.settings import resolve_connection_settings
from watershed.cutover.journal.hash_chain import JournalEntry
from watershed.lab import postgres, sample_applications
from watershed.lab.account import build_account, find_applications
from watershed.lab.airflow import LocalAirflow, build_airflow_environment, wait_until_healthy
from watershed.lab.airflow_client import AirflowClient
from watershed.lab.detached_process import is_alive
from watershed.lab.free_ports import find_free_ports
from watershed.plugins.steps.run_journal import open_migration_journal
from watershed.plugins.supervisor_queues import SUPERVISE_KINDS
from watershed.replicator.worker.fleet_status import FleetRow, read_fleet_rows
from watershed.topology import compile_path

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

pytestmark = [getattr(pytest.mark, mark) for mark in ("kafka", "airflow", "spark", "slow", "soak")]
pytestmark += [pytest.mark.timeout(3600)]
NAME = "hosts"
RUN = "live"
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
    topics: {{include: [{name}.orders]}}
    workers: {{engine: process, discovery: 1s, count: 2, placement: task}}
migration:
  flow: onprem-to-cloud-{name}
  applications:
    {name}-billing: {{http: "{billing}"}}
    orders: {{http: "{orders}"}}
  waves:
    - name: orders
      topics: [{name}.orders]
      consumers: [{name}-billing]
      producers: [orders]
      gates:
        before: [{{lag: {{max_records: 5000, hold: 10s}}}}, {{verify: {{level: L1}}}}, {{hold: {{for: 40s}}}}]
        after: [{{stragglers: {{watch: 2s}}}}, {{verify: {{level: L1}}}}]
      rollback: {{none: a test has no way back}}
"""
CONTROL = {
    "api-server": ["api-server", "--host", "127.0.0.1", "--workers", "1"],
    "scheduler": ["scheduler", "--skip-serve-logs"],
    "dag-processor": ["dag-processor"],
    "triggerer": ["triggerer", "--skip-serve-logs"],
}


@dataclass(slots=True)
class Watch:
    """Looks at the fleet twice a second, from outside. looks: when, and what was there."""

    live: Live
    looks: list[tuple[float, FleetRow]] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def row(self) -> FleetRow:
        connect = {str(c.alias): resolve_connection_settings(c) for c in self.live.plan.clusters}
        [row] = read_fleet_rows(self.live.plan, connect.__getitem__, "cloud")
        return row

    def follow(self) -> None:
        while not self.over.wait(0.5):
            with contextlib.suppress(ClusterError):
                self.looks.append((time.monotonic(), self.row()))

    def wait_quiet(self, since: float, gone: Callable[[str], bool], seconds: float = 900) -> tuple[float, float]:
        """Until nothing is wrong for a while. gone: which of the names that a group may still have are dead. Returns
        how long after `since` workers, and a supervisor, were missing at last."""

        def last_wrong() -> tuple[float, float]:
            looks = [(at, row) for at, row in self.looks if at > since]
            sized = [at for at, row in looks if not row.is_at_size or any(map(gone, row.workers))]
            supervised = [at for at, row in looks if not row.supervisor or gone(row.supervisor)]
            return max([since, *sized]), max([since, *supervised])

        def is_quiet() -> bool:
            last = max(last_wrong())
            return time.monotonic() > last + QUIET_S and bool(self.looks) and self.looks[-1][0] > last

        until(is_quiet, "the fleet to be as it should", seconds)
        sized, supervised = last_wrong()
        return sized - since, supervised - since


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
        # As a unit restarts it. A killed worker leaves the file, and while Airflow takes it for alive no other of its
        # name may start.
        left = shlex.quote(str(self.base / name / "airflow" / "airflow-edge-worker.pid"))
        again = ["/bin/sh", "-c", f'rm -f {left}; until "$@"; do sleep 2; rm -f {left}; done', "worker"]
        self.hosts[name].run("worker", [*again, *argv], self.environ[name])

    def measure(self, what: str, since: float, *gone: str, host: str = "") -> None:
        """gone: names of processes that are dead; host: all of that host."""
        size, supervised = self.watch.wait_quiet(since, lambda name: name in gone or name.rpartition("-")[0] == host)
        self.table.append((what, size, supervised, os.getloadavg()[0]))

    def kill_component(self, name: str) -> None:
        """And start it again at once, as whatever runs it in production does."""
        since = time.monotonic()
        self.hosts["control"].kill_component(name)
        if name in ("scheduler", "triggerer"):
            self.live.make_long_dead(name)
        self.start_component(name)
        self.measure(f"kill -9 of the {name}", since)

    def find_host(self, task: str) -> str:
        """Where a task of the migration runs."""
        return until(lambda: self.live.task(RUN, task).host, f"the host of {task}")

    def find_supervising_host(self) -> str:
        return until(lambda: self.watch.row().supervisor, "a supervisor").rpartition("-")[0]

    def wait_standby(self) -> None:
        """Until each host supervises or stands by; Airflow notices after minutes that a task is dead."""

        def stands_by(name: str) -> bool:
            return bool(self.hosts[name].processes("watershed.cli.main", "fleet", "supervise"))

        until(lambda: all(map(stands_by, HOSTS)), "a supervisor on each host", 900)

    def kill_host(self, name: str, what: str) -> None:
        since = time.monotonic()
        self.hosts[name].kill()
        self.measure(what, since, host=name)

    def journal(self) -> list[JournalEntry]:
        return open_migration_journal(self.live.plan, "a test").refresh().run(f"migrate.{RUN}.orders")


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
        url = f"http://127.0.0.1:{environ['control']['AIRFLOW__API__PORT']}"
        live = Live(NAME, base, compile_path(path), LocalAirflow(base, url, {}), AirflowClient(url), apps, server.url)
        found = Scene(live, base, environ, {"control": start_host("control", base, HOSTS)}, Watch(live))
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
    _start_fleet(scene)
    scene.live.client.trigger(scene.live.dag, RUN, {"waves": ["orders"], "approval": "auto"})
    _kill_a_worker(scene)
    _kill_the_supervisors_task(scene)
    _kill_the_triggerer_while_the_wave_waits(scene)
    _kill_the_host_that_moves_applications(scene)
    scene.kill_component("scheduler")
    _assert_the_wave_is_moved(scene)
    scene.kill_component("api-server")
    _kill_the_host_that_supervises(scene)
    _assert_nothing_is_lost(scene.live)
    _assert_nothing_is_shared(scene)
    print(f"\n{'what':44} {'workers':>8} {'supervisor':>10}  load")
    for what, size, supervised, load in scene.table:
        print(f"{what:44} {size:8.1f} {supervised:10.1f}  {load:.0f}")


def _start_fleet(scene: Scene) -> None:
    """The plan is compiled on a worker's host; the triggerer on the control host waits until it runs."""
    client = scene.live.client
    for kind in (*SUPERVISE_KINDS[: len(HOSTS)], "replicate", "migrate"):
        client.wait_for_dag(f"{kind}__{NAME}", 600)
        client.unpause(f"{kind}__{NAME}")
    client.trigger(f"replicate__{NAME}", "first", {"approval": "auto"})
    until(lambda: client.run_state(f"replicate__{NAME}", "first") in ("success", "failed"), "the fleet")
    assert client.run_state(f"replicate__{NAME}", "first") == "success", scene.live.failures(
        f"replicate__{NAME}", "first"
    )
    threading.Thread(target=scene.watch.follow, daemon=True).start()
    scene.watch.wait_quiet(time.monotonic(), lambda _name: False)


def _kill_a_worker(scene: Scene) -> None:
    host = scene.hosts[scene.find_supervising_host()]
    worker = host.processes("watershed.cli.main", "worker")[0]
    name, since = host.name_process(worker), time.monotonic()
    worker.kill()
    scene.measure("kill -9 of a worker", since, name)


def _kill_the_supervisors_task(scene: Scene) -> None:
    """With the process of the task, and Airflow's, which watches it: Airflow learns nothing of it for a minute."""
    scene.wait_standby()
    host = scene.find_supervising_host()
    [supervisor] = scene.hosts[host].processes("watershed.cli.main", "fleet", "supervise")
    name = scene.hosts[host].name_process(supervisor)
    family, since = [supervisor, *supervisor.parents()[:2]], time.monotonic()
    for process in family:
        process.kill()
    scene.measure("kill -9 of the supervisor's task", since, name)  # by whoever is first: the other host, as a rule


def _kill_the_triggerer_while_the_wave_waits(scene: Scene) -> None:
    """The plan was compiled on a worker's host: the triggerer has it from the run."""
    scene.live.wait_task(RUN, "orders.hold_before", "deferred")
    scene.kill_component("triggerer")
    scene.live.wait_task(RUN, "orders.hold_before", "success")


def _kill_the_host_that_moves_applications(scene: Scene) -> None:
    """A task on the other one goes on, by the journal."""
    until(lambda: [e for e in scene.journal() if e.step == "stop_consumers"], "the first deed")
    moving = scene.find_host("orders.move_consumers")
    told = "supervises and moves applications" if moving == scene.find_supervising_host() else "moves applications"
    scene.kill_host(moving, f"kill -9 of the host that {told}")
    scene.start_worker(moving)


def _kill_the_host_that_supervises(scene: Scene) -> None:
    scene.wait_standby()
    supervising = scene.find_supervising_host()
    scene.kill_host(supervising, "kill -9 of the host that supervises")
    assert scene.find_supervising_host() != supervising


def _assert_the_wave_is_moved(scene: Scene) -> None:
    live = scene.live
    until(lambda: live.client.run_state(live.dag, RUN) in ("success", "failed"), "the end of the wave")
    assert live.client.run_state(live.dag, RUN) == "success", live.failures(live.dag, RUN)
    last = scene.journal()[-1]
    assert (last.step, last.observation["state"]) == ("run", "done")
    assert set(live.where("orders", f"{NAME}-billing").values()) == {("running", "cloud")}


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
    """Each host has the plan in a folder of its own; the two with workers have no database."""
    for name in ("control", *HOSTS):
        plans = [path.parent.name for path in (scene.base / name / "state" / "plans").glob("*/plan.json")]
        assert scene.live.plan.hash.rpartition(":")[2] in plans, name
    for name in HOSTS:
        path = scene.base / name / "airflow" / "airflow.db"  # SQLAlchemy makes the file, with nothing in it
        if path.exists():
            with contextlib.closing(sqlite3.connect(path)) as database:
                assert database.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
