"""Runs the command line once for each line of stdin and answers with one JSON line.

A line is `{"arguments": […], "out": path, "err": path}`, the answer `{"exit", "cpu", "mib"}`: exit code (minus the
signal when one ended it), CPU seconds and peak resident MiB. Each command runs in a fork of its own, so the figures are
its own: the interpreter and the imports are paid once, before the forks (the test adds what a whole process costs). A
fork has hard limits, so a file that hangs, blocks or explodes ends there and its exit code tells.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from typing import Any

CPU_SECONDS = 20
WALL_SECONDS = 60
ADDRESS_SPACE = 1 << 30


def run(arguments: list[str], out: str, err: str) -> dict[str, Any]:
    """stdout and stderr go to the files `out` and `err`."""
    child = os.fork()
    if not child:
        _child(arguments, out, err)
    _, status, usage = os.wait4(child, 0)
    return {
        "exit": os.waitstatus_to_exitcode(status),
        "cpu": usage.ru_utime + usage.ru_stime,
        "mib": usage.ru_maxrss / 1024,
    }


def _child(arguments: list[str], out: str, err: str) -> None:
    """Never returns."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    signal.alarm(WALL_SECONDS)
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    from watershed.cli.main import main

    code = main(arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _warm() -> None:
    """What the commands import, so that no fork pays for it."""
    import importlib

    for name in (
        "watershed.cli.compile",
        "watershed.cli.graph",
        "watershed.cli.lint",
        "watershed.topology.lint",
        "watershed.topology.plan",
        "watershed.topology.picture",
    ):
        importlib.import_module(name)
    for form in ("text", "concise", "json"):
        importlib.import_module(f"watershed.topology.reports.{form}")


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    _warm()
    for line in sys.stdin:
        answers.write(json.dumps(run(**json.loads(line))) + "\n")
