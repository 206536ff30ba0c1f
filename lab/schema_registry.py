"""A schema registry on this machine: Apicurio's, with nothing on disk but its log.

`python -m watershed.lab.schema_registry` fetches it and prints where it is (make uses that).
"""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from watershed.lab.detached_process import ProcessIdentity, end_processes, is_alive, spawn_detached
from watershed.lab.errors import LabError
from watershed.lab.free_ports import LOOPBACK_HOST, find_free_ports
from watershed.lab.jars import fetch_jars, find_java

_POM = Path(__file__).with_name("registry.pom.xml")
_API = "/apis/ccompat/v7"
_READY_S = 120.0  # two side by side: 25 s on two cores that are busy with other tests
_JVM = ("-Xms96m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xlog:disable")


@dataclass(frozen=True, slots=True)
class SchemaRegistryProcess:
    """A running process. `home` holds its log."""

    home: Path
    port: int
    process: ProcessIdentity

    @property
    def url(self) -> str:
        """The root of the Confluent-compatible API."""
        return f"http://{LOOPBACK_HOST}:{self.port}{_API}"

    @property
    def log(self) -> Path:
        """What the process prints."""
        return self.home / "output.log"

    def stop(self) -> None:
        """Ends the process within 5 s."""
        end_processes([self.process], grace=5.0)


def fetch_registry_jar(environ: Mapping[str, str] | None = None) -> Path:
    """The runnable jar; fetched and unpacked when it is not there yet. Raises ToolMissing, LabError."""
    found = sorted(fetch_jars(_POM, environ, name="registry").glob("*-runner.jar"))
    if len(found) != 1:
        raise LabError(f"the archive that {_POM} names holds {len(found)} runnable jars, not one")
    return found[0]


def _launch_registry(home: Path) -> SchemaRegistryProcess:
    """An empty registry, about to answer. Raises ToolMissing, LabError."""
    jar = fetch_registry_jar()
    home.mkdir(parents=True, exist_ok=True)
    (port,) = find_free_ports(1)
    where = [f"-Dquarkus.http.host={LOOPBACK_HOST}", f"-Dquarkus.http.port={port}", "-Dquarkus.log.level=WARN"]
    process = spawn_detached([find_java(), *_JVM, *where, "-jar", str(jar)], home / "output.log", dict(os.environ))
    return SchemaRegistryProcess(home, port, process)


def _wait_for_registry(registry: SchemaRegistryProcess) -> SchemaRegistryProcess:
    """Waits until it answers. Raises LabError when it ends instead."""
    deadline = time.monotonic() + _READY_S
    while not _answers(registry):
        if not is_alive(registry.process) or time.monotonic() > deadline:
            registry.stop()
            raise LabError(f"the schema registry did not start, see {registry.log}")
        time.sleep(0.1)
    return registry


def start_registries(home: Path, count: int = 1) -> list[SchemaRegistryProcess]:
    """`count` registries that know nothing of each other, started side by side; those of `home` that run are kept. Any
    number of processes may ask for them at a time. Raises ToolMissing, LabError.
    """
    home.mkdir(parents=True, exist_ok=True)
    with _locked(home):
        running = {each.home: each for each in _read(home) if is_alive(each.process)}
        asked = [home / f"registry-{number}" for number in range(count)]
        for each in asked:
            if each not in running:
                running[each] = _launch_registry(each)
                _write(home, running.values())
        return [_wait_for_registry(running[each]) for each in asked]


def end_registries(home: Path) -> None:
    """Ends those that run; their logs stay."""
    if home.is_dir():
        with _locked(home):
            end_processes([each.process for each in _read(home)], grace=5.0)
            _record(home).unlink(missing_ok=True)


def _record(home: Path) -> Path:
    return home / "registries.json"


def _read(home: Path) -> list[SchemaRegistryProcess]:
    known = json.loads(_record(home).read_text()) if _record(home).exists() else []
    return [SchemaRegistryProcess(home / name, port, ProcessIdentity(*process)) for name, port, *process in known]


def _write(home: Path, registries: Iterable[SchemaRegistryProcess]) -> None:
    rows = [[each.home.name, each.port, each.process.pid, each.process.started] for each in registries]
    _record(home).write_text(json.dumps(rows))


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _answers(registry: SchemaRegistryProcess) -> bool:
    connection = http.client.HTTPConnection(LOOPBACK_HOST, registry.port, timeout=5)
    try:
        connection.request("GET", f"{_API}/subjects")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    try:
        click.echo(fetch_registry_jar().parent)
    except LabError as error:
        sys.exit(f"lab: {error}")
