"""The control endpoint of a sample application: the switch that a migration throws.

    GET  /       {"name", "role", "state": "running|stopped", "cluster", "bootstrap", "acked|processed": n, …}
    POST /stop   answers after the client is closed: flushed, offsets committed, out of the group
    POST /start  {"cluster": alias, "bootstrap": "host:port"}: a new client there

No page in a browser may send any of them: a request from elsewhere, or for another host, is refused.
Both POSTs may be repeated. A client that failed is stopped, with the reason in "error". The application
remembers where it was told to be: started again after a crash, it continues there. Loopback only, unless `--host` names
the application in a network of containers.
"""

from __future__ import annotations

import json
import signal
import threading
import traceback
from argparse import ArgumentParser, Namespace
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

import click

from watershed.lab.errors import LabError
from watershed.lab.free_ports import LOOPBACK_HOST

_CLOSE_S = 60.0


@dataclass(frozen=True, slots=True)
class ClientAddress:
    """Where a client connects to."""

    cluster: str
    bootstrap: str


class ControlledApplication(Protocol):
    """A producer or a consumer."""

    name: str
    role: str

    def run(self, place: ClientAddress, stopping: threading.Event) -> None:
        """Runs one client until `stopping` is set; returns when it is closed. LabError: it cannot go on."""
        ...

    def counts(self) -> dict[str, int]:
        """Numbers for GET /."""
        ...


class _RunsElsewhere(LabError):
    """The application runs at another cluster; it must be stopped first."""


class ClientSwitch:
    """Starts and stops the clients of one application, one at a time."""

    def __init__(self, application: ControlledApplication, directory: Path) -> None:
        self._application = application
        self._file = directory / "place.json"
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._place: ClientAddress | None = None
        self._error: str | None = None

    def resume(self, default: ClientAddress | None) -> None:
        """Continues where the application was last told to be; at `default` if it never was."""
        if self._file.exists():
            told = json.loads(self._file.read_text())
            self._place = ClientAddress(told["cluster"], told["bootstrap"])
            if told["state"] == "running":
                self.start(self._place)
        elif default:
            self.start(default)

    def start(self, place: ClientAddress) -> None:
        """Raises _RunsElsewhere."""
        with self._lock:
            if self._running():
                if self._place != place:
                    at = self._place.cluster if self._place else "?"
                    raise _RunsElsewhere(f"{self._application.name} runs at {at}; stop it first")
                return
            self._remember(place, "running")
            self._stopping = threading.Event()
            self._error = None
            self._thread = threading.Thread(target=self._run, args=(place, self._stopping), name="client")
            self._thread.start()

    def stop(self, remember: bool = True) -> None:
        """Returns when the client is closed. Raises LabError when it does not close."""
        with self._lock:
            self._stopping.set()
            if self._thread:
                self._thread.join(_CLOSE_S)
                if self._thread.is_alive():
                    raise LabError(f"{self._application.name} did not close its client in {_CLOSE_S:.0f} s")
            if remember and self._place:
                self._remember(self._place, "stopped")

    def describe(self) -> dict[str, Any]:
        """The answer to every request."""
        place = self._place
        return {
            "name": self._application.name,
            "role": self._application.role,
            "state": "running" if self._running() else "stopped",
            "cluster": place.cluster if place else None,
            "bootstrap": place.bootstrap if place else None,
            **self._application.counts(),
            **({"error": self._error} if self._error else {}),
        }

    def _running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _run(self, place: ClientAddress, stopping: threading.Event) -> None:
        try:
            self._application.run(place, stopping)
        except LabError as error:
            self._error = str(error)
        except Exception as error:  # noqa: BLE001 - whatever ends a client is shown at the endpoint
            traceback.print_exc()
            self._error = f"{type(error).__name__}: {error}"
        if self._error:
            click.echo(f"{self._application.name} at {place.cluster} ended: {self._error}", err=True)

    def _remember(self, place: ClientAddress, state: str) -> None:
        self._place = place
        scratch = self._file.with_suffix(".new")
        scratch.write_text(json.dumps({**asdict(place), "state": state}))
        scratch.replace(self._file)


def add_application_options(parser: ArgumentParser) -> None:
    """The options that all applications share."""
    parser.add_argument("--directory", type=Path, required=True, help="where it keeps its records")
    parser.add_argument("--name", required=True, help="its name; producers: also the series in its values")
    parser.add_argument("--port", type=int, required=True, help="of its control endpoint")
    parser.add_argument("--host", default=LOOPBACK_HOST, help="where that listens; in a container, its name there")
    parser.add_argument("--cluster", help="alias of the cluster to start at; without, it waits for POST /start")
    parser.add_argument("--bootstrap", help="bootstrap servers of that cluster")


def parse_client_address(options: Namespace) -> ClientAddress | None:
    """Where the command line says to start. Raises LabError when it says half of it."""
    if (options.cluster is None) != (options.bootstrap is None):
        raise LabError("--cluster and --bootstrap go together")
    return ClientAddress(options.cluster, options.bootstrap) if options.cluster else None


def serve_control_endpoint(application: ControlledApplication, options: Namespace, place: ClientAddress | None) -> None:
    """Answers until SIGTERM or SIGINT, then closes the client and returns. options: of `add_application_options`."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    switch = ClientSwitch(application, options.directory)
    server = ThreadingHTTPServer((options.host, options.port), _handler(switch, options.host))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), name="endpoint", daemon=True).start()
    switch.resume(place)
    ended.wait()
    switch.stop(remember=False)
    server.shutdown()
    server.server_close()


def _handler(switch: ClientSwitch, host: str = LOOPBACK_HOST) -> type[BaseHTTPRequestHandler]:
    return type(
        "Handler",
        (_ControlHandler,),
        {"switch": switch, "hosts": frozenset({LOOPBACK_HOST, "localhost", host.lower()})},
    )


class _ControlHandler(BaseHTTPRequestHandler):
    """GET / says how the client is; POST /stop and /start switch it."""

    protocol_version = "HTTP/1.1"
    switch: ClientSwitch
    hosts: frozenset[str]  # names by which it may be called

    def do_GET(self) -> None:
        if self._is_from_elsewhere():
            return
        if self.path != "/":
            self._answer(404, {"error": f"no {self.path} here; there is GET /, POST /stop, POST /start"})
            return
        self._answer(200, self.switch.describe())

    def do_POST(self) -> None:
        if self._is_from_elsewhere():
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            if self.path == "/stop":
                self.switch.stop()
            elif self.path == "/start":
                self.switch.start(_place(body))
            else:
                self._answer(404, {"error": f"no {self.path} here; there is POST /stop and POST /start"})
                return
        except _RunsElsewhere as error:
            self._answer(409, {"error": str(error), **self.switch.describe()})
        except ValueError as error:
            self._answer(400, {"error": str(error)})
        except LabError as error:
            self._answer(500, {"error": str(error)})
        else:
            self._answer(200, self.switch.describe())

    def _is_from_elsewhere(self) -> bool:
        """Whether a page made the request (browsers say so), or one whose name was made to lead here."""
        host = self.headers.get("Host", "").rpartition(":")[0].lower()
        site = self.headers.get("Sec-Fetch-Site", "none")
        if host in self.hosts and "Origin" not in self.headers and site == "none":
            return False
        self.close_connection = True  # its body is not read
        self._answer(
            403, {"error": f"only programs may ask, at {' or '.join(sorted(self.hosts))}; no page in a browser"}
        )
        return True

    def _answer(self, code: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # the base class's name
        pass


def _place(body: bytes) -> ClientAddress:
    try:
        request = json.loads(body)
        address = [request["cluster"], request["bootstrap"]]
    except (ValueError, KeyError, TypeError):
        address = []
    if not address or not all(isinstance(text, str) and text for text in address):
        raise ValueError('POST /start needs {"cluster": "alias", "bootstrap": "host:port"}')
    return ClientAddress(*address)
