"""What every step of one migration stands on: the plan's part of it, and the outcomes of the steps before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import ClusterSide, JsonObject, ReadCopies, ReadFlow, ReadLogs, ReadTopics
from watershed.cutover.errors import Refused
from watershed.cutover.observations import ObservedCopies, ObservedFlow, ObservedLogs, ObservedTopics
from watershed.cutover.offsets import list_partitions
from watershed.cutover.policy import WavePolicy
from watershed.cutover.polling import ActionGenerator, perform_action
from watershed.cutover.rollback.earlier_run import EarlierRun
from watershed.cutover.step_outcomes import StepOutcomes, TranslatedGroup
from watershed.replicator.ledger.offset_translation import CopiedPartition
from watershed.topology.migration_waves import Wave
from watershed.topology.plan import PlanFlow


@dataclass(frozen=True, slots=True)
class RunContext:
    """`outcomes`: step → its outcome; filled by the migration as it goes, or from the journal when it resumes.
    ago_ms: step → how long ago it was first begun, for steps that let time pass: a driver that takes over does not
    begin such a time anew. earlier: the run that this one takes back."""

    flow: PlanFlow
    wave: Wave
    policy: WavePolicy
    outcomes: StepOutcomes = field(default_factory=StepOutcomes)
    earlier: EarlierRun | None = None
    ago_ms: dict[str, int] = field(default_factory=dict)

    def left_ms(self, step: str, whole_ms: int) -> int:
        """What is left of a time that the step lets pass, at least 0 and at most the whole of it."""
        return max(0, whole_ms - self.ago_ms.get(step, 0))

    @property
    def groups(self) -> tuple[str, ...]:
        """Consumer groups of the wave, by their names at the flow's source."""
        return self.wave.consumers

    @property
    def producers(self) -> tuple[str, ...]:
        """Producer applications of the wave."""
        return self.wave.producers

    @property
    def readers(self) -> tuple[str, ...]:
        """Groups whose applications only read; those that write, too, stop and start with the producers."""
        return tuple(group for group in self.groups if group not in self.producers)

    @property
    def is_late(self) -> bool:
        """Whether it moves groups whose producers have moved with earlier waves (`consumers_last`)."""
        return self.policy.strategy == "consumers_last"

    @property
    def run_taken_back(self) -> EarlierRun:
        """The run that this one takes back; every way back has one."""
        assert self.earlier is not None
        return self.earlier

    def partitions(self) -> dict[str, int]:
        """Source topic → partition count, as preflight fixed it."""
        return self.outcomes.partitions

    def source_places(self) -> tuple[TopicPartition, ...]:
        """Partitions of the wave's topics at the source, as preflight counted them."""
        return list_partitions(self.partitions())

    def target_places(self) -> tuple[TopicPartition, ...]:
        """The same partitions by their names at the target."""
        return list_partitions({self.rename(topic): count for topic, count in self.partitions().items()})

    def rename(self, topic: str) -> str:
        """Name of a source topic at the target."""
        return self.flow.target_topic(topic)

    def at_target(self, place: TopicPartition) -> TopicPartition:
        """The same partition by its name at the target."""
        return TopicPartition(self.rename(place.topic), place.partition)

    def was_running(self, application: str) -> bool:
        """Whether the application ran when the migration began: an undo starts only what it stopped."""
        return self.outcomes.applications.get(application) != "stopped"

    def find_former(self, application: str) -> JsonObject:
        """What an order to start needs to know (replicas of workloads): from the preflight of this run, or, where a
        failed run had left the application at 0, of the run that this one takes back."""
        own = self.outcomes.find_former(application)
        if self.earlier is None or any(own.get("replicas", {}).values()):
            return own
        earlier = self.earlier.outcomes.find_former(application).get("replicas")
        return own if earlier is None else {**own, "replicas": earlier}

    def kind_of(self, group: str) -> str:
        """`ObservedGroup.kind` as preflight saw it: a Streams application in a classic group shows only while it
        runs."""
        return self.outcomes.find_group(group).kind

    def is_static(self, group: str) -> bool:
        """Whether preflight saw static members, whose places outlive them for a session timeout."""
        return self.outcomes.find_group(group).static

    def internal(self, group: str) -> tuple[str, ...]:
        """Topics that a Streams application keeps for itself."""
        return self.outcomes.find_group(group).internal

    def list_needed_partitions(self, group: str) -> tuple[TopicPartition, ...]:
        """The source partitions in which the group needs a position: of the wave's topics that it reads."""
        partitions, reads = self.partitions(), self.outcomes.find_group(group).reads
        return list_partitions(partitions if reads is None else {topic: partitions[topic] for topic in reads})

    def translated(self, group: str) -> TranslatedGroup:
        """Source and target offsets of a group, from the step of this run that translated them."""
        moved = self.outcomes.find_translation(group)
        assert moved is not None, f"group {group} has not been translated"
        return moved

    def behind(
        self, held: Mapping[TopicPartition, CopiedPartition], logs: ObservedLogs, upto: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Source offsets below `upto` that are not on the target, without partitions that miss nothing.

        A log that holds nothing and of which nothing was copied misses nothing. Raises Refused when the source's log
        begins behind the copied position: what lay between is gone, and no waiting brings it.
        """
        out: dict[TopicPartition, int] = {}
        expired: dict[TopicPartition, int] = {}
        for place, end in sorted(upto.items()):
            start = logs.starts[place]
            position = held[place].position if place in held and held[place].map.runs else start
            if position < start:
                expired[place] = position
            elif position < end:
                out[place] = end - position
        if expired:
            named = "; ".join(f"{p}: source offsets {at} to {logs.starts[p] - 1}" for p, at in expired.items())
            raise Refused(
                f"{named} expired before they were copied: {self.flow.target} can never hold them. Raise the source's "
                f"retention, and copy these topics anew with another flow before they are migrated",
                {"expired": {str(p): logs.starts[p] - at for p, at in expired.items()}},
            )
        return out

    @property
    def cut(self) -> dict[TopicPartition, int] | None:
        """Where the copy ends on the target and the applications' own writes begin; None before the switch."""
        passed = "target_ends" in self.outcomes.get("point_of_no_return", {})
        return self.outcomes.cut if passed else None


def read_source_logs(context: RunContext) -> ActionGenerator[ObservedLogs]:
    """Starts and ends of the wave's partitions at the source."""
    return (yield from perform_action(ReadLogs("source", context.source_places()), ObservedLogs, context.policy))


def read_target_logs(context: RunContext) -> ActionGenerator[ObservedLogs]:
    """Starts and ends of the wave's partitions at the target."""
    return (yield from perform_action(ReadLogs("target", context.target_places()), ObservedLogs, context.policy))


def refuse_new_partitions(context: RunContext) -> ActionGenerator[None]:
    """Raises Refused when a topic of the wave has other partitions than preflight found: nobody would look at what is
    in them, and groups would have no positions there."""
    known, grown = context.partitions(), []
    sides: tuple[tuple[ClusterSide, str], ...] = (("source", context.flow.source), ("target", context.flow.target))
    for side, alias in sides:
        now = (yield from perform_action(ReadTopics(side), ObservedTopics, context.policy)).partitions
        for topic, count in known.items():
            name = topic if side == "source" else context.rename(topic)
            if now.get(name, 0) != count:
                grown.append(f"topic {name} has {now.get(name, 0)} partitions at {alias}, and had {count}")
    if grown:
        raise Refused(f"{'; '.join(grown)} when this run began: a new run moves what is there now", {"grown": grown})


def refuse_paused_topics(context: RunContext, topics: Iterable[str], flow: str | None = None) -> ActionGenerator[None]:
    """Raises Refused when a person has paused one of these source topics, or a partition of it. flow None: the one
    along which applications move."""
    state = yield from perform_action(ReadFlow(flow), ObservedFlow, context.policy)
    paused = [state.paused_topics[name] for name in sorted(set(topics) & set(state.paused_topics))]
    if paused:
        raise Refused(f"flow {flow or context.flow.id} does not copy what this run needs: {'; '.join(paused)}")


def read_copies(context: RunContext, more: tuple[TopicPartition, ...] = ()) -> ActionGenerator[ObservedCopies]:
    """Behind the cut stands nothing that was copied, so the target's log is taken to end there. more: source partitions
    besides those that preflight found."""
    seen = yield from perform_action(ReadCopies((*context.source_places(), *more)), ObservedCopies, context.policy)
    cut = context.cut
    if cut is None:
        return seen
    held = {
        p: replace(each, target_end=min(each.target_end, cut[context.at_target(p)])) for p, each in seen.copies.items()
    }
    return replace(seen, copies=held)


_PAUSES_EVERY_MS: Final = 5_000  # while something is waited for, somebody may pause it


@dataclass(slots=True)
class CopyProgress:
    """Notices a flow that stands still: positions that do not change while something is left to copy. flow None: the
    one along which applications move; else the way back."""

    context: RunContext
    flow: str | None = None
    _positions: dict[TopicPartition, int] = field(default_factory=dict)
    _since_ms: int | None = None
    _pauses_due_ms: int | None = None

    def look(self, seen: ObservedCopies, behind: Mapping[TopicPartition, int]) -> ActionGenerator[None]:
        """Raises Refused when a partition that is waited for was paused meanwhile, when one is halted, or when nothing
        moved for `policy.stall_ms`."""
        policy, moved = self.context.policy, self.context.flow
        name, there = (moved.id, moved.target) if self.flow is None else (self.flow, moved.source)
        yield from self._refuse_paused(seen.at_ms, behind)
        positions = {place: held.position for place, held in seen.copies.items()}
        if self._since_ms is None or positions != self._positions or not behind:
            self._positions, self._since_ms = positions, seen.at_ms
            return
        if seen.at_ms - self._since_ms < policy.stall_ms:
            return
        state = yield from perform_action(ReadFlow(self.flow), ObservedFlow, policy)
        named = ", ".join(str(place) for place in behind)
        halted = "; ".join(
            [f"{topic}: {why}" for topic, why in sorted(state.halted_topics.items())]
            + [why for _, why in sorted(state.paused_topics.items())]
        )
        raise Refused(
            f"flow {name} ({state.state}) copied nothing for {policy.stall_ms / 1000:g} s and misses {named}: "
            + (halted or f"does a worker serve {there}? `topology status` shows it"),
            {"behind": {str(place): count for place, count in behind.items()}},
        )

    def _refuse_paused(self, at_ms: int, behind: Mapping[TopicPartition, int]) -> ActionGenerator[None]:
        """Others may move meanwhile, so a paused partition shows in no position. It is asked for now and then only."""
        if not behind or self._pauses_due_ms is None:
            self._pauses_due_ms = at_ms + _PAUSES_EVERY_MS
            return
        if at_ms < self._pauses_due_ms:
            return
        self._pauses_due_ms = at_ms + _PAUSES_EVERY_MS
        yield from refuse_paused_topics(self.context, {place.topic for place in behind}, self.flow)
