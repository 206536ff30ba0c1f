"""`python -m watershed.lab.containers run|down`."""

from __future__ import annotations

import argparse
import re
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import yaml

from watershed.lab.containers.container_engine import ComposeProject, ContainerEngine, find_engine
from watershed.lab.containers.images import build_images, list_base_images, list_builds, provide_base_images
from watershed.lab.containers.startup import start_services
from watershed.lab.demo.demo_steps import start_clock
from watershed.lab.errors import LabError
from watershed.product_version import find_commit

_ROOT = Path(__file__).resolve().parents[2]
COMPOSE_FILES = (_ROOT / "docker-compose.yaml", _ROOT / "docker" / "demo.yaml")
_SCRATCH = _ROOT / ".watershed" / "containers"
_SECRETS = _SCRATCH / "demo.env"
_WHAT_STAYS = "the containers stay, to be looked at; `make containers-down` removes them"
_PROFILES = ("way-back", "demo")
# Beside those of docker-compose.yaml, so that an installation on this machine goes on meanwhile.
DEMO_PORTS: Mapping[str, str] = {
    "WATERSHED_AIRFLOW_PORT": "18080",
    "WATERSHED_ONPREM_PORT": "19192",
    "WATERSHED_CLOUD_PORT": "29192",
    "WATERSHED_ONPREM_REGISTRY_PORT": "18081",
    "WATERSHED_CLOUD_REGISTRY_PORT": "18082",
    "WATERSHED_PROMETHEUS_PORT": "19090",
    "WATERSHED_GRAFANA_PORT": "13000",
}


def main() -> int:
    """Carries the demonstration out in containers, or removes them. Returns the exit code: 0 proven, 1 not, 2 it could
    not be carried out."""
    parser = argparse.ArgumentParser(prog="python -m watershed.lab.containers", description=__doc__)
    parser.add_argument("verb", choices=["run", "down"])
    parser.add_argument("--records", type=int, default=2_000_000, help="written before anything moves")
    parser.add_argument("--keep", action="store_true", help="leave the containers running")
    options = parser.parse_args()
    say = start_clock()
    try:
        project = build_project(find_engine(_SCRATCH), options.records)
        return _remove(project, say) if options.verb == "down" else _run(project, say, keep=options.keep)
    except LabError as problem:
        click.echo(f"error: {problem}", err=True)
        return 2


def _run(project: ComposeProject, say: Callable[[str], None], *, keep: bool) -> int:
    engine = project.engine
    say(f"{engine.name} {engine.run('version', '--format', '{{.Client.Version}}').strip()}")
    services = read_services(project)
    bases = list_base_images((_ROOT / "docker" / "Dockerfile").read_text(), services)
    provide_base_images(engine, bases, _ROOT / "docker" / "bases", _SCRATCH, say)
    build_images(engine, list_builds(services), _ROOT, say)
    project.run("down", "--volumes", "--remove-orphans")  # an earlier demonstration, whose records would be counted
    try:
        start_services(project, services, say)
        code = project.show("run", "--rm", "--no-deps", "demo")
        if code == 0 and not keep:
            return _remove(project, say)
    except BaseException:
        click.echo(_WHAT_STAYS, err=True)
        raise
    say(f"Airflow: http://127.0.0.1:{engine.environ['WATERSHED_AIRFLOW_PORT']}; {_WHAT_STAYS}")
    return code


def _remove(project: ComposeProject, say: Callable[[str], None]) -> int:
    began = time.monotonic()
    project.run("down", "--volumes", "--remove-orphans")
    say(f"containers and their volumes removed, {time.monotonic() - began:.0f} s")
    return 0


def read_services(project: ComposeProject) -> dict[str, Any]:
    """All services of the project, with their variables resolved. Raises LabError."""
    done = subprocess.run(
        project.build_command("config"),
        env=project.engine.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise LabError(f"{COMPOSE_FILES[0]} cannot be read: {done.stderr.strip()}")
    found: dict[str, Any] = yaml.safe_load(done.stdout)["services"]
    return found


def build_project(engine: ContainerEngine, records: int) -> ComposeProject:
    """The demonstration: a project of its own, with its own volumes and ports. It is none of the installation's that
    `docker compose up` makes of the same file. Raises LabError."""
    environ = build_environment(engine.environ, records)
    return ComposeProject(replace(engine, environ=environ), COMPOSE_FILES, "watershed-demo", _PROFILES, _SECRETS)


def build_environment(environ: Mapping[str, str], records: int) -> dict[str, str]:
    """What the demonstration's compose files are resolved with: neither `.env` nor the environment says which topology
    it carries out, only (the environment) which ports it uses. Its password is its own. Raises LabError."""
    _SECRETS.parent.mkdir(parents=True, exist_ok=True)
    made = subprocess.run([_ROOT / "docker" / "secrets.sh", _SECRETS], check=False, capture_output=True, text=True)
    if made.returncode != 0:
        raise LabError(f"no password can be written to {_SECRETS}: {made.stderr.strip()}")
    text = "".join(file.read_text() for file in COMPOSE_FILES)
    defaults = dict(re.findall(r"\$\{(WATERSHED_\w+):?-([^}]*)\}", text))
    ports = {name: environ.get(name, port) for name, port in DEMO_PORTS.items()}
    others = {
        name: value
        for name, value in environ.items()
        if not name.startswith(("WATERSHED_", "COMPOSE_", "PODMAN_COMPOSE_"))
    }
    own = {"WATERSHED_SECRETS_FILE": str(_SCRATCH / "no.secrets"), "WATERSHED_RECORDS": str(records)}
    own["WATERSHED_COMMIT"] = find_commit(_ROOT)
    return others | defaults | ports | own | dict([_SECRETS.read_text().strip().split("=", 1)])


if __name__ == "__main__":
    raise SystemExit(main())
