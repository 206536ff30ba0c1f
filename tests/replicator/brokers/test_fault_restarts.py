"""Both brokers die and come back in each phase of a copy's life."""

from __future__ import annotations

import pytest

from clusters.admin import Admin
from lab import clusters as lab_clusters
from tests.replicator.faults import faulty_clusters, times
from tests.replicator.real import (
    applied,
    assert_exact_copy,
    plan_for,
    producer,
    put,
    wait_copied,
    wait_progress,
    workers,
)

pytestmark = pytest.mark.kafka

QUICK = times(session=3)


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    with faulty_clusters(tmp_path_factory.mktemp("restarts"), {"onprem": 1, "cloud": 1}) as clusters:
        yield clusters


@pytest.mark.parametrize("phase", ["starting", "catching up", "idle at the tail", "taking over"])
def test_both_brokers_restart(faulty, topic_name, tmp_path, phase):
    settings = faulty.settings
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 2, 1)
    sending = producer(settings["onprem"], **{"acks": "all", "enable.idempotence": True})
    plan = applied(settings, plan_for(settings, topic_name, topic_name, quota=1_500_000))
    put(sending, topic_name, 20_000, size=150)
    sending.flush()
    with workers(plan, "cloud", tmp_path, QUICK) as start:
        worker = start()
        if phase == "catching up":
            wait_progress(settings, plan, topic_name, 2, 3_000)
        elif phase == "idle at the tail":
            wait_copied(settings, plan, topic_name, 2)
        elif phase == "taking over":
            wait_progress(settings, plan, topic_name, 2, 3_000)
            worker.kill()
            worker = start()
        for alias in ("onprem", "cloud"):
            lab_clusters.kill_lab_broker(faulty.home, alias)
        lab_clusters.restart_lab_broker(faulty.home, "onprem", wait=False)
        lab_clusters.restart_lab_broker(faulty.home, "cloud")
        lab_clusters.restart_lab_broker(faulty.home, "onprem")
        put(sending, topic_name, 1_000, start=20_000)
        sending.flush()
        if not worker.runs():
            # Only a worker that has not got to know its target yet may end, and says why (`run_worker`).
            assert phase in ("starting", "taking over")
            assert "Unreachable" in worker.log.read_text()
            start()
        wait_copied(settings, plan, topic_name, 2)
    assert assert_exact_copy(settings, plan, topic_name, 2) == 21_000
