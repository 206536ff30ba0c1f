"""The partitions that are being copied: how a copy begins and ends, what the copies of a flow share."""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from threading import RLock

from watershed.clusters.admin import Admin
from watershed.clusters.claim_rules import ClaimedPartition
from watershed.clusters.control_topics import ControlWriter
from watershed.clusters.errors import ClusterError
from watershed.clusters.provenance_header import build_provenance_header
from watershed.clusters.settings import ConnectionSettings, SettingsLookup
from watershed.replicator.batch.provenance import ProvenanceWriter, RecordChange, chain_changes
from watershed.replicator.batch.repack import RepackTerms
from watershed.replicator.copy.aligned.aligned_copy import AlignedCopy
from watershed.replicator.copy.aligned.aligned_topic_choice import prepare_topic_for_filling
from watershed.replicator.copy.copy_state import Refusals, SourceCursor, TargetProgress
from watershed.replicator.copy.flow_latency import FlowLatencies
from watershed.replicator.copy.loop_guard import PartitionLoopGuard
from watershed.replicator.copy.partition_copy import PartitionCopy
from watershed.replicator.copy.quarantine import QuarantineWriter
from watershed.replicator.copy.repeatable_copy import RepeatableCopy
from watershed.replicator.copy.schema_ids import SchemaIdCounts, SchemaIdTranslations
from watershed.replicator.copy.sequenced_producer import SequencedProducer
from watershed.replicator.copy.transactions.open_transaction import SlotPartition
from watershed.replicator.copy.transactions.slot_sender import SlotSender
from watershed.replicator.copy.transactions.slot_takeover import TakenTransactionPartition, build_transaction_copy
from watershed.replicator.copy.writer_schemas import WriterSchemas
from watershed.replicator.copy_limit import CopyLimit
from watershed.replicator.ledger.leader_epochs import LeaderEpochEntry, find_leader_epoch_below
from watershed.replicator.ledger.ledger_writer import PartitionLedgerWriter
from watershed.replicator.ledger.offset_map import OffsetRun
from watershed.replicator.ledger.position_writer import PositionWriter
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.recovery.log_inspection import BrokerAddress
from watershed.replicator.recovery.operator_decisions import find_foreign_offsets_to_copy
from watershed.replicator.recovery.repeat_takeover import TakenRepeatablePartition
from watershed.replicator.recovery.takeover import LEADER_EPOCHS_KEPT, TakenPartition
from watershed.replicator.transport.active_copy import ActiveCopy
from watershed.replicator.transport.alignment_threads import AlignmentThreads
from watershed.replicator.transport.broker_threads import BrokerThreads, SourceBrokerThreads, TargetBrokerThreads
from watershed.replicator.transport.rate_limit import FlowRateLimits
from watershed.replicator.transport.transform_thread import TransformThread
from watershed.replicator.worker.loop_guards import LoopGuards
from watershed.replicator.worker.partition_task import PartitionTask
from watershed.replicator.worker.topic_discovery import TopicDiscovery

log = logging.getLogger("watershed.worker")

UNUSED_THREADS_S = 600.0  # connections of a broker without active copies end then
TRANSFORMED_BATCH_BYTES = 512 << 10  # of records, uncompressed, in a batch that was made anew
# What threads are for, which of several for the same broker, how it is reached, and where it listens.
_ThreadsKey = tuple[str, int, ConnectionSettings, BrokerAddress]
_BUDGET_BYTES = 128 << 20  # record batches in memory, whatever the partition count


@dataclass(slots=True)
class CopyRegistry:
    """later: runs a function outside any acknowledgement of `writer` (see `PartitionLedgerWriter`)."""

    target: ConnectionSettings
    connect: SettingsLookup
    writer: ControlWriter
    guards: LoopGuards
    expiration_ms: int
    later: Callable[[Callable[[], None]], None]
    discovery: TopicDiscovery
    latencies: FlowLatencies = field(default_factory=FlowLatencies)
    transforms: TransformThread | None = None  # of a worker that serves flows with `transform`, and no others
    _active_copies: dict[int, ActiveCopy] = field(default_factory=dict)
    _broker_threads: dict[_ThreadsKey, BrokerThreads] = field(default_factory=dict)
    _counted: Counter[str] = field(default_factory=Counter)  # by links that have ended
    # Fetchers hand partitions to the threads of other brokers: held while threads are found, given copies, or end.
    _threads_change: RLock = field(default_factory=RLock)
    _is_ended: bool = False
    rates: FlowRateLimits = field(default_factory=FlowRateLimits)
    schema_ids: SchemaIdTranslations = field(init=False)
    _writer_schemas: WriterSchemas = field(init=False)
    _quarantine: QuarantineWriter = field(init=False)
    _aligned: AlignmentThreads = field(init=False)
    _senders: dict[int, SlotSender] = field(default_factory=dict)  # of active copies that are written in transactions
    _positions: dict[int, PositionWriter] = field(default_factory=dict)  # of those that are written with repeats
    _refused: dict[PartitionKey, dict[int, str]] = field(default_factory=dict)  # records that targets did not take

    def __post_init__(self) -> None:
        self._quarantine = QuarantineWriter(self.target)
        self.schema_ids = SchemaIdTranslations(self.target)
        self._writer_schemas = WriterSchemas(self.schema_ids)
        self._aligned = AlignmentThreads.of(self.target)

    def start_copy(self, task: PartitionTask, taken: TakenPartition) -> None:
        """Begin to copy a partition with sequence numbers, or to fill its log first. Raises ClusterError."""
        decided = taken.resume
        refused, (end, before_ms) = self._still_refused(task.key, decided.position), _split_limit(task.limit)
        copy = (AlignedCopy if taken.aligned else PartitionCopy)(
            key=task.key,
            source_id=taken.source.topic_id,
            target_id=taken.target.topic_id,
            source=SourceCursor(
                decided.position,
                find_leader_epoch_below(taken.block.epochs, decided.position),
                list(taken.block.epochs),
                taken.last_batch,
                limit=task.limit,
            ),
            progress=TargetProgress(decided.target_end),
            refusals=Refusals(quarantine=task.record.flow.rejected == "quarantine"),
            producer=SequencedProducer(
                decided.numbering,
                decided.depth,
                decided.depth_confirmed,
                expiration_ms=self.expiration_ms,
                remembered_by=decided.newest,
                alone=decided.alone,
            ),
        )

        def durable(runs: list[OffsetRun]) -> None:
            copy.durable(runs)
            active.wake()

        def failed(error: ClusterError) -> None:
            copy.halt(f"the ledger could not be written: {error}")

        def epochs() -> tuple[LeaderEpochEntry, ...]:
            return tuple(copy.source.epochs[-LEADER_EPOCHS_KEPT:])

        ledger = PartitionLedgerWriter(
            self.writer, taken.block, durable, failed, self.later, epochs, lambda: copy.producer.needs_epoch
        )
        source, counted = self.connect(task.record.flow.source), SchemaIdCounts()
        guard = self._guard(task, source, taken.source.topic_id)
        active = ActiveCopy(
            copy=copy,
            ledger=ledger,
            rate=self.rates.of(task.key.flow, task.record.flow.quota),
            leave_out=guard,
            source=taken.source.leader,
            target=taken.target.leader,
            weight=task.record.flow.weight,
            terms=RepackTerms(
                self.discovery.limits_of(task.key.flow, task.key.target_topic),
                refused,
                isolate=copy.refusals.quarantine,
                takes_all_of=guard.takes_all_of,
                holes=lambda: copy.producer.alone,
                change=self._build_change(task, source, counted, guard),
                dense=taken.aligned,
                compression=task.record.flow.compression,
                end=end,
                before_ms=before_ms,
            ),
            quarantine=self._quarantine if copy.refusals.quarantine else None,
            counted=counted,
            latency=self.latencies.of(task.key.flow),
        )
        first = [taken.first]
        copy.announce(first)
        if isinstance(copy, AlignedCopy) and decided.filling:
            copy.alignment.filling = True
            self._aligned.add_filling(
                active, task.gap_method or "transactions", decided.goal, lambda: self._prepare(task, source)
            )
        elif isinstance(copy, AlignedCopy):
            self._aligned.add(active, task.gap_method or "transactions")
        ledger.append(first)
        self._active_copies[id(active)] = active
        task.attach_copy(active, decided.note)
        if not decided.filling:
            self._find_threads("send", self.target, taken.target.leader).add(active)
            self._begin_fetching(active, task, source)
        log.info(
            "filling" if decided.filling else "copying",
            extra={"flow": task.key.flow, "topic": task.key.topic, "partition": task.key.partition,
                   "position": decided.position, "target_end": decided.target_end},
        )  # fmt: skip

    def _guard(self, task: PartitionTask, source: ConnectionSettings, topic_id: uuid.UUID) -> PartitionLoopGuard:
        where = ClaimedPartition(task.key.topic, topic_id, task.key.partition)
        return self.guards.of(task.record, source).at(where, find_foreign_offsets_to_copy(task.decision, topic_id))

    def _build_change(
        self, task: PartitionTask, source: ConnectionSettings, counted: SchemaIdCounts, guard: PartitionLoopGuard
    ) -> Callable[[], RecordChange] | None:
        """What the flow does to every record; None where all pass as they are."""
        ids = self.schema_ids.changes(task.record.flow, source, task.key, counted)
        record, key = task.record, task.key
        header = build_provenance_header(record.flow, record.source_cluster_id, key.topic, key.partition)
        if header is None:
            return ids
        places = {(header.cluster_id, header.topic), (guard.guard.target, task.key.target_topic)}
        returned = frozenset(places) if guard.guard.guarded else frozenset()
        return chain_changes(ids, ProvenanceWriter(header, returned, guard.passed).add_header)

    def start_transaction_copy(self, task: PartitionTask, taken: TakenTransactionPartition) -> None:
        """Begin to copy a partition in transactions: the sender of its slot writes it. Raises ClusterError."""
        source = self.connect(task.record.flow.source)
        guard = self._guard(task, source, taken.source.topic_id)
        transform = task.record.flow.transform
        copy = build_transaction_copy(
            task.key,
            taken,
            guard.path_of,
            quarantine=task.record.flow.rejected == "quarantine",
            transformed=transform is not None,
        )
        copy.source.limit, (end, before_ms) = task.limit, _split_limit(task.limit)
        limits, counted = self.discovery.limits_of(task.key.flow, task.key.target_topic), SchemaIdCounts()
        refused = self._still_refused(task.key, copy.source.position)
        active = ActiveCopy(
            copy=copy,
            ledger=None,
            rate=self.rates.of(task.key.flow, task.record.flow.quota),
            leave_out=guard,
            source=taken.source.leader,
            target=taken.target.leader,
            weight=task.record.flow.weight,
            terms=RepackTerms(
                limits,
                refused,
                isolate=copy.refusals.quarantine,
                merge_group=guard.path_of,
                takes_all_of=guard.takes_all_of,
                change=self._build_change(task, source, counted, guard),
                compression=task.record.flow.compression,
                end=end,
                before_ms=before_ms,
            ),
            counted=counted,
            wake=taken.sender.wake,
            quarantine=self._quarantine if copy.refusals.quarantine else None,
        )
        if transform is not None:
            assert self.transforms is not None, "a worker that transforms nothing has been given such a flow"
            active.transforms = self.transforms.wake
            schemas = self._writer_schemas.find(task.record.flow, source)
            self.transforms.add(active, transform, min(limits.max_batch // 2, TRANSFORMED_BATCH_BYTES), schemas)
        self._active_copies[id(active)], self._senders[id(active)] = active, taken.sender
        task.attach_copy(active, taken.known.position.note)
        taken.sender.add(SlotPartition(copy, taken.target.leader, lambda: active.room()), taken.session)
        self._begin_fetching(active, task, source)
        log.info(
            "copying in transactions",
            extra={"flow": task.key.flow, "topic": task.key.topic, "partition": task.key.partition,
                   "position": copy.source.position, "target_end": copy.progress.acked},
        )  # fmt: skip

    def start_repeatable_copy(self, task: PartitionTask, taken: TakenRepeatablePartition) -> None:
        """Begin to copy a partition without a producer id, one batch in flight. Raises ClusterError."""
        source, at = self.connect(task.record.flow.source), taken.track.position
        assert at.log is not None, "a partition that is copied with repeats"
        copy = RepeatableCopy(
            key=task.key,
            source_id=taken.source.topic_id,
            target_id=taken.target.topic_id,
            source=SourceCursor(at.position, at.leader_epoch, last_batch=taken.last_batch, limit=task.limit),
            progress=TargetProgress(at.log.known_end),
        )

        def failed(error: ClusterError) -> None:
            copy.halt(f"the ledger could not be written: {error}")

        end, before_ms = _split_limit(task.limit)
        guard = self._guard(task, source, taken.source.topic_id)
        limits = self.discovery.limits_of(task.key.flow, task.key.target_topic)
        active = ActiveCopy(
            copy=copy,
            ledger=None,
            rate=self.rates.of(task.key.flow, task.record.flow.quota),
            leave_out=guard,
            source=taken.source.leader,
            target=taken.target.leader,
            weight=task.record.flow.weight,
            terms=RepackTerms(
                limits,
                takes_all_of=guard.takes_all_of,
                compression=task.record.flow.compression,
                end=end,
                before_ms=before_ms,
            ),
            latency=self.latencies.of(task.key.flow),
        )
        self._positions[id(active)] = PositionWriter(self.writer, taken.track, copy.take_progress, failed, self.later)
        self._active_copies[id(active)] = active
        repeated = f"{taken.repeated:,} records stand at the target once more" if taken.repeated else ""
        task.attach_copy(active, "; ".join(text for text in (at.note, repeated) if text))
        self._find_threads("send", self.target, taken.target.leader).add(active)
        self._begin_fetching(active, task, source)
        log.info(
            "copying at least once",
            extra={"flow": task.key.flow, "topic": task.key.topic, "partition": task.key.partition,
                   "position": at.position, "target_end": at.log.known_end, "repeated": taken.repeated},
        )  # fmt: skip

    def write_positions(self) -> None:
        """Tell the ledger how far the copies are that write it behind the answers; returns at once."""
        for position in list(self._positions.values()):
            position.write()

    def remove(self, active: ActiveCopy) -> None:
        """End the copying of a partition; nothing of it may be in flight."""
        with self._threads_change:
            self._active_copies.pop(id(active), None)
        copy = active.copy
        sender = self._senders.pop(id(active), None)
        if sender is not None:
            sender.remove(copy)
        self._aligned.remove(active)
        if self.transforms is not None:
            self.transforms.remove(active)
        position = self._positions.pop(id(active), None)
        if position is not None:
            position.close()
        if copy.can_close_epoch and active.ledger is not None:
            active.ledger.close()
        if copy.refusals.records:
            self._refused[copy.key] = self._refused.get(copy.key, {}) | copy.refusals.records
        if copy.refusals.too_large:
            self.discovery.ask_limits(copy.key.flow)
        for threads in list(self._broker_threads.values()):
            threads.remove(active)

    def forget(self, flow_id: str) -> None:
        """The flow's content changed: fresh limits."""
        self.rates.forget(flow_id)
        self.schema_ids.forget(flow_id)
        self._writer_schemas.forget(flow_id)

    def sweep(self, now: float | None = None) -> None:
        """End the threads of brokers that have had no active copy for long, and forget those that have ended."""
        now = time.monotonic() if now is None else now
        with self._threads_change:
            for key, threads in list(self._broker_threads.items()):
                if threads.unused_s(now) > UNUSED_THREADS_S:
                    threads.end()
                elif threads.is_alive():
                    continue
                del self._broker_threads[key]
                self._counted.update(threads.counters())

    def end(self) -> None:
        """Ask all threads to end; does not wait."""
        self._aligned.end()
        if self.transforms is not None:
            self.transforms.end()
        with self._threads_change:
            self._is_ended = True
            for threads in self._broker_threads.values():
                threads.end()

    def _begin_fetching(self, active: ActiveCopy, task: PartitionTask, source: ConnectionSettings) -> None:
        """Fetch from the leader first; it may name a follower in the flow's rack. Raises ClusterError."""
        active.turn = partial(self._fetch_from, active, replace(source, rack=task.record.flow.source_rack))
        active.turn(active.source)

    def _fetch_from(self, active: ActiveCopy, settings: ConnectionSettings, address: BrokerAddress) -> None:
        """Fetch the partition from this broker, and from no other. A thread that fetches it may call it."""
        told = settings if active.replica.tells_rack else replace(settings, rack=None)
        with self._threads_change:
            if self._is_ended or id(active) not in self._active_copies:  # it has ended meanwhile
                return
            for threads in self._broker_threads.values():
                if isinstance(threads, SourceBrokerThreads) and threads.is_serving(active):
                    threads.remove(active)
            self._find_source_threads(active, told, address).add(active)

    def _find_source_threads(
        self, active: ActiveCopy, settings: ConnectionSettings, address: BrokerAddress
    ) -> BrokerThreads:
        """Further ones of the broker, with sessions of their own, where other flows copy the same partition."""
        found = (self._find_threads("fetch", settings, address, number) for number in count())
        return next(each for each in found if isinstance(each, SourceBrokerThreads) and each.can_add(active))

    def _find_threads(
        self, kind: str, settings: ConnectionSettings, address: BrokerAddress, number: int = 0
    ) -> BrokerThreads:
        key = (kind, number, settings, address)  # reached by other settings from now on, it gets threads of its own
        with self._threads_change:
            threads = self._broker_threads.get(key)
            if threads is None or not threads.is_alive():
                if threads is not None:
                    self._counted.update(threads.counters())
                threads = (
                    SourceBrokerThreads(settings, address, self._room)
                    if kind == "fetch"
                    else TargetBrokerThreads(settings, address)
                )
                self._broker_threads[key] = threads
                threads.start()
            return threads

    def _prepare(self, task: PartitionTask, source: ConnectionSettings) -> str:
        """Settings of the target topic with which it can be filled; "" or why not. Raises ClusterError."""
        with Admin(source) as here, Admin(self.target) as there:
            return prepare_topic_for_filling(task.record.flow, task.key.topic, here, there)

    def _still_refused(self, key: PartitionKey, position: int) -> dict[int, str]:
        """The records from source offset `position` on that the target did not take: what lies below is settled. A
        fetch thread reads it while the active copy is there, so it is never changed afterwards."""
        refused = {offset: why for offset, why in self._refused.pop(key, {}).items() if offset >= position}
        if refused:
            self._refused[key] = refused
        return refused

    def buffered(self) -> int:
        """Bytes of record batches in memory."""
        return sum(active.copy.queue.buffered for active in list(self._active_copies.values()))

    def counters(self) -> dict[str, float]:
        """What the links have counted, summed by name. Another thread may call it: what `sweep` moves from threads to
        the sum is counted once."""
        with self._threads_change:
            found: Counter[str] = Counter(self._counted)
            for threads in self._broker_threads.values():
                found.update(threads.counters())
        return dict(found)

    def _room(self) -> int:
        """Bytes that may still be fetched. Asked in each round of each fetcher, so only those are counted that have
        any."""
        holders = {
            id(active): active
            for threads in list(self._broker_threads.values())
            if isinstance(threads, SourceBrokerThreads)
            for active in threads.list_holders()
        }
        return _BUDGET_BYTES - sum(active.copy.queue.buffered for active in holders.values())


def _split_limit(limit: CopyLimit | None) -> tuple[int | None, int | None]:
    """`end` and `before_ms` of `RepackTerms`: the offset as soon as it is known, the time until then."""
    if limit is None:
        return None, None
    return limit.offset, limit.before_ms if limit.offset is None else None
