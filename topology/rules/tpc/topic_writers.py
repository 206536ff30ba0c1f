"""Which flows write one and the same topic at a target."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from watershed.topology.model import Flow
from watershed.topology.rule import RuleContext
from watershed.topology.selectors import TopicSelection
from watershed.topology.topic_facts import FlowTopic
from watershed.topology.topic_symbols import TopicSymbol, carry_symbol, list_source_symbols

# What stands before the names -> flows that put it there, with what they bring
_Arriving = dict[str, list[tuple[Flow, tuple[TopicSymbol, ...]]]]


def find_merged_topics(
    context: RuleContext, wanted: Callable[[FlowTopic], bool]
) -> Iterator[tuple[FlowTopic, tuple[Flow, ...]]]:
    """Topics that several flows write at the target, each with all flows that write it, sorted by flow id.

    wanted: selects the topics. A flow whose topics are not known by name counts as a possible writer.
    """
    into: dict[str, list[Flow]] = {}
    for flow, _ in context.facts.by_flow:
        into.setdefault(flow.target, []).append(flow)
    shared = ((flow, groups) for flow, groups in context.facts.by_equal_facts if len(into[flow.target]) > 1)
    topics = [each for _, groups in shared for group in groups if wanted(group[0]) for each in group]
    targets = {each.flow.target for each in topics}
    named = _named(context, targets)
    open_ended = {target: _open_ended(context, into[target]) for target in targets}
    for topic in topics:
        target = topic.flow.target
        writing = named[target].get(topic.target_label, ())
        if len(writing) < 2 and not open_ended[target]:
            continue
        flows = {flow.id: flow for flow in (*writing, topic.flow)}
        if open_ended[target]:
            symbol = build_target_symbol(topic)
            for flow, arriving in _perhaps(topic, open_ended[target]):
                if flow.id not in flows and any(symbol.collides(each) for each in arriving):
                    flows[flow.id] = flow
        if len(flows) > 1:
            yield topic, tuple(flows[flow_id] for flow_id in sorted(flows))


def _named(context: RuleContext, targets: set[str]) -> dict[str, dict[str, list[Flow]]]:
    """Target → name there → the flows that are known to write it."""
    named: dict[str, dict[str, list[Flow]]] = {target: {} for target in targets}
    for flow, topics in context.facts.by_flow:
        names = named.get(flow.target)
        if names is not None:
            for each in topics:
                if each.name is not None:
                    names.setdefault(each.target_label, []).append(flow)
    return named


def _open_ended(context: RuleContext, flows: list[Flow]) -> _Arriving:
    """Flows that carry more than the names which are known."""
    found: _Arriving = {}
    for flow in flows:
        if not _is_listed_by_name(context, flow):
            arriving = tuple(
                each for birth in list_source_symbols(flow.plan) for each in carry_symbol(flow.plan, birth)
            )
            found.setdefault(flow.plan.naming.before, []).append((flow, arriving))
    return found


def _perhaps(topic: FlowTopic, arriving: _Arriving) -> Iterator[tuple[Flow, tuple[TopicSymbol, ...]]]:
    """Those whose names can begin like the topic's."""
    begins = topic.target_label if topic.name is not None else topic.flow.plan.naming.before
    for before, flows in arriving.items():
        if begins.startswith(before) or (topic.name is None and before.startswith(begins)):
            yield from flows


def _is_listed_by_name(context: RuleContext, flow: Flow) -> bool:
    """Whether every topic of the flow is known by its name: literals, or a scan of the source."""
    inventory = context.inventory
    return flow.plan.topics.literals is not None or (
        inventory is not None and inventory.cluster(flow.source) is not None
    )


def build_target_symbol(topic: FlowTopic) -> TopicSymbol:
    """The topic under its name at the target."""
    if topic.name is not None or topic.match is None:
        return TopicSymbol(topic.label, birth=topic.name, now=topic.target_label)
    naming = topic.flow.plan.naming
    constraints = frozenset({("", "", topic.flow.plan.topics), ("", "", TopicSelection((topic.match,)))})
    return TopicSymbol(topic.label, before=naming.before, after=naming.after, constraints=constraints)
