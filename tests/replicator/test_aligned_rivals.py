"""Gaps are filled to the very offset, whoever else fills them, is late, or takes over the transactions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.replicator.aligning import (
    TOPIC,
    Clock,
    Killed,
    dying,
    end_of,
    killed,
)
from tests.replicator.gaps import GAP, KINDS, check, filler, requests_of_a_gap, target, without_pauses
from watershed.clusters.cluster_protocol import LogRange
from watershed.clusters.errors import ClusterError
from watershed.clusters.fake_cluster import FakeCluster
from watershed.replicator.copy.aligned import log_end
from watershed.replicator.copy.aligned.gap_filler import GapMethod
from watershed.replicator.copy.aligned.target_log import TargetLog
from watershed.replicator.copy.transactions.produce_answers import SessionLost
from watershed.replicator.errors import Misaligned

__all__ = ["without_pauses"]
pytestmark = pytest.mark.usefixtures("without_pauses")


@KINDS
@pytest.mark.parametrize(
    ("filled_before", "first"),
    [
        (False, False),
        (True, True),
        *(pytest.param(*each, marks=pytest.mark.soak) for each in ((False, True), (True, False))),
    ],
)
def test_a_request_of_a_dead_worker_that_arrives_at_any_moment(
    way: GapMethod, version: int, filled_before: bool, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """filled_before: who goes on has closed a gap before the dead one came, and knew the end to be final then. first:
    the dead one had not. The bare marker that takes the last offset arrives while its successor waits for that, if not
    before (`RIVAL_MARKER_WAIT_S`)."""
    waiting: list[Callable[[], Any]] = []
    monkeypatch.setattr(log_end, "time", Clock(lambda: waiting and waiting.pop()()))
    end = 5 + GAP + 3 * filled_before + 2 * (not first)
    for at in range(requests_of_a_gap(way, version)):
        moment = 0
        while True:
            there = target(version)
            working, requests = filler(there, way, version)
            if filled_before:
                working.advance(8)
            late: list[Callable[[], Any]] = []
            dead, of_dead = filler(there, way, version)
            if not first:
                dead.advance(end - GAP)
            of_dead.at, of_dead.event = of_dead.count + at, dying(late)
            with suppress(Killed):
                dead.advance(end)
            if not late:
                break

            def arrives(execute: Callable[[], Any], late: list[Callable[[], Any]] = late) -> Any:
                while late:
                    with suppress(ClusterError):  # its connection may be gone
                        late.pop()()
                return execute()

            last = way == "markers" and end_of(there) == end - 1
            waiting[:] = [lambda: arrives(lambda: None)] if last else []
            requests.at, requests.event = requests.count + moment, arrives
            working.advance(end)
            check(there, end)
            if requests.count <= requests.at:
                break
            moment += 1


def closed_slowly(late: Callable[[int], float], dies_behind: int = -1) -> list[str]:
    """The requests of a gap behind another one. Each of them is so many seconds late; behind one of them another
    coordinator takes over."""
    there, clock = target(2), Clock()
    working, requests = filler(there, "markers", 2)
    working.advance(8)
    before = len(requests.names)

    def slow(execute: Callable[[], Any]) -> Any:
        answer = execute()
        clock.now += late(requests.at - before)
        if requests.at - before == dies_behind:
            there.coordinator.fails_over()
        requests.at += 1
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_end, "time", clock)
        requests.at, requests.event = before, slow
        working.advance(8 + GAP)
    check(there, 8 + GAP)
    return requests.names[before:]


def test_who_asked_for_the_epoch_too_long_ago_does_not_take_the_last_offset_with_it() -> None:
    """Somebody else may have come since, and have waited for it in vain. So he asks again."""
    calm, again = closed_slowly(lambda _: 0.0), 0
    for frozen in range(len(calm)):

        def late(at: int, frozen: int = frozen) -> float:
            return 100.0 if at == frozen else 0.0

        names = closed_slowly(late, dies_behind=frozen)
        assert names.count("end_transaction") == calm.count("end_transaction"), "the last offset is no transaction's"
        again += names.count("init_producer") > calm.count("init_producer")
    assert again


def test_where_no_epoch_can_be_used_in_time_a_transaction_takes_the_last_offset() -> None:
    calm = closed_slowly(lambda _: 0.0)
    assert closed_slowly(lambda _: 1.0).count("end_transaction") == calm.count("end_transaction") + 1


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("before", "size"), [(0, 1), (0, 2), (0, 3), (0, GAP), (3, 1), (3, 2), (3, GAP)])
def test_another_coordinator_that_writes_a_marker_once_more(before: int, size: int, version: int) -> None:
    """Behind any request: the log is not too long, as the last offset is no transaction's where any other way is left.
    `before`: so much of the gap in front was closed by the same worker."""
    at = 0
    while True:
        there = target(version)
        working, requests = filler(there, "markers", version)
        if before:
            working.advance(5 + before)

        def dies(execute: Callable[[], Any], there: FakeCluster = there) -> Any:
            answer = execute()
            there.coordinator.fails_over()
            return answer

        requests.at, requests.event = requests.count + at, dies
        working.advance(5 + before + size)
        check(there, 5 + before + size)
        if requests.count <= requests.at:
            return
        at += 1


@pytest.mark.parametrize("filled_before", [False, True])
def test_where_only_transactions_are_allowed_a_marker_written_once_more_is_harmless_or_said(
    filled_before: bool,
) -> None:
    """It is said where nothing else was left to take the last offset, and then the gap is not called closed, so that
    nothing is sent behind it."""
    said, at, end = 0, 0, 5 + GAP + 3 * filled_before
    while True:
        there = target(2)

        def dies(execute: Callable[[], Any], there: FakeCluster = there) -> Any:
            answer = execute()
            there.coordinator.fails_over()
            return answer

        working, requests = filler(there, "transactions", 2)
        if filled_before:
            working.advance(8)
        requests.at, requests.event = requests.count + at, dies
        try:
            working.advance(end)
        except Misaligned:
            said += 1
            assert end_of(there) == end + 1
        else:
            check(there, end)
        if requests.count <= requests.at:
            break
        at += 1
    assert 0 < said < at / 2


@KINDS
@pytest.mark.parametrize("filled_before", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_a_zombie_that_wakes_up_in_front_of_every_request(way: GapMethod, version: int, filled_before: bool) -> None:
    """Frozen, and a successor worked meanwhile as far as its own death at every request; then the zombie goes on as if
    nothing had happened, then a third one. filled_before: the zombie knew the end to be final when it began."""
    end = 5 + GAP + 3 * filled_before
    for at in range(requests_of_a_gap(way, version)):
        death, finished = 0, False
        while not finished:
            there = target(version)

            def meanwhile(execute: Callable[[], Any], there: FakeCluster = there, death: int = death) -> Any:
                nonlocal finished
                successor, requests = filler(there, way, version, death, killed(executed=True))
                with suppress(Killed):
                    successor.advance(end)
                finished = requests.count <= death
                return execute()

            zombie, requests = filler(there, way, version)
            if filled_before:
                zombie.advance(8)
            requests.at, requests.event = requests.count + at, meanwhile
            finished = True  # unless the successor is killed
            with suppress(SessionLost):
                zombie.advance(end)
            filler(there, way, version)[0].advance(end)
            check(there, end)
            death += 1


@KINDS
@pytest.mark.parametrize("end", [6, 40, 400])
def test_workers_that_fight_for_a_gap(way: GapMethod, version: int, end: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They disturb each other, and come to an end before anybody gives up."""
    monkeypatch.setattr(log_end, "time", time)
    monkeypatch.setattr(log_end, "_LEASE_S", 0.02)
    monkeypatch.setattr(log_end, "RIVAL_MARKER_WAIT_S", 0.3)
    there, lost = target(version), []

    def fight(number: int) -> None:
        time.sleep(number * 0.1)
        working, _ = filler(there, way, version)
        try:
            working.advance(end)
        except SessionLost as error:
            lost.append(error)

    fighters = [threading.Thread(target=fight, args=(number,)) for number in range(3)]
    for each in fighters:
        each.start()
    for each in fighters:
        each.join(100)
    assert not lost
    filler(there, way, version)[0].advance(end)
    check(there, end)


def test_a_last_marker_that_followers_still_lack_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer was lost, it is appended, and the log's end as all see it comes later."""
    there, visible, asked = target(2), [1 << 62], []
    working, requests = filler(there, "markers", 2)
    working.advance(8)

    def loses(execute: Callable[[], Any]) -> Any:
        visible[0] = end_of(there)
        execute()
        raise there.settings.unreachable("the connection was lost")

    def appended(log: TargetLog) -> int:
        asked.append(log)
        if len(asked) == 3:
            visible[0] = 1 << 62
        return whole(log)

    def seen_by_all(log: TargetLog) -> LogRange:
        there_now = ranged(log)
        return LogRange(there_now.start, min(there_now.end, visible[0]))

    whole, ranged = TargetLog.appended, TargetLog.range
    monkeypatch.setattr(TargetLog, "appended", appended)
    monkeypatch.setattr(TargetLog, "range", seen_by_all)
    requests.at, requests.event = requests.count + requests_to_the_last_marker(), loses
    assert working.advance(9) == 9
    assert len(asked) == 3
    check(there, 9)


def requests_to_the_last_marker() -> int:
    there = target(2)
    working, requests = filler(there, "markers", 2)
    working.advance(8)
    before = len(requests.names)
    working.advance(9)
    return requests.names[before:].index("write_markers")


def test_another_coordinator_fences_the_markers_of_the_one_before_and_is_learnt() -> None:
    """A broker takes a marker only with the coordinator's epoch, or a later one, of the producer's newest marker."""
    there = target(2)
    working, requests = filler(there, "markers", 2)
    working.advance(20)
    for coordinator, end in ((1, 60), (7, 100)):
        there.coordinator.epoch = coordinator
        working.advance(end)  # the closing transaction brings the epoch into the log
        before = requests.count
        working.advance(end + 20)
        assert requests.count - before < 30, "20 offsets, two markers a request: the markers were fenced"
    filler(there, "markers", 2)[0].advance(160)
    check(there, 160)


def test_an_epoch_that_runs_out_gives_another_producer_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_end, "_LAST_EPOCH", 20)
    there = target(2)
    there.coordinator.last_epoch = 30
    working, _ = filler(there, "markers", 2)
    for end in range(10, 200, 5):
        working.advance(end)
    assert len({kept.header.producer_id for kept in there.log(TOPIC, 0).batches if kept.header.is_control}) > 1
    check(there, 195)


@pytest.mark.parametrize("at", [6, 8])  # requests of markers
def test_what_a_dead_worker_left_with_the_id_before_is_fenced_before_another_is_taken(
    at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It died at the last epoch, in front of which its successor would begin with another producer id."""
    monkeypatch.setattr(log_end, "_LAST_EPOCH", 20)
    moment, arrived = 0, True
    while arrived:
        there = target(2)
        there.coordinator.last_epoch = 40
        filler(there, "transactions", 2)[0].advance(18)
        dead, requests = filler(there, "markers", 2)
        dead.advance(21)
        late: list[Callable[[], Any]] = []
        requests.at, requests.event = requests.count + at, dying(late)
        with suppress(Killed):
            dead.advance(29)
        assert late

        def arrives(execute: Callable[[], Any], late: list[Callable[[], Any]] = late) -> Any:
            with suppress(ClusterError):
                late[0]()
            return execute()

        working, requests = filler(there, "markers", 2)
        requests.at, requests.event = moment, arrives
        working.advance(29)
        check(there, 29)
        arrived, moment = requests.count > requests.at, moment + 1
