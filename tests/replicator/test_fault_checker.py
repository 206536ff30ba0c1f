"""The checker of `make soak` finds every kind of damage, and nothing in a good copy."""

from __future__ import annotations

import pytest

from tests.soak.checker import anomalies, facts
from tests.soak.history import History, operations

SOURCE = {0: [(0, 10), (1, 11), (3, 12), (4, 13)], 1: [(0, 20), (1, 21)]}
TARGET = {0: [(0, 10), (1, 11), (2, 12), (3, 13)], 1: [(0, 20), (1, 21)]}
ACKED = [[0, 0, 10], [0, 1, 11], [0, 3, 12], [0, 4, 13], [1, 0, 20], [1, 1, 21]]


@pytest.fixture
def known(tmp_path):
    history = History(tmp_path / "history.jsonl")
    history.add("load", "invoke", "send", {"topic": "t", "sent": [10, 11, 12, 13, 20, 21]})
    history.add("load", "ok", "send", {"topic": "t", "acked": ACKED})
    history.add("load", "fail", "send", {"topic": "t", "sent": [99]})
    history.add("load", "info", "send", {"topic": "t", "sent": [98]})
    history.add("reader", "ok", "poll", {"topic": "t", "read": [[0, 0, 10], [0, 1, 11]]})
    history.add("reader", "ok", "poll", {"topic": "t", "read": [[0, 2, 12], [1, 0, 20]]})
    history.add("reader", "ok", "poll", {"topic": "other", "read": [[0, 7, 12]]})
    history.add("chaos", "info", "fault", "killed a worker")
    history.close()
    return facts(operations(history.path), "t")


def names(known, source, target):
    return {each.name for each in anomalies(known, source, target)}


def test_a_good_copy_has_no_anomaly(known):
    assert anomalies(known, SOURCE, TARGET) == []


def test_what_the_source_holds_twice_is_there_twice(known):
    source = SOURCE | {0: [*SOURCE[0], (5, 12), (6, 13)]}
    assert anomalies(known, source, TARGET | {0: [*TARGET[0], (4, 12), (5, 13)]}) == []
    assert names(known, source, TARGET | {0: [*TARGET[0], (4, 12)]}) == {"unseen"}
    assert names(known, source, TARGET | {0: [*TARGET[0], (4, 13), (5, 12)]}) == {"nonmonotonic-send"}


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        ({0: [(0, 10), (1, 12), (2, 13)]}, "lost-write"),
        ({0: TARGET[0][:3]}, "unseen"),
        ({0: [*TARGET[0], (4, 13)]}, "duplicate"),
        ({1: [*TARGET[1], (2, 13)]}, "duplicate"),
        ({0: [(0, 10), (1, 11), (2, 13), (3, 12)]}, "nonmonotonic-send"),
        ({0: [*TARGET[0], (4, 99)]}, "aborted-read"),
        ({0: [*TARGET[0], (4, 555)]}, "aborted-read"),
        ({1: [(0, 21), (1, 20)]}, "inconsistent-offsets"),
    ],
)
def test_damage_has_its_name(known, damage, name):
    assert name in names(known, SOURCE, TARGET | damage)


def test_an_acknowledged_record_that_the_source_lost(known):
    assert "lost-write" in names(known, SOURCE | {1: SOURCE[1][:1]}, TARGET | {1: TARGET[1][:1]})


@pytest.mark.parametrize(
    ("reads", "name"), [([(0, 10), (2, 12)], "poll-skip"), ([(1, 11), (0, 10)], "nonmonotonic-poll")]
)
def test_a_reader_that_jumps(known, reads, name):
    known.polled = {0: reads}
    assert names(known, SOURCE, TARGET) == {name}
