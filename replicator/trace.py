"""From a record on any cluster back to its birth. No header is needed, only the batch that the record stands in.

The batch's header names its producer for ever, also after compaction, which keeps producer id, sequence and offset
range of the batches that it retains. The registry of the cluster says which flow that id writes for, the flow's map in
the ledger says which source offset stands here, and on the source it begins again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from watershed.clusters.alignment_records import read_alignments
from watershed.clusters.control_topics import compute_slot
from watershed.clusters.errors import ClusterError
from watershed.clusters.flow_records import FlowRecord, read_flows
from watershed.clusters.producer_registry import ProducerRecord, read_producers
from watershed.clusters.settings import SettingsLookup
from watershed.clusters.wire.connection import open_connection
from watershed.replicator.batch.header_rewrite import SEQUENCE_SPACE
from watershed.replicator.batch.record_batch import RawBatch
from watershed.replicator.batch_at_offset import BatchAtOffset, NoRecordAtOffset, read_batch_at
from watershed.replicator.errors import ReplicatorError
from watershed.replicator.ledger.foreign_part import JoinedOffsetMap
from watershed.replicator.ledger.ledger import Ledger, read_ledger
from watershed.replicator.recovery.recovery_point import is_same_topic

_MAX_HOPS = 64
_ADOPTED = "adopted"  # the kind of a hop that another tool copied, and a flow went on behind


@dataclass(frozen=True, slots=True)
class TraceHop:
    """A record on one cluster. producer_id: -1 for none. timestamp: the newest of its batch, ms. flow: which brought it
    here, None where it was born; kind: how that flow wrote it; path: the cluster ids that its producer id tells."""

    cluster: str
    cluster_id: str
    topic: str
    partition: int
    offset: int
    producer_id: int
    timestamp: int
    flow: str | None = None
    kind: str | None = None
    path: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class RecordTrace:
    """The hops, the asked one first. born: the last of them is the birth place; why: else, why the trail ends there."""

    hops: tuple[TraceHop, ...]
    born: bool
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """The trace as `trace --json` shows it (schema 1)."""
        hops = [asdict(hop) | {"path": list(hop.path)} for hop in self.hops]
        return {"schema": 1, "born": self.born, "why": self.why, "hops": hops}


class _Came(NamedTuple):
    """Where a record was copied from, by the ledger."""

    topic: str
    offset: int
    topic_id: uuid.UUID


class _Ends(Exception):
    """Why nothing is known of what was before."""


def trace_record(
    aliases: Iterable[str], connect_to: SettingsLookup, alias: str, topic: str, partition: int, offset: int
) -> RecordTrace:
    """Follow the record at `offset` of a topic of cluster `alias` to where it was written. aliases: all clusters that
    may be looked at, among them `alias`.

    Raises NoRecordAtOffset when no record is at that offset, ClusterError when that cluster cannot be read.
    """
    clusters = _Clusters(tuple(aliases), connect_to)
    hops: list[TraceHop] = []
    came: _Came | None = None
    while len(hops) < _MAX_HOPS:
        try:
            here = read_batch_at(connect_to(alias), topic, partition, offset)
            _require_same_topic(here, came, alias, offset)
        except (NoRecordAtOffset, ClusterError) as error:
            if not hops:
                raise
            return _ended(hops, str(error))
        hop, producer, record = clusters.hop(alias, topic, partition, offset, here)
        hops.append(hop)
        try:
            if producer is None:
                adopted = clusters.adopted(alias, hop, here)
                if adopted is None:
                    return RecordTrace(tuple(hops), True)
                record, came, note = adopted
                hops[-1] = replace(hop, flow=record.flow.id, kind=_ADOPTED, note=_joined(hop.note, note))
                alias = clusters.alias_of(record.source_cluster_id or "", record.flow.source)
                topic, offset = came.topic, came.offset
                continue
            came, note = clusters.before(alias, hop, producer, record, here)
            hops[-1] = replace(hop, note=_joined(hop.note, note))
            alias = clusters.alias_of(producer.path[-1], record.flow.source if record is not None else None)
        except (_Ends, ReplicatorError, ClusterError) as error:
            return _ended(hops, str(error))
        topic, offset = came.topic, came.offset
    return _ended(hops, f"it was followed over {_MAX_HOPS} flows")


def _require_same_topic(here: BatchAtOffset, came: _Came | None, alias: str, offset: int) -> None:
    """Whether what stands here is what was asked for, or copied. Raises NoRecordAtOffset."""
    if came is None and not here.retained:
        raise NoRecordAtOffset(f"offset {offset} on {alias} was compacted away: a newer record has its key")
    if came is not None and not is_same_topic(came.topic_id, here.led.topic_id):
        raise NoRecordAtOffset(f"topic {came.topic} on {alias} was deleted and created again since it was copied")


def _ended(hops: list[TraceHop], why: str) -> RecordTrace:
    path = hops[-1].path
    text = f"; its producer id tells that it was born on cluster {path[0]}" if len(path) > 1 else ""
    return RecordTrace(tuple(hops), False, why + text)


@dataclass(slots=True)
class _Clusters:
    """The clusters that may be looked at, with what was read of them once."""

    aliases: tuple[str, ...]
    connect_to: SettingsLookup
    _ids: dict[str, str] = field(default_factory=dict)
    _flows: dict[str, dict[str, FlowRecord]] = field(default_factory=dict)
    _producers: dict[str, dict[int, ProducerRecord]] = field(default_factory=dict)

    def hop(
        self, alias: str, topic: str, partition: int, offset: int, here: BatchAtOffset
    ) -> tuple[TraceHop, ProducerRecord | None, FlowRecord | None]:
        """The record as it stands here, and who brought it: (None, None) for an application."""
        batch = here.batch
        hop = TraceHop(
            cluster=alias,
            cluster_id=self.id_of(alias),
            topic=topic,
            partition=partition,
            offset=offset,
            producer_id=batch.producer_id,
            timestamp=batch.max_timestamp,
            note="" if here.retained else "the record itself was compacted away here; its batch is still there",
        )
        producer, record = self._brought_by(alias, batch.producer_id)
        if producer is None:
            return hop, None, None
        return replace(hop, flow=producer.flow, kind=producer.kind, path=producer.path), producer, record

    def before(
        self, alias: str, hop: TraceHop, producer: ProducerRecord, record: FlowRecord | None, here: BatchAtOffset
    ) -> tuple[_Came, str]:
        """Where the record was copied from, and what is strange about it. Raises _Ends, and what the ledger raises."""
        settings = self.connect_to(alias)
        source_topic = record.flow.source_topic(hop.topic) if record is not None else None
        slots = None if source_topic is None else [compute_slot(producer.flow, source_topic, hop.partition)]
        ledger = read_ledger(settings, flow=producer.flow, slots=slots)
        for key, (offsets, (source_id, target_id)) in ledger.copies().items():
            if (key.target_topic, key.partition) != (hop.topic, hop.partition):
                continue
            if not is_same_topic(target_id, here.led.topic_id):
                continue
            offset = offsets.to_source(hop.offset)
            if offsets.to_target(offset, here.led.end) != hop.offset:
                raise _Ends(f"the ledger of {alias} holds no source offset for it, only for its neighbours")
            decided = read_alignments(settings).get((producer.flow, key.topic))
            aligned = decided is not None and decided.mode == "aligned"
            return _Came(key.topic, offset, source_id), _out_of_place(ledger, producer, here.batch, hop, aligned)
        raise _Ends(f"the ledger of {alias} knows nothing of {hop.topic}-{hop.partition} by flow {producer.flow}")

    def adopted(self, alias: str, hop: TraceHop, here: BatchAtOffset) -> tuple[FlowRecord, _Came, str] | None:
        """Which flow went on behind what another tool copied here, and where the record came from; None where no flow
        did. Raises _Ends for a record that the tool brought and that could not be proven, and what the ledger raises.
        """
        flows, _ = self._registry(alias)
        for record in flows.values():
            source_topic = record.flow.source_topic(hop.topic)
            if source_topic is None:
                continue
            slot = compute_slot(record.flow.id, source_topic, hop.partition)
            ledger = read_ledger(self.connect_to(alias), flow=record.flow.id, slots=[slot])
            for key, (offsets, (source_id, target_id)) in ledger.copies().items():
                is_place = (key.topic, key.partition) == (source_topic, hop.partition)
                if not is_place or not is_same_topic(target_id, here.led.topic_id):
                    continue
                if not isinstance(offsets, JoinedOffsetMap) or hop.offset >= offsets.base:
                    continue
                note = f"copied by {offsets.tool}, before {record.flow.id} went on behind it"
                if not any(first <= hop.offset < first + many for first, _, many in offsets.front.counted):
                    raise _Ends(
                        f"{note}; it is none of those that its proof counts (a duplicate, or none of the source's)"
                    )
                return record, _Came(key.topic, offsets.to_source(hop.offset), source_id), note
        return None

    def alias_of(self, cluster_id: str, hint: str | None) -> str:
        """The alias of a cluster among those that may be looked at. Raises _Ends."""
        silent = []
        for alias in sorted(self.aliases, key=lambda each: (each != hint, each)):
            try:
                if self.id_of(alias) == cluster_id:
                    return alias
            except ClusterError:
                silent.append(alias)
        without = f" (no answer from {', '.join(silent)})" if silent else ""
        raise _Ends(f"it came from cluster {cluster_id}, which is not in this topology{without}")

    def id_of(self, alias: str) -> str:
        if alias not in self._ids:
            with closing(open_connection(self.connect_to(alias))) as connection:
                self._ids[alias] = connection.metadata(()).cluster_id
        return self._ids[alias]

    def _brought_by(self, alias: str, producer_id: int) -> tuple[ProducerRecord | None, FlowRecord | None]:
        if producer_id < 0:
            return None, None
        flows, producers = self._registry(alias)
        producer = producers.get(producer_id) or _from_flow(flows, producer_id)
        return producer, None if producer is None else flows.get(producer.flow)

    def _registry(self, alias: str) -> tuple[dict[str, FlowRecord], dict[int, ProducerRecord]]:
        if alias not in self._flows:
            settings = self.connect_to(alias)
            self._flows[alias], self._producers[alias] = read_flows(settings), read_producers(settings)
        return self._flows[alias], self._producers[alias]


def _joined(*notes: str) -> str:
    return "; ".join(filter(None, notes))


def _from_flow(flows: dict[str, FlowRecord], producer_id: int) -> ProducerRecord | None:
    """Of a flow that was applied before there was a registry."""
    for flow_id, record in flows.items():
        if record.producer_id == producer_id and record.source_cluster_id is not None:
            return ProducerRecord(producer_id, flow_id, (record.source_cluster_id,), "sequence", record.topology)
    return None


def _out_of_place(ledger: Ledger, producer: ProducerRecord, batch: RawBatch, hop: TraceHop, aligned: bool) -> str:
    """Whether the batch's sequence number says another place than the ledger (only by sequence numbers). aligned: what
    the source has no records for takes offsets and no sequence numbers, so it may lag behind."""
    for key, (remembered, _) in ledger.partitions.items():
        identity = remembered.identity
        mine = (key.flow, key.target_topic, key.partition) == (producer.flow, hop.topic, hop.partition)
        same = (identity.producer_id, identity.epoch) == (batch.producer_id, batch.producer_epoch)
        gaps = (identity.sequence(batch.base) - batch.base_sequence) % SEQUENCE_SPACE
        if mine and same and gaps > (batch.base - identity.base if aligned else 0):
            return "its sequence number belongs elsewhere: prove the topic with `topology verify`"
    return ""
