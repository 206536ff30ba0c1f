"""Copies that other tools make beside ours: `external_flows` of the file. We never execute them; the proof of the graph
follows them, and workers tell their records apart as far as the file says how.

Source: apache/kafka DefaultReplicationPolicy.java, IdentityReplicationPolicy.java (names, `heartbeats`),
MirrorSourceConnector.java (isCycle); Confluent Replicator's reference, `provenance.header.enable`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from watershed.topology.naming import Naming
from watershed.topology.selectors import Selector, TopicSelection, sort_selectors

ExternalTool = Literal[
    "mirrormaker", "mirrormaker2", "replicator", "ureplicator", "brooklin", "cluster_link", "msk_replicator", "other"
]
EXTERNAL_TOOLS: Final[tuple[ExternalTool, ...]] = get_args(ExternalTool)
TOOL_NAMES: Final[dict[ExternalTool, str]] = {
    "mirrormaker": "MirrorMaker 1",
    "mirrormaker2": "MirrorMaker 2",
    "replicator": "Confluent Replicator",
    "ureplicator": "uReplicator",
    "brooklin": "Brooklin",
    "cluster_link": "a cluster link",
    "msk_replicator": "MSK Replicator",
    "other": "another tool",
}
REPLICATOR_HEADER: Final = "__replicator_id"  # with `provenance.header.enable`
_HEARTBEATS: Final = "heartbeats"
_IDENTITY: Final = Naming()


@dataclass(frozen=True, slots=True)
class ExternalFlow:
    """One copy that another tool makes. source, target: aliases of this file.

    naming: what topics are called at the target. source_id: the source's cluster id, where the file says it. separator:
    what the tool puts between its alias of the source and a topic. tool_alias: how the tool calls the source.
    enabled: False where the tool has stopped; its records stand in the log still.
    marks_with: a header that the tool puts on each record that it writes. leaves_out: a header; records that have it
    are not copied by the tool.
    """

    id: str
    tool: ExternalTool
    source: str
    target: str
    topics: TopicSelection
    naming: Naming = _IDENTITY
    enabled: bool = True
    marks_with: str | None = None
    leaves_out: str | None = None
    source_id: str | None = None
    tool_alias: str = ""
    separator: str = "."

    def brings(self, target_topic: str) -> bool:
        """Whether the tool writes this topic of its target."""
        name = self.naming.invert(target_topic)
        return name is not None and self.topics.selects(name)

    def is_only_writer(self, target_topic: str) -> bool:
        """Whether all records of this topic of its target are the tool's: it has a name that only the tool gives, or it
        is a mirror topic, which refuses other writers."""
        if not self.brings(target_topic):
            return False
        return self.tool == "cluster_link" or self.naming.invert(target_topic) != target_topic

    @property
    def is_recognizable(self) -> bool:
        """Whether each of its records can be told apart at the target, whatever topic it is in."""
        renames = self.naming.policy in ("prefix", "template") and self.naming.grows
        return self.marks_with is not None or self.tool == "cluster_link" or renames

    def list_own_topics(self, cluster: str) -> frozenset[str]:
        """Topics at this cluster with which the tool talks to itself, and that no pattern for internal topics has.

        MirrorMaker 2 writes `heartbeats` at both ends, and copies it under the source's alias whatever its policy is.
        """
        if self.tool != "mirrormaker2" or cluster not in (self.source, self.target):
            return frozenset()
        if cluster != self.target:
            return frozenset({_HEARTBEATS})
        renamed = self.naming.grows
        copy = self.naming.apply(_HEARTBEATS) if renamed else f"{self.tool_alias}{self.separator}{_HEARTBEATS}"
        return frozenset({_HEARTBEATS, copy})

    def describe(self) -> str:
        """One line for people: which way, by whom, what, under which names, and how its records are told apart."""
        names = ", ".join(str(each) for each in self.topics.include[:4])
        more = len(self.topics.include) - 4
        what = names + (f" and {more} more" if more > 0 else "")
        named = "" if self.naming.policy == "identity" else f" as {self.naming.apply('*') or self.naming.policy}"
        state = "" if self.enabled else " (stopped)"
        how = (
            f"its records have the header {self.marks_with}"
            if self.marks_with is not None
            else "only it writes these topics"
            if self.is_recognizable
            else "nothing tells its records apart"
        )
        return f"{self.id}: {self.source} to {self.target} by {TOOL_NAMES[self.tool]}{state}, {what}{named}; {how}"

    def to_json(self) -> dict[str, Any]:
        """One element of `external_flows` in the plan."""
        return {
            "id": self.id,
            "tool": self.tool,
            "source": self.source,
            "target": self.target,
            "topics": self.topics.to_json(),
            "naming": self.naming.to_json(),
            "enabled": self.enabled,
            "marks_with": self.marks_with,
            "leaves_out": self.leaves_out,
            "source_id": self.source_id,
            "tool_alias": self.tool_alias,
            "separator": self.separator,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ExternalFlow:
        """Reads the JSON form of the plan. Raises KeyError, TypeError or ValueError for anything else."""
        if value["tool"] not in EXTERNAL_TOOLS:
            raise ValueError(f"tool {value['tool']}")
        topics, naming = TopicSelection.from_json(value["topics"]), Naming.from_json(value["naming"])
        return cls(**value | {"topics": topics, "naming": naming})


def exclude_mirrormaker_cycles(topics: TopicSelection, target_alias: str, separator: str) -> TopicSelection:
    """What MirrorMaker 2 really copies under its default policy: no topic that names the target in front of a
    separator, because it takes such a one for a copy of a copy (MirrorSourceConnector.isCycle)."""
    cycles = (f"{target_alias}{separator}*", f"*{separator}{target_alias}{separator}*")
    excluded = sort_selectors((*topics.exclude, *(Selector("glob", each) for each in cycles)))
    return TopicSelection(topics.include, excluded, topics.allow_internal)


def render_external_flows(tools: tuple[ExternalFlow, ...]) -> list[str]:
    """What a plan or a status says of copies that are not ours; nothing where there are none."""
    return ["copied by others, never by us:", *(f"  {tool.describe()}" for tool in tools)] if tools else []
