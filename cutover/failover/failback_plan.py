"""Back to the old primary after a failover, along the flow back: a rollback's steps from the cut of the failover on.

What is different is the old side's own records: those that it held when it died and nobody had copied. They are listed,
offset by offset, and stay where they are; the operator says whether groups go on behind them (`skip`) or in front of
them (`reread`). Nothing is merged: no record of either side is written between others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from watershed.cutover.actions import JsonObject
from watershed.cutover.errors import NothingToRollBack, NotSupported, PlanChanged
from watershed.cutover.failover.failover_plan import plan_failover
from watershed.cutover.fences.journaled_fence import find_standing_fence
from watershed.cutover.journal.hash_chain import RUN_STEP, TAKEOVER_STEP, JournalChain, JournalEntry, find_step_outcome
from watershed.cutover.migration_step_order import Step
from watershed.cutover.policy import DEFAULT_SESSION_MS, SESSION_GRACE_MS, WavePolicy, build_wave_policy
from watershed.cutover.rollback.earlier_run import EarlierRun, find_rollback_of
from watershed.cutover.rollback.rollback_plan import StrandedChoice, plan_way_back, shorten_lag_hold
from watershed.cutover.run_claim import encode_run_work
from watershed.cutover.run_plan import RunPlan
from watershed.cutover.step_outcomes import StepOutcomes
from watershed.cutover.withheld_rights_steps import find_rights_to_take
from watershed.topology.migration_waves import RollbackPolicy, Wave
from watershed.topology.plan import Plan, PlanFlow

_DIVERGENCE = Step(
    "divergence",
    "records that only the old primary has are listed, offset by offset; what it has lost itself is refused",
    "watershed",
    None,
)
_EMPTY = Step(
    "old_groups_empty",
    "groups are empty at the old primary: members that died with it are there until their sessions end",
    "watershed",
    None,
    DEFAULT_SESSION_MS + SESSION_GRACE_MS,
)


def plan_failback(
    plan: Plan,
    wave: str | None,
    chain: JournalChain,
    policy: WavePolicy | None = None,
    stranded: StrandedChoice | None = None,
) -> RunPlan:
    """The run plan of `topology failback`, from what the journal says of the failover. wave None: that of the newest.

    Raises NothingToRollBack when no failover is done (or it was taken back), PlanChanged when the file moves something
    else by now, NotSupported without a flow back.
    """
    entries = _find_failover_entries(chain, wave)
    if not entries:
        raise NothingToRollBack(_nothing(plan, wave, chain))
    first = entries[0]
    forward = plan_failover(plan, first.wave)
    if first.observation.get("work") != encode_run_work(forward):
        raise PlanChanged(
            f"run {first.run} promoted other applications or topics, or by another flow, than this file has: restore "
            f"the file that compiles to {first.plan_hash}, or one that names the same"
        )
    earlier = _build_earlier_failover(chain, entries, forward)
    earlier = replace(earlier, rights=find_rights_to_take(plan, chain, forward.flow, first.wave))
    return _course(plan, forward, earlier, policy, stranded)


def preview_failback(plan: Plan, wave: str | None = None) -> RunPlan:
    """The same run plan without a journal, for a dry run and for DAGs: of a failover that went through."""
    forward = plan_failover(plan, wave)
    partitions = dict.fromkeys(forward.wave.topics, 1)
    earlier = EarlierRun(
        "", forward.flow, StepOutcomes(preflight={"partitions": partitions}), "done", 0, forward.wave.consumers
    )
    return _course(plan, forward, earlier, None, None)


def _course(
    plan: Plan, forward: RunPlan, earlier: EarlierRun, policy: WavePolicy | None, stranded: StrandedChoice | None
) -> RunPlan:
    if policy is None:
        policy = shorten_lag_hold(build_wave_policy(forward.wave, plan.migration))
    back = _find_flow_back(plan, forward.flow, forward.wave)
    forward = replace(
        forward, wave=replace(forward.wave, rollback=RollbackPolicy(reverse=back.id))
    )  # without its `until`
    run_plan = plan_way_back(plan, forward, earlier, policy, stranded)
    return replace(run_plan, kind="failback", steps=(_DIVERGENCE, _EMPTY, *run_plan.steps))


def _find_flow_back(plan: Plan, flow: PlanFlow, wave: Wave) -> PlanFlow:
    """The declared flow back: the one that the wave names, or the only one that leads back. Raises NotSupported."""
    if wave.rollback is not None and wave.rollback.reverse is not None:
        return plan.flow(wave.rollback.reverse)
    found = [each for each in plan.flows if (each.source, each.target) == (flow.target, flow.source)]
    if len(found) == 1:
        return found[0]
    names = ", ".join(each.id for each in found)
    said = wave.rollback.none_because if wave.rollback is not None else None
    why = f" (wave {wave.name} says `none: {said}`)" if said else ""
    declare = f"{why}: declare one, `state: paused`, apply it, and fail back then"
    raise NotSupported(
        f"{'several flows lead' if found else 'no flow leads'} from {flow.target} back to {flow.source}"
        + (f" ({names}): name one in the rollback of wave {wave.name}" if found else declare)
    )


def _find_failover_entries(chain: JournalChain, wave: str | None) -> list[JournalEntry]:
    """The entries of the newest failover that is done, of that wave or (None) of any; empty without one."""
    for run in reversed(list(dict.fromkeys(entry.run for entry in chain.entries))):
        entries = chain.run(run)
        if entries[0].observation.get("kind") == "failover" and wave in (None, entries[0].wave) and _done(entries):
            return entries
    return []


def _build_earlier_failover(chain: JournalChain, entries: list[JournalEntry], forward: RunPlan) -> EarlierRun:
    """A failover as a rollback wants to know it: the cut, how far the source was copied, where groups were placed."""
    steps = {entry.step for entry in entries if entry.step not in (RUN_STEP, TAKEOVER_STEP)}
    outcomes = {step: found[0] for step in steps if (found := find_step_outcome(entries, step)) is not None}
    cut, preflight = outcomes["cut_workers_off"], outcomes["failover_preflight"]
    placed = outcomes["place_groups"]["groups"]
    as_migration = {
        **outcomes,
        "preflight": preflight,
        "barrier": {"ends": cut["copied"]},
        "point_of_no_return": {"target_ends": cut["target_ends"]},
        "translate_offsets": {"groups": {name: {"source": {}, "target": at["target"]} for name, at in placed.items()}},
    }
    return EarlierRun(
        run=entries[0].run,
        flow=forward.flow,
        outcomes=StepOutcomes(as_migration),
        state="done",
        switched_ms=next(e.at_ms for e in entries if e.step == "promote" and e.kind == "outcome" and not e.deed),
        moved=forward.wave.consumers,
        fence=find_standing_fence(entries) or _fence_of(chain, entries[0].observation.get("takes_back")),
        unseen=True,
        taken_back=find_rollback_of(chain, entries[0].run),
    )


def _fence_of(chain: JournalChain, run: str | None) -> JsonObject | None:
    """What a migration that was under way when the source died had raised there."""
    return None if run is None else find_standing_fence(chain.run(run))


def find_copied_ends(run_plan: RunPlan) -> dict[Any, int]:
    """Where the divergence is looked for: the old side's partitions with the offsets that were copied."""
    assert run_plan.earlier is not None
    return run_plan.earlier.outcomes.barrier


def _done(entries: list[JournalEntry]) -> bool:
    last = entries[-1]
    return last.step == RUN_STEP and last.kind == "outcome" and last.observation.get("state") == "done"


def _nothing(plan: Plan, wave: str | None, chain: JournalChain) -> str:
    of = f" of wave {wave}" if wave is not None else ""
    open_run = chain.unfinished()
    if open_run and open_run[0].observation.get("kind") == "failover":
        return f"the failover of {plan.topology} (run {open_run[0].run}) is not done: `topology failover --resume`"
    return f"no failover{of} of {plan.topology} is in the journal: there is nothing to fail back from"
