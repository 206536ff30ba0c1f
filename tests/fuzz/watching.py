"""The parent of a child: gives it its order, watches it, and says what became of it.

An input hangs when it took `hang` seconds of the child's processor time, or ten times as long on the clock: the first
does not blame an input for a busy machine, the second finds one that waits for ever.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.fuzz.board import Board, Figures
from tests.fuzz.child import Order
from tests.fuzz.target import ROOT

HANG_S = 5.0
MEMORY = 512 << 20
_LOOK_S = 0.1
_PATIENT_TIMES = 10
_START_S = 600.0  # until the first input: imports, on a machine that others use
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Finding:
    """kind: traceback, no message, memory, oracle, hang, death. what: one line; text: what there is to read."""

    target: str
    kind: str
    what: str
    data: bytes = field(repr=False)
    text: str = ""

    @property
    def short(self) -> str:
        return hashlib.sha256(self.data).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Watched:
    """What a child did until it ended."""

    figures: Figures
    findings: tuple[Finding, ...]


def watch(order: Order, *, hang: float = HANG_S, looked: Callable[[Figures], None] = lambda _: None) -> Watched:
    """Run a child until it ends, or until an input has hung."""
    folder = Path(order.folder)
    for name in ("pool", "found"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "board").unlink(missing_ok=True)
    board = Board(folder / "board")
    path = folder / "order.json"
    path.write_text(json.dumps(asdict(order)))
    # one arena: threads reserve 64 MiB of addresses each otherwise, which an input has not taken
    environ = os.environ | {"MALLOC_ARENA_MAX": "1", "PYTHONWARNINGS": "ignore", "PYTHONHASHSEED": "0"}
    with (folder / "said").open("wb") as said:
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.child", str(path)], cwd=ROOT, stdout=said, stderr=said, env=environ
        )
    hung, started = False, time.monotonic()
    while child.poll() is None and not hung:
        time.sleep(_LOOK_S)
        figures = board.read()
        looked(figures)
        hung = _is_hung(child.pid, figures, hang) or (not figures.inputs and time.monotonic() - started > _START_S)
    if hung:
        child.kill()
    code = child.wait()
    figures, data = board.read(), board.read_input()
    board.close()
    found = [_reported(order.target, each) for each in sorted((folder / "found").glob("*.json"))]
    tail = (folder / "said").read_bytes()[-2000:].decode(errors="replace")
    if hung and figures.inputs:
        found.append(Finding(order.target, "hang", f"more than {hang:g} s", data, tail))
    elif code:
        if not figures.busy:  # nothing was tried just then
            raise RuntimeError(f"target {order.target}: the fuzzer itself failed (exit {code}): {tail}")
        found.append(Finding(order.target, "death", f"the process ended with {code}", data, tail))
    return Watched(figures, tuple(found))


def _is_hung(pid: int, figures: Figures, limit: float) -> bool:
    if not figures.busy:
        return False
    if time.monotonic() - figures.began > limit * _PATIENT_TIMES:
        return True
    return _processor_seconds(pid) - figures.began_cpu > limit


def _processor_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _reported(target: str, path: Path) -> Finding:
    told = json.loads(path.read_text())
    return Finding(target, told["kind"], told["what"], path.with_suffix(".bin").read_bytes(), told["text"])
