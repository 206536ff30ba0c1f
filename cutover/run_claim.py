"""Runs: who may act on a topology. Beginning, continuing and refusing, all decided from the journal's chain."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import asdict, dataclass
from typing import Any

from watershed.cutover.errors import Locked, NothingToResume, PlanChanged, Superseded
from watershed.cutover.journal.hash_chain import (
    RUN_STEP,
    TAKEOVER_STEP,
    EntryKind,
    Journal,
    JournalChain,
    JournalEntry,
    describe_holder,
    find_step_outcome,
)
from watershed.cutover.run_plan import RunPlan
from watershed.cutover.step_runner import RunResult, RunState
from watershed.cutover.steps_of_other_versions import (
    list_step_names,
    refuse_lost_undos,
    refuse_other_steps,
    refuse_unknown_steps,
)
from watershed.cutover.wave_states import refuse_early_wave
from watershed.topology.migration_waves import WaveStrategy, compute_wave_hash
from watershed.topology.plan import Plan


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """Who wants which run. actor: for people and the journal. run: its name, which continues the unfinished run of that
    name (an Airflow DAG run id); None makes one. resume: continue the unfinished run, whatever its name. abandon: the
    run is only taken back, so another plan will do when it moves the same applications by the same flow."""

    actor: str
    run: str | None = None
    resume: bool = False
    abandon: bool = False


@dataclass(frozen=True, slots=True)
class RunClaim:
    """This process holds the run. ended: the run is over already, with this result; nothing may be written then."""

    journal: Journal
    run: str
    actor: str
    plan_hash: str
    wave: str
    ended: RunResult | None = None

    def outcome_of(self, step: str) -> tuple[dict[str, Any], str | None] | None:
        """What the journal holds of the step in this run: its outcome, and why it was refused (None: it was not)."""
        return find_step_outcome(self.journal.chain.run(self.run), step)

    def begun(self, deed: str) -> tuple[dict[str, Any], ...]:
        """What the run's deeds of that kind were to do, whether they were done or not."""
        entries = self.journal.chain.run(self.run)
        return tuple(entry.observation for entry in entries if entry.deed == deed and entry.kind == "intent")

    def failed(self, deed: str) -> tuple[dict[str, Any], ...]:
        """What the run's deeds of that kind were to do that failed, and never succeeded."""
        outcomes = [e.observation for e in self.journal.chain.run(self.run) if e.deed == deed and e.kind == "outcome"]
        told = [{name: value for name, value in each.items() if name not in ("failed", "said")} for each in outcomes]
        done = [each for each, outcome in zip(told, outcomes, strict=True) if "failed" not in outcome]
        return tuple(each for number, each in enumerate(told) if each not in done and each not in told[:number])

    def measure_ms_since_begun(self, step: str) -> int:
        """How long ago, by the wall clock, the run first began the step; 0 for a new one, and where clocks disagree."""
        entries = self.journal.chain.run(self.run)
        first = next((e for e in entries if e.step == step and e.kind == "intent" and not e.deed), None)
        return 0 if first is None else max(0, self.journal.now_ms() - first.at_ms)

    def write(self, step: str, kind: EntryKind, observation: dict[str, Any], deed: str = "") -> None:
        """Raises Superseded when another process took the run over."""
        self.journal.append(
            self.run,
            step,
            kind,
            observation,
            actor=self.actor,
            plan_hash=self.plan_hash,
            wave=self.wave,
            deed=deed,
        )

    def end_other(self, run: str, state: RunState, reason: str) -> None:
        """Write down the end of a run that this one has taken back, once. Raises Superseded."""
        entries = self.journal.chain.run(run)
        if entries[-1].step == RUN_STEP and entries[-1].kind == "outcome":
            return
        step = next(entry.step for entry in reversed(entries) if entry.step not in (RUN_STEP, TAKEOVER_STEP))
        ended = asdict(RunResult(state, step, reason))
        first = entries[0]
        self.journal.append(
            run, RUN_STEP, "outcome", ended, actor=self.actor, plan_hash=first.plan_hash, wave=first.wave
        )


def claim_run(journal: Journal, plan: Plan, run_plan: RunPlan, request: ClaimRequest, *, begin: bool) -> RunClaim:
    """Begin a run, or continue the unfinished one that is asked for; its entries keep its own plan.

    begin: a new run may be begun. Raises Locked, PlanChanged, NothingToResume, and for a new migration WaveBlocked and
    WaveDone.
    """
    run, actor = request.run, request.actor
    chain = journal.refresh()
    open_run = chain.unfinished()
    earlier = run_plan.earlier
    if earlier is not None and open_run and open_run[0].run == earlier.run:
        # This unfinished run is the one we roll back. Its process may still live: our first entry voids its next one.
        open_run = []
    if earlier is not None:
        refuse_unknown_steps(chain.run(earlier.run))
    if open_run:
        return _continue(journal, open_run, plan, run_plan, request)
    if run is not None and (before := chain.run(run)):
        ended = _read_result(before, run_plan)
        return RunClaim(journal, run, actor, plan.hash, run_plan.wave.name, ended)
    if request.resume:
        raise NothingToResume(f"topology {plan.topology} has no unfinished run; start one without --resume")
    if not begin:
        raise NothingToResume(
            f"topology {plan.topology} has no unfinished run"
            + (f" {run}" if run else "")
            + ": this step has to wait for those before it; begin with preflight"
        )
    if earlier is not None and earlier.taken_back is not None:
        raise NothingToResume(
            f"wave {run_plan.wave.name} of {plan.topology} (run {earlier.run}) was rolled back already, by run "
            f"{earlier.taken_back}: its applications are at {run_plan.flow.target}"
        )
    if run_plan.kind == "migrate":
        refuse_early_wave(plan, run_plan.wave.name, chain)
    wave = run_plan.wave
    new = RunClaim(journal, run or _new_name(), actor, plan.hash, wave.name)
    try:
        new.write(RUN_STEP, "intent", _describe_beginning(plan, run_plan))
    except Superseded:
        other = journal.chain.unfinished()
        raise Locked(_locked(plan, other)) from None
    return new


def _describe_beginning(plan: Plan, run_plan: RunPlan) -> dict[str, Any]:
    """What the first entry of a new run says. strategy: its operator may have chosen another one than the file's."""
    wave, earlier = run_plan.wave, run_plan.earlier
    begun: dict[str, Any] = {"topology": plan.topology, "kind": run_plan.kind, "wave": wave.name, "plan": plan.hash}
    begun["strategy"] = run_plan.policy.strategy
    begun["steps"] = list_step_names(run_plan)
    if earlier is not None:
        begun["takes_back"] = earlier.run
    return begun | {"work": encode_run_work(run_plan), "wave_hash": compute_wave_hash(wave)}


def _read_result(entries: list[JournalEntry], run_plan: RunPlan) -> RunResult:
    """How the run of that name ended. Raises NothingToResume when it was another kind of run, or of another wave."""
    first = entries[0]
    if (read_run_kind(entries), first.wave) != (run_plan.kind, run_plan.wave.name):
        raise NothingToResume(
            f"run {first.run} was the {read_run_kind(entries)} of wave {first.wave}, and this is the {run_plan.kind} "
            f"of wave {run_plan.wave.name}: give it another name (--run), a run's is used once"
        )
    end = entries[-1].observation
    return RunResult(end["state"], end["step"], end["reason"])


def _continue(
    journal: Journal,
    entries: list[JournalEntry],
    plan: Plan,
    run_plan: RunPlan,
    request: ClaimRequest,
) -> RunClaim:
    first, wave, abandon = entries[0], run_plan.wave.name, request.abandon
    if first.run != request.run and not (request.resume and request.run is None):
        raise Locked(_locked(plan, entries))
    kind = read_run_kind(entries)
    if kind == "drill" and run_plan.kind != kind:
        raise Locked(_locked(plan, entries))
    if kind != run_plan.kind:
        raise Locked(f"{_locked(plan, entries)} (it is a {kind}: `topology {kind} --resume`)")
    same = first.wave == wave and (
        first.plan_hash == plan.hash or (abandon and first.observation.get("work") == encode_run_work(run_plan))
    )
    if not same:
        raise PlanChanged(
            f"run {first.run} was begun with plan {first.plan_hash} (wave {first.wave}), the file now gives "
            f"{plan.hash} (wave {wave}): a run keeps its plan. "
            + ("It moves other applications, topics or another flow. " if abandon and first.wave == wave else "")
            + f"Restore the file that compiles to {first.plan_hash}"
        )
    strategy = str(first.observation.get("strategy", run_plan.policy.strategy))
    if strategy != run_plan.policy.strategy:
        raise PlanChanged(
            f"run {first.run} was begun with the strategy {strategy}, this is {run_plan.policy.strategy}: a run keeps "
            "its order of steps. Continue it without --strategy, or where it was begun: clear its failed task in "
            "Airflow"
        )
    if not abandon:
        refuse_other_steps(first, run_plan)
    refuse_lost_undos(entries, run_plan)
    found = RunClaim(journal, first.run, request.actor, first.plan_hash, wave)
    if entries[-1].holder != journal.holder:
        found.write(TAKEOVER_STEP, "intent", {"from": entries[-1].holder, "by": journal.holder})
    return found


def refuse_locked_topology(plan: Plan, chain: JournalChain) -> None:
    """Raises Locked when a run of the topology is unfinished: said before anybody is asked whether to begin another."""
    if entries := chain.unfinished():
        raise Locked(_locked(plan, entries))


def _locked(plan: Plan, entries: list[JournalEntry]) -> str:
    who = describe_holder(entries) if entries else "another run"
    if entries and read_run_kind(entries) == "drill":
        return (
            f"a rehearsal of {plan.topology} is unfinished: {who}. If that process is dead, end it with "
            "`topology migrate FILE --drill --abandon`: it is never resumed, because its producers and consumers died "
            "with it"
        )
    return (
        f"a migration of {plan.topology} is unfinished: {who}. If that process is dead, continue its work with "
        "--resume, or take it back with --abandon; two runs at once are never possible"
    )


def find_started_waves(chain: JournalChain) -> dict[str, str]:
    """`topology/wave` → the hash of what it moves, of every wave under way or done (not of those taken back)."""
    found: dict[str, str] = {}
    for run in dict.fromkeys(entry.run for entry in chain.entries):
        entries = chain.run(run)
        first, last = entries[0], entries[-1]
        ended = last.step == RUN_STEP and last.kind == "outcome"
        began = first.observation.get("wave_hash")
        if read_run_kind(entries) == "rollback" and ended and last.observation.get("state") == "done":
            found.pop(f"{chain.topology}/{first.wave}", None)
        if read_run_kind(entries) != "migrate":
            continue
        if isinstance(began, str) and not (ended and last.observation.get("state") != "done"):
            found[f"{chain.topology}/{first.wave}"] = began
    return found


def read_run_kind(entries: list[JournalEntry]) -> str:
    """What a run is; entries of earlier versions are migrations."""
    return str(entries[0].observation.get("kind", "migrate"))


def find_begun_strategy(chain: JournalChain, wave: str) -> WaveStrategy | None:
    """The order of steps with which the unfinished migration of that wave was begun, which it keeps; None without
    one."""
    entries = chain.unfinished()
    if not entries or read_run_kind(entries) != "migrate" or entries[0].wave != wave:
        return None
    found: WaveStrategy | None = entries[0].observation.get("strategy")
    return found


def encode_run_work(run_plan: RunPlan) -> dict[str, Any]:
    """What a run moves, as JSON: all that taking it back depends on. Addresses are not part of it."""
    flow, wave = run_plan.flow, run_plan.wave
    work = {
        "flow": [flow.id, flow.source, flow.target],
        "naming": asdict(flow.naming),
        "topics": wave.topics,
        "consumers": wave.consumers,
        "producers": wave.producers,
    }
    found: dict[str, Any] = json.loads(json.dumps(work))
    return found


def _new_name() -> str:
    return time.strftime("run-%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(2)
