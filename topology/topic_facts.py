"""What is known about topics without asking a cluster: declared under `clusters.<alias>.topics`, or seen by a scan.

A scan overrides what the file declares, key by key. What neither says is None, and a rule must not conclude from it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from watershed.topology.finding import FileSpan
from watershed.topology.inventory import Inventory, InventoryCluster, InventoryTopic
from watershed.topology.model import CheckedValue, Flow, Topology
from watershed.topology.quantities import FOREVER_MS
from watershed.topology.selection_overlap import find_shortest_overlap
from watershed.topology.selectors import Selector, TopicSelection


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """Times are ms (FOREVER: without end), sizes bytes; retention_bytes is for a partition, -1 without a bound.
    cleanup is `delete`, `compact` or `compact_delete`; timestamps `create_time` or `log_append_time`. span is where it
    is declared, None when only a scan knows it."""

    partitions: int | None = None
    replication_factor: int | None = None
    min_insync_replicas: int | None = None
    retention_ms: int | None = None
    retention_bytes: int | None = None
    cleanup: str | None = None
    delete_retention_ms: int | None = None
    max_message: int | None = None
    timestamps: str | None = None
    compression: str | None = None
    tiered_storage: bool | None = None
    keyed: bool | None = None
    transactional: bool | None = None
    schema: str | None = None
    residency: str | None = None
    classification: str | None = None
    span: FileSpan | None = None

    @property
    def compacted(self) -> bool:
        """True if the cleanup policy contains `compact`; False if it is unknown."""
        return self.cleanup in ("compact", "compact_delete")

    def under(self, other: TopicFacts) -> TopicFacts:
        """These facts where `other` says nothing."""
        if self is NO_FACTS:
            return other
        known = {name: value for name in _NAMES if (value := getattr(other, name)) is not None}
        return replace(self, **known)


_NAMES = tuple(each.name for each in fields(TopicFacts))
NO_FACTS = TopicFacts()
_LAST = chr(0x10FFFF)  # behind every character of a name
_TIMESTAMPS = {"CreateTime": "create_time", "LogAppendTime": "log_append_time"}
_DECLARED = {"retention": "retention_ms", "delete_retention": "delete_retention_ms"}


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What is known of a cluster's brokers: declared under `clusters.<alias>.facts`, with what a scan saw above it.
    min_insync_replicas, timestamps and compression are what new topics get, and only a scan knows them. span is where
    the facts are declared."""

    brokers: int | None = None
    racks: int | None = None
    kafka: str | None = None
    max_message: int | None = None
    tiered_storage: bool | None = None
    min_insync_replicas: int | None = None
    timestamps: str | None = None
    compression: str | None = None
    span: FileSpan | None = None


@dataclass(frozen=True, slots=True)
class FlowTopic:
    """One thing that a flow carries, as far as it is known: a topic by `name`, or (name is None) what a declared
    pattern `match` stands for, `label`. source and target are the facts on either side; `exists` says that a scan saw
    the target's topic."""

    flow: Flow
    label: str
    name: str | None
    target_label: str
    source: TopicFacts
    target: TopicFacts
    exists: bool = False
    match: Selector | None = None

    @property
    def span(self) -> FileSpan:
        """Where to point: the declared fact, or the flow."""
        return self.source.span or self.target.span or self.flow.declared


class TopologyFacts:
    """Facts of a whole topology; answers are kept, so that many rules may ask the same."""

    def __init__(self, topology: Topology, inventory: Inventory | None) -> None:
        self.topology = topology
        self.inventory = inventory
        self._declared: dict[str, tuple[tuple[Selector, TopicFacts], ...]] = {}
        self._selected: dict[tuple[str, TopicSelection], tuple[str, ...]] = {}
        self._topics: dict[tuple[str, str], TopicFacts] = {}
        self._once: dict[TopicFacts, TopicFacts] = {}
        self._names: dict[str, list[str]] = {}

    def declared(self, alias: str) -> tuple[tuple[Selector, TopicFacts], ...]:
        """The entries of `clusters.<alias>.topics`, in file order."""
        if alias not in self._declared:
            cluster = self.topology.root.at("clusters", alias)
            entries = cluster.list("topics") if cluster is not None else ()
            self._declared[alias] = tuple(
                (entry.get("match"), _facts(entry)) for entry in entries if entry.get("match") is not None
            )
        return self._declared[alias]

    def topic(self, alias: str, name: str) -> TopicFacts:
        """Everything known about one topic: the first declared entry that matches, with what a scan saw above it."""
        key = (alias, name)
        known = self._topics.get(key)
        if known is None:
            known = next((facts for match, facts in self.declared(alias) if match.matches(name)), NO_FACTS)
            seen = self.seen(alias, name)
            if seen is not None:
                known = known.under(build_scanned_facts(seen))
            if known is not NO_FACTS:
                known = self._topics[key] = self._once.setdefault(known, known)
        return known

    def cluster(self, alias: str) -> ClusterFacts:
        """Everything known about a cluster's brokers."""
        declared = self.topology.root.at("clusters", alias, "facts")
        known = {} if declared is None else {name: value.data for name, value in declared.fields.items()}
        seen = self.inventory.cluster(alias) if self.inventory is not None else None
        if seen is not None:
            known |= {name: value for name, value in _scanned_cluster(seen).items() if value is not None}
        return ClusterFacts(**known, span=None if declared is None else declared.span)

    def seen(self, alias: str, name: str) -> InventoryTopic | None:
        """The topic in the scan, or None."""
        cluster = self.inventory.cluster(alias) if self.inventory is not None else None
        return cluster.topics.get(name) if cluster is not None else None

    def names(self, alias: str, topics: TopicSelection) -> tuple[str, ...]:
        """Topics by name that the selection takes at a cluster: those of the scan, and literals, sorted."""
        key = (alias, topics)
        if key not in self._selected:
            known = self._sorted(alias)
            found = {each.text for each in topics.include if each.kind == "literal"}
            for prefix in topics.prefixes:  # only names that begin alike: a large cluster has a hundred thousand
                found.update(known[bisect_left(known, prefix) : bisect_left(known, f"{prefix}{_LAST}")])
            self._selected[key] = tuple(sorted(name for name in found if topics.selects(name)))
        return self._selected[key]

    def _sorted(self, alias: str) -> list[str]:
        """The names that a scan saw at a cluster, in order."""
        if alias not in self._names:
            cluster = self.inventory.cluster(alias) if self.inventory is not None else None
            self._names[alias] = [] if cluster is None else sorted(cluster.topics)
        return self._names[alias]

    def carried(self, flow: Flow) -> Iterator[FlowTopic]:
        """What the flow carries: every name that is known, then the declared patterns that it shares topics with
        (those only where no scan of the source lists the real names)."""
        plan = flow.plan
        for name in self.names(flow.source, plan.topics):
            arriving = plan.target_topic(name)
            source, target = self.topic(flow.source, name), self.topic(flow.target, arriving)
            exists = self.seen(flow.target, arriving) is not None
            yield FlowTopic(flow, name, name, arriving, source, target, exists)
        if self.inventory is not None and self.inventory.cluster(flow.source) is not None:
            return
        for match, facts in self.declared(flow.source):
            if match.kind != "literal":
                example = self._shared(match, plan.topics)
                if example is not None:
                    arriving = plan.target_topic(example)
                    target = self.topic(flow.target, arriving)
                    label = f"{plan.naming.before}{match.text}{plan.naming.after}"
                    yield FlowTopic(flow, match.text, None, label, facts, target, match=match)
            elif plan.selects(match.text) and not any(match == each for each in plan.topics.include):
                name, arriving = match.text, plan.target_topic(match.text)
                yield FlowTopic(flow, name, name, arriving, facts, self.topic(flow.target, arriving))

    @cached_property
    def by_flow(self) -> tuple[tuple[Flow, tuple[FlowTopic, ...]], ...]:
        """Every flow with what it `carried`, in the order of their ids."""
        return tuple((flow, tuple(self.carried(flow))) for flow in self.topology.flows)

    @cached_property
    def by_equal_facts(self) -> tuple[tuple[Flow, tuple[tuple[FlowTopic, ...], ...]], ...]:
        """`by_flow`, with topics together of which the same is known: what is true of the first of a group is true of
        all, but for names, sizes and rates. Most topics of a cluster are alike, so rules look at a few groups only."""
        return tuple((flow, tuple(self._groups(flow, topics))) for flow, topics in self.by_flow)

    def _groups(self, flow: Flow, topics: tuple[FlowTopic, ...]) -> Iterator[tuple[FlowTopic, ...]]:
        groups: dict[Any, list[FlowTopic]] = {}
        for topic in topics:
            seen = self.seen(flow.source, topic.name) if topic.name is not None else None
            own = None if seen is None else tuple(seen.overridden)
            groups.setdefault((id(topic.source), id(topic.target), own, topic.exists), []).append(topic)
        for group in groups.values():
            yield tuple(group)

    @cached_property
    def flow_topics(self) -> tuple[FlowTopic, ...]:
        """`carried` of every flow, in the order of their ids."""
        return tuple(topic for _, topics in self.by_flow for topic in topics)

    def _shared(self, match: Selector, topics: TopicSelection) -> str | None:
        """The shortest name that a declared pattern and a selection share."""
        found = find_shortest_overlap(frozenset({("", "", topics), ("", "", TopicSelection((match,)))}))
        return found.name


def build_scanned_facts(topic: InventoryTopic) -> TopicFacts:
    """A scanned topic's facts; keyed, schema and labels are never seen by a scan."""
    return TopicFacts(
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        **build_config_facts(topic),
    )


def build_config_facts(topic: InventoryTopic) -> dict[str, Any]:
    """The facts that topic configs say, by field name."""
    cleanup = topic.config("cleanup.policy")
    tiered = topic.config("remote.storage.enable")
    return {
        "min_insync_replicas": topic.number("min.insync.replicas"),
        "retention_ms": _endless(topic.number("retention.ms")),
        "retention_bytes": topic.number("retention.bytes"),
        "cleanup": None if cleanup is None else "_".join(sorted(cleanup.replace(" ", "").split(","))),
        "delete_retention_ms": topic.number("delete.retention.ms"),
        "max_message": topic.number("max.message.bytes"),
        "timestamps": _TIMESTAMPS.get(topic.config("message.timestamp.type") or ""),
        "compression": topic.config("compression.type"),
        "tiered_storage": None if tiered is None else tiered == "true",
    }


def _scanned_cluster(cluster: InventoryCluster) -> dict[str, Any]:
    configs = cluster.configs
    tiered = configs.get("remote.log.storage.system.enable")
    return {
        "brokers": len(cluster.brokers) or None,
        "racks": cluster.racks or None,
        "kafka": cluster.kafka,
        "max_message": _number(configs.get("message.max.bytes")),
        "tiered_storage": None if tiered is None else tiered == "true",
        "min_insync_replicas": _number(configs.get("min.insync.replicas")),
        "timestamps": _TIMESTAMPS.get(configs.get("log.message.timestamp.type", "")),
        "compression": configs.get("compression.type"),
    }


def _facts(entry: CheckedValue) -> TopicFacts:
    known = {
        _DECLARED.get(name, name): value.data
        for name, value in entry.fields.items()
        if _DECLARED.get(name, name) in _NAMES and value.data is not None
    }
    return TopicFacts(**known, span=entry.span)


def _number(value: str | None) -> int | None:
    return int(value) if value is not None and value.isdecimal() else None


def _endless(value: int | None) -> int | None:
    return FOREVER_MS if value is not None and value < 0 else value
