"""A Spark application that is warm when producers are fenced, and proves the tail at once (`spark.standby`).

While they are fenced nobody writes, and an application takes fifteen seconds until it reads. So one is started that
proves what came since the proof of the history: when consumers begin to move, where the fence follows at once, else
before the fence. Nothing is fenced before it stands by. It is dismissed when the tail is proven or the wave ends, and
ends by itself after STAY. Whatever happens to it, the tail is proven: if it dies, a new Spark application proves it.

On a local master the application that has proven the history stays for some minutes (WATERSHED_PROOF_STAY). If the
approval comes meanwhile, it does that proof, and no session is started (decision 0097).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from watershed.clusters.private_files import replace_file
from watershed.plugins.detached_process import DetachedProcess, ProcessStartFailed, start_detached
from watershed.plugins.operators.spark_application import build_spark_environment, has_proven, list_attempts
from watershed.spark.session import is_local_master, read_spark_master
from watershed.topology.quantities import parse_duration
from watershed.topology.text_escaping import escape_control_lines

if TYPE_CHECKING:
    from watershed.cutover.actions import RequestProof
    from watershed.cutover.driver import RunDriver
    from watershed.cutover.observations import ProofOutcome

STANDBY_STAY_S = (
    3600.0  # seconds from its proof on: the watch for stragglers, the drain and the hooks come before the tail
)
HISTORY_STAY_VARIABLE = "WATERSHED_PROOF_STAY"  # for how long from the proof of the history on; `0`: not at all
_HISTORY_STAY = "10m"  # most approvals come at once, or after hours
_BEGIN = 15.0  # seconds of sleep until it has begun the proof, or another application does
_LOOK = 0.05
STANDBY_SUMMARY_FILE, _LOG, _ORDERED = "summary.json", "verify.log", "ordered"
_APPLICATION = "application"  # names the attempt at the history's proof that stands by in place of one of its own


@dataclass(frozen=True, slots=True)
class StandbyProof:
    """The application of one wave, by the folder it runs in, and where the history was proven."""

    own: DetachedProcess
    history: Path | None = None

    @property
    def process(self) -> DetachedProcess:
        """The application: the one that has proven the history, if it has taken the order, else its own."""
        if self.history is not None:
            with contextlib.suppress(OSError):
                return DetachedProcess(self.history / (self.own.folder / _APPLICATION).read_text(encoding="utf-8"))
        return self.own

    @property
    def told(self) -> bool:
        """It has come to a verdict, or never will."""
        return self.summary.exists() or not self.process.alive()

    @property
    def ready(self) -> bool:
        """It has proven once, still runs, and accepts a proof."""
        return self.process.alive() and self.summary.exists()

    @property
    def begun(self) -> bool:
        """It was started, or somebody tried to, in this wave. One that took the order and ended before it answered does
        not count: its stay was over, or it was killed."""
        return self.own.folder.exists() and not self._is_order_lost()

    def _is_order_lost(self) -> bool:
        was_ordered = (self.own.folder / _APPLICATION).exists()
        return was_ordered and not self.process.alive() and not self.summary.exists()

    @property
    def summary(self) -> Path:
        """What it has proven before it stands by."""
        return self.own.folder / STANDBY_SUMMARY_FILE

    def dismiss(self) -> None:
        """Nothing more is proven in this wave."""
        self.process.dismiss()
        if (staying := self._find_staying()) is not None:
            staying.dismiss()

    def begin(self, arguments: list[str], topology: Path, log: Any) -> None:
        """Once a wave: one that has ended, or could not be started, is not started again. The order that was lost is
        given to one of its own."""
        folder = self.own.folder
        if self.begun:
            return
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _APPLICATION).unlink(missing_ok=True)
        told = fill_placeholders(arguments, topology, folder)
        staying = self._find_staying()
        if staying is not None:
            if staying.order(json.dumps(told)):
                replace_file(folder / _APPLICATION, staying.folder.name.encode())
                log.info("producers write on until the application in %s is up to date", staying.folder)
                return
            staying.dismiss()  # else it would hold its memory until its stay is over
        try:
            start_detached(folder, "watershed.spark.verify", told, build_spark_environment(), orders=True)
        except ProcessStartFailed as failure:
            log.warning("the tail will be proven by an application of its own: %s", failure)
        else:
            log.info("producers write on until the application in %s (pid %s) is warm", folder, self.process.pid())

    def _find_staying(self) -> DetachedProcess | None:
        """The application that has proven the history and stays."""
        tried = list_attempts(self.history) if self.history is not None else []
        return tried[-1] if tried and has_proven_and_stays(tried[-1]) else None

    def prove(self, folder: Path, arguments: list[str], topology: Path, sleep: Callable[[float], None]) -> bool:
        """Asks the application for a proof into `folder/1`; returns whether its summary is there. A task that is tried
        again waits for the proof that its earlier try asked for. Raises what `sleep` raises."""
        place = folder / "1"
        if not (place / _ORDERED).exists():
            if list_attempts(folder) or not self.ready:
                return False
            place.mkdir(parents=True)
            (place / _ORDERED).touch()
            if not self.process.order(json.dumps(fill_placeholders(arguments, topology, place))):
                self.process.dismiss()
                return False
        waited = 0.0
        while not (place / STANDBY_SUMMARY_FILE).exists():
            if not self.process.alive() or (waited > _BEGIN and not (place / _LOG).exists()):
                self.process.dismiss()
                return False
            sleep(_LOOK)
            waited += _LOOK
        return True


def read_history_stay(environ: Mapping[str, str]) -> float:
    """For how many seconds the application that has proven the history stays; 0: it does not. On a cluster it never
    does: it would keep cores from others. Raises AirflowFailException for a value that is no duration."""
    text = environ.get(HISTORY_STAY_VARIABLE) or _HISTORY_STAY
    try:
        seconds = 0.0 if text == "0" else parse_duration(text) / 1000
    except ValueError as problem:
        shown = escape_control_lines(f"{HISTORY_STAY_VARIABLE}={text}: {problem}; 0 means that no application stays")
        raise AirflowFailException(shown) from None
    return seconds if is_local_master(read_spark_master(environ)) else 0.0


def has_proven_and_stays(attempt: DetachedProcess) -> bool:
    """Whether it takes orders, and its first proof has proven. After another verdict it ends: its session takes up to
    15 s for that, and its exit code says whether another try may help."""
    takes_orders = (attempt.folder / "orders").exists()
    return takes_orders and has_proven(attempt.folder / STANDBY_SUMMARY_FILE) and attempt.alive()


def is_standby_attempt(attempt: DetachedProcess) -> bool:
    """An attempt that is a standby's, not a process of its own."""
    return (attempt.folder / _ORDERED).exists()


def is_proving(attempt: DetachedProcess) -> bool:
    """Whether a proof goes on in the attempt's folder: by its own program, or by the application that stands by."""
    if attempt.alive():
        return True
    if not is_standby_attempt(attempt) or (attempt.folder / STANDBY_SUMMARY_FILE).exists():
        return False
    run, task = attempt.folder.parent.parent, attempt.folder.parent.name
    wave = task.rpartition(".")[0]
    return StandbyProof(DetachedProcess(run / f"{wave}.standby"), run / f"{wave}.history_proof").process.alive()


def locate_proof_log(attempt: DetachedProcess) -> Path:
    """What the proof in the attempt's folder has printed so far."""
    return attempt.folder / _LOG if is_standby_attempt(attempt) else attempt.log


def fill_placeholders(arguments: list[str], topology: Path, folder: Path) -> list[str]:
    """The arguments with `{topology}` and `{out}` replaced; empty ones are left out."""
    return [word.replace("{topology}", str(topology)).replace("{out}", str(folder)) for word in arguments if word]


def plan_standby_proof(migration: RunDriver, run: str, upto: str = "fence_producers") -> RequestProof | None:
    """What the application proves that will stand by, when all steps before `upto` are done and the fence is not begun;
    else None."""
    from watershed.cutover.actions import RequestProof
    from watershed.cutover.gates import list_history_topics
    from watershed.cutover.journal.hash_chain import find_step_outcome
    from watershed.cutover.step_outcomes import StepOutcomes

    entries = migration.journal.refresh().run(run)
    names = [step.name for step in migration.steps]
    if "tail_proof" not in names or any(entry.step == "fence_producers" for entry in entries):
        return None
    done = {name: find_step_outcome(entries, name) for name in names[: names.index(upto)]}
    seen = {name: found[0] for name, found in done.items() if found is not None and found[1] is None}
    if seen.keys() != done.keys() or "history_proof" not in seen:
        return None
    history = seen["history_proof"]
    topics = list_history_topics(StepOutcomes(seen).partitions)
    return RequestProof(migration.run_plan.flow.id, topics, history["level"], final=False, since=history.get("summary"))


def read_standby_verdict(folder: Path, plan_hash: str) -> ProofOutcome | None:
    """The verdict that the standby application reached; None without one."""
    from watershed.cutover.evidence.proof_summary import read_proof_summary

    seen = read_proof_summary(folder / "1" / STANDBY_SUMMARY_FILE, plan_hash)
    return None if seen.verdict == "error" else seen
