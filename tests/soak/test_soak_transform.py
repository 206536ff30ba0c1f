"""A flow that changes records, on a standalone Spark: executors, Python processes, drivers and brokers die at random.

What plain Python works out from the source must stand at the target, record by record, a group on its record, and the
secret of the expressions nowhere. SOAK_TRANSFORM_RECORDS: how many (default 300,000; 5,000,000 took 19 minutes),
SOAK_TRANSFORM_DEATHS: how many deaths (10), SOAK_SEED: the same deaths again.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import resource
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

from tests.replicator.real import settings_of
from tests.spark.sessions.test_real_transform import (
    PARTITIONS,
    SECRET,
    assert_transformed,
    build_document,
    commit_positions,
    is_caught_up,
    read_positions,
    translate,
    write_topology,
)
from tests.spark.sessions.test_spark_replicate import run, until
from tests.spark.standalone import Application, build_cluster
from watershed.clusters.admin import Admin
from watershed.lab import clusters as lab_clusters
from watershed.lab.clusters import Lab
from watershed.lab.detached_process import kill_process
from watershed.lab.free_ports import find_free_ports
from watershed.lab.spark_standalone import SparkStandalone
from watershed.spark.proof_request import ProofRequest
from watershed.spark.proof_run import prove_flows
from watershed.topology import compile_path

RECORDS = int(os.environ.get("SOAK_TRANSFORM_RECORDS", "300000"))
DEATHS = int(os.environ.get("SOAK_TRANSFORM_DEATHS", "10"))
VICTIMS = ("executor", "python", "driver", "broker")
PAGES = ("jobs/", "stages/", "environment/", "executors/", "SQL/")

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(0)]


class Worker(Application):
    """`topology worker --transforms` on the cluster, with Spark's event log and its UI."""

    def __init__(self, path: Path, cluster: SparkStandalone, directory: Path) -> None:
        [self.port] = find_free_ports(1)
        conf = {
            "spark.ui.enabled": "true",
            "spark.ui.port": str(self.port),
            "spark.log.level": "INFO",
            "spark.cores.max": "2",
            "spark.executor.memory": "700m",
        }
        arguments = ["-m", "watershed.cli.main", "worker", str(path), "--target", "cloud", "--transforms"]
        super().__init__(directory, cluster, arguments, conf)

    def read_pages(self) -> str:
        """What Spark's UI and its REST interface show now, plans too; nothing of a driver that does not answer."""
        try:
            [application] = json.loads(self._read("api/v1/applications"))
            plans = f"api/v1/applications/{application['id']}/sql?details=true&planDescription=true&length=1000"
            return "\n".join(self._read(page) for page in (*PAGES, plans))
        except (OSError, ValueError):  # it is starting, or ending
            return ""

    def _read(self, page: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{page}", timeout=10) as answer:
            return str(answer.read().decode(errors="replace"))


@contextmanager
def traffic(lab: Lab, topic: str) -> Iterator[list[int]]:
    """Documents are written until all are, or this ends; the list holds how many."""
    written, ended = [0], threading.Event()
    producer = Producer(settings_of(lab)["onprem"].librdkafka({"linger.ms": 20, "compression.type": "lz4"}))

    def write() -> None:
        began = time.monotonic()
        for number in range(RECORDS):
            if ended.is_set():
                break
            while True:
                try:
                    producer.produce(
                        topic, build_document(number), b"k%d" % number, number % PARTITIONS,
                        headers=[("n", b"%d" % number)],
                    )  # fmt: skip
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
            written[0] = number + 1
            ahead = number / max(RECORDS / (DEATHS * 12 + 30), 1) - (time.monotonic() - began)
            if ahead > 0.05:  # as long as deaths come, records come
                time.sleep(ahead)
        assert producer.flush(300) == 0

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield written
        thread.join()
    finally:
        ended.set()
        thread.join()


def kill_victim(victim: str, worker: Worker, cluster: SparkStandalone, lab: Lab, chance: random.Random) -> None:
    if victim == "driver":
        os.kill(worker.process.pid, signal.SIGKILL)
        worker.process.wait()
    elif victim == "broker":
        alias = chance.choice(["onprem", "cloud"])
        lab_clusters.kill_lab_broker(lab.directory, alias)
        lab_clusters.restart_lab_broker(lab.directory, alias)
    else:
        executors = cluster.executors()
        if not executors:
            return
        executor = chance.choice(executors)
        if victim == "executor":
            kill_process(executor.process)
            return
        children = psutil.Process(executor.process.pid).children(recursive=True)
        workers = [each for each in children if "pyspark" in " ".join(each.cmdline())]
        if workers:
            chance.choice(workers).kill()


def has_text(path: Path, text: bytes) -> bool:
    """Whether a file has it somewhere; a log of any size."""
    if path.stat().st_size == 0:
        return False
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(text) >= 0


def test_records_are_transformed_exactly_while_everything_dies(
    own_pair: Lab, minutes: float, topic_name: str, tmp_path: Path
) -> None:
    assert minutes > 0
    seed = int(os.environ.get("SOAK_SEED", time.time_ns() % 2**31))
    chance = random.Random(seed)
    print(f"\nseed {seed}, {RECORDS:,} records, {DEATHS} deaths", flush=True)
    os.environ["WATERSHED_SECRET_PEPPER"] = SECRET
    path, flow = write_topology(own_pair, topic_name, tmp_path), f"onprem-to-cloud-{topic_name}"
    with Admin(settings_of(own_pair)["onprem"]) as admin:
        admin.create_topic(topic_name, PARTITIONS, 1, {})
    run("-m", "watershed.cli.main", "apply", str(path), "--yes")
    shown: list[str] = []
    with (
        build_cluster(tmp_path / "standalone", secrets=("WATERSHED_SECRET_PEPPER",)) as cluster,
        traffic(own_pair, topic_name) as written,
    ):
        number = 0
        worker = Worker(path, cluster, tmp_path / f"driver-{number}")
        began = time.monotonic()
        try:
            for death in range(DEATHS):
                time.sleep(chance.uniform(3, 12))
                shown.append(worker.read_pages())
                victim = VICTIMS[death % len(VICTIMS)] if death < len(VICTIMS) else chance.choice(VICTIMS)
                print(f"{written[0]:>9,} written: {victim}")
                kill_victim(victim, worker, cluster, own_pair, chance)
                if worker.process.poll() is not None:
                    number += 1
                    worker = Worker(path, cluster, tmp_path / f"driver-{number}")
                if death == DEATHS // 2:
                    positions = [chance.randrange(written[0] // PARTITIONS * 9 // 10) for _ in range(PARTITIONS)]
                    commit_positions(own_pair, topic_name, positions)
            until(lambda: written[0] == RECORDS, 3_600)
            until(lambda: worker.process.poll() is not None or is_caught_up(path, own_pair, topic_name), 3_600)
            assert worker.process.poll() is None, worker.said()[-3000:]
            print(f"caught up {time.monotonic() - began:.0f} s after the traffic began")
            wanted = translate(own_pair, topic_name, positions)
            until(lambda: read_positions(own_pair, topic_name) == wanted, 120)
            shown.append(worker.read_pages())
        finally:
            worker.process.kill()
            worker.process.wait()
    began, used = time.monotonic(), time.process_time()
    copied = assert_transformed(own_pair, topic_name, flow)
    print(f"{copied:,} records at the target, all as expected, in order; positions map exactly", end=" ")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"({time.monotonic() - began:.0f} s, {time.process_time() - used:.0f} CPU s, {most:,} MiB at most)")
    began = time.monotonic()
    summary = prove_flows(compile_path(path), ProofRequest(wait=10.0), tmp_path / "out")
    print(f"{summary['verdict']}, {summary['level']}, {time.monotonic() - began:.0f} s")
    assert (summary["verdict"], summary["unproven"], summary["proven"]) == ("proven", 0, copied)
    pages = "\n".join(shown)
    assert "MapInArrow" in pages, "no plan was seen in Spark's UI"
    assert SECRET not in pages
    leaked = [str(file) for file in tmp_path.rglob("*") if file.is_file() and has_text(file, SECRET.encode())]
    assert leaked == []
    assert any(tmp_path.rglob("events/*")), "no event log was written"
