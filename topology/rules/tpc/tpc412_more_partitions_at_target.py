"""TPC412 more-partitions-at-target: a keyed topic has more partitions at the target, and producers will write there.

Why: copied records keep their partition, but a producer computes it from the key and the number of partitions. From the
cutover or failover on, the same key goes to another partition, and its order is lost. Looked at for topics that a
migration moves or that another flow carries back, and for flows with an `slo.rto`; compacted topics count as keyed.

Source: own; KIP-480 and apache/kafka BuiltInPartitioner.java for how a key finds its partition
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import Flow, Topology
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_further_groups, render_some_names
from watershed.topology.rules.tpc.topic_writers import build_target_symbol
from watershed.topology.topic_facts import FlowTopic
from watershed.topology.topic_symbols import carry_symbol


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    if topology is None:
        return
    ways: dict[tuple[str, str], list[Flow]] = {}
    for flow in topology.flows:
        ways.setdefault((flow.source, flow.target), []).append(flow)
    moved = _moved(topology)
    for flow, groups in context.facts.by_equal_facts:
        every = flow.settings.at("slo", "rto") is not None
        back = ways.get((flow.target, flow.source), ())
        more = [topic for topics in groups if _more(topics[0]) for topic in topics]
        found = [each for each in more if every or (flow.id, each.name) in moved or _returns(each, back)]
        if found:
            yield _problem(flow, found)


def _moved(topology: Topology) -> set[tuple[str, str | None]]:
    migration = topology.migration
    if migration is None:
        return set()
    return {(migration.flow, name) for wave in migration.waves for name in wave.topics}


def _returns(topic: FlowTopic, back: Iterable[Flow]) -> bool:
    """Whether another flow carries the target's topic back under its first name: applications write on both sides."""
    symbol = build_target_symbol(topic)
    return any(str(moved) == topic.label for flow in back for moved in carry_symbol(flow.plan, symbol))


def _more(topic: FlowTopic) -> bool:
    before, after = topic.source.partitions, topic.target.partitions
    keyed = topic.source.keyed or topic.source.compacted
    return bool(keyed and before and after and after > before)


def _problem(flow: Flow, found: list[FlowTopic]) -> Problem:
    first = found[0]
    counts: dict[tuple[int | None, int | None], list[str]] = {}
    for topic in found:
        counts.setdefault((topic.source.partitions, topic.target.partitions), []).append(topic.label)
    (before, after), names = next(iter(counts.items()))
    others = [(more, f"{few} at {flow.source}, {many} at {flow.target}") for (few, many), more in counts.items()][1:]
    return Problem(
        "TPC412",
        f"keyed {render_some_names(names)}: {before} partitions at {flow.source}, {after} at "
        f"{flow.target}; the same key moves to another partition once producers write there",
        build_labels(
            (first.target.span, f"{after} at {flow.target}"),
            (first.source.span, f"{before} at {flow.source}, keyed"),
            (flow.declared, "this flow"),
        ),
        path=flow.path,
        ids=(flow.id, first.label),
        notes=render_further_groups(others),
        help=f"make {flow.target}'s topic anew with {before} partitions, or raise the source's to {after} first",
    )


RULE = Rule("TPC412", "more-partitions-at-target", "warning", __doc__, check)
