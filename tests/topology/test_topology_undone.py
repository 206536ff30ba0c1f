"""What the language can say and the data plane does not do is said by plan and apply, and marked in the reference."""

from __future__ import annotations

import pytest

from topology.handbook import reference
from topology.language.flow import SETTINGS
from topology.load import load_text
from topology.manual import complete
from topology.shapes import Converted, Named, Record, Shape
from topology.undone import PATHS, undone

FLOW = "flows:\n  - {source: a, target: b, topics: {include: [{glob: 'orders*'}]}%s}\n"


def told(more: str) -> list[str]:
    topology = load_text(complete(FLOW % more)).topology
    assert topology is not None
    return [each.path for each in undone(topology)]


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


def test_what_means_the_same_as_saying_nothing_is_not_told() -> None:
    assert told(", sync: {groups: {mode: never}}, offsets: mapped") == []


def test_merges_and_transactions_are_done() -> None:
    assert told(", delivery: {semantics: transactions}, merge: {allowed: true}") == []


def test_every_row_is_a_key_of_the_language_and_the_reference_marks_those_that_do_nothing() -> None:
    assert set(_paths(Record(SETTINGS), "")) >= PATHS
    marked = [line for line in reference().splitlines() if "not done by this version" in line]
    assert any("`provenance.header`" in line for line in marked)
    assert not any("`workers.quota`" in line for line in marked)


def _paths(shape: Shape, above: str) -> list[str]:
    while isinstance(shape, (Named, Converted)):
        shape = shape.inner
    if not isinstance(shape, Record):
        return []
    return [
        found for name, key in shape.fields.items() for found in (above + name, *_paths(key.shape, f"{above}{name}."))
    ]
