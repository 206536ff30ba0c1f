"""Which groups are left alone as a whole, and what becomes of an order; without a cluster."""

from __future__ import annotations

import pytest

from watershed.clusters.group_offsets import CommittedOffsets, CommittedPosition, ListedGroup
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.sync.group_control_records import GroupResetDecision
from watershed.replicator.sync.group_decisions import PositionDecision
from watershed.replicator.sync.group_sync import GroupSyncer, describe_reset_outcome
from watershed.replicator.sync.sync_kind import SyncClusters
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

PLACE = TopicPartition("orders", 0)
FLOW = PlanFlow("a-to-b", "a", "b", TopicSelection(include=(Selector("literal", "orders"),)))


@pytest.mark.parametrize(
    ("group", "held", "about", "why"),
    [
        (ListedGroup("billing", "Stable", "classic", "consumer"), CommittedOffsets(), {PLACE}, ""),
        (ListedGroup("billing", "Empty", "consumer", "consumer"), CommittedOffsets(), {PLACE}, ""),
        (ListedGroup("work", "Stable", "share", "share"), CommittedOffsets(), {PLACE}, ""),
        (ListedGroup("counts", "Stable", "streams", "streams"), CommittedOffsets(), {PLACE}, "Kafka Streams"),
        (ListedGroup("counts", "Stable", "streams", "streams"), CommittedOffsets(), set(), ""),
        (
            ListedGroup("totals", "Empty", "classic", "consumer"),
            CommittedOffsets(),
            {PLACE},
            "by its topic totals-store-changelog",
        ),
        (ListedGroup("joins", "Stable", "classic", "consumer"), CommittedOffsets(), {PLACE}, "Kafka Streams"),
        (ListedGroup("workers", "Stable", "classic", "connect"), CommittedOffsets(), set(), "Kafka Connect"),
        (ListedGroup("hidden", "Stable"), CommittedOffsets(error="refused"), set(), "refused"),
    ],
)
def test_what_is_left_alone_as_a_whole(group, held, about, why):
    settings = ConnectionSettings("a", ("127.0.0.1:1",))

    class Topics:
        def topic_names(self) -> list[str]:
            return ["orders", "totals-store-changelog", "joins-left-repartition", "billing-changelog-of-ours"]

    said = GroupSyncer(FLOW, SyncClusters(settings, settings))._refusal(Topics(), group, held, about)
    assert (said == "") == (why == "")
    assert why in said


@pytest.mark.parametrize(
    ("moves", "outcome"),
    [
        (
            [PositionDecision(PLACE, "carried", there=PLACE, at_target=3, write=CommittedPosition(3), obeys=True)],
            "set from 7 to 3",
        ),
        ([PositionDecision(PLACE, "different", there=PLACE, at_target=9)], "not obeyed: the target stands at 9"),
        ([PositionDecision(PLACE, "equal", there=PLACE, at_target=7)], "not obeyed: the target stands at 7"),
        ([], "the group holds no position of it at the source"),
        ([PositionDecision(PLACE, "different", there=PLACE, at_target=7, why="alive")], None),  # can still be done
        ([PositionDecision(PLACE, "waiting", there=PLACE, at_target=7, why="ahead")], None),
    ],
)
def test_an_order_is_closed_once_nothing_of_it_is_left_to_do(moves, outcome):
    found = describe_reset_outcome(GroupResetDecision("a-to-b", "billing", {PLACE: 7}, "me"), moves)
    assert found == (None if outcome is None else {PLACE: outcome})
