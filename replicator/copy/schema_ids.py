"""Ids of schemas in front of keys and values, rewritten on the way (`sync: {schemas: {ids: translate}}`).

The inspections ask the registries (`SchemaIdTranslations.ask`), the threads only read what is known: an id without a
counterpart at the target ends the copying of its partition in front of its batch, and the inspections come back to it
until there is one. Lengths stay, so offsets, counts and sequence numbers are those of a copy without translation,
whoever makes it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from watershed.clusters.registry.client import RegistryClient
from watershed.clusters.registry.registry_settings import resolve_registry_settings
from watershed.clusters.registry.schema_id_translation import (
    SCHEMA_ID_MAGIC,
    SCHEMA_ID_PREFIX_BYTES,
    TopicSchemaIds,
    read_schema_ids,
)
from watershed.clusters.registry.subject_names import SubjectSide, build_subject
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.varints import decode_zigzag
from watershed.replicator.batch.records import RawRecord
from watershed.replicator.errors import SchemaMissing
from watershed.replicator.partition_key import PartitionKey
from watershed.topology.plan import PlanFlow

_UNKNOWN: Final = TopicSchemaIds()


@dataclass(slots=True)
class SchemaIdCounts:
    """Counts records of one active copy. plain: values without magic byte and id; null: tombstones."""

    rewritten: int = 0
    plain: int = 0
    null: int = 0

    def __str__(self) -> str:
        left = [(self.plain, "without a schema id"), (self.null, "without a value")]
        texts = [f"{count} records {what}" for count, what in left if count]
        return f"schema ids: {' and '.join(texts)} passed as they are" if texts else ""


@dataclass(slots=True)
class FlowSchemaIds:
    """Schema id tables of one flow. Fetchers of several brokers read them; inspections write them."""

    flow: PlanFlow
    source: ConnectionSettings
    target: ConnectionSettings
    _topics: dict[str, TopicSchemaIds] = field(default_factory=dict)
    _missed: dict[PartitionKey, tuple[SubjectSide, int]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, str]:
        """Ask for topics that are new, or of which a partition waits. Returns why partitions wait still.

        Raises ClusterError when a registry does not answer."""
        wanted = list(keys)
        topics = {key.topic for key in wanted if key.topic not in self._topics or key in self._missed}
        if topics:
            found = read_schema_ids(self.flow, self.source, self.target, topics)
            with self._lock:
                self._topics |= found
        waiting: dict[PartitionKey, str] = {}
        for key in wanted:
            missed = self._missed.get(key)
            if missed is None:
                continue
            why = self._explain_unknown_id(key.topic, *missed)
            if why:
                waiting[key] = why
            else:
                with self._lock:
                    self._missed.pop(key, None)
        return waiting

    def find_known(self, topic: str) -> TopicSchemaIds | None:
        """What the registries said when they were asked last; None: nobody has asked."""
        return self._topics.get(topic)

    def changes(self, key: PartitionKey, counted: SchemaIdCounts) -> Callable[[], Callable[[RawRecord], RawRecord]]:
        """What makes, for every answer of a Fetch, the function that rewrites its records."""

        def of_answer() -> Callable[[RawRecord], RawRecord]:
            known = self._topics.get(key.topic)
            sides: tuple[SubjectSide, SubjectSide] = ("key", "value")
            ids = [None if known is None or (side := known.side(each)) is None else side.ids for each in sides]
            return _Rewriting(self, key, counted, known, ids[0], ids[1]).record

        return of_answer

    def miss(self, key: PartitionKey, side: SubjectSide, id: int, offset: int) -> SchemaMissing:
        """An id that has no counterpart yet: what the partition waits for from now on."""
        with self._lock:
            self._missed[key] = (side, id)
        return SchemaMissing(self._explain_unknown_id(key.topic, side, id) or f"schema id {id} is asked for", offset)

    def is_registered(self, key: PartitionKey, side: SubjectSide) -> bool:
        """Asked now: whether the source has a subject for that side after all. Raises ClusterError."""
        with RegistryClient(resolve_registry_settings(self.source)) as source:
            there = bool(source.versions(build_subject(key.topic, side), deleted=True))
        if there:
            with self._lock:
                self._topics.pop(key.topic, None)
        return there

    def _explain_unknown_id(self, topic: str, side: SubjectSide, id: int) -> str:
        known = self._topics.get(topic)
        if known is None:
            return f"schema id {id} of {build_subject(topic, side)} is asked for"
        ids = known.side(side)
        if ids is None or id in ids.ids:
            return ""
        nowhere = f"schema id {id}, in a {side} of topic {topic}, is of no subject that this flow carries"
        return ids.waiting.get(id, f"{nowhere} ({ids.subject}, or one that sync.schemas.include names)")


@dataclass(slots=True)
class _Rewriting:
    """Rewrites the records of one Fetch answer.

    A side (key or value) without a subject at the source is copied unchanged. Before that, the source registry is asked
    once more: a producer registers a subject before its first record, so the registry's answer covers these records.
    """

    owner: FlowSchemaIds
    key: PartitionKey
    counted: SchemaIdCounts
    known: TopicSchemaIds | None
    keys: Mapping[int, int] | None
    values: Mapping[int, int] | None
    _free: set[SubjectSide] = field(default_factory=set)

    def record(self, record: RawRecord) -> RawRecord:
        """Raises SchemaMissing, with the record's source offset; ClusterError."""
        rest = record.rest
        size, at = rest[0], 1
        if size < 0x80:  # as good as always; a call costs as much as the rest of this
            size = (size >> 1) ^ -(size & 1)
        else:
            size, at = decode_zigzag(rest, 0)
        if size >= SCHEMA_ID_PREFIX_BYTES and rest[at] == SCHEMA_ID_MAGIC and self.keys is not None:
            rest = self._with(rest, at + 1, "key", self.keys, record.offset)
        at += max(size, 0)
        size = rest[at]
        if size < 0x80:
            size, at = (size >> 1) ^ -(size & 1), at + 1
        else:
            size, at = decode_zigzag(rest, at)
        if size >= SCHEMA_ID_PREFIX_BYTES and rest[at] == SCHEMA_ID_MAGIC:
            if self.values is not None:
                rest = self._with(rest, at + 1, "value", self.values, record.offset)
            elif not self._stays("value"):
                id = int.from_bytes(rest[at + 1 : at + SCHEMA_ID_PREFIX_BYTES], "big")
                raise self.owner.miss(self.key, "value", id, record.offset)
            else:
                self.counted.plain += 1
        elif size < 0:
            self.counted.null += 1
        else:
            self.counted.plain += 1
        return record if rest is record.rest else RawRecord(record.offset, record.timestamp, rest)

    def _with(self, rest: bytes, at: int, side: SubjectSide, ids: Mapping[int, int], offset: int) -> bytes:
        id = int.from_bytes(rest[at : at + 4], "big")
        new = ids.get(id)
        if new is None:
            raise self.owner.miss(self.key, side, id, offset)
        self.counted.rewritten += 1
        return rest if new == id else rest[:at] + new.to_bytes(4, "big") + rest[at + 4 :]

    def _stays(self, side: SubjectSide) -> bool:
        if side not in self._free and self.known is not None and not self.owner.is_registered(self.key, side):
            self._free.add(side)
        return side in self._free


@dataclass(slots=True)
class SchemaIdTranslations:
    """Schema id tables of all flows of a worker. Inspections ask the registries in their pool; the worker's thread
    makes the active copies."""

    target: ConnectionSettings
    _flows: dict[str, FlowSchemaIds] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, flow: PlanFlow, source: ConnectionSettings, keys: Iterable[PartitionKey]) -> dict[PartitionKey, str]:
        """Which of these partitions wait for a schema, and for which. Raises ClusterError."""
        return self._of(flow, source).ask(keys) if flow.sync.schemas.translated else {}

    def changes(
        self, flow: PlanFlow, source: ConnectionSettings, key: PartitionKey, counted: SchemaIdCounts
    ) -> Callable[[], Callable[[RawRecord], RawRecord]] | None:
        """For `RepackTerms.change`: None where records travel as they are."""
        return self._of(flow, source).changes(key, counted) if flow.sync.schemas.translated else None

    def find_ids(self, flow: PlanFlow, source: ConnectionSettings) -> FlowSchemaIds | None:
        """The tables of the flow; None where records keep their ids."""
        return self._of(flow, source) if flow.sync.schemas.translated else None

    def forget(self, flow_id: str) -> None:
        """The flow's content changed: everything is asked anew."""
        with self._lock:
            self._flows.pop(flow_id, None)

    def _of(self, flow: PlanFlow, source: ConnectionSettings) -> FlowSchemaIds:
        with self._lock:
            return self._flows.setdefault(flow.id, FlowSchemaIds(flow, source, self.target))
