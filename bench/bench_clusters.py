"""Where a measurement happens: two clusters of one broker each, and a directory for files.

BENCH_LAB names the directory of a running lab with the clusters `source` and `target`, which are used and left running;
without it every benchmark starts and ends its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from watershed.clusters.settings import ConnectionSettings
from watershed.lab import clusters
from watershed.lab.clusters import Lab

# The lab's brokers have a collector that needs little memory and stops all threads for as long as it works. Kafka's
# start script chooses this one (bin/kafka-run-class.sh, KAFKA_JVM_PERFORMANCE_OPTS).
_COLLECTOR: Final = (
    "-XX:-UseSerialGC -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 "
    "-XX:+ExplicitGCInvokesConcurrent"
)


@dataclass(frozen=True, slots=True)
class BenchClusters:
    """`brokers` are the brokers' processes."""

    directory: Path
    source: ConnectionSettings
    target: ConnectionSettings
    brokers: tuple[int, ...]


def choose_broker_jvm(heap: str) -> None:
    """Brokers that this process starts from now on have this heap (such as `2g`) and the collector of Kafka's start
    script."""
    options = (os.environ.get("WATERSHED_LAB_JVM", ""), f"-Xms{heap} -Xmx{heap}", _COLLECTOR)
    os.environ["WATERSHED_LAB_JVM"] = " ".join(options).strip()


@contextmanager
def run_bench_lab(
    directory: Path,
    aliases: Sequence[str],
    settings: Mapping[str, str] | None = None,
    kafka: Mapping[str, str] | None = None,
) -> Iterator[Lab]:
    """Clusters of these names while this lasts, or those of BENCH_LAB. kafka: releases by name. Raises LabError when
    BENCH_LAB has others."""
    if shared := os.environ.get("BENCH_LAB"):
        found = clusters.read_lab(shared)
        for alias in aliases:
            found.cluster(alias)
        yield found
        return
    try:
        yield clusters.start_clusters(directory, aliases, settings=settings, kafka=kafka)
    finally:
        clusters.end_clusters(directory)


@contextmanager
def run_bench_clusters(directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[BenchClusters]:
    """Clusters `source` and `target` while this lasts; settings: server properties on top of the lab's."""
    with run_bench_lab(directory / "lab", ["source", "target"], settings) as lab:
        source, target = (
            ConnectionSettings(alias, tuple(lab.cluster(alias).bootstrap.split(","))) for alias in ("source", "target")
        )
        pids = tuple(broker.pid for cluster in lab.clusters.values() for broker in cluster.brokers if broker.pid)
        yield BenchClusters(directory, source, target, pids)
