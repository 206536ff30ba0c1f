"""A Kafka Streams application with state between two clusters: its file, its traffic, and the count that judges it.

The application counts records by a bucket of their key (lab/KeyCounts.java), with a repartition topic and a changelog,
under exactly_once_v2. The judge counts the records of the input itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.cutover.commands import HEAD, run_topology, wait_for
from tests.replicator.real import read_all, settings_of
from watershed.clusters.admin import Admin
from watershed.clusters.group_offsets import GroupOffsets
from watershed.clusters.topic_partition import TopicPartition
from watershed.lab import clusters, sample_applications
from watershed.lab.preload import create_lab_topics
from watershed.lab.streams_application import compute_bucket, find_compiling_java

COUNTER, INPUT, OUTPUT, PARTITIONS = "counter", "orders", "counts", 2
INTERNAL = (f"{COUNTER}-counts-changelog", f"{COUNTER}-counts-repartition")
_FILE = """\
pattern:
  active_standby:
    active: onprem
    standby: cloud
    topics: {{include: [{topics}], allow_internal: true}}
    naming: {{policy: identity}}
    workers: {{engine: process, discovery: 1s}}
    sync: {{groups: {{mode: continuous, interval: 1s, streams: [{counter}]}}}}
    failback: {{reverse: declared_paused, on_divergence: stop}}
migration:
  flow: onprem-to-cloud
  strategy: fenced
  applications:
    orders: {{http: "{orders}"}}
    {counter}: {{http: "{counting}"}}
  waves:
    - name: all
      topics: [{topics}]
      consumers: [{counter}]
      producers: [orders, {counter}]
      gates:
        before: [{{lag: {{max_records: 10000, hold: 1s}}}}, {{verify: {{level: L1}}}}]
        after: [{{stragglers: {{watch: 3s}}}}, {{verify: {{level: L1}}}}]
      rollback: {{until: 1h, reverse: cloud-to-onprem}}
"""


@dataclass(frozen=True, slots=True)
class CountJudgement:
    """records: by bucket, in the input topic. counted: by bucket, the newest count. updates: by bucket, all counts in
    the order of the output topic."""

    records: Counter[str]
    counted: dict[str, int]
    updates: dict[str, list[int]]

    @property
    def surplus(self) -> int:
        """Records that were counted more than once, or that the input does not hold."""
        return sum(max(0, self.counted.get(each, 0) - number) for each, number in self.records.items())

    @property
    def missing(self) -> int:
        """Records of the input that no count holds."""
        return sum(max(0, number - self.counted.get(each, 0)) for each, number in self.records.items())


class StreamsScene:
    """Clusters `onprem` and `cloud`, `orders` that writes, the application that counts, and the file."""

    def __init__(self, home: Path, protocol: str) -> None:
        find_compiling_java()
        self.home, self.path, self.apps = home, home / "streams.yaml", home / "apps"
        self.lab = clusters.start_clusters(home / "clusters", ["onprem", "cloud"])
        self.settings = settings_of(self.lab)
        onprem = self.lab.cluster("onprem").bootstrap
        create_lab_topics(onprem, [INPUT, OUTPUT], PARTITIONS)
        at = ["--cluster", "onprem", "--bootstrap", onprem]
        start = partial(sample_applications.start_application, self.apps)
        counting = [
            "watershed.lab.streams_application",
            "--input",
            INPUT,
            "--output",
            OUTPUT,
            "--protocol",
            protocol,
            *at,
        ]
        self.running = {
            "orders": start("orders", ["watershed.lab.orders_producer", "--topics", INPUT, "--rate", "150", *at]),
            COUNTER: start(COUNTER, counting),
        }
        self.path.write_text(
            HEAD.format(onprem=onprem, cloud=self.lab.cluster("cloud").bootstrap)
            + _FILE.format(
                topics=", ".join((INPUT, OUTPUT, *INTERNAL)),
                counter=COUNTER,
                orders=self.running["orders"].http,
                counting=self.running[COUNTER].http,
            )
        )

    def run(self, command: str, *arguments: object) -> Any:
        """`topology COMMAND FILE …`."""
        return run_topology(command, self.path, *arguments, home=self.home)

    def wait_for_more(self, count: int = 300) -> None:
        """Until `orders` has written so many more."""
        before = sample_applications.ask_application(self.running["orders"])["acked"]
        sample_applications.wait_for_count(self.running["orders"], "acked", before + count, seconds=180)

    def find_report(self) -> dict[str, Any]:
        """What `topology status` says of the application's positions; empty before the first round."""
        told = run_topology("status", self.path, "--format", "json", home=self.home, quiet=True).read_json()
        flow = next(each for each in told["flows"] if each["id"] == "onprem-to-cloud")
        return next((each for each in flow["sync"] if each["name"] == COUNTER), {})

    def is_ready(self) -> bool:
        """Whether the application could go on at the target with its state."""
        found = self.find_report()
        streams = found.get("detail", {}).get("streams")
        return found.get("state") in ("equal", "carried") and streams is not None and not streams["missing"]

    def find_places(self) -> dict[str, tuple[str, str]]:
        """State and cluster of each application."""
        seen = {name: sample_applications.ask_application(app) for name, app in self.running.items()}
        return {name: (found["state"], found["cluster"]) for name, found in seen.items()}

    def settle(self, alias: str = "cloud") -> CountJudgement:
        """The producer stops, the application counts the rest; then its counts are compared with the input."""
        sample_applications.stop_client(self.running["orders"])
        wait_for("everything is counted", lambda: self._is_caught_up(alias))
        sample_applications.stop_client(self.running[COUNTER])
        records: Counter[str] = Counter()
        for rows in read_all(self.settings[alias], INPUT, PARTITIONS).values():
            records.update(compute_bucket(record[0] or b"") for _, record in rows)
        updates: dict[str, list[int]] = {}
        for rows in read_all(self.settings[alias], OUTPUT, PARTITIONS).values():
            for _, record in rows:
                updates.setdefault((record[0] or b"").decode(), []).append(int(record[1] or b"0"))
        return CountJudgement(records, {each: numbers[-1] for each, numbers in updates.items()}, updates)

    def _is_caught_up(self, alias: str) -> bool:
        """Whether the group stands at the ends of its input and of its repartition topic, behind all markers."""
        places = [TopicPartition(topic, number) for topic in (INPUT, INTERNAL[1]) for number in range(PARTITIONS)]
        with Admin(self.settings[alias]) as admin, GroupOffsets(self.settings[alias]) as offsets:
            ends = {place: span.end for place, span in admin.offsets(places).items()}
            held = offsets.held([COUNTER])[COUNTER].positions
            again = {place: span.end for place, span in admin.offsets(places).items()}
        return ends == again and all(place in held and held[place].offset >= ends[place] - 1 for place in places)


@contextmanager
def streams_scene(home: Path, protocol: str) -> Iterator[StreamsScene]:
    """protocol: `classic` or `streams` (KIP-1071). Applications and clusters end with it."""
    try:
        yield StreamsScene(home, protocol)
    finally:
        sample_applications.stop_applications(home / "apps", grace=40)
        clusters.end_clusters(home / "clusters")
