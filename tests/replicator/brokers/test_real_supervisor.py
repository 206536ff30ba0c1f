"""A supervised fleet on real brokers: sizes, a rolling restart, and everybody killed in turn, while records come in.

How long each partition stood still is measured from the target's own append times; docs/fleets.md has a table of it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.replicator.real import assert_exact_copy, producer, settings_of, wait_copied
from watershed.clusters.admin import Admin
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.worker.fleet_status import FleetRow, read_fleet_rows
from watershed.topology import compile_path
from watershed.topology.plan import Plan

pytestmark = [pytest.mark.kafka, pytest.mark.soak, pytest.mark.slow]

PARTITIONS = 16
TOPOLOGY = """
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
    topics: {{include: ["{name}"]}}
    naming: {{policy: identity}}
    workers: {{engine: process, count: 1, placement: {placement}}}
"""


class Scene:
    """A topology with one flow between the pair, and the processes that were started for it."""

    def __init__(self, lab: Any, name: str, folder: Path, placement: str = "embedded") -> None:
        self.settings: dict[str, ConnectionSettings] = settings_of(lab)
        self.name, self.folder, self.path = name, folder, folder / "t.yaml"
        address = {alias: each.bootstrap[0] for alias, each in self.settings.items()}
        text = TOPOLOGY.format(name=name, placement=placement, **address)
        self.path.write_text(text, encoding="utf-8")
        with Admin(self.settings["onprem"]) as admin:
            admin.create_topic(name, PARTITIONS, 1)
        self.run("apply", str(self.path), "--yes")
        self.plan: Plan = compile_path(self.path)
        self._supervisors: list[subprocess.Popen[bytes]] = []

    def run(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "watershed.cli.main", *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def order(self, *words: str) -> str:
        return self.run("fleet", words[0], str(self.path), "--target", "cloud", *words[1:])

    def supervise(self) -> subprocess.Popen[bytes]:
        return self.start("fleet", "supervise", str(self.path), "--target", "cloud")

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"supervisor-{len(self._supervisors)}.log").open("wb")
        self._supervisors.append(
            subprocess.Popen(
                [sys.executable, "-m", "watershed.cli.main", *words], stdout=log, stderr=log, start_new_session=True
            )
        )
        return self._supervisors[-1]

    def row(self) -> FleetRow:
        [row] = read_fleet_rows(self.plan, self.settings.__getitem__, "cloud")
        return row

    def wait_size(self, size: int, without: set[str] = frozenset()) -> FleetRow:  # type: ignore[assignment]
        """Until so many workers are there and the supervisor is content; none of `without`."""
        found: list[FleetRow] = []

        def there() -> bool:
            found[:] = [self.row()]
            row = found[0]
            return row.present == row.wanted == size and not row.restarting and not set(row.workers) & without

        until(there, lambda: str(found))
        return found[0]

    def log_text(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("supervisor-*.log")))

    def end(self) -> None:
        """Whatever was started, and what that has started."""
        families = [child for each in self._supervisors for child in _family(each.pid)]
        for process in self._supervisors:
            process.terminate()
        for process in self._supervisors:
            try:
                process.wait(90)
            except subprocess.TimeoutExpired:
                process.kill()
        for pid in {*families, *(int(name.rpartition("-")[2]) for name in self.row().workers)}:
            if psutil.pid_exists(pid) and str(self.path) in " ".join(psutil.Process(pid).cmdline()):
                os.kill(pid, signal.SIGKILL)


def _family(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def until(condition: Callable[[], object], told: Callable[[], str] = lambda: "", seconds: float = 300) -> float:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + seconds, f"not within {seconds} s: {told()}"
        time.sleep(0.1)
    return time.monotonic() - began


class Traffic:
    """About a hundred records a second on each partition; `gaps` tells how long partitions stood still meanwhile."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self._ended = scene, threading.Event()
        self._thread = threading.Thread(target=self._feed)
        self.sent = 0

    def _feed(self) -> None:
        into = producer(self._scene.settings["onprem"])
        while not self._ended.wait(0.05):
            for partition in range(PARTITIONS):
                for _ in range(5):
                    into.produce(self._scene.name, b"%020d" % self.sent, partition=partition)
                    self.sent += 1
            into.poll(0)
        assert into.flush(60) == 0

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


class Watch:
    """The target's log ends every 100 ms: the longest time in which a partition did not grow, and p99 of the lag."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self._ended = scene, threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._grown: dict[int, float] = {}
        self._ends: dict[int, int] = {}
        self.longest = 0.0
        self.waits: list[float] = []

    def _look(self) -> None:
        from watershed.clusters.topic_partition import TopicPartition

        where = [TopicPartition(self._scene.name, number) for number in range(PARTITIONS)]
        with Admin(self._scene.settings["cloud"]) as admin:
            while not self._ended.wait(0.1):
                now = time.monotonic()
                for place, span in admin.offsets(where).items():
                    before = self._ends.get(place.partition)
                    if before is None or span.end > before:
                        self._ends[place.partition] = span.end
                        if before is not None:
                            self.waits.append(now - self._grown[place.partition])
                        self._grown[place.partition] = now
                    self.longest = max(self.longest, now - self._grown[place.partition])

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def p99(self) -> float:
        return sorted(self.waits)[int(len(self.waits) * 0.99)]


@contextmanager
def scene_of(*about: Any, **more: Any) -> Iterator[Scene]:
    scene = Scene(*about, **more)
    try:
        yield scene
    finally:
        scene.end()


def test_sizes_restarts_and_deaths_under_traffic(kafka_pair, topic_name, tmp_path):
    table: list[str] = []
    with scene_of(kafka_pair, topic_name, tmp_path) as scene:
        first = scene.supervise()
        scene.wait_size(1)
        with Traffic(scene) as traffic:

            def measure(what: str, act: Callable[[], object], size: int, **more: Any) -> FleetRow:
                time.sleep(2)
                before = set(scene.row().workers)
                with Watch(scene) as watch:
                    began = time.monotonic()
                    act()
                    gone = before if more.get("fresh") else more.get("gone", set())
                    row = scene.wait_size(size, gone)
                    took = time.monotonic() - began
                    time.sleep(3)
                table.append(f"| {what} | {took:.1f} | {watch.longest:.1f} | {watch.p99:.2f} |")
                print("\n" + table[-1])
                return row

            measure("scale 1 to 4", lambda: scene.order("scale", "--workers", "4"), 4)
            measure("scale 4 to 2", lambda: scene.order("scale", "--workers", "2"), 2)
            row = measure("rolling restart of 2", lambda: scene.order("restart"), 2, fresh=True)
            killed = row.workers[0]
            row = measure("kill -9 of a worker", lambda: kill(killed), 2, gone={killed})

            second = scene.supervise()  # stands by
            until(lambda: len(supervisors(scene)) == 2)
            assert scene.row().supervisor.endswith(f"-{first.pid}")
            measure("kill -9 of the supervisor, another stands by", first.kill, 2, fresh=True)
            first.wait()
            assert scene.row().supervisor.endswith(f"-{second.pid}")

            second.send_signal(signal.SIGSTOP)
            third = scene.supervise()
            measure("the supervisor hangs, another is started", lambda: None, 2, fresh=True)
            assert scene.row().supervisor.endswith(f"-{third.pid}")
            second.send_signal(signal.SIGCONT)
            time.sleep(15)  # it wakes up, and has nothing to say any more
            assert scene.row().supervisor.endswith(f"-{third.pid}")
            assert scene.row().present == 2

            scene.order("stop")
            scene.wait_size(0)
            scene.order("start", "--workers", "3")
            scene.wait_size(3)
        wait_copied(scene.settings, scene.plan, topic_name, PARTITIONS)
        assert assert_exact_copy(scene.settings, scene.plan, topic_name, PARTITIONS) == traffic.sent
        assert scene.order("scale", "--workers", "3").splitlines()[-1] == "nothing to change"
        scene.run("fleet", "status", str(scene.path))
    print("\n" + "\n".join(table))


def test_workers_that_others_start_wait_while_their_fleet_is_stopped(kafka_pair, topic_name, tmp_path):
    with scene_of(kafka_pair, topic_name, tmp_path, placement="external") as scene:
        missing = scene.run("fleet", "status", str(scene.path), code=3)
        assert f"start 1 more where they are to run, each with `topology worker {scene.path} --target cloud`" in missing
        worker = scene.start("worker", str(scene.path), "--target", "cloud")
        name = scene.wait_size(1).workers
        scene.order("stop")
        scene.wait_size(0)
        time.sleep(5)
        assert worker.poll() is None
        scene.order("start")
        assert scene.wait_size(1).workers == name  # the same process
        refused = subprocess.run(
            [sys.executable, "-m", "watershed.cli.main", "fleet", "restart", str(scene.path), "--target", "cloud"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (refused.returncode, "kubectl rollout restart" in refused.stderr) == (2, True)


def kill(worker: str) -> None:
    os.kill(int(worker.rpartition("-")[2]), signal.SIGKILL)


def supervisors(scene: Scene) -> set[str]:
    from watershed.clusters.fleet import build_lease_group_id

    with Admin(scene.settings["cloud"]) as admin:
        return set(admin.group_assignment(build_lease_group_id(scene.name, "cloud")) or ())
