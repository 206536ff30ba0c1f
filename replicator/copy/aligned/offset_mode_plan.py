"""What `topology plan` says about equal offsets, topic by topic, before anything is written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from watershed.clusters.admin import Admin
from watershed.clusters.alignment_records import read_alignments
from watershed.clusters.settings import SettingsLookup
from watershed.replicator.copy.aligned.aligned_topic_choice import assess_alignment
from watershed.replicator.copy.aligned.alignment_cost import NO_COST, AlignmentCost
from watershed.replicator.copy.aligned.cluster_probe import AlignmentSupport
from watershed.replicator.ledger.ledger import read_ledger
from watershed.replicator.topic_mapping import MappedTopic
from watershed.topology.plan import Plan, PlanFlow


@dataclass(frozen=True, slots=True)
class TopicOffsetMode:
    """How a topic's offsets are, or will be. decided: for ever; otherwise when the flow is applied, where the target
    cluster is also asked whether it allows it. reason: why they are translated. cost: of what is still to be filled."""

    flow: str
    topic: str
    mode: Literal["aligned", "mapped"]
    decided: bool
    reason: str = ""
    cost: AlignmentCost = NO_COST

    def __str__(self) -> str:
        if self.mode == "mapped":
            return f"{self.flow}: {self.topic} gets translated offsets: {self.reason}"
        verb = "has" if self.decided else "gets"
        return f"{self.flow}: {self.topic} {verb} equal offsets" + (f": {self.cost}" if self.cost.offsets else "")

    def to_json(self) -> dict[str, Any]:
        """The offset mode of one topic as `plan --json` shows it."""
        return {
            "flow": self.flow,
            "topic": self.topic,
            "mode": self.mode,
            "decided": self.decided,
            "reason": self.reason or None,
            "fill_offsets": self.cost.offsets,
            "seconds": round(self.cost.seconds, 1),
            "broker_cpu_seconds": round(self.cost.cpu_s, 1),
            "bytes": self.cost.wire_bytes,
        }


def plan_offset_modes(plan: Plan, connect: SettingsLookup) -> list[TopicOffsetMode]:
    """Of all flows that ask for equal offsets. Read-only. Raises ClusterError."""
    asking = [flow for flow in plan.flows if flow.offsets == "aligned"]
    return [each for flow in asking for each in _of_flow(flow, connect)]


def _of_flow(flow: PlanFlow, connect: SettingsLookup) -> list[TopicOffsetMode]:
    target = connect(flow.target)
    decided = read_alignments(target)
    copied = {key.topic for key in read_ledger(target, flow=flow.id).copies()}
    found: list[TopicOffsetMode] = []
    with Admin(connect(flow.source)) as here, Admin(target) as there:
        for topic, shape in sorted(here.shapes().items()):
            if not flow.selects(topic):
                continue
            known = decided.get((flow.id, topic))
            if known is not None:
                decided_mode: Literal["aligned", "mapped"] = "aligned" if known.mode == "aligned" else "mapped"
                found.append(TopicOffsetMode(flow.id, topic, decided_mode, True, known.reason))
                continue
            mapped = MappedTopic(
                topic, flow.target_topic(topic), shape.partitions, created=False, copied=shape.partitions
            )
            seen = assess_alignment(mapped, here, there, AlignmentSupport(""), copied=topic in copied)
            mode: Literal["aligned", "mapped"] = "mapped" if seen.refused else "aligned"
            found.append(TopicOffsetMode(flow.id, topic, mode, False, seen.refused, seen.cost or NO_COST))
    return [each if each.mode == "aligned" else replace(each, cost=NO_COST) for each in found]
