"""What every step of one migration stands on: the plan's part of it, and the outcomes of the steps before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from clusters.names import TopicPartition
from cutover.actions import Json, LookAtCopies, LookAtFlow, LookAtLogs
from cutover.errors import Refused
from cutover.observations import CopiesSeen, FlowSeen, LogsSeen
from cutover.offsets import CopiedPartition, from_json, growth, places
from cutover.policy import Policy
from cutover.waiting import Asking, ask
from topology.plan import PlanFlow, Wave


@dataclass(frozen=True, slots=True)
class Ground:
    """`outcomes`: step → its outcome; filled by the migration as it goes, or from the journal when it resumes."""

    flow: PlanFlow
    wave: Wave
    policy: Policy
    outcomes: dict[str, Json] = field(default_factory=dict)

    @property
    def groups(self) -> tuple[str, ...]:
        return self.wave.consumers

    @property
    def producers(self) -> tuple[str, ...]:
        return self.wave.producers

    def partitions(self) -> dict[str, int]:
        """Source topic → partition count, as preflight fixed it."""
        return dict(self.outcomes["preflight"]["partitions"])

    def source_places(self) -> tuple[TopicPartition, ...]:
        return places(self.partitions())

    def target_places(self) -> tuple[TopicPartition, ...]:
        return places({self.rename(topic): count for topic, count in self.partitions().items()})

    def rename(self, topic: str) -> str:
        return self.flow.target_topic(topic)

    def at_target(self, place: TopicPartition) -> TopicPartition:
        return TopicPartition(self.rename(place.topic), place.partition)

    def ran_before(self, application: str) -> bool:
        """Whether the application ran when the migration began: an undo starts only what it stopped."""
        states: Mapping[str, str] = self.outcomes.get("preflight", {}).get("applications", {})
        return states.get(application) != "stopped"

    def behind(
        self, held: Mapping[TopicPartition, CopiedPartition], logs: LogsSeen, upto: Mapping[TopicPartition, int]
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

    def offsets(self, step: str, what: str) -> dict[TopicPartition, int]:
        """Offsets out of an earlier step's outcome."""
        return from_json(self.outcomes[step][what])


def source_logs(ground: Ground) -> Asking[LogsSeen]:
    return (yield from ask(LookAtLogs("source", ground.source_places()), LogsSeen, ground.policy))


def target_logs(ground: Ground) -> Asking[LogsSeen]:
    return (yield from ask(LookAtLogs("target", ground.target_places()), LogsSeen, ground.policy))


def copies(ground: Ground) -> Asking[CopiesSeen]:
    return (yield from ask(LookAtCopies(ground.source_places()), CopiesSeen, ground.policy))


@dataclass(slots=True)
class Progress:
    """Notices a flow that stands still: positions that do not change while something is left to copy."""

    ground: Ground
    _positions: dict[TopicPartition, int] = field(default_factory=dict)
    _since_ms: int = 0

    def look(self, seen: CopiesSeen, behind: Mapping[TopicPartition, int]) -> Asking[None]:
        """Raises Refused when a partition is loud, or nothing moved for `policy.stall_ms`."""
        policy, flow = self.ground.policy, self.ground.flow
        positions = {place: held.position for place, held in seen.copies.items()}
        if positions != self._positions or not behind:
            self._positions, self._since_ms = positions, seen.at_ms
            return
        if seen.at_ms - self._since_ms < policy.stall_ms:
            return
        state = yield from ask(LookAtFlow(), FlowSeen, policy)
        named = ", ".join(str(place) for place in behind)
        loud = "; ".join(f"{topic}: {why}" for topic, why in sorted(state.loud.items()))
        raise Refused(
            f"flow {flow.id} ({state.state}) copied nothing for {policy.stall_ms / 1000:g} s and misses {named}: "
            + (loud or f"does a worker serve {flow.target}? `topology status` shows it"),
            {"behind": {str(place): count for place, count in behind.items()}},
        )


def refuse_stragglers(ground: Ground, ends: Mapping[TopicPartition, int], now: LogsSeen) -> None:
    """Raises Refused, naming partition and amount, when the source's log ends are not `ends` any more."""
    moved = growth(ends, now.ends)
    if not moved:
        return
    named = ", ".join(f"{place} by {count:+d}" for place, count in moved.items())
    raise Refused(
        f"straggler: after the fence the source still moved: {named}. Some producer of these topics is not in the "
        f"wave or did not stop; find it by its writes, add it to wave {ground.wave.name}, and run again",
        {"stragglers": {str(place): count for place, count in moved.items()}},
    )
