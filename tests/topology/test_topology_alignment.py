"""A flow whose offsets cannot be equal says so in the plan, and why."""

from __future__ import annotations

import pytest

from watershed.topology.loader import parse_topology
from watershed.topology.plan_builder import build_plan
from watershed.topology.rule_manual import complete_example

FLOW = "flows:\n  - {source: a, target: b, topics: {include: [orders]}, offsets: aligned%s}\n"


def flow(more: str):
    topology = parse_topology(complete_example(FLOW % more)).topology
    assert topology is not None
    return build_plan(topology, {}).flows[0]


def test_nothing_is_against_it() -> None:
    assert (flow("").offsets, flow("").offsets_reason) == ("aligned", "")


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (", merge: {allowed: true}", "transactions, whose markers take offsets"),
        (", delivery: {semantics: transactions}", "transactions"),
        (", delivery: {start: latest}", "in the middle"),
        (", delivery: {rejected: quarantine}", "refuses are left out"),
        (", partitions: {mapping: key}", "keys choose"),
        (", provenance: {forward: local}", "left out"),
        (", provenance: {header: hops}", "header"),
    ],
)
def test_what_is_against_it_stands_in_the_plan(more: str, why: str) -> None:
    found = flow(more)
    assert found.offsets == "mapped"
    assert why in found.offsets_reason


def test_who_did_not_ask_is_told_nothing() -> None:
    topology = parse_topology(
        complete_example((FLOW % ", merge: {allowed: true}").replace("aligned", "mapped"))
    ).topology
    assert topology is not None
    assert build_plan(topology, {}).flows[0].offsets_reason == ""


CHAIN = """\
flows:
  - {source: a, target: b, topics: {include: [{glob: "ord*"}]}, offsets: aligned, naming: {policy: prefix}}
  - {source: b, target: c, topics: {include: [%s]}, offsets: aligned}
"""


@pytest.mark.parametrize(
    ("selected", "why"),
    [
        ('{glob: "*"}', "flow a-to-b has to fill its source topics first"),
        ("a.orders", "flow a-to-b has to fill its source topics first"),
        ("orders", ""),
        ("invoices", ""),
    ],
)
def test_what_another_flow_fills_first_is_translated(selected: str, why: str) -> None:
    topology = parse_topology(complete_example(CHAIN % selected)).topology
    assert topology is not None
    first, second = build_plan(topology, {}).flows
    assert (first.offsets, first.offsets_reason) == ("aligned", "")
    assert (second.offsets, second.offsets_reason) == ("mapped" if why else "aligned", why)
