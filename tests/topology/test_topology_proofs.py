"""Random topologies: the order of the file changes nothing, and what the proofs say is what a pump of records does."""

from __future__ import annotations

import json
from collections import Counter
from itertools import product
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from watershed.topology.lint import LintResult, lint_topology
from watershed.topology.loader import LoadedTopology, parse_topology
from watershed.topology.plan import PlanFlow, decode_plan, encode_plan
from watershed.topology.plan_builder import build_plan

CLUSTERS = ["a", "b", "c", "d"]
NAMINGS: list[dict[str, Any]] = [
    {"policy": "identity"},
    {"policy": "identity"},
    {"policy": "prefix"},
    {"policy": "template", "template": "{topic}.{source}"},
    {"policy": "map", "map": {"t1": "t2"}},
]
SELECTIONS: list[Any] = [["t1"], ["t1", "t2"], [{"glob": "t*"}], [{"regex": r".*1"}], [{"glob": "?1"}], [{"glob": "*"}]]
FLOWS = st.fixed_dictionaries(
    {
        "source": st.sampled_from(CLUSTERS),
        "target": st.sampled_from(CLUSTERS),
        "topics": st.fixed_dictionaries({"include": st.sampled_from(SELECTIONS)}),
        "naming": st.sampled_from(NAMINGS),
        "provenance": st.fixed_dictionaries(
            {"guard": st.sampled_from(["producer_id", "none"]), "forward": st.sampled_from(["all", "local"])}
        ),
        "merge": st.just({"allowed": True}),
    }
)
TOPOLOGIES = st.lists(FLOWS, min_size=1, max_size=5, unique_by=lambda flow: (flow["source"], flow["target"]))


def document(flows: list[dict[str, Any]], random: Random | None = None) -> str:
    clusters = {alias: {"bootstrap": [f"{alias}.example.internal:9092"]} for alias in CLUSTERS}
    whole = {"metadata": {"name": "random"}, "clusters": clusters, "flows": list(flows)}
    whole |= {"apiVersion": "topology/v1alpha1", "kind": "Topology"}
    return json.dumps(shuffled(whole, random) if random else whole)  # JSON is YAML


def shuffled(value: Any, random: Random) -> Any:
    if isinstance(value, dict):
        keys = list(value)
        random.shuffle(keys)
        return {key: shuffled(value[key], random) for key in keys}
    if isinstance(value, list):
        items = [shuffled(each, random) for each in value]
        random.shuffle(items)
        return items
    return value


def said(result: LintResult) -> list[tuple[Any, ...]]:
    return sorted((f.rule, f.severity, f.message, f.ids, f.notes, f.help, f.fingerprint) for f in result.findings)


def lint(text: str) -> tuple[LoadedTopology, LintResult]:
    loaded = parse_topology(text)
    return loaded, lint_topology(loaded)


@settings(max_examples=60, deadline=None)
@given(TOPOLOGIES, st.integers())
def test_the_order_of_the_file_changes_nothing(flows: list[dict[str, Any]], seed: int) -> None:
    straight, first = lint(document(flows))
    mixed, second = lint(document(flows, Random(seed)))
    assert said(first) == said(second)
    assert straight.topology is not None
    assert mixed.topology is not None
    plan = build_plan(straight.topology, first.proofs)
    assert plan.hash == build_plan(mixed.topology, second.proofs).hash
    assert decode_plan(encode_plan(plan)) == plan


@settings(max_examples=80, deadline=None)
@given(TOPOLOGIES)
def test_what_is_proven_holds_when_records_are_pumped(flows: list[dict[str, Any]]) -> None:
    loaded, result = lint(document(flows))
    assert loaded.topology is not None
    rules = {finding.rule for finding in result.findings}
    if "GRF203" in rules:
        return
    plan_flows = [flow.plan for flow in loaded.topology.flows if flow.source != flow.target]
    for cluster, topic in product(CLUSTERS, ["t1", "t2", "x1", "q"]):
        ended, copies = pump(plan_flows, cluster, topic)
        if not rules & {"GRF201", "GRF202"}:
            assert ended
            if "GRF205" not in rules:
                assert all(count == 1 for count in copies.values()), copies


def pump(flows: list[PlanFlow], cluster: str, topic: str) -> tuple[bool, Counter[tuple[str, str]]]:
    """Copy one record wherever flows take it: whether that ends, and how often it arrived at each name."""
    copies: Counter[tuple[str, str]] = Counter({(cluster, topic): 1})
    todo = [(cluster, topic, frozenset({cluster}), False)]
    for step, (here, name, path, brought) in enumerate(todo):
        if step > 2_000:
            return False, copies
        for flow in flows:
            if flow.source != here or not flow.selects(name) or (brought and flow.forward == "local"):
                continue
            if flow.guard == "producer_id" and flow.target in path:
                continue
            known = path | {flow.target} if flow.guard == "producer_id" else frozenset({here, flow.target})
            copies[flow.target, flow.target_topic(name)] += 1
            todo.append((flow.target, flow.target_topic(name), known, True))
    return True, copies
