"""docker-compose.yaml without a container engine: the Compose specification's own model, a Compose implementation, and
the scripts of the images run on this machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_viz.spec.compose_spec import ComposeSpecification
from confluent_kafka.admin import AdminClient
from pydantic import ValidationError

from lab.detached_process import ProcessIdentity, is_alive, spawn_detached
from lab.free_ports import find_free_ports
from lab.jars import fetch_jars
from lab.process_sessions import end_sessions

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "docker-compose.yaml"
DOCKERFILE = ROOT / "docker" / "Dockerfile"


def read() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return found


def declared() -> dict[str, Any]:
    """Without extension fields, which the specification allows and its model does not know."""
    return {name: value for name, value in read().items() if not name.startswith("x-")}


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = read()["services"]
    return found


def test_it_is_what_the_specification_says() -> None:
    ComposeSpecification.model_validate(declared())


def test_the_specifications_model_finds_a_wrong_key() -> None:
    wrong = declared()
    wrong["services"]["postgres"]["imagee"] = "x"
    with pytest.raises(ValidationError, match="imagee"):
        ComposeSpecification.model_validate(wrong)


def test_a_compose_implementation_resolves_it(tmp_path: Path) -> None:
    """podman-compose only wants to hear podman's version before it resolves a file."""
    podman = tmp_path / "podman"
    podman.write_text("#!/bin/sh\necho podman version 5.0.0\n")
    podman.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "podman_compose", "-f", str(COMPOSE), "config"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "WATERSHED_POSTGRES_PASSWORD": "other"},
        capture_output=True,
        text=True,
        check=True,
    )
    resolved = yaml.safe_load(done.stdout)["services"]
    assert set(resolved) >= {name for name, each in services().items() if "profiles" not in each}
    url = resolved["airflow-scheduler"]["environment"]["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
    assert url == "postgresql+psycopg2://airflow:other@postgres/airflow"


def test_no_password_has_a_default() -> None:
    asked = re.findall(r"\$\{(\w*PASSWORD\w*)([^}]*)\}", COMPOSE.read_text())
    assert asked
    assert all(rest.startswith(":?") for _, rest in asked), asked


def test_passwords_are_made_at_random_and_once(tmp_path: Path) -> None:
    for name in ("one", "other"):
        subprocess.run([ROOT / "docker" / "secrets.sh", tmp_path / name], check=True, capture_output=True)
        assert (tmp_path / name).stat().st_mode & 0o077 == 0
    first, other = [(tmp_path / name).read_text() for name in ("one", "other")]
    assert re.fullmatch(r"WATERSHED_POSTGRES_PASSWORD=[0-9a-f]{64}\n", first)
    assert first != other
    subprocess.run([ROOT / "docker" / "secrets.sh", tmp_path / "one"], check=True, capture_output=True)
    assert (tmp_path / "one").read_text() == first


def test_base_images_are_pinned_and_can_be_by_digest(tmp_path: Path) -> None:
    files = [tmp_path / "Dockerfile", tmp_path / "docker-compose.yaml"]
    for path, original in zip(files, (DOCKERFILE, COMPOSE), strict=True):
        path.write_text(original.read_text())
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\nshift 5; echo "sha256:$(printf %s "$1" | sha256sum | cut -d" " -f1)"\n')
    docker.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for _ in range(2):  # the second time digests are replaced
        subprocess.run([ROOT / "docker" / "pin.sh", *files], env=environment, check=True, capture_output=True)
    for path, original in zip(files, (DOCKERFILE, COMPOSE), strict=True):
        pinned = path.read_text()
        unpinned, count = re.subn(r"@sha256:[0-9a-f]{64}", "", pinned)
        assert unpinned == re.sub(r"@sha256:[0-9a-f]{64}", "", original.read_text())
        assert count == len(re.findall(r"^(?:FROM| +image:) +[^\s:]+:\S*\d", pinned, re.MULTILINE)) > 0


def test_what_is_built_and_started_is_there() -> None:
    stages = set(re.findall(r"^FROM \S+ AS (\w+)$", DOCKERFILE.read_text(), re.MULTILINE))
    for name, service in services().items():
        if "build" in service:
            assert (ROOT / service["build"]["dockerfile"]).is_file(), name
            assert service["build"]["target"] in stages, name
        for word in service.get("command", []):
            if word.startswith("/opt/watershed/"):
                assert os.access(ROOT / word.removeprefix("/opt/watershed/"), os.X_OK), word
    for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE.read_text(), re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), line


def read_pins(name: str) -> dict[str, str]:
    """Package (with its environment marker) → version."""
    lines = (ROOT / "requirements" / f"{name}.txt").read_text().splitlines()
    found = [re.match(r"([\w.\[\]-]+)==([^ ;]+)(.*)", line) for line in lines]
    return {each[1] + each[3].rstrip(" \\"): each[2] for each in found if each}


def test_the_images_have_the_packages_of_every_login_but_kerberos() -> None:
    chosen = re.findall(r'^ARG EXTRAS="(.*)"$', DOCKERFILE.read_text(), re.MULTILINE)
    assert chosen == ["aws keystores"]
    built = [
        each["build"] for each in services().values() if each.get("build", {}).get("target") in ("engine", "airflow")
    ]
    assert len(built) == 8
    assert {each["args"]["EXTRAS"] for each in built} == {"${WATERSHED_EXTRAS-aws keystores}"}
    assert "aws-msk-iam-sasl-signer-python" in read_pins("aws")
    assert "cryptography" in read_pins("keystores")


@pytest.mark.parametrize("extras", ["", "aws", "aws keystores"])
def test_what_an_image_installs_together_agrees(extras: str) -> None:
    """As the shell of the build makes the command."""
    command = re.search(r"\$\((for extra in \$EXTRAS.*)\)", DOCKERFILE.read_text())
    assert command
    done = subprocess.run(["sh", "-c", command[1]], env={"EXTRAS": extras}, capture_output=True, text=True, check=True)
    files = re.findall(r"-r requirements/(\w+)\.txt", done.stdout)
    assert files == extras.split()
    pins: dict[str, str] = {}
    for name in ("install", "spark", *files):
        for package, version in read_pins(name).items():
            assert pins.setdefault(package, version) == version, f"{package} in {name}"


def test_whoever_is_waited_for_says_when_it_is_healthy() -> None:
    for name, service in services().items():
        for other, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                assert "healthcheck" in services()[other], (name, other)


def test_ports_are_published_on_loopback_only() -> None:
    published = [port for service in services().values() for port in service.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


@pytest.fixture
def broker(tmp_path: Path) -> tuple[dict[str, str], str]:
    """What `kafka.sh broker` needs in its environment here, and the address it will have."""
    home = tmp_path / "kafka"
    home.mkdir()
    (home / "libs").symlink_to(fetch_jars())
    (home / "log4j2.properties").symlink_to(ROOT / "lab" / "log4j2-console.properties")
    inner, host, controller = map(str, find_free_ports(3))
    ports = {"INNER_PORT": inner, "HOST_PORT": host, "CONTROLLER_PORT": controller, "ADDRESS": "127.0.0.1"}
    places = {"KAFKA_HOME": str(home), "KAFKA_DATA": str(tmp_path / "data"), "KAFKA_HEAP": "256m"}
    places["JAVA_TOOL_OPTIONS"] = os.environ["WATERSHED_LAB_JVM"]  # as the brokers of all tests (decision 0070)
    return {**os.environ, **ports, **places}, f"127.0.0.1:{inner}"


def test_a_broker_of_the_image_starts_and_stays_the_same_cluster(
    broker: tuple[dict[str, str], str], tmp_path: Path
) -> None:
    environment, address = broker
    script = str(ROOT / "docker" / "kafka.sh")
    ids: list[str] = []
    for turn in range(2):
        process = spawn_detached([script, "broker", "onprem"], tmp_path / f"output-{turn}.log", environment)
        try:
            ids.append(cluster_id(address, process))
            subprocess.run([script, "ready"], env=environment, check=True, timeout=60)
        finally:
            end_sessions([process])
    assert ids[0] == ids[1]


def cluster_id(address: str, process: ProcessIdentity) -> str:
    while True:
        assert is_alive(process)
        try:
            found: str = AdminClient({"bootstrap.servers": address}).list_topics(timeout=2).cluster_id
        except Exception:  # noqa: BLE001 -- not up yet
            time.sleep(0.2)
            continue
        return found


def test_secrets_are_made_once(tmp_path: Path) -> None:
    home = tmp_path / "airflow"
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "AIRFLOW_HOME": str(home),
        "WATERSHED_STATE": str(tmp_path / "state"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{tmp_path / 'airflow.db'}?timeout=60",
    }
    made: list[dict[str, str]] = []
    for _ in range(2):
        subprocess.run([ROOT / "docker" / "airflow.sh", "init"], env=environment, check=True, capture_output=True)
        files = [home / "passwords.json", *sorted((home / "secrets").iterdir())]
        made.append({each.name: each.read_text() for each in files})
        assert all(each.stat().st_mode & 0o077 == 0 for each in files)
    assert made[0] == made[1]
    assert set(made[0]) == {"passwords.json", "fernet", "jwt", "session"}
