"""Airflow on this machine: its four components on SQLite (or on a database of yours), reachable from loopback only.

`up(directory)` makes the directory an `AIRFLOW_HOME`, starts api-server, scheduler, dag-processor and
triggerer (each in a session of its own) and waits until `/api/v2/monitor/health` calls all of them
healthy.  `down(directory)` ends whatever `airflow.json` names, also after a crash of the command that
started it.  `airflow standalone` is not used: it does not end its children reliably
(apache/airflow#67870).

    python -m watershed.lab.airflow up|down|status [--dir .watershed/airflow] [--topologies DIR]
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import secrets
import shutil
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from watershed import IMPORT_ROOT
from watershed.lab.detached_process import ProcessIdentity, is_alive, spawn_detached
from watershed.lab.jars import find_cache_folder
from watershed.lab.process_sessions import end_sessions

_USERS = {"admin": "admin", "ops": "op", "view": "viewer"}  # user -> role; the password is the user's name
_START_S = 300.0  # twenty seconds on two idle cores
_DAGS = {"name": "watershed", "classpath": "watershed.plugins.installed_dags.InstalledDagBundle", "kwargs": {}}
_COMPONENTS = ("api-server", "scheduler", "dag-processor", "triggerer")


class AirflowFailed(Exception):
    """Airflow did not start: the message says which component, and where its log lies."""


@dataclass(frozen=True, slots=True)
class LocalAirflow:
    """A local Airflow: where it lives, where it listens, what runs."""

    directory: Path
    url: str
    components: dict[str, ProcessIdentity]
    python: str = sys.executable  # the program that runs them


def start_airflow(
    directory: Path,
    *,
    topologies: Path,
    state: Path,
    database: str | None = None,
    settings: Mapping[str, str] | None = None,
    timeout: float = _START_S,
) -> LocalAirflow:
    """Start Airflow in `directory`, or find it running there; returns when all components are healthy.

    `topologies` is the folder the DAGs are made from; `state` is where frozen plans, Spark applications
    and their evidence live; `database` an SQLAlchemy URL, SQLite in the directory without one; `settings` more of
    Airflow's environment variables.  Raises AirflowFailed.
    """
    running = launch_airflow(directory, topologies=topologies, state=state, database=database, settings=settings)
    return wait_until_healthy(running, timeout=timeout)


def launch_airflow(
    directory: Path,
    *,
    topologies: Path,
    state: Path,
    database: str | None = None,
    settings: Mapping[str, str] | None = None,
    python: str = sys.executable,
) -> LocalAirflow:
    """Start the components without waiting for them (about half a minute of imports on two cores).

    python: of the environment with Airflow; with a `PYTHONPATH` in `settings`, another version of Watershed can run."""
    directory = directory.resolve()
    if (known := find_airflow(directory)) is not None and all(is_alive(s) for s in known.components.values()):
        return known
    stop_airflow(directory)
    directory.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    env = build_airflow_environment(directory, port, topologies=topologies.resolve(), state=state.resolve())
    env["PATH"] = os.pathsep.join([str(Path(python).parent), env["PATH"]])  # where tasks find programs
    env |= {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database} if database else {}
    env |= settings or {}
    _write_private(directory / "environment.json", json.dumps(env))
    _write_private(directory / "passwords.json", json.dumps({user: user for user in _USERS}))
    _write_private(directory / "hooks.account", "ops:ops")
    (directory / "airflow.cfg").write_text("# The configuration is in the environment: lab/airflow.py\n")
    components: dict[str, ProcessIdentity] = {}
    try:
        _migrate_database(directory, env, python, own=database is None)
        for name in _COMPONENTS:
            components[name] = spawn_detached(_argv(python, name, port), _log(directory, name), env)
            _record(directory, port, components, python)
    except BaseException:
        end_sessions(components.values())
        raise
    return LocalAirflow(directory, f"http://127.0.0.1:{port}", components, python)


def restart_dead_components(airflow: LocalAirflow) -> LocalAirflow:
    """Start the components that do not run any more, as they were. Raises FileNotFoundError after `down`."""
    env = json.loads((airflow.directory / "environment.json").read_text())
    port, components = int(env["AIRFLOW__API__PORT"]), dict(airflow.components)
    for name, process in airflow.components.items():
        if not is_alive(process):
            end_sessions([process], grace=0.0)  # what it started
            components[name] = spawn_detached(_argv(airflow.python, name, port), _log(airflow.directory, name), env)
            _record(airflow.directory, port, components, airflow.python)
    return LocalAirflow(airflow.directory, airflow.url, components, airflow.python)


def wait_until_healthy(airflow: LocalAirflow, *, timeout: float = _START_S) -> LocalAirflow:
    """Wait until every component reports healthy. Raises AirflowFailed with the log of the culprit."""
    deadline = time.monotonic() + timeout
    while set((states := _read_health(airflow)).values()) != {"healthy"}:
        for name, process in airflow.components.items():
            if not is_alive(process):
                raise AirflowFailed(f"airflow {name} ended while starting; see {_log(airflow.directory, name)}")
        if time.monotonic() > deadline:
            sick = ", ".join(f"{name} {state}" for name, state in states.items() if state != "healthy")
            logs = airflow.directory / "components"
            raise AirflowFailed(f"airflow is not healthy after {timeout:.0f} s ({sick}); see {logs}")
        time.sleep(0.5)
    return airflow


def _read_health(airflow: LocalAirflow) -> dict[str, str]:
    """State by component as `/api/v2/monitor/health` reports it ("unreachable" while nothing answers)."""
    names = ("metadatabase", "scheduler", "triggerer", "dag_processor")
    try:
        # The first request to the tasks' own interface builds it, which takes seconds: better here than in a task.
        _open(f"{airflow.url}/execution/health", 60)
        report = json.loads(_open(f"{airflow.url}/api/v2/monitor/health", 30))
    except (urllib.error.URLError, OSError, ValueError):
        return dict.fromkeys(names, "unreachable")
    return {name: (report.get(name) or {}).get("status") or "starting" for name in names}


def find_airflow(directory: Path) -> LocalAirflow | None:
    """What `airflow.json` in the directory names, running or not; None without such a file."""
    path = directory.resolve() / "airflow.json"
    if not path.exists():
        return None
    known = json.loads(path.read_text())
    sessions = {name: ProcessIdentity(c["pid"], c["started"]) for name, c in known["components"].items()}
    return LocalAirflow(directory.resolve(), known["url"], sessions, known.get("python", sys.executable))


def stop_airflow(directory: Path, *, grace: float = 12.0) -> None:
    """End the components of this directory. Nothing to end is fine."""
    if (known := find_airflow(directory)) is None:
        return
    end_sessions(known.components.values(), grace=grace)
    for name in ("airflow.json", "environment.json"):
        (known.directory / name).unlink(missing_ok=True)


def build_airflow_environment(directory: Path, port: int, *, topologies: Path, state: Path) -> dict[str, str]:
    """The whole configuration, as environment variables: airflow.cfg is not read for any of it."""
    core, web, wait = "AIRFLOW__CORE__", "AIRFLOW__API__", "AIRFLOW__DAG_PROCESSOR__"
    settings = {
        "AIRFLOW_HOME": str(directory),
        # SQLite's own patience is 5 s: too short for several components that start together.
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{directory / 'airflow.db'}?timeout=60",
        wait + "DAG_BUNDLE_CONFIG_LIST": json.dumps([_DAGS]),  # the plugins are entry points
        core + "LOAD_EXAMPLES": "False",
        core + "PARALLELISM": "4",
        core + "EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        core + "SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{user}:{role}" for user, role in _USERS.items()),
        core + "SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(directory / "passwords.json"),
        web + "HOST": "127.0.0.1",
        web + "PORT": str(port),
        web + "BASE_URL": f"http://127.0.0.1:{port}",
        web + "WORKERS": "1",
        "AIRFLOW__API_AUTH__JWT_SECRET": _secret(directory / "jwt.secret", 64),
        web + "SECRET_KEY": _secret(directory / "session.secret"),
        core + "FERNET_KEY": _secret(directory / "fernet.secret"),
        wait + "REFRESH_INTERVAL": "15",
        wait + "MIN_FILE_PROCESS_INTERVAL": "30",
        wait + "PARSING_PROCESSES": "1",
        # Paid between two tasks of a run; the default is 1 s.
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.3",
        # A busy machine answers late; the default of 5 s fails tasks that did nothing wrong.
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(directory / "logs"),
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "PYTHONPATH": str(IMPORT_ROOT),
        # The lab's applications listen on this machine.
        "WATERSHED_HOOK_HOSTS": "loopback",
        # For hooks that are runs of a DAG of this very Airflow (cutover/hooks/airflow_hook.py).
        "WATERSHED_AIRFLOW_URL": f"http://127.0.0.1:{port}",
        "WATERSHED_AIRFLOW_CREDENTIALS": f"file:{directory / 'hooks.account'}",
        "WATERSHED_TOPOLOGIES": str(topologies),
        "WATERSHED_STATE": str(state),
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
    }
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("AIRFLOW__")}
    path = os.pathsep.join([str(Path(sys.executable).parent), inherited.get("PATH", "")])
    return {**inherited, **settings, "PATH": path}


def _open(url: str, timeout: float) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback needs no proxy
    with opener.open(url, timeout=timeout) as answer:
        return bytes(answer.read())


def _argv(python: str, name: str, port: int) -> list[str]:
    extra = {
        "api-server": ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"],
        # Logs are read from the shared folder; their servers would listen on every interface.
        "scheduler": ["--skip-serve-logs"],
        "triggerer": ["--skip-serve-logs"],
    }
    return [python, "-m", "airflow", name, *extra.get(name, [])]


def _migrate_database(directory: Path, env: Mapping[str, str], python: str, *, own: bool) -> None:
    """Create the metadata database, or copy the one made by an earlier call (8 s of imports saved).

    own: it is SQLite in the directory."""
    database = directory / "airflow.db"
    if not own:
        _migrate(directory, env, python)
        return
    if database.exists():
        return
    from importlib.metadata import version

    template = find_cache_folder(os.environ) / f"airflow-{version('apache-airflow')}.db"
    if not template.exists():
        _migrate(directory, env, python)
        _checkpoint(database)
        template.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(database, template.with_suffix(".new"))
        template.with_suffix(".new").replace(template)
        return
    shutil.copyfile(template, database)


def _migrate(directory: Path, env: Mapping[str, str], python: str) -> None:
    log = _log(directory, "db-migrate")
    process = spawn_detached([python, "-m", "airflow", "db", "migrate"], log, env)
    _record(directory, 0, {"db-migrate": process}, python)
    try:
        while is_alive(process):
            time.sleep(0.2)
    finally:
        end_sessions([process])
    if "Database migration done" not in log.read_text(errors="replace"):
        raise AirflowFailed(f"airflow db migrate failed; see {log}")


def _checkpoint(database: Path) -> None:
    import sqlite3

    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _record(directory: Path, port: int, components: Mapping[str, ProcessIdentity], python: str) -> None:
    document = {
        "schema": 1,
        "python": python,
        "url": f"http://127.0.0.1:{port}",
        "components": {name: {"pid": process.pid, "started": process.started} for name, process in components.items()},
    }
    path = directory / "airflow.json"
    path.with_suffix(".new").write_text(json.dumps(document, indent=1))
    path.with_suffix(".new").replace(path)


def _secret(path: Path, length: int = 32) -> str:
    if not path.exists():
        _write_private(path, base64.urlsafe_b64encode(secrets.token_bytes(length)).decode())
    return path.read_text()


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _log(directory: Path, name: str) -> Path:
    return directory / "components" / f"{name}.log"


def main(arguments: Iterable[str] | None = None) -> int:
    """`up`, `down` or `status` of the Airflow in `--dir`. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m watershed.lab.airflow", description="Airflow on this machine")
    parser.add_argument("verb", choices=["up", "down", "status"])
    parser.add_argument("--dir", type=Path, default=Path(".watershed/airflow"))
    parser.add_argument("--topologies", type=Path, default=Path("topologies"))
    options = parser.parse_args(None if arguments is None else list(arguments))
    if options.verb == "down":
        stop_airflow(options.dir)
        return 0
    if options.verb == "up":
        try:
            start_airflow(options.dir, topologies=options.topologies, state=options.dir / "state")
        except AirflowFailed as failure:
            click.echo(f"error: {failure}", err=True)
            return 2
    if (known := find_airflow(options.dir)) is None:
        click.echo("airflow: not running")
        return 1
    click.echo(f"{known.url}  (log in as {', '.join(f'{user}/{user}' for user in _USERS)})")
    for name, state in _read_health(known).items():
        click.echo(f"  {name:14} {state}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
