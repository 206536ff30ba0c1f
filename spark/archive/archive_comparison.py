"""A whole archive against topics of a cluster."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from watershed.clusters.cluster_protocol import LogRange
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.messages import EARLIEST, LATEST
from watershed.spark.archive.archive_reader import require_manifest
from watershed.spark.archive.offset_mapping import RestoredOffsets, read_restored_offsets
from watershed.spark.archive.restore_plan import select_archived_topics
from watershed.spark.archive.storage import ArchiveStorage
from watershed.spark.archive.topic_comparison import PartitionComparison, compare_partition
from watershed.spark.datasource.log_offsets import LogIdentity, LogOffsetReader
from watershed.spark.errors import WrongUse
from watershed.spark.reading.fetch_answers import PartitionAddress
from watershed.topology.selectors import Selector, TopicSelection

_AT_ONCE: Final = 4  # partitions


def compare_archive(
    settings: ConnectionSettings,
    storage: ArchiveStorage,
    topics: TopicSelection | None,
    renames: tuple[str, ...] = (),
    map_file: Path | None = None,
) -> list[PartitionComparison]:
    """Every record of the chosen topics, both ways, up to where the archive ends. renames, topics: as of a restore.

    Raises ArchiveDamaged, WrongUse (nothing is chosen, no such map), NotReadable, ClusterError.
    """
    manifest = require_manifest(storage)
    named = select_archived_topics(manifest, topics, renames)
    objects = manifest.group_objects()
    maps = {} if map_file is None else _require_maps(map_file)
    wanted = TopicSelection(tuple(Selector("literal", target) for _, target in named), allow_internal=True)
    with LogOffsetReader(settings) as logs:
        there = {(log.topic, log.partition): log for log in logs.selected(wanted)}
        starts = logs.offsets(there.values(), EARLIEST, "read_uncommitted")
        ends = logs.offsets(there.values(), LATEST, "read_committed")

    def compare(topic: str, number: int, log: LogIdentity) -> PartitionComparison:
        found = maps.get((topic, number))
        if found is not None and found.target_id != log.topic_id:
            raise WrongUse(f"{map_file} is about another topic {log.topic} (id {found.target_id}) than the cluster has")
        return compare_partition(
            storage,
            objects.get((topic, number), ()),
            PartitionAddress(settings, log.topic, log.topic_id, number),
            LogRange(starts[log], ends[log]),
            None if found is None else found.offsets,
        )

    places = [
        (topic.name, part.partition, there[target, part.partition])
        for topic, target in named
        for part in topic.partitions
        if (target, part.partition) in there
    ]
    lacking = [f"{target}-{part.partition}" for topic, target in named for part in topic.partitions
               if (target, part.partition) not in there]  # fmt: skip
    if lacking:
        raise WrongUse(f"cluster {settings.alias} has no partition {', '.join(lacking)}, which the archive holds")
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda place: compare(*place), places))


def _require_maps(path: Path) -> dict[tuple[str, int], RestoredOffsets]:
    found = read_restored_offsets(path)
    if not found:
        raise WrongUse(f"{path} is not there, or holds no map; `topology restore --map` writes it")
    return found
