"""The TPC rules beyond their manuals: limits that are equal, facts that are unknown, scans that override, patterns."""

from __future__ import annotations

import pytest

from tests.topology.rule_cases import tpc_copied, tpc_kept
from tests.topology.rule_cases.example import FLOW, ORDERS, SLO, clusters, found, topics
from watershed.topology.loader import parse_topology
from watershed.topology.rule import RuleContext
from watershed.topology.rule_manual import build_example_inventory, complete_example
from watershed.topology.rules.tpc.reserved_names import describe_reserved_name, is_streams_name
from watershed.topology.topic_facts import ClusterFacts

CASES = (*tpc_kept.CASES, *tpc_copied.CASES)


@pytest.mark.parametrize(("code", "example", "said"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_what_a_rule_says(code: str, example: str, said: list[str]) -> None:
    messages = [finding.message for finding in found(example, code)]
    assert len(messages) == len(said), messages
    for message, part in zip(messages, said, strict=True):
        assert part in message


@pytest.mark.parametrize(
    ("code", "example", "severity"),
    [
        ("TPC401", "flows:\n  - {source: a, target: b, topics: {include: [orders, _schemas]}}\n", "warning"),
        ("TPC403", clusters(b="facts: {brokers: 6, racks: 2}") + FLOW % ", replication_factor: 3", "warning"),
        (
            "TPC404",
            clusters(b=topics(ORDERS + "replication_factor: 2, min_insync_replicas: 2")) + FLOW % "",
            "warning",
        ),
        (
            "TPC414",
            clusters("facts: {max_message: 4MiB}", "facts: {max_message: 1MiB}")
            + FLOW % ", sync: {configs: {mode: never}}",
            "warning",
        ),
    ],
)
def test_the_lesser_case_is_a_warning(code: str, example: str, severity: str) -> None:
    assert [finding.severity for finding in found(example, code)] == [severity]


def test_the_time_to_catch_up_is_derived_in_the_open() -> None:
    example = clusters(topics(ORDERS + "retention: 2d")) + FLOW % (
        SLO + ", workers: {quota: 60MiB/s}, expected: {peak_ingress: 40MiB/s}"
    )
    [finding] = found(example, "TPC406")
    assert finding.notes == (
        "catching up: outage × ingress / (quota − ingress) = 23h × 40MiB/s / (60MiB/s − 40MiB/s) = 46h",
    )


def test_topics_with_other_numbers_are_told_in_notes() -> None:
    example = (
        "flows:\n  - {source: a, target: b, topics: {include: [o1, o2, o3, o4]}}\n--- # topology scan\n"
        "a: {topics: {o1: {partitions: 2}, o2: {partitions: 4}, o3: {partitions: 2}, o4: {partitions: 4}}}\n"
        "b: {topics: {o1: {partitions: 1}, o2: {partitions: 3}, o3: {partitions: 1}, o4: {partitions: 4}}}\n"
    )
    [finding] = found(example, "TPC411")
    assert finding.message == "`o1` and `o3`: 1 partition at b, 2 at a"
    assert finding.notes == ("`o2`: 3 partitions at b, 4 at a",)


def test_the_order_of_the_file_changes_nothing() -> None:
    first, second = (
        "  - {source: a, target: c, topics: {include: [orders]}}\n",
        "  - {source: b, target: c, topics: {include: [orders]}}\n",
    )
    head = clusters(topics(ORDERS + "cleanup: compact, partitions: 1"), topics(ORDERS + "partitions: 2")) + "flows:\n"
    for code in ("TPC409", "TPC413"):
        one, two = found(head + first + second, code), found(head + second + first, code)
        assert [(each.message, each.fingerprint) for each in one] == [(each.message, each.fingerprint) for each in two]
        assert one != []


def test_topics_of_which_the_same_is_known_stand_together() -> None:
    example = (
        "flows:\n  - {source: a, target: b, topics: {include: [o1, o2, o3]}}\n--- # topology scan\n"
        "a: {topics: {o1: {partitions: 2}, o2: {partitions: 2}, o3: {partitions: 2, overridden: [segment.ms]}}}\n"
    )
    [(_, groups)] = RuleContext(
        parse_topology(complete_example(example)), build_example_inventory(example)
    ).facts.by_equal_facts
    assert [[topic.name for topic in group] for group in groups] == [["o1", "o2"], ["o3"]]


def test_facts_of_brokers_are_declared_and_overridden_by_a_scan() -> None:
    example = clusters(b="facts: {brokers: 5, racks: 2, tiered_storage: true}") + FLOW % ""
    scan = '--- # topology scan\nb: {brokers: 3, configs: {message.max.bytes: "7", compression.type: zstd}}\n'
    declared, seen = (
        RuleContext(parse_topology(complete_example(example)), build_example_inventory(example + more)).facts.cluster(
            "b"
        )
        for more in ("", scan)
    )
    assert (declared.brokers, declared.racks, declared.max_message, declared.tiered_storage) == (5, 2, None, True)
    assert (seen.brokers, seen.racks, seen.max_message, seen.compression) == (3, 2, 7, "zstd")
    assert RuleContext(parse_topology(complete_example(example))).facts.cluster("a") == ClusterFacts()


@pytest.mark.parametrize("name", ["orders", "internal", "connections", "a.schemas", "mm22", "replica"])
def test_names_that_belong_to_nobody(name: str) -> None:
    assert describe_reserved_name(name) is None
    assert not is_streams_name(name)
