"""`python -m lab.containers run|down`."""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import yaml

from lab.containers.container_engine import ComposeProject, find_engine
from lab.containers.images import build_images, list_base_images, list_builds, provide_base_images
from lab.containers.startup import start_services
from lab.demo.demo_steps import start_clock
from lab.errors import LabError

_ROOT = Path(__file__).resolve().parents[2]
COMPOSE_FILES = (_ROOT / "docker-compose.yaml", _ROOT / "docker" / "demo.yaml")
_SCRATCH = _ROOT / ".watershed" / "containers"
_SECRETS = _ROOT / ".env"


def main() -> int:
    """Carries the demonstration out in containers, or removes them. Returns the exit code: 0 proven, 1 not, 2 it could
    not be carried out."""
    parser = argparse.ArgumentParser(prog="python -m lab.containers", description=__doc__)
    parser.add_argument("verb", choices=["run", "down"])
    parser.add_argument("--records", type=int, default=2_000_000, help="written before anything moves")
    parser.add_argument("--keep", action="store_true", help="leave the containers running")
    options = parser.parse_args()
    say = start_clock()
    try:
        engine = find_engine(_SCRATCH, build_environment(options.records))
        project = ComposeProject(engine, COMPOSE_FILES)
        return _remove(project, say) if options.verb == "down" else _run(project, say, keep=options.keep)
    except LabError as problem:
        click.echo(f"error: {problem}", err=True)
        return 2


def _run(project: ComposeProject, say: Callable[[str], None], *, keep: bool) -> int:
    engine = project.engine
    say(f"{engine.name} {engine.run('version', '--format', '{{.Client.Version}}').strip()}")
    services = read_services(project)
    bases = list_base_images((_ROOT / "docker" / "Dockerfile").read_text(), COMPOSE_FILES[0].read_text())
    provide_base_images(engine, bases, _ROOT / "docker" / "bases", _SCRATCH, say)
    build_images(engine, list_builds(services), _ROOT, say)
    if _is_there(project, services):
        _remove(project, say)  # an earlier demonstration, whose records would be counted
    try:
        start_services(project, services, say)
        code = project.show("--profile", "demo", "run", "--rm", "--no-deps", "demo")
    except BaseException:
        click.echo("the containers stay, to be looked at; `make containers-down` removes them", err=True)
        raise
    if keep:
        say(f"the containers go on: http://127.0.0.1:{engine.environ.get('WATERSHED_AIRFLOW_PORT', '8080')}")
        return code
    return _remove(project, say) or code


def _remove(project: ComposeProject, say: Callable[[str], None]) -> int:
    began = time.monotonic()
    project.run("--profile", "demo", "down", "--volumes", "--remove-orphans")
    say(f"containers and their volumes removed, {time.monotonic() - began:.0f} s")
    return 0


def _is_there(project: ComposeProject, services: dict[str, Any]) -> bool:
    return any(project.find_container(name) for name in services)


def read_services(project: ComposeProject) -> dict[str, Any]:
    """All services of the project, with their variables resolved. Raises LabError."""
    done = subprocess.run(
        project.build_command("--profile", "demo", "config"),
        env=project.engine.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise LabError(f"{COMPOSE_FILES[0]} cannot be read: {done.stderr.strip()}")
    found: dict[str, Any] = yaml.safe_load(done.stdout)["services"]
    return found


def build_environment(records: int) -> dict[str, str]:
    """Ours, with the secrets of `make compose-secrets`, which are made when they are not there."""
    subprocess.run([_ROOT / "docker" / "secrets.sh", _SECRETS], check=True, capture_output=True)
    lines = [line.partition("=") for line in _SECRETS.read_text().splitlines() if "=" in line and line[0] != "#"]
    return {name: value for name, _, value in lines} | dict(os.environ) | {"WATERSHED_RECORDS": str(records)}


if __name__ == "__main__":
    raise SystemExit(main())
