"""Back behind the point of no return, on real brokers: real workers both ways, live producers and a live consumer, and
their own records as the judge. Only the proofs are not Spark's here: both sides are read and compared."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cutover.brokers.test_real_migration import PARTITIONS, POLICY, Shop
from tests.replicator.real import applied, plan_for, read_all, workers
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import RequestProof
from watershed.cutover.driver import RunEvent
from watershed.cutover.observations import ProofOutcome
from watershed.cutover.rollback.rollback_plan import plan_rollback
from watershed.cutover.run_opening import open_run
from watershed.cutover.run_plan import plan_migration
from watershed.lab import sample_applications
from watershed.topology.application_controls import PlanApplication
from watershed.topology.migration_waves import PlanMigration as PlanMigration
from watershed.topology.migration_waves import RollbackPolicy, Wave
from watershed.topology.plan import Plan, seal_plan

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

WRITES = 10_000


class BackShop(Shop):
    """The way back is declared, and the first producer is fast."""

    def plan(self, *producers: sample_applications.SampleApplication) -> Plan:
        there = plan_for(self.settings, self.name, *self.topics)
        back = plan_for(
            self.settings,
            self.name,
            *self.topics,
            routes=(("cloud", "onprem"),),
            delivery="transactions",
            state="paused",
        ).flows[0]
        wave = Wave(
            "all",
            tuple(self.topics),
            (self.name,),
            tuple(app.name for app in producers),
            rollback=RollbackPolicy(until_ms=3_600_000, reverse=back.id),
        )
        addresses = {app.name: PlanApplication(app.http) for app in producers}
        migration = PlanMigration(
            there.flows[0].id, "consumers_first", (wave,), {self.name: PlanApplication(self.billing.http), **addresses}
        )
        return seal_plan(replace(there, flows=(there.flows[0], back), migration=migration))

    def prove_back(self, wanted: RequestProof) -> ProofOutcome:
        """What is at the source is what is at the target, as far as it came."""
        proven = unproven = 0
        for topic in wanted.topics:
            home = read_all(self.settings["onprem"], topic, PARTITIONS)  # first: it is never ahead
            away = read_all(self.settings["cloud"], topic, PARTITIONS)
            for number in range(PARTITIONS):
                carried, written = [r for _, r in home[number]], [r for _, r in away[number]]
                same = carried == written if wanted.final else carried == written[: len(carried)]
                proven, unproven = proven + len(carried), unproven + (0 if same else 1)
        return ProofOutcome(0, "different" if unproven else "proven", unproven, {"proven": proven})


def test_ten_thousand_new_writes_are_at_the_source_afterwards_exactly_once(
    kafka_pair: Lab, topic_name: str, tmp_path: Path
) -> None:
    home = tmp_path / "apps"
    events: list[RunEvent] = []
    try:
        shop = BackShop(kafka_pair, topic_name, home, rate=1_000)
        plan = applied(shop.settings, shop.plan(shop.orders, shop.paid))
        with workers(plan, "cloud", tmp_path) as start, workers(plan, "onprem", tmp_path) as start_back:
            start()
            start_back()
            shop.wait_served(plan)
            policy = replace(POLICY, reverse=plan.flows[1].id, strategy="fenced")
            going = plan_migration(plan, policy=policy)
            there = open_run(plan, going, shop.settings, prove=shop.prove, evidence=tmp_path / "there")
            result = there.run()
            assert result.state == "done", result
            before = sample_applications.ask_application(shop.orders)["acked"]
            sample_applications.wait_for_count(shop.orders, "acked", before + WRITES, seconds=180)

            course = plan_rollback(plan, None, there.journal.refresh(), POLICY)
            assert course.earlier is not None
            cut = course.earlier.outcomes.cut
            began = time.monotonic()
            result = open_run(
                plan,
                course,
                shop.settings,
                prove=shop.prove_back,
                say=events.append,
                evidence=tmp_path / "back",
            ).run()
            took = time.monotonic() - began
            assert result.state == "done", (result, [event.text for event in events][-20:])
            assert set(shop.where().values()) == {("running", "onprem")}
            seen = sample_applications.ask_application(shop.orders)["acked"]
            sample_applications.wait_for_count(shop.orders, "acked", seen + 100, seconds=180)
        found = shop.settled()
        away = {topic: read_all(shop.settings["cloud"], topic, PARTITIONS) for topic in shop.topics}
        at_home = {topic: read_all(shop.settings["onprem"], topic, PARTITIONS) for topic in shop.topics}
    finally:
        sample_applications.stop_applications(home)
    since = 0
    for topic in shop.topics:
        for number in range(PARTITIONS):
            written, here = [r for _, r in away[topic][number]], [r for _, r in at_home[topic][number]]
            assert here[: len(written)] == written
            assert len({value for _, value, *_ in here}) == len(here)
            since += sum(at >= cut[TopicPartition(topic, number)] for at, _ in away[topic][number])
    assert since >= WRITES
    (group,) = found.groups
    assert (group.lost, group.repeated, group.out_of_order_per_key) == (0, 0, 0), group
    back = {move.application: move.seconds for move in found.moves if move.target == "onprem"}
    assert set(back) == {"orders", "paid"}
    print(f"{since} records carried back; rolled back in {took:.1f} s; seconds without writes {back}")
    for event in events:
        if event.kind in ("done", "ended"):
            print(f"{event.at_ms / 1000:7.1f} s {event.step}: {event.text}")
