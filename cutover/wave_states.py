"""How far the waves of a migration are, out of its journal: which are done, which may run, and where each topic's truth
is (C24: a failure in one wave leaves the others as they are)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from watershed.cutover.errors import NotSupported, WaveBlocked, WaveDone
from watershed.cutover.journal.hash_chain import RUN_STEP, TAKEOVER_STEP, JournalChain, JournalEntry, find_step_outcome
from watershed.cutover.overdue_runs import is_overdue
from watershed.cutover.rollback.earlier_run import find_producer_switches
from watershed.cutover.utc_instant import render_utc_instant
from watershed.topology.migration_waves import PlanMigration, Wave, list_producer_waves
from watershed.topology.plan import Plan

State = Literal["done", "unfinished", "next", "blocked"]
KINDS_TO_TARGET = (
    "migrate",
    "failover",
)  # kinds of runs that take applications to the migration's target; the others take back
NO_RETURN_STEPS = ("point_of_no_return", "promote")  # steps behind which a run takes nothing back by itself
WAVE_SEPARATOR = "+"  # between the names of waves that one failover promotes together


@dataclass(frozen=True, slots=True)
class WaveState:
    """run: the newest that concerns it, with its kind (`migrate`, `rollback`, …) and where that stands or how it ended.
    waits_for: waves that must be done first. truth: alias of the cluster whose records count: where the applications
    of its topics write. next: it may run now. at_source: groups of a late wave whose producers have moved and which
    have not; since_ms: when the first of these producers moved, ms since 1970. overdue: its run stands in a step for
    longer than the step may take, so its process is dead or hangs; last_ms: when it last wrote, ms since 1970."""

    name: str
    state: State
    truth: str
    topics: tuple[str, ...]
    waits_for: tuple[str, ...] = ()
    run: str | None = None
    kind: str | None = None
    step: str | None = None
    ended: str | None = None
    at_source: tuple[str, ...] = ()
    since_ms: int | None = None
    overdue: bool = False
    last_ms: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The row of `topology migrate --status --format json`."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def list_wave_states(plan: Plan, chain: JournalChain, now_ms: int = 0) -> tuple[WaveState, ...]:
    """Every wave, in the order of the file. now_ms: since 1970; without it no run is overdue. Raises NotSupported when
    there is no migration."""
    migration = plan.migration
    if migration is None:
        raise NotSupported(f"topology {plan.topology} declares no migration; add a `migration:` section")
    flow = plan.flow(migration.flow)
    runs = {wave.name: list_wave_runs(chain.entries, wave.name) for wave in migration.waves}
    done = {name for name, found in runs.items() if _is_done(found)}
    states = {wave.name: _state(wave, runs[wave.name], done, flow.source, flow.target) for wave in migration.waves}
    states = {name: _mark_if_overdue(state, runs[name], now_ms) for name, state in states.items()}
    late = {wave.name: _add_late_groups(wave, migration, states, chain) for wave in migration.waves if wave.is_late}
    return tuple((states | late).values())


def _mark_if_overdue(state: WaveState, runs: list[list[JournalEntry]], now_ms: int) -> WaveState:
    if state.run is None or state.ended is not None:
        return state
    return replace(state, overdue=is_overdue(runs[-1], now_ms), last_ms=runs[-1][-1].at_ms)


def _add_late_groups(
    wave: Wave, migration: PlanMigration, states: Mapping[str, WaveState], chain: JournalChain
) -> WaveState:
    """Of a late wave: its topics are written to where the producers' waves are, and which groups stay behind."""
    before = [each.name for each in list_producer_waves(wave, migration.waves)]
    truths = {states[name].truth for name in before}
    state = states[wave.name]
    if len(truths) == 1:
        state = replace(state, truth=truths.pop())
    switches = find_producer_switches(chain, before)
    if state.state == "done" or not switches:
        return state
    return replace(state, at_source=wave.consumers, since_ms=min(each.at_ms for each in switches))


def describe_late_groups(state: WaveState, source: str) -> str:
    """Which groups of a late wave are still at the source, and since when, for people; empty where none is."""
    if not state.at_source or state.since_ms is None:
        return ""
    verb, them = ("is", "it") if len(state.at_source) == 1 else ("are", "them")
    return (
        f"{', '.join(state.at_source)} {verb} still at {source}, since {render_utc_instant(state.since_ms)}, when "
        f"producers moved: `topology migrate --wave {state.name}` moves {them}"
    )


def find_next_wave(plan: Plan, chain: JournalChain) -> str:
    """The wave that is unfinished, or else the first that may run. Raises WaveDone when all are done."""
    states = list_wave_states(plan, chain)
    for wanted in ("unfinished", "next"):
        for each in states:
            if each.state == wanted:
                return each.name
    raise WaveDone(f"every wave of {plan.topology} is done: {', '.join(each.name for each in states)}")


def refuse_early_wave(plan: Plan, wave: str, chain: JournalChain) -> None:
    """Raises WaveBlocked, with the waves that it waits for, and WaveDone."""
    found = next(each for each in list_wave_states(plan, chain) if each.name == wave)
    if found.state == "done":
        raise WaveDone(
            f"wave {wave} of {plan.topology} is done already (run {found.run}): its applications are at {found.truth}"
        )
    if found.state == "blocked":
        are = "is" if len(found.waits_for) == 1 else "are"
        raise WaveBlocked(
            f"wave {wave} of {plan.topology} comes after {', '.join(found.waits_for)}, which {are} not done; "
            "`topology migrate --status` shows how far each is"
        )


def _state(wave: Wave, runs: list[list[JournalEntry]], done: set[str], source: str, target: str) -> WaveState:
    last = runs[-1] if runs else []
    waits = tuple(name for name in wave.after if name not in done)
    state: State = "blocked" if waits else "next"
    if wave.name in done:
        state, waits = "done", ()
    elif any(not _ended(found) for found in runs):
        state, waits = "unfinished", ()
    return WaveState(
        name=wave.name,
        state=state,
        truth=target if _switched(runs) else source,
        topics=wave.topics,
        waits_for=waits,
        run=last[0].run if last else None,
        kind=_kind(last) if last else None,
        step=next((e.step for e in reversed(last) if e.step not in (RUN_STEP, TAKEOVER_STEP)), None),
        ended=_ended(last) if last else None,
    )


def list_wave_runs(lines: Iterable[JournalEntry], wave: str) -> list[list[JournalEntry]]:
    """The runs of a wave among lines of a journal, oldest first, without rehearsals."""
    found: dict[str, list[JournalEntry]] = {}
    for entry in lines:
        if wave in entry.wave.split(WAVE_SEPARATOR):
            found.setdefault(entry.run, []).append(entry)
    return [entries for entries in found.values() if _kind(entries) != "drill"]


def _is_done(runs: Iterable[list[JournalEntry]]) -> bool:
    done = False
    for entries in runs:
        if _ended(entries) == "done":
            done = _kind(entries) in KINDS_TO_TARGET
    return done


def _switched(runs: Iterable[list[JournalEntry]]) -> bool:
    """Whether applications write to the migration's target: a run that passed its point of no return takes them there,
    or back, whether it came to its end or not."""
    there = False
    for entries in runs:
        passed = [find_step_outcome(entries, step) for step in NO_RETURN_STEPS]
        if _ended(entries) == "done" or any(found is not None and found[1] is None for found in passed):
            there = _kind(entries) in KINDS_TO_TARGET
    return there


def _ended(entries: list[JournalEntry]) -> str | None:
    last = entries[-1]
    over = last.step == RUN_STEP and last.kind == "outcome"
    return str(last.observation.get("state")) if over else None


def _kind(entries: list[JournalEntry]) -> str:
    return str(entries[0].observation.get("kind", "migrate"))
