"""What a worker does with a partition whose copy ended in trouble."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from clusters.flows import FlowRecord
from replicator.partition import PartitionKey
from replicator.seat import Seat
from replicator.states import LookAgain, Loud
from replicator.worker import Worker
from topology.plan import PlanFlow
from topology.selectors import Selector, TopicSelection

FLOW = PlanFlow("a-to-b", "a", "b", TopicSelection(include=(Selector("literal", "orders"),)))
KEY = PartitionKey("a-to-b", "orders", "orders", 3)


def retired(trouble: Loud | LookAgain, state: Any, *, wanted: bool) -> tuple[Seat, list[str]]:
    """The seat afterwards, and the flows whose limits are asked again."""
    asked: list[str] = []
    worker: Any = object.__new__(Worker)
    worker._routes = SimpleNamespace(remove=lambda _route: None)
    worker._discovery = SimpleNamespace(ask_limits=asked.append)
    came = SimpleNamespace(copied_through=5, acked=4, source_end=9, source_seen=0.0)
    route: Any = SimpleNamespace(copy=SimpleNamespace(trouble=trouble, idle=True, **vars(came)))
    record = FlowRecord(FLOW, "sha256:0", "shop", producer_id=7, state=state)
    seat = Seat(KEY, record, wanted=wanted, route=route)
    worker._seats = {KEY: seat}
    worker._retire()
    return seat, asked


@pytest.mark.parametrize("state", ["running", "paused"])
@pytest.mark.parametrize("wanted", [True, False])
def test_a_loud_end_is_always_told(caplog, state, wanted):
    with caplog.at_level(logging.ERROR, "watershed.worker"):
        seat, asked = retired(Loud("append_time", "stamped at 7"), state, wanted=wanted)
    assert [(each.message, each.seen) for each in caplog.records] == [("append_time", "stamped at 7")]
    assert seat.route is None
    assert (seat.stopped is not None) == wanted, "also a paused flow shows it; another worker finds it again"
    assert asked == ["a-to-b"]


def test_what_is_only_looked_at_again_is_not_told(caplog):
    seat, asked = retired(LookAgain("paused"), "paused", wanted=True)
    assert (seat.stopped, seat.waiting_for, asked, caplog.records) == (None, "", [], [])
