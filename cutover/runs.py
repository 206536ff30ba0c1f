"""Runs: who may act on a topology. Beginning, continuing and refusing, all decided from the journal's chain."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import asdict, dataclass
from typing import Any

from cutover.consumers_first import Result
from cutover.errors import Locked, NothingToResume, PlanChanged, Superseded
from cutover.journal import RUN, TAKEN_OVER, Chain, Entry, Journal, Kind, holder_of, outcome_of
from topology.plan import Plan
from topology.waves import wave_hash


@dataclass(frozen=True, slots=True)
class Claim:
    """This process holds the run. ended: the run is over already, with this result; nothing may be written then."""

    journal: Journal
    run: str
    actor: str
    plan_hash: str
    wave: str
    ended: Result | None = None

    def outcome_of(self, step: str) -> tuple[dict[str, Any], str | None] | None:
        return outcome_of(self.journal.chain.run(self.run), step)

    def begun(self, deed: str) -> tuple[dict[str, Any], ...]:
        """What the run's deeds of that kind were to do, whether they were done or not."""
        entries = self.journal.chain.run(self.run)
        return tuple(entry.observation for entry in entries if entry.deed == deed and entry.kind == "intent")

    def write(self, step: str, kind: Kind, observation: dict[str, Any], deed: str = "") -> None:
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


def claim(
    journal: Journal,
    plan: Plan,
    wave: str,
    actor: str,
    run: str | None,
    *,
    resume: bool,
    begin: bool,
    abandon: bool = False,
) -> Claim:
    """Begin a run, or continue the unfinished one when it is this `run` or `resume` says so.

    begin: a new run may be begun. abandon: the run is only taken back, so another plan will do when it moves the same
    applications by the same flow; the entries keep the run's plan. Raises Locked, PlanChanged, NothingToResume.
    """
    chain = journal.refresh()
    open_run = chain.unfinished()
    if open_run:
        return _continue(journal, open_run, plan, wave, actor, run, resume, abandon)
    before = chain.run(run) if run is not None else []
    if before:
        end = before[-1].observation
        ended = Result(end["state"], end["step"], end["reason"])
        return Claim(journal, before[0].run, actor, plan.hash, wave, ended)
    if resume:
        raise NothingToResume(f"topology {plan.topology} has no unfinished run; start one without --resume")
    if not begin:
        raise NothingToResume(
            f"topology {plan.topology} has no unfinished run"
            + (f" {run}" if run else "")
            + ": this step has to wait for those before it; begin with preflight"
        )
    new = Claim(journal, run or _new_name(), actor, plan.hash, wave)
    try:
        begun = {"topology": plan.topology, "wave": wave, "plan": plan.hash, "work": _work(plan)}
        new.write(RUN, "intent", begun | {"wave_hash": _wave_hash(plan, wave)})
    except Superseded:
        other = journal.chain.unfinished()
        raise Locked(_locked(plan, other)) from None
    return new


def _continue(
    journal: Journal,
    entries: list[Entry],
    plan: Plan,
    wave: str,
    actor: str,
    run: str | None,
    resume: bool,
    abandon: bool,
) -> Claim:
    first = entries[0]
    if not resume and first.run != run:
        raise Locked(_locked(plan, entries))
    if resume and run is not None and first.run != run:
        raise Locked(_locked(plan, entries))
    same = first.wave == wave and (
        first.plan_hash == plan.hash or (abandon and first.observation.get("work") == _work(plan))
    )
    if not same:
        raise PlanChanged(
            f"run {first.run} was begun with plan {first.plan_hash} (wave {first.wave}), the file now gives "
            f"{plan.hash} (wave {wave}): a run keeps its plan. "
            + ("It moves other applications, topics or another flow. " if abandon and first.wave == wave else "")
            + f"Restore the file that compiles to {first.plan_hash}"
        )
    found = Claim(journal, first.run, actor, first.plan_hash, wave)
    if entries[-1].holder != journal.holder:
        found.write(TAKEN_OVER, "intent", {"from": entries[-1].holder, "by": journal.holder})
    return found


def _locked(plan: Plan, entries: list[Entry]) -> str:
    who = holder_of(entries) if entries else "another run"
    return (
        f"a migration of {plan.topology} is unfinished: {who}. If that process is dead, continue its work with "
        "--resume, or take it back with --abandon; two runs at once are never possible"
    )


def started_waves(chain: Chain) -> dict[str, str]:
    """`topology/wave` → the hash of what it moves, of every wave under way or done (not of those taken back)."""
    found: dict[str, str] = {}
    for run in dict.fromkeys(entry.run for entry in chain.entries):
        entries = chain.run(run)
        first, last = entries[0], entries[-1]
        ended = last.step == RUN and last.kind == "outcome"
        began = first.observation.get("wave_hash")
        if isinstance(began, str) and not (ended and last.observation.get("state") != "done"):
            found[f"{chain.topology}/{first.wave}"] = began
    return found


def _wave_hash(plan: Plan, wave: str) -> str | None:
    known = [each for each in (plan.migration.waves if plan.migration else ()) if each.name == wave]
    return wave_hash(known[0]) if known else None


def _work(plan: Plan) -> dict[str, Any]:
    """What a run moves, as JSON: all that taking it back depends on. Addresses are not part of it."""
    assert plan.migration is not None
    flow, wave = plan.flow(plan.migration.flow), plan.migration.waves[0]
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
