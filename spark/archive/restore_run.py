"""A run of `topology restore`: check the archive, look at the target, write records, then configs and positions.

Nothing is written to the target before every object was compared with the manifest and every topic was looked at. What
a killed run left is found in the logs: a topic that holds the beginning of the archive is gone on with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from watershed.clusters.admin import Admin
from watershed.clusters.registry.registry_settings import RegistrySettings
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire.connection import Connection, open_connection
from watershed.replicator.copy.aligned.cluster_probe import AlignmentSupport, probe_alignment_support
from watershed.replicator.copy.aligned.filling_configs import (
    apply_filling_configs,
    build_filling_configs,
    restore_topic_configs,
)
from watershed.replicator.copy.aligned.target_log import TargetLog, build_deleter_connect
from watershed.replicator.copy.transactions.slot_sender import read_transaction_version
from watershed.replicator.limits import DEFAULT_MAX_BATCH_BYTES
from watershed.replicator.recovery.log_inspection import BrokerAddress
from watershed.replicator.topic_mapping import read_target_limits
from watershed.spark.archive.archive_reader import find_faults, require_manifest
from watershed.spark.archive.group_restore import PositionOutcome, WantedPosition, restore_positions
from watershed.spark.archive.manifest import ArchivedTopic, ArchiveManifest
from watershed.spark.archive.offset_mapping import RestoredOffsets, read_restored_offsets, write_restored_offsets
from watershed.spark.archive.partition_restore import RESTORE_FLOW, PartitionRestore, TargetTerms
from watershed.spark.archive.restore_plan import (
    RestoredTopic,
    RestoreMode,
    build_filled_configs,
    choose_wanted_configs,
    explain_unusable_log,
    explain_unusable_topic,
    select_archived_topics,
)
from watershed.spark.archive.restore_producer import require_producers_told, wait_for_quiet_logs
from watershed.spark.archive.schema_restore import (
    SchemaOutcome,
    explain_schemas_without_registry,
    plan_schemas,
    restore_schemas,
)
from watershed.spark.archive.storage import ArchiveStorage
from watershed.spark.errors import ArchiveDamaged, NotRestorable
from watershed.topology.selectors import TopicSelection
from watershed.topology.target_configs import find_withdrawn_configs

OffsetsChoice = Literal["auto", "equal", "mapped"]
_AT_ONCE: Final = 4  # partitions
_FAR: Final = 1 << 62  # behind every offset
_EXPIRATION: Final = "producer.id.expiration.ms"


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """topics: None for all of the archive. renames: as of `select_archived_topics`. map_file: where the map of offsets
    is written, where they are not equal. registry: the target's, None: the file declares none. has_schemas: archived
    schemas are brought, too."""

    topics: TopicSelection | None
    renames: tuple[str, ...]
    offsets: OffsetsChoice
    map_file: Path
    registry: RegistrySettings | None = None
    has_schemas: bool = True


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """What a restore would do. why_mapped: why offsets cannot be equal, "" where they are. schemas: what becomes of
    those that are archived."""

    manifest: ArchiveManifest
    topics: tuple[RestoredTopic, ...]
    existing: frozenset[str]
    mode: RestoreMode
    why_mapped: str
    support: AlignmentSupport
    schemas: SchemaOutcome


@dataclass(frozen=True, slots=True)
class RestoreOutcome:
    """ends: where the log of each partition ends now, by target topic and partition."""

    plan: RestorePlan
    ends: Mapping[TopicPartition, int]
    positions: tuple[PositionOutcome, ...]
    schemas: SchemaOutcome


def plan_restore(
    settings: ConnectionSettings, storage: ArchiveStorage, request: RestoreRequest, admin: Admin
) -> RestorePlan:
    """Checks every object of the chosen topics, then looks at the target. Writes to no topic but `watershed.probe`, on
    which it tries whether offsets can be equal.

    Raises ArchiveDamaged, WrongUse, NotRestorable, ClusterError.
    """
    manifest = require_manifest(storage)
    named = select_archived_topics(manifest, request.topics, request.renames)
    chosen = {topic.name for topic, _ in named}
    if faults := find_faults(storage, [each for each in manifest.objects if each.topic in chosen]):
        raise ArchiveDamaged(faults)
    require_producers_told(lambda address: open_connection(settings, address), settings.alias)
    support = _find_support(settings, admin, request.offsets)
    mode: RestoreMode = "mapped" if request.offsets == "mapped" or not _is_alignable(support) else "equal"
    why = "" if mode == "equal" else support.fills or support.transactions
    if request.offsets == "equal" and why:
        raise NotRestorable(
            f"offsets cannot be equal on cluster {settings.alias}: {why}. --offsets mapped does without"
        )
    there = admin.topics()
    restored = tuple(_plan_topic(manifest, topic, target, admin) for topic, target in named)
    refused = [
        why_not
        for each in restored
        if each.target in there and (why_not := explain_unusable_topic(each.archived, there[each.target]))
    ]
    if refused:
        raise NotRestorable("\n".join(refused))
    existing = frozenset(each.target for each in restored if each.target in there)
    schemas = _bring_schemas(settings, request, manifest, [topic.name for topic, _ in named], plan_schemas)
    return RestorePlan(manifest, restored, existing, mode, why, support, schemas)


def restore_topics(
    settings: ConnectionSettings,
    storage: ArchiveStorage,
    request: RestoreRequest,
    report: Callable[[str], None] = lambda _: None,
) -> RestoreOutcome:
    """Brings schemas to the registry and the chosen topics to the archive's end, then commits positions of groups.

    Raises as `plan_restore`, and Unwritable for the map of offsets.
    """
    with Admin(settings) as admin:
        admin.check_identity()
        plan = plan_restore(settings, storage, request, admin)
        known = read_restored_offsets(request.map_file) if plan.mode == "mapped" else {}
        with closing(_RunningRestore(settings, storage, plan, admin, known, report)) as running:
            running.check_existing()
            names = [topic.archived.name for topic in plan.topics]
            schemas = _bring_schemas(settings, request, plan.manifest, names, restore_schemas)
            running.prepare_topics()
            ends = running.write()
            maps = running.build_maps()
        if plan.mode == "mapped":
            write_restored_offsets(request.map_file, admin.cluster_id(), maps.values())
        for topic in plan.topics:
            restore_topic_configs(admin, topic.target, topic.wanted, topic.meanwhile)
    positions = restore_positions(settings, _list_positions(plan, maps))
    return RestoreOutcome(plan, ends, tuple(positions), schemas)


class _RunningRestore:
    """The partitions of one run, each with its log at the target. Close it when done."""

    def __init__(
        self,
        settings: ConnectionSettings,
        storage: ArchiveStorage,
        plan: RestorePlan,
        admin: Admin,
        known: Mapping[tuple[str, int], RestoredOffsets],
        report: Callable[[str], None],
    ) -> None:
        self._settings, self._storage, self._plan, self._admin = settings, storage, plan, admin
        self._known, self._report = known, report
        self._objects = plan.manifest.group_objects()
        self._parts: dict[tuple[str, int], PartitionRestore] = {}  # by topic of the archive and partition

    def close(self) -> None:
        """Closes the connections of all partitions."""
        for part in self._parts.values():
            part.log.close()

    def check_existing(self) -> None:
        """Raises NotRestorable, which names every log that holds something else than the archive, before any write."""
        existing = [topic for topic in self._plan.topics if topic.target in self._plan.existing]
        self._open(existing)
        is_equal = self._plan.mode == "equal"
        refused: list[str] = []
        for part in self._parts.values():
            log = part.log.range()
            name, archived = part.log.topic, part.archived
            why = explain_unusable_log(name, archived, log, self._plan.mode, part.records)
            if why := why or (part.check(log, is_equal=is_equal) if log.start < log.end else ""):
                refused.append(why)
        if refused:
            raise NotRestorable("\n".join(refused))

    def prepare_topics(self) -> None:
        """Creates what is missing, and gives what is there the configs that a restore needs, where something is still
        to be written. Raises NotRestorable."""
        for topic in self._plan.topics:
            if self._is_complete(topic):
                continue
            if topic.target not in self._plan.existing:
                replicas = min(topic.archived.replication_factor, self._admin.brokers())
                partitions = len(topic.archived.partitions)
                self._admin.create_topic(topic.target, partitions, replicas, topic.choose_create_configs())
            elif why := apply_filling_configs(self._admin, topic.target, topic.wanted, topic.meanwhile):
                raise NotRestorable(
                    f"{why.replace('the flow gives', 'the archive gives')}. Give it that, or rename (--rename)"
                )
        self._open(self._plan.topics)

    def write(self) -> dict[TopicPartition, int]:
        """Where each log ends once it holds the archive. Raises NotRestorable, ArchiveDamaged, ClusterError."""
        terms = self._find_terms()
        parts = list(self._parts.values())
        followed = [part.log for part in parts if part.may_be_followed(terms[part.log.topic])]
        wait_for_quiet_logs(followed, self._report)

        def run(part: PartitionRestore) -> int:
            end = part.run(terms[part.log.topic])
            self._report(f"{part.log.topic}-{part.log.partition}: {part.records:,} records, the log ends at {end}")
            return end

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            reached = list(pool.map(run, parts))
        places = [TopicPartition(part.log.topic, part.log.partition) for part in parts]
        return dict(zip(places, reached, strict=True))

    def build_maps(self) -> dict[tuple[str, int], RestoredOffsets]:
        """Where records stand without equal offsets; empty where offsets are equal."""
        if self._plan.mode == "equal":
            return {}
        found = {}
        for (topic, number), part in self._parts.items():
            offsets, end = part.find_offsets(0)
            found[topic, number] = RestoredOffsets(topic, number, part.log.topic, part.log.topic_id, end, offsets)
        return found

    def _is_complete(self, topic: RestoredTopic) -> bool:
        """Whether all logs of an existing topic hold the whole archive: then it is only looked at."""
        places = [(topic.archived.name, part.partition) for part in topic.archived.partitions]
        is_equal = self._plan.mode == "equal"
        return all(each in self._parts and self._parts[each].is_complete(is_equal=is_equal) for each in places)

    def _open(self, topics: Sequence[RestoredTopic]) -> None:
        described = self._admin.topics()
        deleting = build_deleter_connect(self._settings)
        for topic in topics:
            for archived in topic.archived.partitions:
                place = topic.archived.name, archived.partition
                if place in self._parts:
                    continue
                topic_id = described[topic.target].topic_id
                log = TargetLog(
                    self._connect, self._settings.alias, topic.target, topic_id, archived.partition, deleting
                )
                objects = self._objects.get(place, ())
                part = PartitionRestore(self._storage, objects, archived, self._settings, log, self._connect)
                self._parts[place] = part
                known = self._known.get(place)
                if self._plan.mode == "mapped":
                    is_ours = known is not None and known.target_id == topic_id
                    part.find_offsets(
                        known.offsets.runs[0].target if known is not None and is_ours else log.range().start
                    )

    def _find_terms(self) -> dict[str, TargetTerms]:
        support = self._plan.support
        expiration = self._admin.broker_config(_EXPIRATION)
        limits = read_target_limits(self._admin, [topic.target for topic in self._plan.topics])
        return {
            name: TargetTerms(
                support.gap_method if self._plan.mode == "equal" else None,
                support.bump,
                None if expiration is None else int(expiration),
                found,
            )
            for name, found in limits.items()
        }

    def _connect(self, address: BrokerAddress | None) -> Connection:
        return open_connection(self._settings, address)


def _plan_topic(manifest: ArchiveManifest, topic: ArchivedTopic, target: str, admin: Admin) -> RestoredTopic:
    replicas = min(topic.replication_factor, admin.brokers())
    wanted = choose_wanted_configs(topic, find_withdrawn_configs(topic.configs, admin.broker_config), replicas)
    largest = max((each.largest_batch for each in manifest.objects if each.topic == topic.name), default=0)
    most = int(admin.broker_config("message.max.bytes") or DEFAULT_MAX_BATCH_BYTES)
    filling = build_filling_configs(wanted, admin)
    meanwhile = build_filled_configs(wanted, filling, largest_batch=largest, broker_max_message=most)
    return RestoredTopic(topic, target, wanted, meanwhile)


def _bring_schemas(
    settings: ConnectionSettings,
    request: RestoreRequest,
    manifest: ArchiveManifest,
    topics: Sequence[str],
    bring: Callable[[RegistrySettings, ArchiveManifest, Sequence[str]], SchemaOutcome],
) -> SchemaOutcome:
    """`bring` is `plan_schemas` or `restore_schemas`. Raises ClusterError."""
    if not request.has_schemas or not manifest.schemas:
        return SchemaOutcome()
    if request.registry is None:
        return explain_schemas_without_registry(manifest, topics, settings.alias)
    return bring(request.registry, manifest, topics)


def _find_support(settings: ConnectionSettings, admin: Admin, offsets: OffsetsChoice) -> AlignmentSupport:
    version = read_transaction_version(settings)
    if offsets == "mapped":
        asked = "--offsets mapped"
        return AlignmentSupport(admin.cluster_id(), asked, asked, asked, version)
    deleting = build_deleter_connect(settings)
    return probe_alignment_support(
        admin, settings.alias, lambda address: open_connection(settings, address), RESTORE_FLOW, version, deleting
    )


def _is_alignable(support: AlignmentSupport) -> bool:
    return not support.fills and support.gap_method is not None


def _list_positions(plan: RestorePlan, maps: Mapping[tuple[str, int], RestoredOffsets]) -> list[WantedPosition]:
    """What groups had committed, at the offsets that the same records have at the target."""
    targets = {topic.archived.name: topic.target for topic in plan.topics}
    found = []
    for each in plan.manifest.positions:
        if each.topic not in targets:
            continue
        offset, mapped = each.offset, maps.get((each.topic, each.partition))
        if mapped is not None:
            offset = min(mapped.offsets.to_target(offset, _FAR), mapped.end)
        place = TopicPartition(targets[each.topic], each.partition)
        found.append(WantedPosition(each.group, place, offset, each.metadata))
    return found
