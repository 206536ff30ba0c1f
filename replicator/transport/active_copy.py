"""A partition that is being copied, as fetchers and senders see it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from watershed.replicator.batch.record_batch import RawBatch
from watershed.replicator.batch.repack import RepackTerms
from watershed.replicator.copy.copy_protocol import Copy
from watershed.replicator.copy.flow_latency import FlowLatency
from watershed.replicator.copy.partition_copy import PartitionCopy
from watershed.replicator.copy.quarantine import QuarantineWriter
from watershed.replicator.copy.schema_ids import SchemaIdCounts
from watershed.replicator.ledger.ledger_writer import PartitionLedgerWriter
from watershed.replicator.recovery.log_inspection import BrokerAddress
from watershed.replicator.transport.broker_connection import TrafficClass
from watershed.replicator.transport.rate_limit import RateLimit
from watershed.replicator.transport.replica_choice import READ_LEADER, ReplicaChoice

_FEW: Final = 64 << 10  # bytes of an answer that says: nothing has piled up
CALM_FETCHES: Final = 3  # so many of them in a row make a partition of the bulk thread live again
# A live partition that has records twice within a second is busy, until it has none for five. Between the two rates it
# stays where it is, so that few change. Both are far above what a change costs: a line in two questions.
_BUSY_S: Final = 1.0
_QUIET_S: Final = 5.0


@dataclass(slots=True)
class SessionClock:
    """When a broker last answered in a fetch session (monotonic; 0: not yet). The partitions of which it said nothing
    share the clock: they end where they did."""

    at: float = 0.0


@dataclass(slots=True)
class ActiveCopy:
    """A partition that is being copied: its copy, its ledger, its limits, and the terms on which batches are repacked.

    kind: the traffic class that is to serve it. is_busy: which of the two live fetchers asks for it while it is live.
    carrier: the class that still has batches of it in flight. The broker threads set `wake` (there may be something to
    send) and `room` (its buffer has room again). The sender calls `between` when there is nothing that it may send now.
    source: its leader there. replica: which broker it is read from; `turn` gives it to the threads of another broker,
    and only the thread that reads it now calls it.
    """

    copy: Copy
    ledger: PartitionLedgerWriter | None  # None where the ledger is written with the records
    rate: RateLimit
    leave_out: Callable[[RawBatch], bool]
    source: BrokerAddress
    target: BrokerAddress
    weight: int = 1
    terms: RepackTerms = field(default_factory=RepackTerms)
    kind: TrafficClass = "live"
    is_busy: bool = False
    carrier: TrafficClass = "live"
    wake: Callable[[], None] = field(default=lambda: None)
    room: Callable[[], None] = field(default=lambda: None)
    between: Callable[[], None] = field(default=lambda: None)
    quarantine: QuarantineWriter | None = None  # where records go that the target does not take
    counted: SchemaIdCounts = field(default_factory=SchemaIdCounts)  # of a flow that rewrites schema ids
    latency: FlowLatency = field(default_factory=FlowLatency)  # of the flow, where a sender sends its batches
    transforms: Callable[[], None] | None = None  # tells whoever transforms its records that some wait; None: nobody
    hindrance: str = ""  # why records that wait are not transformed
    clock: SessionClock | None = None  # of the session in which it is quiet
    replica: ReplicaChoice = READ_LEADER
    turn: Callable[[BrokerAddress], None] = field(default=lambda _address: None)
    served_since: float = 0.0  # by its fetcher, monotonic: only answers to later questions are of this copy
    _calm: int = 0
    _had_records_at: float = 0.0  # monotonic

    @property
    def sequenced_copy(self) -> PartitionCopy:
        """The copy, where a sender sends its batches; asserts that it is not written in transactions."""
        assert isinstance(self.copy, PartitionCopy)
        return self.copy

    @property
    def flow(self) -> str:
        """Id of the flow; quotas and fair scheduling go by it."""
        return self.copy.key.flow

    @property
    def source_seen_at(self) -> float:
        """When the source last told where the log ends, if only by saying nothing new (monotonic; 0: not yet)."""
        clock, told = self.clock, self.copy.source.seen_at
        return told if clock is None or told > clock.at else clock.at

    def leave_session(self) -> None:
        """A session says nothing of this partition from now on."""
        self.copy.source.seen_at, self.clock = self.source_seen_at, None

    def fetched(self, size: int) -> None:
        """Choose the traffic class, and the fetcher, after an answer of `size` bytes was taken.

        One answer that does not reach the end of the log makes a live partition bulk. Several small ones that reach it
        make it live again. Only the fetcher that serves it calls this, as the last thing it does with the answer:
        a change hands the partition to the other fetcher, which is woken.
        """
        before, was_busy = self.kind, self.is_busy
        at_end = self.copy.source.position >= self.copy.source.end
        if size:
            now = time.monotonic()
            self.is_busy = self.is_busy or now - self._had_records_at < _BUSY_S
            self._had_records_at = now
        if self.kind == "live":
            if not at_end:
                self._calm, self.kind = 0, "bulk"
        else:
            self._calm = self._calm + 1 if at_end and size < _FEW else 0
            if self._calm >= CALM_FETCHES:
                self._calm, self.kind = 0, "live"
        if self.kind != before or (self.kind == "live" and self.is_busy != was_busy):
            self.room()

    def become_quiet(self, now: float) -> bool:
        """Hand a busy partition without records for a while to the fetcher of the quiet ones; whether it was one. Only
        the live fetcher of the busy ones calls this, between answers. now: monotonic."""
        if self.kind != "live" or now - self._had_records_at < _QUIET_S:
            return False
        self.leave_session()
        self.is_busy = False
        self.room()
        return True
