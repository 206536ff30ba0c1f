"""A Spark application that is warm when producers are fenced, and proves the tail at once (`spark.standby`).

While they are fenced nobody writes, and an application takes fifteen seconds until it reads. So one is started that
proves what came since the proof of the history: when consumers begin to move, where the fence follows at once, else
before the fence. Nothing is fenced before it stands by. It is dismissed when the tail is proven or the wave ends, and
ends by itself after STAY. Whatever happens to it, the tail is proven: if it dies, a new Spark application proves it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plugins.watershed.detached_process import DetachedProcess, ProcessStartFailed, start_detached
from plugins.watershed.operators.spark_application import build_spark_environment, list_attempts

if TYPE_CHECKING:
    from cutover.actions import RequestProof
    from cutover.driver import RunDriver
    from cutover.observations import ProofOutcome

STANDBY_STAY_S = (
    3600.0  # seconds from its proof on: the watch for stragglers, the drain and the hooks come before the tail
)
_BEGIN = 15.0  # seconds of sleep until it has begun the proof, or another application does
_LOOK = 0.05
STANDBY_SUMMARY_FILE, _LOG, _ORDERED = "summary.json", "verify.log", "ordered"


@dataclass(frozen=True, slots=True)
class StandbyProof:
    """The application of one wave, by the folder it runs in."""

    process: DetachedProcess

    @property
    def told(self) -> bool:
        """It has come to a verdict, or never will."""
        return self._summary.exists() or not self.process.alive()

    @property
    def ready(self) -> bool:
        """It has proven once, still runs, and accepts a proof."""
        return self.process.alive() and self._summary.exists()

    @property
    def begun(self) -> bool:
        """It was started, or somebody tried to, in this wave."""
        return self.process.folder.exists()

    @property
    def _summary(self) -> Path:
        return self.process.folder / STANDBY_SUMMARY_FILE

    def begin(self, arguments: list[str], topology: Path, log: Any) -> None:
        """Once a wave: one that has ended, or could not be started, is not started again."""
        folder = self.process.folder
        if self.begun:
            return
        folder.mkdir(parents=True, exist_ok=True)
        try:
            start_detached(
                folder,
                "spark.verify",
                fill_placeholders(arguments, topology, folder),
                build_spark_environment(),
                orders=True,
            )
        except ProcessStartFailed as failure:
            log.warning("the tail will be proven by an application of its own: %s", failure)
        else:
            log.info("producers write on until the application in %s (pid %s) is warm", folder, self.process.pid())

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


def is_standby_attempt(attempt: DetachedProcess) -> bool:
    """An attempt that is a standby's, not a process of its own."""
    return (attempt.folder / _ORDERED).exists()


def fill_placeholders(arguments: list[str], topology: Path, folder: Path) -> list[str]:
    """The arguments with `{topology}` and `{out}` replaced; empty ones are left out."""
    return [word.replace("{topology}", str(topology)).replace("{out}", str(folder)) for word in arguments if word]


def plan_standby_proof(migration: RunDriver, run: str, upto: str = "fence_producers") -> RequestProof | None:
    """What the application proves that will stand by, when all steps before `upto` are done and the fence is not begun;
    else None."""
    from cutover.actions import RequestProof
    from cutover.journal.hash_chain import find_step_outcome
    from cutover.step_outcomes import StepOutcomes

    entries = migration.journal.refresh().run(run)
    names = [step.name for step in migration.steps]
    if "tail_proof" not in names or any(entry.step == "fence_producers" for entry in entries):
        return None
    done = {name: find_step_outcome(entries, name) for name in names[: names.index(upto)]}
    seen = {name: found[0] for name, found in done.items() if found is not None and found[1] is None}
    if seen.keys() != done.keys() or "history_proof" not in seen:
        return None
    history = seen["history_proof"]
    topics = sorted(StepOutcomes(seen).partitions)
    return RequestProof(
        migration.run_plan.flow.id, tuple(topics), history["level"], final=False, since=history.get("summary")
    )


def read_standby_verdict(folder: Path, plan_hash: str) -> ProofOutcome | None:
    """The verdict that the standby application reached; None without one."""
    from cutover.evidence.proof_summary import read_proof_summary

    seen = read_proof_summary(folder / "1" / STANDBY_SUMMARY_FILE, plan_hash)
    return None if seen.verdict == "error" else seen
