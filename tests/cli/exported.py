"""Commands that run beside a test, and waiting for what a real Prometheus answers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from watershed.lab.prometheus_server import PrometheusServer, query_prometheus

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

_COMMAND = [sys.executable, "-m", "watershed.cli.main"]


@contextmanager
def running_command(log: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as output:
        process = subprocess.Popen([*_COMMAND, *words], stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_answer(server: PrometheusServer, expression: str, wanted: float, seconds: float = 90) -> float:
    """Until the expression has this one value; how many seconds that took."""
    began = time.monotonic()
    seen: list[float] = []
    while time.monotonic() < began + seconds:
        seen = [each.value for each in query_prometheus(server, expression)]
        if seen == [wanted]:
            print(f"{expression} = {wanted:g} after {time.monotonic() - began:.1f} s")
            return time.monotonic() - began
        time.sleep(0.25)
    raise AssertionError(f"{expression} is {seen}, not {wanted}")


def ask_health(port: int, what: str) -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/{what}", timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def build_file(lab: Lab, topic: str, engine: str = "process") -> str:
    clusters = "".join(f'  {each.alias}: {{bootstrap: ["{each.bootstrap}"]}}\n' for each in lab.clusters.values())
    return f"""\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: {topic}}}
clusters:
{clusters}
flows:
  - source: onprem
    target: cloud
    suffix: {topic}
    topics: {{include: [{topic}]}}
    workers: {{engine: {engine}, placement: external, count: 1}}
"""
