"""Sample applications as processes: started detached, stopped by their own switch, ended at the end.

`<directory>/apps.json` is written before a process is started and again with its pid (as lab.json for brokers);
each application has `<directory>/<name>/` with its records, its pid file and its log.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from watershed.lab.detached_process import (
    ProcessIdentity,
    end_processes,
    find_by_argument,
    is_alive,
    kill_process,
    spawn_detached,
)
from watershed.lab.errors import ApplicationFailed, LabError
from watershed.lab.free_ports import LOOPBACK_HOST, find_free_ports

_READY_S = 180.0
_ANSWER_S = 90.0


@dataclass(frozen=True, slots=True)
class SampleApplication:
    """One application; `http` is the address of its control endpoint."""

    name: str
    directory: Path
    port: int
    process: ProcessIdentity | None = None
    host: str = LOOPBACK_HOST

    @property
    def http(self) -> str:
        """URL of the application's control endpoint."""
        return f"http://{self.host}:{self.port}"

    @property
    def log(self) -> Path:
        """What the process prints."""
        return self.directory / "app.log"

    @property
    def pid(self) -> int | None:
        """The pid while it runs, else None."""
        return self.process.pid if self.process and is_alive(self.process) else None


def start_application(
    directory: Path | str, name: str, args: Sequence[str], port: int | None = None
) -> SampleApplication:
    """Starts `python -m <args[0]> --directory … --name … --port … <args[1:]>` and waits for its endpoint.

    An application that runs is left as it is; one that died gets its port and its records again.
    Raises ApplicationFailed, LabError.
    """
    home = Path(directory).resolve()
    home.mkdir(parents=True, exist_ok=True)
    with _locked(home):
        apps = _read(home)
        known = apps.get(name)
        if known and _running(known):
            return replace(known, process=_running(known))
        chosen = port or (known.port if known else find_free_ports(1, [app.port for app in apps.values()])[0])
        app = SampleApplication(name, home / name, chosen)
        _write(home, {**apps, name: app})
        own = [_marker(app), "--name", name, "--port", str(chosen)]
        app = replace(app, process=spawn_detached([sys.executable, "-m", args[0], *own, *args[1:]], app.log))
        _write(home, {**apps, name: app})
        (app.directory / "pid").write_text(f"{app.process.pid if app.process else ''}\n")
    deadline = time.monotonic() + _READY_S
    while True:
        with contextlib.suppress(OSError, ValueError):
            if ask_application(app)["name"] == name:
                return app
        if not is_alive(app.process):
            raise ApplicationFailed(name, f"ended at once ({_last_line(app.log)})", app.log)
        if time.monotonic() > deadline:
            raise ApplicationFailed(name, f"did not answer at {app.http} in {_READY_S:.0f} s", app.log)
        time.sleep(0.05)


def stop_applications(directory: Path | str, name: str | None = None, grace: float = 70.0) -> None:
    """Ends the processes (all, or the one named) in good order: clients closed, offsets committed."""
    home = Path(directory).resolve()
    if not home.is_dir():
        return
    with _locked(home):
        apps = _read(home)
        chosen = [app for app in apps.values() if name in (None, app.name)]
        if name is not None and not chosen:
            raise LabError(f"no application {name} in {home}")
        end_processes([process for app in chosen if (process := _running(app))], grace)
        for app in chosen:
            (app.directory / "pid").unlink(missing_ok=True)


def list_applications(directory: Path | str) -> dict[str, SampleApplication]:
    """The applications of the directory by name; one that does not run has pid None."""
    apps = _read(Path(directory).resolve())
    return {name: replace(app, process=_running(app)) for name, app in apps.items()}


def kill_application(directory: Path | str, name: str) -> None:
    """SIGKILL, as the out-of-memory killer would."""
    if process := _running(_read(Path(directory).resolve())[name]):
        kill_process(process)


def ask_application(app: SampleApplication) -> dict[str, Any]:
    """GET /. Raises OSError when nothing answers."""
    return _request(app, "GET", "/", None)


def stop_client(app: SampleApplication) -> dict[str, Any]:
    """POST /stop: returns when its client is closed. Raises ApplicationFailed."""
    return _told(app, "/stop", {})


def start_client(app: SampleApplication, cluster: str, bootstrap: str) -> dict[str, Any]:
    """POST /start. Raises ApplicationFailed (also when it runs at another cluster)."""
    return _told(app, "/start", {"cluster": cluster, "bootstrap": bootstrap})


def wait_for_count(app: SampleApplication, field: str, least: int, seconds: float = 60.0) -> dict[str, Any]:
    """Waits until GET / shows `field` (acked or processed) of at least `least`. Raises ApplicationFailed."""
    deadline = time.monotonic() + seconds
    while True:
        seen = ask_application(app)
        if seen[field] >= least:
            return seen
        if "error" in seen or time.monotonic() > deadline:
            why = seen.get("error", f"not in {seconds:.0f} s")
            raise ApplicationFailed(app.name, f"has {seen[field]} {field}, awaited {least}: {why}", app.log)
        time.sleep(0.05)


def _told(app: SampleApplication, path: str, body: dict[str, Any]) -> dict[str, Any]:
    try:
        return _request(app, "POST", path, body)
    except urllib.error.HTTPError as error:
        raise ApplicationFailed(app.name, f"refused {path}: {error.read().decode()[:300]}", app.log) from None
    except OSError as error:
        raise ApplicationFailed(app.name, f"does not answer at {app.http} ({error})", app.log) from None


def _request(app: SampleApplication, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{app.http}{path}", data=data, method=method)  # noqa: S310 - our own http URL
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback needs no proxy
    with opener.open(request, timeout=_ANSWER_S) as answer:
        read: dict[str, Any] = json.load(answer)
        return read


def _marker(app: SampleApplication) -> str:
    return f"--directory={app.directory}"


def _running(app: SampleApplication) -> ProcessIdentity | None:
    return app.process if is_alive(app.process) else find_by_argument(_marker(app))


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1][:300] if lines else "no output"


def _read(home: Path) -> dict[str, SampleApplication]:
    path = home / "apps.json"
    if not path.exists():
        return {}
    apps = {}
    for value in json.loads(path.read_text())["apps"]:
        process = ProcessIdentity(value["pid"], value["started"]) if value["pid"] is not None else None
        apps[value["name"]] = SampleApplication(value["name"], home / value["name"], value["port"], process)
    return apps


def _write(home: Path, apps: dict[str, SampleApplication]) -> None:
    state = [
        {
            "name": app.name,
            "port": app.port,
            "pid": app.process.pid if app.process else None,
            "started": app.process.started if app.process else None,
        }
        for app in apps.values()
    ]
    scratch = home / "apps.json.new"
    scratch.write_text(json.dumps({"schema": 1, "apps": state}, indent=1))
    scratch.replace(home / "apps.json")


@contextlib.contextmanager
def _locked(home: Path) -> Iterator[None]:
    descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
