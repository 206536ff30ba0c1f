"""What a rehearsal moves, as a plan of its own: the wave's topics, groups and applications under names that are ours.

Copies are called `watershed.drill.<id>.<topic>`. Names that begin with `watershed.` are internal
(`topology.selectors.INTERNAL_TOPIC_GLOBS`): no pattern of any flow takes them, on either side, whatever it says. That
is why a renamed copy keeps this beginning at the target, and the flow's own renaming comes behind it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace

from watershed.cutover.errors import NotSupported
from watershed.cutover.run_plan import find_wave
from watershed.topology.application_controls import PlanApplication
from watershed.topology.migration_waves import (
    ApprovalGate,
    HoldGate,
    HookGate,
    PlanMigration,
    Wave,
    WaveFence,
    WaveGate,
    WaveHooks,
    WaveStrategy,
)
from watershed.topology.naming import Naming
from watershed.topology.plan import Plan, PlanFlow, seal_plan
from watershed.topology.selectors import Selector, TopicSelection
from watershed.topology.sync_settings import NO_SYNC

DRILL_PREFIX = "watershed.drill."
BACK_RUN_SUFFIX = ".back"  # behind the name of the run there: the run of its way back
MAX_TOPIC_NAME_CHARS = 249  # characters of a topic's name (org.apache.kafka.common.internals.Topic)
_LEFT_OUT_GATES = (ApprovalGate, HoldGate, HookGate)


def _derive_drill_id(run: str) -> str:
    """What tells the copies of one rehearsal from those of another, on both its ways: six hexadecimal digits."""
    return hashlib.sha256(run.removesuffix(BACK_RUN_SUFFIX).encode()).hexdigest()[:6]


def name_copy(run: str, name: str) -> str:
    """What a topic, group or application is called in the rehearsal `run`."""
    return f"{DRILL_PREFIX}{_derive_drill_id(run)}.{name}"


def name_drill_flow(run: str, flow_id: str) -> str:
    """Of its own in every rehearsal: ledger, producer id and transactional ids belong to a flow's id for good. It
    begins with the real flow's id, and so do the transactional ids that workers may use."""
    return f"{flow_id}.drill.{_derive_drill_id(run)}"


def map_copies_to_originals(plan: Plan, wave: str | None, run: str) -> dict[str, str]:
    """Copy at the source → the topic of the wave that it is a copy of."""
    return {name_copy(run, topic): topic for topic in find_wave(plan, wave)[1].topics}


def build_drill_topology(plan: Plan, wave: str | None, run: str, strategy: WaveStrategy | None = None) -> Plan:
    """The plan of the rehearsal `run` of a wave: its clusters, its flow and, where it has one, its flow back, which
    select exactly the copies; the wave, with groups and applications of the rehearsal's own. strategy: another one than
    the file's.

    Raises NotSupported for a wave that cannot be rehearsed, in words for the person who wrote the file.
    """
    migration, found = find_wave(plan, wave)
    flow = plan.flow(migration.flow)
    _refuse(flow, found)
    there = {name_copy(run, topic): name_copy(run, flow.target_topic(topic)) for topic in found.topics}
    flows = [_over(flow, run, there)]
    back = found.rollback.reverse if found.rollback is not None else None
    if back is not None:
        reverse = plan.flow(back)
        names = [flow.target_topic(topic) for topic in found.topics]
        home = {
            name_copy(run, name): name_copy(run, reverse.target_topic(name)) for name in names if reverse.selects(name)
        }
        flows.append(_over(reverse, run, home))
    for each in flows:
        for name in each.topics.literals or ():
            _refuse_long(name, found)
            _refuse_long(each.target_topic(name), found)
    moved = replace(_wave(found, run), strategy=strategy or found.strategy)
    clusters = tuple(each for each in plan.clusters if each.alias in (flow.source, flow.target))
    return seal_plan(
        replace(
            plan,
            clusters=clusters,
            flows=tuple(sorted(flows, key=lambda each: each.id)),
            migration=_migration(migration, moved, found, run),
            proofs={"drill": {"of": plan.hash, "wave": found.name}},
        )
    )


def list_left_out(plan: Plan, wave: str | None) -> tuple[str, ...]:
    """What a migration of the wave has and its rehearsal does not, each with the reason."""
    migration, found = find_wave(plan, wave)
    flow = plan.flow(migration.flow)
    left_out = [f"hooks {point}: {', '.join(names)}" for point, names in _hooks(found) if names]
    if found.fence.kind == "quota":
        left_out.append("the quota fence: it would slow the real applications; producers are stopped instead")
    if found.fence.kind == "external":
        left_out.append(f"the external fence (hook {found.fence.hook}): producers are stopped instead")
    if found.window is not None:
        left_out.append("the window")
    if late := migration.find_late_groups(found):
        left_out.append(f"groups that stay at {flow.source} for later waves: {', '.join(sorted(late))}")
    gates = [*found.gates_before, *found.gates_after]
    left_out += [f"the approval by {gate.by}" for gate in gates if isinstance(gate, ApprovalGate)]
    left_out += [f"holding for {gate.for_ms / 1000:g} s" for gate in gates if isinstance(gate, HoldGate)]
    left_out += [f"the check {gate.hook}" for gate in gates if isinstance(gate, HookGate)]
    left_out += _list_left_out_of_flow(flow)
    if found.rollback is None or found.rollback.reverse is None:
        left_out.append("the way back: the wave has no rollback.reverse")
    return tuple(left_out)


def _list_left_out_of_flow(flow: PlanFlow) -> Iterator[str]:
    kinds = (flow.sync.groups, flow.sync.acls, flow.sync.quotas, flow.sync.users, flow.sync.schemas)
    if any(each.mode != "never" for each in kinds):
        yield "what travels beside records (sync): groups, rights, quotas, users, schema ids"
    if flow.compatibility is not None:
        yield "what is written for MirrorMaker's clients (compatibility)"
    if flow.start != "earliest":
        yield f"start: {flow.start}; the copies are copied from their start"
    if flow.end is not None:
        yield f"end: {flow.end}; the copies have no end"
    if flow.breach is not None:
        yield f"slo.on_breach: {flow.breach.action}; no budget stops the rehearsal"


def _refuse(flow: PlanFlow, wave: Wave) -> None:
    if wave.is_late:
        raise NotSupported(
            f"wave {wave.name} moves groups after their producers, which the rehearsal of another wave shows: rehearse "
            "the wave that moves the producers"
        )
    if not wave.topics:
        raise NotSupported(f"wave {wave.name} names no topics: a rehearsal makes copies of those that are named")
    strange = [topic for topic in wave.topics if not flow.selects(topic)]
    if strange:
        raise NotSupported(f"flow {flow.id} does not carry {', '.join(strange)} of wave {wave.name}")


def _refuse_long(name: str, wave: Wave) -> None:
    if len(name) > MAX_TOPIC_NAME_CHARS:
        raise NotSupported(
            f"a copy for the rehearsal of wave {wave.name} would be called {name}, which has {len(name)} characters; "
            f"topics have {MAX_TOPIC_NAME_CHARS} at most. This topic cannot be rehearsed: leave it out of a wave "
            f"for the rehearsal"
        )


def _over(flow: PlanFlow, run: str, names: dict[str, str]) -> PlanFlow:
    """The flow over copies alone, source name → target name, with everything else as it is."""
    renamed = tuple(sorted((here, there) for here, there in names.items() if here != there))
    return replace(
        flow,
        id=name_drill_flow(run, flow.id),
        topics=TopicSelection(tuple(Selector("literal", name) for name in sorted(names)), allow_internal=True),
        naming=Naming("map", map=renamed) if renamed else Naming(),
        start="earliest",
        end=None,
        sync=NO_SYNC,
        protect=False,
        compatibility=None,
        breach=None,  # whether the copy is late says nothing of the flow
    )


def _wave(wave: Wave, run: str) -> Wave:
    back = wave.rollback
    if back is not None and back.reverse is not None:
        back = replace(back, reverse=name_drill_flow(run, back.reverse), until_ms=None)
    return replace(
        wave,
        topics=tuple(name_copy(run, each) for each in wave.topics),
        consumers=tuple(name_copy(run, each) for each in wave.consumers),
        producers=tuple(name_copy(run, each) for each in wave.producers),
        after=(),
        gates_before=_gates(wave.gates_before),
        gates_after=_gates(wave.gates_after),
        rollback=back,
        window=None,
        fence=wave.fence if wave.fence.kind == "acl" else WaveFence(),
        hooks=WaveHooks(),
    )


def _gates(gates: tuple[WaveGate, ...]) -> tuple[WaveGate, ...]:
    return tuple(gate for gate in gates if not isinstance(gate, _LEFT_OUT_GATES))


def _migration(migration: PlanMigration, moved: Wave, wave: Wave, run: str) -> PlanMigration:
    """Principals stay those of the real applications: it is their rights that an acl fence denies."""
    known = migration.applications
    return PlanMigration(
        flow=name_drill_flow(run, migration.flow),
        strategy=migration.strategy,
        waves=(moved,),
        applications={
            name_copy(run, name): PlanApplication(principal=known[name].principal, client_id=known[name].client_id)
            for name in (*wave.consumers, *wave.producers)
            if name in known
        },
        groups={name_copy(run, name): each for name, each in migration.groups.items() if name in wave.consumers},
        journal=migration.journal,
    )


def _hooks(wave: Wave) -> list[tuple[str, tuple[str, ...]]]:
    points = ("before", "fenced", "switched", "rolled_back")
    return [(point.replace("_", " "), getattr(wave.hooks, point)) for point in points]
