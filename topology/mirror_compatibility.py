"""What a flow writes beside its copy for tools that were made for MirrorMaker 2 (`compatibility`): which topics, under
which names, and how often.

Source of names and formats: apache/kafka connect/mirror-client, DefaultReplicationPolicy.java and
IdentityReplicationPolicy.java; of the intervals: connect/mirror, MirrorHeartbeatConfig and MirrorCheckpointConfig.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from watershed.topology.naming import Naming
from watershed.topology.selectors import Selector

HEARTBEATS_TOPIC: Final = "heartbeats"  # at the source, whatever the policy is
HEARTBEAT_INTERVAL_MS: Final = 1_000  # emit.heartbeats.interval.seconds
CHECKPOINT_INTERVAL_MS: Final = 60_000  # emit.checkpoints.interval.seconds
LEAST_INTERVAL_MS: Final = 100

SyncLocation = Literal["source", "target"]


@dataclass(frozen=True, slots=True)
class MirrorCompatibility:
    """Of one flow. source_alias, target_alias: what MirrorMaker 2 calls the two clusters. separator: what stands
    between the parts of its topics' names. offset_syncs: where they are written; None: nowhere. source_group: the group
    under which the flow commits at its source how far it has copied; None: it commits nothing."""

    source_alias: str
    target_alias: str
    separator: str = "."
    heartbeats: bool = False
    checkpoints: bool = False
    offset_syncs: SyncLocation | None = None
    heartbeat_interval_ms: int = HEARTBEAT_INTERVAL_MS
    checkpoint_interval_ms: int = CHECKPOINT_INTERVAL_MS
    source_group: str | None = None

    @property
    def checkpoints_topic(self) -> str:
        """At the target: where groups of the source would go on."""
        return self.separator.join((self.source_alias, "checkpoints", "internal"))

    @property
    def offset_syncs_topic(self) -> str:
        """It is named after the other cluster than the one that holds it."""
        other = self.source_alias if self.offset_syncs == "target" else self.target_alias
        return self.separator.join(("mm2-offset-syncs", other, "internal"))

    def name_mirror(self, heartbeats_topic: str) -> str:
        """The target's name of a heartbeats topic of the source."""
        return f"{self.source_alias}{self.separator}{heartbeats_topic}"

    def is_heartbeats_topic(self, topic: str) -> bool:
        """Whether a topic of the source holds heartbeats that are mirrored: those of MirrorMaker's own rules, without
        those that came from the target (DefaultReplicationPolicy.topicSource, MirrorSourceConnector.isCycle)."""
        between = self.separator
        *upstream, name = topic.split(between)
        # An alias may hold the separator (`us_east`, `_`), so it is looked for in the whole name.
        has_come_back = f"{between}{self.target_alias}{between}" in f"{between}{topic}"
        return name == HEARTBEATS_TOPIC and not has_come_back and "" not in upstream

    def list_written_topics(self) -> list[tuple[SyncLocation, str]]:
        """The topics that the flow writes beside its copies, and at which side. Mirrors of heartbeats from further
        clusters are not among them: their names depend on what is there."""
        found: list[tuple[SyncLocation, str]] = []
        if self.heartbeats:
            found += [("source", HEARTBEATS_TOPIC), ("target", self.name_mirror(HEARTBEATS_TOPIC))]
        if self.checkpoints:
            found.append(("target", self.checkpoints_topic))
        if self.offset_syncs is not None:
            found.append((self.offset_syncs, self.offset_syncs_topic))
        return found

    def describe(self, source: str, target: str) -> list[str]:
        """For people: a line for each cluster that something is written to. source, target: aliases of the file."""
        found = {source: list[str](), target: list[str]()}
        for side, name in self.list_written_topics():
            found[source if side == "source" else target].append(f"topic {name}")
        if self.source_group is not None:
            found[source].append(f"positions of group {self.source_group}")
        return [f"writes to {cluster} beside its copy: {', '.join(what)}" for cluster, what in found.items() if what]

    def list_left_out_topics(self, naming: Naming) -> tuple[Selector, ...]:
        """Topics of the source that hold what tools say about themselves, and those whose copies would be called as
        what the flow writes: patterns of the flow do not take them. naming: of the flow."""
        between = self.separator
        found = [Selector("glob", f"*{between}checkpoints{between}internal")] if self.checkpoints else []
        if self.heartbeats:
            found += [Selector("literal", HEARTBEATS_TOPIC), Selector("glob", f"*{between}{HEARTBEATS_TOPIC}")]
        if self.offset_syncs is not None:
            found.append(Selector("glob", f"mm2-offset-syncs{between}*{between}internal"))
        origins = [naming.invert(name) for side, name in self.list_written_topics() if side == "target"]
        return (*found, *(Selector("literal", name) for name in origins if name is not None))

    def to_json(self) -> dict[str, Any]:
        """The `compatibility` of a flow in the plan."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any] | None) -> MirrorCompatibility | None:
        """Reads the JSON form of the plan. Raises TypeError for anything else."""
        return None if value is None else cls(**value)
