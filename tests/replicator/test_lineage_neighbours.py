"""Flows of other topology files on the same clusters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from watershed.clusters.flow_records import FlowRecord
from watershed.replicator.apply_neighbours import adapt_to_neighbours
from watershed.replicator.apply_refusals import CannotApply
from watershed.topology.naming import Naming
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

IDS = {"onprem": "A", "cloud": "B", "branch": "C"}


def flow(source: str, target: str, topic: str = "orders", **more) -> PlanFlow:
    return PlanFlow(f"{source}-to-{target}", source, target, TopicSelection((Selector("literal", topic),)), **more)


def pattern(source: str, target: str, glob: str) -> PlanFlow:
    return PlanFlow(f"{source}-to-{target}", source, target, TopicSelection((Selector("glob", glob),)))


def applied(source_id: str, each: PlanFlow, state="running") -> FlowRecord:
    return FlowRecord(each, "", "other", state=state, source_cluster_id=source_id)


def test_without_others_nothing_changes() -> None:
    mine = [flow("onprem", "cloud")]
    own = FlowRecord(flow("cloud", "onprem"), "", "mine", source_cluster_id="B")
    assert adapt_to_neighbours("mine", mine, IDS, {"onprem": {"cloud-to-onprem": own}, "cloud": {}}) == mine


def test_another_file_calls_the_clusters_by_other_names() -> None:
    back = flow("x", "y", delivery="transactions")
    found = adapt_to_neighbours("mine", [flow("onprem", "cloud")], IDS, {"onprem": {"x-to-y": applied("B", back)}})
    assert found[0].delivery == "transactions"
    assert found[0].delivery_reason.startswith("x-to-y of topology other brings orders back")
    assert (found[0].id, found[0].source, found[0].target) == ("onprem-to-cloud", "onprem", "cloud")


def test_what_is_paused_or_about_other_topics_changes_nothing() -> None:
    mine = [flow("onprem", "cloud")]
    paused = {"onprem": {"x-to-y": applied("B", flow("x", "y", delivery="transactions"), state="paused")}}
    assert adapt_to_neighbours("mine", mine, IDS, paused) == mine
    elsewhere = {"onprem": {"x-to-y": applied("B", flow("x", "y", "sales"))}}
    assert adapt_to_neighbours("mine", mine, IDS, elsewhere) == mine


def test_what_has_moved_is_copied_no_more() -> None:
    """Behind a migration the flow there lets go of its topics, and the flow back carries them."""
    there = replace(applied("A", flow("onprem", "cloud")), retired=frozenset({"orders"}), state="stopped")
    both = {"cloud": {"onprem-to-cloud": there}, "onprem": {"cloud-to-onprem": applied("B", flow("cloud", "onprem"))}}
    mine = [flow("onprem", "cloud", "sales")]
    assert adapt_to_neighbours("mine", mine, IDS, both) == mine


def test_a_topology_that_is_being_moved_stands_in_the_way_of_its_own_topics_only() -> None:
    """While a rollback carries back, both its flows run by sequence numbers: that is the migration's to know."""
    moved = {
        "cloud": {"onprem-to-cloud": applied("A", flow("onprem", "cloud"))},
        "onprem": {"cloud-to-onprem": applied("B", flow("cloud", "onprem"))},
    }
    for topic in ("sales", "order"):
        mine = [flow("onprem", "cloud", topic)]
        assert adapt_to_neighbours("mine", mine, IDS, moved) == mine
    for mine in (flow("onprem", "cloud"), flow("cloud", "branch"), pattern("branch", "onprem", "o*")):
        with pytest.raises(CannotApply, match="copies alone"):
            adapt_to_neighbours("mine", [mine], IDS, moved)


def test_a_flow_between_makes_two_topologies_meet() -> None:
    """Mine renames what they read: the topic in common stands at their source."""
    moved = {
        "cloud": {"onprem-to-cloud": applied("A", flow("onprem", "cloud", "eu.orders"))},
        "onprem": {"cloud-to-onprem": applied("B", flow("cloud", "onprem", "eu.orders"))},
    }
    mine = flow("branch", "onprem", naming=Naming("prefix", before="eu."))
    with pytest.raises(CannotApply, match="copies alone"):
        adapt_to_neighbours("mine", [mine], IDS, moved)
    assert adapt_to_neighbours("mine", [replace(mine, naming=Naming("prefix", before="us."))], IDS, moved)


def test_two_writers_of_one_topic_in_two_files() -> None:
    mine = [flow("onprem", "cloud")]
    alone = {"cloud": {"x-to-y": applied("C", flow("x", "y"))}}
    with pytest.raises(CannotApply, match=r"x-to-y of topology other copies alone.*onprem-to-cloud writes orders"):
        adapt_to_neighbours("mine", mine, IDS, alone)
    merging = {"cloud": {"x-to-y": applied("C", flow("x", "y", delivery="transactions", merge=True))}}
    assert adapt_to_neighbours("mine", mine, IDS, merging)[0].delivery == "transactions"


def test_a_ring_that_two_files_make_together() -> None:
    """A -> B was applied by another file: its records must tell their way before B -> C -> A may be added."""
    mine = [flow("cloud", "branch"), flow("branch", "onprem")]
    silent = {"cloud": {"x-to-y": applied("A", flow("x", "y", delivery="transactions"))}}
    with pytest.raises(CannotApply, match="without telling the way"):
        adapt_to_neighbours("mine", mine, IDS, silent)
    telling = {"cloud": {"x-to-y": applied("A", replace(flow("x", "y", delivery="transactions"), paths=True))}}
    assert all(each.paths for each in adapt_to_neighbours("mine", mine, IDS, telling))
