"""docker-compose.yaml without a container engine: the Compose specification's own model, a Compose implementation, and
the scripts of the images run on this machine. tests/docker/test_containers.py runs it in containers.

Nine faults were found when it was first run in containers (decision 0093); their tests say "fault" and its number.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from functools import cache
from pathlib import Path, PurePath
from typing import Any

import pytest
import yaml
from compose_viz.spec.compose_spec import ComposeSpecification
from confluent_kafka.admin import AdminClient
from pydantic import ValidationError

from watershed.lab.containers.images import list_builds
from watershed.lab.demo.demo_setup import DEMO_APPLICATIONS
from watershed.lab.detached_process import ProcessIdentity, is_alive, spawn_detached
from watershed.lab.errors import LabError
from watershed.lab.free_ports import find_free_ports
from watershed.lab.jars import fetch_jars
from watershed.lab.process_sessions import end_sessions
from watershed.topology import compile_path
from watershed.topology.lint import lint_path

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "docker-compose.yaml"
DEMO = ROOT / "docker" / "demo.yaml"
SAMPLE = ROOT / "docker" / "topologies" / "orders-move.yaml"
SPARK_SIZES = ("SPARK_CORES", "SPARK_MEMORY")
COMPOSE_PROGRAM = (sys.executable, "-m", "podman_compose")
COMMANDS_OF_IMAGE = "/opt/watershed/docker/settings/commands.yaml"
DOCKERFILE = ROOT / "docker" / "Dockerfile"


def read() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return found


PROFILES = ("--profile", "way-back", "--profile", "watch", "--profile", "grafana")


def resolve(*files: Path) -> dict[str, Any]:
    """The services, as podman-compose has them."""
    found: dict[str, Any] = yaml.safe_load(ask_podman_compose(files))["services"]
    return found


@cache  # a second and a half of processor time each
def ask_podman_compose(files: tuple[Path, ...]) -> str:
    """The resolved files in YAML. It only wants to hear podman's version before it resolves a file."""
    with tempfile.TemporaryDirectory(prefix="watershed-compose-") as folder:
        podman = write_program(Path(folder, "podman"), "echo podman version 5.0.0")
        done = subprocess.run(
            [*COMPOSE_PROGRAM, *(word for file in files for word in ("-f", str(file))), *PROFILES, "config"],
            env={
                **os.environ,
                "PATH": f"{podman.parent}:{os.environ['PATH']}",
                "WATERSHED_POSTGRES_PASSWORD": "other",
            },
            capture_output=True,
            text=True,
            check=True,
        )
    return done.stdout


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


def test_a_compose_implementation_resolves_it() -> None:
    resolved = resolve(COMPOSE)
    assert set(resolved) == set(services())
    url = resolved["airflow-scheduler"]["environment"]["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
    assert url == "postgresql+psycopg2://airflow:other@postgres/airflow"


def test_the_demonstration_adds_applications_and_leaves_the_rest_as_it_is() -> None:
    alone, together = resolve(COMPOSE), resolve(COMPOSE, DEMO)
    assert set(together) - set(alone) == set(DEMO_APPLICATIONS)  # `demo` has a profile
    for name in ("airflow-scheduler", "airflow-triggerer"):
        added = dict(together[name]["environment"].items() - alone[name]["environment"].items())
        assert added == {"WATERSHED_HOOK_HOSTS": "checkout:8090", "WATERSHED_COMMANDS": COMMANDS_OF_IMAGE}
        together[name]["environment"] = alone[name]["environment"]
    assert {name: together[name] for name in alone} == alone


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
    assert chosen == ["aws keystores kubernetes"]
    built = [
        each["build"] for each in services().values() if each.get("build", {}).get("target") in ("engine", "airflow")
    ]
    assert len(built) == 2
    assert {each["args"]["EXTRAS"] for each in built} == {"${WATERSHED_EXTRAS-aws keystores kubernetes}"}
    assert "aws-msk-iam-sasl-signer-python" in read_pins("aws")
    assert "cryptography" in read_pins("keystores")
    assert "kubernetes" in read_pins("kubernetes")


@pytest.mark.parametrize("extras", ["", "aws", "aws keystores", "aws keystores kubernetes"])
def test_what_an_image_installs_together_agrees(extras: str) -> None:
    """As the shell of the build makes the command."""
    command = re.search(r"\$\((for extra in \$EXTRAS.*)\)", DOCKERFILE.read_text())
    assert command
    done = subprocess.run(["sh", "-c", command[1]], env={"EXTRAS": extras}, capture_output=True, text=True, check=True)
    files = re.findall(r"-r requirements/(\w+)\.txt", done.stdout)
    assert files == extras.split()
    pins: dict[str, str] = {}
    for name in ("install", "spark", *files, "airflow", "postgres"):
        for package, version in read_pins(name).items():
            assert pins.setdefault(package, version) == version, f"{package} in {name}"


def test_whoever_is_waited_for_says_when_it_is_healthy() -> None:
    for name, service in services().items():
        for other, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                assert "healthcheck" in services()[other], (name, other)


def test_fault_1_two_fleets_leave_cores_for_proofs() -> None:
    plan = compile_path(SAMPLE)
    workers = sum(flow.workers for flow in plan.flows)
    cores, memory = (read_default(services()["spark-worker"]["environment"][name]) for name in SPARK_SIZES)
    assert int(cores) > workers
    assert int(memory.removesuffix("g")) > workers  # an executor takes 1 GiB
    limit = read_default(services()["spark-worker"]["mem_limit"])
    assert int(limit.removesuffix("g")) > int(memory.removesuffix("g"))


def test_faults_2_5_8_each_fleet_of_the_sample_has_a_supervisor_that_is_not_airflows() -> None:
    """Not a task's child: it survives Airflow, and comes back with its container. Nor one beside Airflow's: the
    placement says so."""
    plan = compile_path(SAMPLE)
    assert {flow.placement for flow in plan.flows} == {"external"}
    commands = [each.get("command", []) for each in resolve(COMPOSE).values() if each["restart"] != "no"]
    supervised = [command[-1] for command in commands if command[:3] == ["topology", "fleet", "supervise"]]
    assert sorted(supervised) == sorted({flow.target for flow in plan.flows})
    # A topology that goes one way has no use for the second one, which would be restarted for ever.
    always = [each["command"] for each in services().values() if "profiles" not in each and "supervise" in str(each)]
    assert [read_default(command[-1]) for command in always] == ["cloud"]
    assert not any("worker" in command[:2] and command[0] == "topology" for command in commands if command)


def test_fault_4_each_cluster_has_a_registry_that_remembers(tmp_path: Path) -> None:
    registries = {name: each for name, each in services().items() if name.startswith("registry")}
    kept = [each["volumes"][0].partition(":") for each in registries.values()]
    assert sorted(name for name, _, _ in kept) == ["registry-cloud", "registry-onprem"] == sorted(registries)
    assert {folder for _, _, folder in kept} == {"/var/lib/registry"}
    java = write_program(tmp_path / "java", 'echo "$REGISTRY_DATASOURCE_URL"')
    done = run_script("registry.sh", PATH=f"{java.parent}:{os.environ['PATH']}")
    assert done.stdout == "jdbc:h2:file:/var/lib/registry/registry\n"


def test_fault_6_the_sample_topology_is_there_and_has_no_error() -> None:
    wanted = [word for each in services().values() for word in each.get("command", []) if "/topologies/" in word]
    folders = {
        v.partition(":/topologies")[0]
        for each in services().values()
        for v in each.get("volumes", [])
        if ":/topologies" in v
    }
    for word in wanted:
        for folder in folders:
            assert (ROOT / read_default(folder) / read_default(word.removeprefix("/topologies/"))).is_file()
    assert wanted
    assert folders
    report = lint_path(SAMPLE)
    assert [str(each) for each in report.findings if each.severity == "error"] == []


def test_fault_7_a_spark_master_that_starts_again_knows_its_workers_and_applications(tmp_path: Path) -> None:
    home = tmp_path / "pyspark"
    write_program(home / "bin" / "spark-class", 'echo "$SPARK_DAEMON_JAVA_OPTS"')
    python = write_program(tmp_path / "python", f"echo {home}")
    done = run_script("spark.sh", "master", PATH=f"{python.parent}:{os.environ['PATH']}")
    assert "-Dspark.deploy.recoveryMode=FILESYSTEM" in done.stdout
    assert "-Dspark.deploy.recoveryDirectory=/state/master" in done.stdout
    assert "-Dspark.worker.timeout=10" in done.stdout
    done = run_script("spark.sh", "worker", PATH=f"{python.parent}:{os.environ['PATH']}")
    assert "-Dspark.worker.timeout=10" in done.stdout  # they report by it, and the master looks by it
    master = services()["spark-master"]
    assert master["volumes"] == ["spark:/state"]
    assert master["hostname"] == "spark-master"  # workers look for it under this name, also when it is made anew


def test_fault_9_each_image_is_built_once() -> None:
    ours = {each["image"] for each in services().values() if ":" not in each["image"]}
    assert set(list_builds(services())) == ours
    twice = {"a": {"image": "x", "build": {}}, "b": {"image": "x", "build": {}}}
    with pytest.raises(LabError, match="second `build` in the service b"):
        list_builds(twice)


def test_fault_9_a_changed_line_of_source_installs_no_package_again() -> None:
    for stage in re.split(r"^FROM ", DOCKERFILE.read_text(), flags=re.MULTILINE):
        after = stage.partition("COPY . .")[2]
        assert "-r requirements/" not in after
        assert "apt-get" not in after
    ignored = (ROOT / ".gitignore").read_text().split()
    assert {"topologies", ".env", ".env.secrets"} <= {line.strip("/") for line in ignored}


def test_only_what_is_named_gets_into_an_image() -> None:
    """A file of secrets has any name; so has a folder of topologies."""
    [everything, *lines] = [
        line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")
    ]
    assert everything == "*"
    named = {line[1:] for line in lines if line.startswith("!")}
    assert not [each for each in named if each in {"docker", ".", "docs", "tests"}]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    rooms = {each.name for each in (ROOT / "watershed").iterdir() if each.is_symlink()}
    assert len(rooms) > 9
    assert {"watershed", *rooms} - {"bench"} <= named
    assert {project["project"]["readme"], "pyproject.toml", "requirements"} <= named
    scripts = [word for each in services().values() for word in each.get("command", [])[:1] if word[0] == "/"]
    copied = re.findall(r"^COPY (docker/\S+)", DOCKERFILE.read_text(), re.MULTILINE)
    for path in (*copied, *scripts, COMMANDS_OF_IMAGE):
        relative = path.removeprefix("/opt/watershed/")
        assert any(PurePath(relative).match(pattern) for pattern in named), path


@pytest.mark.parametrize("file", [COMPOSE, DEMO], ids=lambda path: path.name)
def test_fault_9_whatever_stays_is_healthy_limited_and_ends_in_good_order(file: Path) -> None:
    for name, service in resolve(*dict.fromkeys((COMPOSE, file))).items():
        assert service["init"] is True, name
        assert "mem_limit" in service, name
        if service["restart"] == "no":
            continue
        supervises = service.get("command", [])[:3] == ["topology", "fleet", "supervise"]
        assert ("healthcheck" in service) != supervises, name  # a fleet's health is what `topology fleet status` says
        assert "java" not in " ".join(service.get("healthcheck", {}).get("test", []))
        if name.startswith(("fleet", "onprem", "cloud", "postgres", "airflow", "checkout", "payments", "billing")):
            assert int(service["stop_grace_period"].removesuffix("s")) > 10, name  # what docker waits without it


def test_fault_9_airflow_gets_the_hosts_settings_and_secrets() -> None:
    for name, service in services().items():
        if name.startswith("airflow"):
            for variable in (
                *("WATERSHED_HOOK_HOSTS", "WATERSHED_COMMANDS", "WATERSHED_KUBERNETES_NAMESPACES"),
                "WATERSHED_NOTIFIERS",
            ):
                assert read_default(service["environment"][variable]) == ""
            assert int(read_default(service["environment"]["AIRFLOW__CORE__PARALLELISM"])) <= 8
        if name.startswith(("airflow", "fleet")):
            [file] = service["env_file"]
            assert file["required"] is False
    published = [port for service in services().values() for port in service.get("ports", [])]
    assert all(re.match(r"127\.0\.0\.1:\$\{WATERSHED_\w+_PORT:-\d+\}:", port) for port in published)


def test_fault_9_a_folder_that_the_containers_cannot_read_is_named(tmp_path: Path) -> None:
    """As uid 1000 would find it; root reads everything, so the folder is one that is not there."""
    done = run_script("airflow.sh", "init", AIRFLOW_HOME=str(tmp_path), WATERSHED_TOPOLOGIES=str(tmp_path / "closed"))
    assert done.returncode == 2
    assert "cannot read the folder of topologies" in done.stderr
    assert "chmod go+rx" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_programs_of_the_sample_settings_are_the_demonstrations_own() -> None:
    [program] = yaml.safe_load((ROOT / "docker" / "settings" / "commands.yaml").read_text())["programs"].items()
    declared = yaml.safe_load(SAMPLE.read_text())["migration"]["applications"]
    assert declared["payments"] == {"command": program[0]}
    assert program[1]["airflow"] is True
    assert importlib.util.find_spec(program[1]["argv"][2])
    assert set(declared) == set(DEMO_APPLICATIONS)


def test_what_a_checkout_has_is_roots_alone_in_the_images_whatever_its_umask_was(tmp_path: Path) -> None:
    """A file of programs that others can write to is refused; one that uid 1000 cannot read is of no use."""
    assert (ROOT / COMMANDS_OF_IMAGE.removeprefix("/opt/watershed/")).is_file()
    copies = DOCKERFILE.read_text().split("COPY . .\nRUN ")[1:]
    assert len(copies) == 2
    for mode in (0o664, 0o600):
        file = write_program(tmp_path / "folder" / "commands.yaml", "")
        file.chmod(mode)
        for copied in copies:
            command = copied.partition(" && pip install")[0]
            subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)
            assert file.stat().st_mode & 0o777 == 0o644
            assert file.parent.stat().st_mode & 0o777 == 0o755


def read_default(text: str) -> str:
    """With each variable as it is when nobody has set it."""
    return re.sub(r"\$\{\w+:?-([^}]*)\}", r"\1", str(text))


def write_program(path: Path, line: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return path


def run_script(name: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "docker" / name), *arguments]
    return subprocess.run(command, env={**os.environ, **environ}, capture_output=True, text=True, check=False)


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


@pytest.mark.soak
def test_secrets_are_made_once(tmp_path: Path) -> None:
    home = tmp_path / "airflow"
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "AIRFLOW_HOME": str(home),
        "WATERSHED_STATE": str(tmp_path / "state"),
        "WATERSHED_TOPOLOGIES": str(ROOT / "docker" / "topologies"),
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
