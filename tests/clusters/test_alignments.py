"""Decisions about equal offsets: the first one counts, for ever."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from watershed.clusters import alignment_records
from watershed.clusters.alignment_records import AlignmentRecord, agree_on_alignment, read_alignments
from watershed.clusters.control_records import ControlRecord
from watershed.clusters.settings import ConnectionSettings

SETTINGS = ConnectionSettings("cloud", ("127.0.0.1:1",))
FIRST = AlignmentRecord("onprem-to-cloud", "orders", "aligned", way="markers", by="worker a", at_ms=1)
SECOND = AlignmentRecord("onprem-to-cloud", "orders", "mapped", "it was copied already", by="worker b", at_ms=2)


class Log:
    """`watershed.flows`. before: what somebody else writes just before the next record of ours."""

    def __init__(self) -> None:
        self.records: list[ControlRecord] = []
        self.before: list[AlignmentRecord] = []

    def put(self, _topic: str, key: str, value: Any) -> int:
        if self.before:
            other = self.before.pop()
            self.put(_topic, other.key, other.to_json())
        self.records.append(ControlRecord(0, len(self.records), 0, key, value))
        return len(self.records) - 1

    def compacted(self) -> None:
        newest = {record.key: record.offset for record in self.records}
        self.records = [record for record in self.records if newest[record.key] == record.offset]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    stored = Log()

    def read_log(_settings: object, _topic: str) -> Iterator[ControlRecord]:
        return iter(list(stored.records))

    monkeypatch.setattr(alignment_records, "read_control_log", read_log)
    return stored


def agreed(log: Log, record: AlignmentRecord) -> AlignmentRecord:
    return agree_on_alignment(log, SETTINGS, record)  # type: ignore[arg-type]


def test_who_comes_later_writes_nothing(log: Log) -> None:
    """A worker that died between writing its own decision and the first one's again would leave its own for ever."""
    assert agreed(log, FIRST) == FIRST
    assert agreed(log, SECOND) == FIRST
    assert len(log.records) == 1


def test_of_two_at_once_the_first_counts_behind_compaction_too(log: Log) -> None:
    log.before = [FIRST]
    assert agreed(log, SECOND) == FIRST
    log.compacted()
    assert read_alignments(SETTINGS) == {(FIRST.flow, FIRST.topic): FIRST}


def test_a_decision_of_a_newer_version_is_named(log: Log) -> None:
    log.put("", FIRST.key, FIRST.to_json() | {"schema": 2})
    found = read_alignments(SETTINGS)[FIRST.flow, FIRST.topic]
    assert (found.mode, "schema 2" in found.reason) == ("unreadable", True)
    assert agreed(log, SECOND) == found  # nothing else is decided
    assert len(log.records) == 1
    log.put("", FIRST.key, FIRST.to_json())
    assert read_alignments(SETTINGS) == {(FIRST.flow, FIRST.topic): FIRST}
