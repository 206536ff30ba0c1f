"""Who may go on behind records of a repartition topic that are gone, without a cluster."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from watershed.clusters.group_offsets import CommittedOffsets, CommittedPosition
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import Halt, OffsetSpan, Reinspect
from watershed.replicator.recovery import streams_purge
from watershed.replicator.recovery.operator_decisions import build_policy_decision, journal_policy_decision
from watershed.replicator.recovery.streams_purge import (
    MOST_SKIPS_AN_HOUR,
    ON_GAP,
    PURGE,
    RecentSkips,
    bound_skips,
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
CONTROL: Any = SimpleNamespace(settings=NOBODY)
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
    assert choose_gap_decider(FLOW, key, HALT, NOBODY, CONTROL, RecentSkips()) is None
    assert choose_gap_decider(replace(FLOW, on_gap="continue"), key, HALT, NOBODY, CONTROL, RecentSkips()) == ON_GAP
    passing = key._replace(topic=PLACE.topic)
    going, other = replace(FLOW, on_gap="continue"), Halt("duplicated", "x")
    assert choose_gap_decider(going, passing, other, NOBODY, CONTROL, RecentSkips()) is None
    assert isinstance(choose_gap_decider(FLOW, passing, HALT, NOBODY, CONTROL, RecentSkips()), Reinspect)


def test_a_copy_that_is_too_late_again_and_again_halts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line is one skip, whichever worker journaled it; those of a person and of `on_gap` are none."""
    now, hour = 1_750_000_000_000, 3_600_000
    mine = [{"actor": f"{PURGE} (1 of at most 12 in an hour)", "at_ms": now - ago} for ago in (1, 60_000, hour + 1)]
    journal = "journaled|order/a-to-b/shop-x-repartition"
    others = [{"actor": "ann", "at_ms": now}, {"actor": ON_GAP}]
    lines = {f"{journal}/0/{at}": line for at, line in enumerate([*mine, *others])}
    lines |= {f"{journal}/1/0": mine[0], f"{journal}/10/0": mine[0]}
    asked = []

    def read(_target: ConnectionSettings, _topic: str, *, prefix: str) -> dict[str, dict[str, Any]]:
        asked.append(prefix)
        return lines

    monkeypatch.setattr(streams_purge, "read_latest_values", read)
    key, skips = PartitionKey("a-to-b", PLACE.topic, PLACE.topic, 0), RecentSkips()
    assert [skips.count(NOBODY, key._replace(partition=at), now) for at in (0, 1, 2)] == [2, 1, 0]
    line = build_policy_decision(key, HALT, 3, now, PURGE)
    assert asked == ["journaled|order/a-to-b/"], "once for all partitions of a takeover"
    writer = SimpleNamespace(put=lambda _topic, name, _line, _partition: asked.append(name))
    journal_policy_decision(writer, line, "shop")  # type: ignore[arg-type]
    assert asked[-1].startswith(f"{journal}/0/")
    assert bound_skips("shop", HALT, 2) == f"{PURGE} (3 of at most 12 in an hour)"
    assert f"by {PURGE} (3 of" in replace(line, actor=str(bound_skips("shop", HALT, 2))).note
    over = bound_skips("shop", HALT, MOST_SKIPS_AN_HOUR)
    assert isinstance(over, Halt)
    assert (over.state, over.source) == ("source_expired", HALT.source)
    assert "12 times within an hour" in over.error
    assert "`repartition.purge.interval.ms`" in over.error


def held_at(offset: int | None) -> CommittedOffsets:
    return CommittedOffsets({} if offset is None else {PLACE: CommittedPosition(offset, "")})
