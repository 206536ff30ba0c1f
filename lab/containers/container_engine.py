"""The container engine of this machine: docker with compose, or podman with podman-compose from our requirements."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from watershed.lab.errors import LabError

_PODMAN_PACKAGES = "podman runc netavark aardvark-dns fuse-overlayfs iptables catatonit mmdebstrap"
_SYSTEMD = Path("/run/systemd/system")  # sd_booted(3)
_RUN_S = 600.0
_PROCESSES = 32768  # podman lowers its own limit to this, and cannot give its containers more


class EngineMissing(LabError):
    """No container engine can be used here; the message says what is missing and what to do."""


class EngineFailed(LabError):
    """A command of the engine failed; the message ends with what it said."""


@dataclass(frozen=True, slots=True)
class ContainerEngine:
    """name: of the program. environ: what its commands are run with."""

    name: Literal["docker", "podman"]
    environ: Mapping[str, str] = field(repr=False)

    @property
    def checks_health(self) -> bool:
        """Whether the engine itself runs health checks. Podman has systemd do it."""
        return self.name == "docker" or _SYSTEMD.is_dir()

    def run(self, *arguments: str, timeout: float | None = _RUN_S) -> str:
        """What the command printed. Raises EngineFailed."""
        done = self.try_run(*arguments, timeout=timeout)
        if done.returncode != 0:
            said = "\n".join((done.stderr or done.stdout).strip().splitlines()[-12:])
            raise EngineFailed(f"`{self.name} {' '.join(arguments)}` failed (exit {done.returncode}):\n{said}")
        return done.stdout

    def try_run(self, *arguments: str, timeout: float | None = _RUN_S) -> subprocess.CompletedProcess[str]:
        """The command's exit code and what it printed. Raises EngineFailed when it does not end in time."""
        try:
            return subprocess.run(
                [self.name, *arguments], env=self.environ, capture_output=True, text=True, check=False, timeout=timeout
            )
        except subprocess.TimeoutExpired:
            raise EngineFailed(f"`{self.name} {' '.join(arguments)}` did not end within {timeout:.0f} s") from None

    def inspect(self, what: str) -> dict[str, Any] | None:
        """What the engine knows of a container or an image; None when there is none."""
        done = self.try_run("inspect", what)
        found = json.loads(done.stdout) if done.returncode == 0 else []
        return dict(found[0]) if found else None


@dataclass(frozen=True, slots=True)
class ComposeProject:
    """Compose files as one project of an engine.

    name: of the project; containers, volumes and networks are its own. profiles: whose services belong to it. settings:
    read in place of `.env`.
    """

    engine: ContainerEngine
    files: tuple[Path, ...]
    name: str
    profiles: tuple[str, ...]
    settings: Path

    def build_command(self, *arguments: str) -> list[str]:
        """The command line of the engine's Compose implementation."""
        program = ["docker", "compose"] if self.engine.name == "docker" else [sys.executable, "-m", "podman_compose"]
        files = (word for file in self.files for word in ("-f", str(file)))
        profiles = (word for profile in self.profiles for word in ("--profile", profile))
        return [*program, "-p", self.name, "--env-file", str(self.settings), *files, *profiles, *arguments]

    def show(self, *arguments: str) -> int:
        """Runs the command with its output shown. Returns its exit code."""
        return subprocess.run(self.build_command(*arguments), env=self.engine.environ, check=False).returncode

    def run(self, *arguments: str) -> None:
        """Runs the command without its output. Raises EngineFailed with the end of what it said."""
        done = subprocess.run(
            self.build_command(*arguments), env=self.engine.environ, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            said = "\n".join((done.stderr + done.stdout).strip().splitlines()[-15:])
            raise EngineFailed(f"compose {' '.join(arguments)} failed (exit {done.returncode}):\n{said}")

    def find_container(self, service: str) -> str | None:
        """The id of the service's container, running or not; None when there is none."""
        of = [f"label=com.docker.compose.service={service}", f"label=com.docker.compose.project={self.name}"]
        words = [word for each in of for word in ("--filter", each)]
        found = self.engine.run("ps", "--all", "--quiet", "--no-trunc", *words).split()
        return found[0] if found else None


def find_engine(settings: Path, environ: Mapping[str, str] = os.environ) -> ContainerEngine:
    """Docker if its daemon answers and it has compose, else podman. settings: a folder for podman's settings here.

    Raises EngineMissing.
    """
    docker, why_not_docker = _find_docker(environ)
    if docker:
        return docker
    path = environ.get("PATH", "")
    if shutil.which("podman", path=path) is None:
        raise EngineMissing(
            f"no container engine: {why_not_docker}, and podman is not installed. Install one: docker with its compose "
            f"plugin, or (Debian, Ubuntu, as root) apt-get install {_PODMAN_PACKAGES}"
        )
    engine = ContainerEngine("podman", _settle_podman(settings, environ))
    told = engine.try_run("info", "--format", "{{.Host.OCIRuntime.Name}}")
    if told.returncode != 0:
        raise EngineMissing(f"podman is installed and does not work here: {_last_line(told.stderr)}; {why_not_docker}")
    return engine


def _find_docker(environ: Mapping[str, str]) -> tuple[ContainerEngine | None, str]:
    """The engine, or why it cannot be used."""
    engine = ContainerEngine("docker", dict(environ))
    if shutil.which("docker", path=environ.get("PATH", "")) is None:
        return None, "docker is not installed"
    if engine.try_run("info", "--format", "{{.ServerVersion}}").returncode != 0:
        return None, "docker is installed, but its daemon does not answer"
    if engine.try_run("compose", "version").returncode != 0:
        return None, "docker has no compose plugin"
    return engine, ""


def _settle_podman(settings: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of podman's commands. Where no systemd runs, and nobody has configured podman, it gets settings
    that do without: it keeps control groups and events itself, and gives no container more than its own limits."""
    if _SYSTEMD.is_dir() or "CONTAINERS_CONF" in environ:
        return dict(environ)
    settings.mkdir(parents=True, exist_ok=True)
    file = settings / "containers.conf"
    runtime = "runc" if shutil.which("runc", path=environ.get("PATH", "")) else "crun"
    files, processes = (resource.getrlimit(each)[1] for each in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC))
    limits = f'"nofile={files}:{files}", "nproc={min(processes, _PROCESSES)}:{min(processes, _PROCESSES)}"'
    file.write_text(
        f"[containers]\ndefault_ulimits = [{limits}]\n"
        f'[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "{runtime}"\n'
        '[network]\nnetwork_backend = "netavark"\n'
    )
    return dict(environ) | {"CONTAINERS_CONF": str(file), "DISABLE_HC_SYSTEMD": "true"}


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it says nothing"
