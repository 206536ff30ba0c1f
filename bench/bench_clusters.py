"""Where a measurement happens: two clusters of one broker each, and a directory for files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clusters.settings import ConnectionSettings
from lab import clusters


@dataclass(frozen=True, slots=True)
class BenchClusters:
    """`brokers` are the brokers' processes."""

    directory: Path
    source: ConnectionSettings
    target: ConnectionSettings
    brokers: tuple[int, ...]


@contextmanager
def run_bench_clusters(directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[BenchClusters]:
    """Clusters `source` and `target` while this lasts; settings: server properties on top of the lab's."""
    try:
        lab = clusters.start_clusters(directory / "lab", ["source", "target"], settings=settings)
        source, target = (
            ConnectionSettings(alias, tuple(lab.cluster(alias).bootstrap.split(","))) for alias in ("source", "target")
        )
        pids = tuple(broker.pid for cluster in lab.clusters.values() for broker in cluster.brokers if broker.pid)
        yield BenchClusters(directory, source, target, pids)
    finally:
        clusters.end_clusters(directory / "lab")
