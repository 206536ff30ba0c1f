"""NAM rules at their borders; what is plain stands in their manuals."""

from __future__ import annotations

import pytest

from watershed.topology.finding import LintFinding
from watershed.topology.lint import lint_topology
from watershed.topology.loader import parse_topology
from watershed.topology.rule_manual import build_example_inventory, complete_example
from watershed.topology.rules.nam.nam306_unescaped_dot import find_unescaped_dots
from watershed.topology.rules.nam.nam313_class_without_dots import find_classes_without_dots

SCAN = "--- # topology scan\n"


def found(code: str, text: str) -> list[LintFinding]:
    result = lint_topology(parse_topology(complete_example(text)), build_example_inventory(text))
    return [finding for finding in result.findings if finding.rule == code]


def flow(source: str, target: str, include: str, more: str = "") -> str:
    return (
        f"  - {{source: {source}, target: {target}, topics: {{include: [{include}]}}{', ' + more if more else ''}}}\n"
    )


def flows(*each: str) -> str:
    return "flows:\n" + "".join(each)


PREFIX = "naming: {policy: prefix}"
PREFIXED = f"defaults: {{{PREFIX}}}\n"
LONG = "x" * 247

CASES = [
    # NAM301
    ("249 characters", "NAM301", flows(flow("a", "b", LONG, PREFIX)), []),
    ("250 characters", "NAM301", flows(flow("a", "b", LONG + "x", PREFIX)), ["error: flow a-to-b makes"]),
    (
        "the second hop is too much",
        "NAM301",
        PREFIXED + flows(flow("a", "b", LONG[2:] + "yy"), flow("b", "c", "{glob: 'a.*'}")),
        ["flow b-to-c makes"],
    ),
    (
        "a name that only a scan knows, over two hops",
        "NAM301",
        PREFIXED
        + flows(flow("a", "b", "{glob: 'x*'}"), flow("b", "c", "{glob: 'a.x*'}"))
        + SCAN
        + f"a: {{topics: {{{LONG}: {{}}, x1: {{}}}}}}\n",
        ["flow b-to-c makes"],
    ),
    (
        "a template that leaves no room",
        "NAM301",
        flows(flow("a", "b", "{glob: '*'}", f'naming: {{policy: template, template: "{"y" * 249}{{topic}}"}}')),
        ["flow a-to-b makes `yyy"],
    ),
    # NAM302
    (
        "a template in defaults is told once",
        "NAM302",
        'defaults: {naming: {policy: template, template: "{source}/{topic} "}}\n'
        + flows(flow("a", "b", "t"), flow("a", "c", "t")),
        ["puts a space, `/` into topic names"],
    ),
    (
        "mapped to two dots",
        "NAM302",
        flows(flow("a", "b", "t", 'naming: {policy: map, map: {t: ".."}}')),
        ["`t` is mapped to `..`"],
    ),
    ("a selector of one dot", "NAM302", flows(flow("a", "b", '"."')), ["no topic can be called `.`"]),
    # NAM303
    ("one flow brings both", "NAM303", flows(flow("a", "b", "x.y, x_y")), ["warning: `x.y` and `x_y` cannot both"]),
    ("the target has it", "NAM303", flows(flow("a", "b", "x.y")) + SCAN + "b: {topics: {x_y: {}}}", ["at b"]),
    (
        "the target has it under the same name",
        "NAM303",
        flows(flow("a", "b", "x.y")) + SCAN + "b: {topics: {x.y: {}}}",
        [],
    ),
    ("a prefix keeps them apart", "NAM303", flows(flow("a", "b", "x.y", PREFIX)) + SCAN + "b: {topics: {x_y: {}}}", []),
    ("what no flow brings", "NAM303", flows(flow("a", "b", "t")) + SCAN + "b: {topics: {x.y: {}, x_y: {}}}", []),
    (
        "many of them are one finding",
        "NAM303",
        flows(flow("a", "b", "{glob: '*.y'}"))
        + SCAN
        + "{a: {topics: {p.y: {}, q.y: {}, r.y: {}}}, b: {topics: {p_y: {}, q_y: {}, r_y: {}}}}",
        ["`p.y` and `p_y` cannot both be at b: their metrics have one name (2 more like it)"],
    ),
    # NAM304
    (
        "the name is mapped away",
        "NAM304",
        flows(flow("a", "b", "x, z", "naming: {policy: map, map: {x: z, z: x}}")),
        [],
    ),
    ("the name is not taken", "NAM304", flows(flow("a", "b", "x", "naming: {policy: map, map: {x: z}}")), []),
    (
        "the name is taken literally",
        "NAM304",
        flows(flow("a", "b", "x, z", "naming: {policy: map, map: {x: z}}")),
        ["error: flow a-to-b maps `x` to `z`"],
    ),
    (
        "two flows of one source, merged",
        "NAM304",
        "defaults: {merge: {allowed: true}}\n"
        + flows(flow("a", "b", "x", PREFIX), flow("a", "b", "a.x", "suffix: two")),
        ["warning: a-to-b and a-to-b-two bring two topics of a to b under one name (`a.x`)"],
    ),
    (
        "two sources, merged",
        "NAM304",
        "defaults: {merge: {allowed: true}}\n" + flows(flow("a", "b", "x", PREFIX), flow("c", "b", "a.x")),
        [],
    ),
    # NAM305
    (
        "a map reserves the name of a topic that keeps it",
        "NAM305",
        flows(flow("a", "b", "z", "naming: {policy: map, map: {x: z}}")),
        ["warning: flow a-to-b copies `z` under its own name"],
    ),
    (
        "an entry with a typing error",
        "NAM305",
        flows(flow("a", "b", "orders", "naming: {policy: map, map: {order: orders2}}")),
        ["warning: the map renames `order`, which a-to-b does not take"],
    ),
    (
        "one map for two flows",
        "NAM305",
        "defaults: {naming: {policy: map, map: {x: x2, z: z2}}}\n" + flows(flow("a", "b", "x"), flow("a", "c", "z")),
        [],
    ),
    (
        "one map for two flows, of which one keeps the name that the other's topic gets",
        "NAM305",
        "defaults: {naming: {policy: map, map: {x: z}}}\n" + flows(flow("a", "b", "x"), flow("a", "c", "z")),
        ["warning: flow a-to-c copies `z` under its own name"],
    ),
    (
        "a template without {source}",
        "NAM305",
        flows(flow("a", "b", "x", 'naming: {policy: template, template: "{topic}.copy"}')),
        [],
    ),
    # NAM306
    (
        "excluded ones too",
        "NAM306",
        flows("  - {source: a, target: b, topics: {include: [t], exclude: [{regex: 'a.b'}]}}"),
        ["`a.b`"],
    ),
    ("a glob's dot is a dot", "NAM306", flows(flow("a", "b", "{glob: 'eu.*'}")), []),
    (
        "declared facts",
        "NAM306",
        "clusters:\n  a: {bootstrap: ['k:1'], topics: [{match: {regex: 'eu.o.*'}, partitions: 3}]}\n",
        ["character 3"],
    ),
    (
        "a pattern in defaults is told once",
        "NAM306",
        "defaults: {topics: {include: [{regex: 'eu.orders.v[0-9]'}]}}\n"
        "flows: [{source: a, target: b}, {source: a, target: c}]\n",
        ["character 3 is any character (1 more like it)"],
    ),
    # NAM307
    (
        "an exclude was thought of",
        "NAM307",
        flows("  - {source: a, target: b, topics: {include: [{glob: '*'}], exclude: [t]}}"),
        [],
    ),
    (
        "in other words",
        "NAM307",
        flows(flow("a", "b", "{regex: '([a-zA-Z0-9._-]+|.{1,200})'}")),
        ["takes every topic of a"],
    ),
    ("nearly everything", "NAM307", flows(flow("a", "b", "{glob: 'a*'}, {regex: '[a-z].*'}")), []),
    # NAM308
    ("an application's topic", "NAM308", flows(flow("a", "b", "door-heartbeats")), ["info: flow a-to-b copies"]),
    (
        "an application's topic beside MirrorMaker 2",
        "NAM308",
        flows(flow("a", "b", "door-heartbeats")) + SCAN + "b: {topics: {mm2-offsets.a.internal: {}}}",
        ["warning: flow a-to-b copies `door-heartbeats`: a name that MirrorMaker 2, which runs here, renames"],
    ),
    (
        "a pattern takes them, as a scan shows",
        "NAM308",
        flows(flow("a", "b", "{glob: '*beats'}")) + SCAN + "a: {topics: {heartbeats: {}, z.heartbeats: {}}}",
        ["warning: flow a-to-b copies `heartbeats` and `z.heartbeats`"],
    ),
    # NAM309
    (
        "a template's text between the two",
        "NAM309",
        "clusters: {a-from-b: {bootstrap: ['k:1']}, c: {bootstrap: ['l:1']}}\n"
        + flows(flow("a-from-b", "c", "t", 'naming: {policy: template, template: "{topic}-from-{source}"}')),
        ["separates with `-from-`"],
    ),
    (
        "a template without the source",
        "NAM309",
        "clusters: {a-b: {bootstrap: ['k:1']}, c: {bootstrap: ['l:1']}}\n"
        + flows(flow("a-b", "c", "t", 'naming: {policy: template, template: "x-{topic}"}')),
        [],
    ),
    # NAM310
    (
        "connected by a flow that keeps names",
        "NAM310",
        flows(
            flow("a", "b", "t", PREFIX),
            flow("b", "c", "u"),
            flow("c", "d", "v", "naming: {policy: prefix, separator: '-'}"),
        ),
        ["connected flows use different separators: `-` in 1 flow, `.` in 1 flow"],
    ),
    (
        "not connected",
        "NAM310",
        flows(flow("a", "b", "t", PREFIX), flow("c", "d", "v", "naming: {policy: prefix, separator: '-'}")),
        [],
    ),
    # NAM311
    (
        "copies of other sources are meant",
        "NAM311",
        PREFIXED + flows(flow("a", "c", "orders"), flow("b", "c", "orders")),
        [],
    ),
    (
        "the target's own topic",
        "NAM311",
        flows(flow("a", "b", "orders", PREFIX)) + SCAN + "b: {topics: {orders: {}, shop.orders: {}, backorders: {}}}",
        ["info: consumers of `.*orders` at b also read `backorders`"],
    ),
    ("identity", "NAM311", flows(flow("a", "b", "orders")) + SCAN + "b: {topics: {backorders: {}}}", []),
]


@pytest.mark.parametrize(("code", "text", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_case(code: str, text: str, expected: list[str]) -> None:
    said = [f"{finding.severity}: {finding.message}" for finding in found(code, text)]
    assert len(said) == len(expected), said
    for message, fragment in zip(said, expected, strict=True):
        assert fragment in message


@pytest.mark.parametrize(
    ("regex", "dots"),
    [
        ("eu.orders", [2]),
        (r"eu\.orders", []),
        ("eu.*", []),
        (".orders", []),
        ("orders.", []),
        ("a..b", []),
        ("a.{3}b", []),
        ("(a|b).c", [5]),
        ("(?:a|b).[cd]+.e", [7, 13]),
        (r"[.x]y.\d", [5]),
        (r"a\..b", []),
        ("[]x].a", [4]),
        ("a|.b", []),
    ],
)
def test_loose_dots(regex: str, dots: list[int]) -> None:
    assert find_unescaped_dots(regex) == dots


@pytest.mark.parametrize(
    ("regex", "classes"),
    [
        ("orders[a-z]*", ["[a-z]"]),
        (r"orders\w+", [r"\w"]),
        (r"^Example[\w]*", [r"[\w]"]),
        ("[a-zA-Z0-9_]{2,}x[a-z]+", ["[a-zA-Z0-9_]", "[a-z]"]),
        ("orders[a-z]", []),
        ("orders[a-z]?", []),
        ("orders[a-z.]*", []),
        ("orders[a-z_-]*", []),
        ("orders-[0-9]+", []),
        ("[^.]*", []),
        ("orders.*", []),
    ],
)
def test_classes_without_dots(regex: str, classes: list[str]) -> None:
    assert find_classes_without_dots(regex) == classes


def test_the_help_of_an_unescaped_dot_is_the_regex_that_was_meant() -> None:
    [finding] = found("NAM306", flows(flow("a", "b", "{regex: 'eu.orders'}")))
    assert r"write `eu\.orders`" in finding.help


@pytest.mark.parametrize(
    ("scan", "confidence"),
    [("", "likely"), (SCAN + "a: {topics: {x: {}}}", "possible"), (SCAN + "a: {topics: {xz: {}}}", "certain")],
)
def test_a_map_that_meets_a_pattern_is_as_sure_as_what_is_known(scan: str, confidence: str) -> None:
    text = flows(flow("a", "b", "{glob: 'x*'}", "naming: {policy: map, map: {x: xz}}")) + scan
    assert [finding.confidence for finding in found("NAM304", text)] == [confidence]


def test_shuffled_flows_give_the_same_findings() -> None:
    parts = (
        flow("a", "b", "x.y", PREFIX),
        flow("c", "b", "a_x.y"),
        flow("b", "d", "{regex: 'p.q'}", "naming: {policy: prefix, separator: '_'}"),
    )
    codes = ("NAM303", "NAM306", "NAM310")
    one, two = flows(*parts), flows(*reversed(parts))
    for code in codes:
        assert (
            {each.fingerprint for each in found(code, one)} == {each.fingerprint for each in found(code, two)} != set()
        )
