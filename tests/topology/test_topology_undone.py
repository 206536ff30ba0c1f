"""What the language can say and the data plane does not do is said by plan and apply, and marked in the reference."""

from __future__ import annotations

import pytest

from watershed.topology.generated_docs import render_language_reference
from watershed.topology.language.flow import FLOW_SETTINGS
from watershed.topology.loader import parse_topology
from watershed.topology.rule_manual import complete_example
from watershed.topology.scalar_shape import YamlShape
from watershed.topology.unsupported_settings import (
    UNSUPPORTED_SETTINGS,
    describe_unsupported_settings,
    find_unsupported_settings,
)
from watershed.topology.yaml_shapes import ConvertedShape, NamedShape, RecordShape

FLOW = "flows:\n  - {source: a, target: b, topics: {include: [{glob: 'orders*'}]}%s}\n"


def told(more: str) -> list[str]:
    topology = parse_topology(complete_example(FLOW % more)).topology
    assert topology is not None
    return [each.path for each in find_unsupported_settings(topology)]


def test_a_plain_flow_asks_for_nothing_that_is_not_done() -> None:
    assert told("") == []


@pytest.mark.parametrize(
    ("more", "path"),
    [
        (", delivery: {isolation: read_uncommitted}", "delivery.isolation"),
        (", partitions: {mapping: key}", "partitions.mapping"),
        (", slo: {lag: {p99: 1h}}", "slo.lag.p99"),
        (", slo: {end_to_end: {p99: 1m}}", "slo.end_to_end.p99"),
        (", slo: {rto: 1m}", "slo.rto"),
        (", workers: {near: source}", "workers.near"),
    ],
)
def test_each_is_told(more: str, path: str) -> None:
    assert told(more) == [path]


def test_keys_that_a_transform_changes_are_done() -> None:
    keys = ', partitions: {mapping: key}, transform: {set: {key: "md5(key)"}}'
    assert told(keys) == []
    assert told(keys.replace("set: {key", "set: {value")) == ["partitions.mapping"]


def test_a_budget_that_should_stop_the_flow_is_told_by_itself() -> None:
    assert told(", slo: {on_breach: pause}") == ["slo.on_breach"]
    assert told(", slo: {lag: {max: 1m}, on_breach: pause}") == []


def test_budgets_that_are_watched_are_not_told() -> None:
    watched = "lag: {p99: 55m, max: 1m}, end_to_end: {max: 2m}, outage_allowance: 1d, rpo: 1m, on_breach: alert"
    assert told(f", slo: {{{watched}}}") == []


def test_workers_in_a_rack_of_the_source_are_executed() -> None:
    assert told(", workers: {near: {rack: b}}") == []
    assert told(", workers: {near: target}") == []


def test_a_thousand_flows_are_one_line() -> None:
    flows = "".join(
        f"  - {{source: a, target: b, suffix: f{number}, topics: {{include: [t{number}]}}, slo: {{rto: 1m}}}}\n"
        for number in range(7)
    )
    topology = parse_topology(complete_example(f"flows:\n{flows}")).topology
    assert topology is not None
    [line] = describe_unsupported_settings(list(find_unsupported_settings(topology)))
    assert line.startswith("7 places (a-to-b-f0, a-to-b-f1, a-to-b-f2, a-to-b-f3, a-to-b-f4 and 2 more): `slo.rto: ")


def test_what_is_for_people_and_what_a_gate_does_not_do_is_told() -> None:
    topology = parse_topology(
        complete_example(
            "metadata: {name: x, owner: me, description: ours, labels: {a: b}}\n" + FLOW % "" + "migration:\n"
            "  flow: a-to-b\n  waves:\n    - name: one\n      topics: [orders]\n"
            "      gates: {before: [{verify: {level: L1, sample: 20%}}, {verify: {level: L1, sample: 100%}}]}\n"
        )
    ).topology
    assert topology is not None
    assert [(each.where, each.path, each.value) for each in find_unsupported_settings(topology)] == [
        ("the file", "metadata.description", "ours"),
        ("the file", "metadata.labels", ""),
        ("wave one", "verify.sample", "0.2"),
    ]


def test_what_means_the_same_as_saying_nothing_is_not_told() -> None:
    assert told(", sync: {groups: {mode: never}}, offsets: mapped") == []


def test_merges_and_transactions_are_done() -> None:
    assert told(", delivery: {semantics: transactions}, merge: {allowed: true}") == []


def test_every_row_is_a_key_of_the_language_and_the_reference_marks_those_that_do_nothing() -> None:
    paths = {row.path for row in UNSUPPORTED_SETTINGS if row.section == "flow"}
    assert set(_paths(RecordShape(FLOW_SETTINGS), "")) >= paths
    marked = [line for line in render_language_reference().splitlines() if "not executed: " in line]
    assert any("`delivery.isolation`" in line for line in marked)
    assert not any("`workers.quota`" in line for line in marked)


def _paths(shape: YamlShape, above: str) -> list[str]:
    while isinstance(shape, (NamedShape, ConvertedShape)):
        shape = shape.inner
    if not isinstance(shape, RecordShape):
        return []
    return [
        found for name, key in shape.fields.items() for found in (above + name, *_paths(key.shape, f"{above}{name}."))
    ]
