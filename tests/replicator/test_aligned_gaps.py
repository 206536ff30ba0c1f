"""Gaps are filled to the very offset, whatever happens to any request of any number of workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from clusters.errors import ClusterError, Unauthorised, Unreachable
from clusters.fake import FakeCluster
from clusters.surface import LogRange
from replicator.aligned import advance
from replicator.aligned.gaps import GapFiller, Way
from replicator.aligned.log import TargetLog
from replicator.errors import Misaligned
from replicator.transactions.answers import SessionLost
from tests.replicator.aligning import (
    FLOW,
    TOPIC,
    Clock,
    Event,
    Killed,
    Requests,
    cluster,
    dying,
    end_of,
    killed,
    lost,
    seen,
)

KINDS = pytest.mark.parametrize(("way", "version"), [("markers", 2), ("markers", 1), ("transactions", 2)])
GAP = 4  # with MOST_MARKERS 2: two requests of markers


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advance, "_PAUSE_S", 0.0)
    monkeypatch.setattr(advance, "OTHERS_S", 1e-6)
    monkeypatch.setattr(advance, "_FETCH_MS", 1)
    monkeypatch.setattr(advance, "MOST_MARKERS", 2)
    monkeypatch.setattr("replicator.transactions.producer.PAUSE_S", 0.0)
    monkeypatch.setattr("replicator.aligned.log._PAUSE_S", 0.0)


def target(version: int) -> FakeCluster:
    """Five records, behind which there is a gap."""
    made = cluster(version)
    made.produce(TOPIC, 0, [b"%d" % number for number in range(5)])
    return made


def filler(
    there: FakeCluster, way: Way, version: int, at: int = -1, event: Event | None = None
) -> tuple[GapFiller, Requests]:
    requests = Requests(there, at, event)
    return GapFiller(requests.log(), FLOW, way, bump=version >= 2), requests


def check(there: FakeCluster, end: int) -> None:
    """The very end, and nothing to be seen of it; what comes next stands there."""
    assert end_of(there) == end
    committed, uncommitted = seen(there)
    assert [record.value for record in committed] == [b"%d" % number for number in range(5)]
    assert committed == uncommitted
    assert there.produce(TOPIC, 0, [b"next"]) == end
    assert there.log(TOPIC, 0).last_stable() == end + 1


def requests_of_a_gap(way: Way, version: int) -> int:
    there = target(version)
    working, requests = filler(there, way, version)
    working.advance(5 + GAP)
    check(there, 5 + GAP)
    return requests.count


@KINDS
@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 20])
def test_a_gap_of_any_size_one_after_the_other(way: Way, version: int, size: int) -> None:
    there = target(version)
    working, _ = filler(there, way, version)
    for number in range(3):
        assert working.advance(5 + size * (number + 1)) == 5 + size * (number + 1)
    check(there, 5 + 3 * size)


def test_a_second_gap_needs_no_transaction() -> None:
    """Whoever closed a gap knows that nothing of before can come any more."""
    there = target(2)
    working, _ = filler(there, "markers", 2)
    working.advance(10)
    before = len(there.log(TOPIC, 0).batches)
    epochs = {kept.header.producer_epoch for kept in there.log(TOPIC, 0).batches}
    working.advance(20)
    new = {kept.header.producer_epoch for kept in there.log(TOPIC, 0).batches[before:]}
    assert len(new) == 2  # the last marker has one of its own
    assert not new & epochs


@KINDS
@pytest.mark.parametrize("executed", [False, True])
def test_a_connection_lost_at_every_request(way: Way, version: int, executed: bool) -> None:
    for at in range(requests_of_a_gap(way, version)):
        there = target(version)
        working, _ = filler(there, way, version, at, lost(there, executed=executed))
        working.advance(5 + GAP)
        check(there, 5 + GAP)


@KINDS
@pytest.mark.parametrize("executed", [False, True])
def test_killed_at_every_request_and_a_successor_goes_on(way: Way, version: int, executed: bool) -> None:
    for at in range(requests_of_a_gap(way, version)):
        there = target(version)
        with pytest.raises(Killed):
            filler(there, way, version, at, killed(executed=executed))[0].advance(5 + GAP)
        filler(there, way, version)[0].advance(5 + GAP)
        check(there, 5 + GAP)


@KINDS
@pytest.mark.parametrize("filled_before", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_a_request_of_a_dead_worker_that_arrives_at_any_moment(
    way: Way, version: int, filled_before: bool, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """filled_before: who goes on has closed a gap before the dead one came, and knew the end to be final then. first:
    the dead one had not. The bare marker that takes the last offset arrives while its successor waits for that, if not
    before (`OTHERS_S`)."""
    waiting: list[Callable[[], Any]] = []
    monkeypatch.setattr(advance, "time", Clock(lambda: waiting and waiting.pop()()))
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


def test_who_asked_for_the_epoch_too_long_ago_does_not_take_the_last_offset_with_it() -> None:
    """Somebody else may have come since, and have waited for it in vain."""
    of_transactions = 0
    for frozen in range(20):
        there = target(2)
        working, requests = filler(there, "markers", 2)
        working.advance(7)
        before = _transactions(requests)

        clock = Clock()

        def freezes(execute: Callable[[], Any], clock: Clock = clock) -> Any:
            answer = execute()
            clock.now += 100.0
            return answer

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(advance, "time", clock)
            requests.at, requests.event = requests.count + frozen, freezes
            working.advance(5 + GAP)
        check(there, 5 + GAP)
        if requests.count <= requests.at:
            assert _transactions(requests) == before
            assert of_transactions
            return
        of_transactions += _transactions(requests) > before
    raise AssertionError("more than 20 requests for a gap")


def _transactions(requests: Requests) -> int:
    return sum(name == "end_transaction" for name in requests.names)


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
@pytest.mark.parametrize("filled_before", [False, True])
def test_a_zombie_that_wakes_up_in_front_of_every_request(way: Way, version: int, filled_before: bool) -> None:
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
def test_workers_that_fight_for_a_gap(way: Way, version: int, end: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They disturb each other, and come to an end before anybody gives up."""
    monkeypatch.setattr(advance, "LEASE_S", 0.02)
    monkeypatch.setattr(advance, "OTHERS_S", 0.3)
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
    monkeypatch.setattr(advance, "LAST_EPOCH", 20)
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
    monkeypatch.setattr(advance, "LAST_EPOCH", 20)
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


def test_what_is_too_long_already_stops_with_its_coordinates() -> None:
    there = target(2)
    with pytest.raises(Misaligned, match="orders-0 on cluster cloud was to be brought to offset 3: it ends at 5"):
        filler(there, "markers", 2)[0].advance(3)


def test_a_foreign_record_in_the_gap_stops_it() -> None:
    there = target(2)

    def writes(execute: Callable[[], Any]) -> Any:
        there.produce(TOPIC, 0, [b"foreign"])
        return execute()

    with pytest.raises(Misaligned, match="somebody else writes"):
        filler(there, "markers", 2, requests_of_a_gap("markers", 2) - 3, writes)[0].advance(5 + GAP)


def test_markers_that_are_not_allowed_are_said_to_be() -> None:
    there = target(2)
    there.may_alter = False
    working, _ = filler(there, "markers", 2)
    with pytest.raises(Unauthorised, match="CLUSTER_AUTHORIZATION_FAILED to WriteTxnMarkers for orders-0"):
        working.advance(5 + GAP)
    filler(there, "transactions", 2)[0].advance(5 + GAP)
    check(there, 5 + GAP)


def test_stopped_in_between_it_says_where() -> None:
    there = target(2)
    stop = threading.Event()
    stop.set()
    working, _ = filler(there, "transactions", 2)
    reached = working.advance(5 + GAP, stop)
    assert 5 < reached < 5 + GAP
    assert reached == end_of(there)
    working.advance(5 + GAP)
    check(there, 5 + GAP)


def test_a_long_gap_of_transactions_is_stopped_before_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever hands the partition over, or pauses the flow, waits for it."""
    monkeypatch.setattr(advance, "AT_ONCE", 10)
    there, stop = target(2), threading.Event()

    def stops(execute: Callable[[], Any]) -> Any:
        stop.set()
        return execute()

    working, _ = filler(there, "transactions", 2, 60, stops)
    reached = working.advance(405, stop)
    assert 5 < reached < 60
    assert working.advance(405) == 405
    check(there, 405)


def test_a_broker_that_stays_away_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advance, "_STUCK_S", 0.0)
    there = target(2)
    working, _ = filler(there, "markers", 2)
    there.stop()
    with pytest.raises(Unreachable):
        working.advance(5 + GAP)
