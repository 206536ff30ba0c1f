"""For each GRF rule the fault that it is about, put into a file that had none. Every mutation adds what the fault needs
and nothing else: flows carry the suffix `mutant`, fresh clusters are called m…"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from tests.topology.pump.files import NAMES, Document
from tests.topology.pump.judge import Case, doubled, shared, starved
from watershed.topology.inventory import Inventory, InventoryCluster, InventoryTopic
from watershed.topology.model import Flow

IDENTITY = {"policy": "identity"}
APART = {"allowed": False, "duplicates": "forbidden"}
Mutation = Callable[[st.DrawFn, Case], Document]
Sight = Callable[[Case], bool]


@dataclass(frozen=True)
class Fault:
    """real: what the oracle has to see in the mutated file; None where records alone do not show it. examples: how many
    files it is put into."""

    mutate: Mutation
    real: Sight | None = None
    inventory: Inventory | None = None
    examples: int = 25


def unguarded_loop(draw: st.DrawFn, case: Case) -> Document:
    flow = carrying(draw, case)
    loose = {"provenance": {"guard": "none", "forward": "all"}, "naming": IDENTITY}
    document = edited(case, flow, loose)
    return added(document, new(flow.target, flow.source, flow, **loose))


def loop_that_forgets(draw: st.DrawFn, case: Case) -> Document:
    """Every other flow of a ring of four is guarded."""
    flow = carrying(draw, case)
    loose, tight = {"guard": "none", "forward": "all"}, {"guard": "producer_id", "forward": "all"}
    document = edited(case, flow, {"provenance": loose, "naming": IDENTITY})
    return added(
        document,
        new(flow.target, "m1", flow, provenance=tight),
        new("m1", "m2", flow, provenance=loose),
        new("m2", flow.source, flow, provenance=tight),
    )


def rename_on_a_loop(draw: st.DrawFn, case: Case) -> Document:
    flow = carrying(draw, case)
    topics = {"include": [{"glob": "*mutant"}]}
    longer = {"policy": "template", "template": draw(st.sampled_from(["m{topic}", "{source}-{topic}"]))}
    back = draw(st.sampled_from([IDENTITY, longer]))
    return added(
        case.document,
        new(flow.source, flow.target, flow, naming=longer, topics=topics),
        new(flow.target, flow.source, flow, naming=back, topics=topics),
    )


def second_writer(draw: st.DrawFn, case: Case) -> Document:
    flow = carrying(draw, case, "identity")
    return added(case.document, new("m1", flow.target, flow))


def diamond(draw: st.DrawFn, case: Case) -> Document:
    flow = carrying(draw, case, "identity")
    return added(case.document, new(flow.source, "m1", flow), new("m1", flow.target, flow))


def forwarding_mesh(draw: st.DrawFn, case: Case) -> Document:
    members = ["m1", "m2", draw(st.sampled_from(sorted(case.topology.clusters))), "m3"][: draw(st.integers(3, 4))]
    ways = [(one, two) for one in members for two in members if one != two]
    return added(case.document, *(new(one, two, topics={"include": ["mutant"]}) for one, two in ways))


def local_hop(draw: st.DrawFn, case: Case) -> Document:
    flow = carrying(draw, case, "identity")
    return added(case.document, new(flow.target, "m1", flow, provenance={"forward": "local"}))


def silent_hop(draw: st.DrawFn, case: Case) -> Document:
    flow = carrying(draw, case, "identity")
    document = edited(case, flow, {"provenance": {"header": "hops"}})
    return added(document, new(flow.target, "m1", flow))


def two_headers(draw: st.DrawFn, case: Case) -> Document:
    flow = carrying(draw, case, "identity")
    document = edited(case, flow, {"provenance": {"header": "hops"}})
    return added(document, new(flow.target, "m1", flow, provenance={"header": "trail", "forward": "all"}))


def standby_left_out(draw: st.DrawFn, case: Case) -> Document:
    """What another flow brings is not forwarded, or the way takes less than the pattern promises."""
    active = draw(st.sampled_from(sorted(case.topology.clusters)))
    pattern = {"active": active, "standby": "m1", "topics": {"include": ["t1", "mutant"], "exclude": []}}
    document = patterned(case, {"active_standby": pattern | plain()})
    if draw(st.booleans()):
        narrow = {"source": active, "target": "m1", "topics": {"include": ["mutant"], "exclude": []}}
        return added(document, narrow)
    stays = {"source": active, "target": "m1", "provenance": {"forward": "local"}}
    return added(document, stays, new("m2", active, topics={"include": ["t1"]}))


def no_way_back(draw: st.DrawFn, case: Case) -> Document:
    active = draw(st.sampled_from(sorted(case.topology.clusters)))
    pattern = {"active": active, "standby": "m1", "topics": {"include": ["mutant"], "exclude": []}}
    return patterned(case, {"active_standby": pattern | plain()})


def both_ways_live(draw: st.DrawFn, case: Case) -> Document:
    active = draw(st.sampled_from(sorted(case.topology.clusters)))
    guard = {"guard": draw(st.sampled_from(["none", "producer_id"])), "forward": "all"}
    pattern = {"active": active, "standby": "m1", "topics": {"include": ["mutant"], "exclude": []}}
    document = patterned(case, {"active_standby": pattern | plain() | {"provenance": guard}})
    return added(document, new("m1", active, topics={"include": ["mutant"]}, provenance=guard))


def aggregate_feeds_regional(draw: st.DrawFn, case: Case) -> Document:
    regional = draw(st.sampled_from(sorted(case.topology.clusters)))
    pattern = {"via": "aggregate", "regionals": [regional, "m2"], "aggregates": ["m1"]}
    settings = plain() | {"topics": {"include": ["mutant"], "exclude": []}, "merge": {"allowed": True}}
    document = patterned(case, {"active_active": pattern | settings})
    return added(document, new("m1", regional, topics={"include": ["mutant-prices"]}))


def same_route_twice(draw: st.DrawFn, case: Case) -> Document:
    flow = carrying(draw, case, "identity")
    if draw(st.booleans()):
        return added(case.document, new(flow.source, flow.target, flow))
    twin = new("m1", flow.source, flow)
    return added(case.document, twin, twin | {"topics": {"include": ["mutant"]}})


def endless_chain(draw: st.DrawFn, case: Case) -> Document:
    path = [f"m{number}" for number in range(70)]
    ways = pairwise(path)
    return added(case.document, *(new(one, two, topics={"include": ["mutant"]}) for one, two in ways))


def nothing_selected(draw: st.DrawFn, case: Case) -> Document:
    flow = carrying(draw, case)
    return edited(case, flow, {"topics": {"exclude": [{"glob": "*"}]}})


def renamed_again(draw: st.DrawFn, case: Case) -> Document:
    assume("chain" not in case.document.get("pattern", {}))
    start = draw(st.sampled_from(sorted(case.topology.clusters)))
    prefix, topics = {"policy": "prefix"}, {"include": [{"glob": "*mutant"}]}
    return added(
        case.document, new("m1", start, topics=topics, naming=prefix), new(start, "m2", topics=topics, naming=prefix)
    )


def wide_pattern(draw: st.DrawFn, case: Case) -> Document:
    return added(case.document, new("m1", "m2", topics={"include": [{"glob": "wide.*"}]}))


def _wide_inventory() -> Inventory:
    topics = {f"wide.{number}": InventoryTopic(f"wide.{number}", None, 1, 1) for number in range(60)}
    return Inventory({"m1": InventoryCluster("m1", "m1-id", 0, topics=topics)})


def tool_that_copies_back(draw: st.DrawFn, case: Case) -> Document:
    flow = carrying(draw, case, "identity")
    document = edited(case, flow, {"provenance": {"guard": "producer_id", "forward": "all"}})
    return beside(document, "mirrormaker2", flow.target, flow.source, flow)


def tool_that_copies_the_same(draw: st.DrawFn, case: Case) -> Document:
    flow = carrying(draw, case, "identity")
    return beside(case.document, "brooklin", flow.source, flow.target, flow)


def link_that_mirrors(draw: st.DrawFn, case: Case) -> Document:
    flow = carrying(draw, case, "identity")
    return beside(case.document, "cluster_link", "m1", flow.target, flow)


def circulates(case: Case) -> bool:
    return not case.walked.ends


def grows(case: Case) -> bool:
    return not case.walked.finite


def stops_half_way(case: Case) -> bool:
    """Something that a flow brought to where the mutant begins is selected by it and never comes to its end."""
    [hop] = [flow.plan for flow in case.flows if flow.id.endswith("-to-m1-mutant")]
    come = {birth for birth, (cluster, _) in case.walked.arrivals if cluster == hop.target}
    brought = {birth for birth, (cluster, name) in case.walked.arrivals if cluster == hop.source and hop.selects(name)}
    return any(birth not in come for birth in brought if birth[0] != hop.source)


def takes_nothing(case: Case) -> bool:
    return any(not any(flow.plan.selects(name) for name in NAMES) for flow in case.flows)


FAULTS: Mapping[str, Fault] = {
    "GRF201": Fault(unguarded_loop, circulates),
    "GRF202": Fault(loop_that_forgets, circulates),
    "GRF203": Fault(rename_on_a_loop, grows),
    "GRF204": Fault(second_writer, lambda case: bool(shared(case))),
    "GRF205": Fault(diamond, lambda case: bool(doubled(case))),
    "GRF206": Fault(forwarding_mesh, lambda case: bool(doubled(case))),
    "GRF207": Fault(local_hop, stops_half_way),
    "GRF208": Fault(silent_hop),
    "GRF209": Fault(two_headers),
    "GRF210": Fault(standby_left_out, lambda case: bool(starved(case))),
    "GRF211": Fault(no_way_back),
    "GRF212": Fault(both_ways_live),
    "GRF213": Fault(aggregate_feeds_regional),
    "GRF214": Fault(same_route_twice),
    "GRF216": Fault(nothing_selected, takes_nothing),
    "GRF217": Fault(renamed_again),
    "GRF218": Fault(wide_pattern, inventory=_wide_inventory()),
    "GRF219": Fault(endless_chain, examples=5),
    "GRF220": Fault(tool_that_copies_back),
    "GRF221": Fault(tool_that_copies_the_same),
    "GRF222": Fault(link_that_mirrors),
}


# -- pieces of a mutation ------------------------------------------------------------------------------------------


def carrying(draw: st.DrawFn, case: Case, policy: str | None = None) -> Flow:
    """A flow that takes at least one name, with this naming if one is asked for."""
    flows = [
        flow
        for flow in case.flows
        if any(flow.plan.selects(name) for name in NAMES) and policy in (None, flow.plan.naming.policy)
    ]
    assume(flows)
    return draw(st.sampled_from(flows))


def new(source: str, target: str, like: Flow | None = None, **settings: Any) -> Document:
    """A flow of its own with the topics of another one, or with those said, and nothing inherited that matters."""
    flow = {"source": source, "target": target, "suffix": "mutant"} | plain() | settings
    if like is not None and "topics" not in settings:
        flow["topics"] = like.plan.topics.to_json()
    flow["topics"] = {"exclude": [], "allow_internal": False} | flow["topics"]
    flow["provenance"] = {"guard": "producer_id", "forward": "all"} | flow["provenance"]
    return flow


def beside(document: Document, tool: str, source: str, target: str, like: Flow) -> Document:
    """With a copy of the same topics that another tool makes, under unchanged names and without a mark."""
    copied = {"name": "mutant", "tool": tool, "source": source, "target": target, "naming": IDENTITY}
    copied["topics"] = like.plan.topics.to_json()
    mutated = copy.deepcopy(document) | {"external_flows": [copied]}
    return clustered(mutated, {source, target})


def plain() -> Document:
    return {"naming": IDENTITY, "merge": APART, "state": "running", "provenance": {}}


def edited(case: Case, flow: Flow, settings: Document) -> Document:
    """The file with a flow that says this, too; keys below a section are put beside those it has."""
    document = copy.deepcopy(case.document)
    suffix = flow.id.removeprefix(f"{flow.source}-to-{flow.target}").removeprefix("-") or None
    for entry in document.setdefault("flows", []):
        if (entry["source"], entry["target"], entry.get("suffix")) == (flow.source, flow.target, suffix):
            break
    else:
        entry = {"source": flow.source, "target": flow.target} | ({"suffix": suffix} if suffix else {})
        document["flows"].append(entry)
    for section, value in settings.items():
        entry[section] = value if section == "naming" else {**entry.get(section, {}), **value}
    return document


def patterned(case: Case, pattern: Document) -> Document:
    """Only files without a pattern can take one."""
    assume("pattern" not in case.document)
    return clustered(copy.deepcopy(case.document) | {"pattern": pattern}, set())


def added(document: Document, *flows: Document) -> Document:
    """With these flows and the fresh clusters that they name (and those of a pattern)."""
    mutated = copy.deepcopy(document)
    mutated["flows"] = [*mutated.get("flows", []), *copy.deepcopy(list(flows))]
    fresh = {flow[end] for flow in flows for end in ("source", "target")}
    return clustered(mutated, fresh)


def clustered(document: Document, more: set[str]) -> Document:
    [body] = document.get("pattern", {"none": {}}).values()
    named = {body.get("active"), body.get("standby"), *body.get("regionals", ()), *body.get("aggregates", ())}
    for alias in sorted((named | more) - {None}):
        document["clusters"].setdefault(alias, {"bootstrap": [f"{alias}.example.internal:9092"]})
    return document
