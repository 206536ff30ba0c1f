"""A real Postgres on this machine, from Debian's packages: Airflow's database as it is in production.

`initdb` and the server refuse to run as root; then they run as the user `postgres` (or `nobody`). The server listens on
loopback only, under a password of its own.

    with postgres.running() as database:
        ...  # database.url, of SQLAlchemy's form
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from watershed.lab.detached_process import ProcessIdentity, is_alive, send_signal, spawn_detached, wait_for_end
from watershed.lab.errors import LabError
from watershed.lab.free_ports import find_free_ports

_DEBIAN = Path("/usr/lib/postgresql")
_READY_S = 60.0
_SIGINT = 2  # a fast shutdown: clients are disconnected


@dataclass(frozen=True, slots=True)
class _PostgresServer:
    """A server that runs, with an empty database `airflow`."""

    url: str
    directory: Path
    process: ProcessIdentity


def find_missing_postgres() -> str:
    """Why there is no Postgres here, with the remedy; "" when there is one."""
    if _programs() is None:
        return "no Postgres on this machine (Debian: apt-get install postgresql)"
    if os.getuid() == 0 and _user() is None:
        return "Postgres refuses to run as root, and there is neither a user postgres nor nobody"
    return ""


@contextmanager
def run_postgres() -> Iterator[_PostgresServer]:
    """A fresh server in a folder of its own; both are gone afterwards. Raises LabError."""
    if why := find_missing_postgres():
        raise LabError(why)
    # Not below a caller's folder: the server's user must be able to come there.
    directory = Path(tempfile.mkdtemp(prefix="watershed-postgres-"))
    server: _PostgresServer | None = None
    try:
        server = _start(directory)
        yield server
    finally:
        if server is not None:
            send_signal(server.process, _SIGINT)
            wait_for_end(server.process, 20.0)
        shutil.rmtree(directory, ignore_errors=True)


def _start(directory: Path) -> _PostgresServer:
    programs, user = _programs(), _user() if os.getuid() == 0 else None
    assert programs is not None
    password, port = secrets.token_hex(16), find_free_ports(1)[0]
    (directory / "password").write_text(password)
    if user is not None:
        for path in (directory, directory / "password"):
            os.chown(path, user.pw_uid, user.pw_gid)
    data = directory / "data"
    _run(_as(user, [programs / "initdb", "--pgdata", data, "--username", "airflow", "--pwfile", directory / "password",
                    "--auth", "scram-sha-256", "--encoding", "UTF8", "--no-locale", "--no-sync"]))  # fmt: skip
    told = ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={directory}", "-c", "fsync=off"]
    argv = _as(user, [programs / "postgres", "-D", data, "-p", port, *told])
    process = spawn_detached(argv, directory / "log")
    deadline = time.monotonic() + _READY_S
    environ = {"PGPASSWORD": password, "PATH": os.environ.get("PATH", "")}
    create = [str(programs / "createdb"), "-h", "127.0.0.1", "-p", str(port), "-U", "airflow", "airflow"]
    while subprocess.run(create, env=environ, capture_output=True, check=False).returncode != 0:
        if not is_alive(process) or time.monotonic() > deadline:
            raise LabError(f"Postgres did not start: {(directory / 'log').read_text(errors='replace')[-1000:]}")
        time.sleep(0.2)
    return _PostgresServer(f"postgresql+psycopg2://airflow:{password}@127.0.0.1:{port}/airflow", directory, process)


def _programs() -> Path | None:
    """The newest version's folder of programs."""
    found = [path for path in _DEBIAN.glob("*/bin") if (path / "initdb").exists()]
    if found:
        return max(found, key=lambda path: float(path.parent.name))
    there = shutil.which("initdb")
    return Path(there).resolve().parent if there else None


def _user() -> pwd.struct_passwd | None:
    known = {each.pw_name: each for each in pwd.getpwall()}
    return known.get("postgres") or known.get("nobody")


def _as(user: pwd.struct_passwd | None, argv: Sequence[object]) -> list[str]:
    words = [str(word) for word in argv]
    if user is None:
        return words
    # runuser would stay between us and the server, and swallow signals.
    setpriv = shutil.which("setpriv") or "/usr/bin/setpriv"
    return [setpriv, f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--", *words]


def _run(argv: list[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd="/")
    if done.returncode != 0:
        raise LabError(f"initdb failed: {done.stderr[-1000:]}")
