"""`compression` of a flow: both ways to write it, what is refused, and what the plan has of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from watershed.topology import compile_path
from watershed.topology.egress_compression import EgressCompression
from watershed.topology.loader import parse_topology
from watershed.topology.plan import decode_plan, encode_plan
from watershed.topology.rule_manual import complete_example
from watershed.topology.value_origin import render_value_origins

FILE = """\
defaults: {compression: {codec: lz4, level: 3}}
flows:
  - {source: a, target: b, topics: {include: [orders]}, compression: zstd}
  - {source: a, target: b, suffix: default, topics: {include: [two]}}
  - {source: a, target: b, suffix: hard, topics: {include: [three]}, compression: {codec: zstd, level: 19}}
  - {source: a, target: b, suffix: other, topics: {include: [four]}, compression: {codec: snappy}}
  - {source: a, target: b, suffix: plain, topics: {include: [five]}, compression: none}
"""
PLAIN = "flows:\n  - {source: a, target: b, topics: {include: [orders]}}\n"


def test_a_flow_says_all_of_it_or_has_the_default(tmp_path: Path) -> None:
    """A level of `defaults` is one of its codec: it never stands beside another codec."""
    path = tmp_path / "t.yaml"
    path.write_text(complete_example(FILE), encoding="utf-8")
    plan = compile_path(path)
    assert {flow.id: flow.compression for flow in plan.flows} == {
        "a-to-b": EgressCompression("zstd", 3),
        "a-to-b-default": EgressCompression("lz4", 3),
        "a-to-b-hard": EgressCompression("zstd", 19),
        "a-to-b-other": EgressCompression("snappy"),
        "a-to-b-plain": None,
    }
    assert decode_plan(encode_plan(plan)) == plan
    for field, value in (
        ("a-to-b.compression", '"zstd"'),
        ("a-to-b-default.compression.level", "3"),
        ("a-to-b-plain.compression", '"none"'),
    ):
        [told] = render_value_origins(path, field)
        assert told.startswith(f"{field} = {value}  ({path}:")


def test_a_plan_without_it_is_what_it_was(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(complete_example(PLAIN), encoding="utf-8")
    assert "compression" not in encode_plan(compile_path(path))


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("zst", "`flows[0].compression` is `zst`; expected one of zstd, lz4, gzip, snappy, none; did you mean `zstd`?"),
        ("[zstd]", "`flows[0].compression` is a list; expected a codec, or a mapping"),
        ("{level: 3}", "`flows[0].compression` needs `codec`"),
        ("{codec: snappy, level: 2}", "`flows[0].compression`: codec snappy takes no `level`"),
        ("{codec: none, level: 2}", "`flows[0].compression`: codec none takes no `level`"),
        ("{codec: gzip, level: 10}", "`flows[0].compression`: `level: 10` does not exist for gzip; it has 1 to 9"),
        ("{codec: zstd, level: 23}", "`flows[0].compression.level` is `23`; expected a whole number from 1 to 22"),
        ("{codec: zstd, window: 9}", "unknown key `window` in `flows[0].compression`"),
    ],
)
def test_what_is_no_compression(said: str, told: str) -> None:
    text = complete_example(PLAIN.replace("topics:", f"compression: {said}, topics:"))
    assert [problem.message for problem in parse_topology(text).problems] == [told]
