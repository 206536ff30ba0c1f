"""What `topology plan` says about equal offsets, topic by topic, before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from clusters.admin import Admin
from clusters.alignments import read_alignments
from clusters.settings import ConnectionSettings
from replicator.aligned.budget import NOTHING, Estimate
from replicator.aligned.decisions import prospect
from replicator.aligned.probe import Probed
from replicator.ledger import read_ledger
from replicator.targets import Mapped
from topology.plan import Plan, PlanFlow


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """How a topic's offsets are, or will be. decided: for ever; otherwise when the flow is applied, where the target
    cluster is also asked whether it allows it. reason: why they are translated. cost: of what is still to be filled."""

    flow: str
    topic: str
    mode: Literal["aligned", "mapped"]
    decided: bool
    reason: str = ""
    cost: Estimate = NOTHING

    def __str__(self) -> str:
        if self.mode == "mapped":
            return f"{self.flow}: {self.topic} gets translated offsets: {self.reason}"
        told = "has" if self.decided else "gets"
        return f"{self.flow}: {self.topic} {told} equal offsets" + (f": {self.cost}" if self.cost.offsets else "")

    def to_json(self) -> dict[str, Any]:
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


def topic_offsets(plan: Plan, connect: Callable[[str], ConnectionSettings]) -> list[TopicOffsets]:
    """Of all flows that ask for equal offsets. Read-only. Raises ClusterError."""
    asking = [flow for flow in plan.flows if flow.offsets == "aligned"]
    return [each for flow in asking for each in _of_flow(flow, connect)]


def _of_flow(flow: PlanFlow, connect: Callable[[str], ConnectionSettings]) -> list[TopicOffsets]:
    target = connect(flow.target)
    decided = read_alignments(target)
    copied = {key.topic for key in read_ledger(target, flow=flow.id).copies()}
    found: list[TopicOffsets] = []
    with Admin(connect(flow.source)) as here, Admin(target) as there:
        for topic, shape in sorted(here.shapes().items()):
            if not flow.selects(topic):
                continue
            known = decided.get((flow.id, topic))
            if known is not None:
                decided_mode: Literal["aligned", "mapped"] = "aligned" if known.mode == "aligned" else "mapped"
                found.append(TopicOffsets(flow.id, topic, decided_mode, True, known.reason))
                continue
            mapped = Mapped(topic, flow.target_topic(topic), shape.partitions, created=False, copied=shape.partitions)
            seen = prospect(mapped, here, there, Probed(""), copied=topic in copied)
            mode: Literal["aligned", "mapped"] = "mapped" if seen.refused else "aligned"
            found.append(TopicOffsets(flow.id, topic, mode, False, seen.refused, seen.cost or NOTHING))
    return [each if each.mode == "aligned" else replace(each, cost=NOTHING) for each in found]
