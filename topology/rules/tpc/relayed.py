"""What a flow brings to a cluster and other flows take on from there, with the retention that it got on the way."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from watershed.topology.model import Flow
from watershed.topology.naming import Naming
from watershed.topology.rule import RuleContext
from watershed.topology.rules.tpc.target_topics import TargetTopics, build_target_topics
from watershed.topology.rules.tpc.topic_writers import build_target_symbol
from watershed.topology.selectors import TopicSelection
from watershed.topology.topic_facts import NO_FACTS, FlowTopic, TopicFacts
from watershed.topology.topic_symbols import TopicSymbol, carry_symbol


@dataclass(frozen=True, slots=True)
class RelayedTopic:
    """A topic of a later hop. `topic.source` holds the retention that the flow `by` takes over from further up."""

    topic: FlowTopic
    by: Flow


def find_relayed_topics(context: RuleContext) -> dict[str, list[RelayedTopic]]:
    """By the id of the later flow. Only where nothing is known of the topic at the cluster between the two."""
    leaving = _leaving(context)
    found: dict[str, list[RelayedTopic]] = {}
    sides: dict[str, TargetTopics] = {}
    seen: set[tuple[str, str]] = set()
    todo: deque[tuple[FlowTopic, TopicSymbol]] = deque()
    for flow, topics in context.facts.by_flow:
        if flow.target in leaving:
            todo += [(topic, build_target_symbol(topic)) for topic in topics if topic.source.retention_ms is not None]
    while todo:
        topic, symbol = todo.popleft()
        flow = topic.flow
        if flow.id not in sides:
            sides[flow.id] = build_target_topics(context, flow)
        facts = _taken_over(sides[flow.id], topic)
        if facts is None:
            continue
        for laters in leaving.get(flow.target, ()):
            for moved in carry_symbol(laters[0].plan, symbol):
                for later in laters:
                    if later.target == flow.source or (later.id, str(symbol)) in seen:
                        continue
                    target = NO_FACTS if moved.now is None else context.facts.topic(later.target, moved.now)
                    hop = FlowTopic(later, str(symbol), symbol.now, str(moved), facts, target)
                    found.setdefault(later.id, []).append(RelayedTopic(hop, flow))
                    todo.append((hop, moved))
                seen |= {(later.id, str(symbol)) for later in laters if later.target != flow.source}
    return found


def _leaving(context: RuleContext) -> dict[str, list[list[Flow]]]:
    """Only sources without a scan. For each: its flows with `forward: all`, in groups. Flows with the same selection
    and naming are one group, for example the flows of a hub to its spokes."""
    scanned = context.inventory.clusters if context.inventory is not None else {}
    alike: dict[tuple[str, TopicSelection, Naming], list[Flow]] = {}
    for flow, _ in context.facts.by_flow:
        if flow.source not in scanned and flow.plan.forward == "all":
            alike.setdefault((flow.source, flow.plan.topics, flow.plan.naming), []).append(flow)
    leaving: dict[str, list[list[Flow]]] = {}
    for (source, _, _), flows in alike.items():
        leaving.setdefault(source, []).append(flows)
    return leaving


def _taken_over(side: TargetTopics, topic: FlowTopic) -> TopicFacts | None:
    """Retention and cleanup that the target gets from the source; None where the target's own are known."""
    retention = side.fact(topic, "retention_ms")
    if topic.target.retention_ms is not None or retention is None:
        return None
    return TopicFacts(retention_ms=retention, cleanup=side.fact(topic, "cleanup"), span=topic.source.span)
