"""A halt that an inspection sees coming while it waits until nothing is under way: people hear of it at once, and
nothing is decided by it before the wait is over."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from tests.replicator.test_fetcher_and_sender import active_copy_of
from tests.replicator.test_resume import KEY, OLD, SEEN, known
from tests.replicator.test_resume_aligned import COPYING, DAY, FILLED, NOW, ours
from watershed.clusters.control_topics import ControlWriter
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.partition_end_records import PartitionEnd
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.ledger.offset_map import BrokenOffsetMap
from watershed.replicator.partition_states import Halt, OffsetSpan, Reinspect
from watershed.replicator.recovery.aligned_recovery_point import find_aligned_recovery_point
from watershed.replicator.recovery.recovery_point import LogInspection, RecoveryPoint, find_recovery_point
from watershed.replicator.recovery.streams_purge import RecentSkips, drop_answered_halt
from watershed.replicator.worker.partition_task import SAME_FOR_S, PartitionTask
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

FLOW = PlanFlow("f", "onprem", "cloud", TopicSelection((Selector("glob", "*"),)))
EXPIRED = Halt("source_expired", "source offsets 10 to 19 are gone", source=OffsetSpan(10, 20))
WAIT = Reinspect("waiting until nothing is under way", pending=EXPIRED)
NOBODY = ConnectionSettings("onprem", ("127.0.0.1:1",))
WRITER = cast(ControlWriter, None)  # nothing is journaled here


def start_task(now: float = 0.0) -> PartitionTask:
    task = PartitionTask(KEY, FlowRecord(FLOW, "", ""))
    task.record_trouble(WAIT, now)
    return task


def test_a_halt_that_stays_in_sight_is_reported_with_its_remedy() -> None:
    task = start_task()
    task.record_trouble(WAIT, 1.0)
    task.record_trouble(WAIT, SAME_FOR_S - 0.1)
    assert task.report("w", 1).state == "retrying", "a source that recovers wakes nobody"
    task.record_trouble(WAIT, SAME_FOR_S)
    report = task.report("w", 1)
    assert (report.state, report.seen) == ("source_expired", EXPIRED.to_json())
    assert report.error == f"{EXPIRED.error}; not certain yet: {WAIT.reason}"
    assert report.remedy == EXPIRED.remedy_for(KEY.flow, KEY.topic, KEY.partition)
    assert task.stopped is None, "it is not halted"
    assert task.is_ready_to_inspect(60.0), "the inspections go on by themselves"


def test_what_was_in_sight_is_forgotten_when_the_next_inspection_does_not_see_it() -> None:
    task = start_task()
    for now in (3.0, 6.0):
        task.record_trouble(WAIT, now)
    assert task.report("w", 1).state == "source_expired"
    task.record_trouble(replace(WAIT, pending=None), 9.0)
    report = task.report("w", 1)
    assert (report.state, report.error, report.remedy) == ("retrying", WAIT.reason, None)


def test_another_halt_in_sight_begins_to_count_anew() -> None:
    """The target is waited for long enough; then the source elects a leader whose log is short for one second."""
    short = replace(WAIT, pending=Halt("source_truncated", "the source ends at 5"))
    for before in (WAIT, replace(WAIT, pending=None)):
        task = start_task()
        for now in range(1, 20, 3):
            task.record_trouble(before, float(now))
        task.record_trouble(short, 20.0)
        task.record_trouble(short, 24.0)
        assert task.report("w", 1).state == "retrying"
        task.record_trouble(short, 25.0)
        assert task.report("w", 1).state == "source_truncated"


def test_what_was_in_sight_before_a_copy_or_a_pause_does_not_count() -> None:
    for is_copied in (True, False):
        task = start_task()
        for now in (3.0, 6.0):
            task.record_trouble(WAIT, now)
        if is_copied:
            task.attach_copy(active_copy_of())
            task.detach_copy()
        else:
            task.forget_pending()
        assert task.report("w", 1).remedy is None
        task.record_trouble(WAIT, 86_400.0)
        assert task.report("w", 1).state == "retrying"


def test_a_copy_that_ends_at_once_does_not_forget_why_it_is_inspected_again() -> None:
    """The target refuses what each new copy sends: that is the same answer three times in a row."""
    task, refused = start_task(), Reinspect("the target answers NO to target offset 3", "rejected")
    for now in (0.0, 3.0, 6.0):
        task.attach_copy(active_copy_of())
        task.detach_copy()
        task.record_trouble(refused, now)
    assert task.stopped is not None
    assert task.stopped.state == "rejected"


def test_what_was_in_sight_before_the_end_does_not_count_behind_it() -> None:
    task = start_task()
    task.record_trouble(WAIT, 3.0)
    task.complete(PartitionEnd("f", "t", 0, 0, 10, position=10, target_end=10))
    task.record_trouble(WAIT, 90_000.0)
    assert task.pending is None


def test_a_paused_flow_shows_no_halt_that_is_not_certain() -> None:
    task = start_task()
    for now in (3.0, 6.0):
        task.record_trouble(WAIT, now)
    task.is_paused = True
    assert (task.report("w", 1).state, task.report("w", 1).remedy) == ("paused", None)


def test_a_halt_that_the_flow_itself_answers_is_not_shown() -> None:
    assert drop_answered_halt(FLOW, KEY, WAIT, NOBODY, WRITER, RecentSkips()) == WAIT
    answered = drop_answered_halt(replace(FLOW, on_gap="continue"), KEY, WAIT, NOBODY, WRITER, RecentSkips())
    assert answered == replace(WAIT, pending=None)
    assert drop_answered_halt(FLOW, KEY, Reinspect("x"), NOBODY, WRITER, RecentSkips()) == Reinspect("x")


@pytest.mark.parametrize(
    ("changed", "state"),
    [
        (OLD | {"source_start": 150}, "source_expired"),
        (OLD | {"diverges_at": 70}, "source_truncated"),
        (OLD | {"source_end": 80}, "source_truncated"),
        ({"source_end": 80}, "source_truncated"),
        (OLD, None),
    ],
)
def test_what_an_inspection_sees_while_it_waits(changed: dict[str, object], state: str | None) -> None:
    seen = LogInspection(**(SEEN | changed))
    found = find_recovery_point(known(), seen, 7, "earliest")
    assert isinstance(found, Reinspect), found
    assert (found.halts_as, found.pending and found.pending.state) == (None, state)
    certain = find_recovery_point(known(), replace(seen, settled=True, source_settled=True), 7, "earliest")
    assert certain == found.pending or (state is None and isinstance(certain, RecoveryPoint))


def test_a_map_that_contradicts_itself_shows_nothing_before_the_wait_is_over() -> None:
    seen = LogInspection(**(SEEN | OLD | {"source_start": 150}))
    found = find_recovery_point(replace(known(), map=BrokenOffsetMap((), "broken")), seen, 7, "earliest")
    assert isinstance(found, Reinspect), found
    assert found.pending is None


def test_an_aligned_partition_shows_what_it_lost_too() -> None:
    seen = replace(FILLED, target_end=9, tail=ours(5, 4, 0), source_start=12, producer=(1, 3, NOW - 2 * DAY))
    found = find_aligned_recovery_point(COPYING, seen, 7)
    assert isinstance(found, Reinspect), found
    assert found.pending == find_aligned_recovery_point(COPYING, replace(seen, settled=True), 7)
    assert found.pending is not None
    assert found.pending.state == "source_expired"
