"""What every step of one migration stands on: the plan's part of it, and the outcomes of the steps before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from clusters.names import TopicPartition
from cutover.actions import Json, LookAtCopies, LookAtLogs
from cutover.errors import Refused
from cutover.observations import CopiesSeen, LogsSeen
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

    def missing(
        self, held: Mapping[TopicPartition, CopiedPartition], logs: LogsSeen, upto: Mapping[TopicPartition, int]
    ) -> int:
        """Source offsets below `upto` that are not on the target, over all partitions."""
        return sum(self.behind(held, logs, upto).values())

    def behind(
        self, held: Mapping[TopicPartition, CopiedPartition], logs: LogsSeen, upto: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """The same by partition, without those that miss nothing. A log without records misses nothing."""
        out: dict[TopicPartition, int] = {}
        for place, end in sorted(upto.items()):
            position = held[place].position if place in held else logs.starts[place]
            if position < end and logs.starts[place] < end:
                out[place] = end - position
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
