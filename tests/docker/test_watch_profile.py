"""The profile `watch` of docker-compose.yaml, and a worker as the chart has it run: really started, beside two brokers.

A project of its own, `watershed-watch`: an installation and the demonstration go on meanwhile. It leaves nothing but
images.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.docker.rendered_chart import render_chart, require_helm, select
from watershed.lab.containers.__main__ import COMPOSE_FILES, build_project, read_services
from watershed.lab.containers.container_engine import ComposeProject, EngineMissing, find_engine
from watershed.lab.containers.images import build_images, list_base_images, list_builds, provide_base_images
from watershed.lab.containers.startup import wait_until_ready
from watershed.lab.free_ports import find_free_ports
from watershed.lab.prometheus_server import is_prometheus_built

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

ROOT = COMPOSE_FILES[0].parent
TOPOLOGY = ROOT / "docker" / "topologies" / "orders-move.yaml"
PORTS = ("AIRFLOW", "ONPREM", "CLOUD", "ONPREM_REGISTRY", "CLOUD_REGISTRY", "PROMETHEUS", "GRAFANA")
RULE = "groups: [{name: g, rules: [{alert: Up, expr: 'watershed_cluster_up{cluster=\"cloud\"} == 1'}]}]\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeProject]:
    """Both brokers, the exporter and Prometheus, with the sample topology applied."""
    if not is_prometheus_built():
        pytest.skip("Prometheus is not built here: python -m watershed.lab.prometheus_server build")
    scratch = tmp_path_factory.mktemp("watch")
    (scratch / "rules").mkdir(mode=0o755)
    (scratch / "rules" / "up.yaml").write_text(RULE)
    scratch.chmod(0o755)
    try:
        found = build_project(find_engine(scratch / "engine"), 1)
    except EngineMissing as missing:
        pytest.skip(str(missing))
    ports = {f"WATERSHED_{name}_PORT": str(port) for name, port in zip(PORTS, find_free_ports(7), strict=True)}
    environ = {**found.engine.environ, **ports, "WATERSHED_RULES_DIR": str(scratch / "rules")}
    found = replace(
        found, engine=replace(found.engine, environ=environ), files=COMPOSE_FILES[:1], name="watershed-watch",
        profiles=("watch",),
    )  # fmt: skip
    every = read_services(found)
    services = {name: every[name] for name in ("onprem", "cloud", "exporter", "prometheus")}
    bases = list_base_images((ROOT / "docker" / "Dockerfile").read_text(), services)
    provide_base_images(found.engine, bases, ROOT / "docker" / "bases", scratch, print)
    builds = {
        image: each for image, each in list_builds(every).items() if image in ("watershed-engine", "watershed-kafka")
    }
    build_images(found.engine, builds, ROOT, print)
    found.run("down", "--volumes")
    try:
        for names in (["onprem", "cloud"], ["exporter"], ["prometheus"]):
            found.run("up", "--detach", "--no-build", "--no-deps", *names)
            wait_until_ready(found, names, services, frozenset())
        exporter = found.find_container("exporter")
        assert exporter is not None
        found.engine.run("exec", exporter, "topology", "apply", f"/topologies/{TOPOLOGY.name}", "--yes")
        yield found
    finally:
        found.run("down", "--volumes")


def ask(project: ComposeProject, path: str) -> Any:
    url = f"http://127.0.0.1:{project.engine.environ['WATERSHED_PROMETHEUS_PORT']}/api/v1/{path}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)["data"]


def wait_for(project: ComposeProject, expression: str, expected: dict[str, float], label: str) -> None:
    deadline = time.monotonic() + 120
    while True:
        result = ask(project, f"query?query={quote(expression)}")["result"]
        found = {each["metric"][label]: float(each["value"][1]) for each in result}
        if found == expected:
            return
        assert time.monotonic() < deadline, found
        time.sleep(1)


def test_prometheus_knows_the_estate_and_its_rules_fire(project: ComposeProject) -> None:
    wait_for(project, "watershed_cluster_up", {"cloud": 1, "onprem": 1}, "cluster")
    running = 'watershed_flow_state{state="running"}'
    wait_for(project, running, {"onprem-to-cloud": 1, "cloud-to-onprem": 0}, "flow")
    wait_for(project, 'ALERTS{alertstate="firing"}', {"Up": 1}, "alertname")


def test_a_worker_as_the_chart_has_it_serves_and_ends_in_good_order(project: ComposeProject, tmp_path: Path) -> None:
    """Uid 1000, no capabilities, a root file system that is read-only, /tmp; its probes; SIGTERM within its time."""
    require_helm()
    options = ("--set-file", f"topology.text={TOPOLOGY}", "--set", f"topology.file={TOPOLOGY.name}")
    [deployment] = [
        each for each in select(render_chart(tmp_path, "small", *options), "Deployment")
        if each["metadata"]["name"].endswith("-cloud")
    ]  # fmt: skip
    pod = deployment["spec"]["template"]["spec"]
    [container] = pod["containers"]
    engine, seconds = project.engine, str(pod["terminationGracePeriodSeconds"])
    variables = [f"--env={each['name']}={each['value']}" for each in container["env"]]
    confined = [
        "--read-only",
        "--read-only-tmpfs=false",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--user=1000:1000",
    ]
    folders = ["--tmpfs=/tmp:mode=1777", f"--volume={TOPOLOGY.parent}:/topologies:ro,z"]
    program, *words = container["command"]
    identity = engine.run(
        "run", "--detach", "--network=watershed-watch_watershed", *confined, *folders, *variables,
        "--entrypoint", program, "watershed-engine", *words,
    ).strip()  # fmt: skip
    try:
        port = str(container["ports"][0]["containerPort"])
        deadline = time.monotonic() + 120
        while engine.try_run("exec", identity, "/opt/watershed/docker/health.sh", port).returncode != 0:
            assert time.monotonic() < deadline, engine.try_run("logs", identity).stderr
            time.sleep(1)
        wait_for(project, 'watershed_fleet_workers{kind="present",target="cloud"}', {"cloud": 1}, "target")
        engine.run("stop", f"--time={seconds}", identity)
        state = (engine.inspect(identity) or {})["State"]
        assert state["ExitCode"] == 0, engine.try_run("logs", identity).stderr
        wait_for(project, 'watershed_fleet_workers{kind="present",target="cloud"}', {"cloud": 0}, "target")
    finally:
        engine.run("rm", "--force", identity)
