"""No flow writes topics in which Kafka or Watershed keeps its state: refused by compiler, apply and worker."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from watershed.clusters.control_topics import FLOWS_TOPIC, JOURNAL_TOPIC, LEDGER_TOPIC, STATUS_TOPIC
from watershed.clusters.fake_cluster import FakeCluster
from watershed.cutover.drill.drill_topology import DRILL_PREFIX
from watershed.replicator.apply import apply_plan
from watershed.replicator.apply_refusals import CannotApply
from watershed.replicator.topic_mapping import map_topics
from watershed.topology import compile_path
from watershed.topology.errors import InvalidTopology
from watershed.topology.naming import Naming
from watershed.topology.plan import Plan, PlanFlow
from watershed.topology.reserved_topics import DRILL_TOPIC_PREFIX, explain_reserved_topic, find_reserved_targets
from watershed.topology.selectors import Selector, TopicSelection

FLOW = PlanFlow("a-to-b", "a", "b", TopicSelection(include=(Selector("glob", "*"),)))
OURS = (FLOWS_TOPIC, LEDGER_TOPIC, STATUS_TOPIC, JOURNAL_TOPIC)
FILE = """\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {name: hostile}
clusters:
  %(alias)s: {bootstrap: [a.example.internal:9092]}
  b: {bootstrap: [b.example.internal:9092]}
flows:
  - source: %(alias)s
    target: b
    topics: {include: [%(include)s]}
    naming: %(naming)s
"""


def compiled(tmp_path: Path, naming: str, include: str = "offs", alias: str = "a") -> Plan:
    path = tmp_path / "hostile.yaml"
    path.write_text(FILE % {"naming": naming, "include": include, "alias": alias})
    return compile_path(path)


@pytest.mark.parametrize("name", [*OURS, "__consumer_offsets", "__transaction_state", "_watershed.x", "watershed.new"])
def test_a_map_to_a_kept_name_does_not_compile(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidTopology, match="TPC421") as refused:
        compiled(tmp_path, json.dumps({"policy": "map", "map": {"offs": name}}))
    assert name in str(refused.value)


@pytest.mark.parametrize("name", [each.replace(".", "_") for each in OURS])
def test_a_name_that_kafka_takes_for_a_control_topics_does_not_compile(name: str, tmp_path: Path) -> None:
    """Kafka creates no topic whose name differs from another's by `.` and `_` only."""
    with pytest.raises(InvalidTopology, match="TPC421") as refused:
        compiled(tmp_path, json.dumps({"policy": "map", "map": {"offs": name}}))
    assert name in str(refused.value)
    assert not explain_reserved_topic("watershed_orders")


@pytest.mark.parametrize(
    ("naming", "include", "alias"),
    [
        ("{policy: template, template: 'watershed.{topic}'}", "journal", "a"),
        ("{policy: template, template: '__{topic}'}", "{glob: '*'}", "a"),
        ("{policy: template, template: '_{topic}'}", "_consumer_offsets", "a"),
        ("{policy: template, template: 'watershed{topic}'}", ".journal", "a"),
        ("{policy: prefix}", "journal", "watershed"),
        ("{policy: prefix}", "{glob: '*'}", "watershed"),
    ],
)
def test_templates_and_aliases_that_give_kept_names_do_not_compile(
    naming: str, include: str, alias: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidTopology, match="TPC421"):
        compiled(tmp_path, naming, include, alias)


def test_a_comment_does_not_let_it_through(tmp_path: Path) -> None:
    naming = "{policy: map, map: {offs: watershed.journal}}  # lint: ignore[TPC421] we want it"
    with pytest.raises(InvalidTopology, match="TPC421"):
        compiled(tmp_path, naming)


@pytest.mark.parametrize(
    ("naming", "alias"),
    [
        ("{policy: map, map: {offs: a.watershed.journal}}", "a"),
        ("{policy: map, map: {watershed.journal: old-journal}}", "a"),
        ("{policy: prefix, separator: '-'}", "watershed"),
        ("{policy: template, template: '{topic}.watershed'}", "a"),
    ],
)
def test_names_that_are_free_compile(naming: str, alias: str, tmp_path: Path) -> None:
    assert compiled(tmp_path, naming, alias=alias).flows


def test_what_watershed_keeps_is_kept_and_a_rehearsal_may_copy() -> None:
    assert all(map(explain_reserved_topic, OURS))
    assert DRILL_TOPIC_PREFIX == DRILL_PREFIX
    assert not explain_reserved_topic(f"{DRILL_PREFIX}1.orders")


@pytest.mark.parametrize(
    "naming",
    [Naming("map", map=(("offs", JOURNAL_TOPIC),)), Naming("prefix", before="watershed."), Naming(before="__")],
)
def test_apply_asks_no_cluster_before_it_refuses(naming: Naming, tmp_path: Path) -> None:
    """A plan that our compiler did not make."""

    def connect(alias: str) -> NoReturn:
        raise AssertionError(f"{alias} is asked")

    plan = compiled(tmp_path, "{policy: identity}")
    forged = replace(plan, flows=(replace(plan.flows[0], naming=naming),))
    with pytest.raises(CannotApply, match="no flow may write"):
        apply_plan(forged, connect)


@pytest.mark.parametrize("there", [False, True])
def test_a_worker_holds_what_would_get_such_a_name_and_copies_the_rest(there: bool) -> None:
    """Names that only the source knows: the flow's file is fine."""
    source, target = FakeCluster("a"), FakeCluster("b")
    flow = replace(FLOW, naming=Naming("template", before="water"))
    assert list(find_reserved_targets(flow)) == []
    for name in ("shed.journal", "orders"):
        source.create_topic(name, 3)
    if there:
        target.create_topic(JOURNAL_TOPIC, 1)
    before = set(target.topics())
    found = {each.topic: each for each in map_topics(flow, source, target)}
    journal = found["shed.journal"]
    assert journal.held is not None
    assert (journal.held.state, journal.copied, journal.created, journal.grown) == ("unsupported", 0, False, False)
    assert f"shed.journal would be called {JOURNAL_TOPIC}" in journal.held.error
    assert found["orders"].held is None
    assert set(target.topics()) == before | {"waterorders"}
    if there:
        assert target.topics()[JOURNAL_TOPIC].partitions == 1


def test_what_was_copied_into_such_a_name_before_goes_on_no_more() -> None:
    source, target = FakeCluster("a"), FakeCluster("b")
    source.create_topic("offs", 1)
    target.create_topic(JOURNAL_TOPIC, 1)
    flow = replace(FLOW, naming=Naming("map", map=(("offs", JOURNAL_TOPIC),)))
    [first] = map_topics(replace(FLOW, naming=Naming("map", map=(("offs", "fine"),))), source, target)
    [found] = map_topics(flow, source, target, {"offs": replace(first, target_topic=JOURNAL_TOPIC)})
    assert found.held is not None
    assert found.copied == 0
