"""Which flows write one and the same topic at a target."""

from __future__ import annotations

from collections.abc import Iterator

from topology.facts import FlowTopic
from topology.model import Flow
from topology.rule import Context
from topology.selectors import TopicSelection
from topology.symbols import Symbol, births, carried


def merges(context: Context) -> Iterator[tuple[FlowTopic, tuple[Flow, ...]]]:
    """Everything that a flow carries into a topic which other flows write, too, with all its writers, sorted by id; in
    the order of flows. A flow that says nothing about its topics is a writer all the same."""
    into: dict[str, list[Flow]] = {}
    for flow, _ in context.facts.by_flow:
        into.setdefault(flow.target, []).append(flow)
    named: dict[tuple[str, str], list[Flow]] = {}
    for topic in context.facts.flow_topics:
        if topic.name is not None:
            named.setdefault((topic.flow.target, topic.target_label), []).append(topic.flow)
    # flows that carry more than the names which are known
    open_ended = {
        target: [(flow, tuple(_arriving(flow))) for flow in flows if not _listed(context, flow)]
        for target, flows in into.items()
        if len(flows) > 1
    }
    for topic in context.facts.flow_topics:
        target = topic.flow.target
        if target not in open_ended:
            continue
        symbol = _symbol(topic)
        flows = {flow.id: flow for flow in (*named.get((target, topic.target_label), ()), topic.flow)}
        for flow, arriving in open_ended[target]:
            if flow.id not in flows and any(symbol.collides(each) for each in arriving):
                flows[flow.id] = flow
        if len(flows) > 1:
            yield topic, tuple(flows[flow_id] for flow_id in sorted(flows))


def _listed(context: Context, flow: Flow) -> bool:
    """Whether every topic of the flow is known by its name: literals, or a scan of the source."""
    inventory = context.inventory
    return flow.plan.topics.literals is not None or (
        inventory is not None and inventory.cluster(flow.source) is not None
    )


def _arriving(flow: Flow) -> Iterator[Symbol]:
    for birth in births(flow.plan):
        yield from carried(flow.plan, birth)


def _symbol(topic: FlowTopic) -> Symbol:
    """The topic under its name at the target."""
    if topic.name is not None or topic.match is None:
        return Symbol(topic.label, birth=topic.name, now=topic.target_label)
    naming = topic.flow.plan.naming
    constraints = frozenset({("", "", topic.flow.plan.topics), ("", "", TopicSelection((topic.match,)))})
    return Symbol(topic.label, before=naming.before, after=naming.after, constraints=constraints)
