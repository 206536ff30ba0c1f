"""Who may go on behind records of a repartition topic that are gone, without a cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from watershed.clusters.group_offsets import CommittedOffsets, CommittedPosition
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import Halt, OffsetSpan, Reinspect
from watershed.replicator.recovery.streams_purge import (
    ON_GAP,
    PURGE,
    choose_gap_decider,
    find_named_application,
    judge_deleted_records,
)
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection
from watershed.topology.sync_settings import GroupSync, SyncSettings

SYNC = SyncSettings(groups=GroupSync("continuous", streams=("shop", "shop-eu")))
FLOW = PlanFlow("a-to-b", "a", "b", TopicSelection((Selector("literal", "orders"),)), sync=SYNC)
NOBODY = ConnectionSettings("a", ("127.0.0.1:1",))
HALT = Halt("source_expired", "source offsets 100 to 299 are gone", source=OffsetSpan(100, 300))
PLACE = TopicPartition("shop-x-repartition", 0)


@pytest.mark.parametrize(
    ("topic", "application"),
    [
        ("shop-x-repartition", "shop"),
        ("shop-eu-x-repartition", "shop-eu"),
        ("shop-x-changelog", ""),
        ("other-x-repartition", ""),
        ("shop-orders", ""),
    ],
)
def test_a_topic_belongs_to_the_longest_id_that_the_flow_names(topic: str, application: str) -> None:
    assert find_named_application(FLOW, topic) == application


@pytest.mark.parametrize("at", [None, 0, 299])
def test_what_the_application_has_not_processed_stays_a_loss(at: int | None) -> None:
    found = judge_deleted_records("shop", PLACE, HALT, held_at(at))
    assert isinstance(found, Halt)
    assert (found.state, found.source) == ("source_expired", HALT.source)
    assert "shop has not committed a position behind them" in found.error
    assert ("no position" if at is None else f"stands at {at}") in found.error


@pytest.mark.parametrize("at", [300, 400])
def test_what_the_application_has_committed_is_no_loss(at: int) -> None:
    assert judge_deleted_records("shop", PLACE, HALT, held_at(at)) == PURGE


def test_a_position_that_cannot_be_told_now_is_asked_for_again() -> None:
    for held in (CommittedOffsets(unstable=frozenset({PLACE})), CommittedOffsets(error="the coordinator moves")):
        assert isinstance(judge_deleted_records("shop", PLACE, HALT, held), Reinspect)
    refused = judge_deleted_records("shop", PLACE, HALT, CommittedOffsets(error="DESCRIBE", is_unauthorised=True))
    assert isinstance(refused, Halt)
    assert "DESCRIBE" in refused.error


def test_only_expired_records_of_its_own_topics_are_asked_about() -> None:
    key = PartitionKey("a-to-b", "orders", "orders", 0)
    assert choose_gap_decider(FLOW, key, HALT, NOBODY) is None
    assert choose_gap_decider(replace(FLOW, on_gap="continue"), key, HALT, NOBODY) == ON_GAP
    passing = key._replace(topic=PLACE.topic)
    assert choose_gap_decider(replace(FLOW, on_gap="continue"), passing, Halt("duplicated", "x"), NOBODY) is None
    assert isinstance(choose_gap_decider(FLOW, passing, HALT, NOBODY), Reinspect)


def held_at(offset: int | None) -> CommittedOffsets:
    return CommittedOffsets({} if offset is None else {PLACE: CommittedPosition(offset, "")})
