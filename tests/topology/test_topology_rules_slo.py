"""SLO rules beyond their manuals' examples: equal limits, unknown numbers, scans above what is declared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from watershed.topology.finding import LintFinding
from watershed.topology.lint import lint_topology
from watershed.topology.lint_configuration import LintConfiguration
from watershed.topology.loader import parse_topology
from watershed.topology.rule_manual import build_example_inventory, complete_example


def found(example: str, code: str, **options: object) -> list[LintFinding]:
    configuration = replace(LintConfiguration(profile="strict"), options=options)
    result = lint_topology(parse_topology(complete_example(example)), build_example_inventory(example), configuration)
    return [finding for finding in result.findings if finding.rule == code]


def flow(more: str = "", topics: str = "orders", ends: str = "source: a, target: b") -> str:
    return f"  - {{{ends}, topics: {{include: [{topics}]}}{', ' + more if more else ''}}}\n"


def clusters(**aliases: str) -> str:
    return "clusters:\n" + "".join(
        f"  {alias}: {{bootstrap: [k1.{alias}.example.internal:9093]{', ' + text if text else ''}}}\n"
        for alias, text in aliases.items()
    )


# --- SLO701, SLO708: absence, once for each declaration


@pytest.mark.parametrize("code", ["SLO701", "SLO708"])
def test_a_pattern_of_many_flows_is_one_finding(code: str) -> None:
    aliases = {f"s{number}": "" for number in range(9)} | {"hub": ""}
    text = clusters(**aliases) + "pattern:\n  aggregation:\n    sources: [s0, s1, s2, s3, s4, s5, s6, s7, s8]\n"
    text += "    target: hub\n    topics: {include: [t]}\n    naming: {policy: prefix}\n"
    [finding] = found(text, code)
    assert finding.severity == "warning"
    assert "`s0-to-hub`, `s1-to-hub` and 7 more" in finding.message
    assert len(finding.ids) == 9


def test_a_lag_budget_that_says_nothing_is_none() -> None:
    assert len(found("flows:\n" + flow("slo: {lag: {}}"), "SLO701")) == 1
    assert found("flows:\n" + flow("slo: {lag: {p99: 10s}}"), "SLO701") == []


def test_without_a_profile_absence_only_informs() -> None:
    result = lint_topology(parse_topology(complete_example("flows:\n" + flow())))
    assert [finding.rule for finding in result.findings if finding.severity != "info"] == []


# --- SLO702


def hops(first: str, second: str, more: str = "", topics: str = "orders") -> str:
    return "flows:\n" + flow(first) + flow(second + more, topics, "source: b, target: c")


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        (hops("slo: {lag: {max: 5m}}", "slo: {lag: {max: 5m}, end_to_end: {max: 10m}}"), []),
        (
            hops("slo: {lag: {max: 5m}}", "slo: {lag: {max: 5m}, end_to_end: {max: 9m}}"),
            ["a-to-b 5m + b-to-c 5m = 10m"],
        ),
        # a hop without a budget adds nothing that is known
        (hops("slo: {lag: {p99: 5m}}", "slo: {lag: {max: 5m}, end_to_end: {max: 9m}}"), []),
        # records of another flow stop here, or are not selected
        (
            hops(
                "slo: {lag: {max: 5m}}",
                "slo: {lag: {max: 5m}, end_to_end: {max: 9m}}",
                ", provenance: {forward: local}",
            ),
            [],
        ),
        (hops("slo: {lag: {max: 5m}}", "slo: {lag: {max: 5m}, end_to_end: {max: 9m}}", topics="payments"), []),
        # one hop alone
        ("flows:\n" + flow("slo: {lag: {p99: 10s}, end_to_end: {p99: 5s}}"), ["a-to-b 10s = 10s"]),
    ],
)
def test_budgets_of_hops_add_up(text: str, notes: list[str]) -> None:
    assert [note for finding in found(text, "SLO702") for note in finding.notes] == notes


def test_the_longest_way_counts_and_is_told_once() -> None:
    slo = "slo: {lag: {p99: 4m}, end_to_end: {p99: 10m}}"
    text = f"pattern:\n  chain: {{path: [a, b, c, d], topics: {{include: [t]}}, {slo}}}\n"
    [finding] = found(text, "SLO702")
    assert finding.ids == ("a-to-b", "b-to-c", "c-to-d")
    assert "from a to d may be 12m late (p99)" in finding.message


def test_a_loop_of_budgets_ends() -> None:
    slo = "slo: {lag: {p99: 4m}, end_to_end: {p99: 10m}}, merge: {allowed: true}"
    text = "flows:\n" + "".join(
        flow(slo, "t", f"source: {one}, target: {two}") for one in "abcd" for two in "abcd" if one != two
    )
    assert all(len(set(finding.ids)) <= 3 for finding in found(text, "SLO702"))


# --- SLO704, SLO705, SLO707: rates


def hub(limits: str, peaks: tuple[str, str] = ("40MiB/s", "30MiB/s"), more: str = "") -> str:
    text = clusters(a="", b="", hub=f"limits: {{{limits}}}") + "flows:\n"
    for alias, peak in zip("ab", peaks, strict=True):
        expected = f"expected: {{peak_ingress: {peak}}}" if peak else "naming: {policy: identity}"
        text += flow(expected + more, f"t{alias}", f"source: {alias}, target: hub")
    return text


@pytest.mark.parametrize(
    ("text", "options", "count"),
    [
        (hub("ingress: 100MiB/s"), {}, 0),  # 70 of 70: equal is enough
        (hub("ingress: 99MiB/s"), {}, 1),
        (hub("ingress: 99MiB/s"), {"headroom": 0.1}, 0),
        (hub("ingress: 100MiB/s, headroom: 31%"), {"headroom": 0.0}, 1),
        (hub("ingress: 99MiB/s", ("40MiB/s", "")), {}, 0),
        (hub("ingress: 50MiB/s", more=", state: paused"), {}, 0),
        (hub("egress: 1MiB/s"), {}, 0),
    ],
)
def test_fan_in(text: str, options: dict[str, float], count: int) -> None:
    assert len(found(text, "SLO704", **options)) == count


def test_fan_in_counts_what_a_scan_saw() -> None:
    text = hub("ingress: 60MiB/s", ("40MiB/s", "")) + "--- # topology scan\nb: {topics: {tb: {rate_bytes: 3145728}}}\n"
    [finding] = found(text, "SLO704")
    assert finding.notes == ("a-to-hub 40MiB/s + b-to-hub 3MiB/s (seen) = 43MiB/s",)


def test_fan_out() -> None:
    text = clusters(a="limits: {egress: 100MiB/s}") + "flows:\n"
    text = text.replace("clusters:\n", "clusters:\n  b: {bootstrap: [k1.b.example.internal:9093]}\n")
    one = flow("expected: {peak_ingress: 70MiB/s}")
    assert found(text + one, "SLO705") == []
    [finding] = found(text + one.replace("70", "71"), "SLO705")
    assert "71MiB/s from a, which can give 70MiB/s (100MiB/s less 30% headroom)" in finding.message


@pytest.mark.parametrize(("quota", "count"), [("41MiB/s", 0), ("40MiB/s", 1), ("39MiB/s", 1)])
def test_catching_up(quota: str, count: int) -> None:
    text = "flows:\n" + flow(f"workers: {{quota: {quota}}}, expected: {{peak_ingress: 40MiB/s}}")
    assert len(found(text, "SLO707")) == count


def test_catching_up_with_what_a_scan_saw() -> None:
    text = (
        "flows:\n"
        + flow("workers: {quota: 1MiB/s}")
        + "--- # topology scan\na: {topics: {orders: {rate_bytes: RATE}}}\n"
    )
    [finding] = found(text.replace("RATE", "1048576"), "SLO707")
    assert finding.confidence == "likely"
    assert found(text.replace("RATE", "1048575"), "SLO707") == []
    assert found(text.replace("{rate_bytes: RATE}", "{}"), "SLO707") == []


# --- SLO706, SLO710: partitions

TOPICS = "topics: [{match: t1, partitions: 6}, {match: t2, partitions: 6}]"


@pytest.mark.parametrize(
    ("limit", "scan", "count"),
    [
        (12, "", 0),
        (11, "", 1),
        # the target's own topics count, an existing copy only once
        (12, "b: {topics: {own: {}}}", 1),
        (12, "b: {topics: {t1: {partitions: 6}}}", 0),
        # a scan knows better than the file
        (12, "a: {topics: {t1: {partitions: 7}}}", 1),
    ],
)
def test_partition_budget(limit: int, scan: str, count: int) -> None:
    text = clusters(a=TOPICS, b=f"limits: {{partitions: {limit}}}") + "flows:\n" + flow(topics="t1, t2, unknown")
    assert len(found(text + (f"--- # topology scan\n{scan}\n" if scan else ""), "SLO706")) == count


def test_renamed_copies_count_each() -> None:
    text = clusters(a=TOPICS, b=TOPICS, c="limits: {partitions: 24}") + "flows:\n"
    for alias in "ab":
        text += flow("naming: {policy: prefix}", "t1, t2", f"source: {alias}, target: c")
    assert found(text, "SLO706") == []
    [finding] = found(text.replace("partitions: 24", "partitions: 23"), "SLO706")
    assert "24 partitions; its limit is 23" in finding.message


@pytest.mark.parametrize(
    ("topics", "workers", "options", "count"),
    [
        ("t1, t2", 12, {}, 0),
        ("t1, t2", 13, {}, 1),
        ("t1, t2, unknown", 13, {}, 0),
        ('{glob: "t*"}', 13, {}, 0),
        ("t1, t2", 1, {}, 0),
        ("t1, t2", 1, {"partitions_per_worker": 11}, 1),
        ("t1, t2", 1, {"partitions_per_worker": 12}, 0),
    ],
)
def test_workers_and_partitions(topics: str, workers: int, options: dict[str, int], count: int) -> None:
    text = clusters(a=TOPICS, b="") + "flows:\n" + flow(f"workers: {{count: {workers}}}", topics)
    assert len(found(text, "SLO710", **options)) == count


def test_workers_and_the_partitions_of_a_scan() -> None:
    text = clusters(a="", b="") + "flows:\n" + flow("workers: {count: 3}", '{glob: "t*"}')
    assert len(found(text + "--- # topology scan\na: {topics: {t1: {}, t2: {}, x: {partitions: 9}}}\n", "SLO710")) == 1


# --- SLO703, SLO709, SLO711, SLO712


def test_rpo_zero_in_defaults_is_one_finding() -> None:
    text = "defaults: {slo: {rpo: 0s}}\nflows:\n" + flow() + flow(ends="source: b, target: c")
    [finding] = found(text, "SLO703")
    assert finding.ids == ("a-to-b", "b-to-c")
    assert found(text.replace("0s", "1ms"), "SLO703") == []


@pytest.mark.parametrize(
    ("one", "two", "count"),
    [
        ("region: r1", "region: r2", 1),
        ("region: r1", "region: r1", 0),
        ("region: r1", "", 0),
        ("regions: [r1, r2]", "region: r2", 0),
    ],
)
def test_workers_near_the_source(one: str, two: str, count: int) -> None:
    text = clusters(a=one, b=two) + "flows:\n" + flow("workers: {near: source}")
    assert len(found(text, "SLO709")) == count
    assert found(text.replace("workers:", "compression: zstd, workers:"), "SLO709") == []


def test_compression_behind_the_long_line() -> None:
    regions = clusters(a="region: r1", b="region: r2")
    behind = regions + "defaults: {compression: zstd}\nflows:\n" + flow() + flow(ends="source: b, target: a")
    assert [each.ids for each in found(behind, "SLO713")] == [("a-to-b",), ("b-to-a",)]
    for other in ("workers: {near: source}", "compression: none"):
        assert found(regions + "defaults: {compression: zstd}\nflows:\n" + flow(other), "SLO713") == []
    assert found(behind.replace("region: r1", "region: r2"), "SLO713") == []


@pytest.mark.parametrize(
    ("there", "back", "more", "count"),
    [
        ("orders", "orders", "", 1),
        ('{glob: "o*"}', '{glob: "*s"}', "", 1),
        ('{glob: "a.*"}', '{glob: "b.*"}', "", 0),
        ("orders", "orders", "state: paused", 0),
        ("orders", "orders", "naming: {policy: prefix}", 0),
    ],
)
def test_identity_both_ways(there: str, back: str, more: str, count: int) -> None:
    text = "flows:\n" + flow(topics=there) + flow(more, back, "source: b, target: a")
    assert len(found(text, "SLO711")) == count


@pytest.mark.parametrize(
    ("rto", "groups", "options", "count"),
    [
        ("2m", "mode: never", {}, 0),
        ("119s", "mode: never", {}, 1),
        ("130s", "mode: continuous", {}, 0),
        ("129s", "mode: continuous", {}, 1),
        ("10m", "mode: continuous, interval: 9m", {}, 1),
        ("10m", "mode: continuous, interval: 9m", {"client_restart": 60_000}, 0),
        ("10m", "mode: once, interval: 9m", {}, 0),
    ],
)
def test_recovery_time(rto: str, groups: str, options: dict[str, int], count: int) -> None:
    text = "flows:\n" + flow(f"slo: {{rto: {rto}}}, sync: {{groups: {{{groups}}}}}")
    assert len(found(text, "SLO712", **options)) == count
