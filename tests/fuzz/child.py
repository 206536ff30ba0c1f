"""The child of one target: tries inputs until its time is over, and writes down each before it tries it.

    python -m tests.fuzz.child ORDER.json

Anything may happen to it; the parent (`tests.fuzz.watching`) says what it was.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.fuzz.board import Board, Figures
from tests.fuzz.mutation import mutated
from tests.fuzz.target import ROOT, OracleViolated, Target, load_target

MOST_IN_POOL = 4000
_TO_TELL = 64 << 20  # memory to say in that there was none
_OURS = (f"{ROOT / 'watershed'}/", f"{ROOT / 'tests'}/")
_NUMBER = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True)
class Order:
    """What a child does. folder: what it finds (`*.json`), the board, the pool. Ends after `seconds`, or `most` inputs.
    only: one input, from this file, and nothing else; what is found is then made smaller for `seconds`. Or a folder:
    each `*.bin` in it once, before all others, and counted with them."""

    target: str
    seed: str
    folder: str
    seconds: float
    most: int
    bytes: int
    only: str = ""


def main(path: str) -> None:
    order = Order(**json.loads(Path(path).read_text()))
    folder, target = Path(order.folder), load_target(order.target)
    board = Board(folder / "board")
    only = Path(order.only) if order.only else None
    if only is None or only.is_dir():
        target.attempt(target.seeds[0])  # what it imports lazily is no memory of an input
    base = _resident()
    spaces = _address_space() + order.bytes
    resource.setrlimit(resource.RLIMIT_AS, (spaces, spaces + _TO_TELL))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    trial = Trial(target, board, folder, base)
    if only is not None and not only.is_dir():
        trial.run(data := only.read_bytes())
        trial.make_smaller(data, order.seconds)
        return
    for path in sorted(only.glob("*.bin")) if only is not None else ():
        trial.run(path.read_bytes())
    trial.figures.accepted_kept = trial.figures.accepted
    random, ends = Random(order.seed), time.monotonic() + order.seconds
    pool = [*target.seeds, *(each.read_bytes() for each in sorted((folder / "pool").glob("*")))]
    fresh = 0
    while trial.figures.inputs < order.most and time.monotonic() < ends:
        # every seed as it is, once a run; then changes, of which every third is of what was new last
        number = trial.figures.inputs
        if number < len(target.seeds) and order.seed.endswith("/0"):
            data = target.seeds[number]
        else:
            data = mutated(target, pool[-100:] if fresh and random.random() < 0.3 else pool, random)
        if trial.run(data) and len(pool) < MOST_IN_POOL:
            fresh += 1
            pool.append(data)
            (folder / "pool" / f"{len(pool):06}-{_short(data)}").write_bytes(data)


class Trial:
    def __init__(self, target: Target, board: Board, folder: Path, base: int) -> None:
        self.figures = Figures()
        self._target, self._board, self._folder, self._base = target, board, folder, base
        self._seen: set[object] = set()

    def run(self, data: bytes) -> bool:
        """Whether something came of it that has not come of another before."""
        figures = self.figures
        figures.inputs += 1
        figures.length = len(data)
        self._board.write_input(data)
        figures.began, figures.began_cpu, figures.busy = time.monotonic(), time.process_time(), True
        self._board.write(figures)
        came = self._tried(data)
        figures.longest = max(figures.longest, time.process_time() - figures.began_cpu)
        figures.peak = max(figures.peak, _resident() - self._base)
        figures.busy = False
        self._board.write(figures)
        new = came not in self._seen
        self._seen.add(came)
        return new

    def make_smaller(self, data: bytes, seconds: float) -> None:
        """Leave out ever smaller pieces, as long as what was found comes of the rest."""
        found, ends = list((self._folder / "found").glob("*.bin")), time.monotonic() + seconds
        what, size = self._tried(data) if found else None, len(data) // 2
        while found and size and time.monotonic() < ends:
            at = 0
            while at < len(data) and time.monotonic() < ends:
                shorter = data[:at] + data[at + size :]
                self._board.write_input(shorter)
                if shorter and self._tried(shorter) == what:
                    data = shorter
                    found[0].write_bytes(data)
                else:
                    at += size
            size //= 2

    def _tried(self, data: bytes) -> object:
        try:
            taken = self._target.attempt(data)
        except self._target.refusals as error:
            self.figures.refused += 1
            if _is_of_memory(error):
                return self._found("memory", error, data)
            return self._found("no message", error, data) if not str(error).strip() else _way(error)
        except MemoryError as error:
            return self._found("memory", error, data)
        except OracleViolated as error:
            return self._found("oracle", error, data)
        except BaseException as error:  # noqa: BLE001 (this is what is looked for)
            return self._found("traceback", error, data)
        self.figures.accepted += 1
        return taken

    def _found(self, kind: str, error: BaseException, data: bytes) -> object:
        if kind == "memory":  # or there is none to say so; the next inputs have a little more
            hard = resource.getrlimit(resource.RLIMIT_AS)[1]
            resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
        place = f"{kind} {type(error).__name__} at {_innermost(error)}"
        if place not in self._seen:  # the first of its kind is enough; it is counted by the name of its file
            name = hashlib.sha256(place.encode()).hexdigest()[:12]
            report = self._folder / "found" / f"{name}.json"
            if not report.exists():
                text = "".join(traceback.format_exception(error, limit=-12))[-4000:]
                report.with_suffix(".bin").write_bytes(data)
                report.write_text(json.dumps({"kind": kind, "what": place, "text": text}))
        return place


def _way(error: BaseException) -> object:
    """Which lines refused it, and in which words but for names and numbers."""
    lines, trace = [], error.__traceback__
    while trace is not None:
        lines.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    return type(error).__name__, tuple(lines[-6:]), _NUMBER.sub("0", str(error))[:24]


def _innermost(error: BaseException) -> str:
    """The last place of ours (a library that we call may raise anywhere in it)."""
    frames = traceback.extract_tb(error.__traceback__)[-60:]
    ours = [each for each in frames if each.filename.startswith(_OURS) and "/tests/fuzz/" not in each.filename]
    last = (ours or frames)[-1]
    return f"{Path(last.filename).name}:{last.lineno}"


def _is_of_memory(error: BaseException | None) -> bool:
    """Whether it was made of a MemoryError that somebody caught."""
    for _ in range(20):
        if error is None:
            return False
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def _short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


if __name__ == "__main__":
    main(sys.argv[1])
