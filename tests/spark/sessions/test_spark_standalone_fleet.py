"""The fleet on a real standalone cluster: executors, the master and the driver are killed while records are copied.

In the first test speculation is on, and Spark uses it: of two attempts at one task, one works. In the second a
supervisor resizes and heals the fleet.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.replicator.real import assert_exact_copy, wait_copied, wait_progress
from tests.spark.standalone import PARTITIONS, Application, Scene, Supervised, build_cluster, runs, until
from watershed.clusters.admin import Admin
from watershed.clusters.control_topics import SLOT_COUNT
from watershed.clusters.fleet import read_slot_owners
from watershed.lab.detached_process import kill_process
from watershed.lab.spark_standalone import SparkExecutor, SparkStandalone
from watershed.topology import compile_path

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(900)]

RECORDS = 20_000
WORKERS = 2
# Room for two attempts at both tasks; Spark starts the second when a task has run for a second, on another host.
SPECULATION = {
    "spark.cores.max": "4",
    "spark.executor.cores": "2",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.task.duration.threshold": "1s",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkStandalone]:
    with build_cluster(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster


class Fleet(Application):
    """`python -m watershed.spark.replicate` on the cluster."""

    def __init__(self, scene: Scene, cluster: SparkStandalone, directory: Path) -> None:
        self._state = directory.with_suffix(".json")
        arguments = ["-m", "watershed.spark.replicate", "--topology", str(scene.path), "--target", "cloud"]
        arguments += ["--workers", str(WORKERS), "--state", str(self._state)]
        super().__init__(directory, cluster, arguments, SPECULATION)

    def state(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self._state.read_text(encoding="utf-8"))
        except OSError:
            return {"state": "", "workers": []}
        return found

    def pids(self) -> set[int]:
        return {worker["pid"] for worker in self.state()["workers"]}

    def complete(self, without: set[int] = frozenset()) -> set[int]:
        """The pids of the workers, once all are there and none is one of these."""

        def there() -> set[int]:
            pids = self.pids()
            return pids if len(pids) == WORKERS and not pids & without else set()

        found: set[int] = self.until(there)
        return found


def test_flows_go_on_exactly_once_whatever_is_killed(
    kafka_pair: Lab, topic_name: str, tmp_path: Path, cluster: SparkStandalone
) -> None:
    scene = Scene(kafka_pair, topic_name, tmp_path)
    scene.fill(RECORDS)
    scene.apply()
    plan = compile_path(scene.path)
    first = Fleet(scene, cluster, tmp_path / "first")
    try:
        begun = first.complete()
        first.until(lambda: first.state()["standing_by"])  # Spark has begun to speculate
        wait_progress(scene.settings, plan, topic_name, PARTITIONS, 1)

        scene.fill(RECORDS)
        hosting = [executor for executor in cluster.executors() if hosted(executor) & begun]
        lost = hosted(hosting[0])
        cluster.lose_worker(hosting[0].worker)  # the whole machine
        now = first.complete(without=lost & begun)
        cluster.start_worker()
        scene.fill(RECORDS)
        wait_copied(scene.settings, plan, topic_name, PARTITIONS)
        shared_by(WORKERS, scene)  # and by nobody else: what stands by is no member of the group

        cluster.kill_master()
        scene.fill(RECORDS)
        wait_copied(scene.settings, plan, topic_name, PARTITIONS)  # nobody needs a master to go on
        cluster.start_master()
        hosting = [executor for executor in cluster.executors() if hosted(executor) & now]
        lost = hosted(hosting[0])
        kill_process(hosting[0].process)
        first.complete(without=lost & now)  # which the new master has started

        scene.fill(RECORDS)
        family = {pid for executor in cluster.executors() for pid in (executor.process.pid, *hosted(executor))}
        os.kill(first.process.pid, signal.SIGKILL)
        first.process.wait()
        second = Fleet(scene, cluster, tmp_path / "second")
        try:
            second.complete()
            scene.fill(RECORDS)
            wait_copied(scene.settings, plan, topic_name, PARTITIONS)
            until(lambda: not [pid for pid in family if runs(pid)])
            assert assert_exact_copy(scene.settings, plan, topic_name, PARTITIONS) == scene.written
            second.process.send_signal(signal.SIGTERM)
            assert second.process.wait(180) == 0, second.said()[-3000:]
            assert second.state()["state"] == "stopped"
            until(lambda: not cluster.executors())
        finally:
            second.end()
    finally:
        first.end()


def test_a_supervised_fleet_is_resized_restarted_and_healed(
    kafka_pair: Lab, topic_name: str, tmp_path: Path, cluster: SparkStandalone
) -> None:
    scene = Scene(kafka_pair, topic_name, tmp_path)
    scene.apply()
    plan = compile_path(scene.path)
    fleet = Supervised(scene, cluster, tmp_path / "supervised")
    try:
        fleet.wait_size(1)
        scene.fill(RECORDS)
        fleet.order(scene, "scale", "--workers", "3")
        assert len({hosted_by(each) for each in fleet.wait_size(3).workers}) == 3
        scene.fill(RECORDS)
        fleet.order(scene, "scale", "--workers", "2")
        before = frozenset(fleet.wait_size(2).workers)
        until(lambda: len(cluster.executors()) == 2)  # the third executor is given back
        fleet.order(scene, "restart")
        scene.fill(RECORDS)
        now = frozenset(fleet.wait_size(2, before).workers)

        executor = next(each for each in cluster.executors() if hosted(each) & {hosted_by(name) for name in now})
        lost = frozenset(name for name in now if hosted_by(name) in hosted(executor))
        print("kill -9 of an executor")
        kill_process(executor.process)
        scene.fill(RECORDS)
        now = frozenset(fleet.wait_size(2, lost).workers)
        print("a machine that says nothing any more")
        executor = next(each for each in cluster.executors() if hosted(each) & {hosted_by(name) for name in now})
        lost = frozenset(name for name in now if hosted_by(name) in hosted(executor))
        silent = cluster.silence_worker(executor.worker)
        try:
            cluster.start_worker()
            scene.fill(RECORDS)
            now = frozenset(fleet.wait_size(2, lost).workers)
        finally:
            for each in silent:
                kill_process(each)
        print("kill -9 of the driver")
        fleet.driver().kill()
        scene.fill(RECORDS)
        bridging = frozenset(fleet.wait_size(2, now).workers)  # beside the supervisor
        assert {psutil.Process(hosted_by(name)).ppid() for name in bridging} == {fleet.process.pid}
        print("and until Spark hosts all workers again")
        fleet.wait_size(2, now | bridging)
        wait_copied(scene.settings, plan, topic_name, PARTITIONS)
        assert assert_exact_copy(scene.settings, plan, topic_name, PARTITIONS) == scene.written
        fleet.order(scene, "stop")
        fleet.wait_size(0)
        until(lambda: not cluster.executors())
    finally:
        fleet.end()


def hosted_by(worker: str) -> int:
    """The pid in a worker's name."""
    return int(worker.rpartition("-")[2])


def hosted(executor: SparkExecutor) -> set[int]:
    """Everything that runs below an executor."""
    try:
        return {child.pid for child in psutil.Process(executor.process.pid).children(recursive=True)}
    except psutil.NoSuchProcess:
        return set()


def shared_by(workers: int, scene: Scene) -> None:
    """Until the slots are shared among so many workers."""
    with Admin(scene.settings["cloud"]) as admin:
        until(
            lambda: (
                len(given := read_slot_owners(admin, scene.name)) == SLOT_COUNT and len(set(given.values())) == workers
            )
        )
