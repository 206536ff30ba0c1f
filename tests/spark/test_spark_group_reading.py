"""Which positions of groups a proof tries, and which ones it says it does not know; without a cluster."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

import pytest

from watershed.clusters.group_offsets import CommittedOffsets, CommittedPosition, ListedGroup
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.spark.judging import group_position_reading as reading
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

FLOW = PlanFlow("a-to-b", "a", "b", TopicSelection((Selector("literal", "orders"),)))
FIRST, SECOND, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("other", 0)
BOTH = CommittedOffsets({FIRST: CommittedPosition(4), SECOND: CommittedPosition(7)})


class Side:
    """One cluster that answers what is prepared for its alias, the last answer for ever."""

    answers: dict[str, deque[CommittedOffsets]]

    def __init__(self, settings: ConnectionSettings) -> None:
        self._answers, self.cluster_id = self.answers[settings.alias], settings.alias

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def listed(self) -> dict[str, ListedGroup]:
        return {"billing": ListedGroup("billing", "Empty")}

    def held(self, groups: Iterable[str]) -> dict[str, CommittedOffsets]:
        now = self._answers.popleft() if len(self._answers) > 1 else self._answers[0]
        return dict.fromkeys(groups, now)


def read(
    monkeypatch: pytest.MonkeyPatch, source: list[CommittedOffsets], target: list[CommittedOffsets], wait_s: float = 0.0
) -> reading.FlowGroupPositions:
    def connect(alias: str) -> tuple[Any, ConnectionSettings]:
        return None, ConnectionSettings(alias, ())

    monkeypatch.setattr(Side, "answers", {"a": deque(source), "b": deque(target)}, raising=False)
    monkeypatch.setattr(reading, "GroupOffsets", Side)
    monkeypatch.setattr(reading, "_OPEN_TRANSACTION_WAIT_S", wait_s)
    monkeypatch.setattr(reading, "_PAUSE_S", 0.0)
    asked = reading.GroupSelection(frozenset({"a-to-b"}), ("billing",))
    return reading.read_group_positions(asked, FLOW, connect, {"orders"})


def tried(found: reading.FlowGroupPositions) -> list[tuple[TopicPartition, int, int | None]]:
    return [(each.place, each.committed, each.at_target) for each in found.positions]


def test_positions_of_both_sides_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(monkeypatch, [BOTH], [BOTH])
    assert tried(found) == [(FIRST, 4, 4), (SECOND, 7, 7)]
    assert found.problems == ()


@pytest.mark.parametrize("held", [{}, {FIRST: CommittedPosition(4)}])
def test_a_position_in_an_open_transaction_at_the_source_is_a_problem(
    held: dict[TopicPartition, CommittedPosition], monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = CommittedOffsets(held, frozenset({FIRST, SECOND}) - held.keys())
    found = read(monkeypatch, [hidden], [BOTH])
    assert [place for place, _, _ in tried(found)] == sorted(held)
    [problem] = found.problems
    assert f"group billing: {2 - len(held)} of its positions on a are not known" in problem


def test_one_at_the_target_is_a_problem_and_no_position_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = CommittedOffsets({FIRST: CommittedPosition(4)}, frozenset({SECOND}))
    found = read(monkeypatch, [BOTH], [hidden])
    assert tried(found) == [(FIRST, 4, 4)]
    [problem] = found.problems
    assert "1 of its positions on b are not known, first that of orders-1" in problem


def test_transactions_of_applications_that_run_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = CommittedOffsets(unstable=frozenset({FIRST, SECOND}))
    found = read(monkeypatch, [hidden, hidden, BOTH], [hidden, BOTH], wait_s=60.0)
    assert (len(found.positions), found.problems) == (2, ())


def test_an_open_transaction_in_another_topic_is_no_problem_of_this_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(monkeypatch, [CommittedOffsets(BOTH.positions, frozenset({OTHER}))], [BOTH])
    assert (len(found.positions), found.problems) == (2, ())
