"""What a worker makes of a long wire: one side is 100 ms of round trip away, at 200 Mbit/s.

For each side: the share of the wire that a backlog uses, the latency of 1,000 records a second, and the longest delay
where pieces of the stream come late as if packets were lost. Environment:

    BENCH_SECONDS     how long the wire is filled, and each latency is measured (default 12)
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from watershed.bench import latency
from watershed.bench.bench_clusters import BenchClusters
from watershed.bench.copy_contenders import WatershedContender
from watershed.bench.goals import build_wire_goals
from watershed.bench.process_usage import list_descendants, read_cpu_seconds
from watershed.bench.results import choose_size, publish_results, report_progress
from watershed.bench.workload import COPY_BENCH_PARTITIONS, CopyCase, delete_bench_topic, load_topic
from watershed.clusters.admin import Admin
from watershed.clusters.settings import ConnectionSettings
from watershed.lab.errors import LabError
from watershed.lab.fault_proxy import NO_FAULT, FaultProxy, ProxyFault
from watershed.lab.proxied_clusters import run_proxied_clusters

ROUND_TRIP_S: Final = 0.1
WIRE_BYTES_S: Final = 25e6  # 200 Mbit/s
_WIRE: Final = ProxyFault(latency_s=ROUND_TRIP_S / 2, wire_bytes_per_s=WIRE_BYTES_S)
_LOSSY: Final = replace(_WIRE, late_share=0.01, late_s=ROUND_TRIP_S)  # a lost packet costs a round trip (RFC 6675)
_FIRST_S: Final = choose_size(3.0, 1.1)
_AWAY: Final = choose_size(("source", "target"), ("source",))  # which side; both are measured by the same code
_BACKLOG: Final = CopyCase(1_000, "none", 100)
_FILLED: Final = choose_size(1.0, 0.1)  # the share of the seconds for which the backlog fills the wire


def main() -> int:
    """Measures each side away. Returns the exit code."""
    seconds = float(os.environ.get("BENCH_SECONDS", choose_size("12", "1.1")))
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="watershed-bench-")))
        lab, proxied = stack.enter_context(run_proxied_clusters(scratch / "lab", {"source": 1, "target": 1}))
        direct = {
            alias: ConnectionSettings(alias, tuple(cluster.bootstrap.split(",")))
            for alias, cluster in lab.clusters.items()
        }
        pids = tuple(broker.pid for cluster in lab.clusters.values() for broker in cluster.brokers if broker.pid)
        here = BenchClusters(scratch, direct["source"], direct["target"], pids)
        with Admin(here.source) as admin:
            admin.create_topic("paced", COPY_BENCH_PARTITIONS)
        rows = []
        for side in _AWAY:
            through = ConnectionSettings(side, tuple(proxied[side].bootstrap.split(",")))
            far = replace(here, source=through) if side == "source" else replace(here, target=through)
            rows.append(_measure(here, far, side, proxied[side].proxies[1], seconds))
    return publish_results("wire", rows, build_wire_goals(rows))


def _measure(here: BenchClusters, far: BenchClusters, side: str, proxy: FaultProxy, seconds: float) -> dict[str, Any]:
    """far: the clusters as the worker reaches them."""
    loaded = load_topic(_BACKLOG, here.source, f"backlog-{side}", 60.0, WIRE_BYTES_S * seconds * _FILLED)
    with _wire(proxy, _WIRE):
        run = WatershedContender(far).copy(loaded, 4 * seconds)
    delete_bench_topic(here.source, loaded.topic)
    rate = run.progress.records / run.progress.seconds * loaded.bytes / loaded.records
    row = {
        "away": side,
        "mb_s": round(rate / 1e6, 1),
        "wire_share": round(rate / WIRE_BYTES_S, 3),
        "peak_mib": round(run.peak_mib),
    }
    for name, fault in (("", _WIRE), ("lossy_", _LOSSY)):
        found = _measure_latency(here, far, proxy, fault, seconds)
        row |= {
            f"{name}p50_ms": round(found.p50, 1),
            f"{name}p99_ms": round(found.p99, 1),
            f"{name}longest_ms": round(found.longest, 1),
            f"{name}lost": found.lost,
        }
    report_progress("  ".join(f"{name} {value}" for name, value in row.items()))
    return row


def _measure_latency(
    here: BenchClusters, far: BenchClusters, proxy: FaultProxy, fault: ProxyFault, seconds: float
) -> latency.AddedLatency:
    with _wire(proxy, fault), WatershedContender(far).running("paced") as (pid, prefix):
        topic = f"{prefix}.paced"
        latency.wait_for_topic(here.target, topic)
        for length in (_FIRST_S, seconds):  # the first waits until the worker copies: a start over this wire takes long
            found = latency.measure_added_latency(
                here, "paced", topic, length, lambda: read_cpu_seconds(list_descendants(pid)), lambda: True
            )
    delete_bench_topic(here.target, topic)
    return found


@contextmanager
def _wire(proxy: FaultProxy, fault: ProxyFault) -> Iterator[None]:
    """A wire like this in both directions while this lasts."""
    proxy.up = proxy.down = fault
    try:
        yield
    finally:
        proxy.up = proxy.down = NO_FAULT


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that brokers and workers are ended, too
    try:
        sys.exit(main())
    except LabError as error:
        sys.exit(f"bench: {error}")
