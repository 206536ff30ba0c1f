"""What thousands of quiet partitions cost beside one topic with 1,000 records a second: Watershed, MirrorMaker 2, and
a copy without a worker (`limit`), which shows what latency the brokers and the machine add.

One run, the same clusters and topics, one contender after the other. Environment:

    BENCH_PARTITIONS  numbers of quiet partitions, with commas (default 100,1000)
    BENCH_SECONDS     how long idle processor time and latency are measured (default 20)
    BENCH_BEFORE      a commit: its code copies, too

A quiet partition is one of a topic of a hundred to which nobody writes. Brokers get 2 GB of heap for them.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from watershed.bench import latency
from watershed.bench.bench_clusters import BenchClusters, choose_broker_jvm, run_bench_clusters
from watershed.bench.copy_contenders import BareCopyContender, MirrorMakerContender, WatershedContender
from watershed.bench.goals import build_scale_goals
from watershed.bench.process_usage import list_descendants, read_cpu_seconds, read_peak_mib
from watershed.bench.replicate import check_out_commit, run_mirrormaker
from watershed.bench.results import choose_size, is_smoke_run, publish_results, report_progress
from watershed.bench.workload import COPY_BENCH_PARTITIONS, delete_bench_topic
from watershed.clusters.admin import Admin
from watershed.clusters.topic_partition import TopicPartition
from watershed.lab.errors import LabError

_A_TOPIC = choose_size(100, 4)  # quiet partitions of one
_READY_S = 600.0
_SETTLED_S = choose_size(10.0, 0.0)  # what a start leaves behind is over
_HEAP = "2g"
# Both are Kafka's own. The lab's brokers go through all logs every five and every three seconds.
_BROKER = {"log.retention.check.interval.ms": "300000", "log.cleaner.backoff.ms": "15000"}
_Contender = WatershedContender | BareCopyContender | MirrorMakerContender


def main() -> int:
    """Measures each number of partitions with each contender. Returns the exit code."""
    sizes = [int(each) for each in os.environ.get("BENCH_PARTITIONS", choose_size("100,1000", "8")).split(",")]
    seconds = float(os.environ.get("BENCH_SECONDS", choose_size("20", "1.5")))
    choose_broker_jvm(_HEAP)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="watershed-bench-")))
        before = check_out_commit(os.environ.get("BENCH_BEFORE", ""), scratch / "before")
        place = stack.enter_context(run_bench_clusters(scratch, _BROKER))
        contenders: list[_Contender] = [WatershedContender(place)]
        if before is not None:
            contenders.append(WatershedContender(place, checkout=before))
        contenders.append(BareCopyContender(place))
        if not is_smoke_run():  # `bench.replicate` has shown that it starts
            contenders.append(stack.enter_context(run_mirrormaker(place, "mm2 default")))
        with Admin(place.source) as admin:
            admin.create_topic("paced", COPY_BENCH_PARTITIONS)
        if not is_smoke_run():  # brokers and MirrorMaker's JVM have compiled their hot code before anything counts
            for contender in contenders:
                _row(place, contender, [], seconds)
        rows = [row for size in sorted(sizes) for row in _measure(place, contenders, size, seconds)]
    return publish_results("scale", rows, build_scale_goals(rows))


def _measure(place: BenchClusters, contenders: list[_Contender], size: int, seconds: float) -> Iterator[dict[str, Any]]:
    topics = [f"quiet-{number:04d}" for number in range(math.ceil(size / _A_TOPIC))]
    with Admin(place.source) as admin:
        known = admin.topics()
        for topic in topics:
            if topic not in known:
                admin.create_topic(topic, _A_TOPIC)
    for contender in contenders:
        try:
            row = _row(place, contender, topics, seconds)
        except TimeoutError as error:
            if isinstance(contender, WatershedContender):
                raise
            report_progress(f"{contender.name}: {error}; it has no row")
            continue
        told = "  ".join(f"{name} {value}" for name, value in row.items())
        report_progress(told)
        yield row


def _row(place: BenchClusters, contender: _Contender, topics: list[str], seconds: float) -> dict[str, Any]:
    began = time.monotonic()
    with contender.running("paced", *topics) as (pid, prefix):
        ours = isinstance(contender, WatershedContender)
        file = place.directory / f"{prefix}.yaml"
        wanted = [f"{prefix}.{topic}" for topic in ("paced", *topics)]
        _wait_ready(place, wanted, file if ours else None)
        ready_s = time.monotonic() - began
        time.sleep(_SETTLED_S)
        idle = _spend(pid, seconds)
        found = latency.measure_added_latency(
            place, "paced", wanted[0], seconds, lambda: read_cpu_seconds(list_descendants(pid)), lambda: True
        )
        status_s, wrong = _ask_status(file) if ours else (0.0, 0)
        peak = read_peak_mib(list_descendants(pid))
    again_s = _measure_start(place, contender, prefix) if isinstance(contender, WatershedContender) else 0.0
    delete_bench_topic(place.target, *wanted)
    return {
        "partitions": COPY_BENCH_PARTITIONS + len(topics) * _A_TOPIC,
        "contender": contender.name,
        "ready_s": round(ready_s, 1),
        "idle_cpu_percent": round(idle * 100, 1),
        "p50_ms": round(found.p50, 2),
        "p99_ms": round(found.p99, 2),
        "p999_ms": round(found.p999, 2),
        "lost": found.lost,
        "cpu_percent": round(found.cpu_s_per_million / 1_000 * 100, 1),  # at 1,000 records a second
        "peak_mib": round(peak),
        "status_s": round(status_s, 2),
        "status_wrong": wrong,
        "first_record_s": round(again_s, 1),
    }


def _measure_start(place: BenchClusters, contender: WatershedContender, prefix: str) -> float:
    """Seconds from the start of a worker, on what another one has copied, until each partition of `paced` has a record
    that came meanwhile. Raises TimeoutError."""
    where = [TopicPartition(f"{prefix}.paced", number) for number in range(COPY_BENCH_PARTITIONS)]
    with Admin(place.target) as admin:
        before = admin.offsets(where)
        producer = Producer(place.source.librdkafka())
        for partition in range(COPY_BENCH_PARTITIONS):
            producer.produce("paced", b"." * 100, partition=partition)
        producer.flush(30)
        began = time.monotonic()
        with contender.running_again(prefix):
            while any(span.end <= before[each].end for each, span in admin.offsets(where).items()):
                if time.monotonic() - began > _READY_S:
                    raise TimeoutError(f"a second worker copied nothing within {_READY_S:.0f} s")
                time.sleep(0.05)
            return time.monotonic() - began


def _spend(pid: int, seconds: float) -> float:
    """Cores that the process and its children use while nothing happens."""
    before, since = read_cpu_seconds(list_descendants(pid)), time.monotonic()
    time.sleep(seconds)
    return (read_cpu_seconds(list_descendants(pid)) - before) / (time.monotonic() - since)


def _wait_ready(place: BenchClusters, topics: list[str], file: Path | None) -> None:
    """Until the copies are there and, for a file of ours, every partition is copied. Raises TimeoutError."""
    deadline = time.monotonic() + _READY_S
    with Admin(place.target) as admin:
        while not admin.topics().keys() >= set(topics) or (file is not None and _ask_status(file)[1]):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not all of {len(topics)} topics are copied after {_READY_S:.0f} s")
            time.sleep(1.0)


def _ask_status(file: Path) -> tuple[float, int]:
    """Seconds of `topology status`, and how many partitions it does not call `running`."""
    began = time.monotonic()
    command = [sys.executable, "-m", "watershed.cli.main", "status", str(file), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    states = [part["state"] for flow in json.loads(done.stdout)["flows"] for part in flow["partitions"]]
    return seconds, len(states) - states.count("running") + (not states)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that brokers and workers are ended, too
    try:
        sys.exit(main())
    except LabError as error:
        sys.exit(f"bench: {error}")
