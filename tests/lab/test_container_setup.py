"""What `make containers` decides before it runs anything."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from watershed.lab.containers import __main__ as containers
from watershed.lab.containers import container_engine, images
from watershed.lab.containers.container_engine import ComposeProject, ContainerEngine, EngineMissing, find_engine
from watershed.lab.containers.images import (
    BASE_STAGES,
    build_debian_command,
    list_base_images,
    list_build_arguments,
    provide_base_images,
    render_pip_settings,
    require_debian,
)
from watershed.lab.containers.startup import list_one_shot_services, plan_start_stages
from watershed.lab.demo.application_switch import main as switch_application
from watershed.lab.demo.container_application import build_application_arguments, list_container_applications
from watershed.lab.demo.demo_setup import DEMO_APPLICATIONS
from watershed.lab.errors import LabError

ROOT = Path(__file__).resolve().parents[2]
BASES = ROOT / "docker" / "bases"


def write_program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_without_an_engine_it_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(EngineMissing) as told:
        find_engine(tmp_path / "settings", {"PATH": str(tmp_path)})
    assert "docker is not installed" in str(told.value)
    assert "podman is not installed" in str(told.value)
    assert "apt-get install podman runc netavark" in str(told.value)


@pytest.mark.parametrize(
    ("docker", "why"),
    [
        ("exit 1", "its daemon does not answer"),
        ('[ "$1" = info ]', "docker has no compose plugin"),
    ],
)
def test_a_docker_that_cannot_be_used_is_named(tmp_path: Path, docker: str, why: str) -> None:
    write_program(tmp_path, "docker", docker)
    with pytest.raises(EngineMissing, match=why):
        find_engine(tmp_path / "settings", {"PATH": str(tmp_path)})
    write_program(tmp_path, "podman", "echo no cgroups here >&2; exit 1")
    with pytest.raises(EngineMissing, match="podman is installed and does not work here: no cgroups here"):
        find_engine(tmp_path / "settings", {"PATH": str(tmp_path)})


def test_docker_comes_first(tmp_path: Path) -> None:
    write_program(tmp_path, "docker", "exit 0")
    write_program(tmp_path, "podman", "exit 0")
    engine = find_engine(tmp_path / "settings", {"PATH": str(tmp_path)})
    assert engine.name == "docker"
    assert engine.checks_health
    project = ComposeProject(engine, (Path("a.yaml"),), "own", ("x", "y"), Path("own.env"))
    own = ["-p", "own", "--env-file", "own.env", "-f", "a.yaml", "--profile", "x", "--profile", "y"]
    assert project.build_command("up") == ["docker", "compose", *own, "up"]


def use_scratch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "_SCRATCH", folder)
    monkeypatch.setattr(containers, "_SECRETS", folder / "demo.env")


def test_the_demonstration_is_another_project_than_the_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_scratch(tmp_path, monkeypatch)
    compose = yaml.safe_load(containers.COMPOSE_FILES[0].read_text())
    project = containers.build_project(ContainerEngine("docker", {}), 7)
    command = project.build_command("down", "--volumes")
    assert compose["name"] != project.name == command[command.index("-p") + 1]
    write_program(tmp_path, "docker", 'echo "$@" | grep -o "project=[a-z-]*"')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = ComposeProject(ContainerEngine("docker", os.environ), project.files, project.name, (), tmp_path)
    assert found.find_container("cloud") == f"project={project.name}"
    installed = re.findall(r"(WATERSHED_\w+_PORT):-(\d+)", containers.COMPOSE_FILES[0].read_text())
    assert {name for name, _ in installed} == set(containers.DEMO_PORTS)
    assert not {port for _, port in installed} & set(containers.DEMO_PORTS.values())


def test_the_installations_settings_do_not_steer_the_demonstration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_scratch(tmp_path, monkeypatch)
    asked = set(re.findall(r"\$\{(\w+)", "".join(file.read_text() for file in containers.COMPOSE_FILES)))
    mine = dict.fromkeys(asked, "mine") | {"COMPOSE_PROFILES": "mine", "PATH": "/bin"}
    found = containers.build_environment(mine, 7)
    assert set(found) == asked | {"PATH"}  # none is left for `.env` to say
    assert {name for name, value in found.items() if value == "mine"} == set(containers.DEMO_PORTS)
    assert found["WATERSHED_TOPOLOGY"] == "orders-move.yaml"
    assert found["WATERSHED_RECORDS"] == "7"
    assert not Path(found["WATERSHED_SECRETS_FILE"]).exists()
    assert re.fullmatch("[0-9a-f]{64}", found["WATERSHED_POSTGRES_PASSWORD"])


def test_a_password_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_scratch(tmp_path, monkeypatch)
    monkeypatch.setattr(containers, "_ROOT", tmp_path)
    (tmp_path / "docker").mkdir()
    write_program(tmp_path / "docker", "secrets.sh", "echo no space >&2; exit 1")
    with pytest.raises(LabError, match=r"no password can be written to .*demo.env: no space"):
        containers.build_environment({}, 7)


def test_podman_without_systemd_gets_settings_unless_somebody_has_made_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_engine, "_SYSTEMD", tmp_path / "nothing")
    write_program(tmp_path, "podman", "exit 0")
    engine = find_engine(tmp_path / "settings", {"PATH": str(tmp_path)})
    assert engine.name == "podman"
    assert not engine.checks_health
    told = Path(engine.environ["CONTAINERS_CONF"]).read_text()
    assert 'cgroup_manager = "cgroupfs"' in told
    assert 'runtime = "crun"' in told
    write_program(tmp_path, "runc", "exit 0")
    find_engine(tmp_path / "settings", {"PATH": str(tmp_path)})
    assert 'runtime = "runc"' in Path(engine.environ["CONTAINERS_CONF"]).read_text()
    own = {"PATH": str(tmp_path), "CONTAINERS_CONF": "/own.conf"}
    assert find_engine(tmp_path / "settings", own).environ == own


def test_every_base_image_can_be_made_and_is_never_asked_for_elsewhere() -> None:
    compose, dockerfile = (ROOT / name for name in ("docker-compose.yaml", "docker/Dockerfile"))
    services = yaml.safe_load(compose.read_text())["services"]
    del services["grafana"]  # its pages are built in a registry that nobody reaches from here
    named = list_base_images(dockerfile.read_text(), services)
    assert {image.partition(":")[0] for image in named} == set(BASE_STAGES)
    stages = re.findall(r"^FROM \S+ AS (\w+)$", (BASES / "Containerfile").read_text(), re.MULTILINE)
    assert sorted(stages) == sorted(BASE_STAGES.values())


def test_bases_that_nobody_can_give_or_make_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("podman", "docker"):
        write_program(tmp_path, name, "exit 1")
    monkeypatch.setenv("PATH", str(tmp_path))

    def provide(name: str, image: str) -> None:
        engine = ContainerEngine("docker" if name == "docker" else "podman", {"PATH": str(tmp_path)})
        provide_base_images(engine, [image], BASES, tmp_path, lambda text: None)

    with pytest.raises(EngineMissing, match="docker cannot pull python:3"):
        provide("docker", "python:3")
    with pytest.raises(EngineMissing, match="no registry gives python:3, and without mmdebstrap"):
        provide("podman", "python:3")
    write_program(tmp_path, "mmdebstrap", "exit 1")
    release = tmp_path / "os-release"
    for text in ("ID=ubuntu\nVERSION_CODENAME=noble\n", "ID=debian\nVERSION_CODENAME=trixie\n"):
        release.write_text(text)
        with pytest.raises(EngineMissing, match="only Debian bookworm can make them"):
            require_debian(["python:3"], release)
    release.write_text("ID=debian\nVERSION_CODENAME=bookworm\n")
    require_debian(["python:3"], release)
    with pytest.raises(EngineMissing, match="an image that is pinned by digest cannot be made"):
        provide("podman", "python:3@sha256:00")


def test_a_registry_that_does_not_answer_in_time_gives_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_program(tmp_path, "docker", '[ "$1" = pull ] && exec sleep 60; exit 1')
    monkeypatch.setattr(images, "_PULL_S", 0.2)
    engine = ContainerEngine("docker", {"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    monkeypatch.setenv("PATH", engine.environ["PATH"])
    with pytest.raises(EngineMissing, match="docker cannot pull python:3"):
        provide_base_images(engine, ["python:3"], BASES, tmp_path, lambda text: None)


def test_the_machines_apt_sources_do_not_stay_in_the_debian_that_is_made(tmp_path: Path) -> None:
    """As mmdebstrap runs its hooks: a shell, and the folder of the new system as $1."""
    folder = tmp_path / "etc" / "apt" / "sources.list.d"
    folder.mkdir(parents=True)
    left = [folder / "0000debian.sources", folder.parent / "sources.list"]
    for file in left:
        file.write_text("URIs: https://user:password@mirror.example.com\n")
    command = build_debian_command("x.tar", ["/etc/apt/sources.list"])
    [hook] = [word.partition("=")[2] for word in command if word.startswith("--customize-hook=")]
    subprocess.run(["sh", "-c", hook, "exec", str(tmp_path)], check=True)
    assert not any(file.exists() for file in left)
    assert folder.is_dir()


def test_a_build_gets_pips_settings_and_no_more() -> None:
    told = (
        ":env:.index-url='https://u:p@mirror.example.com/simple'\nglobal.cert='/own.pem'\n:env:.find-links='/wheels'\n"
    )
    assert render_pip_settings(told, certificates=False) == (
        "[global]\nindex-url = https://u:p@mirror.example.com/simple\n"
    )
    several = ":env:.extra-index-url='https://a.example.com/simple\\nhttps://b.example.com/simple'\n"
    read = configparser.ConfigParser()
    read.read_string(render_pip_settings(several, certificates=False))
    assert read["global"]["extra-index-url"].split() == ["https://a.example.com/simple", "https://b.example.com/simple"]
    assert render_pip_settings("", certificates=True) == "[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n"


@pytest.mark.parametrize("args", [{"EXTRAS": "aws keystores"}, ["EXTRAS=aws keystores"]])
def test_arguments_of_a_build_are_a_mapping_or_a_list(args: object) -> None:
    assert list_build_arguments({"args": args}) == ["EXTRAS=aws keystores"]
    assert list_build_arguments({}) == []


def test_each_service_starts_behind_what_it_depends_on() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())["services"]
    stages = plan_start_stages(services | {"demo": {}})
    place = {name: number for number, stage in enumerate(stages) for name in stage}
    assert set(place) == set(services)
    for name, service in services.items():
        assert all(place[other] < place[name] for other in service.get("depends_on", {})), name
    assert len(stages) == 3
    assert list_one_shot_services(services) == {"airflow-init"}


def test_an_application_in_a_container_waits_at_its_own_name() -> None:
    assert set(list_container_applications()) == set(DEMO_APPLICATIONS)
    assert list_container_applications()["checkout"].http == "http://checkout:8090"
    module, *arguments = build_application_arguments("billing")
    assert module == "watershed.lab.billing_consumer"
    assert "--directory=/applications/billing" in arguments
    assert arguments[arguments.index("--host") + 1] == "billing"
    assert "--bootstrap" not in arguments


def test_the_switch_knows_the_containers(capsys: pytest.CaptureFixture[str]) -> None:
    assert switch_application(["containers", "status", "nobody"]) == 1
    assert "there is no application nobody in containers" in capsys.readouterr().out
