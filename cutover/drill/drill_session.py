"""What both ways of one rehearsal share: its journal, its applications, its proofs; and its end, whatever happens."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from watershed.cutover.actions import RequestProof
from watershed.cutover.drill.drill_abandonment import end_drills
from watershed.cutover.drill.drill_action_handler import DrillActionHandler
from watershed.cutover.drill.drill_applications import DrillApplications
from watershed.cutover.drill.drill_preflight import Drill
from watershed.cutover.drill.drill_topology import BACK_RUN_SUFFIX
from watershed.cutover.drill.record_tally import RecordTally
from watershed.cutover.driver import RunDriver, RunEvent, RunPorts
from watershed.cutover.errors import NothingToResume, Superseded
from watershed.cutover.journal.hash_chain import RUN_STEP
from watershed.cutover.journal.topology_journal import open_journal
from watershed.cutover.observations import ProofOutcome
from watershed.cutover.run_claim import ClaimRequest
from watershed.cutover.run_plan import RunPlan

_ProveIn = Callable[[Path, RequestProof], ProofOutcome]  # into a folder


class DrillSession:
    """`opened` and `end` are for `cutover.drill.drill_sequence.run_drill`. On the way out producers and consumers end;
    and where it is interrupted, or fails, the rehearsal is ended as `topology migrate --drill --abandon` would.

    folder: of the evidence; that of the way back is in `back` below it.
    """

    def __init__(
        self, drill: Drill, folder: Path, prove: _ProveIn, say: Callable[[RunEvent], None], actor: str
    ) -> None:
        self._drill, self._folder, self._prove, self._say, self._actor = drill, folder, prove, say, actor
        flow, wave = drill.flow, drill.moved
        names = {flow.source: {topic: copy for copy, topic in drill.copies.items()}}
        names[flow.target] = {topic: flow.target_topic(copy) for copy, topic in drill.copies.items()}
        tally = RecordTally(drill.run, time.monotonic)
        self.applications = DrillApplications(wave.consumers, wave.producers, names, drill.settings, tally)
        self.journal = open_journal(drill.plan, drill.settings[flow.target], secrets.token_hex(8))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.applications.end()
        begun = self.journal.chain.run(self._drill.run)
        if error is None or not begun or isinstance(error, Superseded):  # else somebody else ends it
            return
        try:
            self.end(str(error) or "interrupted by its operator")
        except Exception as why:  # noqa: BLE001  what ended it is what is told first
            self._report(f"the rehearsal could not be ended ({why}): `topology migrate FILE --drill --abandon`")

    def opened(self, run_plan: RunPlan, run: str) -> RunDriver:
        """A driver for one run of the drill. Its evidence goes to the drill's folder; that of the way back to
        `back/`."""
        folder = self._folder / "back" if run.endswith(BACK_RUN_SUFFIX) else self._folder
        ports = RunPorts(
            DrillActionHandler(self._drill, run_plan.flow, self.applications, time.monotonic),
            self.journal,
            prove=lambda wanted: self._prove(folder / ("tail" if wanted.final else "history"), wanted),
            say=self._say,
        )
        return RunDriver(self._drill.drill, run_plan, ports, ClaimRequest(self._actor, run), folder)

    def end(self, why: str) -> None:
        """Raises ClusterError and CutoverError."""
        self.applications.end()
        runs = (self._drill.run, self._drill.run + BACK_RUN_SUFFIX)
        with contextlib.suppress(NothingToResume):  # it has ended
            end_drills(self.journal, self._drill.settings, self._actor, why, self._report, only=runs)

    def _report(self, text: str) -> None:
        self._say(RunEvent(0, self._drill.run, RUN_STEP, "seen", text))
