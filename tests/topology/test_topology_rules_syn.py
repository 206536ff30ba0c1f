"""SYN008: old spellings mean what the new ones do."""

from __future__ import annotations

import pytest

from topology.lint import lint_topology
from topology.loader import parse_topology
from topology.rule_manual import complete_example

OLD = [
    ("guard: path", "defaults: {{provenance: {{guard: {word}}}}}\n", "path", "producer_id"),
    ("verify.level: counts", "defaults: {{verify: {{level: {word}}}}}\n", "counts", "L0"),
    ("verify.level: checksums", "defaults: {{verify: {{level: {word}}}}}\n", "checksums", "L1"),
]
FLOW = "flows: [{source: a, target: b, topics: {include: [orders]}}]\n"


@pytest.mark.parametrize(("text", "old", "new"), [case[1:] for case in OLD], ids=[case[0] for case in OLD])
def test_an_old_spelling_is_read_and_told(text: str, old: str, new: str) -> None:
    loaded = parse_topology(complete_example(text.format(word=old) + FLOW))
    [finding] = [each for each in lint_topology(loaded).findings if each.rule == "SYN008"]
    assert finding.severity == "warning"
    assert f"`{new}`" in finding.help
    today = parse_topology(complete_example(text.format(word=new) + FLOW))
    assert [each for each in lint_topology(today).findings if each.rule == "SYN008"] == []
    assert loaded.topology is not None
    assert today.topology is not None
    assert [flow.plan for flow in loaded.topology.flows] == [flow.plan for flow in today.topology.flows]


def test_a_comment_with_a_reason_silences_it() -> None:
    text = "defaults:\n  provenance: {guard: path}  # lint: ignore[SYN008] the old reader still runs\n" + FLOW
    result = lint_topology(parse_topology(complete_example(text)))
    assert [each.rule for each in result.suppressed] == ["SYN008"]
