"""A look that fails in a way nobody thought of ends no worker: its partitions are looked at one by one, then loud."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from clusters.flows import FlowRecord
from clusters.settings import ConnectionSettings
from replicator import seat as seat_module
from replicator.looks import Looks
from replicator.partition import PartitionKey
from replicator.seat import Seat
from replicator.states import LookAgain
from topology.plan import PlanFlow
from topology.selectors import Selector, TopicSelection

FLOW = PlanFlow("a-to-b", "a", "b", TopicSelection(include=(Selector("literal", "orders"),)))


def test_a_look_that_fails_is_taken_apart_and_is_loud_in_the_end():
    asked = []

    def connect(alias: str) -> ConnectionSettings:
        asked.append(alias)
        raise RuntimeError("nobody thought of it")

    record = FlowRecord(FLOW, "sha256:0", "shop", producer_id=7)
    seats = [Seat(PartitionKey("a-to-b", "orders", "orders", number), record) for number in range(3)]
    with ThreadPoolExecutor(2) as pool:
        looks = Looks(
            ConnectionSettings("b", ("127.0.0.1:1",)),
            connect,
            pool,
            *cast("tuple[Any, ...]", (None, "w", 1, None, None)),
        )
        reasons = []
        for round_ in range(4):
            for seat in seats:
                seat.not_before = 0.0
            looks.start(seats)
            found: list[tuple[Seat, Any]] = []
            while len(found) < len(seats):
                found += looks.finished()
            assert len(asked) == 1 + 3 * round_, "together at first, then each by itself"
            for seat, trouble in found:
                assert isinstance(trouble, LookAgain)
                reasons.append((trouble.reason, trouble.in_the_end))
                seat.found(trouble, round_ * seat_module.SAME_FOR_S)
    told = "looking at the logs failed (RuntimeError: nobody thought of it)"
    assert reasons == [(told, None)] * 3 + [(told, "failed")] * 9
    assert {seat.report("w", 1).state for seat in seats} == {"failed"}
    assert all(seat.ready_to_look(1e9) for seat in seats), "it may heal by itself"
