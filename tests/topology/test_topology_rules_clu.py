"""CLU rules at their borders; what is plain stands in their manuals."""

from __future__ import annotations

import pytest

from watershed.topology.lint import lint_topology
from watershed.topology.loader import parse_topology
from watershed.topology.rule_manual import build_example_inventory, complete_example


def said(code: str, text: str) -> list[str]:
    """`severity: message` of what one rule says; a scan in the example is a live one."""
    result = lint_topology(parse_topology(complete_example(text)), build_example_inventory(text, live=True))
    return [f"{finding.severity}: {finding.message}" for finding in result.findings if finding.rule == code]


def clusters(**each: str) -> str:
    """alias → what stands in its braces; `_` in an alias is `-`."""
    lines = (f"  {alias.replace('_', '-')}: {{{body}}}" for alias, body in each.items())
    return "clusters:\n" + "\n".join(lines) + "\n"


def at(host: str, more: str = "") -> str:
    return f"bootstrap: ['{host}']{', ' + more if more else ''}"


def flow(source: str, target: str, more: str = "topics: {include: [orders]}") -> str:
    return f"flows: [{{source: {source}, target: {target}, {more}}}]\n"


SCAN = "--- # topology scan\n"
PAIR = clusters(a=at("k:1"), b=at("l:1"))

CASES = [
    # CLU102
    ("hosts know no case", "CLU102", clusters(a=at("K1.x:9092"), b=at("k1.X.:9092")), ["`a` and `b` are one cluster"]),
    ("another port of a host", "CLU102", clusters(a=at("k1.x:9092"), b=at("k1.x:9093")), []),
    ("ports of this machine", "CLU102", clusters(a=at("127.0.0.1:9092"), b=at("localhost:9093")), []),
    ("one port of this machine", "CLU102", clusters(a=at("[::1]:9092"), b=at("localhost:9092")), ["`localhost:9092`"]),
    (
        "one id, told once though the address is shared too",
        "CLU102",
        clusters(a=at("k:1", "cluster_id: same"), b=at("k:1", "cluster_id: same")),
        ["share the cluster id `same`"],
    ),
    (
        "three aliases",
        "CLU102",
        clusters(a=at("k:1"), b=at("k:1"), c=at("k:1")),
        ["`a`, `b` and `c` are one cluster: they share the address `k:1`"],
    ),
    (
        "a scan found one id behind two addresses",
        "CLU102",
        clusters(a=at("k:1"), b=at("l:1")) + SCAN + "{a: {cluster_id: X}, b: {cluster_id: X}}",
        ["the cluster id `X`"],
    ),
    (
        "a scan found two clusters behind one address",
        "CLU102",
        clusters(a=at("k:1"), b=at("k:1")) + SCAN + "{a: {cluster_id: X}, b: {cluster_id: Y}}",
        [],
    ),
    # CLU103
    ("numbers and noise", "CLU103", clusters(remote_cluster2=at("k:1")), ["warning: alias `remote-cluster2`"]),
    ("a place in it", "CLU103", clusters(dr_london=at("k:1"), hub=at("l:1")), []),
    (
        "the pattern names the role",
        "CLU103",
        clusters(primary=at("k:1"), dublin=at("l:1"))
        + "pattern: {active_standby: {active: primary, standby: dublin, topics: {include: [t]}}}",
        ["info: alias `primary`"],
    ),
    (
        "the pattern gives it the other role",
        "CLU103",
        clusters(primary=at("k:1"), dublin=at("l:1"))
        + "pattern: {active_standby: {active: dublin, standby: primary, topics: {include: [t]}}}",
        ["warning: alias `primary`"],
    ),
    # CLU105
    ("not pinned", "CLU105", clusters(a=at("k:1")) + SCAN + "{a: {cluster_id: X}}", []),
    ("not scanned", "CLU105", clusters(a=at("k:1", "cluster_id: X")) + SCAN + "{b: {cluster_id: Y}}", []),
    # CLU106
    (
        "a copy that really comes from there",
        "CLU106",
        "defaults: {naming: {policy: prefix}}\nflows:\n"
        "  - {source: a, target: b, topics: {include: [orders]}}\n"
        "  - {source: b, target: c, topics: {include: [{glob: 'a.*'}, a.orders]}}\n",
        [],
    ),
    (
        "a pattern that begins with an alias",
        "CLU106",
        "defaults: {naming: {policy: prefix}}\nflows:\n"
        "  - {source: a, target: b, topics: {include: [orders]}}\n"
        "  - {source: d, target: b, topics: {include: [{regex: 'c\\.[a-z]+'}]}}\n",
        ["error: `c.` of d looks like a copy from cluster `c`"],
    ),
    (
        "only a scan knows the names",
        "CLU106",
        clusters(a=at("k:1"), b=at("l:1"), c=at("m:1"))
        + flow("a", "b", "topics: {include: [{glob: '*.x'}]}, naming: {policy: prefix}")
        + SCAN
        + "{a: {topics: {c.x: {}, e.x: {}}}}",
        ["`c.x` of a looks like a copy from cluster `c`"],
    ),
    ("identity reads nothing out of names", "CLU106", flow("a", "b", "topics: {include: [c.orders]}"), []),
    # CLU109; SYN016 speaks of an address that nobody filled in
    ("nobody filled it in", "CLU109", clusters(a=at("a.example.invalid:9092")), []),
    ("nobody filled it in", "SYN016", clusters(a=at("a.example.invalid:9092")), ["cannot exist"]),
    ("one of two is filled in", "SYN016", clusters(a="bootstrap: [k:1, x.invalid:1]"), ["cannot exist"]),
    ("one broker", "CLU109", clusters(a=at("k:1", "facts: {brokers: 1}")), []),
    ("one broker in the scan", "CLU109", clusters(a=at("k:1", "facts: {brokers: 3}")) + SCAN + "{a: {brokers: 1}}", []),
    ("three brokers", "CLU109", clusters(a=at("k:1", "facts: {brokers: 3}")), ["info: cluster `a`"]),
    # CLU110: 38 + 4 + 38 is 80
    ("80 characters", "CLU110", clusters(**{"a" * 38: at("k:1"), "b" * 38: at("l:1")}) + flow("a" * 38, "b" * 38), []),
    (
        "81 characters",
        "CLU110",
        clusters(**{"a" * 38: at("k:1"), "b" * 39: at("l:1")}) + flow("a" * 38, "b" * 39),
        ["has 81 characters"],
    ),
    # CLU111
    (
        "some may be lost",
        "CLU111",
        clusters(a=at("k:1", "region: r"), b=at("l:1", "region: r"))
        + flow("a", "b", "topics: {include: [t]}, slo: {rpo: 1s}"),
        [],
    ),
    (
        "regions unknown",
        "CLU111",
        flow("a", "b", "topics: {include: [t]}, slo: {rpo: 0s}"),
        [],
    ),
    (
        "one stretch cluster twice",
        "CLU111",
        clusters(a=at("k:1", "regions: [fra, ams]"), b=at("l:1", "regions: [ams, fra]")) + flow("a", "b"),
        ["both stretched over ams, fra"],
    ),
    (
        "out of a stretch cluster",
        "CLU111",
        clusters(a=at("k:1", "regions: [fra, ams]"), b=at("l:1", "region: fra")) + flow("a", "b"),
        [],
    ),
    # CLU112
    (
        "the releases that it takes",
        "CLU112",
        clusters(a=at("k:1", 'facts: {kafka: "0.11"}'), b=at("l:1", 'facts: {kafka: "2.4.0"}')) + flow("a", "b"),
        [],
    ),
    (
        "2.10 would be newer than 2.4, and 2.3 is not enough to be written to",
        "CLU112",
        clusters(a=at("k:1", 'facts: {kafka: "2.10"}'), b=at("l:1", 'facts: {kafka: "2.3"}')) + flow("a", "b"),
        ["`b` runs Kafka 2.3; as the target of `a-to-b` it needs 2.4"],
    ),
    (
        "unknown and unreadable",
        "CLU112",
        clusters(a=at("k:1", "facts: {kafka: trunk}"), b=at("l:1")) + flow("a", "b"),
        [],
    ),
    (
        "a scan overrides what is declared",
        "CLU112",
        clusters(a=at("k:1", 'facts: {kafka: "2.4"}'), b=at("l:1"))
        + flow("a", "b")
        + SCAN
        + '{a: {kafka: "4.3"}, b: {kafka: "2.3"}}',
        ["`b` runs Kafka 2.3"],
    ),
    (
        "what brokers answer counts, and their release only for what they are not asked",
        "CLU112",
        clusters(a=at("k:1"), b=at("l:1"))
        + flow("a", "b", "topics: {include: [t]}, sync: {configs: {mode: continuous}}")
        + SCAN
        + '{b: {kafka: "2.2", capabilities: {}}}',
        ["it needs 2.3"],
    ),
    # CLU113
    (
        "no idempotence",
        "CLU113",
        PAIR
        + flow("a", "b")
        + SCAN
        + '{b: {capabilities: {oldest_release: "2.1", requests: {init_producer_id: [0, 1]}}}}',
        [
            "`a-to-b` cannot have `exactly_once: sequence`: the target needs init_producer_id in versions 2 to 5 "
            "(idempotent producers), and brokers of cluster b (Kafka 2.1) take versions 0 to 1; Kafka 2.4 and newer"
        ],
    ),
    (
        "transactions are needed by those flows alone that copy in them",
        "CLU113",
        PAIR
        + "flows:\n  - {source: a, target: b, topics: {include: [t]}, delivery: {semantics: transactions}}\n"
        + "  - {source: a, target: b, suffix: x, topics: {include: [u]}, naming: {policy: prefix}}\n"
        + SCAN
        + "{b: {capabilities: {requests: {end_txn: null}}}}",
        ["`a-to-b` cannot have `exactly_once: transactions`: the target needs end_txn"],
    ),
    (
        "a source that has no record batches",
        "CLU113",
        PAIR + flow("a", "b") + SCAN + "{a: {capabilities: {requests: {fetch: [0, 3]}}}, b: {capabilities: {}}}",
        ["the source needs fetch in versions 4 to 13"],
    ),
    (
        "at_least_once allows it",
        "CLU113",
        PAIR
        + flow("a", "b", "topics: {include: [t]}, delivery: {semantics: at_least_once}")
        + SCAN
        + "{b: {capabilities: {requests: {init_producer_id: null}}}}",
        [],
    ),
    (
        "at_least_once allows it, and another setting forbids it",
        "CLU113",
        PAIR
        + flow("a", "b", "topics: {include: [t]}, delivery: {semantics: at_least_once}, offsets: aligned")
        + SCAN
        + "{b: {capabilities: {requests: {init_producer_id: null}}}}",
        ["brokers of cluster b (a Kafka release that is not known) do not take it"],
    ),
    (
        "neither topic ids nor producer states are needed",
        "CLU113",
        PAIR + flow("a", "b") + SCAN + "{b: {capabilities: {topic_ids: false, requests: {describe_producers: null}}}}",
        [],
    ),
    (
        "a probe saw that numbers are not checked",
        "CLU113",
        PAIR + flow("a", "b") + SCAN + "{b: {capabilities: {tried: {sequence_check: a repeated batch was stored}}}}",
        ["does not have a check of sequence numbers: a repeated batch was stored"],
    ),
    ("brokers that were not asked", "CLU113", PAIR + flow("a", "b") + SCAN + '{b: {kafka: "2.0"}}', []),
    (
        "as a source a cluster needs little",
        "CLU113",
        PAIR + flow("b", "a") + SCAN + "{b: {capabilities: {requests: "
        "{metadata: [0, 5], fetch: [0, 6], init_producer_id: null}}}}",
        [],
    ),
]


@pytest.mark.parametrize(("code", "text", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_case(code: str, text: str, expected: list[str]) -> None:
    found = said(code, text)
    assert len(found) == len(expected), found
    for message, fragment in zip(found, expected, strict=True):
        assert fragment in message


def test_an_old_release_says_everything_that_it_lacks() -> None:
    text = clusters(a=at("k:1"), b=at("l:1", 'facts: {kafka: "0.10"}')) + flow(
        "a", "b", "topics: {include: [t]}, provenance: {header: hops}, sync: {configs: {mode: continuous}}"
    )
    [finding] = [
        each for each in lint_topology(parse_topology(complete_example(text))).findings if each.rule == "CLU112"
    ]
    assert [note.rpartition(" ")[2] for note in finding.notes] == ["2.4", "2.3", "0.11"]
    assert finding.confidence == "likely"


def test_unpinned_is_only_told_until_the_profile_is_strict() -> None:
    assert said("CLU104", clusters(a=at("k:1"))) == ["info: cluster `a` pins no `cluster_id`"]
    assert said("CLU104", clusters(a=at("k:1", "cluster_id: X"))) == []
