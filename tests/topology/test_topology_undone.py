"""What the language can say and the data plane does not do is said by plan and apply, and marked in the reference."""

from __future__ import annotations

import pytest

from topology.generated_docs import render_language_reference
from topology.language.flow import FLOW_SETTINGS
from topology.loader import parse_topology
from topology.rule_manual import complete_example
from topology.scalar_shape import YamlShape
from topology.unsupported_settings import UNSUPPORTED_PATHS, find_unsupported_settings
from topology.yaml_shapes import ConvertedShape, NamedShape, RecordShape

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
        (", provenance: {header: hops}", "provenance.header"),
        (", delivery: {isolation: read_uncommitted}", "delivery.isolation"),
        (", partitions: {mapping: key}", "partitions.mapping"),
        (", slo: {on_breach: pause}", "slo.on_breach"),
    ],
)
def test_each_is_told(more: str, path: str) -> None:
    assert told(more) == [path]


def test_keys_that_a_transform_changes_are_done() -> None:
    keys = ', partitions: {mapping: key}, transform: {set: {key: "md5(key)"}}'
    assert told(keys) == []
    assert told(keys.replace("set: {key", "set: {value")) == ["partitions.mapping"]


def test_what_means_the_same_as_saying_nothing_is_not_told() -> None:
    assert told(", sync: {groups: {mode: never}}, offsets: mapped") == []


def test_merges_and_transactions_are_done() -> None:
    assert told(", delivery: {semantics: transactions}, merge: {allowed: true}") == []


def test_every_row_is_a_key_of_the_language_and_the_reference_marks_those_that_do_nothing() -> None:
    assert set(_paths(RecordShape(FLOW_SETTINGS), "")) >= UNSUPPORTED_PATHS
    marked = [line for line in render_language_reference().splitlines() if "not done by this version" in line]
    assert any("`provenance.header`" in line for line in marked)
    assert not any("`workers.quota`" in line for line in marked)


def _paths(shape: YamlShape, above: str) -> list[str]:
    while isinstance(shape, (NamedShape, ConvertedShape)):
        shape = shape.inner
    if not isinstance(shape, RecordShape):
        return []
    return [
        found for name, key in shape.fields.items() for found in (above + name, *_paths(key.shape, f"{above}{name}."))
    ]
