"""`delivery.start` and `delivery.end`: how they are written, what is refused, what plans and other tools make of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.topology.rule_cases.example import FLOW, found
from watershed.topology import compile_path
from watershed.topology.copy_bounds import CopyBound, build_offsets_bound, parse_instant, render_instant
from watershed.topology.interop.import_formats import import_text
from watershed.topology.interop.topology_writer import render_topology_file
from watershed.topology.loader import parse_topology
from watershed.topology.plan import decode_plan, encode_plan
from watershed.topology.rule_manual import complete_example
from watershed.topology.value_origin import render_value_origins

FILE = """\
defaults: {delivery: {start: {timestamp: "2026-11-01T00:00:00Z"}}}
flows:
  - {source: a, target: b, topics: {include: [orders]}, delivery: {end: latest}}
  - source: a
    target: b
    suffix: offsets
    topics: {include: [two]}
    offsets: aligned
    delivery: {start: {offsets: {two: {10: 7, 2: 5}}}, end: {offsets: {two: {2: 6}}}}
  - source: a
    target: b
    suffix: group
    topics: {include: [three]}
    delivery: {start: {group: "2026"}, end: {timestamp: "2026-11-01T01:00:00.250+01:00"}}
  - {source: a, target: b, suffix: word, topics: {include: [four]}, delivery: {start: latest}}
"""
NOVEMBER = 1_793_491_200_000


def test_every_form_is_in_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(complete_example(FILE), encoding="utf-8")
    plan = compile_path(path)
    assert {flow.id: (flow.start, flow.end) for flow in plan.flows} == {
        "a-to-b": (CopyBound(timestamp_ms=NOVEMBER), "latest"),
        "a-to-b-offsets": (build_offsets_bound({"two": {2: 5, 10: 7}}), build_offsets_bound({"two": {2: 6}})),
        "a-to-b-group": (CopyBound(group="2026"), CopyBound(timestamp_ms=NOVEMBER + 250)),
        "a-to-b-word": ("latest", None),
    }
    assert decode_plan(encode_plan(plan)) == plan
    aligned = plan.flow("a-to-b-offsets")
    assert (aligned.offsets, aligned.offsets_reason) == ("mapped", "the copy begins in the middle (`delivery.start`)")
    for field, value in (
        ("a-to-b.delivery.start", "{timestamp 2026-11-01T00:00:00Z}"),
        ("a-to-b-offsets.delivery.end", "{offsets two {2: 6}}"),
        ("a-to-b-group.delivery.start", "{group 2026}"),
    ):
        [told] = render_value_origins(path, field)
        assert told.startswith(f"{field} = {value}  ({path}:")


def test_a_plan_without_them_is_what_it_was(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(complete_example(FLOW % ""), encoding="utf-8")
    text = encode_plan(compile_path(path))
    assert '"start": "earliest"' in text
    assert '"end"' not in text


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("start: first", "`flows[0].delivery.start` is `first`; expected one of earliest, latest"),
        ("end: earliest", "`flows[0].delivery.end` is `earliest`; expected `latest`, or a mapping"),
        ("start: [a]", "`flows[0].delivery.start` is a list; expected `earliest`, `latest`, or a mapping"),
        ("start: {}", "`flows[0].delivery.start` needs one of: timestamp | offsets | group"),
        ("end: {group: g}", "unknown key `group` in `flows[0].delivery.end`"),
        (
            "start: {timestamp: 2026-11-01T00:00:00Z}",
            "`flows[0].delivery.start.timestamp: 2026-11-01T00:00:00Z` is a date to YAML; expected an instant with its "
            'zone, such as "2026-03-02T02:00:00Z"',
        ),
        (
            'start: {timestamp: "2026-11-01T00:00:00"}',
            "`flows[0].delivery.start.timestamp` is `2026-11-01T00:00:00`; it has no zone; end it with `Z` for UTC, "
            'such as "2026-03-02T02:00:00Z"',
        ),
        (
            'start: {timestamp: "2026-02-30T00:00:00Z"}',
            "`flows[0].delivery.start.timestamp` is `2026-02-30T00:00:00Z`; there is no such day or time of day",
        ),
        (
            'start: {timestamp: "yesterday"}',
            "`flows[0].delivery.start.timestamp` is `yesterday`; expected an instant with its zone, such as "
            '"2026-03-02T02:00:00Z"',
        ),
        (
            "start: {offsets: {}}",
            "`flows[0].delivery.start`: `offsets` names no partition; write `{offsets: {TOPIC: {0: 100}}}`",
        ),
        (
            "start: {offsets: {orders: {}}}",
            "`flows[0].delivery.start`: `offsets` names no partition; write `{offsets: {TOPIC: {0: 100}}}`",
        ),
        (
            "start: {offsets: {orders: {-1: 100}}}",
            "`flows[0].delivery.start.offsets.orders.-1`: expected a partition's number, such as `0`",
        ),
        (
            "start: {offsets: {orders: {0: -1}}}",
            "`flows[0].delivery.start.offsets.orders.0` is `-1`; expected a whole number from 0 to 999999999999999999",
        ),
        ("start: {offsets: {orders: {0: 1, 0: 2}}}", "key `0` twice"),
    ],
)
def test_what_is_refused(said: str, told: str) -> None:
    loaded = parse_topology(complete_example(FLOW % f", delivery: {{{said}}}"))
    assert [problem.message for problem in loaded.problems][:1] == [told]


@pytest.mark.parametrize(
    ("delivery", "code", "told"),
    [
        (
            "start: {offsets: {order: {0: 1}}}",
            "TPC423",
            ["flow a-to-b says where `order` starts, and does not copy it"],
        ),
        ("end: {offsets: {x: {0: 1}}}", "TPC423", ["flow a-to-b says where `x` ends, and does not copy it"]),
        ("end: {offsets: {orders: {0: 1}}}", "TPC423", []),
        ("start: latest, end: latest", "TPC424", ["flow a-to-b copies nothing: it begins and ends at the log's end"]),
        (
            "start: {offsets: {orders: {0: 5, 1: 3}}}, end: {offsets: {orders: {0: 5, 1: 4, 2: 0}}}",
            "TPC424",
            ["flow a-to-b copies nothing: `orders-0` would end where the copy begins, or in front of it"],
        ),
        ("start: {offsets: {orders: {0: 5}}}, end: {offsets: {orders: {0: 6, 1: 0}}}", "TPC424", []),
        ('start: {group: g}, end: {timestamp: "2026-11-01T00:00:00Z"}', "TPC424", []),
        ("start: {group: g}", "SYC503", []),
    ],
)
def test_what_cannot_go_together(delivery: str, code: str, told: list[str]) -> None:
    assert [finding.message for finding in found(FLOW % f", delivery: {{{delivery}}}", code)] == told


def test_a_pair_has_no_end() -> None:
    standby = "pattern:\n  active_standby:\n    active: a\n    standby: b\n    topics: {include: [orders]}\n"
    [there, back] = found(standby + "    delivery: {end: latest}\n    failback: {reverse: declared_paused}\n", "TPC425")
    assert there.message == "flow a-to-b ends, and its target is to hold all that its source has"
    assert back.message.startswith("flow b-to-a ends, and a-to-b copies back")
    both = "flows:\n  - {source: %s, target: %s, topics: {include: [orders]}, delivery: {end: latest}}\n"
    assert found(both % ("a", "b"), "TPC425") == []


@pytest.mark.parametrize("text", ["2026-11-01T00:00:00Z", "2026-11-01T00:00:00.250Z", "1970-01-01T00:00:00Z"])
def test_instants_read_back(text: str) -> None:
    assert render_instant(parse_instant(text)) == text


def test_the_starts_of_other_tools_come_over() -> None:
    replicator = (
        '{"name": "rep", "config": {"connector.class": "io.confluent.connect.replicator.ReplicatorSourceConnector", '
        '"topic.whitelist": "orders", "offset.start": "consumer"%s}}'
    )
    for more, group in (("", "rep"), (', "src.consumer.group.id": "own"', "own")):
        text = render_topology_file(import_text(replicator % more, "rep.json"))
        assert f"start: {{group: {group}}}" in text
    link = "# watershed: link=l source=a target=b mirror=orders\nbootstrap.servers=a.example.internal:9092\n%s\n"
    said = "mirror.start.offset.spec=2026-11-01T00:00:00.5Z"
    assert 'start: {timestamp: "2026-11-01T00:00:00.500Z"}' in render_topology_file(
        import_text(link % said, "l.properties")
    )
    imported = import_text(link % "mirror.start.offset.spec=2026-11-01T00:00:00", "l.properties")
    assert "start:" not in render_topology_file(imported)
    assert any("it has no zone" in each.why for each in imported.not_carried)
