"""The way back behind the point of no return: applications return along the declared flow back, and with them whatever
they have written since the switch (docs/cutover-cases.md, C22, C23, C26).

It takes back the newest migration of its wave, finished or not. One that is not finished is not resumed meanwhile: the
rollback holds the lock, and where it is itself refused, the migration holds it again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from cutover.course import Course, migrate_course, wave_of
from cutover.errors import NothingToRollBack, NotSupported, PlanChanged, WaveBlocked
from cutover.journal.chain import Chain
from cutover.policy import Policy, policy_of
from cutover.rights import given_for
from cutover.rollback.earlier import Earlier, crossed, earlier_of
from cutover.rollback.steps import only_refused, rollback_steps, words
from cutover.runs import work_of
from cutover.waves import wave_states
from topology.plan import Naming, Plan, PlanFlow, Selector, TopicSelection

Stranded = Literal["skip", "reread"]


def rollback_course(
    plan: Plan, wave: str | None, chain: Chain, policy: Policy | None = None, stranded: Stranded | None = None
) -> Course:
    """The course of `topology rollback`, from what the journal says of the migration.

    stranded: what becomes of groups that have passed records which somebody wrote at the old source after the switch.
    Raises NothingToRollBack when no migration of the wave has passed its point of no return, PlanChanged when the file
    moves something else by now, NotSupported for a flow back that does not lead back, WaveBlocked when a wave that
    came after this one is done.
    """
    there = migrate_course(plan, wave)
    entries = crossed(chain, there.wave.name)
    if not entries:
        raise NothingToRollBack(_nothing(plan, there.wave.name, chain))
    first = entries[0]
    if first.observation.get("work") != work_of(there):
        raise PlanChanged(
            f"run {first.run} moved other applications or topics, or by another flow, than wave {there.wave.name} of "
            f"this file does: restore the file that compiles to {first.plan_hash}, or one that moves the same"
        )
    _last_first(plan, there.wave.name, chain)
    rights = given_for(plan, chain, there.flow, there.wave.name)
    earlier = replace(earlier_of(chain, entries, there.flow), rights=rights)
    return course_back(plan, there, earlier, policy or _policy_back(plan, wave), stranded)


def rehearsed(plan: Plan, wave: str | None) -> Course:
    """The same course without a journal, for a dry run: of a migration that went through."""
    there = migrate_course(plan, wave)
    earlier = Earlier("", there.flow, {"preflight": {"partitions": dict.fromkeys(there.wave.topics, 1)}}, "done", 0)
    return course_back(plan, there, replace(earlier, moved=there.wave.consumers), _policy_back(plan, wave), None)


def _last_first(plan: Plan, wave: str, chain: Chain) -> None:
    assert plan.migration is not None
    done = [each.name for each in wave_states(plan, chain) if each.state == "done"]
    later = [name for name in done if wave in plan.migration.wave(name).after]
    if later:
        raise WaveBlocked(
            f"wave {', '.join(later)} of {plan.topology} came after {wave} and is done: its applications count on "
            f"those of {wave}. Roll {', '.join(later)} back first"
        )


def in_a_hurry(policy: Policy) -> Policy:
    """As the file has it for the migration, the bound of the lag as well. But the lag need not stay low for as long:
    who goes back is in a hurry, and the drain decides anyway."""
    return replace(policy, hold_ms=min(policy.hold_ms, Policy().hold_ms))


def _policy_back(plan: Plan, wave: str | None) -> Policy:
    migration, found = wave_of(plan, wave)
    return in_a_hurry(policy_of(found, migration))


def course_back(plan: Plan, there: Course, earlier: Earlier, policy: Policy, stranded: Stranded | None) -> Course:
    """Back from where `there` led, as `earlier` left it. Raises NotSupported for a flow that does not lead back."""
    topics = tuple(sorted(earlier.outcomes["preflight"]["partitions"]))
    reverse = there.wave.rollback.reverse if there.wave.rollback is not None else None
    flow = _stand_in(there.flow, topics) if reverse is None else plan.flow(reverse)
    away, home = there.flow.target, there.flow.source
    _leads_back(flow, there, topics)
    fence = policy.fence
    if earlier.fence is not None:  # of its kind is ours, too, so that each comes down as it rose
        fence = replace(fence, kind=earlier.fence.get("kind", "external"), hook=earlier.fence.get("name", fence.hook))
    policy = replace(policy, strategy="fenced", fence=fence, reverse=None, stranded=stranded)
    wave = replace(
        there.wave,
        topics=tuple(sorted(map(there.flow.target_topic, topics))),
        consumers=tuple(group for group in there.wave.consumers if group in earlier.moved),
    )
    steps = only_refused(policy, away, home) if reverse is None else rollback_steps(policy, away, home)
    return Course("rollback", flow, wave, policy, steps, there.journal, earlier, words(away, home))


def _stand_in(flow: PlanFlow, topics: tuple[str, ...]) -> PlanFlow:
    """Where no flow leads back, one by which both clusters can be looked at."""
    names = tuple(sorted((flow.target_topic(topic), topic) for topic in topics))
    selected = tuple(Selector("literal", name) for name, _ in names)
    naming = Naming("map", map=tuple(pair for pair in names if pair[0] != pair[1]))
    return PlanFlow(f"{flow.target}-to-{flow.source}", flow.target, flow.source, TopicSelection(selected), naming)


def _leads_back(flow: PlanFlow, there: Course, topics: tuple[str, ...]) -> None:
    """The lint rule MIG808 says the same of a file, before anything has moved."""
    if (flow.source, flow.target) != (there.flow.target, there.flow.source):
        raise NotSupported(
            f"flow {flow.id} leads from {flow.source} to {flow.target}, not from {there.flow.target} back to "
            f"{there.flow.source}: name another one in the rollback of wave {there.wave.name}"
        )
    lost = [topic for topic in topics if not _returns(flow, there.flow, topic)]
    if lost:
        raise NotSupported(
            f"flow {flow.id} does not carry {', '.join(map(there.flow.target_topic, lost))} back as "
            f"{', '.join(lost)}: its topics and naming must undo those of {there.flow.id}"
        )


def _returns(flow: PlanFlow, there: PlanFlow, topic: str) -> bool:
    name = there.target_topic(topic)
    return flow.selects(name) and flow.target_topic(name) == topic


def _nothing(plan: Plan, wave: str, chain: Chain) -> str:
    open_run = chain.unfinished()
    told = f"no migration of wave {wave} of {plan.topology} has passed its point of no return"
    if open_run and open_run[0].wave == wave:
        return f"{told}: run {open_run[0].run} is taken back with `topology migrate --abandon`"
    return f"{told}: there is nothing to be rolled back"
