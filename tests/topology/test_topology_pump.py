"""The oracle itself: what the pump does with batches is what the walk computes, and both know the classic cases."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.examples import choose_examples
from tests.topology.pump.files import Document, documents
from tests.topology.pump.judge import case_of
from tests.topology.pump.outcome import births
from tests.topology.pump.pump import pump
from tests.topology.pump.walk import walk
from watershed.topology.naming import Naming
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection


def flow(source: str, target: str, **settings) -> PlanFlow:
    topics = TopicSelection((Selector("literal", "t1"),))
    return PlanFlow(f"{source}-to-{target}", source, target, **{"topics": topics} | settings)


ANY = TopicSelection((Selector("glob", "*"),))
RING = ("ab", "bc", "ca")
MESH = ("ab", "ba", "ac", "ca", "bc", "cb")
LOOSE = {"guard": "none"}
CASES = {
    "one way": ([flow("a", "b")], True, True, 1),
    "both ways, guarded": ([flow("a", "b"), flow("b", "a")], True, True, 1),
    "both ways, loose": ([flow("a", "b", **LOOSE), flow("b", "a", **LOOSE)], False, True, None),
    "one of two loose: home once": ([flow("a", "b"), flow("b", "a", **LOOSE)], True, True, 2),
    "ring, guarded": ([flow(*way) for way in RING], True, True, 1),
    "ring, loose": ([flow(*way, **LOOSE) for way in RING], False, True, None),
    "ring, one loose: home once": ([flow(*RING[0], **LOOSE), *(flow(*way) for way in RING[1:])], True, True, 2),
    "mesh of three forwards: two of each": ([flow(*way) for way in MESH], True, True, 2),
    "mesh of three, local": ([flow(*way, forward="local") for way in MESH], True, True, 1),
    "diamond": ([flow(*way) for way in ("ab", "ac", "bd", "cd")], True, True, 2),
    "diamond with a local side": (
        [flow("a", "b"), flow("a", "c"), flow("b", "d"), flow("c", "d", forward="local")],
        True,
        True,
        1,
    ),
    "a rename that comes back": (
        [flow("a", "b", topics=ANY, naming=Naming("prefix", "a.")), flow("b", "a", topics=ANY)],
        True,
        False,
        None,
    ),
}


@pytest.mark.parametrize(("flows", "ends", "finite", "most"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("oracle", [pump, walk])
def test_the_classic_cases(oracle, flows: list[PlanFlow], ends: bool, finite: bool, most: int | None) -> None:
    outcome = oracle(flows, births(flows, ["t1"]))
    assert (outcome.ends, outcome.finite) == (ends, finite)
    if most is not None:
        assert outcome.most == most


def test_behind_a_local_hop_of_a_chain_nothing_arrives() -> None:
    outcome = pump([flow("a", "b"), flow("b", "c", forward="local")], [("a", "t1")])
    assert set(outcome.arrivals) == {(("a", "t1"), ("a", "t1")), (("a", "t1"), ("b", "t1"))}
    assert ("c", "t1") in outcome.names  # the topic exists and stays empty


@settings(max_examples=choose_examples(60, 200), derandomize=True, deadline=None)
@given(documents())
def test_the_walk_over_sets_is_what_the_pump_does(document: Document) -> None:
    case = case_of(document)
    walked, pumped = case.walked, pump([flow.plan for flow in case.flows], case.begun)
    if walked.ends:
        assert walked.finite == pumped.finite, case
    if walked.finite:
        assert walked.ends == pumped.ends, case
    if walked.settled:
        assert walked.arrivals == pumped.arrivals, case
        assert walked.writers == pumped.writers, case
        assert walked.names == pumped.names, case
        assert walked.hops == pumped.hops, case
