"""Random topologies: what the linter proves is what in-memory Kafka clusters do, and each fault is found when it is put
in."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from tests.examples import choose_examples
from tests.topology.pump.faults import FAULTS
from tests.topology.pump.files import Document, documents, shuffled, text_of
from tests.topology.pump.judge import Case, case_of, check_all, kinds, told
from tests.topology.pump.pump import pump
from watershed.topology.lint import lint_topology
from watershed.topology.loader import parse_topology
from watershed.topology.plan_builder import build_plan
from watershed.topology.rule import Rule
from watershed.topology.rules import RULES

pytestmark = pytest.mark.slow
GRF = [rule for rule in RULES if rule.code.startswith("GRF")]
# What explains a failure costs more than the failure is worth here: every message shows the whole file.
PLAIN = settings(deadline=None, database=None, phases=[Phase.generate, Phase.shrink])
FIXED = settings(PLAIN, derandomize=True)  # in `make soak`, too: what is counted is counted of these examples
PICKY = settings(PLAIN, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])


@pytest.mark.hypothesis
def test_what_the_linter_says_is_what_the_oracle_sees() -> None:
    """150 files, in `make soak` 500; that they are of every kind is part of the test: trivial files would prove
    nothing."""
    seen: Counter[str] = Counter()
    most = choose_examples(150, 500)

    @settings(FIXED, max_examples=most)
    @given(documents(), st.booleans())
    def tried(document: Document, block: bool) -> None:
        case = case_of(document, block)
        check_all(case)
        seen["all"] += 1
        seen["said to be clean"] += case.clean
        seen.update(kinds(case))

    tried()
    assert seen["all"] >= most
    for kind, least in (("clean", 150), ("cycle", 8), ("growth", 8), ("duplicates", 30), ("collisions", 50)):
        assert seen[kind] >= least * most / 500, seen
    assert seen["starvation"] >= 3, seen
    assert seen["said to be clean"] >= 0.8 * seen["clean"], seen


@settings(PICKY, max_examples=choose_examples(30))
@given(documents(wild=0.5))
def test_a_clean_file_pumps_clean(document: Document) -> None:
    """With real batches: everything comes to rest within as many hops as there are clusters, and is there once."""
    case = case_of(document)
    if not case.clean:
        return
    pumped = pump([flow.plan for flow in case.flows], case.begun)
    assert pumped.ends, case
    assert pumped.finite, case
    assert pumped.hops <= len(case.topology.clusters), case
    if not any(flow.duplicates_allowed for flow in case.flows):
        assert pumped.most <= 1, case
    merging = {flow.id for flow in case.flows if flow.merge_allowed}
    assert all(len(flows - merging) == 0 or len(flows) == 1 for flows in pumped.writers.values()), case


@settings(PLAIN, max_examples=choose_examples(20))
@given(documents(), st.integers(0, 2**32))
def test_the_order_of_the_file_changes_nothing(document: Document, seed: int) -> None:
    straight, mixed = (parse_topology(text_of(each)) for each in (document, shuffled(document, Random(seed))))
    first, second = lint_topology(straight), lint_topology(mixed)
    assert told(first) == told(second), text_of(document)
    assert straight.topology is not None
    assert mixed.topology is not None
    assert build_plan(straight.topology, first.proofs).hash == build_plan(mixed.topology, second.proofs).hash


NAMED = st.text("abcdefgxyz0123456789._-", min_size=1, max_size=20).filter(lambda name: name not in (".", ".."))


@settings(PLAIN, max_examples=choose_examples(20))
@given(documents(), st.lists(NAMED, max_size=5))
def test_names_lead_back(document: Document, names: list[str]) -> None:
    """Where no finding says otherwise, no two topics of a flow share a name, and each name has its one original."""
    case = case_of(document)
    lossy = {flow for finding in case.of("NAM304", "NAM305") for flow in finding.ids}
    for flow in case.flows:
        if flow.id in lossy:
            continue
        taken = {name for name in (*names, *(name for _, name in case.begun)) if flow.plan.selects(name)}
        assert len({flow.plan.target_topic(name) for name in taken}) == len(taken), case
        for name in taken:
            assert flow.plan.source_topic(flow.plan.target_topic(name)) == name, (name, case)


def test_every_rule_about_the_graph_has_its_fault() -> None:
    assert {rule.code for rule in GRF} <= set(FAULTS)


@pytest.mark.hypothesis
@pytest.mark.parametrize("rule", GRF, ids=lambda rule: rule.code)
def test_a_fault_that_is_put_in_is_found(rule: Rule) -> None:
    fault = FAULTS[rule.code]
    tries: list[Document] = []
    most = choose_examples(min(6, fault.examples), fault.examples)

    @settings(FIXED, max_examples=most, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
    @given(st.data(), documents(wild=0.3))
    def tried(data: st.DataObject, document: Document) -> None:
        before = case_of(document)
        assume(before.clean and not before.of(rule.code))
        mutated = case_of(fault.mutate(data.draw, before))
        tries.append(mutated.document)
        if fault.real is not None:
            assert fault.real(mutated), mutated
        findings = mutated.findings
        if fault.inventory is not None:
            findings = lint_topology(mutated.loaded, fault.inventory).findings
        assert rule.code in {finding.rule for finding in findings}, mutated

    tried()
    assert len(tries) >= most, "the mutation seldom applies"


@pytest.mark.hypothesis
@pytest.mark.parametrize("code", ["GRF201", "GRF202", "GRF203", "GRF204", "GRF205", "GRF206"])
def test_a_fault_shows_in_the_pump(code: str) -> None:
    @settings(PICKY, max_examples=choose_examples(5, 50))
    @given(st.data(), documents(wild=0.3))
    def tried(data: st.DataObject, document: Document) -> None:
        before = case_of(document)
        assume(before.clean)
        mutated = case_of(FAULTS[code].mutate(data.draw, before))
        assert _shows(code, mutated), mutated

    tried()


def _shows(code: str, case: Case) -> bool:
    pumped = pump([flow.plan for flow in case.flows], case.begun)
    if code in ("GRF201", "GRF202"):
        return not pumped.ends
    if code == "GRF203":
        return not pumped.finite
    if code == "GRF204":
        return any(len(flows) > 1 for flows in pumped.writers.values())
    return pumped.most > 1
