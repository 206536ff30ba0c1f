"""`make fuzz`: foreign bytes of seven kinds against who reads them, for FUZZ_MINUTES together.

Two children at a time, each with one target for a slice of the time; a child that hangs or dies is replaced, and its
input is a finding. Ends with a table, and with 1 when something was found. docs/security.md says what was seen.
"""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.child import Order
from tests.fuzz.kept import keep, minimised
from tests.fuzz.target import NAMES, ROOT
from tests.fuzz.watching import MEMORY, Finding, Watched, watch

CHILDREN = 2
TOLD_S = 30.0
_MOST = 1 << 62


@dataclass
class Row:
    """What all children of a target did together."""

    inputs: int = 0
    accepted: int = 0
    refused: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    peak: int = 0
    slices: int = 0
    findings: dict[tuple[str, str], Finding] = field(default_factory=dict)


class Session:
    def __init__(self, targets: list[str], seconds: float, seed: int) -> None:
        self.rows = {name: Row() for name in targets}
        self.seed = seed
        self._ends = time.monotonic() + seconds
        # short enough that each target has two turns, long enough that imports do not count
        self._slice = max(min(60.0, seconds * CHILDREN / len(targets) / 2), 3.0)
        self._waiting = deque(targets)
        self._lock = threading.Lock()
        self._failed: list[str] = []

    def run(self) -> None:
        with tempfile.TemporaryDirectory(prefix="watershed-fuzz-") as folder:
            threads = [threading.Thread(target=self._work, args=(Path(folder),)) for _ in range(CHILDREN)]
            for thread in threads:
                thread.start()
            told = time.monotonic()
            while any(thread.is_alive() for thread in threads):
                threads[0].join(0.5) if threads[0].is_alive() else threads[-1].join(0.5)
                if time.monotonic() - told >= TOLD_S:
                    told = time.monotonic()
                    self._tell()
        if self._failed:
            sys.exit(f"make fuzz: {self._failed[0]}")

    def _work(self, folder: Path) -> None:
        while not self._failed:
            with self._lock:
                left = self._ends - time.monotonic()
                if left < 1 or not self._waiting:
                    return
                name = self._waiting.popleft()
            row = self.rows[name]
            order = Order(
                name, f"{self.seed}/{name}/{row.slices}", str(folder / name), min(self._slice, left), _MOST, MEMORY
            )
            began = time.monotonic()
            try:
                self._add(row, watch(order), time.monotonic() - began)
            except RuntimeError as error:
                self._failed.append(str(error))
            with self._lock:
                self._waiting.append(name)

    def _add(self, row: Row, watched: Watched, seconds: float) -> None:
        figures, findings = watched.figures, watched.findings
        row.inputs += figures.inputs
        row.accepted += figures.accepted
        row.refused += figures.refused
        row.seconds += seconds
        row.longest = max(row.longest, figures.longest)
        row.peak = max(row.peak, figures.peak)
        row.slices += 1
        for finding in findings:
            if row.findings.setdefault((finding.kind, finding.what), finding) is finding:
                print(f"fuzz: {finding.target}: {finding.kind}: {finding.what}", flush=True)

    def _tell(self) -> None:
        rows = " ".join(f"{name} {row.inputs}" for name, row in self.rows.items())
        found = sum(len(row.findings) for row in self.rows.values())
        print(f"fuzz: {max(self._ends - time.monotonic(), 0):.0f} s left, {found} findings; inputs: {rows}", flush=True)


def table(rows: dict[str, Row]) -> str:
    """The figures for people, and for docs/security.md."""
    lines = [
        "| target | inputs | accepted | refused | findings | inputs/s | longest s | peak MiB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {name} | {row.inputs:,} | {row.accepted:,} | {row.refused:,} | {len(row.findings)} | "
        f"{row.inputs / max(row.seconds, 0.001):.0f} | {row.longest:.2f} | {row.peak / (1 << 20):.0f} |"
        for name, row in rows.items()
    ]
    return "\n".join(lines)


def main(environ: dict[str, str]) -> int:
    again = environ.get("FUZZ_INPUT", "")
    if again:
        return try_again(Path(again), environ.get("FUZZ_TARGETS", ""))
    targets = [name for name in environ.get("FUZZ_TARGETS", "").replace(" ", "").split(",") if name] or list(NAMES)
    unknown = sorted(set(targets) - set(NAMES))
    if unknown:
        print(f"make fuzz: no target {', '.join(unknown)}; FUZZ_TARGETS takes {', '.join(NAMES)}", file=sys.stderr)
        return 2
    try:
        minutes, seed = float(environ.get("FUZZ_MINUTES") or 30), int(environ.get("FUZZ_SEED") or secrets.randbits(32))
    except ValueError as error:
        print(f"make fuzz: FUZZ_MINUTES and FUZZ_SEED are numbers: {error}", file=sys.stderr)
        return 2
    print(f"fuzz: FUZZ_SEED={seed} FUZZ_MINUTES={minutes:g} FUZZ_TARGETS={','.join(targets)}", flush=True)
    session = Session(targets, minutes * 60, seed)
    session.run()
    for row in session.rows.values():
        for finding in row.findings.values():
            path = keep(minimised(finding)).relative_to(ROOT)
            print(f"\n{finding.target}: {finding.kind}: {finding.what}\n{finding.text.rstrip()}")
            print(f"  kept as {path}; again: make fuzz FUZZ_INPUT={path}")
    print(f"\n{table(session.rows)}")
    return int(any(row.findings for row in session.rows.values()))


def try_again(path: Path, target: str) -> int:
    """One input, alone; its folder names the target."""
    name = target or path.resolve().parent.name
    if name not in NAMES or not path.is_file():
        print(f"make fuzz: {path} is no file in a folder named for a target ({', '.join(NAMES)})", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="watershed-fuzz-") as folder:
        order = Order(name, "0", folder, 0, 1, MEMORY, only=str(path.resolve()))
        watched = watch(order)
    for finding in watched.findings:
        print(f"{finding.target}: {finding.kind}: {finding.what}\n{finding.text.rstrip()}")
    if not watched.findings:
        print(f"{path}: {'accepted' if watched.figures.accepted else 'refused with a message'}")
    return int(bool(watched.findings))


if __name__ == "__main__":
    sys.exit(main(dict(os.environ)))
