"""The two courses of a rehearsal: there, and back. Both are runs of the kind `drill`, so that nobody takes them for the
real ones; the way back names the run that it takes back."""

from __future__ import annotations

from dataclasses import replace

from watershed.cutover.drill.copy_steps import (
    COUNT_RECORDS_STEP,
    MAKE_COPIES_STEP,
    READ_ORIGINALS_STEP,
    REMOVE_COPIES_STEP,
)
from watershed.cutover.errors import NothingToRollBack
from watershed.cutover.journal.hash_chain import JournalChain, find_step_outcome
from watershed.cutover.migration_step_order import Step
from watershed.cutover.policy import WavePolicy, build_wave_policy
from watershed.cutover.rollback.earlier_run import build_earlier_run
from watershed.cutover.rollback.rollback_plan import plan_way_back
from watershed.cutover.run_plan import RunPlan, plan_migration
from watershed.topology.plan import Plan

_ASKED = ("approval",)  # the one question is asked before anything begins


def plan_drill(drill: Plan, policy: WavePolicy | None = None) -> RunPlan:
    """`drill` as `cutover.drill.drill_topology.build_drill_topology` gives it."""
    run_plan = plan_migration(drill, None, policy or _policy(drill))
    own = tuple(step for step in run_plan.steps if step.name not in (*_ASKED, "seal"))
    seal = tuple(step for step in run_plan.steps if step.name == "seal")
    return replace(
        run_plan,
        kind="drill",
        steps=(READ_ORIGINALS_STEP, MAKE_COPIES_STEP, *own, COUNT_RECORDS_STEP, REMOVE_COPIES_STEP, *seal),
    )


def find_last_step_there(run_plan: RunPlan) -> str:
    """The step behind which the applications are at the target, and the way back may begin."""
    names = [step.name for step in run_plan.steps]
    return names[names.index(COUNT_RECORDS_STEP.name) - 1]


def has_way_back(drill: Plan) -> bool:
    """Whether the wave declares a reverse flow, so that the drill can rehearse the rollback too."""
    assert drill.migration is not None
    [wave] = drill.migration.waves
    return wave.rollback is not None and wave.rollback.reverse is not None


def plan_drill_back(drill: Plan, chain: JournalChain, run: str, policy: WavePolicy | None = None) -> RunPlan:
    """The way back of the rehearsal `run`, which has come so far as `find_last_step_there`.

    Raises NothingToRollBack when it has not, NotSupported for a flow back that does not lead back.
    """
    forward = plan_drill(drill)
    entries = chain.run(run)
    passed = find_step_outcome(entries, "point_of_no_return")
    if passed is None or passed[1] is not None:
        raise NothingToRollBack(f"the rehearsal {run} has not passed its point of no return")
    # Not unfinished, as this way back sees it: it goes on behind it, and removes the copies.
    earlier = replace(build_earlier_run(chain, entries, forward.flow), state="done")
    usual = WavePolicy()
    policy = policy or replace(_policy(drill), max_lag=usual.max_lag, hold_ms=usual.hold_ms)
    run_plan = plan_way_back(drill, forward, earlier, policy, None)
    return replace(run_plan, kind="drill", steps=_unasked(run_plan.steps))


def preview_drill_back(drill: Plan) -> RunPlan:
    """The same without a journal, for a dry run."""
    from watershed.cutover.rollback.rollback_plan import preview_rollback

    run_plan = preview_rollback(drill, None)
    return replace(run_plan, kind="drill", steps=_unasked(run_plan.steps))


def _unasked(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    return tuple(step for step in steps if step.name not in _ASKED)


def _policy(drill: Plan) -> WavePolicy:
    assert drill.migration is not None
    [wave] = drill.migration.waves
    return build_wave_policy(wave, drill.migration)
