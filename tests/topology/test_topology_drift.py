"""Differences between a plan and what a scan saw: what would be created, what differs and is left alone, and why."""

from __future__ import annotations

from typing import Any

from watershed.topology.drift import FieldDrift, find_drift
from watershed.topology.inventory import Inventory
from watershed.topology.loader import parse_topology
from watershed.topology.plan import Plan, decode_plan, encode_plan
from watershed.topology.plan_builder import build_plan
from watershed.topology.rule_manual import build_example_inventory, complete_example

FLOW = "flows:\n  - {source: a, target: b, topics: {include: [{glob: 'orders*'}]}%s}\n"


def plan(more: str = "") -> Plan:
    topology = parse_topology(complete_example(FLOW % more)).topology
    assert topology is not None
    return build_plan(topology, {})


def seen(text: str) -> Inventory:
    inventory = build_example_inventory(f"--- # topology scan\n{text}\n")
    assert inventory is not None
    return inventory


def rows(found: list[FieldDrift]) -> list[tuple[Any, ...]]:
    return [(each.name, each.field, each.live, each.wanted, each.drift, each.applied) for each in found]


def test_what_is_missing_is_created_with_the_sources_own_settings() -> None:
    source = (
        "a: {topics: {orders: {partitions: 6, replication_factor: 3, overridden: [retention.ms, min.insync.replicas], "
    )
    source += "configs: {retention.ms: '1000', min.insync.replicas: '2', segment.ms: '5'}}, other: {}}}"
    found = find_drift(
        plan(", sync: {configs: {set: {segment.ms: '7'}}}"), seen(f"{source}\nb: {{brokers: 2}}"), ["watershed.flows"]
    )
    assert rows(found) == [
        ("watershed.flows", "", None, "", "safe", True),
        ("orders", "partitions", None, "6", "safe", True),
        ("orders", "replication.factor", None, "2", "safe", True),
        ("orders", "retention.ms", None, "1000", "safe", True),
        ("orders", "segment.ms", None, "7", "safe", True),
        ("a-to-b", "state", None, "running", "safe", True),
    ]


def test_a_created_topic_gets_the_configs_that_the_target_needs() -> None:
    source = "a: {topics: {orders: {configs: {max.message.bytes: '5000'}}}}"
    target = "b: {configs: {message.max.bytes: '1000', log.message.timestamp.type: LogAppendTime}}"
    found = find_drift(plan(), seen(f"{source}\n{target}"), [])
    assert ("orders", "max.message.bytes", None, "5000", "safe", True) in rows(found)
    assert ("orders", "message.timestamp.type", None, "CreateTime", "safe", True) in rows(found)


def test_what_exists_is_compared_and_left_alone() -> None:
    configs = "overridden: [retention.ms, cleanup.policy, max.message.bytes, flush.ms], configs: {retention.ms: '%s', "
    configs += "cleanup.policy: %s, max.message.bytes: '%s', flush.ms: '%s'}"
    source = configs % ("1000", "compact", "2000", "1")
    target = configs % ("-1", "delete", "1000", "2")
    orders = "{topics: {orders: {partitions: %s, %s}}}"
    scan = f"a: {orders % (3, source)}\nb: {orders % (4, target)}"
    found = find_drift(plan(", replication_factor: 3"), seen(scan), [])
    assert rows(found)[:-1] == [
        ("orders", "partitions", "4", "3", "unsupported", False),
        ("orders", "replication.factor", "1", "3", "unsupported", False),
        ("orders", "cleanup.policy", "delete", "compact", "unsafe", False),
        ("orders", "flush.ms", "2", "1", "unknown", False),
        ("orders", "max.message.bytes", "1000", "2000", "safe", False),
        ("orders", "retention.ms", "-1", "1000", "unsafe", False),
    ]
    assert all(each.why for each in found if each.drift in ("unsafe", "unsupported"))


def test_orders_are_compared_by_plan_and_nothing_is_ever_removed() -> None:
    compiled = plan()
    flows = "{a-to-b: {topology: example, plan_hash: '%s'}, old: {topology: example, plan_hash: x}, "
    flows += "theirs: {topology: other, plan_hash: x}, ended: {topology: example, plan_hash: x, state: stopped}}"
    same = find_drift(compiled, seen(f"a: {{}}\nb: {{flows: {flows % compiled.hash}}}"), [])
    assert rows(same) == [("old", "state", "running", None, "unknown", False)]
    changed = find_drift(compiled, seen(f"a: {{}}\nb: {{flows: {flows % 'sha256:0'}}}"), [])
    assert rows(changed)[0] == ("a-to-b", "plan", "sha256:0", compiled.hash, "safe", True)


def test_a_flow_of_another_topology_is_not_taken_over() -> None:
    found = find_drift(plan(), seen("a: {}\nb: {flows: {a-to-b: {topology: other, plan_hash: x}}}"), [])
    assert rows(found) == [("a-to-b", "topology", "other", "example", "unsupported", False)]


def test_nothing_is_said_of_clusters_that_were_not_seen() -> None:
    assert find_drift(plan(), seen("a: {topics: {orders: {}}}"), ["watershed.flows"]) == []


def test_configs_that_are_kept_equal_are_compared_where_they_are_kept() -> None:
    orders = "{topics: {orders: {overridden: [retention.ms], configs: {retention.ms: '%s'}}}}"
    scan = f"a: {orders % 1000}\nb: {orders % 5}"
    continuous = find_drift(plan(", sync: {configs: {mode: continuous}}"), seen(scan), [])
    assert [each.field for each in continuous if each.kind == "topic"] == []
    once = find_drift(plan(), seen(scan), [])
    assert [each.field for each in once if each.kind == "topic"] == ["retention.ms"]


def test_partitions_grow_where_the_flow_does_that_and_replicas_are_an_operators() -> None:
    source, target = "{partitions: 4, replication_factor: 3}", "{partitions: 2, replication_factor: 1, records_end: %d}"
    scan = f"a: {{topics: {{orders: {source}}}}}\nb: {{brokers: 2, topics: {{orders: {target}}}, flows: {{%s}}}}"
    known = "a-to-b: {topology: example, plan_hash: x}"

    def told(more: str, records: int, flows: str) -> list[tuple[Any, ...]]:
        return rows(find_drift(plan(more), seen(scan % (records, flows)), []))[:2]

    replicas = ("orders", "replication.factor", "1", "2", "unsupported", False)
    grows = ("orders", "partitions", "2", "4", "safe", True)
    stays = ("orders", "partitions", "2", "4", "unsafe", False)
    assert told("", 0, "") == [grows, replicas]
    assert told("", 9, known) == [grows, replicas]
    assert told("", 9, "") == [stays, replicas]
    assert told(", partitions: {mode: fixed}", 9, known) == [stays, replicas]


def test_replicas_that_do_not_stand_as_the_stretch_cluster_is_laid_out() -> None:
    text = (
        "clusters:\n  a: {bootstrap: [a:9092], regions: [fra, ams, lux], "
        "stretch: {sync_replicas: {fra: 2, ams: 2}, tie_breaker: lux}}\n  b: {bootstrap: [b:9092]}\n"
    )
    topology = parse_topology(complete_example(text + FLOW % "")).topology
    assert topology is not None
    stretched = build_plan(topology, {})
    scan = (
        "a: {brokers: 3, racks: [fra, ams, lux], topics: {orders: {replica_racks: [[ams, ams, fra, fra], "
        "[ams, fra, fra, lux]]}, other: {replica_racks: [[fra]]}}}"
    )
    found = [each for each in find_drift(stretched, seen(scan), []) if each.cluster == "a"]
    assert rows(found) == [
        ("orders", "replicas in ams", "1", "2", "unsupported", False),
        ("orders", "replicas in lux", "1", "0", "unsupported", False),
    ]
    assert "kafka-reassign-partitions" in found[0].why
    assert find_drift(stretched, seen("a: {topics: {orders: {}}}"), []) == []


def test_a_layout_survives_the_plan_and_a_plan_without_one_keeps_its_hash() -> None:
    text = "clusters:\n  a: {bootstrap: [a:9092], regions: [fra, ams], stretch: {observers: [ams]}}\n"
    text += "  b: {bootstrap: [b:9092]}\n"
    topology = parse_topology(complete_example(text + FLOW % ", workers: {near: {rack: fra}}")).topology
    assert topology is not None
    stretched = build_plan(topology, {})
    assert decode_plan(encode_plan(stretched)) == stretched
    assert stretched.flows[0].source_rack == "fra"
    assert "stretch" not in plan().clusters[0].to_json()
    assert "source_rack" not in plan().flows[0].to_json()
