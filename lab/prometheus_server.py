"""A real Prometheus, and promtool: for tests of metrics, alert rules and dashboards.

Both are built once from lab/prometheus (a Go module, held to its go.sum) into the user's cache:
`python -m watershed.lab.prometheus_server build`. On two cores that are busy otherwise, the first build takes 6
minutes. The program has no pages for browsers: their build needs another registry. It answers queries at /api/v1.
Everything listens on 127.0.0.1 only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from watershed.lab.detached_process import ProcessIdentity, end_processes, is_alive, spawn_detached
from watershed.lab.errors import LabError
from watershed.lab.fetched_programs import build_go_program, fetch_program_once, find_fetched_program
from watershed.lab.free_ports import LOOPBACK_HOST, find_free_ports

PROMETHEUS_FOLDER: Final = Path(__file__).with_name("prometheus")
_PROGRAMS: Final = ("prometheus", "promtool")
_PACKAGE: Final = "github.com/prometheus/prometheus/cmd/"
_READY_S: Final = 60.0  # on an idle machine 0.3 s
_ANSWER_S: Final = 10.0
_PROMTOOL_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class PrometheusServer:
    """address: `http://host:port`. home: its folder, with the data and what it prints."""

    home: Path
    address: str
    process: ProcessIdentity

    @property
    def log(self) -> Path:
        """What it prints."""
        return self.home / "prometheus.log"


@dataclass(frozen=True, slots=True)
class PrometheusSample:
    """One element of the answer to an instant query. labels: with `__name__` where the query keeps it."""

    labels: Mapping[str, str]
    value: float


def is_prometheus_built(environ: Mapping[str, str] | None = None) -> bool:
    """Whether both programs are in the cache: a test does not begin to build them."""
    environ = os.environ if environ is None else environ
    return all(find_fetched_program(name, _list_prometheus_pins(), environ).exists() for name in _PROGRAMS)


def fetch_prometheus(environ: Mapping[str, str] | None = None) -> Path:
    """The server's program, built when it is not there yet. Raises ToolMissing (no go), LabError."""
    return _fetch("prometheus", environ)


def fetch_promtool(environ: Mapping[str, str] | None = None) -> Path:
    """promtool, built when it is not there yet. Raises ToolMissing (no go), LabError."""
    return _fetch("promtool", environ)


def run_promtool(arguments: Sequence[str], folder: Path, text: str | None = None) -> tuple[int, str]:
    """Runs promtool in `folder`, with `text` as its input: its exit code, and what it printed. Raises ToolMissing,
    LabError."""
    command = [str(fetch_promtool()), *arguments]
    done = subprocess.run(
        command, cwd=folder, input=text, capture_output=True, text=True, check=False, timeout=_PROMTOOL_S
    )
    return done.returncode, done.stdout + done.stderr


def start_prometheus(
    home: Path | str, targets: Mapping[str, Sequence[str]], rules: Sequence[Path] = (), *, interval_s: float = 1.0
) -> PrometheusServer:
    """Starts a server, detached; returns when it answers. home: an empty folder. targets: job → `host:port` of what is
    scraped; they need not answer yet. rules: rule files. interval_s: between two scrapes, and between two evaluations
    of the rules. Raises ToolMissing, LabError (with the log's end: a rule file that it refuses, say)."""
    home = Path(home).resolve()
    home.mkdir(parents=True, exist_ok=True)
    every = f"{int(interval_s * 1000)}ms"
    config = {
        "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
        "rule_files": [str(Path(each).resolve()) for each in rules],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": list(addresses)}]} for job, addresses in targets.items()
        ],
    }
    (home / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
    port = find_free_ports(1)[0]
    flags = [
        f"--config.file={home / 'prometheus.yml'}", f"--storage.tsdb.path={home / 'data'}",
        f"--web.listen-address={LOOPBACK_HOST}:{port}", "--storage.tsdb.retention.time=1d", "--log.level=warn",
    ]  # fmt: skip
    process = spawn_detached([str(fetch_prometheus()), *flags], home / "prometheus.log")
    server = PrometheusServer(home, f"http://{LOOPBACK_HOST}:{port}", process)
    try:
        _wait_until_answering(server)
    except BaseException:
        end_prometheus(server)
        raise
    return server


def end_prometheus(server: PrometheusServer) -> None:
    """Ends it; its folder stays."""
    end_processes([server.process], grace=5.0)


def query_prometheus(server: PrometheusServer, expression: str) -> list[PrometheusSample]:
    """The answer to a PromQL expression as of now; a scalar is one sample without labels. Raises LabError, with what
    the server says about an expression that it cannot evaluate."""
    found = ask_prometheus(server, "query", {"query": expression})
    rows = [{"metric": {}, "value": found["result"]}] if found["resultType"] == "scalar" else found["result"]
    return [PrometheusSample(row["metric"], float(row["value"][1])) for row in rows]


def list_firing_alerts(server: PrometheusServer) -> list[dict[str, str]]:
    """The labels of every alert that fires now; `alertname` is one of them. Raises LabError."""
    alerts = ask_prometheus(server, "alerts", {})["alerts"]
    return [alert["labels"] for alert in alerts if alert["state"] == "firing"]


def ask_prometheus(server: PrometheusServer, what: str, parameters: Mapping[str, str]) -> Any:
    """The field `data` of the answer of /api/v1/<what>. Raises LabError."""
    url = f"{server.address}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
    try:
        with urllib.request.urlopen(url, timeout=_ANSWER_S) as answer:  # noqa: S310 -- ours
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        raise LabError(f"Prometheus refuses {what} {dict(parameters)}: {error.read().decode()[:500]}") from None
    except OSError as error:
        raise LabError(f"Prometheus at {server.address} does not answer: {error}; its log: {server.log}") from None


def _fetch(name: str, environ: Mapping[str, str] | None) -> Path:
    environ = os.environ if environ is None else environ
    return fetch_program_once(name, _list_prometheus_pins(), environ, partial(_build_one, name))


def _list_prometheus_pins() -> list[Path]:
    return [PROMETHEUS_FOLDER / "go.mod", PROMETHEUS_FOLDER / "go.sum"]


def _build_one(name: str, scratch: Path, environ: Mapping[str, str]) -> None:
    what = "a Prometheus for tests"
    build_go_program(name, PROMETHEUS_FOLDER, what, scratch, environ, {}, ("-ldflags=-s -w",), _PACKAGE + name)


def _wait_until_answering(server: PrometheusServer) -> None:
    """Raises LabError, with the log's last lines, where it does not."""
    deadline = time.monotonic() + _READY_S
    while True:
        try:
            with urllib.request.urlopen(f"{server.address}/-/ready", timeout=5) as answer:  # noqa: S310 -- ours
                if answer.status == 200:
                    return
        except OSError:
            pass
        if time.monotonic() > deadline or not is_alive(server.process):
            lines = server.log.read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
            raise LabError("\n".join([f"Prometheus did not become ready at {server.address}:", *lines]))
        time.sleep(0.1)


if __name__ == "__main__":
    if sys.argv[1:] != ["build"]:
        sys.exit("usage: python -m watershed.lab.prometheus_server build")
    try:
        click.echo(f"{fetch_prometheus()}\n{fetch_promtool()}")
    except LabError as error:
        sys.exit(f"lab: {error}")
