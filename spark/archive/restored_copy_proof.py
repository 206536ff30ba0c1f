"""Whether a flow can go on behind what `topology restore` brought, and from which source offset.

Three things are looked at. The restored topic holds what the archive holds, record by record, and ends where the
archive ends. The source's log goes on where the archive ends: the same topic, not cut, and no offset behind the archive
is deleted. The offset map of the archived part follows from the archive. The source's records are not read: it may have
deleted them since they were archived.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.messages import EARLIEST, LATEST
from watershed.replicator.adoption.copy_proof import PartitionProof
from watershed.replicator.adoption.duplicates_and_gaps import ComparedRanges, CopyFinding, CopyVerdict
from watershed.replicator.ledger.explicit_runs import join_explicit_runs
from watershed.replicator.ledger.offset_map import ExplicitRun
from watershed.replicator.partition_key import PartitionKey
from watershed.spark.archive.archive_comparison import compare_archive
from watershed.spark.archive.archive_plan import SeenTopic
from watershed.spark.archive.archive_reader import open_object, require_manifest
from watershed.spark.archive.archive_run import look_at_archived_topics
from watershed.spark.archive.manifest import ArchivedObject, ArchivedPartition, ArchiveManifest
from watershed.spark.archive.offset_mapping import RestoredOffsets, list_archived_spans, read_restored_offsets
from watershed.spark.archive.storage import ArchiveStorage
from watershed.spark.archive.topic_comparison import PartitionComparison
from watershed.spark.datasource.log_offsets import LogIdentity, LogOffsetReader
from watershed.spark.errors import NotRestorable
from watershed.topology.selectors import Selector, TopicSelection


def split_archived_partitions(
    manifest: ArchiveManifest, keys: Iterable[PartitionKey]
) -> tuple[list[PartitionKey], list[str]]:
    """(partitions that the archive holds, a text for each other one)."""
    held = {(topic.name, part.partition) for topic in manifest.topics for part in topic.partitions}
    asked = list(keys)
    return (
        [key for key in asked if (key.topic, key.partition) in held],
        [f"{key.topic}-{key.partition}: the archive does not hold it" for key in asked
         if (key.topic, key.partition) not in held],
    )  # fmt: skip


def prove_restored_copies(
    source: ConnectionSettings,
    target: ConnectionSettings,
    storage: ArchiveStorage,
    keys: Sequence[PartitionKey],
    map_file: Path | None = None,
    compacted: Collection[str] = (),
) -> list[PartitionProof]:
    """A proof of each partition, all of which the archive holds. Reads archive and target whole, and writes nothing.

    map_file: what the restore wrote, None: offsets are equal. compacted: topics (source names) that a cleaner works on.
    Raises ArchiveDamaged, NotArchivable (the source's log does not go on where the archive ends), NotRestorable (the
    target is not restored to the archive's end, or somebody wrote behind it), WrongUse, NotReadable, ClusterError.
    """
    manifest = require_manifest(storage)
    seen = look_at_archived_topics(source, manifest, _select({key.topic for key in keys}))
    maps = {} if map_file is None else read_restored_offsets(map_file)
    logs = _read_target_logs(target, keys)
    _require_ends(manifest, maps, keys, logs)
    names = {key.topic: key.target_topic for key in keys}
    compared = {
        (each.topic, each.partition): each
        for each in compare_archive(
            target,
            storage,
            _select(names),
            tuple(f"{topic}={there}" for topic, there in names.items()),
            map_file,
        )
    }
    objects = manifest.group_objects()
    proofs = []
    for key in keys:
        place = key.topic, key.partition
        stretches = list_stretches(storage, objects.get(place, ()), maps.get(place))
        verdict = judge_comparison(
            compared[key.target_topic, key.partition],
            stretches,
            _find_archived(manifest, key).end,
            is_compacted=key.topic in compacted,
        )
        identity, start, end = logs[key.target_topic, key.partition]
        topic = next(each for each in seen if each.name == key.topic)
        ends = ComparedRanges(*_find_source_range(topic, key.partition), start, end, key.topic in compacted)
        proofs.append(PartitionProof(key, ends, verdict, topic.topic_id, identity.topic_id))
    return proofs


def list_stretches(
    storage: ArchiveStorage, objects: Iterable[ArchivedObject], restored: RestoredOffsets | None
) -> list[ExplicitRun]:
    """Which archived offset stands where in the restored topic; restored: None where offsets are equal. Raises
    ArchiveDamaged."""
    if restored is not None:
        return list(restored.offsets.stretches(restored.end))
    opened = (open_object(storage, entry) for entry in objects)
    return join_explicit_runs(ExplicitRun(first, first, records) for first, records in list_archived_spans(opened))


def judge_comparison(
    found: PartitionComparison, stretches: Sequence[ExplicitRun], position: int, *, is_compacted: bool
) -> CopyVerdict:
    """What a comparison of topic and archive means for a flow that is to go on at `position`. Does no I/O."""
    counts = (
        ("compacted" if is_compacted else "missing", found.missing),
        ("changed", found.altered),
        ("foreign", found.extra),
        ("expired", found.gone),
    )
    findings = tuple(CopyFinding(kind, records) for kind, records in counts if records)
    return CopyVerdict(findings, tuple(stretches), position)


_TargetLog = tuple[LogIdentity, int, int]  # which, its start, its end


def _read_target_logs(target: ConnectionSettings, keys: Sequence[PartitionKey]) -> Mapping[tuple[str, int], _TargetLog]:
    with LogOffsetReader(target) as reader:
        there = reader.selected(_select({key.target_topic for key in keys}))
        starts = reader.offsets(there, EARLIEST, "read_uncommitted")
        ends = reader.offsets(there, LATEST, "read_uncommitted")
    return {(log.topic, log.partition): (log, starts[log], ends[log]) for log in there}


def _require_ends(
    manifest: ArchiveManifest,
    maps: Mapping[tuple[str, int], RestoredOffsets],
    keys: Sequence[PartitionKey],
    logs: Mapping[tuple[str, int], _TargetLog],
) -> None:
    """Raises NotRestorable, which names each partition whose log does not end where the restore ended."""
    refused = []
    for key in keys:
        mapped = maps.get((key.topic, key.partition))
        wanted = _find_archived(manifest, key).end if mapped is None else mapped.end
        end = logs[key.target_topic, key.partition][2]
        if end < wanted:
            refused.append(
                f"{key.target_topic}-{key.partition} ends at offset {end}, the archive at {wanted}: run `topology "
                "restore` to its end first (for other offsets than the archive's, name its map with --map)"
            )
        elif end > wanted:
            refused.append(
                f"{key.target_topic}-{key.partition} ends at offset {end}, the archive at {wanted}: somebody wrote "
                "behind the restore. Restore it under another name (--rename), or delete the topic and restore again"
            )
    if refused:
        raise NotRestorable("\n".join(refused))


def _find_archived(manifest: ArchiveManifest, key: PartitionKey) -> ArchivedPartition:
    topic = manifest.find_topic(key.topic)
    assert topic is not None, "only what the archive holds is asked for"
    return next(part for part in topic.partitions if part.partition == key.partition)


def _find_source_range(topic: SeenTopic, partition: int) -> tuple[int, int]:
    part = next(each for each in topic.partitions if each.partition == partition)
    return part.start, part.end


def _select(topics: Collection[str]) -> TopicSelection:
    return TopicSelection(tuple(Selector("literal", topic) for topic in sorted(topics)), allow_internal=True)
