"""Giving an unfinished run up, whoever began it: `--abandon` of the commands, and the DAG `abandon__<name>`."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from functools import partial

from watershed.clusters.settings import SettingsLookup
from watershed.cutover.drill.drill_abandonment import end_drills
from watershed.cutover.driver import RunEvent
from watershed.cutover.errors import NothingToResume
from watershed.cutover.journal.hash_chain import JournalChain, JournalEntry, describe_holder, find_step_outcome
from watershed.cutover.journal.topology_journal import open_journal, read_journal_chain
from watershed.cutover.migration_step_order import name_undo_step
from watershed.cutover.operations.proposal import OperationRefused, Proposal
from watershed.cutover.run_abandonment import abandon_run
from watershed.cutover.run_choice import RunChoice, plan_run
from watershed.cutover.run_claim import find_begun_strategy, read_run_kind
from watershed.cutover.run_opening import open_run
from watershed.cutover.run_plan import RunPlan
from watershed.cutover.step_definitions import STEPS
from watershed.topology.plan import Plan

_WHY = "the run was given up by its operator"


class NotAllTakenBack(OperationRefused):
    """The run was given up, and something of it could not be undone; the message says what is left."""

    exit_code = 1


def propose_abandonment(plan: Plan, connect: SettingsLookup, *, force: bool = False) -> Proposal:
    """Take back what the unfinished run did, and end it. force: end it although not everything can be undone.

    Raises ClusterError, CutoverError; NothingToResume without an unfinished run.
    """
    if plan.migration is None:
        raise OperationRefused(f"topology {plan.topology} declares no migration, so it has no run to give up")
    flow = plan.flow(plan.migration.flow)
    chain = read_journal_chain(plan, connect(flow.target))
    entries = chain.unfinished()
    if not entries:
        raise NothingToResume(f"topology {plan.topology} has no unfinished run: there is nothing to give up")
    if read_run_kind(entries) == "drill":
        return _propose_drill_end(plan, connect, entries)
    run_plan = plan_unfinished_run(plan, chain)
    settings = {alias: connect(alias) for alias in (flow.source, flow.target)}
    run = entries[0].run

    def carry_out(actor: str) -> Iterator[str]:
        told: list[str] = []

        def say(event: RunEvent) -> None:
            told.append(f"{event.step}: {event.kind}: {event.text}")

        opened = partial(open_run, plan, run_plan, settings, run_id=run, resume=True, abandon=True, actor=actor)
        result = abandon_run(opened, f"{_WHY} ({actor})", say, run, force=force)
        yield from told
        text = f"{result.state}: {result.reason}" if result.reason else result.state
        if result.state not in ("refused", "rolled_back"):
            raise NotAllTakenBack(text)
        yield text

    lines = [describe_holder(entries), *_describe_way_back(run_plan, entries)]
    if force:
        lines.append("what cannot be undone stays, and the journal names it: the run ends all the same (force)")
    basis = f"abandon {run} behind {entries[-1].hash}" + (", force" if force else "")
    return Proposal(f"give run {run} up, and take back what it did?", tuple(lines), basis, carry_out)


def plan_unfinished_run(plan: Plan, chain: JournalChain) -> RunPlan:
    """The run plan of the run that holds the lock. Raises CutoverError."""
    entries = chain.unfinished()
    kind, wave = read_run_kind(entries), entries[0].wave
    choice = RunChoice(kind, wave, find_begun_strategy(chain, wave))  # type: ignore[arg-type]  # as the journal has it
    return plan_run(plan, choice, chain, entries[0].run)


def _describe_way_back(run_plan: RunPlan, entries: list[JournalEntry]) -> Iterator[str]:
    """The steps that were begun, the last first, with the undo of each."""
    begun = {entry.step for entry in entries}
    crossed = [step.name for step in run_plan.steps if step.point_of_no_return and _is_done(entries, step.name)]
    if crossed:
        yield (
            f"the point of no return ({crossed[0]}) is passed: nothing is taken back by itself. The way back is a run "
            "of its own (`rollback`), or go on: clear the failed task, or --resume"
        )
        return
    for step in reversed(run_plan.steps):
        if step.name not in begun or STEPS[step.name].undo is None:
            continue
        undone = " (taken back already)" if _is_done(entries, name_undo_step(step.name)) else ""
        yield f"{step.name}: {step.undo or 'nothing is changed'}{undone}"


def _is_done(entries: list[JournalEntry], step: str) -> bool:
    found = find_step_outcome(entries, step)
    return found is not None and found[1] is None


def _propose_drill_end(plan: Plan, connect: SettingsLookup, entries: list[JournalEntry]) -> Proposal:
    assert plan.migration is not None
    flow = plan.flow(plan.migration.flow)
    settings = {alias: connect(alias) for alias in (flow.source, flow.target)}

    def carry_out(actor: str) -> Iterator[str]:
        told: list[str] = []
        journal = open_journal(plan, settings[flow.target], secrets.token_hex(8))
        ended = end_drills(journal, settings, actor, f"given up by its operator ({actor})", told.append)
        yield from told
        yield f"ended: {', '.join(ended.runs) or 'no run'}"
        if ended.left:
            raise NotAllTakenBack("not removed: " + "; ".join(ended.left))

    lines = (describe_holder(entries), "its fence is lowered, its flows and copies are removed, and it ends")
    return Proposal(f"end the rehearsal {entries[0].run}?", lines, f"end {entries[0].run}", carry_out)
