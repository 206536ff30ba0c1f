"""A migration on real brokers, with live applications, whose steps are taken by v0.1.0 and by this version in turns;
and the rollback of it. The two ways of beginning cross every step boundary in both directions."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.replicator.real import settings_of
from tests.upgrade.brokers.two_version_fleet import TwoVersions, Version
from watershed.clusters.partition_status_records import read_partition_statuses
from watershed.lab import sample_applications
from watershed.lab.account import build_account, find_applications
from watershed.lab.clusters import Lab
from watershed.lab.preload import create_lab_topics
from watershed.lab.previous_version import InstalledRelease

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.soak, pytest.mark.slow]

PARTITIONS = 2
TURNS: dict[Version, Version] = {"older": "newer", "newer": "older"}
TOPOLOGY = """\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: {name}, owner: tests}}
clusters:
  onprem: {{bootstrap: ["{onprem}"], security: {{protocol: PLAINTEXT}}}}
  cloud: {{bootstrap: ["{cloud}"], security: {{protocol: PLAINTEXT}}}}
flows:
  - source: onprem
    target: cloud
    suffix: {name}
    topics: {{include: ["{name}.orders", "{name}.paid"]}}
    workers: {{engine: process, discovery: 1s, placement: external}}
  - source: cloud
    target: onprem
    suffix: {name}
    state: paused
    topics: {{include: ["{name}.orders", "{name}.paid"]}}
    workers: {{engine: process, discovery: 1s, placement: external}}
migration:
  flow: onprem-to-cloud-{name}
  strategy: consumers_first
  applications:
    orders: {{http: "{orders}"}}
    paid: {{http: "{paid}"}}
    {name}: {{http: "{billing}"}}
  waves:
    - name: all
      topics: ["{name}.orders", "{name}.paid"]
      consumers: [{name}]
      producers: [orders, paid]
      gates:
        before: [{{lag: {{max_records: 5000, hold: 1s}}}}]
        # lint: ignore[MIG811] the producers stop by their own switch
        after: [{{stragglers: {{watch: 2s}}}}]
      rollback: {{until: 24h, reverse: cloud-to-onprem-{name}}}
"""


class Shop(TwoVersions):
    """Two producers, one of them with aborted transactions, a consumer group, and a worker of each version and way."""

    def __init__(self, previous: InstalledRelease, lab: Lab, name: str, folder: Path) -> None:
        super().__init__(previous, folder / "shop.yaml")
        self.settings, self.name, self.home = settings_of(lab), name, folder / "apps"
        address = {alias: each.bootstrap[0] for alias, each in self.settings.items()}
        topics = [f"{name}.orders", f"{name}.paid"]
        create_lab_topics(address["onprem"], topics, PARTITIONS)
        at = ["--cluster", "onprem", "--bootstrap", address["onprem"]]
        aborting = ["--transactional-id", name, "--transaction-records", "10", "--abort-every", "4"]
        producer, consumer = "watershed.lab.orders_producer", "watershed.lab.billing_consumer"
        self.orders = self._start("orders", [producer, "--topics", topics[0], "--rate", "60", *at])
        self.paid = self._start("paid", [producer, "--topics", topics[1], "--rate", "40", *aborting, *at])
        reads = [consumer, "--group", name, "--topics", ",".join(topics), *at]
        self.billing = self._start("billing", reads)
        addresses = {each.name: each.http for each in (self.orders, self.paid, self.billing)}
        text = TOPOLOGY.format(name=name, **address, **addresses)
        self.file.write_text(text, encoding="utf-8")
        sample_applications.wait_for_count(self.billing, "processed", 50, seconds=180)

    def _start(self, name: str, words: list[str]) -> sample_applications.SampleApplication:
        return sample_applications.start_application(self.home, name, words)

    def start_workers(self, version: Version, other: Version) -> None:
        self.run(version, "apply", str(self.file), "--yes")
        for each, target in ((version, "cloud"), (other, "onprem")):
            self.start(each, "worker", str(self.file), "--target", target)
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            reports = [r for r in read_partition_statuses(self.settings["cloud"]) if r.flow.endswith(self.name)]
            if len([r for r in reports if r.source_position > 0 and r.flow.startswith("onprem")]) == 2 * PARTITIONS:
                return
            time.sleep(0.5)
        raise AssertionError("no worker serves the flow: " + self.started[0].log.read_text()[-2000:])

    def list_steps(self, command: str) -> list[str]:
        told = json.loads(self.run("newer", command, str(self.file), "--dry-run", "--format", "json"))
        waves = told.get("waves", [told])
        return [step["name"] for step in waves[0]["steps"]]

    def take_turns(self, command: str, run: str, first: Version) -> None:
        """Every step in a process of its own, by the other version than the step before."""
        version = first
        for step in self.list_steps(command):
            self.run(version, command, str(self.file), "--run", run, "--step", step, "--approve", "auto")
            version = TURNS[version]

    def find_places(self) -> set[tuple[str, str]]:
        found = [sample_applications.ask_application(each) for each in (self.orders, self.paid, self.billing)]
        return {(each["state"], each["cluster"]) for each in found}

    def go_on(self, records: int = 50) -> None:
        for app, what in ((self.orders, "acked"), (self.paid, "acked"), (self.billing, "processed")):
            count = sample_applications.ask_application(app)[what]
            sample_applications.wait_for_count(app, what, count + records, seconds=180)

    def count_losses(self) -> tuple[int, int, int]:
        """Lost, repeated, out of order: what the applications' own records say when the consumer has read the rest."""
        for each in (self.orders, self.paid):
            sample_applications.stop_client(each)
        deadline = time.monotonic() + 180
        while build_account(find_applications(self.home)).groups[0].lost and time.monotonic() < deadline:
            time.sleep(0.5)
        sample_applications.stop_client(self.billing)
        (group,) = build_account(find_applications(self.home)).groups
        print(f"{group.acked} acknowledged, lost {group.lost}, repeated {group.repeated}")
        return group.lost, group.repeated, group.out_of_order_per_key

    def end(self) -> None:
        super().end()
        sample_applications.stop_applications(self.home)


@pytest.mark.parametrize("first", ["older", "newer"])
def test_each_version_goes_on_where_the_other_stopped(
    previous: InstalledRelease, kafka_pair: Lab, topic_name: str, tmp_path: Path, first: Version
) -> None:
    shop = Shop(previous, kafka_pair, topic_name, tmp_path)
    try:
        shop.start_workers(first, TURNS[first])
        shop.take_turns("migrate", "there", first)
        assert shop.find_places() == {("running", "cloud")}
        shop.go_on()
        shop.take_turns("rollback", "back", first)
        assert shop.find_places() == {("running", "onprem")}
        shop.go_on()
        journals = [json.loads(shop.run(each, "journal", str(shop.file), "--format", "json")) for each in TURNS]
        assert journals[0] == journals[1], "both versions read the same"
        assert shop.count_losses() == (0, 0, 0)
    finally:
        shop.end()
