"""What a reader makes of reports and heartbeats: a partition of which nothing new was written is as its worker is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.replicator.test_quiet_reports import RECORD
from watershed.clusters.partition_status_records import PartitionStatus, read_status_reports, renew_report
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.worker_heartbeats import WorkerHeartbeat, add_worker_latencies, parse_heartbeats
from watershed.replicator.worker.flow_state import mark_if_silent
from watershed.replicator.worker.placement_leader import _ObservedRates

REPORT = PartitionStatus(
    "onprem-to-cloud",
    "orders",
    "orders",
    0,
    "running",
    source_position=9,
    source_end=9,
    lag_records=0,
    lag_ms=0,
    event_age_ms=700,
    source_seen_ms=900,
    worker="w0",
    pid=4,
    serving=7,
    at_ms=1_000,
)
BEAT = WorkerHeartbeat("w0", 4, 61_000, (3, 7), {"onprem-to-cloud": 60_500})


def test_a_report_is_as_new_as_the_heartbeat_of_its_worker() -> None:
    renewed = renew_report(REPORT, {"w0": BEAT})
    assert renewed == replace(REPORT, at_ms=61_000, event_age_ms=60_700, source_seen_ms=60_500)
    assert mark_if_silent(renewed, 70_000, flow_state="running").state == "running"
    assert mark_if_silent(renewed, 80_000, flow_state="running").state == "silent"
    assert renew_report(renewed, {"w0": BEAT}) is renewed


@pytest.mark.parametrize(
    "beat",
    [
        None,
        replace(BEAT, pid=5),  # it was started again, and knows nothing of it yet
        replace(BEAT, slots=(3,)),  # the partition is another one's, who may be gone
        replace(BEAT, worker="w1"),
        replace(BEAT, at_ms=999),
    ],
)
def test_it_is_not_renewed_by_a_worker_that_does_not_serve_it(beat: WorkerHeartbeat | None) -> None:
    heartbeats = {} if beat is None else {beat.worker: beat}
    assert renew_report(REPORT, heartbeats) is REPORT
    assert mark_if_silent(REPORT, 70_000, flow_state="running").state == "silent"


def test_what_waits_goes_on_waiting() -> None:
    waiting = replace(REPORT, source_position=5, lag_records=4, lag_ms=0)  # its end was just seen
    assert renew_report(waiting, {"w0": BEAT}).lag_ms == 60_000
    assert renew_report(replace(waiting, lag_ms=500), {"w0": BEAT}).lag_ms == 60_500
    assert renew_report(replace(REPORT, lag_records=None, lag_ms=None), {"w0": BEAT}).lag_ms is None


@pytest.mark.parametrize("state", ["paused", "retrying", "source_expired"])
def test_the_source_of_a_partition_that_is_not_copied_was_not_seen(state: str) -> None:
    assert renew_report(replace(REPORT, state=state), {"w0": BEAT}).source_seen_ms == 900
    assert renew_report(REPORT, {"w0": replace(BEAT, seen={})}).source_seen_ms == 900
    assert renew_report(replace(REPORT, source_seen_ms=None), {"w0": BEAT}).source_seen_ms == 60_500


def test_one_reading_of_the_topic_gives_renewed_reports(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    view = {REPORT.key: REPORT.to_json(), BEAT.key: BEAT.to_json(), "worker|w9": {"worker": 1}}
    monkeypatch.setattr("watershed.clusters.partition_status_records.read_latest_values", lambda *_: view)
    reports, beside, heartbeats = read_status_reports(ConnectionSettings("cloud", ("127.0.0.1:1",)))
    assert ([report.at_ms for report in reports], beside, heartbeats) == ([61_000], [], [BEAT])
    assert [record.message for record in caplog.records] == ["report unreadable"]
    assert parse_heartbeats({BEAT.key: BEAT.to_json()}) == {"w0": BEAT}


def test_the_placement_knows_partitions_that_are_not_reported_again() -> None:
    rates, flows = _ObservedRates(), {"onprem-to-cloud": RECORD}
    rates.begin([REPORT], 100.0)
    rates.take([], {"w0": BEAT}, 110.0)
    assert [load.key for load in rates.loads(flows, 120.0)] == [REPORT.key]
    rates.take([], {"w0": BEAT}, 130.0)  # the same heartbeat
    assert rates.loads(flows, 130.0) == []


def test_a_rate_fades_although_no_report_says_so() -> None:
    rates, flows = _ObservedRates(), {"onprem-to-cloud": RECORD}
    for second in range(60):
        rates.take([replace(REPORT, rate_bytes=1_000.0)], {"w0": BEAT}, float(second))
    rates.take([REPORT], {"w0": BEAT}, 60.0)
    (before,) = rates.loads(flows, 60.0)
    rates.take([], {"w0": replace(BEAT, at_ms=62_000)}, 90.0)
    (after,) = rates.loads(flows, 100.0)
    assert before.rate == pytest.approx(900.0)
    assert after.rate == pytest.approx(900.0 * 0.9**40)


def test_latencies_of_workers_that_live_are_added() -> None:
    one = replace(BEAT, latencies={"onprem-to-cloud": {3: 10, 8: 1}})
    other = replace(BEAT, worker="w1", latencies={"onprem-to-cloud": {3: 5}, "back": {0: 2}})
    dead = replace(other, worker="w2", at_ms=BEAT.at_ms - 60_000)
    assert add_worker_latencies([one, other, dead], BEAT.at_ms + 5_000) == {
        "onprem-to-cloud": {3: 15, 8: 1},
        "back": {0: 2},
    }
