"""Equal offsets far up: a log that begins at 3·10⁹, beyond where sequence numbers wrap (2³¹), and a worker that is
killed every few seconds while it fills and every second while it copies transactions with their gaps."""

from __future__ import annotations

import time

import pytest

from tests.replicator.brokers.test_real_aligned import ALONE, assert_same_offsets, begins_at
from tests.replicator.brokers.test_real_copy import transactions
from tests.replicator.real import applied, plan_for, settings_of, wait_copied, workers
from watershed.clusters.partition_status_records import read_partition_statuses

pytestmark = pytest.mark.kafka
START = 3_000_000_000
FILLING_S, COPYING_S = 20.0, 1.0  # from the first sign of life of a worker to its end
ROUNDS = 12  # of kills while transactions are copied


def test_killed_again_and_again_far_up(kafka_pair, topic_name, tmp_path) -> None:
    settings = settings_of(kafka_pair)
    began = time.monotonic()
    begins_at(settings["onprem"], topic_name, 1, START)
    print(f"\nthe source's log begins at {START:,} after {time.monotonic() - began:.0f} s")
    committed = transactions(settings["onprem"], topic_name, 20)
    plan = applied(settings, plan_for(settings, topic_name, topic_name, offsets="aligned", quota=5_000))
    began, kills = time.monotonic(), {"aligning": 0, "copying": 0}
    with workers(plan, "cloud", tmp_path, ALONE) as start:
        while kills["copying"] < ROUNDS:
            worker, since = start(), time.time()
            state = standing(settings, topic_name, since)
            time.sleep(FILLING_S if state == "aligning" else COPYING_S)
            worker.kill()
            kills["aligning" if state == "aligning" else "copying"] += 1
            if state != "aligning":
                committed += transactions(settings["onprem"], topic_name, 20)
        start()
        wait_copied(settings, plan, topic_name, 1, timeout=600)
        committed += transactions(settings["onprem"], topic_name, 2)
        wait_copied(settings, plan, topic_name, 1)
    print(f"filled and copied in {time.monotonic() - began:.0f} s with {kills} kills")
    assert kills["aligning"] > 2
    assert assert_same_offsets(settings, topic_name, 1) == committed


def standing(settings, topic: str, since: float) -> str:
    """The partition's state, as the first report says that is newer than `since` (seconds since 1970)."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for report in read_partition_statuses(settings["cloud"]):
            if report.topic == topic and report.at_ms > since * 1000 and report.state not in ("starting", "retrying"):
                return report.state
        time.sleep(0.2)
    raise AssertionError(f"no worker reports {topic}")
