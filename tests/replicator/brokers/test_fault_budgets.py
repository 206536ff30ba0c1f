"""The source is away, and a backlog waits when it comes back: what its budget makes of that (`slo.on_breach`)."""

from __future__ import annotations

import time

import pytest

from tests.replicator.brokers.test_real_partition_control import until
from tests.replicator.real import applied, assert_exact_copy, plan_for, producer, put, wait_copied, workers
from tests.replicator.status_view import read_statuses
from watershed.clusters.admin import Admin
from watershed.clusters.budget_breaches import read_budget_breaches
from watershed.topology.breach_policy import BreachPolicy

pytestmark = [pytest.mark.kafka, pytest.mark.soak]

LIMIT_MS = 3_000
HOLD_S = 2
SLOW = 20_000  # bytes a second
AWAY_S = 6


@pytest.mark.parametrize(("outage_s", "breaches"), [(2, 0), (600, 1)], ids=["an outage", "a short absence"])
def test_a_backlog_behind_an_absence_of_the_source(faulty, topic_name, tmp_path, outage_s, breaches):
    """`OUTAGE_S` is set so that the same absence is longer, or shorter."""
    settings, flow = faulty.through, f"onprem-to-cloud-{topic_name}"
    with Admin(faulty.settings["onprem"]) as admin:
        admin.create_topic(topic_name, 1, 1)
    policy, proxy = BreachPolicy("pause", LIMIT_MS), faulty.proxy("onprem")
    plan = applied(settings, plan_for(settings, topic_name, topic_name, quota=SLOW, breach=policy))
    sending = producer(faulty.settings["onprem"])
    prelude = (
        f"from watershed.replicator.worker import breach_watch; breach_watch.BREACH_HOLD_S = {HOLD_S}; "
        f"breach_watch.OUTAGE_S = {outage_s}"
    )

    def find_report():
        return next((each for each in read_statuses(faulty.settings["cloud"]) if each.flow == flow), None)

    def count_breaches() -> int:
        found = read_budget_breaches(faulty.settings["cloud"]).get(flow)
        return 0 if found is None else found.number

    with workers(plan, "cloud", tmp_path, prelude) as start:
        start()
        put(sending, topic_name, 100)
        sending.flush()
        wait_copied(faulty.settings, plan, topic_name, 1)
        until(lambda: (report := find_report()) is not None and (report.state, report.lag_ms) == ("running", 0))
        time.sleep(3)  # it is looked at once a second
        proxy.refuse()
        put(sending, topic_name, 4_000, start=100, size=200)
        sending.flush()
        until(lambda: find_report().state == "retrying")
        time.sleep(AWAY_S)
        proxy.accept()
        until(lambda: find_report().lag_ms > LIMIT_MS)
        time.sleep(LIMIT_MS / 1000 + 3 * HOLD_S)
        report = find_report()
        print(f"\n{report.state}, {report.lag_ms / 1000:.1f} s behind, {count_breaches()} breaches")
        assert count_breaches() == breaches
        if breaches:
            return
        assert report.lag_ms > LIMIT_MS, "it is still late"
        plan = applied(settings, plan_for(settings, topic_name, topic_name, breach=policy))
        wait_copied(faulty.settings, plan, topic_name, 1)
        assert count_breaches() == 0
    print(f"{assert_exact_copy(faulty.settings, plan, topic_name, 1)} records, each once")
