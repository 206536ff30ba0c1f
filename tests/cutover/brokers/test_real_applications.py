"""Twelve applications, moved in the five ways, on real brokers with live traffic; their own records are the judge.

One person answers late, one DAG fails, one pod does not terminate. A wave is done, or everything is where it was: then
its cause is repaired, and the wave runs again. Kubernetes is a real API server with its controllers where that is built
(`python -m watershed.lab.kubernetes_server build`), else a small one. Airflow is a server of this process that speaks
the part of
its API that is used (tests/airflow and `make demo` ask a real Airflow). All of them really stop and start applications.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from tests.cutover.kubernetes_api import ApiServer, running_api_server
from tests.cutover.real_kubernetes import NOT_BUILT, RealCluster, played_namespace, running_server
from tests.replicator.real import applied, plan_for, read_all, settings_of, workers
from tests.replicator.status_view import read_statuses
from watershed.clusters.settings import ConnectionSettings
from watershed.cutover.actions import RequestProof
from watershed.cutover.driver import RunEvent
from watershed.cutover.journal.hash_chain import JournalChain
from watershed.cutover.journal.journal_topic import JournalTopicLog
from watershed.cutover.live.applications.person_application import PersonAnswer, PersonRequest
from watershed.cutover.observations import ProofOutcome
from watershed.cutover.run_opening import open_run
from watershed.cutover.run_plan import plan_migration
from watershed.cutover.step_runner import RunResult
from watershed.cutover.wave_states import list_wave_states
from watershed.lab import sample_applications
from watershed.lab.account import build_account, find_applications
from watershed.lab.kubernetes_server import is_kubernetes_built
from watershed.lab.preload import create_lab_topics
from watershed.lab.sample_applications import SampleApplication
from watershed.topology.application_controls import AirflowControl, KubernetesControl, PlanApplication
from watershed.topology.migration_waves import PlanMigration as PlanMigration
from watershed.topology.migration_waves import RollbackPolicy, Wave
from watershed.topology.plan import Plan, seal_plan
from watershed.topology.secret_ref import SecretRef

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.soak]

PARTITIONS = 2
LATE_S = 12.0
# wave → how its two groups and its two producers are moved
WAYS = {
    "one": ("http", "person", "command", "kubernetes"),
    "two": ("kubernetes", "airflow", "http", "airflow"),
    "three": ("person", "command", "kubernetes", "person"),
}
WAVES = tuple(WAYS)


@dataclass
class Office:
    """Where applications are, and everybody who stops and starts them: a person, an Airflow, pods.

    failing: DAGs whose runs fail. late_s: how long the person takes for the next answer."""

    home: Path
    settings: dict[str, ConnectionSettings]
    names: dict[str, str] = field(default_factory=dict)  # application (or group) → process
    failing: set[str] = field(default_factory=set)
    runs: dict[str, str] = field(default_factory=dict)
    late_s: float = 0.0
    asked: list[PersonRequest] = field(default_factory=list)

    def app(self, name: str) -> SampleApplication:
        return sample_applications.list_applications(self.home)[self.names[name]]

    def move(self, name: str, verb: str, alias: str, bootstrap: str) -> None:
        if verb == "stop":
            sample_applications.stop_client(self.app(name))
        else:
            sample_applications.start_client(self.app(name), alias, bootstrap)

    def ask(self, request: PersonRequest) -> PersonAnswer:
        self.asked.append(request)
        time.sleep(self.late_s)
        self.late_s = 0.0
        self.move(request.name, request.verb, request.alias, ",".join(request.bootstrap))
        return PersonAnswer("done", "ann")

    def start_pod(self, app: str, servers: str) -> None:
        alias = next(alias for alias, each in self.settings.items() if servers in each.bootstrap)
        self.move(app.replace("--", "."), "start", alias, servers)

    def end_pod(self, app: str) -> None:
        self.move(app.replace("--", "."), "stop", "", "")

    def answer_airflow(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        parts = path.removeprefix("/api/v2/dags/").split("/")
        if method == "POST":
            run, told = body["dag_run_id"], body["conf"]["watershed"]
            if run in self.runs:
                return 409, {}
            self.runs[run] = "running"
            threading.Thread(target=self._run_dag, args=(parts[0], run, told), daemon=True).start()
            return 200, {"state": "queued"}
        if len(parts) > 2:
            return (200, {"state": self.runs[parts[2]]}) if parts[2] in self.runs else (404, {})
        return 200, {"is_paused": False}

    def _run_dag(self, dag: str, run: str, told: dict[str, str]) -> None:
        if dag in self.failing:
            self.runs[run] = "failed"
            return
        self.move(told["application"], told["verb"], told["cluster"], told["bootstrap"])
        self.runs[run] = "success"


class Kubernetes(Protocol):
    """Workloads whose pods are applications of the office, one each."""

    kubeconfig: str

    def add(self, app: str, servers: str) -> None:
        """A Deployment whose application runs already."""

    def follow(self, office: Office) -> None:
        """From now on, an application is where its pod is."""

    def hold(self, app: str) -> str:
        """Its pod will not end; returns the pod's name."""

    def release(self) -> None:
        """Pods that were held end; returns when they are gone."""

    def list_replicas(self) -> set[int]:
        """Of all workloads."""


class SmallKubernetes:
    """The server of the pure tests."""

    def __init__(self, api: ApiServer) -> None:
        self.api, self.kubeconfig = api, api.kubeconfig

    def add(self, app: str, servers: str) -> None:
        self.api.add(f"deployment/{app}", 1, {"KAFKA": servers})

    def follow(self, office: Office) -> None:
        def obey(api: ApiServer) -> None:
            for workload, item in api.workloads.items():
                app = item["metadata"]["name"]
                if item["spec"]["replicas"]:
                    office.start_pod(app, str(api.variable(workload, "KAFKA")))
                elif not any(pod["metadata"]["labels"] == {"app": app} for pod in api.pods.values()):
                    office.end_pod(app)

        self.api.on_change = obey

    def hold(self, app: str) -> str:
        [pod] = [name for name, each in self.api.pods.items() if each["metadata"]["labels"]["app"] == app]
        self.api.stuck = {pod}
        return pod

    def release(self) -> None:
        with self.api.lock:
            for pod in self.api.stuck:
                self.api.pods.pop(pod, None)
            self.api.stuck.clear()
            self.api.reconcile()

    def list_replicas(self) -> set[int]:
        return {self.api.replicas(workload) for workload in self.api.workloads}


class RealKubernetes:
    """A real API server and real controllers; the node is played, and its containers are the office's processes."""

    def __init__(self, cluster: RealCluster) -> None:
        self.cluster, self.kubeconfig = cluster, cluster.kubeconfig
        self.apps: dict[str, set[str]] = {}  # app → pods whose container runs

    def add(self, app: str, servers: str) -> None:
        self.cluster.add(f"deployment/{app}", 1, {"KAFKA": servers})
        self.apps[app] = {pod.metadata.uid for pod in self.cluster.list_pods(app)}

    def follow(self, office: Office) -> None:
        def start(pod: Any) -> None:
            app = pod.metadata.labels["app"]
            office.start_pod(app, next(each.value for each in pod.spec.containers[0].env if each.name == "KAFKA"))
            self.apps[app].add(pod.metadata.uid)

        def end(pod: Any) -> None:
            app = pod.metadata.labels["app"]
            self.apps[app].discard(pod.metadata.uid)
            if not self.apps[app]:
                office.end_pod(app)

        self.cluster.on_start, self.cluster.on_end = start, end

    def hold(self, app: str) -> str:
        [pod] = [each.metadata.name for each in self.cluster.list_pods(app)]
        self.cluster.stuck = {pod}
        return str(pod)

    def release(self) -> None:
        held = set(self.cluster.stuck)
        self.cluster.stuck.clear()
        self.cluster.until(lambda: not held & {pod.metadata.name for pod in self.cluster.list_pods()})

    def list_replicas(self) -> set[int]:
        return {self.cluster.replicas(f"deployment/{app}") for app in self.apps}


@contextmanager
def running_kubernetes(home: Path) -> Iterator[Kubernetes]:
    """The real one where it is built; else the summary of the tests says that it was not."""
    if not is_kubernetes_built():
        warnings.warn(f"a small API server stands in for the real one, which is {NOT_BUILT}", stacklevel=1)
        with running_api_server() as api:
            yield SmallKubernetes(api)
        return
    with running_server(home) as server, played_namespace(server, "shop") as cluster:
        yield RealKubernetes(cluster)


@dataclass(frozen=True)
class Company:
    """Each wave has a topic, two producers of it and two groups that read it."""

    name: str
    office: Office
    kubernetes: Kubernetes
    settings: dict[str, ConnectionSettings]
    airflow: str

    def topic(self, wave: str) -> str:
        return f"{self.name}.{wave}"

    def groups(self, wave: str) -> tuple[str, str]:
        return f"{self.name}.{wave}-g1", f"{self.name}.{wave}-g2"

    def producers(self, wave: str) -> tuple[str, str]:
        return f"{self.name}.{wave}-p1", f"{self.name}.{wave}-p2"

    def members(self, wave: str) -> tuple[str, ...]:
        return *self.groups(wave), *self.producers(wave)

    def declare(self, name: str, way: str) -> PlanApplication:
        match way:
            case "http":
                return PlanApplication(self.office.app(name).http)
            case "person":
                return PlanApplication(person="ask ann", timeout_ms=60_000)
            case "command":
                return PlanApplication(command="switch")
            case "airflow":
                short = name.rpartition(".")[2]
                return PlanApplication(airflow=AirflowControl(f"stop_{short}", f"start_{short}"), timeout_ms=60_000)
        control = KubernetesControl(
            "shop", (f"deployment/{name.replace('.', '--')}",), env="KAFKA",
            credentials=SecretRef("env", "WATERSHED_SECRET_KUBECONFIG"),
        )  # fmt: skip
        return PlanApplication(kubernetes=control, timeout_ms=20_000)

    def plan(self) -> Plan:
        routes = (("onprem", "cloud"), ("cloud", "onprem"))
        base = plan_for(self.settings, self.name, *map(self.topic, WAVES), routes=routes)
        forward, back = base.flows
        way_back = RollbackPolicy(until_ms=3_600_000, reverse=back.id)
        waves = tuple(
            Wave(wave, (self.topic(wave),), self.groups(wave), self.producers(wave), rollback=way_back,
                 strategy="fenced" if wave == "three" else "consumers_first")
            for wave in WAVES
        )  # fmt: skip
        declared = {
            name: self.declare(name, way)
            for wave in WAVES
            for name, way in zip(self.members(wave), WAYS[wave], strict=True)
        }
        back = replace(back, state="paused", delivery="transactions")
        migration = PlanMigration(forward.id, "consumers_first", waves, declared)
        return seal_plan(replace(base, flows=(forward, back), migration=migration))

    def prove(self, wanted: RequestProof) -> ProofOutcome:
        """Not Spark's: both sides are read and compared record by record."""
        proven = unproven = 0
        for topic in wanted.topics:
            there, here = (read_all(self.settings[alias], topic, PARTITIONS) for alias in ("cloud", "onprem"))
            for number in range(PARTITIONS):
                copied, original = ([record for _, record in side[number]] for side in (there, here))
                same = copied == original if wanted.final else copied == original[: len(copied)]
                proven, unproven = proven + len(copied), unproven + (0 if same else 1)
        return ProofOutcome(0, "different" if unproven else "proven", unproven, {"proven": proven})

    def migrate(self, plan: Plan, wave: str, evidence: Path, events: list[RunEvent]) -> RunResult:
        quick = replace(
            plan_migration(plan, wave).policy, poll_ms=200, max_lag=5_000, hold_ms=200, hold_times=2, watch_ms=1_000,
            empty_times=2, after_ms=1_000, consumer_lag=5_000, stall_ms=180_000, barrier_bound_ms=180_000,
            canary_bound_ms=180_000,
        )  # fmt: skip
        going = plan_migration(plan, wave, quick)
        return open_run(
            plan, going, self.settings, prove=self.prove, ask=self.office.ask, say=events.append,
            evidence=evidence / f"{wave}-{len(events)}",
        ).run()  # fmt: skip

    def where(self, wave: str) -> set[tuple[str, str]]:
        seen = [sample_applications.ask_application(self.office.app(name)) for name in self.members(wave)]
        return {(each["state"], each["cluster"]) for each in seen}


@pytest.fixture
def company(kafka_pair: Lab, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Company]:
    settings, here = settings_of(kafka_pair), kafka_pair.clusters["onprem"]
    with ExitStack() as stack:
        kubernetes = stack.enter_context(running_kubernetes(tmp_path / "kubernetes"))
        office = Office(tmp_path / "apps", settings)
        found = Company(topic_name, office, kubernetes, settings, stack.enter_context(serve_airflow(office)))
        create_lab_topics(here.bootstrap, [found.topic(wave) for wave in WAVES], PARTITIONS)
        stack.callback(sample_applications.stop_applications, office.home)
        start_all(found, here.bootstrap)
        commands = tmp_path / "commands.yaml"
        argv = json.dumps([sys.executable, str(write_switch(tmp_path, office))])
        commands.write_text(f"programs:\n  switch: {{argv: {argv}}}\n")
        commands.chmod(0o600)
        for name, value in {
            "WATERSHED_COMMANDS": str(commands),
            "WATERSHED_HOOK_HOSTS": "loopback",
            "WATERSHED_KUBERNETES_NAMESPACES": "shop",
            "WATERSHED_SECRET_KUBECONFIG": kubernetes.kubeconfig,
            "WATERSHED_AIRFLOW_URL": found.airflow,
            "WATERSHED_AIRFLOW_CREDENTIALS": "env:WATERSHED_SECRET_AIRFLOW",
            "WATERSHED_SECRET_AIRFLOW": "token",
        }.items():
            monkeypatch.setenv(name, value)
        for wave in WAVES:
            for name, way in zip(found.members(wave), WAYS[wave], strict=True):
                if way == "kubernetes":
                    kubernetes.add(name.replace(".", "--"), here.bootstrap)
        kubernetes.follow(office)
        yield found


def start_all(company: Company, bootstrap: str) -> None:
    office, at = company.office, ["--cluster", "onprem", "--bootstrap", bootstrap]
    jobs: list[tuple[str, list[str]]] = []
    for wave in WAVES:
        topic = ["--topics", company.topic(wave)]
        jobs += [
            (name, ["watershed.lab.billing_consumer", "--group", name, *topic, *at]) for name in company.groups(wave)
        ]
        jobs += [
            (name, ["watershed.lab.orders_producer", *topic, "--rate", "30", *at]) for name in company.producers(wave)
        ]
    for name, _ in jobs:
        office.names[name] = name.rpartition(".")[2]
    with ThreadPoolExecutor(4) as pool:
        started = [
            pool.submit(sample_applications.start_application, office.home, office.names[name], arguments)
            for name, arguments in jobs
        ]
        for each in started:
            each.result()


def write_switch(folder: Path, office: Office) -> Path:
    """The program of the host: it knows the processes by shorter names."""
    path = folder / "switch.py"
    path.write_text(
        "import sys\nfrom watershed.lab.demo.application_switch import main\n"
        f"verb, name, *rest = sys.argv[1:]\n"
        f"sys.exit(main([{str(office.home)!r}, verb, name.rpartition('.')[2], *rest]))\n"
    )
    return path


def serve_airflow(office: Office) -> Any:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = self.rfile.read(int(self.headers.get("content-length") or 0))
            status, value = office.answer_airflow(self.command, self.path, json.loads(content or b"null"))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(value).encode())

        do_POST = do_GET

        def log_message(self, *_args: object) -> None:
            pass

    @contextmanager
    def serving() -> Iterator[str]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        server.server_close()

    return serving()


def until(what: str, holds: Any, seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def test_twelve_applications_in_five_ways_are_moved_or_where_they_were(company: Company, tmp_path: Path) -> None:
    plan = applied(company.settings, company.plan())
    forward, _back = plan.flows
    office = company.office
    events: list[RunEvent] = []
    with workers(plan, "cloud", tmp_path) as start, workers(plan, "onprem", tmp_path) as start_back:
        start()
        start_back()
        topics = {company.topic(wave) for wave in WAVES}

        def served() -> bool:
            reports = [each for each in read_statuses(company.settings["cloud"]) if each.flow == forward.id]
            return {each.topic for each in reports if each.source_position > 0} == topics

        until("the flow is served", served)
        for wave in WAVES:
            for group in company.groups(wave):
                sample_applications.wait_for_count(office.app(group), "processed", 50, seconds=240)

        def until_back(wave: str) -> None:
            """Taking back does not wait for pods to be ready (docs/applications.md#kubernetes)."""
            until(f"{wave} is where it was", lambda: company.where(wave) == {("running", "onprem")}, seconds=60)

        # One: a person answers late, and in time.
        office.late_s = LATE_S
        result = company.migrate(plan, "one", tmp_path, events)
        assert result.state == "done", result
        assert company.where("one") == {("running", "cloud")}
        assert [each.verb for each in office.asked] == ["stop", "start"]

        # Two: the DAG that stops a producer fails.
        office.failing.add("stop_two-p2")
        result = company.migrate(plan, "two", tmp_path, events)
        assert (result.state, result.step) == ("rolled_back", "fence_producers"), result
        assert "stop_two-p2" in result.reason
        until_back("two")
        office.failing.clear()
        assert (result := company.migrate(plan, "two", tmp_path, events)).state == "done", result
        assert company.where("two") == {("running", "cloud")}

        # Three: a pod does not terminate.
        pod = company.kubernetes.hold(company.producers("three")[0].replace(".", "--"))
        result = company.migrate(plan, "three", tmp_path, events)
        assert (result.state, result.step) == ("rolled_back", "fence_producers"), result
        assert f"{pod} is terminating" in result.reason
        until_back("three")
        company.kubernetes.release()
        assert (result := company.migrate(plan, "three", tmp_path, events)).state == "done", result
        assert company.where("three") == {("running", "cloud")}

        for wave in WAVES:
            for name in company.producers(wave):
                acked = sample_applications.ask_application(office.app(name))["acked"]
                sample_applications.wait_for_count(office.app(name), "acked", acked + 20, seconds=240)
                sample_applications.stop_client(office.app(name))
        until(
            "everything is read", lambda: not any(g.lost for g in build_account(find_applications(office.home)).groups)
        )
    found = build_account(find_applications(office.home))
    assert len(found.groups) == 6
    assert [(g.lost, g.repeated, g.out_of_order_per_key) for g in found.groups] == [(0, 0, 0)] * 6
    chain = JournalChain(plan.topology)
    chain.follow(JournalTopicLog(company.settings["cloud"]).read(0))
    assert [(each.state, each.truth) for each in list_wave_states(plan, chain)] == [("done", "cloud")] * 3
    assert company.kubernetes.list_replicas() == {1}
