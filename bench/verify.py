"""What a proof costs: reading both sides, against a plain consumer of the same topics, and whole proofs.

One run; readers take turns, with nothing else running. Environment:

    BENCH_BYTES       bytes of a topic that is read (default 300e6)
    BENCH_ROUNDS      how often each reader reads each topic, in turns; medians count (default 3)
    BENCH_RECORDS     records that are loaded, copied by a worker and proven (default 10,000,000; 0: not done)
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

from watershed.bench.bench_clusters import BenchClusters, run_bench_clusters
from watershed.bench.copy_contenders import WatershedContender
from watershed.bench.goals import build_proof_goals
from watershed.bench.proof_reading import ReadingCost, measure_reading
from watershed.bench.results import choose_size, is_smoke_run, publish_results, report_progress
from watershed.bench.spark_scaling import fetch_spark_connector, measure_spark_tasks
from watershed.bench.workload import COPY_BENCH_PARTITIONS, CopyCase, LoadedTopic, delete_bench_topic, load_topic
from watershed.clusters.admin import Admin
from watershed.clusters.topic_partition import TopicPartition
from watershed.lab.errors import LabError

_CASES = (
    CopyCase(1_000, "none", 64),  # 64 KiB
    CopyCase(1_000, "none", 1_000),  # 1 MB
    CopyCase(100, "none", 1_000),
    CopyCase(100, "none", 1),
    CopyCase(100, "lz4", 1_000),
    CopyCase(1_000, "zstd", 1_000),
)[: choose_size(6, 1)]
_MASTERS = choose_size(("local[1]", "local[2]"), ("local[1]",))
_SMALL = 0.1  # of the bytes: batches of one record, and what is opened, take long to read
_WORKERS = 2


def main() -> int:
    """Measures readers, Spark's tasks and whole proofs. Returns the exit code."""
    size, rounds = (
        float(os.environ.get("BENCH_BYTES", choose_size("300e6", "1e5"))),
        int(os.environ.get("BENCH_ROUNDS", choose_size("3", "1"))),
    )
    records = int(os.environ.get("BENCH_RECORDS", choose_size("10000000", "0")))
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="watershed-bench-")))
        place = stack.enter_context(run_bench_clusters(scratch))
        rows = [row for case in _CASES for row in _read(place, case, size, rounds)]
        code = publish_results("verify-reading", rows, build_proof_goals(rows))
        tasks = list(_in_spark(place, size))
        publish_results("verify-spark", tasks, ())
        proofs = [_proof(place, "almost empty", 40)]
        if records:
            proofs.append(_proof(place, f"{records:,} records", records))
        return code | publish_results("verify-proofs", proofs, ())


def _read(place: BenchClusters, case: CopyCase, size: float, rounds: int) -> Iterator[dict[str, Any]]:
    """The rows of one case: each side and each reader."""
    small = case.records == 1 or case.codec != "none"
    loaded = load_topic(case, place.source, f"read-{case.name}", 600.0, size * (_SMALL if small else 1))
    load_topic(case, place.target, loaded.topic, 600.0, size * (_SMALL if small else 1))
    sides = {"source": place.source, "target": place.target}
    took: dict[tuple[str, str], list[ReadingCost]] = {}
    for _ in range(rounds):
        for side, settings in sides.items():
            for kind in ("digests", "fingerprints", "plain"):
                took.setdefault((kind, side), []).append(measure_reading(kind, settings, loaded.topic))
    for (kind, side), some in took.items():
        row = _row(loaded, kind, side, some)
        report_progress(
            f"{case.name:17} {side} {kind:12} {row['gb_s_core']:6} GB/s a core  {row['cpu_s_per_m']:8} CPU s/M records"
        )
        yield row
    delete_bench_topic(place.source, loaded.topic)
    delete_bench_topic(place.target, loaded.topic)


def _row(loaded: LoadedTopic, kind: str, side: str, some: list[ReadingCost]) -> dict[str, Any]:
    if any(each.records != loaded.records for each in some):
        raise RuntimeError(f"{kind} read {[each.records for each in some]} records of {loaded.records}")
    seconds, cpu = statistics.median(t.seconds for t in some), statistics.median(t.cpu_s for t in some)
    return {
        "case": loaded.case.name,
        "batch_bytes": len(loaded.template),
        "reader": kind,
        "side": side,
        "gb_s_core": round(loaded.bytes / cpu / 1e9, 3),
        "gb_s": round(loaded.bytes / seconds / 1e9, 3),
        "krecords_s_core": round(loaded.records / cpu / 1e3, 1),
        "krecords_s": round(loaded.records / seconds / 1e3, 1),
        "cpu_s_per_m": round(cpu / loaded.records * 1e6, 4),
        "peak_mib": round(max(t.peak_mib for t in some)),
        "rounds": len(some),
    }


def _in_spark(place: BenchClusters, size: float) -> Iterator[dict[str, Any]]:
    """One core and two, and the JVM's connector. The brokers need cores, too: two readers are not twice one here."""
    loaded = load_topic(CopyCase(100, "none", 1_000), place.source, "in-spark", 600.0, size)
    for master in _MASTERS:
        found = measure_spark_tasks("tasks", master, place.source, loaded.topic)
        for by in ("batches", "records"):
            yield _spark_row(f"tasks by {by}", master, loaded, found[by], found)
    home, why = (None, "nothing: a smoke run does not ask it") if is_smoke_run() else fetch_spark_connector()
    if home is None:
        report_progress(f"Spark SQL over the JVM's Kafka connector is not compared: Maven says {why}")
    for master in _MASTERS if home is not None else ():
        found = measure_spark_tasks("jvm", master, place.source, loaded.topic)
        yield _spark_row("Spark SQL, JVM connector", master, loaded, found["sql"], found)
    delete_bench_topic(place.source, loaded.topic)


def _spark_row(
    what: str, master: str, loaded: LoadedTopic, job: dict[str, float], found: dict[str, Any]
) -> dict[str, Any]:
    if job["records"] != loaded.records:
        raise RuntimeError(f"{what} read {job['records']} records of {loaded.records}")
    report_progress(f"{what:24} {master} {job['seconds']:.2f} s")
    return {
        "what": what,
        "master": master,
        "records": loaded.records,
        "seconds": round(job["seconds"], 2),
        "mrecords_s": round(loaded.records / job["seconds"] / 1e6, 2),
        "cpu_s_per_m": round(job["cpu_s"] / loaded.records * 1e6, 3),
        "first_s": round(job["first_s"], 2),
        "session_s": round(found["session_s"], 1),
        "worker_mib": round(found["worker_mib"]),
    }


def _proof(place: BenchClusters, what: str, records: int) -> dict[str, Any]:
    """Load different records, copy them, prove the copy as anybody would: `topology verify`."""
    topic = f"proof-{records}"
    began = time.monotonic()
    command = [
        "-m",
        "watershed.lab.preload",
        "--directory",
        str(place.directory / topic),
        "--cluster",
        "source",
        "--topic",
        topic,
    ]
    command += [
        "--bootstrap",
        place.source.bootstrap[0],
        "--records",
        str(records),
        "--partitions",
        str(COPY_BENCH_PARTITIONS),
    ]
    _run(*command)
    loaded = time.monotonic()
    out = place.directory / f"{topic}-proof"
    with WatershedContender(place, processes=1 if records < 10**6 else _WORKERS).running(topic) as (_, prefix):
        _copied(place, f"{prefix}.{topic}", records)
        copied = time.monotonic()
    proving = time.monotonic()
    file = place.directory / f"{prefix}.yaml"
    _run("-m", "watershed.cli.main", "verify", str(file), "--final", "-o", str(out))
    proven = time.monotonic()
    summary = json.loads((out / "summary.json").read_text())
    if (summary["verdict"], summary["proven"], summary["unproven"]) != ("proven", records, 0):
        raise RuntimeError(f"{what}: the proof says {summary['verdict']}, {summary['proven']} proven")
    times = (summary["started_at"], summary["window"]["fixed_at"], summary["ended_at"])
    started, fixed, ended = map(datetime.fromisoformat, times)
    row = {
        "what": what,
        "load_s": round(loaded - began, 1),
        "copy_s": round(copied - loaded, 1),
        "prove_s": round(proven - proving, 1),
        "of_it_window_s": round((fixed - started).total_seconds(), 1),
        "of_it_session_and_reading_s": round((ended - fixed).total_seconds(), 1),
        "of_it_begin_and_end_s": round(proven - proving - (ended - started).total_seconds(), 1),
        "proven": summary["proven"],
    }
    report_progress(f"{what}: loaded in {row['load_s']} s, copied in {row['copy_s']} s, proven in {row['prove_s']} s")
    return row


def _copied(place: BenchClusters, topic: str, records: int) -> None:
    parts = [TopicPartition(topic, number) for number in range(COPY_BENCH_PARTITIONS)]
    until = time.monotonic() + 60 + records / 50_000
    with Admin(place.target) as admin:
        while time.monotonic() < until:
            if topic in admin.topics() and sum(span.end for span in admin.offsets(parts).values()) >= records:
                return
            time.sleep(0.2)
    raise RuntimeError(f"{topic} was not copied in time")


def _run(*command: str) -> None:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command[:4])} ended with {done.returncode}: {(done.stdout + done.stderr)[-800:]}"
        )


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that brokers and workers are ended, too
    try:
        sys.exit(main())
    except LabError as error:
        sys.exit(f"bench: {error}")
