"""OPS rules at their borders; what is plain stands in their manuals."""

from __future__ import annotations

import pytest

from watershed.topology.finding import LintFinding
from watershed.topology.lint import lint_topology
from watershed.topology.lint_configuration import LintConfiguration
from watershed.topology.loader import parse_topology
from watershed.topology.plan_builder import build_plan
from watershed.topology.rule_manual import build_example_inventory, complete_example

SCAN = "--- # topology scan\n"


def found(code: str, text: str, configuration: LintConfiguration | None = None) -> list[LintFinding]:
    result = lint_topology(
        parse_topology(complete_example(text)),
        build_example_inventory(text, live=True),
        configuration or LintConfiguration(),
    )
    return [finding for finding in result.findings if finding.rule == code]


def compiled(text: str) -> str:
    """The hash that `topology compile` gives."""
    loaded = parse_topology(complete_example(text))
    assert loaded.topology is not None
    return build_plan(loaded.topology, lint_topology(loaded).proofs).hash


def pool(slots: str, *flows: str) -> str:
    head = f"clusters:\n  a: {{bootstrap: ['k:1']}}\n  b: {{bootstrap: ['l:1']{slots}}}\nflows:\n"
    return head + "".join(
        f"  - {{source: a, target: b, topics: {{include: [t{n}]}}, {each}}}\n" for n, each in enumerate(flows)
    )


def declared(facts: str, scan: str) -> str:
    return f"clusters:\n  a: {{bootstrap: ['k:1'], {facts}}}\n" + SCAN + f"a: {{{scan}}}\n"


TWO = (
    "flows: [{source: a, target: b, topics: {include: [t]}}, "
    "{source: a, target: b, suffix: two, topics: {include: [u]}}]\n"
)
ORDERED = (
    TWO.replace("{", "{{").replace("}", "}}")
    + SCAN
    + "b: {{flows: {{a-to-b: {{topology: {a}, plan_hash: '{one}'}}, "
    + "a-to-b-two: {{topology: {b}, plan_hash: '{two}'}}}}}}\n"
)
PLAN = compiled(TWO)
TOPIC = "topics: {orders: {partitions: 6, configs: {retention.ms: '-1', cleanup.policy: 'delete,compact'}}}"

CASES = [
    ("somebody owns it", "OPS901", "metadata: {name: x, owner: me}\n", []),
    # OPS902
    (
        "one way to read the id",
        "OPS902",
        "clusters: {a: {bootstrap: ['k:1']}, b-to-c: {bootstrap: ['l:1']}, c: {bootstrap: ['m:1']}}\n"
        "flows: [{source: a, target: b-to-c, topics: {include: [t]}}]\n",
        [],
    ),
    (
        "a mesh loses one of two flows",
        "OPS902",
        "clusters: {a: {bootstrap: ['k:1']}, b-to-c: {bootstrap: ['l:1']}, a-to-b: {bootstrap: ['m:1']}, "
        "c: {bootstrap: ['n:1']}}\n"
        "pattern: {active_active: {via: direct, members: [a, b-to-c, a-to-b, c], topics: {include: [t]}, "
        "naming: {policy: prefix}}}\n",
        ["error: the id a-to-b-to-c of "],
    ),
    (
        "a suffix that reads like a target",
        "OPS902",
        "clusters: {a: {bootstrap: ['k:1']}, b: {bootstrap: ['l:1']}, b-to-c: {bootstrap: ['m:1']}}\n"
        "flows: [{source: a, target: b, suffix: to-c, topics: {include: [t]}}]\n",
        ["error: the id a-to-b-to-c of a -> b is also that of a -> b-to-c"],
    ),
    (
        "another topology has it",
        "OPS902",
        ORDERED.format(a="other", b="example", one="sha256:1", two="sha256:1"),
        ["error: flow a-to-b at b belongs to topology other already"],
    ),
    # OPS905
    (
        "what runs is what the file gives",
        "OPS905",
        ORDERED.format(a="example", b="example", one=PLAN, two=PLAN),
        [],
    ),
    (
        "the file changed since",
        "OPS905",
        ORDERED.format(a="example", b="example", one="sha256:1", two="sha256:1"),
        ["info: 2 flows of this topology follow the plan sha256:1, and the file gives sha256:"],
    ),
    (
        "an apply stopped half way",
        "OPS905",
        ORDERED.format(a="example", b="example", one="sha256:1", two="sha256:2"),
        ["error: flows follow 2 plans at once: sha256:1 `a-to-b`; sha256:2 `a-to-b-two`"],
    ),
    (
        "a flow that left the file, whose target is still in it",
        "OPS905",
        "flows: [{source: b, target: c, topics: {include: [t]}}]\n"
        + SCAN
        + "b: {flows: {a-to-b: {topology: example, plan_hash: 'sha256:1'},"
        + " a-to-b-old: {topology: example, plan_hash: 'sha256:1', state: stopped}}}",
        ["warning: flow a-to-b of this topology is still ordered at b"],
    ),
    # OPS903
    ("as many as there are", "OPS903", pool(", limits: {workers: 4}", "workers: {count: 4}"), []),
    (
        "one too many",
        "OPS903",
        pool(", limits: {workers: 4}", "workers: {count: 5}"),
        ["ask for 5 workers into b, and 4"],
    ),
    ("one each, by default", "OPS903", pool(", limits: {workers: 1}", "suffix: one", "suffix: two"), ["2 workers"]),
    ("a paused flow", "OPS903", pool(", limits: {workers: 1}", "suffix: one", "suffix: two, state: paused"), []),
    ("no limit", "OPS903", pool("", "workers: {count: 900}"), []),
    # OPS906
    ("the same", "OPS906", declared("facts: {brokers: 1}", "brokers: 1"), []),
    ("one release said in two ways", "OPS906", declared('facts: {kafka: "4.1.0"}', 'kafka: "4.1"'), []),
    ("another release", "OPS906", declared('facts: {kafka: "4.1"}', 'kafka: "4.10"'), ["kafka is 4.10, declared 4.1"]),
    ("what a scan cannot see", "OPS906", declared("facts: {racks: 3, max_message: 1MiB}", "brokers: 2"), []),
    (
        "two things of a cluster are one finding",
        "OPS906",
        declared("facts: {brokers: 2, racks: 3}", "brokers: 4, racks: 2"),
        ["brokers is 4, declared 2 (1 more)"],
    ),
    (
        "nothing was declared",
        "OPS906",
        declared("owner: me", TOPIC),
        [],
    ),
    (
        "a topic's facts",
        "OPS906",
        declared("topics: [{match: orders, partitions: 6, retention: 7d, cleanup: compact_delete}]", TOPIC),
        ["retention of `orders` is forever, declared 7d"],
    ),
    (
        "the first entry that matches counts",
        "OPS906",
        declared("topics: [{match: {glob: 'o*'}, partitions: 6}, {match: orders, partitions: 9}]", TOPIC),
        [],
    ),
    (
        "a limit that is exceeded",
        "OPS906",
        declared("limits: {partitions: 5}", TOPIC),
        ["limits.partitions is 5, and 6 are there already"],
    ),
]


@pytest.mark.parametrize(("code", "text", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_case(code: str, text: str, expected: list[str]) -> None:
    said = [f"{finding.severity}: {finding.message}" for finding in found(code, text)]
    assert len(said) == len(expected), said
    for message, fragment in zip(said, expected, strict=True):
        assert fragment in message


def test_no_owner_is_a_warning_where_the_profile_is_strict() -> None:
    assert [each.severity for each in found("OPS901", "metadata: {name: x}\n")] == ["info"]
    strict = LintConfiguration(profile="strict")
    assert [each.severity for each in found("OPS901", "metadata: {name: x}\n", strict)] == ["warning"]
