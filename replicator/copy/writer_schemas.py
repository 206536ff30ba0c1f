"""Schemas of records that a flow opens on their way (`transform` with `format: avro` or `protobuf`).

What opens records asks nobody: it is given what is known, and names the ids that lack. These are asked for here, each
once, and the records wait so long. Where the flow translates ids (`replicator.copy.schema_ids`), an id without a
counterpart at the target is missed like that of any flow.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from watershed.clusters.registry.client import RegistryClient
from watershed.clusters.registry.record_schemas import (
    RecordSchemas,
    SideSchemas,
    UnknownSchema,
    WriterSchema,
    read_writer_schema,
)
from watershed.clusters.registry.registry_settings import resolve_registry_settings
from watershed.clusters.registry.subject_names import SUBJECT_SIDES, SubjectSide
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.copy.schema_ids import FlowSchemaIds, SchemaIdTranslations
from watershed.replicator.partition_key import PartitionKey
from watershed.topology.plan import PlanFlow

_ABSENT_S: Final = 60.0  # until an id that the registry did not have is asked for again

_Place = tuple[str, SubjectSide]  # of a topic of the source


@dataclass(slots=True)
class FlowWriterSchemas:
    """What is known for one flow. The thread that transforms reads it and asks."""

    flow: PlanFlow
    source: ConnectionSettings
    ids: FlowSchemaIds | None = None  # where ids are translated
    _writers: dict[int, WriterSchema] = field(default_factory=dict)
    _absent: dict[int, tuple[str, float]] = field(default_factory=dict)  # id → why, until when that is believed
    _seen: dict[_Place, set[int]] = field(default_factory=lambda: defaultdict(set))
    _plain: dict[_Place, set[int]] = field(default_factory=lambda: defaultdict(set))  # ids that are those of no subject

    def list_known(self, topic: str) -> RecordSchemas:
        """Of the ids that were seen in this topic."""
        return RecordSchemas(*(self._list_side(topic, side) for side in SUBJECT_SIDES))

    def learn(self, key: PartitionKey, unknown: Iterable[UnknownSchema], offset: int) -> str:
        """Ask the registries for ids in records behind this source offset. Returns why the partition has to wait, or
        "". Raises ClusterError."""
        wanted = list(unknown)
        self._read_writers(key.topic, wanted)
        waiting = [why for each in wanted if (why := self._learn_target(key, each, offset))]
        return waiting[0] if waiting else ""

    def settle(self, topic: str) -> None:
        """A part of the topic is through: whether an id is of no subject is asked anew for the next one."""
        for side in SUBJECT_SIDES:
            self._plain.pop((topic, side), None)

    def _list_side(self, topic: str, side: SubjectSide) -> SideSchemas:
        seen = self._seen.get((topic, side), set())
        absent = {id: why for id in seen if (why := self._explain_absence(id))}
        writers = {id: self._writers[id] for id in seen if id in self._writers}
        return SideSchemas(writers, absent, self._find_targets(topic, side))

    def _explain_absence(self, id: int) -> str:
        why, until = self._absent.get(id, ("", 0.0))
        return why if until > time.monotonic() else ""

    def _find_targets(self, topic: str, side: SubjectSide) -> Mapping[int, int] | None:
        known = None if self.ids is None else self.ids.find_known(topic)
        if self.ids is None:
            return None
        ids = None if known is None else known.side(side)
        plain = {id: id for id in self._plain.get((topic, side), ())}
        if ids is not None:
            return {**ids.ids, **plain}
        return plain if side == "value" or side in self._opened else None  # the bytes of a plain key look like an id

    @property
    def _opened(self) -> tuple[str, ...]:
        return self.flow.transform.registry_sides if self.flow.transform is not None else ()

    def _read_writers(self, topic: str, unknown: Iterable[UnknownSchema]) -> None:
        wanted = [each for each in unknown if each.side in self._opened]
        asked = {each.id for each in wanted} - self._writers.keys()
        if asked:
            with RegistryClient(resolve_registry_settings(self.source)) as registry:
                for id in sorted(asked):
                    found = read_writer_schema(registry, id)
                    if isinstance(found, str):
                        self._absent[id] = (found, time.monotonic() + _ABSENT_S)
                    else:
                        self._writers[id] = found
        for each in wanted:
            self._seen[topic, each.side].add(each.id)

    def _learn_target(self, key: PartitionKey, unknown: UnknownSchema, offset: int) -> str:
        side, id = unknown
        if self.ids is None or (side in self._opened and self._explain_absence(id)):
            return ""
        targets = self._find_targets(key.topic, side)
        if targets is None or id in targets:
            return ""
        known = self.ids.find_known(key.topic)
        if known is not None and known.side(side) is None and not self.ids.is_registered(key, side):
            self._plain[key.topic, side].add(id)
            return ""
        self.ids.miss(key, side, id, offset)
        return self.ids.ask([key]).get(key, "")


@dataclass(slots=True)
class WriterSchemas:
    """Those of all flows of a worker."""

    translations: SchemaIdTranslations
    _flows: dict[str, FlowWriterSchemas] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def find(self, flow: PlanFlow, source: ConnectionSettings) -> FlowWriterSchemas | None:
        """None: nobody looks at the ids in this flow's records."""
        if flow.transform is None or not (flow.transform.registry_sides or flow.sync.schemas.translated):
            return None
        with self._lock:
            if flow.id not in self._flows:
                ids = self.translations.find_ids(flow, source)
                self._flows[flow.id] = FlowWriterSchemas(flow, source, ids)
            return self._flows[flow.id]

    def forget(self, flow_id: str) -> None:
        """The flow's content changed: everything is asked anew."""
        with self._lock:
            self._flows.pop(flow_id, None)
