"""Drives a migration: sends each action where it belongs, journals it, and goes on where a dead run stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from watershed.cutover.actions import (
    Action,
    AskApproval,
    BeginStep,
    CallHook,
    Deed,
    EndRun,
    FinishStep,
    GiveRights,
    JsonObject,
    LiftProtection,
    LowerFence,
    PauseRun,
    RaiseFence,
    RecallDeeds,
    RecallSwitches,
    ReportMessage,
    RequestProof,
    RestoreProtection,
    Seal,
    TakeRights,
)
from watershed.cutover.errors import NothingToResume, NotSupported
from watershed.cutover.evidence.pack import EvidenceSubject, measure_producer_stop_ms, write_run_evidence
from watershed.cutover.journal.hash_chain import RUN_STEP, EntryKind, Journal, find_step_outcome
from watershed.cutover.migration_step_order import Step, name_undo_step
from watershed.cutover.observations import (
    ActionDone,
    ActionFailed,
    ApprovalAnswer,
    HookAnswer,
    Observation,
    ObservedApplication,
    ObservedFence,
    ObservedRights,
    ProofOutcome,
    RecalledDeeds,
    RecalledSwitches,
    RecordedStep,
    SealedEvidence,
)
from watershed.cutover.offsets import encode_offsets
from watershed.cutover.overdue_runs import LIMIT_KEY
from watershed.cutover.rollback.earlier_run import find_producer_switches
from watershed.cutover.run_claim import ClaimRequest, RunClaim, claim_run
from watershed.cutover.run_context import RunContext
from watershed.cutover.run_plan import RunPlan
from watershed.cutover.step_definitions import STEPS
from watershed.cutover.step_runner import RunResult, execute_steps
from watershed.topology.plan import Plan

_STOOD_STILL_S = 1.0  # between an entry and its deed lie microseconds


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Something to show. kind: begin, skipped, seen, deed, done, refused or ended. at_ms counts from the beginning."""

    at_ms: int
    run: str
    step: str
    kind: str
    text: str
    seen: JsonObject | None = None


class ActionHandler(Protocol):
    """`cutover.live.action_handler.LiveActionHandler`, or a fake one in tests."""

    def answer(self, action: Action) -> Observation:
        """Does or reads what the action says. A failure of a cluster is an answer too (`ActionFailed`)."""


Approve = Callable[[AskApproval], ApprovalAnswer]


def approve_all(ask: AskApproval) -> ApprovalAnswer:
    """`--approve auto`: recorded as such in journal and evidence."""
    return ApprovalAnswer(0, granted=True, by="automatic", note=f"for {ask.by}")


@dataclass(frozen=True, slots=True)
class RunPorts:
    """What a run acts through, and whom it asks and tells. prove: does a proof. approve: asks a person. clock, sleep:
    in seconds; only differences of the clock mean anything."""

    handler: ActionHandler
    journal: Journal
    prove: Callable[[RequestProof], ProofOutcome]
    approve: Approve = approve_all
    say: Callable[[RunEvent], None] = lambda _event: None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class RunDriver:
    """One run of `run_plan`. `cutover.run_opening.open_run` makes one for real clusters.

    evidence: directory of the pack; the default is `.watershed/evidence/TOPOLOGY/RUN`.
    """

    def __init__(
        self,
        plan: Plan,
        run_plan: RunPlan,
        ports: RunPorts,
        request: ClaimRequest,
        evidence: Path | Callable[[], Path] | None = None,
    ) -> None:
        self.plan, self.run_plan, self.ports = plan, run_plan, ports
        self.run_id = request.run
        self.is_undoing = False
        self._request, self._evidence = request, evidence
        self._began = ports.clock()
        self._claim: RunClaim | None = None
        self._step = RUN_STEP
        self._only: str | None = None
        self._until: str | None = None

    @property
    def journal(self) -> Journal:
        """The journal that this run is written to."""
        return self.ports.journal

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of the run plan, in the order in which they run."""
        return self.run_plan.steps

    def run(self, until_step: str | None = None) -> RunResult:
        """Run from where the journal stands to the end, or through `until_step` (result `paused`).

        Raises Locked, PlanChanged, NothingToResume, Superseded, BrokenChain and ClusterError.
        """
        if until_step is not None:
            self._known(until_step)
        self._only, self._until = None, until_step
        return self._drive()

    def run_step(self, name: str) -> RunResult:
        """Run one step (and, when it refuses, the whole rollback). Steps before it must be done; if it is done
        itself, nothing happens. The result is `paused` while later steps remain. Needs the same run_id every time."""
        self._known(name)
        self._only = self._until = name
        return self._drive()

    def abandon(self, result: RunResult) -> RunResult:
        """End the run whose rollback could not be finished, and free its lock. The journal names what stays undone."""
        assert self._claim is not None
        entries = self.journal.chain.run(self._claim.run)
        begun = {entry.step for entry in entries}
        undone = [step.name for step in reversed(self.steps) if STEPS[step.name].undo is not None]
        undos = [name_undo_step(name) for name in undone if name in begun]
        left = [name for name in undos if find_step_outcome(entries, name) is None]
        ended = RunResult(
            "abandoned", result.step, f"{result.reason}. Given up by force: that is left to be done by hand"
        )
        self._write(RUN_STEP, "outcome", {**asdict(ended), "not_undone": left})
        self._tell("ended", f"{ended.state}: {ended.reason}", asdict(ended))
        return ended

    def _known(self, name: str) -> None:
        if name not in {step.name for step in self.steps}:
            names = ", ".join(step.name for step in self.steps)
            raise NotSupported(f"there is no step {name}; the steps are {names}")

    def _drive(self) -> RunResult:
        first = self.steps[0].name
        request = replace(self._request, run=self.run_id)
        may_begin = self._only in (None, first) and not request.resume
        self._claim = claim_run(self.journal, self.plan, self.run_plan, request, begin=may_begin)
        self.run_id = self._claim.run
        if self._claim.ended is not None:
            return self._claim.ended
        going = self.run_plan
        context = RunContext(going.flow, going.wave, going.policy, earlier=going.earlier)
        migration = execute_steps(context, self.steps)
        action = next(migration)
        while True:
            answer = self._answer(action)
            if isinstance(action, FinishStep) and action.refused is None and action.step == self._until:
                if action.step != self.steps[-1].name:
                    migration.close()
                    return RunResult("paused", action.step)
            elif isinstance(action, BeginStep) and self._until == action.step and _done(answer):
                migration.close()
                return RunResult("paused", action.step)
            try:
                action = migration.send(answer)
            except StopIteration as end:
                return self._ended(end.value)

    def _ended(self, result: RunResult) -> RunResult:
        seen = asdict(result)
        if result.finished:
            self._write(RUN_STEP, "outcome", seen)
        else:
            self._write(self._step, "outcome", seen, deed=result.state)
        if result.state != "done":  # that one was sealed; of the others there is a pack as far as they came
            try:
                self._write_evidence(result.state)
            except OSError as error:
                self._tell("seen", _unwritten(error))
        text = f"{result.state}" + (f": {result.reason}" if result.reason else "")
        stopped = measure_producer_stop_ms(self.journal.chain.run(self.run_id or ""))
        if result.state == "done" and stopped is not None:
            text += f"; producers stood still for at most {stopped / 1000:.1f} s"
        self._tell("ended", text, seen)
        return result

    def _answer(self, action: Action) -> Observation:
        match action:
            case BeginStep():
                return self._begin(action)
            case FinishStep():
                self._write(action.step, "outcome", {"outcome": action.outcome, "refused": action.refused})
                shown = self.run_plan.find_text(action.step).done
                if action.refused is None:
                    self._tell("done", shown, action.outcome)
                else:
                    self._tell("refused", action.refused, action.outcome)
                return ActionDone(self._now())
            case ReportMessage():
                self._tell("seen", action.text, action.seen)
                return ActionDone(self._now())
            case RecallDeeds() | RecallSwitches():
                return self._recall(action)
            case PauseRun():
                self.ports.sleep(action.ms / 1000)
                return ActionDone(self._now())
            case RequestProof():
                return replace(self.ports.prove(action), at_ms=self._now())
            case AskApproval():
                return replace(self.ports.approve(action), at_ms=self._now())
            case Deed():
                return self._do(action)
            case _:
                return self.ports.handler.answer(action)

    def _recall(self, action: RecallDeeds | RecallSwitches) -> Observation:
        """What the journal holds, of this run and of others."""
        assert self._claim is not None
        if isinstance(action, RecallSwitches):
            return RecalledSwitches(self._now(), find_producer_switches(self.journal.chain, action.waves))
        return RecalledDeeds(self._now(), self._claim.begun(action.deed), self._claim.failed(action.deed))

    def _begin(self, action: BeginStep) -> Observation:
        assert self._claim is not None
        self._step, self.is_undoing = action.step, action.undo
        recorded = self._claim.outcome_of(action.step)
        if recorded is not None:
            outcome, refused = recorded
            self._tell("skipped", f"{self.run_plan.find_text(action.step).done} (in the journal)", outcome)
            return RecordedStep(self._now(), outcome, refused)
        if self._only is not None and not action.undo and action.step != self._only:
            raise NothingToResume(
                f"step {self._only} of run {self.run_id} has to wait: {action.step} before it is not done"
            )
        ago_ms = self._claim.measure_ms_since_begun(action.step)
        self._write(action.step, "intent", {"undo": action.undo, LIMIT_KEY: self._find_limit_ms(action.step)})
        self._tell("begin", self.run_plan.find_text(action.step).doing)
        return RecordedStep(self._now(), ago_ms=ago_ms)

    def _find_limit_ms(self, name: str) -> int | None:
        """How long the step, or the step that it undoes, may go without an entry in the journal; 0: no limit. None: it
        asks a person, who may take as long as they like."""
        step = next((each for each in self.steps if name in (each.name, name_undo_step(each.name))), None)
        if step is not None and step.actor == "person":
            return None
        if step is None or not step.bound_ms:
            return 0
        orders = self.run_plan.policy.application_ms.values() if step.actor == "application" else ()
        return max(step.bound_ms, *orders, 0)

    def _do(self, deed: Deed) -> Observation:
        name, what = type(deed).__name__, _deed_json(deed)
        self._write(self._step, "intent", what, deed=name)
        began = self.ports.clock()
        self._tell("deed", f"{name} {' '.join(str(v) for v in what.values() if isinstance(v, str))}".rstrip(), what)
        self._still_ours(began)
        seen = self._done_here(deed)
        why = describe_failed_deed(deed, seen)
        outcome = what if why is None else {**what, "failed": why}
        if isinstance(seen, ObservedApplication) and seen.by == "person" and seen.text:
            outcome = {**outcome, "said": seen.text}  # who confirmed: a run that is resumed asks nobody twice
        self._write(self._step, "outcome", outcome, deed=name)
        return seen

    def _still_ours(self, began: float) -> None:
        """Raises Superseded when the run was taken over since its last entry. Looked at only when this process stood
        still meanwhile: a terminal that is held (Ctrl-S) stops it just here, for as long as somebody likes."""
        if self.ports.clock() - began > _STOOD_STILL_S:
            self.journal.only_ours()

    def _done_here(self, deed: Deed) -> Observation:
        """Some deeds are the driver's own."""
        match deed:
            case Seal():
                return self._seal()
            case EndRun(run, state, reason):
                assert self._claim is not None
                self._claim.end_other(run, state, reason.format(run=self.run_id))
                return ActionDone(self._now())
            case _:
                return self.ports.handler.answer(deed)

    def _seal(self) -> Observation:
        assert self.run_id is not None
        try:
            path = self._write_evidence("done")
        except OSError as error:
            return ActionFailed(self._now(), _unwritten(error), transient=False)
        return SealedEvidence(self._now(), str(path), self.journal.chain.root)

    def _write_evidence(self, state: str) -> Path:
        """Raises OSError."""
        assert self.run_id is not None
        directory = self._evidence() if callable(self._evidence) else self._evidence
        directory = directory or Path(".watershed") / "evidence" / self.plan.topology / self.run_id
        return write_run_evidence(
            directory, EvidenceSubject(self.plan, self.run_plan, self.run_id), self.journal.chain, state
        )

    def _write(self, step: str, kind: EntryKind, observation: JsonObject, deed: str = "") -> None:
        assert self._claim is not None
        self._claim.write(step, kind, observation, deed)

    def _tell(self, kind: str, text: str, seen: JsonObject | None = None) -> None:
        at_ms = int((self.ports.clock() - self._began) * 1000)
        self.ports.say(RunEvent(at_ms, self.run_id or "", self._step, kind, text, seen))

    def _now(self) -> int:
        return int(self.ports.clock() * 1000)


def describe_failed_deed(deed: Deed, answer: Observation) -> str | None:
    """Why the deed did not do what it says, for its outcome in the journal (`failed`); None where it did.

    A later run reads there whether a fence still stands and whose rights are still given. So an answer that says no
    counts as a failure, exactly like a cluster that did not answer.
    """
    match deed, answer:
        case _, ActionFailed(error=error):
            return error
        case LowerFence(), ObservedFence(up=True):
            return answer.text or "the fence is still in force"
        case RaiseFence(), ObservedFence(up=False):
            return answer.text or "the fence is not in force"
        case CallHook(), HookAnswer(agreed=False):
            return answer.text or "the hook said no"
        case TakeRights(), ObservedRights() if answer.there:
            return f"rights that are still there: {len(answer.there)}"
        case GiveRights() | RestoreProtection(), ObservedRights() if answer.refused:
            return f"rights that were refused: {len(answer.refused)}"
        case LiftProtection(), ObservedRights() if answer.there:
            return f"denials that are still there: {len(answer.there)}"
    return None


def _unwritten(error: OSError) -> str:
    return f"the evidence cannot be written to {error.filename}: {error.strerror}"


def _done(answer: Observation) -> bool:
    return isinstance(answer, RecordedStep) and answer.outcome is not None and answer.refused is None


def _deed_json(deed: Deed) -> dict[str, Any]:
    fields = {name: getattr(deed, name) for name in deed.__dataclass_fields__}
    return {
        name: encode_offsets(value) if name == "offsets" else value
        for name, value in fields.items()
        if name not in ("texts", "together")
    }
