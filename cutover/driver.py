"""Drives a migration: sends each action where it belongs, journals it, and goes on where a dead run stopped."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from clusters.settings import ConnectionSettings
from cutover.actions import Action, AskApproval, Begin, Deed, EndRun, Finish, Json, Pause, Prove, Recall, Say, Seal
from cutover.course import Course, migrate_course
from cutover.errors import NothingToResume, NotSupported
from cutover.evidence.pack import Identity, stopped_ms, write_evidence
from cutover.ground import Ground
from cutover.hooks.calling import Hooks
from cutover.journal.chain import RUN, Journal, Kind, outcome_of
from cutover.journal.opening import open_journal
from cutover.live.applications import Applications, Confirm
from cutover.live.world import LiveWorld
from cutover.observations import ApprovalSeen, Failed, Noted, Observation, ProofSeen, Recalled, Recorded, Sealed
from cutover.offsets import to_json
from cutover.policy import Policy
from cutover.procedure import UNDOS, Result, proceed
from cutover.runs import Claim, claim
from cutover.steps import Step, undo_of
from topology.plan import Migration as PlanMigration
from topology.plan import Plan

_STOOD_STILL_S = 1.0  # between an entry and its deed lie microseconds


@dataclass(frozen=True, slots=True)
class Event:
    """Something to show. kind: begin, skipped, seen, deed, done, refused or ended. at_ms counts from the beginning."""

    at_ms: int
    run: str
    step: str
    kind: str
    text: str
    seen: Json | None = None


class World(Protocol):
    """`cutover.live.world.LiveWorld`, or a fake one in tests."""

    def answer(self, action: Action) -> Observation: ...


_Prover = Callable[[Prove], ProofSeen]
Approve = Callable[[AskApproval], ApprovalSeen]


def approve_all(ask: AskApproval) -> ApprovalSeen:
    """`--approve auto`: recorded as such in journal and evidence."""
    return ApprovalSeen(0, granted=True, by="automatic", note=f"for {ask.by}")


class Migration:
    """One run: of a wave's migration, or of another `course`. `settings` by cluster alias; `journal` and `world`
    default to the real ones.

    run_id: names the run, and continues the unfinished run of that name (an Airflow DAG run id); None makes one.
    resume: continue the unfinished run, whatever its name. abandon: it is only to be taken back (`giving_up`), for
    which a file that was changed since will do when it moves the same. evidence: directory of the pack.
    Raises NotSupported for what cannot be migrated yet, SecretMissing without the journal's key.
    """

    def __init__(
        self,
        plan: Plan,
        wave: str | None = None,
        settings: Mapping[str, ConnectionSettings] | None = None,
        *,
        prove: _Prover,
        applications: Applications | None = None,
        approve: Approve = approve_all,
        say: Callable[[Event], None] = lambda _event: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        journal: Journal | None = None,
        world: World | None = None,
        policy: Policy | None = None,
        course: Course | None = None,
        run_id: str | None = None,
        actor: str = "",
        resume: bool = False,
        abandon: bool = False,
        evidence: Path | Callable[[], Path] | None = None,
    ) -> None:
        self.course = course or migrate_course(plan, wave, policy)
        self.plan, self.flow, self.wave = plan, self.course.flow, self.course.wave
        self.policy = self.course.policy
        self.actor = actor or f"{os.environ.get('USER', 'someone')} (pid {os.getpid()})"
        self.run_id = run_id
        self._resume, self._abandon = resume, abandon
        self._prove, self._approve, self._say = prove, approve, say
        self._clock, self._sleep = clock, sleep
        self._began = clock()
        self._evidence = evidence
        if world is None:
            assert settings is not None, "without a world, the connection settings are needed"
            assert plan.migration is not None
            applications = applications or applications_of(plan.migration, confirm=None)
            hooks = Hooks(plan.migration.hooks, plan.topology, self.wave.name, lambda: self.run_id or "", clock, sleep)
            world = LiveWorld(plan, self.flow, settings, applications, clock, hooks)
        if journal is None:
            assert settings is not None, "without a journal, the connection settings are needed"
            journal = open_journal(plan, settings[self.course.journal], secrets.token_hex(8))
        self.world, self.journal = world, journal
        self._claim: Claim | None = None
        self._step = RUN
        self._only: str | None = None
        self._until: str | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.course.steps

    def run(self, until_step: str | None = None) -> Result:
        """Run from where the journal stands to the end, or through `until_step` (result `paused`).

        Raises Locked, PlanChanged, NothingToResume, Superseded, BrokenChain and ClusterError.
        """
        if until_step is not None:
            self._known(until_step)
        self._only, self._until = None, until_step
        return self._drive()

    def run_step(self, name: str) -> Result:
        """Run one step (and, when it refuses, the whole rollback). Steps before it must be done; if it is done
        itself, nothing happens. The result is `paused` while later steps remain. Needs the same run_id every time."""
        self._known(name)
        self._only = self._until = name
        return self._drive()

    def abandon(self, result: Result) -> Result:
        """End the run whose rollback could not be finished, and free its lock. The journal names what stays undone."""
        assert self._claim is not None
        entries = self.journal.chain.run(self._claim.run)
        begun = {entry.step for entry in entries}
        undos = [undo_of(step.name) for step in reversed(self.steps) if step.name in UNDOS and step.name in begun]
        left = [name for name in undos if outcome_of(entries, name) is None]
        ended = Result("abandoned", result.step, f"{result.reason}. Given up by force: that is left to be done by hand")
        self._write(RUN, "outcome", {**asdict(ended), "not_undone": left})
        self._tell("ended", f"{ended.state}: {ended.reason}", asdict(ended))
        return ended

    def _known(self, name: str) -> None:
        if name not in {step.name for step in self.steps}:
            names = ", ".join(step.name for step in self.steps)
            raise NotSupported(f"there is no step {name}; the steps are {names}")

    def _drive(self) -> Result:
        first = self.steps[0].name
        may_begin = self._only in (None, first) and not self._resume
        self._claim = claim(
            self.journal,
            self.plan,
            self.course,
            self.actor,
            self.run_id,
            resume=self._resume,
            begin=may_begin,
            abandon=self._abandon,
        )
        self.run_id = self._claim.run
        if self._claim.ended is not None:
            return self._claim.ended
        ground = Ground(self.flow, self.wave, self.policy, earlier=self.course.earlier)
        migration = proceed(ground, self.steps)
        action = next(migration)
        while True:
            answer = self._answer(action)
            if isinstance(action, Finish) and action.refused is None and action.step == self._until:
                if action.step != self.steps[-1].name:
                    migration.close()
                    return Result("paused", action.step)
            elif isinstance(action, Begin) and self._until == action.step and _done(answer):
                migration.close()
                return Result("paused", action.step)
            try:
                action = migration.send(answer)
            except StopIteration as end:
                return self._ended(end.value)

    def _ended(self, result: Result) -> Result:
        seen = asdict(result)
        if result.finished:
            self._write(RUN, "outcome", seen)
        else:
            self._write(self._step, "outcome", seen, deed=result.state)
        if result.state != "done":  # that one was sealed; of the others there is a pack as far as they came
            try:
                self._write_evidence(result.state)
            except OSError as error:
                self._tell("seen", _unwritten(error))
        told = f"{result.state}" + (f": {result.reason}" if result.reason else "")
        stopped = stopped_ms(self.journal.chain.run(self.run_id or ""))
        if result.state == "done" and stopped is not None:
            told += f"; producers stood still for at most {stopped / 1000:.1f} s"
        self._tell("ended", told, seen)
        return result

    def _answer(self, action: Action) -> Observation:
        match action:
            case Begin():
                return self._begin(action)
            case Finish():
                self._write(action.step, "outcome", {"outcome": action.outcome, "refused": action.refused})
                shown = self.course.shown(action.step).done
                if action.refused is None:
                    self._tell("done", shown, action.outcome)
                else:
                    self._tell("refused", action.refused, action.outcome)
                return Noted(self._now())
            case Say():
                self._tell("seen", action.text, action.seen)
                return Noted(self._now())
            case Recall():
                assert self._claim is not None
                return Recalled(self._now(), self._claim.begun(action.deed))
            case Pause():
                self._sleep(action.ms / 1000)
                return Noted(self._now())
            case Prove():
                return replace(self._prove(action), at_ms=self._now())
            case AskApproval():
                return replace(self._approve(action), at_ms=self._now())
            case Deed():
                return self._do(action)
            case _:
                return self.world.answer(action)

    def _begin(self, action: Begin) -> Observation:
        assert self._claim is not None
        self._step = action.step
        recorded = self._claim.outcome_of(action.step)
        if recorded is not None:
            outcome, refused = recorded
            self._tell("skipped", f"{self.course.shown(action.step).done} (in the journal)", outcome)
            return Recorded(self._now(), outcome, refused)
        if self._only is not None and not action.undo and action.step != self._only:
            raise NothingToResume(
                f"step {self._only} of run {self.run_id} has to wait: {action.step} before it is not done"
            )
        ago_ms = self._claim.begun_ago_ms(action.step)
        self._write(action.step, "intent", {"undo": action.undo})
        self._tell("begin", self.course.shown(action.step).doing)
        return Recorded(self._now(), ago_ms=ago_ms)

    def _do(self, deed: Deed) -> Observation:
        name, what = type(deed).__name__, _deed_json(deed)
        self._write(self._step, "intent", what, deed=name)
        began = self._clock()
        self._tell("deed", f"{name} {' '.join(str(v) for v in what.values() if isinstance(v, str))}".rstrip(), what)
        self._still_ours(began)
        seen = self._done_here(deed)
        failed = {"failed": seen.error} if isinstance(seen, Failed) else {}
        self._write(self._step, "outcome", {**what, **failed}, deed=name)
        return seen

    def _still_ours(self, began: float) -> None:
        """Raises Superseded when the run was taken over since its last entry. Looked at only when this process stood
        still meanwhile: a terminal that is held (Ctrl-S) stops it just here, for as long as somebody likes."""
        if self._clock() - began > _STOOD_STILL_S:
            self.journal.only_ours()

    def _done_here(self, deed: Deed) -> Observation:
        """Some deeds are the driver's own."""
        match deed:
            case Seal():
                return self._seal()
            case EndRun(run, state, reason):
                assert self._claim is not None
                self._claim.end_other(run, state, reason.format(run=self.run_id))
                return Noted(self._now())
            case _:
                return self.world.answer(deed)

    def _seal(self) -> Observation:
        assert self.run_id is not None
        try:
            path = self._write_evidence("done")
        except OSError as error:
            return Failed(self._now(), _unwritten(error), transient=False)
        return Sealed(self._now(), str(path), self.journal.chain.root)

    def _write_evidence(self, state: str) -> Path:
        """Raises OSError."""
        assert self.run_id is not None
        directory = self._evidence() if callable(self._evidence) else self._evidence
        directory = directory or Path(".watershed") / "evidence" / self.plan.topology / self.run_id
        return write_evidence(directory, Identity(self.plan, self.course, self.run_id), self.journal.chain, state)

    def _write(self, step: str, kind: Kind, observation: Json, deed: str = "") -> None:
        assert self._claim is not None
        self._claim.write(step, kind, observation, deed)

    def _tell(self, kind: str, text: str, seen: Json | None = None) -> None:
        at_ms = int((self._clock() - self._began) * 1000)
        self._say(Event(at_ms, self.run_id or "", self._step, kind, text, seen))

    def _now(self) -> int:
        return int(self._clock() * 1000)


def applications_of(migration: PlanMigration, confirm: Confirm | None) -> Applications:
    """The applications' control endpoints, as the file declares them; `confirm` asks a person for the others.

    confirm None: nobody can be asked, and preflight refuses applications without an endpoint.
    """
    return Applications({name: app.http for name, app in migration.applications.items()}, confirm)


def _unwritten(error: OSError) -> str:
    return f"the evidence cannot be written to {error.filename}: {error.strerror}"


def _done(answer: Observation) -> bool:
    return isinstance(answer, Recorded) and answer.outcome is not None and answer.refused is None


def _deed_json(deed: Deed) -> dict[str, Any]:
    fields = {name: getattr(deed, name) for name in deed.__dataclass_fields__}
    return {name: to_json(value) if name == "offsets" else value for name, value in fields.items() if name != "texts"}
