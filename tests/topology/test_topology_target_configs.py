"""The configs of a created target topic: one answer for the replicator, drift and the planning report."""

from __future__ import annotations

from dataclasses import replace

import pytest

from topology.inventory import InventoryCluster, InventoryTopic
from topology.loader import parse_topology
from topology.plan import NEVER_SYNCED_CONFIGS, PlanFlow
from topology.rule_manual import complete_example
from topology.target_configs import (
    build_target_configs,
    count_created_replicas,
    is_synced_config,
    plan_target_configs,
)

FLOW = "flows:\n  - {source: a, target: b, topics: {include: [orders]}%s}\n"


def flow(configs: str = "") -> PlanFlow:
    more = f", sync: {{configs: {configs}}}" if configs else ""
    topology = parse_topology(complete_example(FLOW % more)).topology
    assert topology is not None
    return topology.flows[0].plan


def built(configs: str, own: dict[str, str], **known: str | None) -> dict[str, str]:
    unknown = dict.fromkeys(("source_max_message", "target_max_message", "target_timestamp_type"))
    return build_target_configs(flow(configs), own, **unknown | known)  # type: ignore[arg-type]


def test_own_values_are_synced_except_those_of_the_brokers() -> None:
    own = dict.fromkeys(NEVER_SYNCED_CONFIGS, "1") | {"retention.ms": "5"}
    assert built("", own) == {"retention.ms": "5"}


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ("{mode: never}", {}),
        ("{mode: once, include: [retention.ms]}", {"retention.ms": "5"}),
        ("{mode: once, exclude: [retention.ms]}", {"segment.ms": "7"}),
        ("{mode: continuous}", {"retention.ms": "5", "segment.ms": "7"}),
        ('{mode: never, set: {segment.ms: "9"}}', {"segment.ms": "9"}),
        ('{mode: once, set: {segment.ms: "9"}}', {"retention.ms": "5", "segment.ms": "9"}),
    ],
)
def test_what_the_file_says(configs: str, expected: dict[str, str]) -> None:
    assert built(configs, {"retention.ms": "5", "segment.ms": "7"}) == expected


@pytest.mark.parametrize(
    ("configs", "source", "target", "expected"),
    [
        ("", "10", "9", {"max.message.bytes": "10"}),
        ("", "9", "10", {}),
        ("", None, "9", {}),
        ("", "10", None, {}),
        ("{mode: never}", "10", "9", {}),
        ("{mode: once, exclude: [max.message.bytes]}", "10", "9", {}),
        ('{mode: once, set: {max.message.bytes: "11"}}', "10", "9", {"max.message.bytes": "11"}),
    ],
)
def test_larger_batches_of_the_source_fit(
    configs: str, source: str | None, target: str | None, expected: dict[str, str]
) -> None:
    assert built(configs, {}, source_max_message=source, target_max_message=target) == expected


def test_times_of_records_are_kept_unless_the_file_says_otherwise() -> None:
    stamped = {"target_timestamp_type": "LogAppendTime"}
    assert built("{mode: never}", {}, **stamped) == {"message.timestamp.type": "CreateTime"}
    told = "{mode: never, set: {message.timestamp.type: LogAppendTime}}"
    assert built(told, {}, **stamped) == {"message.timestamp.type": "LogAppendTime"}


def test_a_scan_with_strange_values_is_unknown() -> None:
    source = InventoryTopic("orders", None, 1, 1, configs={"max.message.bytes": "many"}, overridden=("gone",))
    target = InventoryCluster("b", "id", 0, configs={"message.max.bytes": "1000"})
    assert plan_target_configs(flow(), source, target) == {}


def test_replicas() -> None:
    assert count_created_replicas(flow(), 3, 2) == 2
    assert count_created_replicas(flow(), 3, 0) == 3
    assert count_created_replicas(replace(flow(), replication_factor=5), 3, 2) == 5


def test_the_modes() -> None:
    assert is_synced_config(flow(), "retention.ms")
    assert not is_synced_config(flow("{mode: never}"), "retention.ms")
    assert not is_synced_config(flow(), "min.insync.replicas")
