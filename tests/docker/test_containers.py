"""The images built, docker-compose.yaml run where there is an engine: the demonstration, and what ends unexpectedly.

`pytest -m soak -s tests/docker/test_containers.py` prints the seconds of docs/containers.md. It uses the project
`watershed-demo` of the engine, removes what an earlier run of it has left, and leaves nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from watershed.lab.containers.__main__ import build_project, read_services
from watershed.lab.containers.container_engine import ComposeProject, EngineMissing, find_engine
from watershed.lab.containers.image_bill import OWN_IMAGES, build_image_bill
from watershed.lab.containers.startup import start_services, wait_until_ready
from watershed.lab.sbom import build_bill_of_materials

pytestmark = [pytest.mark.soak, pytest.mark.timeout(5400)]

TOPOLOGY = "/topologies/orders-move.yaml"
RECORDS = int(os.environ.get("CONTAINERS_RECORDS", "200000"))
SUBJECTS = "http://registry-onprem:8080/apis/ccompat/v7/subjects"
ASK = (
    "import sys, urllib.request as u; body = sys.argv[2].encode() if sys.argv[2:] else None\n"
    "print(u.urlopen(u.Request(sys.argv[1], body, {'Content-Type': 'application/json'})).read().decode())"
)
OF_THE_BASE = ("watershed", "pip", "setuptools", "wheel")  # beside what requirements pin
SCHEMA = json.dumps({"schema": '"string"'})


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeProject]:
    """With everything in it as the demonstration has left it."""
    try:
        found = build_project(find_engine(tmp_path_factory.mktemp("engine")), RECORDS)
    except EngineMissing as missing:
        pytest.skip(str(missing))
    done = subprocess.run(
        [sys.executable, "-m", "watershed.lab.containers", "run", "--keep", f"--records={RECORDS}"], check=False
    )
    try:
        assert done.returncode == 0
        yield found
    finally:
        found.show("down", "--volumes")


def show(what: str, seconds: float) -> None:
    sys.stdout.write(f"{what}: {seconds:.1f} s, load {os.getloadavg()[0]:.0f}\n")


def execute(project: ComposeProject, service: str, *command: str) -> subprocess.CompletedProcess[str]:
    identity = project.find_container(service)
    assert identity is not None
    return project.engine.try_run("exec", identity, *command)


def read_fleets(project: ComposeProject) -> dict[str, dict[str, Any]]:
    """By target; empty while a cluster does not answer."""
    done = execute(project, "fleet-cloud", "topology", "fleet", "status", TOPOLOGY, "--format", "json")
    return {each["target"]: each for each in json.loads(done.stdout)["fleets"]} if done.returncode in (0, 3) else {}


def read_states(project: ComposeProject) -> dict[str, str]:
    return {name: each["state"] for name, each in read_fleets(project).items()}


def are_running_fleets_at_size(project: ComposeProject) -> bool:
    fleets = [each for each in read_fleets(project).values() if each["state"] == "running"]
    return bool(fleets) and all(each["at_size"] for each in fleets)


def wait_for(condition: Callable[[], bool], seconds: float = 600.0) -> float:
    """How long it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds
        time.sleep(0.5)
    return time.monotonic() - began


def kill(project: ComposeProject, service: str) -> None:
    """All of the container's processes but the first, which ends with them."""
    execute(project, service, "bash", "-c", "kill -9 -1")


def wait_until_back(project: ComposeProject, service: str, *, old: int) -> float:
    def is_new() -> bool:
        identity = project.find_container(service)
        state = (project.engine.inspect(identity) or {}).get("State", {}) if identity else {}
        return state.get("Status") == "running" and state.get("Pid") not in (0, old)

    began = time.monotonic()
    wait_for(is_new)
    wait_until_ready(project, [service], read_services(project), frozenset())
    return time.monotonic() - began


def find_pid(project: ComposeProject, service: str) -> int:
    identity = project.find_container(service)
    assert identity is not None
    return int((project.engine.inspect(identity) or {})["State"]["Pid"])


def test_what_is_killed_comes_back_and_fleets_with_it(project: ComposeProject) -> None:
    assert are_running_fleets_at_size(project)
    states = read_states(project)
    for service in ("cloud", "spark-master", "airflow-scheduler", "spark-worker", "fleet-onprem", "fleet-cloud"):
        old = find_pid(project, service)
        kill(project, service)
        began = time.monotonic()
        show(f"{service} killed, back", wait_until_back(project, service, old=old))
        wait_for(lambda: are_running_fleets_at_size(project))
        show(f"{service} killed, fleets at their size", time.monotonic() - began)
        assert read_states(project) == states


def test_a_restart_of_the_scheduler_ends_no_worker(project: ComposeProject) -> None:
    before = {name: sorted(each["workers"]) for name, each in read_fleets(project).items()}
    identity = project.find_container("airflow-scheduler")
    assert identity is not None
    project.engine.run("restart", identity)
    wait_until_ready(project, ["airflow-scheduler"], read_services(project), frozenset())
    assert {name: sorted(each["workers"]) for name, each in read_fleets(project).items()} == before


def test_after_down_and_up_all_of_it_goes_on_without_a_run_in_airflow(project: ComposeProject) -> None:
    ask = ("fleet-cloud", "python", "-c", ASK)
    assert execute(project, *ask, f"{SUBJECTS}/kept/versions", SCHEMA).returncode == 0
    before = read_states(project)
    began = time.monotonic()
    project.run("down")
    show("down", time.monotonic() - began)
    began = time.monotonic()
    start_services(project, read_services(project), lambda text: None)
    show("up again, healthy", time.monotonic() - began)
    wait_for(lambda: are_running_fleets_at_size(project))
    show("up again, fleets at their size", time.monotonic() - began)
    assert read_states(project) == before
    assert json.loads(execute(project, *ask, SUBJECTS).stdout) == ["kept"]


def test_nothing_of_this_machines_settings_is_in_an_image(project: ComposeProject) -> None:
    """`pip.conf` and the like are there, as the places of mounts, and empty."""
    places = "/etc/pip.conf /etc/apt/sources.list.d/lent.* /root/.m2/settings.xml /opt/watershed/.env*"
    folders = "/root/.m2/repository /opt/watershed/.watershed"
    look = f"cat {places} 2>/dev/null; find {folders} -type f 2>/dev/null; echo looked"
    for image in ("watershed-airflow", "watershed-engine", "watershed-kafka", "watershed-registry"):
        asked = ["run", "--rm", "--user", "0", "--entrypoint", "sh"]
        done = project.engine.try_run(*asked, image, "-c", look)
        assert (done.returncode, done.stdout) == (0, "looked\n"), done.stderr
        told = project.engine.try_run(*asked, image, "-c", f"echo mine >/etc/pip.conf; {look}")
        assert told.stdout == "mine\nlooked\n"  # it would be seen


def test_a_bill_names_what_an_image_has_and_that_is_what_was_pinned(project: ComposeProject) -> None:
    pinned = {each["bom-ref"]: each for each in build_bill_of_materials()["components"]}
    hashes = {each["hashes"][0]["content"] for ref, each in pinned.items() if ref.startswith("jar:")}
    for image in OWN_IMAGES:
        found = build_image_bill(project.engine, image)["components"]
        own = {each["name"] for each in found if each["bom-ref"].startswith("pkg:pypi/")}
        strange = {each["bom-ref"] for each in found if each["bom-ref"].startswith("pkg:pypi/")} - pinned.keys()
        assert {ref.partition("@")[0] for ref in strange} <= {f"pkg:pypi/{name}" for name in OF_THE_BASE}
        assert ("watershed" in own) is (image in ("watershed-engine", "watershed-airflow"))
        jars = [each for each in found if each["bom-ref"].startswith("jar:/opt/kafka/")]
        assert {each["hashes"][0]["content"] for each in jars} <= hashes
        assert bool(jars) is (image == "watershed-kafka")
        assert any(each["name"] == "libc6" for each in found)
