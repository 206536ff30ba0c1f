"""How each flow copies: alone by sequence numbers, beside other writers in transactions, on rings with paths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.examples import choose_examples
from tests.topology.pump.files import NAMES, Document, documents, text_of
from tests.topology.pump.judge import case_of
from tests.topology.pump.outcome import Place, births, named
from watershed.topology.delivery_mode import DeliveryMode, choose_delivery_modes, number_loop_components
from watershed.topology.loader import parse_topology
from watershed.topology.model import Flow, Topology
from watershed.topology.plan import PlanFlow
from watershed.topology.rule_manual import complete_example

FIXED = settings(
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
PAIR = "{topics: {include: [orders]}, merge: {allowed: %s}}"


def shared(flows: str) -> dict[str, DeliveryMode]:
    topology = parse_topology(complete_example(f"flows:\n{flows}")).topology
    assert topology is not None
    return choose_delivery_modes(topology)


def flow(source: str, target: str, more: str = "", topics: str = "[orders]") -> str:
    return f"  - {{source: {source}, target: {target}, topics: {{include: {topics}}}{more}}}\n"


def test_a_flow_alone_copies_by_sequence_numbers() -> None:
    assert shared(flow("a", "b")) == {"a-to-b": DeliveryMode()}


def test_a_merge_says_with_whom() -> None:
    merging = ", merge: {allowed: true}"
    found = shared(flow("a", "c", merging) + flow("b", "c", merging))
    assert found["a-to-c"] == DeliveryMode("transactions", "b-to-c writes orders in c, too")
    assert found["b-to-c"] == DeliveryMode("transactions", "a-to-c writes orders in c, too")
    alone = shared(flow("a", "c", merging))["a-to-c"]
    assert alone.delivery == "transactions"
    assert "merge.allowed" in alone.reason


def test_a_pair_that_runs_both_ways_shares_its_topics_with_applications() -> None:
    found = shared(flow("a", "b", topics="[{glob: 'o*'}]") + flow("b", "a"))
    assert found["a-to-b"] == DeliveryMode(
        "transactions", "b-to-a brings orders back to a, so applications may write at both ends"
    )
    assert found["b-to-a"].delivery == "transactions"


def test_prefixes_keep_a_pair_apart() -> None:
    naming = ", naming: {policy: prefix}"
    selected = "[{glob: 'o*'}]"
    found = shared(flow("aa", "b", naming, selected) + flow("b", "aa", naming, selected))
    assert {each.delivery for each in found.values()} == {"sequence"}


def test_a_paused_way_back_changes_nothing_for_the_way_there() -> None:
    found = shared(flow("a", "b") + flow("b", "a", ", state: paused"))
    assert found["a-to-b"] == DeliveryMode()
    assert found["b-to-a"].delivery == "transactions"  # where it writes, applications have written


def test_what_the_file_asks_for_stays_the_reason() -> None:
    found = shared(flow("a", "b", ", delivery: {semantics: transactions}") + flow("b", "a"))
    assert found["a-to-b"] == DeliveryMode("transactions", "the file asks for them")


def test_a_ring_of_three_tells_paths_and_a_hub_with_two_ways_does_not() -> None:
    ring = shared(flow("a", "b") + flow("b", "c") + flow("c", "a"))
    assert {each.paths for each in ring.values()} == {True}
    assert {each.delivery for each in ring.values()} == {"transactions"}
    spokes = ("a", "b", "c")
    hub = shared("".join(flow(spoke, "hub") + flow("hub", spoke) for spoke in spokes))
    assert {(each.delivery, each.paths) for each in hub.values()} == {("transactions", False)}


def test_a_ring_that_only_others_records_come_round_still_tells_paths() -> None:
    """z -> a -> b -> z under another name: the guard of the last flow has to know that a record was born at z."""
    found = shared(flow("z", "a") + flow("a", "b") + flow("b", "z", ", naming: {policy: prefix}"))
    assert found["a-to-b"].paths
    assert "z" in found["a-to-b"].reason.split()


def test_local_forwarding_needs_no_paths() -> None:
    local = ", provenance: {forward: local}"
    members = ("a", "b", "c")
    found = shared("".join(flow(one, two, local) for one in members for two in members if one != two))
    assert {(each.delivery, each.paths) for each in found.values()} == {("transactions", False)}


def test_loops_are_found_without_recursion() -> None:
    long = {("a", number): [("a", number + 1)] for number in range(20_000)}
    long[("a", 20_000)] = [("a", 0)]
    assert len(set(number_loop_components(long).values())) == 1  # type: ignore[arg-type]
    assert number_loop_components({("a", 0): [("a", 1)], ("a", 1): []}) == {}  # type: ignore[arg-type]


# -- against counting over single names --------------------------------------------------------------------------------


def steps(flows: Iterable[Flow], begun: Iterable[Place]) -> dict[str, set[tuple[Place, Place]]]:
    """What each flow does to each name that comes to its source."""
    known = list(flows)
    places, finite = named([each.plan for each in known], begun)
    assert finite
    return {
        each.id: {
            ((cluster, name), (each.target, each.plan.target_topic(name)))
            for cluster, name in places
            if cluster == each.source and each.source != each.target and each.plan.selects(name)
        }
        for each in known
    }


def leads(start: Place, goal: Place, taken: Iterable[tuple[Place, Place]]) -> bool:
    following: dict[Place, list[Place]] = {}
    for before, after in taken:
        following.setdefault(before, []).append(after)
    todo, seen = [start], {start}
    while todo:
        for after in following.get(todo.pop(), []):
            if after not in seen:
                seen.add(after)
                todo.append(after)
    return goal in seen


def brute(topology: Topology, begun: list[Place]) -> dict[str, bool]:
    """Whether a flow has company in some target topic: another running flow, or what running flows bring back."""
    done = steps(topology.flows, begun)
    running = {each.id for each in topology.flows if each.plan.state == "running"}
    found = {}
    for each in topology.flows:
        own = {after for _, after in done[each.id]}
        others = {after for other in running - {each.id} for _, after in done[other]}
        taken = [step for other in running | {each.id} for step in done[other]]
        back = any(leads(after, before, taken) for before, after in done[each.id])
        asked = each.plan.delivery == "transactions"
        found[each.id] = asked or each.merge_allowed or bool(own & others) or back
    return found


@pytest.mark.hypothesis
def test_company_is_what_counting_over_single_names_says() -> None:
    seen: Counter[str] = Counter()
    most = choose_examples(100, 300)

    @settings(FIXED, max_examples=most)
    @given(documents())
    def tried(document: Document) -> None:
        topology = parse_topology(text_of(document)).topology
        assert topology is not None
        plans = [each.plan for each in topology.flows]
        renamed = {plan.target_topic(name) for plan in plans for name in NAMES}
        begun = births(plans, sorted({*NAMES, *renamed}))  # applications may write under such names, too
        if not named(plans, begun)[1]:
            seen["growing"] += 1
            return
        found, expected = choose_delivery_modes(topology), brute(topology, begun)
        for each in topology.flows:
            told = found[each.id]
            if told.paths and not expected[each.id]:
                continue  # in transactions for its paths alone
            assert (told.delivery == "transactions") == expected[each.id], (each.id, told, text_of(document, True))
            assert bool(told.reason) == (told.delivery == "transactions")
            seen[told.delivery] += 1
        seen.update("paths" for told in found.values() if told.paths)

    tried()
    for kind, least in (("sequence", 200), ("transactions", 300), ("paths", 12)):
        assert seen[kind] >= least * most / 300, seen


@st.composite
def rings(draw: st.DrawFn) -> Document:
    """Three or four clusters, most of them on a loop, with a few flows more."""
    aliases = list("abcd"[: draw(st.integers(3, 4))])
    around = draw(st.permutations(aliases))
    ways = {(one, two) for one, two in zip(around, [*around[1:], around[0]], strict=True) if draw(st.integers(0, 5))}
    extra = st.tuples(st.sampled_from(aliases), st.sampled_from(aliases)).filter(lambda way: way[0] != way[1])
    ways |= set(draw(st.lists(extra, max_size=2)))
    namings = st.sampled_from(["identity"] * 6 + ["prefix", "map"])
    flows = []
    for source, target in sorted(ways):
        policy = draw(namings)
        naming = {"policy": policy} | ({"map": {"t1": "t2"}} if policy == "map" else {})
        topics = draw(st.sampled_from([["t1"], ["t1", "t2"], [{"glob": "t*"}], [{"glob": "*1"}]]))
        provenance = {"forward": draw(st.sampled_from(["all"] * 5 + ["local"]))}
        state = draw(st.sampled_from(["running"] * 5 + ["paused"]))
        flows.append(
            {"source": source, "target": target, "topics": {"include": topics}}
            | {"naming": naming, "provenance": provenance, "state": state}
        )
    clusters = {alias: {"bootstrap": [f"{alias}.example.internal:9092"]} for alias in aliases}
    head = {"apiVersion": "topology/v1alpha1", "kind": "Topology", "metadata": {"name": "random"}}
    return {**head, "clusters": clusters, "flows": flows}


@pytest.mark.hypothesis
@pytest.mark.parametrize("all_running", [True, False])
def test_the_paths_that_are_told_are_enough_for_the_guard(all_running: bool) -> None:
    """Records arrive the same, whether every flow tells the whole way of each or only those flows that must."""
    seen: Counter[str] = Counter()
    most = choose_examples(80, 250)

    @settings(FIXED, max_examples=most)
    @given(rings())
    def tried(document: Document) -> None:
        case = case_of(document)
        if case.of("GRF203"):
            return
        flows = [each for each in case.flows if all_running or each.plan.state == "running"]
        told = {flow_id for flow_id, how in choose_delivery_modes(case.topology).items() if how.paths}
        whole = arrivals([each.plan for each in flows], {each.id for each in flows}, case.begun)
        enough = arrivals([each.plan for each in flows], told, case.begun)
        assert enough == whole, case
        none = arrivals([each.plan for each in flows], set(), case.begun)
        seen["needed"] += none != whole
        seen["all"] += 1

    tried()
    assert seen["all"] >= 0.8 * most, seen
    assert seen["needed"] >= 0.12 * most, seen


def arrivals(flows: list[PlanFlow], telling: set[str], begun: list[Place]) -> Counter[tuple[Place, Place]]:
    """How often each birth comes to each name, in at most as many hops as a clean topology needs and a few more."""
    found: Counter[tuple[Place, Place]] = Counter()
    level = Counter({(birth, birth, ()): 1 for birth in begun})
    for _ in range(9):
        following: Counter[tuple[Place, Place, tuple[str, ...]]] = Counter()
        for (birth, (cluster, name), path), count in level.items():
            for each in flows:
                if each.source != cluster or each.source == each.target or not each.selects(name):
                    continue
                guarded = each.guard == "producer_id"
                if path and (each.forward == "local" or (guarded and each.target in path)):
                    continue
                further = (*path, cluster) if guarded and each.id in telling else (cluster,)
                place = (each.target, each.target_topic(name))
                found[birth, place] += count
                following[birth, place, further] += count
        level = following
    return found
