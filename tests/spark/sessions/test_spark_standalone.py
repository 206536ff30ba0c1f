"""A proof on a real standalone cluster: executors and machines are lost in the middle, slow tasks are run twice, and
what it says is what one process says."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.replicator.real import wait_copied, workers
from tests.spark.standalone import PARTITIONS, Application, Scene, build_cluster, until
from watershed.lab.detached_process import ProcessIdentity, kill_process, list_children, send_signal
from watershed.lab.spark_standalone import SparkExecutor, SparkStandalone
from watershed.spark.proof_request import ProofRequest
from watershed.spark.proof_run import prove_flows
from watershed.topology import compile_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from watershed.lab.clusters import Lab

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(900)]

RECORDS = 40_000
CHUNK = 1_000
# both executors are there before the first task is given out
BOTH = {"spark.cores.max": "4", "spark.scheduler.minRegisteredResourcesRatio": "1.0"}
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "10ms",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkStandalone]:
    with build_cluster(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def copied(kafka_pair: Lab, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    scene = Scene(kafka_pair, f"standalone-{os.getpid()}", tmp_path_factory.mktemp("copied"))
    scene.fill(RECORDS)
    scene.apply()
    plan = compile_path(scene.path)
    with workers(plan, "cloud", scene.directory) as start:
        start()
        wait_copied(scene.settings, plan, scene.name, PARTITIONS)
    return scene


@pytest.fixture(scope="module")
def local(copied: Scene, spark: SparkSession) -> dict[str, Any]:
    """What the proof says on `local[2]`."""
    request = ProofRequest(chunk=CHUNK, final=True)
    return facts(prove_flows(compile_path(copied.path), request, copied.directory / "local", session=lambda: spark))


def facts(summary: dict[str, Any]) -> dict[str, Any]:
    names = ("verdict", "exit_code", "proven", "unproven", "pending", "proof_root", "flows")
    return {name: summary[name] for name in names}


def proof(copied: Scene, cluster: SparkStandalone, directory: Path, conf: dict[str, str]) -> Application:
    out = directory / "out"
    arguments = [
        "-m",
        "watershed.spark.verify",
        "--topology",
        str(copied.path),
        "--out",
        str(out),
        "--chunk",
        str(CHUNK),
        "--final",
    ]
    return Application(directory / "application", cluster, arguments, BOTH | conf)


def frozen_one(cluster: SparkStandalone, application: Application) -> SparkExecutor:
    """One of the two executors, made slow beyond measure during its first task: that starts Python, which takes it a
    second. Spark's event log tells of a task only when a stage is over."""

    def busy() -> list[SparkExecutor]:
        return [each for each in cluster.executors() if any(map(is_python, list_children(each.process)))]

    executor: SparkExecutor = application.until(busy)[0]
    assert send_signal(executor.process, signal.SIGSTOP)
    return executor


def is_python(child: ProcessIdentity) -> bool:
    with suppress(psutil.NoSuchProcess):
        return "pyspark.daemon" in psutil.Process(child.pid).cmdline()
    return False


def ended(application: Application, directory: Path) -> dict[str, Any]:
    code = application.process.wait(180)
    assert code == 0, application.said()[-3000:]
    return json.loads((directory / "out" / "summary.json").read_text(encoding="utf-8"))


def lost_tasks(application: Application) -> int:
    ends = application.events("SparkListenerTaskEnd")
    return sum(end["Task End Reason"]["Reason"] == "ExecutorLostFailure" for end in ends)


@pytest.mark.parametrize("what", ["executor", "machine"])
def test_tasks_of_what_is_lost_are_run_elsewhere(
    what: str, copied: Scene, local: dict[str, Any], cluster: SparkStandalone, tmp_path: Path
) -> None:
    application = proof(copied, cluster, tmp_path, {})
    try:
        victim = frozen_one(cluster, application)
        application.until(lambda: "read 1 of " in application.said())
        if what == "executor":
            kill_process(victim.process)
        else:
            cluster.lose_worker(victim.worker)
        assert facts(ended(application, tmp_path)) == local
        assert lost_tasks(application) > 0
    finally:
        application.end()
        if what == "machine":
            cluster.start_worker()


def test_a_task_that_runs_twice_counts_once(
    copied: Scene, local: dict[str, Any], cluster: SparkStandalone, tmp_path: Path
) -> None:
    application = proof(copied, cluster, tmp_path, SPECULATION)
    try:
        slow = frozen_one(cluster, application)
        application.until(lambda: "(100%)" in application.said())
        send_signal(slow.process, signal.SIGCONT)  # what it had begun may go on now, and even end
        summary = ended(application, tmp_path)
        copies = [start for start in application.events("SparkListenerTaskStart") if start["Task Info"]["Speculative"]]
        assert copies
        assert facts(summary) == local
        assert local["proven"] == RECORDS
    finally:
        application.end()


def test_a_driver_whose_java_is_killed_ends_with_an_error_and_no_difference(
    copied: Scene, cluster: SparkStandalone, tmp_path: Path
) -> None:
    application = proof(copied, cluster, tmp_path, {})
    try:
        frozen_one(cluster, application)
        application.until(lambda: "read 1 of " in application.said())
        [java] = psutil.Process(application.process.pid).children()
        java.kill()
        assert application.process.wait(180) == 2
        summary = json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))
        assert (summary["verdict"], summary["exit_code"]) == ("error", 2)
        assert "Spark's Java process has ended" in summary["error"]
        until(lambda: not cluster.executors())
    finally:
        application.end()
