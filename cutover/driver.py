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
from cutover.actions import Action, AskApproval, Begin, Deed, Finish, Json, Pause, Prove, Recall, Say, Seal
from cutover.applications import Applications, Confirm
from cutover.consumers_first import UNDOS, Result, consumers_first
from cutover.errors import NothingToResume, NotSupported
from cutover.evidence import Identity, write_evidence
from cutover.ground import Ground
from cutover.journal import RUN, Journal, Kind, outcome_of
from cutover.journal_topic import TopicLog
from cutover.live import LiveWorld
from cutover.observations import ApprovalSeen, Failed, Noted, Observation, ProofSeen, Recalled, Recorded, Sealed
from cutover.offsets import to_json
from cutover.policy import Policy, policy_of
from cutover.runs import Claim, claim
from cutover.steps import PRESENTATION, Step, steps_of, undo_of
from topology.plan import Migration as PlanMigration
from topology.plan import Plan, Verify, Wave


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
    """`cutover.live.LiveWorld`, or a fake one in tests."""

    def answer(self, action: Action) -> Observation: ...


Prover = Callable[[Prove], ProofSeen]
Approve = Callable[[AskApproval], ApprovalSeen]


def approve_all(ask: AskApproval) -> ApprovalSeen:
    """`--approve auto`: recorded as such in journal and evidence."""
    return ApprovalSeen(0, granted=True, by="automatic", note=f"for {ask.by}")


class Migration:
    """One wave's migration. `settings` by cluster alias; `journal` and `world` default to the real ones.

    run_id: names the run, and continues the unfinished run of that name (an Airflow DAG run id); None makes one.
    resume: continue the unfinished run, whatever its name. abandon: it is only to be taken back (`giving_up`), for
    which a file that was changed since will do when it moves the same. evidence: directory of the pack.
    Raises NotSupported for what cannot be migrated yet.
    """

    def __init__(
        self,
        plan: Plan,
        wave: str | None = None,
        settings: Mapping[str, ConnectionSettings] | None = None,
        *,
        prove: Prover,
        applications: Applications | None = None,
        approve: Approve = approve_all,
        say: Callable[[Event], None] = lambda _event: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        journal: Journal | None = None,
        world: World | None = None,
        policy: Policy | None = None,
        run_id: str | None = None,
        actor: str = "",
        resume: bool = False,
        abandon: bool = False,
        evidence: Path | Callable[[], Path] | None = None,
    ) -> None:
        migration, self.wave = wave_of(plan, wave)
        self.plan, self.flow = plan, plan.flow(migration.flow)
        self.policy = policy or policy_of(self.wave)
        self.actor = actor or f"{os.environ.get('USER', 'someone')} (pid {os.getpid()})"
        self.run_id = run_id
        self._resume, self._abandon = resume, abandon
        self._prove, self._approve, self._say = prove, approve, say
        self._clock, self._sleep = clock, sleep
        self._began = clock()
        self._evidence = evidence
        if world is None:
            assert settings is not None, "without a world, the connection settings are needed"
            applications = applications or applications_of(migration, confirm=None)
            world = LiveWorld(plan, self.flow, settings, applications, clock)
        if journal is None:
            assert settings is not None, "without a journal, the connection settings are needed"
            journal = Journal(TopicLog(settings[self.flow.target]), plan.topology, secrets.token_hex(8))
        self.world, self.journal = world, journal
        self._claim: Claim | None = None
        self._step = RUN
        self._only: str | None = None
        self._until: str | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        return steps_of(self.policy)

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
            self.wave.name,
            self.actor,
            self.run_id,
            resume=self._resume,
            begin=may_begin,
            abandon=self._abandon,
        )
        self.run_id = self._claim.run
        if self._claim.ended is not None:
            return self._claim.ended
        ground = Ground(self.flow, self.wave, self.policy)
        migration = consumers_first(ground)
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
        self._tell("ended", f"{result.state}" + (f": {result.reason}" if result.reason else ""), seen)
        return result

    def _answer(self, action: Action) -> Observation:
        match action:
            case Begin():
                return self._begin(action)
            case Finish():
                self._write(action.step, "outcome", {"outcome": action.outcome, "refused": action.refused})
                shown = PRESENTATION[action.step].done
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
            self._tell("skipped", f"{PRESENTATION[action.step].done} (in the journal)", outcome)
            return Recorded(self._now(), outcome, refused)
        if self._only is not None and not action.undo and action.step != self._only:
            raise NothingToResume(
                f"step {self._only} of run {self.run_id} has to wait: {action.step} before it is not done"
            )
        self._write(action.step, "intent", {"undo": action.undo})
        self._tell("begin", PRESENTATION[action.step].doing)
        return Recorded(self._now())

    def _do(self, deed: Deed) -> Observation:
        name, what = type(deed).__name__, _deed_json(deed)
        self._write(self._step, "intent", what, deed=name)
        self._tell("deed", f"{name} {' '.join(str(v) for v in what.values() if isinstance(v, str))}".rstrip(), what)
        seen = self._seal() if isinstance(deed, Seal) else self.world.answer(deed)
        failed = {"failed": seen.error} if isinstance(seen, Failed) else {}
        self._write(self._step, "outcome", {**what, **failed}, deed=name)
        return seen

    def _seal(self) -> Observation:
        assert self.run_id is not None
        directory = self._evidence() if callable(self._evidence) else self._evidence
        directory = directory or Path(".watershed") / "evidence" / self.plan.topology / self.run_id
        identity = Identity(self.plan, self.flow, self.wave, self.run_id, self.steps)
        try:
            path = write_evidence(directory, identity, self.journal.chain)
        except OSError as error:
            return Failed(self._now(), f"the evidence cannot be written to {directory}: {error.strerror}", False)
        return Sealed(self._now(), str(path), self.journal.chain.root)

    def _write(self, step: str, kind: Kind, observation: Json, deed: str = "") -> None:
        assert self._claim is not None
        self._claim.write(step, kind, observation, deed)

    def _tell(self, kind: str, text: str, seen: Json | None = None) -> None:
        at_ms = int((self._clock() - self._began) * 1000)
        self._say(Event(at_ms, self.run_id or "", self._step, kind, text, seen))

    def _now(self) -> int:
        return int(self._clock() * 1000)


def wave_of(plan: Plan, wave: str | None) -> tuple[PlanMigration, Wave]:
    """The migration and the wave to run. Raises NotSupported, in words for the person who wrote the file."""
    migration = plan.migration
    if migration is None:
        raise NotSupported(f"topology {plan.topology} declares no migration; add a `migration:` section")
    names = [found.name for found in migration.waves]
    if not names:
        raise NotSupported(f"the migration of topology {plan.topology} has no waves")
    if wave is not None and wave not in names:
        raise NotSupported(f"there is no wave {wave}; the migration has {', '.join(names)}")
    if len(names) > 1:
        raise NotSupported(
            f"this version migrates one wave, and {plan.topology} has {len(names)} ({', '.join(names)}); "
            "keep one wave in the file"
        )
    found = migration.waves[0]
    if found.strategy != "consumers_first":
        raise NotSupported(f"wave {found.name} has strategy {found.strategy}; this version runs consumers_first only")
    for place, gates in (("before", found.gates_before), ("after", found.gates_after)):
        for gate in gates:
            if isinstance(gate, Verify) and gate.level != "L1":
                raise NotSupported(
                    f"wave {found.name}, gates.{place}: verify asks for level {gate.level}, and this version proves L1 "
                    "only; use level L1"
                )
    return migration, found


def applications_of(migration: PlanMigration, confirm: Confirm | None) -> Applications:
    """The applications' control endpoints, as the file declares them; `confirm` asks a person for the others.

    confirm None: nobody can be asked, and preflight refuses applications without an endpoint.
    """
    return Applications({name: app.http for name, app in migration.applications.items()}, confirm)


def _done(answer: Observation) -> bool:
    return isinstance(answer, Recorded) and answer.outcome is not None and answer.refused is None


def _deed_json(deed: Deed) -> dict[str, Any]:
    fields = {name: getattr(deed, name) for name in deed.__dataclass_fields__}
    return {name: to_json(value) if name == "offsets" else value for name, value in fields.items()}
