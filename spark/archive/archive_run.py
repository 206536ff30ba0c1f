"""A run of `topology archive`: look at the cluster, read what is new, write objects, then the manifest.

The manifest is written last, once every object is on the disk. A run that is killed before leaves complete objects,
which the next run finds and keeps, and at most one temporary file a partition, which it writes anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

from watershed.clusters.admin import Admin
from watershed.clusters.group_offsets import GroupOffsets
from watershed.clusters.registry.client import RegistryClient
from watershed.clusters.registry.registry_settings import RegistrySettings
from watershed.clusters.registry.subject_names import parse_subject
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.broker_pool import BrokerPool
from watershed.clusters.wire.connection import Connection, open_connection
from watershed.clusters.wire.messages import EARLIEST, LATEST
from watershed.spark.archive.archive_plan import (
    ArchiveRange,
    PartitionTail,
    SeenPartition,
    SeenTopic,
    Tails,
    build_archived_topic,
    find_tails,
    plan_archive_ranges,
)
from watershed.spark.archive.archive_reader import find_left_objects, read_manifest
from watershed.spark.archive.manifest import (
    MANIFEST_FILE,
    ArchivedObject,
    ArchivedPosition,
    ArchivedSchema,
    ArchiveManifest,
    advance_manifest,
    encode_manifest,
)
from watershed.spark.archive.object_format import ObjectPlace, describe_object, encode_object
from watershed.spark.archive.storage import ArchiveStorage, ReusedMemory
from watershed.spark.datasource.log_offsets import LogIdentity, LogOffsetReader
from watershed.spark.errors import NotArchivable, NotReadable, WrongUse
from watershed.spark.judging.partition_sizes import read_partition_bytes
from watershed.spark.reading.batch_decoding import BatchView
from watershed.spark.reading.fetch_answers import OffsetsExpired, PartitionAddress
from watershed.spark.reading.offset_range import OffsetRange
from watershed.spark.reading.range_reader import read_record_batches
from watershed.spark.reading.read_limits import LimitedTask, ReadLimits
from watershed.topology.selectors import TopicSelection

_AT_ONCE: Final = 4  # partitions
_REACHABLE_GROUP_TYPES: Final = frozenset({"classic", "consumer", "streams"})  # that commit offsets


@dataclass(frozen=True, slots=True)
class ArchivePlan:
    """What a run would do. kept: complete objects of a run that was killed. stored: bytes of each topic's logs on the
    brokers' disks, where a broker tells."""

    cluster_id: str
    before: ArchiveManifest | None
    seen: tuple[SeenTopic, ...]
    ranges: tuple[ArchiveRange, ...]
    kept: tuple[ArchivedObject, ...]


@dataclass(frozen=True, slots=True)
class ArchiveEstimate:
    """What is still to be read. Both are guesses: offsets are no records. size: bytes; None where no broker tells how
    large its logs are."""

    objects: int
    size: int | None


@dataclass(frozen=True, slots=True)
class ArchiveOutcome:
    """manifest: as it is now. written: objects of this run; kept: those of a run that was killed. unread: groups whose
    positions could not be read, with the reason. is_changed: whether a new version was written."""

    manifest: ArchiveManifest
    written: tuple[ArchivedObject, ...]
    kept: tuple[ArchivedObject, ...]
    unread: tuple[str, ...]
    is_changed: bool


def plan_archive(settings: ConnectionSettings, topics: TopicSelection, storage: ArchiveStorage) -> ArchivePlan:
    """Looks at archive and cluster; writes nothing.

    Raises ArchiveDamaged, NotArchivable, WrongUse (nothing is selected, or it is another cluster), ClusterError.
    """
    before = read_manifest(storage)
    with Admin(settings) as admin, LogOffsetReader(settings) as logs:
        cluster_id = admin.cluster_id()
        if before is not None and before.cluster_id != cluster_id:
            raise WrongUse(
                f"{storage.locate('')} holds an archive of cluster {before.cluster_id} ({before.cluster}), and "
                f"{settings.alias} is cluster {cluster_id}. Archive each cluster to a folder of its own"
            )
        found = logs.selected(topics)
        if not found:
            raise WrongUse(f"cluster {settings.alias} has no topic that --topics selects (or does not show it to us)")
        left = find_left_objects(storage, before, [(log.topic, log.partition) for log in found])
        kept = tuple(entry for _, entry in left)
        tails = find_tails(before, kept)
        seen = _look_at_topics(settings, admin, logs, found, tails)
    for opened, entry in left:
        now = next(topic for topic in seen if topic.name == entry.topic)
        if opened.place.topic_id != now.topic_id:
            raise NotArchivable(
                f"{storage.locate(entry.path)} is of a topic {entry.topic} with id {opened.place.topic_id}; the "
                f"cluster has {now.topic_id}: it was created again. Delete this file, or archive to another folder"
            )
    return ArchivePlan(cluster_id, before, seen, tuple(plan_archive_ranges(before, tails, seen)), kept)


def look_at_archived_topics(
    settings: ConnectionSettings, manifest: ArchiveManifest, topics: TopicSelection
) -> tuple[SeenTopic, ...]:
    """What the cluster says now of topics of the archive. Each goes on where the archive ends.

    Raises NotArchivable where one does not, WrongUse for another cluster, ClusterError.
    """
    tails = find_tails(manifest)
    with Admin(settings) as admin, LogOffsetReader(settings) as logs:
        cluster_id = admin.cluster_id()
        if manifest.cluster_id != cluster_id:
            raise WrongUse(
                f"the archive is of cluster {manifest.cluster_id} ({manifest.cluster}), and {settings.alias} is "
                f"cluster {cluster_id}"
            )
        seen = _look_at_topics(settings, admin, logs, logs.selected(topics), tails)
    plan_archive_ranges(manifest, tails, seen)
    return seen


def estimate_archive(settings: ConnectionSettings, plan: ArchivePlan, object_bytes: int) -> ArchiveEstimate:
    """Bytes by each log's size on the brokers' disks and the share of its offsets that is to be read."""
    sizes = read_partition_bytes(settings, {topic.name for topic in plan.seen})
    lengths = {
        (topic.name, part.partition): part.high_watermark - part.start
        for topic in plan.seen
        for part in topic.partitions
    }
    objects, total = 0, 0
    for each in plan.ranges:
        new, whole = each.end - each.first, lengths[each.topic, each.partition]
        size = next((size for at, size in sizes.items() if (at.topic, at.partition) == (each.topic, each.partition)), 0)
        share = size * new // whole if whole else 0
        total += share
        objects += -(-share // object_bytes) if share else int(new > 0)
    return ArchiveEstimate(objects, total if sizes else None)


def archive_topics(
    settings: ConnectionSettings,
    topics: TopicSelection,
    storage: ArchiveStorage,
    *,
    registry: RegistrySettings | None = None,
    object_bytes: int,
    max_rate: int | None = None,
    report: Callable[[ArchivedObject], None] = lambda _: None,
) -> ArchiveOutcome:
    """Archives what is committed now. The caller holds the storage for itself.

    object_bytes: of batches in an object; three times that is held in memory for each partition that is read. max_rate:
    bytes a second that are read of the cluster, None without a bound. report hears of each object.

    Positions of groups are read before the ends of logs, so none of them lies behind what is archived.
    Raises as `plan_archive`, and Unwritable, NotReadable.
    """
    positions, unread = _read_positions(settings, topics)
    plan = plan_archive(settings, topics, storage)
    schemas = _read_schemas(registry, {topic.name for topic in plan.seen}) if registry is not None else []

    fresh_ranges = [each for each in plan.ranges if each.end > each.first]
    limits = ReadLimits(max_rate).share_for_task(len(fresh_ranges), _AT_ONCE)

    def write(span: ArchiveRange) -> list[ArchivedObject]:
        """Reads within the limits, as a Spark task would."""
        task: LimitedTask[ArchiveRange, list[ArchivedObject]] = LimitedTask(
            limits, lambda spans: (write_range(settings, storage, each, object_bytes, report) for each in spans)
        )
        return [entry for entries in task([span]) for entry in entries]

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        written = [entry for entries in pool.map(write, fresh_ranges) for entry in entries]
    names = {topic.name for topic in plan.seen}
    fresh = advance_manifest(
        plan.before,
        written_at=int(time.time() * 1000),
        cluster=settings.alias,
        cluster_id=plan.cluster_id,
        topics=[build_archived_topic(topic, plan.ranges) for topic in plan.seen],
        positions=[each for each in positions if each.topic in names],
        schemas=schemas,
        objects=[*plan.kept, *written],
    )
    if plan.before is not None and _is_same_content(plan.before, fresh):
        return ArchiveOutcome(plan.before, (), (), tuple(unread), False)
    storage.replace(MANIFEST_FILE, encode_manifest(fresh))
    return ArchiveOutcome(fresh, tuple(written), plan.kept, tuple(unread), True)


def write_range(
    settings: ConnectionSettings,
    storage: ArchiveStorage,
    span: ArchiveRange,
    object_bytes: int,
    report: Callable[[ArchivedObject], None] = lambda _: None,
) -> list[ArchivedObject]:
    """Reads a range and writes its objects, one after the other; a Spark task may do it for one range as well.

    Raises NotArchivable where retention takes offsets meanwhile, NotReadable, Unwritable, ClusterError.
    """
    written: list[ArchivedObject] = []
    memory = ReusedMemory()
    for first, end, batches in _cut_into_objects(_read_batches(settings, span), span, object_bytes):
        place = ObjectPlace(span.topic, span.topic_id, span.partition, first, end)
        content = encode_object(place, batches, memory)
        entry = describe_object(place, batches, content)
        storage.write_new(entry.path, content)
        written.append(entry)
        report(entry)
    return written


def _cut_into_objects(
    batches: Iterator[BatchView], span: ArchiveRange, object_bytes: int
) -> Iterator[tuple[int, int, list[BatchView]]]:
    """(first, end, batches) of each object. The last one reaches to the end of the range, whatever is missing there."""
    first, size = span.first, 0
    waiting: list[BatchView] = []
    for batch in batches:
        waiting.append(batch)
        size += len(batch.raw)
        if size >= object_bytes:
            end = batch.last_offset + 1
            yield first, end, waiting
            first, size, waiting = end, 0, []
    if first < span.end:
        yield first, span.end, waiting


def _read_batches(settings: ConnectionSettings, span: ArchiveRange) -> Iterator[BatchView]:
    address = PartitionAddress(settings, span.topic, span.topic_id, span.partition)
    try:
        yield from read_record_batches(address, OffsetRange(span.first, span.end))
    except OffsetsExpired as gone:
        raise NotArchivable(
            f"{address}: offsets below {gone.log_start} were deleted (retention) while they were read; what is "
            "complete stays in the archive. Archive the topic to another folder, and more often than it forgets"
        ) from None
    except NotReadable as error:
        raise NotReadable(f"{error}. What is complete stays in the archive; run it again") from None


def _is_same_content(before: ArchiveManifest, fresh: ArchiveManifest) -> bool:
    return (
        replace(fresh, version=before.version, written_at=before.written_at, previous_seal=before.previous_seal)
        == before
    )


def _look_at_topics(
    settings: ConnectionSettings,
    admin: Admin,
    logs: LogOffsetReader,
    found: Sequence[LogIdentity],
    tails: Tails,
) -> tuple[SeenTopic, ...]:
    names = sorted({log.topic for log in found})
    described, configs = admin.topics(), admin.topic_configs(names)
    ends = logs.offsets(found, LATEST, "read_committed")
    marks = logs.offsets(found, LATEST, "read_uncommitted")
    starts = logs.offsets(found, EARLIEST, "read_uncommitted")
    epochs = _find_epoch_ends(settings, logs, found, tails)
    return tuple(
        SeenTopic(
            name,
            next(log.topic_id for log in found if log.topic == name),
            described[name].replication_factor if name in described else 1,
            configs[name],
            tuple(
                SeenPartition(log.partition, starts[log], ends[log], max(marks[log], ends[log]), epochs.get(log, -1))
                for log in found
                if log.topic == name
            ),
        )
        for name in names
    )


def _find_epoch_ends(
    settings: ConnectionSettings, logs: LogOffsetReader, found: Sequence[LogIdentity], tails: Tails
) -> dict[LogIdentity, int]:
    """Where the leaders' logs end the leader epochs of the last archived batches (KIP-320)."""
    ends: dict[LogIdentity, int] = {}
    with BrokerPool[Connection](lambda address: open_connection(settings, address)) as pool:
        for log in found:
            tail = tails.get((log.topic, log.partition), PartitionTail(0, 0))
            if tail.leader_epoch < 0:
                continue
            leader = pool.get(logs.leader(log.topic, log.partition))
            error, end = leader.end_of_epoch(log.topic, log.partition, tail.leader_epoch)
            if error not in error_codes.REINSPECT_CODES:
                leader.check(error, f"asking where {log} ends leader epoch {tail.leader_epoch}")
                ends[log] = end
    return ends


def _read_positions(settings: ConnectionSettings, topics: TopicSelection) -> tuple[list[ArchivedPosition], list[str]]:
    """(what groups have committed for these topics, groups that cannot be read and why)."""
    with GroupOffsets(settings) as groups:
        listed = [each.id for each in groups.listed().values() if each.type in _REACHABLE_GROUP_TYPES]
        held = groups.held(listed)
    found: list[ArchivedPosition] = []
    unread: list[str] = []
    for name, committed in sorted(held.items()):
        if committed.error:
            unread.append(f"{name}: {committed.error}")
        unsettled = sorted(place for place in committed.unstable if topics.selects(place.topic))
        if unsettled:
            unread.append(f"{name}: a transaction with its position of {unsettled[0]} is open; run it again later")
        found += [
            ArchivedPosition(name, place.topic, place.partition, position.offset, position.metadata)
            for place, position in committed.positions.items()
            if topics.selects(place.topic)
        ]
    return found, unread


def _read_schemas(registry: RegistrySettings, topics: set[str]) -> list[ArchivedSchema]:
    """All versions of the subjects that are called after these topics, and the versions that those refer to. Raises
    ClusterError."""
    found: dict[tuple[str, int], ArchivedSchema] = {}
    with RegistryClient(registry) as client:
        waiting = [
            each
            for subject in client.subjects()
            if parse_subject(subject).topic in topics
            for each in client.history(subject)
            if not each.deleted
        ]
        while waiting:
            each = waiting.pop()
            if (each.subject, each.version) in found:
                continue
            references = each.schema.references
            found[each.subject, each.version] = ArchivedSchema(
                each.subject,
                each.version,
                each.id,
                each.schema.type,
                each.schema.text,
                tuple((other.name, other.subject, other.version) for other in references),
            )
            named = [client.version(other.subject, other.version) for other in references]
            waiting += [other for other in named if other is not None]
    return list(found.values())
