"""Running the Spark proof as a process of its own, for a run that waits for its verdict."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from watershed.cli.spark_waits import SparkWaitReader

if TYPE_CHECKING:
    from watershed.cutover.actions import RequestProof
    from watershed.cutover.driver import RunEvent
    from watershed.cutover.observations import ProofOutcome
    from watershed.cutover.run_plan import RunPlan

_LIMIT = 3 * 3600.0  # seconds; a proof that takes longer has failed
_STAY = 12 * 3600.0  # seconds that an application waits for the proof of the tail: the soak may take a working day
_BEGIN = 15.0  # seconds in which a waiting application must begin a proof that it receives; else another replaces it
_BEGIN_COLD = 45.0  # seconds to wait, with producers fenced, for an application that was started during the run
_READY = 600.0  # seconds to wait for that application before the fence, while producers still write
_GRACE = 10.0  # seconds that an application has to end, by itself and after each signal
_LOOK = 0.02  # seconds between two checks for a file
_SHOWN = 0.5  # seconds between two looks at the application's log
_LOG, _SUMMARY = "verify.log", "summary.json"


_Say = Callable[["RunEvent"], None]


@dataclass(slots=True)
class ProofProcess:
    """The proofs of one run. The application that has proven the history stays (`spark.standby`) and proves the tail,
    too, so that this proof begins at once. If it has died, another replaces it. A run that is resumed after the proof
    of the history starts such an application early (`wrap_with_warm_up`)."""

    topology: Path
    plan_hash: str
    _process: subprocess.Popen[bytes] | None = field(init=False, default=None)
    _stays: bool = field(init=False, default=False)
    _awaited: Path | None = field(init=False, default=None)  # the application accepts a proof once this summary exists

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._dismiss(at_once=kind is not None)

    def prove(self, folder: Path, wanted: RequestProof) -> ProofOutcome:
        """The verdict; the evidence is in `folder`, with the proof's `verify.log`."""
        arguments = self._arguments(folder, wanted)
        self._make_ready(_BEGIN_COLD)
        return self._by_order(folder, arguments) or self._by_new(folder, arguments, stays=not wanted.final)

    def wrap_with_warm_up(self, say: _Say, run_plan: RunPlan, folder: Callable[[], Path]) -> _Say:
        """`say` for a resumed run. It also starts an application at the first step after the proof of the history. The
        application proves what came since then: that warms it up. Then it waits for the proof of the tail. The fence
        waits until the application is ready."""
        from watershed.cutover.actions import RequestProof
        from watershed.cutover.gates import list_history_topics
        from watershed.cutover.step_outcomes import StepOutcomes

        names = [step.name for step in run_plan.steps]
        before = names[: names.index("tail_proof")] if "tail_proof" in names else []
        known: dict[str, dict[str, Any]] = {}

        def heard(event: RunEvent) -> None:
            say(event)
            if event.kind == "skipped" and event.seen is not None:
                known[event.step] = event.seen
            if event.kind != "begin" or event.step not in before or "history_proof" not in known:
                return
            if self._process is None:
                history = known["history_proof"]
                topics = list_history_topics(StepOutcomes(known).partitions)
                again = RequestProof(run_plan.flow.id, topics, history["level"], False, history.get("summary"))
                place = folder() / "again"
                self._begin(place, self._arguments(place, again), stays=True)
                self._awaited = place / _SUMMARY
            if event.step == "fence_producers" and self._awaited is not None and not self._awaited.exists():
                text = "producers write on until the application that will prove the tail is ready"
                say(replace(event, kind="seen", text=text, seen=None))
                self._make_ready(_READY)

        return heard

    def _arguments(self, folder: Path, wanted: RequestProof) -> list[str]:
        arguments = ["--topology", str(self.topology), "--out", str(folder), "--flow", wanted.flow]
        arguments += ["--topics", ",".join(wanted.topics), "--level", wanted.level]
        arguments += ["--final"] if wanted.final else []
        return arguments + (["--since", wanted.since] if wanted.since else [])

    def _make_ready(self, seconds: float) -> None:
        """Waits until the application that was started during the run accepts a proof, or has ended."""
        if self._awaited is not None and self._process is not None:
            _wait(self._process, self._awaited, seconds)
        self._awaited = None

    def _by_order(self, folder: Path, arguments: list[str]) -> ProofOutcome | None:
        """The verdict of the waiting application; None when there is none, or it reached no verdict."""
        process = self._process
        if process is None or process.stdin is None or not self._stays:
            return None
        summary = _made_room(folder)
        with contextlib.suppress(OSError):  # it has ended
            process.stdin.write(json.dumps(arguments).encode() + b"\n")
            process.stdin.flush()
            if not isinstance(_wait(process, folder / _LOG, _BEGIN), str):
                _wait(process, summary)
        seen = self._read(summary)
        if seen is None or seen.verdict == "error":
            self._dismiss()  # before a new application writes into the same folder
            return None
        return seen

    def _by_new(self, folder: Path, arguments: list[str], *, stays: bool) -> ProofOutcome:
        from watershed.cutover.evidence.proof_summary import build_failed_proof

        process = self._begin(folder, arguments, stays=stays)
        ended = _wait(process, folder / _SUMMARY)
        return self._read(folder / _SUMMARY) or build_failed_proof(
            f"the proof ended with {ended}: {_last_line(folder / _LOG)}"
        )

    def _begin(self, folder: Path, arguments: list[str], *, stays: bool) -> subprocess.Popen[bytes]:
        self._dismiss()
        _made_room(folder)
        self._stays = stays
        command = [sys.executable, "-m", "watershed.spark.verify", *arguments]
        command += ["--stay", str(_STAY)] if self._stays else []
        with (folder / _LOG).open("wb") as out:
            # It has its own process group, because Spark also starts a Java process: `_dismiss` ends the whole group.
            self._process = subprocess.Popen(
                command, stdout=out, stderr=out, stdin=subprocess.PIPE, start_new_session=True
            )
        return self._process

    def _read(self, summary: Path) -> ProofOutcome | None:
        from watershed.cutover.evidence.proof_summary import read_proof_summary

        return read_proof_summary(summary, self.plan_hash) if summary.exists() else None

    def _dismiss(self, *, at_once: bool = False) -> None:
        """Ends the application. One without --stay ends by itself after its verdict."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        if not self._stays and not at_once:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE)
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.poll() is not None:
                return
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE)


def _made_room(folder: Path) -> Path:
    """The path of the summary, with an older summary and log removed: they must not count for the new proof."""
    folder.mkdir(parents=True, exist_ok=True)
    summary = folder / _SUMMARY
    for old in (summary, folder / _LOG):
        old.unlink(missing_ok=True)
    return summary


def _wait(process: subprocess.Popen[bytes], file: Path, seconds: float = _LIMIT) -> str | int | None:
    """Waits for the file, and shows why Spark does not begin. Returns the exit code of a process that ended first, or
    text when `seconds` have passed."""
    limit = time.monotonic() + seconds
    waits, shown = SparkWaitReader(file.with_name(_LOG)), 0.0
    while True:
        code = process.poll()
        if code is not None or file.exists():
            return code
        if time.monotonic() - shown > _SHOWN:
            waits.show_new()
            shown = time.monotonic()
        if time.monotonic() > limit:
            return f"no {file.name} after {seconds / 3600:.3g} h"
        time.sleep(_LOOK)


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return f"{lines[-1].strip()} (all of it in {log})" if lines else f"nothing in {log}"
