"""The product as a user has it: the `topology` command, workers and proofs in processes of their own, one YAML file.

Two clusters of which `onprem` is of a chosen Kafka release, two producers (one in transactions) and a consumer group.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.replicator.real import settings_of
from watershed.lab import clusters, sample_applications
from watershed.lab.account import RunAccount, build_account, find_applications
from watershed.lab.clusters import Lab
from watershed.lab.preload import create_lab_topics
from watershed.lab.sample_applications import SampleApplication

COMMAND = Path(sys.executable).with_name("topology")
PARTITIONS, PLAIN, PAID, GROUP, WAVE = 2, "orders", "paid", "billing", "all"
_LONGEST_S = 1_200
HEAD = """\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: move, owner: tests}}
clusters:
  onprem: {{bootstrap: ["{onprem}"], security: {{protocol: PLAINTEXT}}}}
  cloud: {{bootstrap: ["{cloud}"], security: {{protocol: PLAINTEXT}}}}
"""
STANDBY = """\
pattern:
  active_standby:
    active: onprem
    standby: cloud
    topics: {{include: [{topics}]}}
    naming: {{policy: identity}}
    workers: {{engine: process, discovery: 1s{quota}}}
    sync: {{groups: {{mode: continuous, interval: 1s}}}}
    failback: {{reverse: {reverse}, on_divergence: stop}}
"""
MIGRATION = """\
migration:
  flow: onprem-to-cloud
  applications:
{applications}
  waves:
    - name: all
      topics: [{topics}]
      consumers: [billing]
      producers: [{producers}]
      gates:
        before: [{{lag: {{max_records: 10000, hold: 1s}}}}, {{verify: {{level: L1}}}}]
        after: [{{stragglers: {{watch: 3s}}}}, {{verify: {{level: L1}}}}]
      rollback: {rollback}
"""
WAY_BACK = {"reverse": "declared_paused", "rollback": "{until: 1h, reverse: cloud-to-onprem}"}
NO_WAY_BACK = {"reverse": "none", "rollback": '{none: "nothing is copied to so old a cluster"}'}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """Both streams."""
        return f"{self.out}\n{self.err}"

    def read_json(self) -> Any:
        """The document on standard output."""
        return json.loads(self.out)


def run_topology(*arguments: object, home: Path, quiet: bool = False) -> Answer:
    """Runs `topology …` to its end. home: the current folder, in which commands leave their evidence. quiet: what it
    says is not shown."""
    argv = [str(COMMAND), *(str(each) for each in arguments)]
    done = subprocess.run(argv, cwd=home, capture_output=True, text=True, timeout=_LONGEST_S, stdin=subprocess.DEVNULL)
    if not quiet:
        print(f"$ topology {' '.join(argv[1:])}  # exit code {done.returncode}\n{done.stdout}{done.stderr}", flush=True)
    return Answer(done.returncode, done.stdout, done.stderr)


@contextmanager
def worker_running(path: Path, target: str, home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`topology worker`, ended by SIGTERM; its log is `home`/worker-TARGET.log."""
    with (home / f"worker-{target}.log").open("ab") as log:
        environ = os.environ | {"PYTHONUNBUFFERED": "1"}
        argv = [str(COMMAND), "worker", str(path), "--target", target]
        process = subprocess.Popen(argv, cwd=home, stdout=log, stderr=log, env=environ)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(120)


def wait_for(what: str, is_so: Callable[[], bool], seconds: float = 300.0) -> None:
    """Until it is so. Fails naming `what`."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.5)


class MovingScene:
    """Clusters, applications at `onprem`, and the file."""

    def __init__(self, home: Path, release: str) -> None:
        self.home, self.release = home, release
        self.lab: Lab = clusters.start_clusters(home / "clusters", ["onprem", "cloud"], kafka={"onprem": release})
        self.settings = settings_of(self.lab)
        self.path, self.apps = home / "move.yaml", home / "apps"
        create_lab_topics(self.bootstrap("onprem"), [PLAIN, PAID], PARTITIONS)

    def bootstrap(self, alias: str) -> str:
        """The addresses of a cluster."""
        return self.lab.cluster(alias).bootstrap

    def start_applications(self, rate: int = 100) -> None:
        """`orders` and `paid` write, `billing` reads both. rate: records a second of `orders`."""
        at = ["--cluster", "onprem", "--bootstrap", self.bootstrap("onprem")]
        orders = ["watershed.lab.orders_producer", "--topics", PLAIN, "--rate", str(rate), "--compression", "lz4", *at]
        transactions = ["--transactional-id", "paid", "--transaction-records", "10", "--abort-every", "4"]
        paid = ["watershed.lab.orders_producer", "--topics", PAID, "--rate", "40", *transactions, *at]
        billing = ["watershed.lab.billing_consumer", "--group", GROUP, "--topics", f"{PLAIN},{PAID}", *at]
        started = (("orders", orders), ("paid", paid), (GROUP, billing))
        self.running = {name: sample_applications.start_application(self.apps, name, argv) for name, argv in started}
        sample_applications.wait_for_count(self.running[GROUP], "processed", 200, seconds=180)

    def build_migration(self, rollback: str, producers: tuple[str, ...] = ("orders", "paid")) -> str:
        """The part `migration` of the file."""
        names = (GROUP, *producers)
        lines = "\n".join(f'    {name}: {{http: "{self.running[name].http}"}}' for name in names)
        topics = f"{PLAIN}, {PAID}"
        return MIGRATION.format(applications=lines, topics=topics, producers=", ".join(producers), rollback=rollback)

    def write_file(self, way_back: bool, producers: tuple[str, ...] = ("orders", "paid")) -> None:
        """An active cluster and its standby, and one wave. producers: those that the file knows of."""
        values = WAY_BACK if way_back else NO_WAY_BACK
        addresses = {alias: self.bootstrap(alias) for alias in ("onprem", "cloud")}
        standby = STANDBY.format(topics=f"{PLAIN}, {PAID}", quota="", reverse=values["reverse"])
        migration = self.build_migration(values["rollback"], producers)
        self.path.write_text(HEAD.format(**addresses) + standby + migration)

    def run(self, command: str, *arguments: object) -> Answer:
        """`topology COMMAND FILE …`."""
        return run_topology(command, self.path, *arguments, home=self.home)

    def list_partitions(self, flow: str = "onprem-to-cloud") -> list[dict[str, Any]]:
        """What `topology status` says of each partition of a flow."""
        told = run_topology("status", self.path, "--format", "json", home=self.home, quiet=True).read_json()
        return [each for flows in told["flows"] if flows["id"] == flow for each in flows["partitions"]]

    def is_served(self) -> bool:
        """Whether every partition is being copied, and none is far behind."""
        found = self.list_partitions()
        return len(found) == 2 * PARTITIONS and all(
            each["source_position"] > 0 and each["lag_records"] is not None and each["lag_records"] < 5_000
            for each in found
        )

    def find_places(self) -> dict[str, tuple[str, str]]:
        """State and cluster of each application."""
        seen = {name: sample_applications.ask_application(app) for name, app in self.running.items()}
        return {name: (found["state"], found["cluster"]) for name, found in seen.items()}

    def wait_for_more(self, name: str = "orders", field: str = "acked", count: int = 200) -> None:
        """Until an application has done so many more."""
        app: SampleApplication = self.running[name]
        before = sample_applications.ask_application(app)[field]
        sample_applications.wait_for_count(app, field, before + count, seconds=180)

    def settle(self) -> RunAccount:
        """Producers stop, the consumer reads the rest; then the applications' records are compared."""
        for name in ("orders", "paid"):
            sample_applications.stop_client(self.running[name])
        deadline = time.monotonic() + 180
        while build_account(find_applications(self.apps)).lost and time.monotonic() < deadline:
            time.sleep(0.5)
        sample_applications.stop_client(self.running[GROUP])
        return build_account(find_applications(self.apps))


@contextmanager
def moving_scene(home: Path, release: str) -> Iterator[MovingScene]:
    """A scene whose applications and clusters end with it."""
    try:
        yield MovingScene(home, release)
    finally:
        sample_applications.stop_applications(home / "apps", grace=10)
        clusters.end_clusters(home / "clusters")
