"""How a flow may go on from what was applied before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from watershed.clusters.flow_records import FlowRecord
from watershed.replicator.apply_refusals import CannotApply, keep_delivery, refuse_change
from watershed.topology.naming import Naming
from watershed.topology.plan import Plan, PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

ALONE = PlanFlow("a-to-b", "a", "b", TopicSelection((Selector("literal", "orders"),)))
SHARED = replace(ALONE, delivery="transactions", delivery_reason="b-to-a brings orders back to a")
RING = replace(SHARED, paths=True)
PLAN = Plan("pair", (), ())


def yes() -> bool:
    return True


def no() -> bool:
    return False


def test_a_flow_that_copied_nothing_may_become_anything() -> None:
    for before in (ALONE, SHARED, RING):
        for after in (ALONE, SHARED, RING):
            assert keep_delivery(after, before, no) == after


def test_transactions_go_on_when_they_are_not_needed_any_more() -> None:
    kept = keep_delivery(ALONE, SHARED, yes)
    assert (kept.delivery, kept.delivery_reason) == ("transactions", "it has copied in transactions so far")
    assert keep_delivery(ALONE, RING, yes).paths
    assert keep_delivery(SHARED, RING, yes).paths
    assert keep_delivery(SHARED, RING, yes).delivery_reason == SHARED.delivery_reason


def test_sequence_numbers_cannot_become_shared() -> None:
    with pytest.raises(CannotApply, match=r"b-to-a brings orders back.*suffix"):
        keep_delivery(SHARED, ALONE, yes)
    with pytest.raises(CannotApply, match="suffix"):
        keep_delivery(RING, ALONE, yes)


def test_a_ring_is_not_closed_behind_records_that_tell_no_way() -> None:
    with pytest.raises(CannotApply, match="ring"):
        keep_delivery(RING, SHARED, yes)


def test_a_paused_flow_keeps_what_it_had() -> None:
    """In a failback the way there is paused and would be judged as if it were started beside the way back."""
    kept = keep_delivery(replace(SHARED, state="paused"), ALONE, yes)
    assert (kept.delivery, kept.delivery_reason, kept.state) == ("sequence", "", "paused")


def test_changes_that_would_copy_everything_again() -> None:
    before = FlowRecord(ALONE, "", "pair", source_cluster_id="A")
    refuse_change(PLAN, SHARED, before, "A")
    with pytest.raises(CannotApply, match="belongs to topology pair"):
        refuse_change(Plan("other", (), ()), ALONE, before, "A")
    with pytest.raises(CannotApply, match="naming"):
        refuse_change(PLAN, replace(ALONE, naming=Naming("map", map=(("orders", "sales"),))), before, "A")
    with pytest.raises(CannotApply, match="copied from cluster A"):
        refuse_change(PLAN, ALONE, before, "B")
