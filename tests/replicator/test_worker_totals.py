"""Counters of a fleet over the lives of its workers: nothing twice, nothing that shrinks."""

from __future__ import annotations

from watershed.clusters.flow_totals import FlowTotals
from watershed.clusters.worker_heartbeats import WorkerHeartbeat
from watershed.replicator.worker.worker_totals import WorkerTotals


def beat(worker: str, began: int, throttled_s: float = 0.0, tells_all: bool = True, **records: int) -> WorkerHeartbeat:
    totals = {flow: FlowTotals(count, count * 0.5, {3: count}) for flow, count in records.items()}
    return WorkerHeartbeat(
        worker, 1, 1_000, began_ms=began, totals=totals, throttled_s=throttled_s, tells_all=tells_all
    )


def test_what_was_copied_before_is_not_counted() -> None:
    counted = WorkerTotals()
    counted.take([beat("w0", 5, throttled_s=9.0, a=100)])
    assert (counted.read_flow("a"), counted.throttled_s, counted.starts) == (FlowTotals(), 0.0, 0)
    counted.take([beat("w0", 5, throttled_s=9.5, a=130, b=4)])
    assert counted.read_flow("a") == FlowTotals(30, 15.0, {3: 30})
    assert counted.read_flow("b").records == 4, "it had told of all its flows before"
    assert (counted.throttled_s, counted.starts) == (0.5, 0)


def test_a_life_that_begins_later_counts_from_its_start_also_under_the_same_name() -> None:
    counted = WorkerTotals()
    counted.take([beat("w0", 5, a=100)])
    counted.take([beat("w0", 5, a=110), beat("w1", 7, a=3)])
    counted.take([beat("w0", 9, a=105), beat("w1", 7, a=3)])
    assert counted.read_flow("a").records == 10 + 3 + 105
    assert counted.starts == 2
    counted.take([])
    counted.take([beat("w2", 11, a=1)])
    assert (counted.read_flow("a").records, counted.starts) == (119, 3)


def test_a_flow_that_an_old_worker_had_not_told_of_begins_where_it_is_told_first() -> None:
    counted = WorkerTotals()
    counted.take([beat("w0", 5, tells_all=False, a=10)])
    counted.take([beat("w0", 5, tells_all=False, a=10, rested=700)])
    assert counted.read_flow("rested").records == 0, "it may have been copied long ago"
    counted.take([beat("w0", 5, tells_all=True, a=10, rested=701)])
    counted.take([beat("w0", 5, tells_all=False, new=6)])
    assert (counted.read_flow("rested").records, counted.read_flow("new").records) == (1, 6)
    counted.take([beat("w0", 5, tells_all=False, rested=705)])
    assert counted.read_flow("rested").records == 5, "a flow that a heartbeat leaves out is not forgotten"


def test_totals_that_shrink_count_nothing() -> None:
    counted = WorkerTotals()
    counted.take([beat("w0", 5, a=10)])
    counted.take([beat("w0", 5, a=4)])
    assert counted.read_flow("a") == FlowTotals()


def test_a_worker_of_an_earlier_version_is_no_start() -> None:
    counted = WorkerTotals()
    counted.take([])
    counted.take([beat("w0", 0)])
    assert counted.starts == 0


def test_a_life_that_was_not_named_for_a_while_is_not_counted_again() -> None:
    counted = WorkerTotals()
    counted.take([beat("w0", 5, throttled_s=1.0, a=100), beat("w1", 6, a=50)])
    counted.take([beat("w0", 5, throttled_s=2.0, a=110), beat("w1", 6, a=50)])
    counted.take([])
    counted.take([])
    counted.take([beat("w0", 5, throttled_s=2.5, a=112), beat("w1", 8, a=7)])
    assert (counted.read_flow("a").records, counted.throttled_s, counted.starts) == (12 + 7, 1.5, 1)


def test_of_absent_lives_the_newest_ten_thousand_are_remembered() -> None:
    counted = WorkerTotals()
    counted.take([])
    counted.take([beat("old", 1, a=1)])
    counted.take([])
    counted.take([beat(f"w{number}", 1) for number in range(10_000)])
    counted.take([])
    before = counted.starts
    counted.take([beat("w0", 1)])
    assert counted.starts == before
    counted.take([beat("old", 1, a=1)])
    assert counted.starts == before + 1
