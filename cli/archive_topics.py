"""What `topology archive` and `topology restore` take from a command line: a cluster of the file, and topics."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from watershed.cli.report import read_scannable_topology

if TYPE_CHECKING:
    from watershed.clusters.registry.registry_settings import RegistrySettings
    from watershed.clusters.settings import ConnectionSettings
    from watershed.topology.selectors import TopicSelection


def parse_topic_globs(texts: Iterable[str]) -> TopicSelection:
    """`A,B` and repeated options alike. A name without a wildcard must exist. Raises UsageError for an empty one."""
    from watershed.topology.selectors import Selector, TopicSelection

    names = [name.strip() for text in texts for name in text.split(",")]
    if not all(names):
        raise click.UsageError("--topics: an empty name; write --topics 'orders.*,payments'")
    kinds = [Selector("glob" if "*" in name or "?" in name else "literal", name) for name in names]
    return TopicSelection(tuple(kinds), allow_internal=True)


def find_cluster_settings(path: Path, alias: str) -> tuple[ConnectionSettings, RegistrySettings | None]:
    """Settings of a cluster of the file, and of its schema registry where the file declares one. Works on a file with
    findings. Raises UsageError for a cluster that the file does not have, SecretMissing."""
    from watershed.clusters.registry.registry_settings import resolve_registry_settings
    from watershed.clusters.settings import resolve_connection_settings

    topology = read_scannable_topology(path)
    if alias not in topology.clusters:
        known = ", ".join(sorted(topology.clusters)) or "none"
        raise click.UsageError(f"{topology.file} has no cluster `{alias}`; it has {known}")
    settings = resolve_connection_settings(topology.clusters[alias])
    declared = topology.clusters[alias].registry
    return settings, None if declared is None else resolve_registry_settings(settings)


def choose_map_file(place: str, alias: str) -> Path:
    """Where a restore of the archive at `place` into a cluster keeps the map of offsets that are not equal, unless
    --map says another place: beside the archive's folder."""
    from watershed.spark.archive.s3_storage import is_object_store

    beside = Path(Path(place).name if is_object_store(place) else place).absolute()
    return beside.with_name(f"{beside.name}.{alias}.offsets.json")
