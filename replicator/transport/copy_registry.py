"""Partitions on their way: the links to brokers, what a flow's partitions share, and how a copy begins and ends."""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from clusters.admin import Admin
from clusters.claim_rules import ClaimedPartition
from clusters.control_topics import ControlWriter
from clusters.errors import ClusterError
from clusters.settings import ConnectionSettings
from replicator.batch.repack import RepackTerms
from replicator.copy.aligned.aligned_copy import AlignedCopy
from replicator.copy.aligned.alignment_decisions import prepare_topic_for_filling
from replicator.copy.aligned.alignment_threads import AlignmentThreads
from replicator.copy.loop_guard import PartitionLoopGuard
from replicator.copy.partition_copy import PartitionCopy, PartitionKey
from replicator.copy.quarantine import QuarantineWriter
from replicator.copy.schema_ids import SchemaIdCounts, SchemaIdTranslations
from replicator.copy.transactions.open_transaction import SlotPartition
from replicator.copy.transactions.slot_sender import SlotSender
from replicator.copy.transactions.slot_takeover import TakenTransactionPartition
from replicator.copy.transactions.transaction_copy import TransactionCopy
from replicator.ledger.leader_epochs import LeaderEpochEntry, find_leader_epoch_below
from replicator.ledger.ledger_writer import PartitionLedgerWriter
from replicator.ledger.offset_map import OffsetRun
from replicator.recovery.log_inspection import BrokerAddress
from replicator.recovery.operator_decisions import find_foreign_offsets_to_copy
from replicator.recovery.takeover import LEADER_EPOCHS_KEPT, TakenPartition
from replicator.transactions.going import build_transaction_copy
from replicator.transport.active_copy import ActiveCopy
from replicator.transport.broker_threads import BrokerThreads, SourceBrokerThreads, TargetBrokerThreads
from replicator.transport.rate_limit import FlowRateLimits
from replicator.worker.loop_guards import LoopGuards
from replicator.worker.partition_task import PartitionTask
from replicator.worker.topic_discovery import TopicDiscovery

log = logging.getLogger("watershed.worker")

UNUSED_THREADS_S = 600.0  # a link without routes ends: brokers come and go, and each link has threads and connections
_BUDGET_BYTES = 128 << 20  # record batches in memory, whatever the partition count


@dataclass(slots=True)
class CopyRegistry:
    """`later` runs a function outside any acknowledgement of `writer` (see PartitionLedger)."""

    target: ConnectionSettings
    connect: Callable[[str], ConnectionSettings]
    writer: ControlWriter
    guards: LoopGuards
    expiration_ms: int
    later: Callable[[Callable[[], None]], None]
    discovery: TopicDiscovery
    _routes: dict[int, ActiveCopy] = field(default_factory=dict)
    _links: dict[tuple[str, str, BrokerAddress], BrokerThreads] = field(default_factory=dict)
    _counted: Counter[str] = field(default_factory=Counter)  # by links that have ended
    rates: FlowRateLimits = field(default_factory=FlowRateLimits)
    schema_ids: SchemaIdTranslations = field(init=False)
    _quarantine: QuarantineWriter = field(init=False)
    _aligned: AlignmentThreads = field(init=False)
    _senders: dict[int, SlotSender] = field(default_factory=dict)  # of routes that are written in transactions
    _refused: dict[PartitionKey, dict[int, str]] = field(default_factory=dict)  # records that targets did not take

    def __post_init__(self) -> None:
        self._quarantine = QuarantineWriter(self.target)
        self.schema_ids = SchemaIdTranslations(self.target)
        self._aligned = AlignmentThreads.of(self.target)

    def go(self, seat: PartitionTask, taken: TakenPartition) -> None:
        """Put a partition on its way."""
        decided = taken.resume
        refused = self._still_refused(seat.key, decided.position)
        copy = (AlignedCopy if taken.aligned else PartitionCopy)(
            key=seat.key,
            source_id=taken.source.topic_id,
            target_id=taken.target.topic_id,
            identity=decided.numbering,
            position=decided.position,
            acked=decided.target_end,
            depth=decided.depth,
            depth_confirmed=decided.depth_confirmed,
            leader_epoch=find_leader_epoch_below(taken.block.epochs, decided.position),
            epochs=list(taken.block.epochs),
            quarantine=seat.record.flow.rejected == "quarantine",
            alone=decided.alone,
            expiration_ms=self.expiration_ms,
            remembered_by=decided.newest,
        )

        def durable(runs: list[OffsetRun]) -> None:
            copy.durable(runs)
            route.wake()

        def failed(error: ClusterError) -> None:
            copy.halt(f"the ledger could not be written: {error}")

        def epochs() -> tuple[LeaderEpochEntry, ...]:
            return tuple(copy.epochs[-LEADER_EPOCHS_KEPT:])

        ledger = PartitionLedgerWriter(
            self.writer, taken.block, durable, failed, self.later, epochs, lambda: copy.needs_epoch
        )
        source, counted = self.connect(seat.record.flow.source), SchemaIdCounts()
        route = ActiveCopy(
            copy=copy,
            ledger=ledger,
            rate=self.rates.of(seat.key.flow, seat.record.flow.quota),
            leave_out=self._guard(seat, source, taken.source.topic_id),
            source=taken.source.leader,
            target=taken.target.leader,
            weight=seat.record.flow.weight,
            terms=RepackTerms(
                self.discovery.limits_of(seat.key.flow, seat.key.target_topic),
                refused,
                isolate=copy.quarantine,
                holes=lambda: copy.alone,
                change=self.schema_ids.changes(seat.record.flow, source, seat.key, counted),
                dense=taken.aligned,
            ),
            quarantine=self._quarantine if copy.quarantine else None,
            counted=counted,
        )
        first = [taken.first]
        copy.announce(first)
        if isinstance(copy, AlignedCopy) and decided.filling:
            copy.filling = True
            self._aligned.add_filling(
                route, seat.way or "transactions", decided.goal, lambda: self._prepare(seat, source)
            )
        elif isinstance(copy, AlignedCopy):
            self._aligned.add(route, seat.way or "transactions")
        ledger.append(first)
        self._routes[id(route)] = route
        seat.attach_copy(route, decided.note)
        if not decided.filling:
            self._link("send", self.target, taken.target.leader).add(route)
            self._link("fetch", source, taken.source.leader).add(route)
        log.info(
            "filling" if decided.filling else "copying",
            extra={"flow": seat.key.flow, "topic": seat.key.topic, "partition": seat.key.partition,
                   "position": decided.position, "target_end": decided.target_end},
        )  # fmt: skip

    def _guard(self, seat: PartitionTask, source: ConnectionSettings, topic_id: uuid.UUID) -> PartitionLoopGuard:
        where = ClaimedPartition(seat.key.topic, topic_id, seat.key.partition)
        return self.guards.of(seat.record, source).at(where, find_foreign_offsets_to_copy(seat.order, topic_id))

    def start_transaction_copy(self, seat: PartitionTask, taken: TakenTransactionPartition) -> None:
        """Put a partition on its way whose slot has a sender of its own."""
        source = self.connect(seat.record.flow.source)
        guard = self._guard(seat, source, taken.source.topic_id)
        copy = build_transaction_copy(
            seat.key, taken, guard.path_of, quarantine=seat.record.flow.rejected == "quarantine"
        )
        limits, counted = self.discovery.limits_of(seat.key.flow, seat.key.target_topic), SchemaIdCounts()
        refused = self._still_refused(seat.key, copy.position)
        route = ActiveCopy(
            copy=copy,
            ledger=None,
            rate=self.rates.of(seat.key.flow, seat.record.flow.quota),
            leave_out=guard,
            source=taken.source.leader,
            target=taken.target.leader,
            weight=seat.record.flow.weight,
            terms=RepackTerms(
                limits,
                refused,
                isolate=copy.quarantine,
                lane=guard.path_of,
                change=self.schema_ids.changes(seat.record.flow, source, seat.key, counted),
            ),
            counted=counted,
            wake=taken.sender.wake,
            quarantine=self._quarantine if copy.quarantine else None,
        )
        self._routes[id(route)], self._senders[id(route)] = route, taken.sender
        seat.attach_copy(route, taken.known.position.note)
        taken.sender.add(SlotPartition(copy, taken.target.leader, lambda: route.room()), taken.session)
        self._link("fetch", source, taken.source.leader).add(route)
        log.info(
            "copying in transactions",
            extra={"flow": seat.key.flow, "topic": seat.key.topic, "partition": seat.key.partition,
                   "position": copy.position, "target_end": copy.acked},
        )  # fmt: skip

    def remove(self, route: ActiveCopy) -> None:
        """Take a partition off its links; nothing of it may be in flight."""
        self._routes.pop(id(route), None)
        copy = route.copy
        sender = self._senders.pop(id(route), None)
        if sender is not None and isinstance(copy, TransactionCopy):
            sender.remove(copy)
        if isinstance(copy, AlignedCopy):
            self._aligned.remove(route)
        if isinstance(copy, PartitionCopy) and copy.needs_epoch and not copy.unanswered and route.ledger is not None:
            route.ledger.close()
        if copy.refused_records:
            self._refused[copy.key] = self._refused.get(copy.key, {}) | copy.refused_records
        if copy.too_large:
            self.discovery.ask_limits(copy.key.flow)
        for link in self._links.values():
            link.remove(route)

    def forget(self, flow_id: str) -> None:
        """The flow's content changed: fresh limits."""
        self.rates.forget(flow_id)
        self.schema_ids.forget(flow_id)

    def sweep(self, now: float | None = None) -> None:
        """End links that no route has used for long, and forget those that have ended."""
        now = time.monotonic() if now is None else now
        for key, link in list(self._links.items()):
            if link.unused_s(now) > UNUSED_THREADS_S:
                link.end()
            elif link.is_alive():
                continue
            del self._links[key]
            self._counted.update(link.counters())

    def end(self) -> None:
        self._aligned.end()
        for link in self._links.values():
            link.end()

    def _link(self, kind: str, settings: ConnectionSettings, address: BrokerAddress) -> BrokerThreads:
        key = (kind, settings.alias, address)
        link = self._links.get(key)
        if link is None or not link.is_alive():
            link = (
                SourceBrokerThreads(settings, address, self._room)
                if kind == "fetch"
                else TargetBrokerThreads(settings, address)
            )
            self._links[key] = link
            link.start()
        return link

    def _prepare(self, seat: PartitionTask, source: ConnectionSettings) -> str:
        """Settings of the target topic with which it can be filled; "" or why not. Raises ClusterError."""
        with Admin(source) as here, Admin(self.target) as there:
            return prepare_topic_for_filling(seat.record.flow, seat.key.topic, here, there)

    def _still_refused(self, key: PartitionKey, position: int) -> dict[int, str]:
        """The records from source offset `position` on that the target did not take: what lies below is settled. A
        fetch lane reads it while the route is there, so it is never changed afterwards."""
        refused = {offset: why for offset, why in self._refused.pop(key, {}).items() if offset >= position}
        if refused:
            self._refused[key] = refused
        return refused

    def buffered(self) -> int:
        """Bytes of record batches in memory."""
        return sum(route.copy.buffered for route in list(self._routes.values()))

    def counters(self) -> dict[str, float]:
        """What the links have counted, summed by name."""
        found: Counter[str] = Counter(self._counted)
        for link in list(self._links.values()):
            found.update(link.counters())
        return dict(found)

    def _room(self) -> int:
        """Bytes that may still be fetched."""
        return _BUDGET_BYTES - self.buffered()
