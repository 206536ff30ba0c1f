"""Gaps are filled to the very offset, whatever is lost, refused or stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.replicator.aligning import (
    TOPIC,
    Killed,
    end_of,
    killed,
    lost,
)
from tests.replicator.gaps import GAP, KINDS, check, filler, requests_of_a_gap, target, without_pauses
from watershed.clusters.errors import Unauthorised, Unreachable
from watershed.replicator.copy.aligned import log_end
from watershed.replicator.copy.aligned.gap_filler import GapMethod
from watershed.replicator.errors import Misaligned

__all__ = ["without_pauses"]
pytestmark = pytest.mark.usefixtures("without_pauses")


@KINDS
@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 20])
def test_a_gap_of_any_size_one_after_the_other(way: GapMethod, version: int, size: int) -> None:
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
def test_a_connection_lost_at_every_request(way: GapMethod, version: int, executed: bool) -> None:
    for at in range(requests_of_a_gap(way, version)):
        there = target(version)
        working, _ = filler(there, way, version, at, lost(there, executed=executed))
        working.advance(5 + GAP)
        check(there, 5 + GAP)


@KINDS
@pytest.mark.parametrize("executed", [False, True])
def test_killed_at_every_request_and_a_successor_goes_on(way: GapMethod, version: int, executed: bool) -> None:
    for at in range(requests_of_a_gap(way, version)):
        there = target(version)
        with pytest.raises(Killed):
            filler(there, way, version, at, killed(executed=executed))[0].advance(5 + GAP)
        filler(there, way, version)[0].advance(5 + GAP)
        check(there, 5 + GAP)


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
    monkeypatch.setattr(log_end, "_AT_ONCE", 10)
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
    monkeypatch.setattr(log_end, "_STUCK_S", -1.0)
    there = target(2)
    working, _ = filler(there, "markers", 2)
    there.stop()
    with pytest.raises(Unreachable):
        working.advance(5 + GAP)
