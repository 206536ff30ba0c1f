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

from watershed.clusters.settings import ConnectionSettings
from watershed.lab import clusters
from watershed.lab.clusters import Lab


@dataclass(frozen=True, slots=True)
class BenchClusters:
    """`brokers` are the brokers' processes."""

    directory: Path
    source: ConnectionSettings
    target: ConnectionSettings
    brokers: tuple[int, ...]


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
