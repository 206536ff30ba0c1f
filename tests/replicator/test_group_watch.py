"""Which groups are left alone as a whole, and what becomes of an order; without a cluster."""

from __future__ import annotations

import pytest

from clusters.group_offsets import Held, ListedGroup, Position
from clusters.names import TopicPartition
from clusters.settings import ConnectionSettings
from replicator.sync.group_moves import Move
from replicator.sync.group_records import GroupOrder
from replicator.sync.group_watch import GroupWatch, order_outcome
from replicator.sync.kind import Sides
from topology.plan import PlanFlow
from topology.selectors import Selector, TopicSelection

PLACE = TopicPartition("orders", 0)
FLOW = PlanFlow("a-to-b", "a", "b", TopicSelection(include=(Selector("literal", "orders"),)))


@pytest.mark.parametrize(
    ("group", "held", "about", "why"),
    [
        (ListedGroup("billing", "Stable", "classic", "consumer"), Held(), {PLACE}, ""),
        (ListedGroup("billing", "Empty", "consumer", "consumer"), Held(), {PLACE}, ""),
        (ListedGroup("work", "Stable", "share", "share"), Held(), {PLACE}, ""),
        (ListedGroup("counts", "Stable", "streams", "streams"), Held(), {PLACE}, "Kafka Streams"),
        (ListedGroup("counts", "Stable", "streams", "streams"), Held(), set(), ""),
        (ListedGroup("totals", "Empty", "classic", "consumer"), Held(), {PLACE}, "by its topic totals-store-changelog"),
        (ListedGroup("joins", "Stable", "classic", "consumer"), Held(), {PLACE}, "Kafka Streams"),
        (ListedGroup("workers", "Stable", "classic", "connect"), Held(), set(), "Kafka Connect"),
        (ListedGroup("hidden", "Stable"), Held(error="refused"), set(), "refused"),
    ],
)
def test_what_is_left_alone_as_a_whole(group, held, about, why):
    settings = ConnectionSettings("a", ("127.0.0.1:1",))

    class Topics:
        def topic_names(self) -> list[str]:
            return ["orders", "totals-store-changelog", "joins-left-repartition", "billing-changelog-of-ours"]

    said = GroupWatch(FLOW, Sides(settings, settings))._refusal(Topics(), group, held, about)
    assert (said == "") == (why == "")
    assert why in said


@pytest.mark.parametrize(
    ("moves", "outcome"),
    [
        ([Move(PLACE, "carried", there=PLACE, at_target=3, write=Position(3), obeys=True)], "set from 7 to 3"),
        ([Move(PLACE, "different", there=PLACE, at_target=9)], "not obeyed: the target stands at 9"),
        ([Move(PLACE, "equal", there=PLACE, at_target=7)], "not obeyed: the target stands at 7"),
        ([], "the group holds no position of it at the source"),
        ([Move(PLACE, "different", there=PLACE, at_target=7, why="alive")], None),  # can still be done
        ([Move(PLACE, "waiting", there=PLACE, at_target=7, why="ahead")], None),
    ],
)
def test_an_order_is_closed_once_nothing_of_it_is_left_to_do(moves, outcome):
    found = order_outcome(GroupOrder("a-to-b", "billing", {PLACE: 7}, "me"), moves)
    assert found == (None if outcome is None else {PLACE: outcome})
