"""A whole migration on real brokers: real worker, real applications, their own records as the judge.

Only the proof is not Spark's here: both sides are read and compared record by record.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.replicator.real import applied, plan_for, read_all, settings_of, workers
from tests.replicator.status_view import read_statuses
from watershed.clusters.admin import Admin
from watershed.cutover.actions import RequestProof
from watershed.cutover.driver import RunEvent
from watershed.cutover.observations import ProofOutcome
from watershed.cutover.policy import WavePolicy
from watershed.cutover.run_opening import open_run
from watershed.cutover.run_plan import plan_migration
from watershed.lab import sample_applications
from watershed.lab.account import RunAccount, build_account, find_applications
from watershed.lab.preload import create_lab_topics
from watershed.topology.application_controls import PlanApplication
from watershed.topology.migration_waves import PlanMigration as PlanMigration
from watershed.topology.migration_waves import Wave
from watershed.topology.plan import Plan, seal_plan
from watershed.topology.sync_settings import GroupSync, SyncSettings

if TYPE_CHECKING:
    from watershed.clusters.settings import ConnectionSettings
    from watershed.lab.clusters import Lab

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PARTITIONS = 2
POLICY = WavePolicy(
    poll_ms=300, max_lag=5_000, hold_ms=500, hold_times=2, watch_ms=2_000, empty_times=2, consumer_lag=5_000,
    stall_ms=180_000, barrier_bound_ms=180_000, canary_bound_ms=180_000,
)  # fmt: skip


class Shop:
    """Two producers (one of them transactional), a consumer group, a flow; all of it under unique names."""

    def __init__(self, pair: Lab, name: str, home: Path, rate: int = 100) -> None:
        self.pair, self.name, self.home = pair, name, home
        self.settings: dict[str, ConnectionSettings] = settings_of(pair)
        self.topics = [f"{name}.orders", f"{name}.paid"]
        here = pair.clusters["onprem"]
        create_lab_topics(here.bootstrap, self.topics, PARTITIONS)
        at = ["--cluster", "onprem", "--bootstrap", here.bootstrap]
        self.orders = sample_applications.start_application(
            home,
            "orders",
            [
                "watershed.lab.orders_producer",
                "--topics",
                self.topics[0],
                "--rate",
                str(rate),
                "--compression",
                "lz4",
                *at,
            ],
        )
        transactions = ["--transactional-id", name, "--transaction-records", "10", "--abort-every", "4"]
        self.paid = sample_applications.start_application(
            home,
            "paid",
            ["watershed.lab.orders_producer", "--topics", self.topics[1], "--rate", "40", *transactions, *at],
        )
        self.billing = sample_applications.start_application(
            home, "billing", ["watershed.lab.billing_consumer", "--group", name, "--topics", ",".join(self.topics), *at]
        )
        sample_applications.wait_for_count(self.billing, "processed", 100, seconds=180)

    def plan(self, *producers: sample_applications.SampleApplication) -> Plan:
        base = plan_for(self.settings, self.name, *self.topics)
        wave = Wave("all", tuple(self.topics), (self.name,), tuple(app.name for app in producers))
        addresses = {app.name: PlanApplication(app.http) for app in producers}
        migration = PlanMigration(
            base.flows[0].id, "consumers_first", (wave,), {self.name: PlanApplication(self.billing.http), **addresses}
        )
        # As where a failover is prepared for: positions are carried before, meanwhile, and behind the switch.
        carrying = replace(base.flows[0], sync=SyncSettings(groups=GroupSync("continuous", interval_ms=1_000)))
        return seal_plan(replace(base, flows=(carrying, *base.flows[1:]), migration=migration))

    def prove(self, wanted: RequestProof) -> ProofOutcome:
        proven = unproven = 0
        for topic in wanted.topics:
            there = read_all(self.settings["cloud"], topic, PARTITIONS)
            here = read_all(self.settings["onprem"], topic, PARTITIONS)
            for number in range(PARTITIONS):
                copied = [record for _, record in there[number]]
                original = [record for _, record in here[number]]
                same = copied == original if wanted.final else copied == original[: len(copied)]
                proven, unproven = proven + len(copied), unproven + (0 if same else 1)
        return ProofOutcome(0, "different" if unproven else "proven", unproven, {"proven": proven})

    def wait_served(self, plan: Plan) -> None:
        """Until a worker copies every partition; joining the fleet takes a while on a busy machine."""
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            reports = [each for each in read_statuses(self.settings["cloud"]) if each.flow == plan.flows[0].id]
            if len([each for each in reports if each.source_position > 0]) == PARTITIONS * len(self.topics):
                return
            time.sleep(0.5)
        raise AssertionError("no worker serves the flow")

    def where(self) -> dict[str, tuple[str, str]]:
        seen = {app.name: sample_applications.ask_application(app) for app in (self.orders, self.paid, self.billing)}
        return {name: (found["state"], found["cluster"]) for name, found in seen.items()}

    def settled(self) -> RunAccount:
        """Producers stop, the consumer reads the rest; then the applications' records are compared."""
        for app in (self.orders, self.paid):
            sample_applications.stop_client(app)
        deadline = time.monotonic() + 180
        while build_account(find_applications(self.home)).groups[0].lost and time.monotonic() < deadline:
            time.sleep(0.5)
        sample_applications.stop_client(self.billing)
        return build_account(find_applications(self.home))


@contextmanager
def shop_in(pair: Lab, name: str, home: Path) -> Iterator[Shop]:
    try:
        yield Shop(pair, name, home)
    finally:
        sample_applications.stop_applications(home)


def test_a_migration_loses_and_repeats_nothing(kafka_pair: Lab, topic_name: str, tmp_path: Path) -> None:
    events: list[RunEvent] = []
    with shop_in(kafka_pair, topic_name, tmp_path / "apps") as shop:
        plan = applied(shop.settings, shop.plan(shop.orders, shop.paid))
        with workers(plan, "cloud", tmp_path) as start:
            start()
            shop.wait_served(plan)
            driver = open_run(
                plan,
                plan_migration(plan, policy=POLICY),
                shop.settings,
                prove=shop.prove,
                say=events.append,
                evidence=tmp_path / "evidence",
            )
            first = driver.run(until_step="landing_test")
            assert first.state == "paused", first
            # another process goes on
            second = open_run(
                plan,
                plan_migration(plan, policy=POLICY),
                shop.settings,
                prove=shop.prove,
                say=events.append,
                run_id=driver.run_id,
                evidence=tmp_path / "evidence",
            )
            result = second.run()
        assert result.state == "done", result
        assert set(shop.where().values()) == {("running", "cloud")}
        before = sample_applications.ask_application(shop.orders)["acked"]
        sample_applications.wait_for_count(shop.orders, "acked", before + 50, seconds=180)
        found = shop.settled()
    (group,) = found.groups
    assert (group.lost, group.repeated, group.out_of_order_per_key) == (0, 0, 0), group
    assert {move.application for move in found.moves} >= {"orders", "paid"}


@pytest.mark.soak
def test_a_straggler_takes_everything_back(kafka_pair: Lab, topic_name: str, tmp_path: Path) -> None:
    """`paid` is not in the wave and goes on writing: the fence does not hold, so all goes back, and nothing is lost."""
    with shop_in(kafka_pair, topic_name, tmp_path / "apps") as shop:
        plan = applied(shop.settings, shop.plan(shop.orders))
        with workers(plan, "cloud", tmp_path) as start:
            start()
            shop.wait_served(plan)
            result = open_run(plan, plan_migration(plan, policy=POLICY), shop.settings, prove=shop.prove).run()
            assert (result.state, result.step) == ("rolled_back", "standstill"), result
            assert shop.topics[1] in result.reason
            assert set(shop.where().values()) == {("running", "onprem")}
            # The flow carries positions again; what the run wrote for the switch must not stand ahead of the source.
            with Admin(shop.settings["cloud"]) as cloud, Admin(shop.settings["onprem"]) as onprem:
                carried = cloud.group(shop.name).offsets
                read = onprem.group(shop.name).offsets
            assert all(offset <= read.get(place, -1) for place, offset in carried.items()), (carried, read)
            seen = sample_applications.ask_application(shop.billing)["processed"]
            sample_applications.wait_for_count(shop.billing, "processed", seen + 50, seconds=180)
        found = shop.settled()
    (group,) = found.groups
    assert (group.lost, group.repeated, group.out_of_order_per_key) == (0, 0, 0), group
