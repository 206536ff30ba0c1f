"""Applications that write and read all the time, on topics of their own, and a worker that copies these: what a cutover
is tried on. Their own records are the judge (`lab.account`)."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from watershed.bench.bench_clusters import BenchClusters
from watershed.bench.results import choose_size
from watershed.clusters.admin import Admin
from watershed.clusters.partition_status_records import read_partition_statuses
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.lab import sample_applications
from watershed.lab.account import RunAccount, build_account, find_applications
from watershed.lab.preload import create_lab_topics
from watershed.replicator.apply import apply_plan
from watershed.topology import compile_path
from watershed.topology.plan import Plan

_WAIT_S = 120.0
_TOPOLOGY = """\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: {name}, owner: bench}}
clusters:
  source: {{bootstrap: ["{source}"], security: {{protocol: PLAINTEXT}}}}
  target: {{bootstrap: ["{target}"], security: {{protocol: PLAINTEXT}}}}
flows:
  - suffix: {name}
    source: source
    target: target
    topics: {{include: [{topics}]}}
    naming: {{policy: identity}}
    workers: {{engine: process}}
  - suffix: {name}
    source: target
    target: source
    state: paused
    topics: {{include: [{topics}]}}
    naming: {{policy: identity}}
    workers: {{engine: process}}
migration:
  flow: source-to-target-{name}
  strategy: {strategy}
  applications:
    {name}.checkout: {{http: "{checkout}"}}
    {name}.payments: {{http: "{payments}"}}
    {name}.billing: {{http: "{billing}"}}
  waves:
    - name: all
      topics: [{topics}]
      consumers: [{name}.billing]
      producers: [{name}.checkout, {name}.payments]
      gates:
        before:
          - lag: {{max_records: 1000, hold: 1s}}
          - verify: {{level: L1}}
        after:
          - stragglers: {{watch: {watch}}}
          - verify: {{level: L1}}
          - consumer_lag: {{max_records: 5000, within: 2m}}
      rollback: {{until: 24h, reverse: target-to-source-{name}}}
"""


@dataclass
class ShopApplications:
    """Two producers (`payments` writes transactions, some of them aborted) and a consumer group."""

    name: str
    place: BenchClusters
    topics: list[str]
    home: Path
    path: Path
    producers: list[sample_applications.SampleApplication] = field(default_factory=list)
    billing: sample_applications.SampleApplication | None = None

    @property
    def plan(self) -> Plan:
        """The topology file, compiled anew."""
        return compile_path(self.path)

    @property
    def consumer(self) -> sample_applications.SampleApplication:
        """`billing`, which must have been started."""
        assert self.billing is not None
        return self.billing

    def partitions(self, settings: ConnectionSettings) -> list[TopicPartition]:
        """All partitions of the shop's topics at this cluster."""
        with Admin(settings) as admin:
            return [TopicPartition(name, n) for name in self.topics for n in range(admin.topics()[name].partitions)]

    def behind(self) -> int:
        """Records that the flow's workers report as not copied yet; a partition without a report has a million."""
        flow = self.plan.flow(f"source-to-target-{self.name}")
        told = {
            TopicPartition(each.topic, each.partition): each.lag_records
            for each in read_partition_statuses(self.place.target)
            if each.flow == flow.id
        }
        return sum(10**6 if told.get(each) is None else told[each] or 0 for each in self.partitions(self.place.source))

    def unread(self, settings: ConnectionSettings) -> int:
        """The group's lag there, as every monitoring tool counts it: log ends minus commits."""
        with Admin(settings) as admin:
            ends = admin.offsets(self.partitions(settings), "read_committed")
            held = admin.group(self.consumer.name).offsets
        return sum(span.end - held.get(each, span.start) for each, span in ends.items())

    def settled(self) -> RunAccount:
        """Everything stops, the group reads to the end first."""
        for app in self.producers:
            sample_applications.stop_client(app)
        wait_until_done(lambda: build_account(find_applications(self.home)).groups[0].lost == 0, least=0)
        sample_applications.stop_client(self.consumer)
        return build_account(find_applications(self.home))


@contextmanager
def run_shop(
    place: BenchClusters, name: str, strategy: str, watch: str, topics: int, partitions: int, rate: int
) -> Iterator[ShopApplications]:
    """Runs until it ends: applications at the source, a worker that serves every partition."""
    names = [f"{name}.t{number}" for number in range(topics)]
    home = place.directory / name
    here = ",".join(place.source.bootstrap)
    create_lab_topics(here, names, partitions)
    found = ShopApplications(name, place, names, home, place.directory / f"{name}.yaml")
    worker: subprocess.Popen[bytes] | None = None
    try:
        at = ["--cluster", "source", "--bootstrap", here, "--topics"]
        half = max(1, len(names) // 2)
        found.producers = [
            sample_applications.start_application(
                home,
                f"{name}.checkout",
                ["watershed.lab.orders_producer", "--rate", str(rate), *at, ",".join(names[:half])],
            ),
            sample_applications.start_application(
                home,
                f"{name}.payments",
                [
                    "watershed.lab.orders_producer",
                    "--rate",
                    str(rate),
                    "--transactional-id",
                    name,
                    *at,
                    ",".join(names[half:]),
                ],
            ),
        ]
        found.billing = sample_applications.start_application(
            home,
            f"{name}.billing",
            ["watershed.lab.billing_consumer", "--group", f"{name}.billing", *at, ",".join(names)],
        )
        sample_applications.wait_for_count(found.billing, "processed", choose_size(10, 1) * rate)
        told = {app.name.rpartition(".")[2]: app.http for app in (*found.producers, found.billing)}
        address = {"source": place.source.bootstrap[0], "target": place.target.bootstrap[0]}
        found.path.write_text(
            _TOPOLOGY.format(name=name, topics=", ".join(names), strategy=strategy, watch=watch, **address, **told)
        )
        apply_plan(found.plan, {"source": place.source, "target": place.target}.__getitem__)
        command = [sys.executable, "-m", "watershed.cli.main", "worker", str(found.path), "--target", "target"]
        with (place.directory / f"{name}.log").open("wb") as log:
            worker = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until_done(lambda: found.behind() < rate)
        yield found
    finally:
        sample_applications.stop_applications(home)
        if worker is not None:
            worker.send_signal(signal.SIGTERM)
            worker.wait(60)


def wait_until_done(done: Callable[[], bool], least: int = 1, every: float = 0.5) -> None:
    """Until it is so; least: 0 lets the time pass without an error."""
    deadline = time.monotonic() + _WAIT_S
    while not done():
        if time.monotonic() > deadline:
            if least:
                raise RuntimeError(f"not so after {_WAIT_S:.0f} s")
            return
        time.sleep(every)
