"""Positions of Streams applications wait for their state, without a cluster."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from watershed.clusters.group_offsets import CommittedOffsets, CommittedPosition, ListedGroup, LogOffsets
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.streams_state_range import StateRange
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.ledger.offset_translation import OffsetNotCopied
from watershed.replicator.sync import streams_state
from watershed.replicator.sync.group_decisions import (
    GroupObservation,
    PositionMark,
    TranslatedPosition,
    decide_positions,
)
from watershed.replicator.sync.group_sync import is_group_selected
from watershed.replicator.sync.groups import build_group_report
from watershed.replicator.sync.streams_state import StreamsPositions, StreamsReading, explain_streams_refusal
from watershed.replicator.sync.sync_kind import SyncClusters
from watershed.topology.naming import Naming
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection
from watershed.topology.sync_settings import GroupSync, NameFilter, SyncSettings

APP = "counter"
INPUT, CHANGES, PASSING = "orders", f"{APP}-counts-changelog", f"{APP}-counts-repartition"
HERE, CHANGELOG, REPARTITION = (TopicPartition(topic, 0) for topic in (INPUT, CHANGES, PASSING))
NOTHING = "nothing of it is copied yet"
HELD = CommittedOffsets({HERE: CommittedPosition(20, "AgAA"), REPARTITION: CommittedPosition(9, "")})


def flow_of(*topics: str, **more: Any) -> PlanFlow:
    include = tuple(Selector("literal", topic) for topic in topics)
    sync = SyncSettings(groups=GroupSync("continuous", streams=(APP,), **more.pop("groups", {})))
    return PlanFlow("a-to-b", "a", "b", TopicSelection(include, allow_internal=True), sync=sync, **more)


FLOW = flow_of(INPUT, CHANGES, PASSING)


@pytest.mark.parametrize(
    ("flow", "topics", "reads", "why"),
    [
        (FLOW, (CHANGES, PASSING), (INPUT, PASSING), ""),
        (FLOW, (), (INPUT,), "needs no entry in sync.groups.streams"),
        (flow_of(INPUT, CHANGES), (CHANGES, PASSING), (INPUT,), f"uses {PASSING}, which flow a-to-b does not copy"),
        (FLOW, (CHANGES, PASSING), (INPUT, "rates"), "uses rates, which flow a-to-b does not copy"),
        (
            flow_of(INPUT, CHANGES, PASSING, naming=Naming("prefix", before="a.")),
            (CHANGES,),
            (INPUT,),
            f"renames {CHANGES} (a.{CHANGES} there)",
        ),
        (
            flow_of(INPUT, CHANGES, PASSING, groups={"rename": ((APP, "other"),)}),
            (CHANGES,),
            (INPUT,),
            "cannot be called other at the target",
        ),
    ],
)
def test_why_an_application_cannot_travel(
    flow: PlanFlow, topics: tuple[str, ...], reads: tuple[str, ...], why: str
) -> None:
    found = explain_streams_refusal(flow, APP, topics, reads)
    assert why in found
    assert bool(why) == bool(found)


class Copies:
    """How far each partition is copied; nothing of those that it does not name."""

    def __init__(self, **at: int) -> None:
        self.at = {TopicPartition(f"{APP}-counts-{name}", 0): offset for name, offset in at.items()}
        self.ids: dict[TopicPartition, str] = {}

    def list_copy_ids(self, _places: Any) -> dict[TopicPartition, str]:
        return self.ids

    def landing(self, _flow: str, place: TopicPartition, offset: int) -> TranslatedPosition | None:
        through = self.at.get(place)
        if through is None:
            return TranslatedPosition(place, None, why=NOTHING)
        ahead = OffsetNotCopied(place, offset, through) if through < offset else None
        return TranslatedPosition(place, min(offset, through), ahead)


def reading_of(changelog: tuple[int, int] = (0, 12), repartition: tuple[int, int] = (4, 9)) -> StreamsReading:
    logs = {
        CHANGELOG: LogOffsets("", changelog[0], changelog[1] - 2, changelog[1]),
        REPARTITION: LogOffsets("", repartition[0], repartition[1], repartition[1]),
    }
    return StreamsReading(APP, (CHANGES, PASSING), HELD, logs, logs, at_ms=5)


@pytest.mark.parametrize(
    ("reading", "copies", "missing"),
    [
        (reading_of(), Copies(changelog=12, repartition=9), {}),
        (reading_of(), Copies(changelog=11, repartition=9), {CHANGELOG: f"{CHANGELOG} is copied through 11 of 12"}),
        (reading_of(repartition=(9, 9)), Copies(changelog=12), {}),  # everything was processed, and deleted
        (
            reading_of(),
            Copies(changelog=12),
            {REPARTITION: f"{REPARTITION} is not copied: {NOTHING}"},
        ),
    ],
)
def test_what_the_copies_lack(reading: StreamsReading, copies: Any, missing: dict[TopicPartition, str]) -> None:
    assert reading.list_missing(copies, "a-to-b", reading.after) == missing


@pytest.mark.parametrize(
    ("now", "place", "says"),
    [
        ({REPARTITION: LogOffsets("", 300, 310, 310)}, REPARTITION, "begins at 300 at the source, behind"),
        ({REPARTITION: LogOffsets("", 9, 310, 310)}, None, ""),  # only what it had processed at the reading
        ({CHANGELOG: LogOffsets("", 0, 11, 11)}, CHANGELOG, "ends at 11 at the source, and ended at 12"),
        ({CHANGELOG: LogOffsets("other", 0, 12, 12)}, CHANGELOG, "was deleted and created again"),
        ({CHANGELOG: LogOffsets("", 5, 12, 12)}, None, ""),  # compaction keeps what the state needs
    ],
)
@pytest.mark.parametrize("emptied", [False, True])
def test_a_reading_whose_records_are_gone_is_missing_though_its_offsets_land(
    now: dict[TopicPartition, LogOffsets],
    place: TopicPartition | None,
    says: str,
    emptied: bool,
    positions: StreamsPositions,
) -> None:
    """A copy that went on behind deleted records has a map that takes every offset before them as copied."""
    reading = reading_of(repartition=(9, 9) if emptied else (4, 9))
    reading = replace(reading, after={at: replace(log, topic_id="A") for at, log in reading.after.items()})
    logs = {**reading.after, **now}
    copies: Any = Copies(changelog=1_000, repartition=1_000)
    found = reading.list_missing(copies, "a-to-b", logs)
    assert list(found) == ([] if place is None else [place])
    assert all(says in why and "read again" in why for why in found.values())
    positions.keep_waiting({APP: reading}, {APP: {CHANGELOG: "behind"}}, logs, {})
    assert bool(positions._waiting) is (place is None)


def test_a_reading_is_dropped_when_a_copy_that_it_waits_for_is_made_again(positions: StreamsPositions) -> None:
    """The new copy may begin behind records that these positions need (`delivery.start`)."""
    reading, copies = reading_of(), Copies(changelog=11, repartition=9)
    logs = reading.after
    copies.ids = {CHANGELOG: "A", REPARTITION: "B"}
    for _ in range(2):
        waits = positions._waiting.get(APP, reading)
        found = waits.list_missing(copies, "a-to-b", logs)  # type: ignore[arg-type]
        assert list(found) == [CHANGELOG]
        positions.keep_waiting({APP: waits}, {APP: found}, logs, copies.ids)
    again = Copies(changelog=1_000, repartition=1_000)
    again.ids = {CHANGELOG: "A", REPARTITION: "C"}
    waits = positions._waiting[APP]
    found = waits.list_missing(again, "a-to-b", logs)  # type: ignore[arg-type]
    assert list(found) == [REPARTITION]
    assert "was deleted and created again at the target" in found[REPARTITION]
    positions.keep_waiting({APP: waits}, {APP: found}, logs, again.ids)
    assert not positions._waiting


def test_a_log_without_a_position_needs_its_records_from_the_start_on() -> None:
    reading = replace(reading_of(), held=CommittedOffsets({HERE: CommittedPosition(20, "")}))
    now = {**reading.after, REPARTITION: LogOffsets("", 5, 9, 9)}
    assert list(reading.list_outdated(now, {})) == [REPARTITION]
    assert list(reading.list_outdated({}, {})) == [CHANGELOG, REPARTITION]


def test_the_record_holds_what_surely_belongs_and_what_may() -> None:
    landings = {HERE: TranslatedPosition(HERE, 17), REPARTITION: TranslatedPosition(REPARTITION, 5)}
    found = reading_of(repartition=(9, 9)).build_range("a-to-b", APP, landings)
    assert found == StateRange("a-to-b", APP, {CHANGELOG: 10, REPARTITION: 9}, {CHANGELOG: 12}, {HERE: "AgAA"}, 5)
    assert found.count_beyond({CHANGELOG: 15, REPARTITION: 9}) == 5
    assert found.count_beyond({}) == 0
    assert found.list_behind({CHANGELOG: 12}) == []
    assert found.list_behind({CHANGELOG: 11}) == [CHANGELOG]


def test_our_own_mark_is_no_text_of_the_application() -> None:
    held = CommittedOffsets({HERE: CommittedPosition(20, str(PositionMark("b-to-a", 3, ("B",))))})
    found = replace(reading_of(), held=held).build_range("a-to-b", APP, {HERE: TranslatedPosition(HERE, 17)})
    assert found.texts == {}


def observation(**more: Any) -> GroupObservation:
    group = ListedGroup(APP, "Stable", "streams", "streams")
    landings = {HERE: TranslatedPosition(HERE, 17)}
    state = reading_of().build_range("a-to-b", APP, landings)
    values = {"source": HELD, "target": CommittedOffsets(), "landings": landings, "state": state} | more
    return GroupObservation("a-to-b", APP, APP, group, None, here_id="A", there_id="B", target_alias="b", **values)


def test_positions_wait_for_their_state_and_the_report_says_for_what() -> None:
    behind = observation(missing={CHANGELOG: f"{CHANGELOG} is copied through 11 of 12"})
    [move] = decide_positions(behind)
    assert (move.state, move.write) == ("waiting", None)
    report = build_group_report(FLOW, behind, [move])
    assert report.why == f"{HERE}: its state is behind: {CHANGELOG} is copied through 11 of 12"
    assert report.detail["streams"] == {
        "internal": [CHANGES, PASSING],
        "missing": {str(CHANGELOG): f"{CHANGELOG} is copied through 11 of 12"},
        "told": f"its standby waits for state: {CHANGELOG} is copied through 11 of 12",
        "read_at_ms": 5,
    }
    ready = observation()
    [move] = decide_positions(ready)
    assert move.write is not None
    streams = build_group_report(FLOW, ready, [move]).detail["streams"]
    assert streams["told"] == f"the copies of {CHANGES}, {PASSING} hold all state that belongs to its positions"
    assert "read_at_ms" not in streams


class Source:
    """Answers as `GroupOffsets` does. unsettled: so often a position is part of an open transaction."""

    def __init__(self, unsettled: int = 0) -> None:
        self.unsettled, self.asked = unsettled, 0

    def topic_names(self) -> list[str]:
        return [INPUT, CHANGES, PASSING, f"{APP}-eu-counts-changelog-of-ours"]

    def list_partitions(self, topics: tuple[str, ...]) -> list[TopicPartition]:
        return [TopicPartition(topic, 0) for topic in topics]

    def held(self, groups: list[str]) -> dict[str, CommittedOffsets]:
        self.asked += 1
        unstable = frozenset({HERE} if self.asked <= self.unsettled else ())
        return {group: replace(HELD, unstable=unstable) for group in groups}

    def logs(self, places: list[TopicPartition]) -> dict[TopicPartition, LogOffsets]:
        return {place: LogOffsets("", 0, 7 + self.asked, 8 + self.asked) for place in places}


@pytest.fixture
def positions(monkeypatch: pytest.MonkeyPatch) -> StreamsPositions:
    settings = ConnectionSettings("a", ("127.0.0.1:1",))
    found = StreamsPositions(SyncClusters(settings, settings))
    monkeypatch.setattr(streams_state, "time", SimpleNamespace(sleep=lambda _s: None, time_ns=lambda: 5_000_000))
    monkeypatch.setattr(StreamsPositions, "_compare_policies", lambda *_: "")
    return found


def test_positions_are_read_between_two_readings_of_the_logs(positions: StreamsPositions) -> None:
    source: Any = Source(unsettled=2)
    [(name, found)] = positions.read(FLOW, source, {APP: ListedGroup(APP, "Stable")}, {APP: HELD}).items()
    assert (name, found.topics, found.held.unstable) == (APP, (CHANGES, PASSING), frozenset())
    assert (found.before[CHANGELOG].stable, found.after[CHANGELOG].end, found.at_ms) == (7, 11, 5)


def test_a_reading_is_kept_until_its_state_is_copied(positions: StreamsPositions) -> None:
    source: Any = Source()
    listed = {APP: ListedGroup(APP, "Stable")}
    first = positions.read(FLOW, source, listed, {APP: HELD})
    logs = first[APP].after
    positions.keep_waiting(first, {APP: {CHANGELOG: "behind"}}, logs, {})
    assert positions.read(FLOW, source, listed, {APP: HELD}) == first
    positions.keep_waiting(first, {APP: {}}, logs, {})
    assert positions.read(FLOW, source, listed, {APP: HELD})[APP].after != first[APP].after


def test_an_application_that_the_file_names_is_selected() -> None:
    only = GroupSync("continuous", names=NameFilter(include=(Selector("literal", "billing"),)), streams=(APP,))
    assert is_group_selected(only, ListedGroup(APP, "Stable"))
    assert not is_group_selected(only, ListedGroup("other", "Stable"))
    assert GroupSync("continuous", streams=(APP,)) == SyncSettings.from_json(FLOW.sync.to_json()).groups
