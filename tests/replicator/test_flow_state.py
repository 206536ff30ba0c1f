"""What is told of a partition of which no worker reports: one answer for the status, the page and the exporter."""

from __future__ import annotations

from dataclasses import replace

import pytest

from watershed.clusters.partition_status_records import PartitionStatus
from watershed.clusters.worker_heartbeats import SILENT_MS
from watershed.replicator.worker.flow_state import is_silent, mark_if_silent

REPORT = PartitionStatus("f", "orders", "orders", 0, "running", lag_records=0, lag_ms=0, rate_bytes=9.0, at_ms=1_000)
LATER = 1_000 + 3_600_000


def test_the_lag_goes_on_growing() -> None:
    told = mark_if_silent(REPORT, LATER, flow_state="running")
    assert (told.state, told.lag_ms, told.rate_bytes, told.at_ms) == ("silent", 3_600_000, 0.0, 1_000)
    assert mark_if_silent(replace(REPORT, lag_ms=500), LATER, flow_state="paused").lag_ms == 3_600_500
    assert mark_if_silent(replace(REPORT, lag_ms=500), LATER, flow_state="stopped").lag_ms == 500
    fresh = 1_000 + SILENT_MS
    assert mark_if_silent(REPORT, fresh, flow_state="running") is REPORT
    assert not is_silent(REPORT, fresh)


@pytest.mark.parametrize(("heard_ms", "lag_ms"), [(61_000, 60_000), (500, 0), (LATER + 1, 3_600_000)])
def test_it_grows_up_to_the_last_answer_of_the_cluster(heard_ms: int, lag_ms: int) -> None:
    told = mark_if_silent(REPORT, LATER, flow_state="running", heard_ms=heard_ms)
    assert (told.state, told.lag_ms) == ("silent", lag_ms)


def test_a_halt_is_not_hidden() -> None:
    halted = replace(REPORT, state="source_expired", error="offsets 1 to 9 are gone", remedy="accept the gap")
    told = mark_if_silent(halted, LATER, flow_state="running")
    assert (told.state, told.remedy) == ("source_expired", "accept the gap")
    assert told.error == "offsets 1 to 9 are gone; no worker has reported for this partition lately"
    retrying = mark_if_silent(replace(halted, state="retrying"), LATER, flow_state="running")
    assert retrying.state == "silent"
    assert retrying.error is not None
    assert retrying.error.endswith("; the last report said retrying: offsets 1 to 9 are gone")
