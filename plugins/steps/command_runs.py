"""Commands of the command line that Airflow runs as they are: inspections, which change nothing, and rehearsals.

Each runs as a process of its own, `python -m watershed.cli.main …`, without a shell. It prints into a file of the
run's folder,
which the task follows into its log: so it outlives a task that is killed, and takes back what it has to. A value from
a form is always the value of an option, or behind `--`, and never an option.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from watershed import IMPORT_ROOT
from watershed.plugins.detached_process import build_clean_environment

ACTOR_VARIABLE: Final = "WATERSHED_ACTOR"  # cli.actor: in whose name the command acts
# A component of Airflow that a shell has put into the background ignores SIGINT, and so would what it starts.
_PROGRAM: Final = (
    "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "runpy.run_module('watershed.cli.main', run_name='__main__', alter_sys=True)"
)
_GRACE_S = 30.0
_LOOK_S = 0.2  # between two looks at what it has printed
_MEANINGS = {1: "it found something, or was refused", 2: "it could not be done", 3: "it is incomplete"}


@dataclass(frozen=True, slots=True)
class Inspection:
    """about: for the form. needs: params that may not be empty. build: the arguments, from file, folder and params."""

    about: str
    needs: tuple[str, ...]
    build: Callable[[str, Path, Mapping[str, Any]], list[str]]


def _option(name: str, value: object) -> list[str]:
    """Nothing for an empty value."""
    return [] if value in ("", None) else [f"--{name}={value}"]


def _partition(command: str) -> Callable[[str, Path, Mapping[str, Any]], list[str]]:
    def build(file: str, _folder: Path, params: Mapping[str, Any]) -> list[str]:
        where = [f"--flow={params['flow']}", f"--topic={params['topic']}", f"--partition={params['partition']}"]
        return ["offsets", command, *where]

    return build


def _translate(file: str, folder: Path, params: Mapping[str, Any]) -> list[str]:
    reverse = ["--reverse"] if params.get("reverse") else []
    return [*_partition("translate")(file, folder, params), f"--offset={params['offset']}", *reverse, file]


def _trace(file: str, _folder: Path, params: Mapping[str, Any]) -> list[str]:
    place = f"{params['topic']}:{params['partition']}:{params['offset']}"
    return ["trace", f"--cluster={params['cluster']}", "--", file, place]


INSPECTIONS: Final[Mapping[str, Inspection]] = {
    "status": Inspection("state and lag of every flow", (), lambda file, _f, _p: ["status", file]),
    "plan": Inspection("what `apply` would change", (), lambda file, _f, _p: ["plan", file]),
    "scan": Inspection(
        "an inventory of the clusters, and the planning report",
        (),
        lambda file, folder, _p: ["scan", f"--output={folder}/inventory.json", f"--report={folder}/report.html", file],
    ),
    "probe": Inspection(
        "what a cluster can do, tried on a topic of its own that is removed again",
        ("cluster",),
        lambda file, folder, p: ["probe", f"--cluster={p['cluster']}", f"--output={folder}/capabilities.json", file],
    ),
    "acls": Inspection(
        "which rights a role lacks",
        ("role",),
        lambda file, _f, p: ["acls", "--check", f"--role={p['role']}", file],
    ),
    "groups": Inspection(
        "where every group stands on both sides",
        ("flow",),
        lambda file, _f, p: ["offsets", "groups", f"--flow={p['flow']}", *_option("group", p.get("group")), file],
    ),
    "translate": Inspection("an offset on the other side", ("flow", "topic", "partition", "offset"), _translate),
    "map": Inspection(
        "the offset map of a partition",
        ("flow", "topic", "partition"),
        lambda file, folder, p: [*_partition("map")(file, folder, p), file],
    ),
    "quarantined": Inspection(
        "records that the target did not take, without their values",
        ("flow",),
        lambda file, _f, p: ["flow", "quarantined", *_option("topic", p.get("topic")), "--", p["flow"], file],
    ),
    "trace": Inspection("where a record was written", ("cluster", "topic", "partition", "offset"), _trace),
    "journal": Inspection("whether the journal is whole", (), lambda file, _f, _p: ["journal", "--verify", file]),
    "orders": Inspection(
        "what people decided by hand, and what became of it", (), lambda file, _f, _p: ["journal", "--orders", file]
    ),
    "waves": Inspection("how far each wave is", (), lambda file, _f, _p: ["migrate", "--status", file]),
    "loss": Inspection("what a failover would lose now", (), lambda file, _f, _p: ["failover", "--show-loss", file]),
    "divergence": Inspection(
        "records that only the old primary has",
        (),
        lambda file, folder, _p: ["failback", f"--report={folder}/only-old.jsonl", file],
    ),
}


def build_inspection(operation: str, file: Path, folder: Path, params: Mapping[str, Any]) -> list[str]:
    """The command line of an inspection. Raises ValueError for a param that it needs and that is empty."""
    wanted = INSPECTIONS[operation]
    missing = [name for name in wanted.needs if params.get(name) in ("", None)]
    if missing:
        raise ValueError(f"{operation} needs {', '.join(missing)}: say it and trigger again")
    return wanted.build(str(file), folder, params)


class CommandRun:
    """One command under way. Its lines are in the file `output.txt` of the folder and go to `say`."""

    def __init__(self, arguments: Sequence[str], folder: Path, say: Callable[[str], None], actor: str) -> None:
        self.arguments, self.folder, self.say, self.actor = [*arguments], folder, say, actor
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Waits for its end. Returns the exit code."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o750)
        environment = build_clean_environment() | {"PYTHONPATH": str(IMPORT_ROOT), "PYTHONUNBUFFERED": "1"}
        path = self.folder / "output.txt"
        path.unlink(missing_ok=True)  # the command of a killed task may still write into the former one
        with path.open("wb") as output:
            os.fchmod(output.fileno(), 0o640)
            self._process = process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, *self.arguments],
                cwd=self.folder,
                env=environment | {ACTOR_VARIABLE: self.actor},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        with path.open("rb") as printed:
            begun = b""  # a line that has no end yet
            while True:
                code = process.poll()
                *lines, begun = (begun + printed.read()).split(b"\n")
                for line in lines if code is None or not begun else [*lines, begun]:
                    self.say(line.decode(errors="replace"))
                if code is not None:
                    return code
                time.sleep(_LOOK_S)

    def end(self) -> None:
        """As Ctrl-C does: it takes back what it has to take back, and ends; also where Airflow kills the task, which it
        does 5 s after it asked it to end."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)


def explain_exit_code(code: int) -> str:
    """What an exit code of the command line means."""
    return f"exit code {code}: {_MEANINGS.get(code, 'it was ended')}; the log of this task has what it said"
