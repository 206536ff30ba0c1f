"""Every example says in its first line what it compiles to, or which rules refuse it."""

from __future__ import annotations

from pathlib import Path

import pytest

from watershed.topology import compile_path
from watershed.topology.lint import lint_path
from watershed.topology.plan import decode_plan, encode_plan

EXAMPLES = Path(__file__).parents[2] / "topology" / "examples"
PATTERNS = {
    "hub_and_spoke",
    "active_active_aggregate",
    "active_active_direct",
    "active_standby",
    "aggregation",
    "chain",
}


def said(path: Path, word: str) -> list[str]:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith(f"# {word}: "), first
    return sorted(first.partition(": ")[2].split(", "))


def serious(path: Path) -> set[str]:
    """The rules that find more than a remark."""
    return {finding.rule for finding in lint_path(path).findings if finding.severity != "info"}


def test_there_is_one_example_a_pattern() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.yaml")} >= PATTERNS | {"migration"}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_an_example_is_clean_and_compiles_to_the_flows_it_names(path: Path) -> None:
    assert serious(path) == set()
    plan = compile_path(path)
    assert sorted(flow.id for flow in plan.flows) == said(path, "Flows")
    assert decode_plan(encode_plan(plan)) == plan
    assert plan.proofs["no_unbounded_copy"]
    assert plan.proofs["no_duplicate_delivery"]


@pytest.mark.parametrize("path", sorted((EXAMPLES / "broken").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_broken_example_is_refused_by_the_rules_it_names(path: Path) -> None:
    assert sorted(serious(path)) == sorted(set(said(path, "Expect")))


def test_the_way_back_of_a_standby_is_paused() -> None:
    plan = compile_path(EXAMPLES / "active_standby.yaml")
    assert {flow.id: flow.state for flow in plan.flows} == {"onprem-to-cloud": "running", "cloud-to-onprem": "paused"}


def test_the_migration_arrives_in_the_plan() -> None:
    migration = compile_path(EXAMPLES / "migration.yaml").migration
    assert migration is not None
    assert [wave.name for wave in migration.waves] == ["canary", "orders"]
    assert migration.wave("orders").after == ("canary",)
    assert migration.applications["checkout"].http == "http://checkout.example.internal:8080"
    assert [type(gate).__name__ for gate in migration.wave("canary").gates_before] == [
        "LagGate",
        "ProofGate",
        "ApprovalGate",
    ]
