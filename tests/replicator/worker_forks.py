"""Workers as forks of a process that has imported what they need.

The tests start about 170 of them, and an import costs half a second of processor time each.

Run as a program, it reads orders from stdin, a JSON line each, and answers with a line: `{"plan", "target", "prelude",
"log", "environ"}` starts a worker and gives its pid; `{"poll": PID}` gives its exit code as `subprocess` counts it, or
null while it runs. At the end of stdin it kills whom it started.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any


@dataclass
class ForkedWorker:
    """One worker; the caller kills it by its pid."""

    pid: int
    returncode: int | None = field(default=None, init=False)

    def poll(self) -> int | None:
        """Its exit code, minus the signal that ended it; None while it runs."""
        if self.returncode is None:
            self.returncode = _server().ask({"poll": self.pid})
        return self.returncode

    def wait(self, timeout: float = 180) -> int:
        """Raises TimeoutError."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"worker {self.pid} runs after {timeout:g} s")
            time.sleep(0.01)
        return code

    def send_signal(self, number: int) -> None:
        """Nothing to a worker that has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


def fork_worker(plan: Path, target: str, prelude: str, log: Path) -> ForkedWorker:
    """A worker for the cluster `target`; it first runs `prelude`, Python statements."""
    order = {"plan": str(plan), "target": target, "prelude": prelude, "log": str(log), "environ": dict(os.environ)}
    return ForkedWorker(_server().ask(order))


class _Server:
    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.replicator.worker_forks"]
        root = Path(__file__).parents[2]
        self._process = subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._lock = threading.Lock()
        atexit.register(self._end)

    def ask(self, order: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            print(json.dumps(order), file=self._process.stdin, flush=True)
            return json.loads(self._process.stdout.readline())

    def _end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@cache
def _server() -> _Server:
    return _Server()


def _serve() -> dict[str, Any] | None:
    """In the server: None at the end of stdin. In a worker that it has forked: the order."""
    living: set[int] = set()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    for line in iter(sys.stdin.readline, ""):
        order = json.loads(line)
        answer: int | None
        if "poll" in order:
            ended, status = os.waitpid(order["poll"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if ended else None
            living -= {ended}
        else:
            answer = os.fork()
            if not answer:
                answers.close()
                return order
            living.add(answer)
        answers.write(json.dumps(answer) + "\n")
    for pid in living:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return None


def _work(order: dict[str, Any]) -> None:
    from watershed.clusters.settings import resolve_connection_settings
    from watershed.replicator.worker.log_format import configure_logging
    from watershed.replicator.worker.worker import run_worker
    from watershed.topology.plan import decode_plan

    os.environ.clear()
    os.environ.update(order["environ"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    exec(order["prelude"], {})
    plan = decode_plan(Path(order["plan"]).read_text())
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    configure_logging()
    run_worker(
        resolve_connection_settings(plan.cluster(order["target"])),
        lambda alias: resolve_connection_settings(plan.cluster(alias)),
        topology=plan.topology,
        worker_id=f"w{os.getpid()}",
        stop=stop,
        plan_hash=plan.hash,
    )


if __name__ == "__main__":
    import watershed.replicator.worker.worker  # noqa: F401 (what the forks need not import)

    if (own_order := _serve()) is not None:
        _work(own_order)
