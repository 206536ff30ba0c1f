"""Positions in open transactions, told by the log ends of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from watershed.clusters.pending_commits import find_offsets_partition, find_pending_groups
from watershed.clusters.required_role_acls import OFFSETS_TOPIC
from watershed.clusters.topic_partition import TopicPartition


@pytest.mark.parametrize(
    ("group", "java_hash"),
    [("abc", 96354), ("orders-billing", -2070039661), ("größe", 98762257), ("polygenelubricants", -(1 << 31)), ("", 0)],
)
def test_a_group_is_in_the_partition_that_java_says(group: str, java_hash: int) -> None:
    absolute = 0 if java_hash == -(1 << 31) else abs(java_hash)
    assert find_offsets_partition(group, 50) == absolute % 50


def place(group: str) -> TopicPartition:
    return TopicPartition(OFFSETS_TOPIC, find_offsets_partition(group, 50))


def test_a_transaction_that_stays_open_makes_its_groups_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watershed.clusters.pending_commits._WAIT_S", 0.0)
    ends = {place("abc"): (7, 9), place("orders-billing"): (4, 4)}
    found = find_pending_groups(["abc", "orders-billing"], 50, lambda asked: {each: ends[each] for each in asked})
    assert found == {"abc"}


def test_one_that_ends_meanwhile_does_not_though_others_begin() -> None:
    """The end of the first reading counts: a busy partition is never without an open transaction."""
    readings = iter([(7, 9), (8, 15), (10, 20)])
    assert find_pending_groups(["abc"], 50, lambda asked: dict.fromkeys(asked, next(readings))) == frozenset()
    assert next(readings, None) is None


def test_a_partition_that_does_not_answer_is_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watershed.clusters.pending_commits._WAIT_S", 0.0)

    def read(_asked: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        return {}

    assert find_pending_groups(["abc"], 50, read) == {"abc"}
