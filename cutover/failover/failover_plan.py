"""The steps of a failover as a table, and the run plan that they make."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final

from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.errors import NotSupported
from watershed.cutover.fences.journaled_fence import find_standing_fence
from watershed.cutover.journal.hash_chain import JournalChain, JournalEntry
from watershed.cutover.migration_step_order import Step, list_named_steps
from watershed.cutover.offsets import decode_offsets
from watershed.cutover.policy import WavePolicy, build_wave_policy
from watershed.cutover.rollback.earlier_run import EarlierRun, find_producer_switches, list_moved_groups
from watershed.cutover.run_claim import read_run_kind
from watershed.cutover.run_plan import RunPlan, find_wave
from watershed.cutover.step_outcomes import StepOutcomes
from watershed.cutover.wave_states import WAVE_SEPARATOR, WaveState, list_wave_states
from watershed.topology.migration_waves import PlanMigration, Wave, WaveFence, WaveHooks, list_producer_waves
from watershed.topology.plan import Plan, PlanFlow

_ORDER: Final = (
    *("failover_preflight", "source_gone", "fence_source", "stop_forwarding", "declare_loss", "accept_loss"),
    *("hooks_before", "promote", "end_unfinished", "cut_workers_off", "lift_protection", "give_rights"),
    *("stop_at_source", "place_groups", "landing_at_target", "start_consumers_there", "switch_producers"),
    *("canary_there", "hooks_switched", "consumers_joined", "seal_failover"),
)


def plan_failover(
    plan: Plan,
    wave: str | None = None,
    policy: WavePolicy | None = None,
    chain: JournalChain | None = None,
    run: str | None = None,
    *,
    accept_loss: int | None = None,
    though_source_answers: bool = False,
) -> RunPlan:
    """Promote the target of the migration's flow. wave None: everything that the migration names, because the source is
    gone for all of it. Asks no cluster. policy: instead of the file's, which takes accept_loss and
    though_source_answers.

    Without the `chain` of the journal nothing is known of waves that have moved, of a failover that is unfinished (or
    of the `run` of that name), nor of a migration that was under way when the source died, which the failover ends.
    Raises NotSupported, in words for the person who wrote the file.
    """
    own = [] if chain is None else _own(chain, run)
    moved = () if chain is None else _moved(plan, chain)
    if chain is not None and wave is None and not own:
        _refuse_halfway(plan, chain, moved)
    if chain is not None and not own:
        _refuse_left_groups(plan, chain, wave, moved)
        _refuse_forgotten_groups(plan, chain, wave, moved)
    chosen = join_waves(plan, own[0].wave if own else wave, moved)
    migration = plan.migration
    assert migration is not None  # or there were no wave
    if chosen.is_late:
        producers = WAVE_SEPARATOR.join(each.name for each in list_producer_waves(chosen, migration.waves))
        raise NotSupported(
            f"wave {chosen.name} has groups and no producers: it is promoted together with those of its topics (--wave "
            f"{producers}{WAVE_SEPARATOR}{chosen.name}, or no --wave for everything)"
        )
    if policy is None:
        declared = build_wave_policy(chosen, migration)
        left = {} if chain is None else _find_left_groups(plan, chain, chosen, of_all=wave is None)
        policy = replace(
            declared, accept_loss=accept_loss, though_source_answers=though_source_answers, late_groups=left
        )
    if any(entry.step == "fence_source" for entry in own):  # it was begun so, and its fence is to be taken back
        policy = replace(policy, though_source_answers=True)
    flow = plan.flow(migration.flow)
    earlier = None if chain is None else _under_way(chain, own, flow)
    steps = _list_failover_steps(policy, flow, under_way=earlier is not None)
    return RunPlan("failover", flow, chosen, policy, steps, flow.target, earlier)


def _own(chain: JournalChain, run: str | None) -> list[JournalEntry]:
    """The entries of the failover that is to be continued; empty when it is a new one."""
    named = chain.run(run) if run is not None else []
    entries = named or chain.unfinished()
    return entries if entries and entries[0].observation.get("kind") == "failover" else []


def _moved(plan: Plan, chain: JournalChain) -> tuple[str, ...]:
    """Waves whose producers are at the target, and late groups of whose topics any has moved. A wave that has passed
    its point of no return and started none there is promoted like any other."""
    if plan.migration is None:
        return ()
    target = plan.flow(plan.migration.flow).target
    open_run = _migration(chain)
    waits = open_run[0].wave if open_run and not _deeds(open_run, "StartApplication", "name", role="producer") else None
    late = {wave.name for wave in plan.migration.waves if wave.is_late}
    return tuple(
        each.name
        for each in list_wave_states(plan, chain)
        if each.at_source or (each.truth == target and (each.name != waits or each.name in late))
    )


def _find_left_groups(plan: Plan, chain: JournalChain, chosen: Wave, *, of_all: bool) -> dict[str, str]:
    """Late groups that stay behind, because producers of their topics have moved already: how far they had read there,
    only the source can say. Those of the promoted topics, or of all. Group → its wave."""
    assert plan.migration is not None
    behind = {group: each.name for each in list_wave_states(plan, chain) for group in each.at_source}
    asked = behind if of_all else plan.migration.find_late_groups(chosen)
    return {group: name for group, name in behind.items() if group in asked and group not in chosen.consumers}


def _refuse_halfway(plan: Plan, chain: JournalChain, moved: Collection[str]) -> None:
    """Raises NotSupported for a wave whose producers have been switched and whose consumers have not: where these had
    read to, only its own run can ask the source."""
    open_run = _migration(chain)
    if plan.migration is None or not open_run or open_run[0].wave not in moved:
        return
    found, flow = plan.migration.wave(open_run[0].wave), plan.flow(plan.migration.flow)
    if found.is_late:
        return  # `_refuse_left_groups` says what is to be said of it
    left = [group for group in found.consumers if group not in list_moved_groups(open_run)]
    others = [each.name for each in plan.migration.waves if each.name not in moved]
    if left:
        raise NotSupported(
            f"run {open_run[0].run} has switched the producers of wave {found.name} to {flow.target}, and its "
            f"consumers ({', '.join(left)}) are still at {flow.source}. When {flow.source} is back, `topology migrate "
            f"--resume` moves them exactly. If that takes too long, start them at {flow.target} by hand: they go on "
            "where `sync.groups` last carried them and read again what came since, and that run stays unfinished"
            + (
                f". The other waves are promoted with --wave {WAVE_SEPARATOR.join(others)}, which ends that run"
                if others
                else ""
            )
        )


def _refuse_left_groups(plan: Plan, chain: JournalChain, wave: str | None, moved: Collection[str]) -> None:
    """Raises NotSupported where nothing is left to be promoted but late groups, or these are asked for: where they had
    read to, only the source can say."""
    if plan.migration is None:
        return
    flow = plan.flow(plan.migration.flow)
    left = [each for each in list_wave_states(plan, chain) if each.at_source]
    if wave is not None:
        left = [each for each in left if each.name in wave.split(WAVE_SEPARATOR)]
    elif {each.name for each in plan.migration.waves} - set(moved):
        return  # others are promoted; these groups are not among them
    if left:
        groups = ", ".join(group for each in left for group in each.at_source)
        first = _describe_moves_before(plan, chain, left)
        raise NotSupported(
            f"producers have moved to {flow.target} already, and the groups {groups} were still at {flow.source}: how "
            f"far they had read, only {flow.source} can say. When it is back, `topology migrate --wave {left[0].name}` "
            f"moves them exactly{first}. If that takes too long, their owners choose where they begin at {flow.target} "
            "(kafka-consumer-groups --reset-offsets), and they read again or miss what lies between"
        )


def _describe_moves_before(plan: Plan, chain: JournalChain, left: Collection[WaveState]) -> str:
    """What comes before late waves may move, as the end of a sentence; empty where nothing does."""
    assert plan.migration is not None
    late = [each.name for each in left]
    others = list(dict.fromkeys(name for each in late for name in _list_waves_before_move(plan.migration, chain, each)))
    if not others:
        return ""
    truths = {each.name: each.truth for each in list_wave_states(plan, chain)}
    promoted = [name for name in others if truths[name] == plan.flow(plan.migration.flow).target]
    taken_back = "has been taken back (`topology failback`), and "
    back = f"the failover of wave {', '.join(promoted)} {taken_back}" if promoted else ""
    return f", once {back}wave {', '.join(others)} has been moved by `topology migrate`"


def _list_waves_before_move(migration: PlanMigration, chain: JournalChain, late: str) -> list[str]:
    """Producers' waves of a late wave that no migration has moved: it moves behind all of them."""
    before = [each.name for each in list_producer_waves(migration.wave(late), migration.waves)]
    switched = {each.wave for each in find_producer_switches(chain, before)}
    return [name for name in before if name not in switched]


def _refuse_forgotten_groups(plan: Plan, chain: JournalChain, wave: str | None, moved: Collection[str]) -> None:
    """Raises NotSupported where named waves move producers without the late groups of their topics: behind a failover
    no wave would move these. Groups whose producers have moved already are left out, `_refuse_left_groups` has them."""
    if plan.migration is None or wave is None:
        return
    named = wave.split(WAVE_SEPARATOR)
    behind = {each.name for each in list_wave_states(plan, chain) if each.at_source}
    late: dict[str, str] = {}
    for each in plan.migration.waves:
        if each.name in named and each.name not in moved:
            late |= plan.migration.find_late_groups(each)
    left = {group: name for group, name in late.items() if name not in {*named, *moved, *behind}}
    if left:
        together = WAVE_SEPARATOR.join(dict.fromkeys((*named, *left.values())))
        raise NotSupported(
            f"the groups {', '.join(left)} read topics of wave {wave}, and nothing moves them after a failover of its "
            f"producers: promote them together (--wave {together}, or no --wave for everything)"
        )


def _migration(chain: JournalChain) -> list[JournalEntry]:
    """The entries of the migration that holds the lock; empty when none does."""
    found = chain.unfinished()
    return found if found and read_run_kind(found) == "migrate" else []


def _deeds(entries: list[JournalEntry], deed: str, what: str, **fields: str) -> set[str]:
    """What these deeds at the target were about."""
    seen = (e.observation for e in entries if e.deed == deed and e.kind == "intent")
    wanted = {"side": "target", **fields}
    return {each[what] for each in seen if all(each.get(key) == value for key, value in wanted.items())}


def _under_way(chain: JournalChain, own: list[JournalEntry], flow: PlanFlow) -> EarlierRun | None:
    """The run that holds the lock and was begun when the source still lived, as this failover found it."""
    if own:
        ended = own[0].observation.get("takes_back")
        entries = chain.run(ended) if ended is not None else []
    else:
        entries = chain.unfinished()
    if not entries:
        return None
    ours: dict[str, list[Mapping[TopicPartition, int]]] = {}
    for entry in entries:
        seen = entry.observation
        if entry.deed == "CommitOffsets" and entry.kind == "intent" and seen["side"] == "target":
            ours.setdefault(seen["group"], []).append(decode_offsets(seen["offsets"]))
    return EarlierRun(
        run=entries[0].run,
        flow=flow,
        outcomes=StepOutcomes(),
        state="",
        switched_ms=0,
        fence=find_standing_fence(entries),
        ours={group: tuple(found) for group, found in ours.items()},
    )


def join_waves(plan: Plan, wave: str | None, moved: Collection[str] = ()) -> Wave:
    """One wave, several as one (`a+b`), or (None) all that have not moved. Raises NotSupported."""
    migration = plan.migration
    if migration is None or not migration.waves:
        return find_wave(plan, wave)[1]  # says what is missing
    names = wave.split(WAVE_SEPARATOR) if wave is not None else [w.name for w in migration.waves if w.name not in moved]
    if not names:
        raise NotSupported(
            f"every wave of {plan.topology} has moved to the target already ({', '.join(sorted(moved))})"
        )
    waves = [find_wave(plan, name)[1] for name in names]
    if len(waves) == 1:
        return waves[0]
    return Wave(
        name=WAVE_SEPARATOR.join(names),
        topics=_once(*(each.topics for each in waves)),
        consumers=_once(*(each.consumers for each in waves)),
        producers=_once(*(each.producers for each in waves)),
        strategy="fenced",
        gates_before=tuple(gate for each in waves for gate in each.gates_before),
        gates_after=tuple(gate for each in waves for gate in each.gates_after),
        rollback=next((each.rollback for each in waves if each.rollback is not None), None),
        fence=next((each.fence for each in waves if each.fence.kind != "stop"), WaveFence()),
        hooks=WaveHooks(
            before=_once(*(each.hooks.before for each in waves)),
            fenced=_once(*(each.hooks.fenced for each in waves)),
            switched=_once(*(each.hooks.switched for each in waves)),
            rolled_back=_once(*(each.hooks.rolled_back for each in waves)),
        ),
    )


def _once(*names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for each in names for name in each))


def _list_failover_steps(policy: WavePolicy, flow: PlanFlow, *, under_way: bool = False) -> tuple[Step, ...]:
    """In their order; those that the wave does not ask for are left out. under_way: another run holds the lock."""
    own = {row.name: row for row in _rows(policy, flow)}
    rows = own | {row.name: row for row in list_named_steps(policy, tuple(name for name in _ORDER if name not in own))}
    unasked = {"end_unfinished": under_way, "lift_protection": flow.protect}
    left_out = {name for name, asked in unasked.items() if not asked}
    steps = [rows[name] for name in _ORDER if name in rows and name not in left_out]
    crossed = next(at for at, step in enumerate(steps) if step.point_of_no_return)
    back = f"by `topology failback`, once {flow.source} is there again"
    return tuple(replace(step, undo=back) if at > crossed else step for at, step in enumerate(steps))


def _rows(policy: WavePolicy, flow: PlanFlow) -> Iterator[Step]:
    source, target, reach = flow.source, flow.target, policy.reach_ms
    look = f"{target} answers, holds the topics and a position of every group; applications can be started"
    yield Step("failover_preflight", look, "watershed", None, reach)
    gone = f"{source} does not answer, at several looks" if not policy.though_source_answers else f"{source} is asked"
    yield Step("source_gone", gone, "watershed", None, reach)
    if policy.though_source_answers:
        does = f"producers stop at {source}, and the fence of the file is raised there"
        yield Step("fence_source", does, "application", "the fence is lowered, producers start again", reach)
    yield Step(
        "stop_forwarding",
        f"the flow {flow.id} lets go of the topics and is stopped",
        "watershed",
        "it copies them again, and runs if it ran",
        reach,
    )
    does = "what is missing: by what workers last saw of the source, in offsets and seconds, for each partition"
    yield Step("declare_loss", does, "watershed", None, reach)
    accepted = "--accept-loss covers it" if policy.accept_loss is not None else "a person accepts these numbers"
    yield Step("accept_loss", accepted, "person", None)
    yield Step(
        "promote",
        "a last look: the flow is still stopped, and no more is missing than was accepted",
        "watershed",
        None,
        reach,
        point_of_no_return=True,
    )
    does = "the run that was under way when the source died is ended: its journal says by which failover"
    yield Step("end_unfinished", does, "watershed", None)
    does = "producers of the flow are fenced in every log: a worker that wakes up later can write nothing"
    yield Step("cut_workers_off", does, "watershed", None, reach)
    if flow.protect:
        does = "the denials that protected the topics are taken away, of other waves too: the flow has ended"
        yield Step("lift_protection", does, "watershed", None, reach)
    yield Step("give_rights", "rights to write that were held back are given", "watershed", None, reach)
    does = f"applications let go of {source}; one that does not answer is noted"
    yield Step("stop_at_source", does, "application", None, reach)
    does = "positions that the flow carried stay; where there are none, the file's policy is committed"
    yield Step("place_groups", does, "watershed", None, reach)
    yield Step("landing_at_target", "at each position stands a record, or the log's end", "watershed", None, reach)
    yield Step("start_consumers_there", f"consumers start at {target}", "application", None, reach)
    yield Step("canary_there", "the first writes are read back", "watershed", None, policy.canary_bound_ms)
    yield Step("seal_failover", "the evidence pack is written", "watershed", None)
