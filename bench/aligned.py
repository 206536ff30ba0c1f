"""What `offsets: aligned` costs against the budget that the plan prints: filling logs up to a start, filling gaps.

One lab broker, without replication. Environment:

    BENCH_ALIGNED_START     where the one log is to begin (default 3000000000)
    BENCH_ALIGNED_MANY      where each of four logs is to begin that are filled at once (default 200000000)
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from watershed.bench.bench_clusters import run_bench_lab
from watershed.bench.process_usage import list_descendants, read_cpu_seconds, read_peak_mib
from watershed.bench.results import BenchGoal, choose_size, publish_results, report_progress
from watershed.clusters.admin import Admin
from watershed.clusters.cluster_protocol import LogRange
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire.connection import Connection, open_connection
from watershed.lab.errors import LabError
from watershed.replicator.copy.aligned.alignment_cost import (
    AlignmentCost,
    EstimatedGapMethod,
    GapCount,
    PartitionCost,
    estimate_alignment_cost,
)
from watershed.replicator.copy.aligned.empty_log_filler import FillProgress, fill_log
from watershed.replicator.copy.aligned.gap_filler import GapFiller, GapMethod
from watershed.replicator.copy.aligned.target_log import TargetLog
from watershed.replicator.copy.transactions.slot_sender import read_transaction_version
from watershed.replicator.recovery.log_inspection import BrokerAddress

_FLOW = "bench"
_MANY = 4
# How gaps are closed, how many one after the other, and how long each is.
_GAPS: tuple[tuple[GapMethod, int, int], ...] = choose_size(
    (("markers", 1, 100_000), ("transactions", 1, 1_000), ("markers", 500, 1), ("transactions", 500, 1)),
    (("markers", 1, 1_000), ("transactions", 1, 10), ("markers", 3, 1), ("transactions", 3, 1)),
)
_WARM_UP = choose_size(10_000_000, 10_000)
# Of the measured time to the budget's: the budget says it gives orders of magnitude.
_MOST_OVER = 2.0


class _AlignedBench:
    """One broker and what it uses; `directory` holds its logs."""

    def __init__(self, target: ConnectionSettings, pids: tuple[int, ...], directory: Path) -> None:
        self.target, self.pids, self.directory = target, pids, directory

    def connect(self, address: BrokerAddress | None) -> Connection:
        return open_connection(self.target, address)

    def logs(self, topic: str, partitions: int) -> list[TargetLog]:
        with Admin(self.target) as admin:
            found = admin.create_topic(topic, partitions)
        return [
            TargetLog(self.connect, self.target.alias, topic, found.topic_id, number) for number in range(partitions)
        ]

    def brokers_cpu_s(self) -> float:
        return read_cpu_seconds(pid for each in self.pids for pid in list_descendants(each))

    def disk_bytes(self, topic: str) -> int:
        found = 0
        for path in self.directory.rglob(f"{topic}-*/*"):
            try:
                found += path.stat().st_blocks * 512  # indexes are preallocated, and sparse
            except OSError:  # deleted meanwhile
                continue
        return found

    def measured(self, case: str, topic: str, budget: AlignmentCost, work: Callable[[], int]) -> dict[str, Any]:
        """`work` returns how many offsets it made."""
        most, over = [0], threading.Event()

        def watch() -> None:
            while not over.wait(0.5):
                most[0] = max(most[0], self.disk_bytes(topic))

        watching = threading.Thread(target=watch)
        watching.start()
        began, cpu, ours = time.monotonic(), self.brokers_cpu_s(), read_cpu_seconds([os.getpid()])
        try:
            offsets = work()
        finally:
            over.set()
            watching.join()
        seconds = time.monotonic() - began
        row = {
            "case": case,
            "offsets": offsets,
            "seconds": round(seconds, 2),
            "budget_s": round(budget.seconds, 2),
            "offsets_s": round(offsets / seconds),
            "brokers_cpu_s": round(self.brokers_cpu_s() - cpu, 1),
            "budget_cpu_s": round(budget.cpu_s, 1),
            "our_cpu_s": round(read_cpu_seconds([os.getpid()]) - ours, 1),
            "disk_mib": round(max(most[0], self.disk_bytes(topic)) / (1 << 20)),
            "budget_disk_mib": round(budget.disk_bytes / (1 << 20)),
            "broker_peak_mib": round(read_peak_mib(pid for each in self.pids for pid in list_descendants(each))),
        }
        report_progress(f"{case}: {row['seconds']} s (budget {row['budget_s']}), {row['disk_mib']} MiB of disk")
        return row


def main() -> int:
    """Fills logs and gaps, and compares time and disk with the printed budget. Returns the exit code."""
    start = int(float(os.environ.get("BENCH_ALIGNED_START", choose_size("3e9", "20000"))))
    many = int(float(os.environ.get("BENCH_ALIGNED_MANY", choose_size("2e8", "5000"))))
    with tempfile.TemporaryDirectory(prefix="watershed-bench-") as scratch, _bench(Path(scratch)) as bench:
        _fill(bench, "warm-up", [_WARM_UP])
        rows = [_fill(bench, "one log", [start]), _fill(bench, f"{_MANY} logs at once", [many] * _MANY)]
        rows += [_gaps(bench, *each) for each in _GAPS]
        return publish_results("aligned", rows, build_aligned_goals(rows))


def build_aligned_goals(rows: list[dict[str, Any]]) -> list[BenchGoal]:
    """Time of every row against its budget, and disk of the filled logs."""
    found = [BenchGoal(f"{row['case']}: time over the budget's", _over(row), _MOST_OVER, "lower") for row in rows]
    found += [
        BenchGoal(f"{row['case']}: MiB of disk, at most", row["disk_mib"], row["budget_disk_mib"], "lower")
        for row in rows
        if "log" in row["case"]
    ]
    return found


def _over(row: dict[str, Any]) -> float:
    return round(float(row["seconds"]) / max(float(row["budget_s"]), 0.01), 2)


def _fill(bench: _AlignedBench, case: str, starts: list[int]) -> dict[str, Any]:
    topic = case.replace(" ", "-")
    logs = bench.logs(topic, len(starts))
    budget = estimate_alignment_cost([PartitionCost(number, start) for number, start in enumerate(starts)])
    told = [0.0]

    def progress(filling: FillProgress) -> None:
        if time.monotonic() - told[0] > 10:
            told[0] = time.monotonic()
            left = filling.seconds_left
            report_progress(
                f"  {filling.done:,} of {filling.of:,}" + (f", {left:.0f} s left" if left is not None else "")
            )

    def work() -> int:
        threads = [
            threading.Thread(target=fill_log, args=(log, start, _FLOW), kwargs={"progress": progress, "bare": True})
            for log, start in zip(logs, starts, strict=True)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        return sum(starts)

    row = bench.measured(case, topic, budget, work)
    _expect(bench, topic, {number: LogRange(start, start) for number, start in enumerate(starts)})
    return row


def _gaps(bench: _AlignedBench, way: GapMethod, many: int, length: int) -> dict[str, Any]:
    topic, offsets = f"gaps-{way}-{length}", many * length
    (log,) = bench.logs(topic, 1)
    working = GapFiller(log, _FLOW, way, read_transaction_version(bench.target) >= 2)
    working.advance(2)  # the first one asks who was here before
    kind: EstimatedGapMethod = way
    budget = estimate_alignment_cost([PartitionCost(0, 0, GapCount(offsets, many))], gap_method=kind, parallel=1)
    case = f"{many} gaps of {length:,} by {way}" if many > 1 else f"a gap of {length:,} by {way}"

    def work() -> int:
        for end in range(2 + length, 2 + offsets + 1, length):
            working.advance(end)
        return offsets

    row = bench.measured(case, topic, budget, work)
    working.close()
    _expect(bench, topic, {0: LogRange(0, 2 + offsets)})
    return row


def _expect(bench: _AlignedBench, topic: str, wanted: dict[int, LogRange]) -> None:
    with Admin(bench.target) as admin:
        found = admin.offsets([TopicPartition(topic, number) for number in wanted])
    if {key.partition: span for key, span in found.items()} != wanted:
        raise RuntimeError(f"{topic} stands at {found}, not at {wanted}")


@contextmanager
def _bench(directory: Path) -> Iterator[_AlignedBench]:
    with run_bench_lab(directory, ["target"]) as lab:
        cluster = lab.cluster("target")
        target = ConnectionSettings("target", tuple(cluster.bootstrap.split(",")))
        yield _AlignedBench(target, tuple(broker.pid for broker in cluster.brokers if broker.pid), lab.directory)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that brokers are ended, too
    try:
        sys.exit(main())
    except LabError as error:
        sys.exit(f"bench: {error}")
