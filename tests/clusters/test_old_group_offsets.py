"""Positions from a broker before Kafka 2.5, which does not say what is part of an open transaction."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from watershed.clusters.group_offsets import CommittedOffsets, CommittedPosition, GroupOffsets
from watershed.clusters.pending_commits import OFFSETS_TOPIC
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire.versions import Api

PLACE = TopicPartition("orders", 0)
LOADING, LEADER_NOT_AVAILABLE, UNKNOWN_TOPIC, NOT_AUTHORIZED = 14, 5, 3, 29
AT_5, AT_7 = CommittedOffsets({PLACE: CommittedPosition(5)}), CommittedOffsets({PLACE: CommittedPosition(7)})
HIDDEN = CommittedOffsets(unstable=frozenset({PLACE}))


@dataclass
class OldBroker:
    """The coordinator of all groups. What has answers in a queue gives the last one for ever.

    topic: (error code, partitions) of `__consumer_offsets`; positions: an offset, or an error code below 0; listing:
    error codes of ListGroups; stable: how far its log is without open transactions, of 9 offsets."""

    topic: deque[tuple[int, int]] = field(default_factory=lambda: deque([(0, 1)]))
    positions: deque[int] = field(default_factory=lambda: deque([5]))
    listing: deque[int] = field(default_factory=lambda: deque([0]))
    stable: int = 9
    alias: str = "old"

    def knows(self, api_key: int, version: int) -> bool:
        return version <= {Api.OFFSET_FETCH: 6, Api.FIND_COORDINATOR: 2}[Api(api_key)]

    def ask(self, api_key: int, **values: Any) -> Any:
        return getattr(self, f"_{Api(api_key).name.lower()}")(values)

    def _find_coordinator(self, _values: dict[str, Any]) -> Any:
        return SimpleNamespace(error_code=0, node_id=1, host="127.0.0.1", port=9092)

    def _metadata(self, _values: dict[str, Any]) -> Any:
        code, count = next_of(self.topic)
        parts = [SimpleNamespace(partition_index=number, leader_id=1) for number in range(count)]
        return SimpleNamespace(topics=[SimpleNamespace(name=OFFSETS_TOPIC, error_code=code, partitions=parts)])

    def _list_offsets(self, values: dict[str, Any]) -> Any:
        offset = self.stable if values["isolation_level"] else 9
        part = SimpleNamespace(partition_index=0, offset=offset, error_code=0)
        return SimpleNamespace(topics=[SimpleNamespace(name=OFFSETS_TOPIC, partitions=[part])])

    def _list_groups(self, _values: dict[str, Any]) -> Any:
        return SimpleNamespace(error_code=next_of(self.listing), groups=[])

    def _offset_fetch(self, _values: dict[str, Any]) -> Any:
        at = next_of(self.positions)
        if at < 0:
            return SimpleNamespace(error_code=-at, topics=[])
        part = SimpleNamespace(partition_index=0, committed_offset=at, metadata="", error_code=0)
        return SimpleNamespace(error_code=0, topics=[SimpleNamespace(name="orders", partitions=[part])])


def next_of(answers: deque[Any]) -> Any:
    return answers.popleft() if len(answers) > 1 else answers[0]


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watershed.clusters.pending_commits._WAIT_S", 0.0)
    monkeypatch.setattr("watershed.clusters.pending_commits._APART_S", 0.0)
    monkeypatch.setattr("watershed.clusters.pending_commits._METADATA_WAIT_S", 0.0)
    monkeypatch.setattr("watershed.clusters.group_offsets.COORDINATOR_WAIT_S", 0.0)


def read(broker: OldBroker) -> CommittedOffsets:
    groups = GroupOffsets(ConnectionSettings("old", ("127.0.0.1:9092",)))
    groups._brokers = {1: ("127.0.0.1", 9092)}
    groups._pool._open = {None: broker, ("127.0.0.1", 9092): broker}  # type: ignore[assignment,dict-item]
    return groups.held(["billing"])["billing"]


def test_a_group_without_open_transactions_has_its_positions() -> None:
    assert read(OldBroker()) == AT_5


def test_what_may_be_in_an_open_transaction_is_not_told() -> None:
    assert read(OldBroker(stable=4)) == HIDDEN


def test_a_group_that_cannot_be_read_is_not_one_that_holds_nothing() -> None:
    found = read(OldBroker(stable=4, positions=deque([-LOADING])))
    assert (found.positions, found.unstable) == ({}, frozenset())
    assert "COORDINATOR_LOAD_IN_PROGRESS" in found.error


@pytest.mark.parametrize("code", [LEADER_NOT_AVAILABLE, UNKNOWN_TOPIC, 0])
def test_a_broker_that_has_not_heard_of_the_offsets_topic_is_asked_again(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("watershed.clusters.pending_commits._METADATA_WAIT_S", 60.0)
    monkeypatch.setattr("watershed.clusters.pending_commits._PAUSE_S", 0.0)
    assert read(OldBroker(topic=deque([(code, 0), (code, 0), (0, 1)]), stable=4)) == HIDDEN


def test_where_it_never_hears_of_it_everything_counts_as_pending() -> None:
    assert read(OldBroker(topic=deque([(LEADER_NOT_AVAILABLE, 0)]))) == HIDDEN


def test_without_the_right_to_see_the_topic_the_right_is_named() -> None:
    found = read(OldBroker(topic=deque([(NOT_AUTHORIZED, 0)])))
    assert found.is_unauthorised
    assert f"--operation Describe --topic {OFFSETS_TOPIC}" in found.error


@pytest.fixture
def long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watershed.clusters.pending_commits._WAIT_S", 60.0)


@pytest.mark.usefixtures("long_waits")
def test_a_position_that_the_coordinator_takes_over_late_is_read_again() -> None:
    """The marker is in the log: the first reading shows the position from before the transaction."""
    assert read(OldBroker(positions=deque([5, 7]))) == AT_7


@pytest.mark.usefixtures("long_waits")
def test_while_the_coordinator_loads_equal_readings_say_nothing() -> None:
    """Taking over waits behind the partitions that are loaded."""
    assert read(OldBroker(listing=deque([LOADING, LOADING, 0]), positions=deque([5, 5, 5, 5, 7]))) == AT_7


def test_positions_of_a_coordinator_that_goes_on_loading_are_not_told() -> None:
    assert read(OldBroker(listing=deque([LOADING]))) == HIDDEN


def test_a_group_that_commits_all_the_time_has_its_last_position() -> None:
    assert read(OldBroker(positions=deque([5, 7, 8, 9]))) == AT_7
