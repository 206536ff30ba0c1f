"""The way back behind the point of no return: applications return along the declared flow back, and with them whatever
they have written since the switch (docs/cutover-cases.md, C22, C23, C26).

It takes back the newest migration of its wave, finished or not. One that is not finished is not resumed meanwhile: the
rollback holds the lock, and where it is itself refused, the migration holds it again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from watershed.cutover.errors import NothingToRollBack, NotSupported, PlanChanged, WaveBlocked
from watershed.cutover.journal.hash_chain import JournalChain
from watershed.cutover.policy import WavePolicy, build_wave_policy
from watershed.cutover.rollback.earlier_run import (
    EarlierRun,
    build_earlier_run,
    find_late_move,
    find_switched_migration,
)
from watershed.cutover.rollback.rollback_step_order import (
    build_rollback_texts,
    list_late_rollback_steps,
    list_refusal_steps,
    list_rollback_steps,
)
from watershed.cutover.run_claim import encode_run_work
from watershed.cutover.run_plan import RunPlan, find_wave, plan_migration
from watershed.cutover.step_outcomes import StepOutcomes
from watershed.cutover.wave_states import list_wave_states
from watershed.cutover.withheld_rights_steps import find_rights_to_take
from watershed.topology.naming import Naming
from watershed.topology.plan import Plan, PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

StrandedChoice = Literal["skip", "reread"]


def plan_rollback(
    plan: Plan,
    wave: str | None,
    chain: JournalChain,
    policy: WavePolicy | None = None,
    stranded: StrandedChoice | None = None,
) -> RunPlan:
    """The run plan of `topology rollback`, from what the journal says of the migration.

    stranded: what becomes of groups that have passed records which somebody wrote at the old source after the switch.
    Raises NothingToRollBack when no migration of the wave has passed its point of no return, PlanChanged when the file
    moves something else by now, NotSupported for a flow back that does not lead back, WaveBlocked when a wave that
    came after this one is done.
    """
    forward = plan_migration(plan, wave)
    late = forward.wave.is_late
    entries = (find_late_move if late else find_switched_migration)(chain, forward.wave.name)
    if not entries:
        raise NothingToRollBack(_nothing(plan, forward.wave.name, chain))
    first = entries[0]
    if first.observation.get("work") != encode_run_work(forward):
        raise PlanChanged(
            f"run {first.run} moved other applications or topics, or by another flow, than wave {forward.wave.name} of "
            f"this file does: restore the file that compiles to {first.plan_hash}, or one that moves the same"
        )
    _last_first(plan, forward.wave.name, chain)
    rights = () if late else find_rights_to_take(plan, chain, forward.flow, forward.wave.name)
    earlier = replace(build_earlier_run(chain, entries, forward.flow), rights=rights)
    return plan_way_back(plan, forward, earlier, policy or _policy_back(plan, wave), stranded)


def preview_rollback(plan: Plan, wave: str | None) -> RunPlan:
    """The same run plan without a journal, for a dry run: of a migration that went through."""
    forward = plan_migration(plan, wave)
    earlier = EarlierRun(
        "", forward.flow, StepOutcomes(preflight={"partitions": dict.fromkeys(forward.wave.topics, 1)}), "done", 0
    )
    return plan_way_back(plan, forward, replace(earlier, moved=forward.wave.consumers), _policy_back(plan, wave), None)


def _last_first(plan: Plan, wave: str, chain: JournalChain) -> None:
    assert plan.migration is not None
    done = [each.name for each in list_wave_states(plan, chain) if each.state == "done"]
    later = [name for name in done if wave in plan.migration.wave(name).after]
    if later:
        raise WaveBlocked(
            f"wave {', '.join(later)} of {plan.topology} came after {wave} and is done: its applications count on "
            f"those of {wave}. Roll {', '.join(later)} back first"
        )


def shorten_lag_hold(policy: WavePolicy) -> WavePolicy:
    """As the file has it for the migration, the bound of the lag as well. But the lag need not stay low for as long:
    who goes back is in a hurry, and the drain decides anyway."""
    return replace(policy, hold_ms=min(policy.hold_ms, WavePolicy().hold_ms))


def _policy_back(plan: Plan, wave: str | None) -> WavePolicy:
    migration, found = find_wave(plan, wave)
    return shorten_lag_hold(build_wave_policy(found, migration))


def plan_way_back(
    plan: Plan, forward: RunPlan, earlier: EarlierRun, policy: WavePolicy, stranded: StrandedChoice | None
) -> RunPlan:
    """Back from where `forward` led, as `earlier` left it. Raises NotSupported for a flow that does not lead back."""
    topics = tuple(sorted(earlier.outcomes.partitions))
    reverse = forward.wave.rollback.reverse if forward.wave.rollback is not None else None
    flow = _stand_in(forward.flow, topics) if reverse is None else plan.flow(reverse)
    away, home = forward.flow.target, forward.flow.source
    _leads_back(flow, forward, topics)
    fence = policy.fence
    if earlier.fence is not None:  # of its kind is ours, too, so that each comes down as it rose
        fence = replace(fence, kind=earlier.fence.get("kind", "external"), hook=earlier.fence.get("name", fence.hook))
    policy = replace(policy, strategy="fenced", fence=fence, reverse=None, stranded=stranded)
    wave = replace(
        forward.wave,
        topics=tuple(sorted(map(forward.flow.target_topic, topics))),
        consumers=tuple(group for group in forward.wave.consumers if group in earlier.moved),
    )
    listed = list_late_rollback_steps if forward.wave.is_late else list_rollback_steps
    steps = (list_refusal_steps if reverse is None else listed)(policy, away, home)
    return RunPlan("rollback", flow, wave, policy, steps, forward.journal, earlier, build_rollback_texts(away, home))


def _stand_in(flow: PlanFlow, topics: tuple[str, ...]) -> PlanFlow:
    """Where no flow leads back, one by which both clusters can be looked at."""
    names = tuple(sorted((flow.target_topic(topic), topic) for topic in topics))
    selected = tuple(Selector("literal", name) for name, _ in names)
    naming = Naming("map", map=tuple(pair for pair in names if pair[0] != pair[1]))
    return PlanFlow(f"{flow.target}-to-{flow.source}", flow.target, flow.source, TopicSelection(selected), naming)


def _leads_back(flow: PlanFlow, forward: RunPlan, topics: tuple[str, ...]) -> None:
    """The lint rule MIG808 says the same of a file, before anything has moved."""
    if (flow.source, flow.target) != (forward.flow.target, forward.flow.source):
        raise NotSupported(
            f"flow {flow.id} leads from {flow.source} to {flow.target}, not from {forward.flow.target} back to "
            f"{forward.flow.source}: name another one in the rollback of wave {forward.wave.name}"
        )
    lost = [topic for topic in topics if not _returns(flow, forward.flow, topic)]
    if lost:
        raise NotSupported(
            f"flow {flow.id} does not carry {', '.join(map(forward.flow.target_topic, lost))} back as "
            f"{', '.join(lost)}: its topics and naming must undo those of {forward.flow.id}"
        )


def _returns(flow: PlanFlow, forward: PlanFlow, topic: str) -> bool:
    name = forward.target_topic(topic)
    return flow.selects(name) and flow.target_topic(name) == topic


def _nothing(plan: Plan, wave: str, chain: JournalChain) -> str:
    open_run = chain.unfinished()
    assert plan.migration is not None
    refusal = f"no migration of wave {wave} of {plan.topology} has passed its point of no return"
    if plan.migration.wave(wave).is_late:
        refusal = f"no migration has moved the late groups of wave {wave} of {plan.topology}"
    if open_run and open_run[0].wave == wave:
        return f"{refusal}: run {open_run[0].run} is taken back with `topology migrate --abandon`"
    return f"{refusal}: there is nothing to be rolled back"
