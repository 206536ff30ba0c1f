"""OPS906 facts-drift: what the file declares about a cluster or its topics is not what the cluster says.

Why: rules that work offline believe the declared facts. Where they are old, a clean lint means nothing: a retention
that is shorter than declared loses records, and a limit that is already exceeded leaves no room.

Source: teslamotors/kafka-helmsman ConfigDrift.java, which sorts drift by its danger; own
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from watershed.topology.finding import FileSpan, Problem
from watershed.topology.inventory import InventoryCluster
from watershed.topology.model import CheckedValue, Topology
from watershed.topology.quantities import render_duration, render_size
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names
from watershed.topology.text_escaping import shorten_and_escape
from watershed.topology.topic_facts import TopicFacts, TopologyFacts, build_scanned_facts

# what a scan can see, by the key in the file
_BROKERS = ("brokers", "racks", "kafka", "max_message", "tiered_storage")
_TOPICS = {
    "partitions": "partitions",
    "replication_factor": "replication_factor",
    "min_insync_replicas": "min_insync_replicas",
    "retention": "retention_ms",
    "retention_bytes": "retention_bytes",
    "cleanup": "cleanup",
    "delete_retention": "delete_retention_ms",
    "max_message": "max_message",
    "timestamps": "timestamps",
    "compression": "compression",
    "tiered_storage": "tiered_storage",
}

_SYNONYMS = {"none": "uncompressed"}  # two words for one compression.type


def check(context: RuleContext) -> Iterator[Problem]:
    topology, inventory = context.topology, context.inventory
    if topology is None or inventory is None:
        return
    actual = TopologyFacts(_without_facts(topology), inventory)
    for alias in sorted(topology.clusters):
        declared, seen = topology.root.at("clusters", alias), inventory.cluster(alias)
        if declared is not None and seen is not None:
            yield from _brokers(alias, declared, actual)
            yield from _limits(alias, declared, seen)
            yield from _topics(alias, declared, context, seen)


def _without_facts(topology: Topology) -> Topology:
    """The same topology of which nothing is declared, so that its facts are those of the scan alone."""
    from dataclasses import replace

    from watershed.topology.model import build_mapping

    return replace(topology, root=build_mapping(topology.root.span, {}))


def _brokers(alias: str, declared: CheckedValue, actual: TopologyFacts) -> Iterator[Problem]:
    facts, seen = declared.at("facts"), actual.cluster(alias)
    drifted = []
    for key in _BROKERS:
        said, found = facts.at(key) if facts is not None else None, getattr(seen, key)
        if said is not None and found is not None and not _is_equal_fact(key, said.data, found):
            drifted.append((said.span, f"{key} is {_text(key, found)}, declared {_text(key, said.data)}"))
    if drifted:
        yield _problem(f"`{alias}` is not as declared", drifted, f"clusters.{alias}.facts", (alias,))


def _limits(alias: str, declared: CheckedValue, seen: InventoryCluster) -> Iterator[Problem]:
    limit = declared.at("limits", "partitions")
    held = sum(topic.partitions for topic in seen.topics.values())
    if limit is not None and held > limit.data:
        drifted = [(limit.span, f"limits.partitions is {limit.data}, and {held} are there already")]
        yield _problem(f"`{alias}` is beyond its limit", drifted, f"clusters.{alias}.limits.partitions", (alias,))


def _topics(alias: str, declared: CheckedValue, context: RuleContext, seen: InventoryCluster) -> Iterator[Problem]:
    """One finding an entry: each key with the topics that differ, the first of them with its value."""
    entries = [entry for entry in declared.list("topics") if entry.get("match") is not None]
    if not entries:
        return
    assert context.topology is not None, "asked before"
    found: dict[int, dict[str, list[tuple[str, Any]]]] = {}
    for name, topic in sorted(seen.topics.items()):
        index = next((index for index, entry in enumerate(entries) if entry.get("match").matches(name)), None)
        if index is not None:
            for key, value in _differing(entries[index], build_scanned_facts(topic)):
                found.setdefault(index, {}).setdefault(key, []).append((name, value))
    for index, keys in sorted(found.items()):
        entry = entries[index]
        drifted = []
        for key, topics in keys.items():
            names, value = [name for name, _ in topics], topics[0][1]
            what = f"{key} of {render_some_names(names)} is {_text(key, value)}, declared {_text(key, entry.get(key))}"
            drifted.append((entry.where(key), what))
        match = entry.get("match")
        message = f"topics of `{alias}` under `{match}` are not as declared"
        yield _problem(message, drifted, f"clusters.{alias}.topics[{index}]", (alias, str(match)))


def _differing(entry: CheckedValue, seen: TopicFacts) -> Iterator[tuple[str, Any]]:
    for key, field in _TOPICS.items():
        said, found = entry.get(key), getattr(seen, field)
        if said is not None and found is not None and _SYNONYMS.get(said, said) != found:
            yield key, found


def _is_equal_fact(key: str, declared: Any, found: Any) -> bool:
    """Releases are the same as far as both go: `4.1` is `4.1.0`."""
    if key != "kafka":
        return bool(declared == found)
    ours, theirs = str(declared).split("."), str(found).split(".")
    return all(one == two for one, two in zip(ours, theirs, strict=False))


def _text(key: str, value: Any) -> str:
    if key in ("retention", "delete_retention"):
        return render_duration(value)
    if key in ("retention_bytes", "max_message"):
        return render_size(value) if value >= 0 else "without a bound"
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else shorten_and_escape(str(value))


def _problem(message: str, drifted: list[tuple[FileSpan, str]], path: str, ids: tuple[str, ...]) -> Problem:
    return Problem(
        "OPS906",
        f"{message}: {drifted[0][1]}" + (f" ({len(drifted) - 1} more)" if len(drifted) > 1 else ""),
        build_labels(*drifted),
        path=path,
        ids=ids,
        help="correct the declared facts, then lint again: what was found with the old ones may be wrong",
        notes=tuple(text for _, text in drifted[1:]),
    )


RULE = Rule("OPS906", "facts-drift", "warning", __doc__, check, needs="live")
