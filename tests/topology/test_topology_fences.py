"""Fences that a migration raises are not carried over by flows that carry rights and quotas."""

from __future__ import annotations

import pytest

from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.sync.quotas import find_quota_differences
from watershed.topology.acl_translation import translate_acls
from watershed.topology.inventory import InventoryAcl
from watershed.topology.loader import parse_topology
from watershed.topology.plan import Plan
from watershed.topology.plan_builder import build_plan
from watershed.topology.rule_manual import complete_example
from watershed.topology.sync_settings import SyncSettings

SYNC = "sync: {acls: {mode: continuous}, quotas: {mode: continuous}}"
TEXT = f"""\
flows:
  - {{source: a, target: b, topics: {{include: [orders, other]}}, {SYNC}}}
  - {{source: a, target: c, topics: {{include: [orders]}}, {SYNC}}}
  - {{source: c, target: b, topics: {{include: [more]}}, {SYNC}}}
migration:
  flow: a-to-b
  fence: {{kind: KIND}}
  applications: {{checkout: {{TOLD}}}}
  waves: [{{name: all, topics: [orders], producers: [checkout]}}]
"""
TARGET = ConnectionSettings("b", ("b:9092",))


def plan(kind: str, told: str = "principal: 'User:checkout'") -> Plan:
    loaded = parse_topology(complete_example(TEXT.replace("KIND", kind).replace("TOLD", told)))
    assert loaded.topology is not None, loaded.problems
    return build_plan(loaded.topology, {})


def deny(principal: str, topic: str) -> InventoryAcl:
    return InventoryAcl(principal, "WRITE", "DENY", "TOPIC", topic, "LITERAL")


def test_a_denial_that_is_a_fence_stays_where_it_is() -> None:
    acls = [deny("User:checkout", "orders"), deny("User:checkout", "other"), deny("User:x", "orders")]
    flows = {flow.id: flow for flow in plan("acl").flows}
    assert set(translate_acls(flows["a-to-b"], acls).bindings) == set(acls[1:])
    assert translate_acls(flows["a-to-c"], acls).bindings == (deny("User:x", "orders"),)
    assert flows["c-to-b"].sync.acls.fences == ()
    stopped = plan("stop").flow("a-to-b")
    assert set(translate_acls(stopped, acls).bindings) == set(acls)


@pytest.mark.parametrize(
    ("told", "left"),
    [
        ("principal: 'User:checkout'", {"user=checkout", "user=checkout, client-id=web"}),
        ("principal: 'User:checkout', client_id: web", {"user=checkout, client-id=web"}),
        ("client_id: web", {"client-id=web"}),
    ],
)
def test_a_limit_that_is_a_fence_stays_where_it_is(told: str, left: set[str]) -> None:
    limits = {"producer_byte_rate": 1.0, "consumer_byte_rate": 9.0}
    entities = [
        (("user", "checkout"),),
        (("user", "checkout"), ("client-id", "web")),
        (("client-id", "web"),),
        (("user", "other"),),
    ]
    flow = plan("quota", told).flow("a-to-b")
    found = find_quota_differences(flow, [flow], dict.fromkeys(entities, limits), {}, TARGET)
    carried_over = {(each.name, each.field) for each in found}
    names = {name for name, _ in carried_over}
    assert {(name, "consumer_byte_rate") for name in names} <= carried_over
    assert {name for name in names if (name, "producer_byte_rate") not in carried_over} == left


def test_a_plan_tells_it_and_one_without_fences_keeps_its_words() -> None:
    sync = plan("acl").flow("a-to-b").sync
    assert SyncSettings.from_json(sync.to_json()) == sync
    assert "fences" not in str(plan("stop").flow("a-to-b").sync.to_json())
