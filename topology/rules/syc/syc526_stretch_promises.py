"""SYC526 stretch-promises: a stretch cluster does not hold what its layout promises, or cannot.

Why: a stretch cluster is chosen because nothing is lost when a region is. That holds only while every acknowledged
record stands in two regions: `min.insync.replicas` must be more than the replicas in any one region. It also needs a
third region for the majority of controllers, a short round trip (each acknowledgement waits for it), brokers that say
their region as `broker.rack`, and replicas that stand where the layout says. Observers do not count as in sync; they
take the place of a lost region by themselves only where the topic's placement constraints promote them.

Source: Confluent, Multi-Region Clusters (replica placement, automatic observer promotion from 6.1 on); KIP-392; own
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from watershed.topology.finding import Label, Problem
from watershed.topology.inventory import InventoryTopic
from watershed.topology.model import CheckedValue
from watershed.topology.quantities import render_duration
from watershed.topology.rule import Rule, RuleContext, RuleOption
from watershed.topology.rules.finding_text import render_plural, render_some_names
from watershed.topology.stretch_layout import (
    CONSTRAINTS_CONFIG,
    StretchLayout,
    find_misplaced_replicas,
    find_rack_region,
)
from watershed.topology.text_escaping import shorten_and_escape
from watershed.topology.topic_facts import TopicFacts

_MAX_RTT = RuleOption("max_rtt", "duration", 50, "The longest round trip that synchronous replicas may have.")
_PROMOTING_VERSION = 2  # of the constraints; earlier ones know no promotion


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    for alias, planned in topology.clusters.items() if topology is not None else ():
        layout, cluster = planned.stretch, topology.root.at("clusters", alias) if topology is not None else None
        if layout is not None and cluster is not None and len(layout.regions) > 1:
            yield from _find_broken_promises(context, alias, cluster, layout)
            yield from _find_undurable_topics(context, alias, cluster, layout)
            yield from _find_scanned_faults(context, alias, cluster, layout)


def _find_broken_promises(
    context: RuleContext, alias: str, cluster: CheckedValue, layout: StretchLayout
) -> Iterator[Problem]:
    most, said = context.option(_MAX_RTT), cluster.at("stretch", "max_rtt")
    if said is not None and said.data > most:
        message = (
            f"{alias} has round trips of up to {render_duration(said.data)} between its regions; each write waits for "
            "one at least"
        )
        help_ = f"up to {render_duration(most)} is usual; beyond that copy with a flow between two clusters"
        yield _problem(alias, message, said, help_, "max_rtt")
    if len(layout.regions) == 2:
        message = f"{alias} has two regions and no third: without one of them, the other may have no majority"
        help_ = "put a controller into a third region, and say it as `tie_breaker`"
        yield _problem(alias, message, cluster.at("regions"), help_)


def _find_undurable_topics(
    context: RuleContext, alias: str, cluster: CheckedValue, layout: StretchLayout
) -> Iterator[Problem]:
    placed = dict(layout.sync_replicas)
    if not placed:
        return
    seen = context.inventory.cluster(alias) if context.inventory is not None else None
    topics = [(shorten_and_escape(str(match)), facts) for match, facts in context.facts.declared(alias)]
    if seen is not None:
        topics = [(name, context.facts.topic(alias, name)) for name, each in seen.topics.items() if not each.internal]
    faults: dict[str, list[str]] = defaultdict(list)
    for label, facts in topics:
        if (fault := _explain_undurable(facts, placed)) is not None:
            faults[fault].append(label)
    for fault, labels in faults.items():
        yield _problem(
            alias,
            f"{render_some_names(labels)} at {alias}: {fault}",
            cluster.at("stretch", "sync_replicas"),
            "set replicas and min.insync.replicas as the layout needs them, or say what is meant in `sync_replicas`",
            "sync_replicas",
        )


def _explain_undurable(facts: TopicFacts, placed: dict[str, int]) -> str | None:
    """Why the loss of a region may lose records of such a topic; None where it does not, or nothing is known."""
    wanted, most = sum(placed.values()), max(placed.values())
    if facts.replication_factor is not None and facts.replication_factor < wanted:
        return f"{render_plural(facts.replication_factor, 'replica')}, and `sync_replicas` places {wanted}"
    if len(placed) > 1 and facts.min_insync_replicas is not None and facts.min_insync_replicas <= most:
        return (
            f"{facts.min_insync_replicas} in sync suffice for a write, and one region has {most}: acknowledged records "
            "may stand in one region only"
        )
    return None


def _find_scanned_faults(
    context: RuleContext, alias: str, cluster: CheckedValue, layout: StretchLayout
) -> Iterator[Problem]:
    seen = context.inventory.cluster(alias) if context.inventory is not None else None
    if seen is None:
        return
    where = cluster.at("stretch")
    there = {find_rack_region(broker.rack, layout.regions) for broker in seen.brokers if broker.rack is not None}
    lacking = sorted({*dict(layout.sync_replicas), *layout.observers} - there)
    if lacking:
        racks = sorted({broker.rack for broker in seen.brokers if broker.rack is not None})
        named = render_some_names(racks) if racks else "no racks"
        message = f"{alias} has no broker in {render_some_names(lacking)}: its brokers name {named}"
        help_ = "set `broker.rack` of each broker to its region, or to a name that begins with it"
        yield _problem(alias, message, where, help_)
        return
    faults: dict[str, list[str]] = defaultdict(list)
    for name, topic in seen.topics.items():
        for fault in () if topic.internal else _explain_misplaced(layout, topic):
            faults[fault].append(name)
    for fault, names in faults.items():
        help_ = "an operator moves replicas; `topology plan` names the topics and the command"
        yield _problem(alias, f"{render_some_names(names)} at {alias}: {fault}", where, help_)


def _explain_misplaced(layout: StretchLayout, topic: InventoryTopic) -> Iterator[str]:
    """How the replicas of a topic differ from the layout, as far as the scan saw."""
    for each in find_misplaced_replicas(layout, topic):
        yield f"{render_plural(each.live, 'replica')} in {each.region}, and {each.wanted} laid out"
    if layout.observers and topic.configs:
        fault = _explain_observers(topic.config(CONSTRAINTS_CONFIG))
        if fault is not None:
            yield fault


def _explain_observers(constraints: str | None) -> str | None:
    """Why observers do not take over by themselves; None where they do."""
    if not constraints:
        return f"no `{CONSTRAINTS_CONFIG}`, so its brokers place no observer"
    try:
        said: Any = json.loads(constraints)
    except ValueError:
        return f"`{CONSTRAINTS_CONFIG}` is not JSON"
    if not isinstance(said, dict) or not said.get("observers"):
        return f"`{CONSTRAINTS_CONFIG}` names no observers"
    if said.get("version", 1) < _PROMOTING_VERSION:
        return f"`{CONSTRAINTS_CONFIG}` has version {said.get('version', 1)}: observers are promoted by hand only"
    return None


def _problem(alias: str, message: str, value: CheckedValue | None, help_: str, key: str = "") -> Problem:
    path = f"clusters.{alias}.stretch" + (f".{key}" if key else "")
    labels = () if value is None else (Label(value.key or value.span),)
    return Problem("SYC526", message, labels, path, ids=(alias,), help=help_)


RULE = Rule("SYC526", "stretch-promises", "warning", __doc__, check, options=(_MAX_RTT,))
