"""The configs of a created target topic: one answer for the replicator, drift and the planning report."""

from __future__ import annotations

from dataclasses import replace

import pytest

from watershed.topology.inventory import InventoryCluster, InventoryTopic
from watershed.topology.loader import parse_topology
from watershed.topology.plan import NEVER_SYNCED_CONFIGS, PlanFlow
from watershed.topology.rule_manual import complete_example
from watershed.topology.target_configs import (
    build_target_configs,
    count_created_replicas,
    find_withdrawn_configs,
    find_withdrawn_topic_configs,
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


OLD = {"message.format.version": "2.4-IV1", "message.timestamp.difference.max.ms": "5", "retention.ms": "7"}


def test_configs_that_the_target_does_not_know_any_more_are_left_out() -> None:
    newer = {"log.message.timestamp.type": "CreateTime"}
    assert set(find_withdrawn_configs(OLD, newer.get)) == {
        "message.format.version",
        "message.timestamp.difference.max.ms",
    }
    older = newer | {"log.message.format.version": "2.8", "log.message.timestamp.difference.max.ms": "9"}
    assert find_withdrawn_configs(OLD, older.get) == {}
    assert find_withdrawn_configs(OLD, {}.get) == {}, "a target that shows no configs is not taken for a newer one"


def test_a_plan_leaves_them_out_and_says_what_becomes_of_them() -> None:
    source = InventoryTopic("orders", None, 1, 1, configs=OLD, overridden=tuple(OLD))
    target = InventoryCluster("b", "id", 0, configs={"log.message.timestamp.type": "CreateTime"})
    everything = flow("{mode: once, exclude: [segment.ms]}")
    assert plan_target_configs(everything, source, target) == {"retention.ms": "7"}
    told = find_withdrawn_topic_configs(everything, source, target)
    assert "message.timestamp.before.max.ms" in told["message.timestamp.difference.max.ms"]
    excluded = flow("{mode: once, exclude: [message.format.version, message.timestamp.difference.max.ms]}")
    assert find_withdrawn_topic_configs(excluded, source, target) == {}


def test_replicas() -> None:
    assert count_created_replicas(flow(), 3, 2) == 2
    assert count_created_replicas(flow(), 3, 0) == 3
    assert count_created_replicas(replace(flow(), replication_factor=5), 3, 2) == 5


def test_the_modes() -> None:
    assert is_synced_config(flow(), "retention.ms")
    assert not is_synced_config(flow("{mode: never}"), "retention.ms")
    assert not is_synced_config(flow(), "min.insync.replicas")
