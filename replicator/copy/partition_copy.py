"""Copying one partition, as decisions without I/O.

The fetching side calls `accept`, the sending side `next_outgoing` and `answered`; the ledger calls `durable`.
A `PartitionCopy` lives from one inspection of the logs to the next (`replicator.recovery.recovery_point`): whenever
anything is in doubt it is thrown away and a new one starts from what the target's log says."""

from __future__ import annotations

import uuid
from collections import deque
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, NamedTuple

from clusters.wire import error_codes
from clusters.wire.messages import ProducedPartition
from replicator.batch.batch_selection import SelectedBatches
from replicator.batch.header_rewrite import BATCH_HEADER_BYTES, rewrite_header
from replicator.batch.record_batch import RawBatch
from replicator.batch.repack import SMALL_BATCH_BYTES
from replicator.copy.copy_protocol import FillingProgress
from replicator.copy.log_append_time import check_append_time
from replicator.copy.rejected_records import judge_refused_batch, judge_rejected_records
from replicator.errors import CompactionHole
from replicator.ledger.leader_epochs import LeaderEpochEntry
from replicator.ledger.offset_map import OffsetRun
from replicator.partition_key import MAX_BATCHES_IN_FLIGHT, PRODUCER_EXPIRY_MARGIN_MS, PartitionKey, ProducerIdentity
from replicator.partition_states import Halt, OffsetSpan, Reinspect, pick_trouble

_REJECTED = frozenset({error_codes.INVALID_TIMESTAMP, error_codes.INVALID_RECORD})
# Ordinary once (a zombie was first, a byte was damaged on the way); not when it comes back at the same place.
_SUSPICIOUS = {
    error_codes.CORRUPT_MESSAGE: "rejected",
    error_codes.MESSAGE_TOO_LARGE: "rejected",  # the target's limit was lowered: the next active copy has the new one
    error_codes.RECORD_LIST_TOO_LARGE: "rejected",
    error_codes.OUT_OF_ORDER_SEQUENCE_NUMBER: "duplicated",
    error_codes.DUPLICATE_SEQUENCE_NUMBER: "duplicated",
}
# After these the batch is not in the log, and will not be. (After a timeout it may be, and not be visible yet.)
_CERTAIN = frozenset(
    {
        *_SUSPICIOUS,
        *_REJECTED,
        error_codes.NOT_LEADER_OR_FOLLOWER,
        error_codes.NOT_ENOUGH_REPLICAS,
        error_codes.INVALID_PRODUCER_EPOCH,
        error_codes.UNKNOWN_TOPIC_ID,
    }
)
_DENIED = frozenset({error_codes.TOPIC_AUTHORIZATION_FAILED, error_codes.CLUSTER_AUTHORIZATION_FAILED})


_STOOD_STILL: Final = "this worker stood still for a while; somebody else may have gone on"


class OutgoingBatch(NamedTuple):
    """One batch on its way: `first` is the target offset it must get, `pieces` the bytes to send."""

    first: int
    records: int
    source_end: int
    max_timestamp: int
    size: int
    pieces: tuple[bytes | memoryview, ...]
    batch: RawBatch  # as it was accepted: its records' source offsets


@dataclass(slots=True)
class PartitionCopy:
    """State of one partition between two inspections of the logs. Offsets: `position` on the source, others on the
    target.

    `depth` is how many batches may be in flight; 1 until the broker has confirmed that it holds our producer state.
    """

    key: PartitionKey
    source_id: uuid.UUID
    target_id: uuid.UUID
    identity: ProducerIdentity
    position: int
    acked: int
    depth: int
    depth_confirmed: int
    leader_epoch: int = -1
    epochs: list[LeaderEpochEntry] = field(default_factory=list)  # of the source, as far as they are known
    ready: deque[OutgoingBatch] = field(default_factory=deque)
    in_flight: deque[OutgoingBatch] = field(default_factory=deque)
    buffered: int = 0  # bytes in ready and in_flight
    source_end: int = -1  # last stable offset at the last fetch
    high_watermark: int = -1  # of the source; what lies behind `source_end` waits for a transaction to end
    source_seen: float = 0.0  # when the source told its end (monotonic); 0: not yet
    copied_through: int = -1  # source offset, by acknowledgements
    copied_bytes: int = 0
    copied_timestamp: int = -1
    remembered_by: int = -1  # time of the newest record that the target's leader has of us (ms), also from before
    trouble: Halt | Reinspect | None = None
    refused: Halt | Reinspect | None = None  # a batch that cannot be copied; everything before it still is
    quarantine: bool = False  # records that the target refuses are left out at the next attempt, instead of stopping
    refused_records: dict[int, str] = field(default_factory=dict)  # source offset → what the target said
    too_large: bool = False  # the target's limit is lower than we thought
    # Nobody else writes under this producer epoch: holes may be copied (`replicator.recovery.producer_epochs`).
    alone: bool = False
    needs_epoch: bool = False  # what the ledger tells whoever looks next: this producer epoch is not to be shared
    unanswered: bool = False  # something was sent and nobody knows whether it landed
    expiration_ms: int | None = None  # the target's producer.id.expiration.ms
    lock: Lock = field(default_factory=Lock, repr=False)
    _fetched: bool = False
    _prepared: int = -1  # target offset behind the last batch in ready
    _expected: int = -1  # source offset that would extend the current run
    _blocked_from: deque[int] = field(default_factory=deque)  # run starts that the ledger has not confirmed, in order

    def __post_init__(self) -> None:
        self._prepared = self.acked
        self._expected = self.copied_through = self.position
        self.needs_epoch = self.alone

    def accept(self, selected: SelectedBatches) -> list[OffsetRun]:
        """Take what a Fetch at `position` brought. Returns the runs that the ledger must hold before they are sent.

        Batches behind a new run wait until `durable` was called for it.
        """
        runs: list[OffsetRun] = []
        with self.lock:
            for batch in selected.batches:
                target = self._prepared
                begins = self._append_leader_epoch(batch.base, batch.leader_epoch)
                for first, records in batch.spans or ((batch.base, batch.records),):
                    if first != self._expected or begins:
                        runs.append(OffsetRun(target, first))
                        begins = False
                    target += records
                    self._expected = first + records
                self._prepare(batch)
            self._append_leader_epoch(self._expected, selected.leader_epoch)  # in the gap at the end, if it has one
            if selected.position != self._expected:
                runs.append(OffsetRun(self._prepared, selected.position))
                self._expected = selected.position
            self.position = selected.position
            if selected.leader_epoch >= 0:
                self.leader_epoch = selected.leader_epoch
            if selected.refused is not None and self.refused is None:
                self.refused = judge_refused_batch(selected.refused)
            if self._update_sharing(selected):
                runs.append(OffsetRun(self._prepared, self.position))  # says nothing new, but the ledger gets a record
            self._blocked_from.extend(run.target for run in runs)
            self._when_empty()
        return runs

    def _update_sharing(self, selected: SelectedBatches) -> bool:
        """Whether what the ledger has to say about this producer epoch is another thing from now on.

        Of an epoch that was begun to be alone the first answer decides: no hole in it, and the epoch may be shared from
        here on, as long as nobody meets one.
        """
        before = self.needs_epoch
        if isinstance(selected.refused, CompactionHole):
            self.needs_epoch = True
        elif self.alone and not self._fetched and not selected.holes:
            self.alone = self.needs_epoch = False
        self._fetched = True
        return self.needs_epoch != before

    def announce(self, runs: list[OffsetRun]) -> None:
        """These runs are on their way to the ledger; batches from the first of them on wait for `durable`."""
        with self.lock:
            self._blocked_from.extend(run.target for run in runs)

    def halt(self, reason: str) -> None:
        """Send nothing more and inspect again; what is in flight is still answered."""
        self.stop(Reinspect(reason))

    def stop(self, trouble: Halt | Reinspect) -> None:
        """Send nothing more. The first trouble counts; a halt replaces a reason to inspect again."""
        with self.lock:
            self.trouble = pick_trouble(self.trouble, trouble)

    def request_stop(self) -> None:
        """Nothing to do: no log is filled."""

    def note_stall(self, now: int, reason: str = _STOOD_STILL) -> None:
        """The worker has not been running for a while, at `now` (ms), or has not been in touch with the target's leader
        and cannot tell for how long (`reason`); another one may have taken the partition over. A broker that knows our
        sequence numbers turns away what is not next. One that has forgotten them takes anything, so nothing more may
        be sent before a new inspection (docs/research/sequence-numbers.md, §4 R5)."""
        if self._depth_now(now) == 1:
            self.halt(reason)

    def durable(self, runs: list[OffsetRun]) -> None:
        """The ledger holds these runs now."""
        with self.lock:
            for run in runs:
                if self._blocked_from[0] == run.target:  # as good as always: the ledger confirms in order
                    self._blocked_from.popleft()
                else:
                    self._blocked_from.remove(run.target)

    def next_outgoing(self, now: int | None = None) -> OutgoingBatch | None:
        """The batch to send at `now` (ms), moved to `in_flight`; None while there is none or it must wait."""
        with self.lock:
            if self.trouble is not None or not self.ready or len(self.in_flight) >= self._depth_now(now):
                return None
            if self._blocked_from and self.ready[0].first + self.ready[0].records > self._blocked_from[0]:
                return None
            outgoing = self.ready.popleft()
            self.in_flight.append(outgoing)
            return outgoing

    def answered(self, answer: ProducedPartition, now: int | None = None) -> None:
        """The answer to the oldest batch in flight, at `now` (ms). Sets `trouble` when copying cannot simply go on."""
        with self.lock:
            sent = self.in_flight.popleft()
            self.buffered -= sent.size
            if answer.error == error_codes.NONE and answer.base_offset == sent.first:
                self.acked = sent.first + sent.records
                self.copied_through = sent.source_end
                self.copied_bytes += sent.size
                self.copied_timestamp = self.remembered_by = sent.max_timestamp
                self.depth = self._depth(sent.max_timestamp, now)
                self._when_empty()
                if self.trouble is None or isinstance(self.trouble, Reinspect):
                    self.trouble = check_append_time(self.key.target_topic, sent.batch, answer) or self.trouble
                return
            self.unanswered = self.unanswered or answer.error not in _CERTAIN
            found = self._judge_answer(sent, answer)
            self.trouble = pick_trouble(self.trouble, found)

    def connection_lost(self, reason: str) -> None:
        """Nothing is known about what was in flight."""
        with self.lock:
            self.unanswered = self.unanswered or bool(self.in_flight)
            self.in_flight.clear()
            self.trouble = pick_trouble(self.trouble, Reinspect(reason))

    @property
    def is_idle(self) -> bool:
        """True while no batch is unanswered."""
        return not self.in_flight

    @property
    def has_unsent(self) -> bool:
        """True while a batch waits to be sent."""
        return bool(self.ready)

    @property
    def is_crowded(self) -> bool:
        """True while many small batches wait because the target is slower than the source.

        Each of them takes a request of its own. What stays on the source until they are fewer comes in one answer and
        is merged (`replicator.batch.repack`).
        """
        return len(self.ready) >= MAX_BATCHES_IN_FLIGHT and self.buffered < len(self.ready) * SMALL_BATCH_BYTES

    @property
    def is_filling(self) -> bool:
        """False: no log is filled."""
        return False

    @property
    def fill_progress(self) -> FillingProgress | None:
        """None: no log is filled."""
        return None

    @property
    def can_close_epoch(self) -> bool:
        """True if the ledger may record that nothing of this producer epoch is under way any more."""
        return self.needs_epoch and not self.unanswered

    def _when_empty(self) -> None:
        """Nothing waits and nothing is in flight: only now may a refused batch stop the partition."""
        if not self.in_flight and not self.ready:
            self.copied_through = self.position
            if self.trouble is None:
                self.trouble = self.refused

    def _depth_now(self, now: int | None) -> int:
        """A partition that was idle for long: the broker may have forgotten us since the last answer, or the
        inspection."""
        return min(self.depth, self._depth(self.remembered_by, now)) if self.remembered_by >= 0 else self.depth

    def _depth(self, newest: int, now: int | None) -> int:
        """The broker forgets our sequence numbers by the time of the newest record that we wrote."""
        if now is None or self.expiration_ms is None:
            return self.depth_confirmed
        return MAX_BATCHES_IN_FLIGHT if newest + self.expiration_ms - now > PRODUCER_EXPIRY_MARGIN_MS else 1

    def _append_leader_epoch(self, source: int, epoch: int) -> bool:
        """Whether another leader epoch begins here that the ledger must know before anything behind it is sent. The
        first one that is known at all need not: as long as it is not written down it counts as unknown."""
        if epoch < 0 or (self.epochs and self.epochs[-1].epoch == epoch):
            return False
        self.epochs.append(LeaderEpochEntry(source, epoch))
        return len(self.epochs) > 1

    def _prepare(self, batch: RawBatch) -> None:
        header = rewrite_header(
            batch.data[:BATCH_HEADER_BYTES],
            producer_id=self.identity.producer_id,
            epoch=self.identity.epoch,
            sequence=self.identity.sequence(self._prepared),
        )
        size = len(batch.data)
        self.ready.append(
            OutgoingBatch(
                first=self._prepared,
                records=batch.records,
                source_end=batch.end,
                max_timestamp=batch.max_timestamp,
                size=size,
                pieces=(header, batch.data[BATCH_HEADER_BYTES:]),
                batch=batch,
            )
        )
        self.buffered += size
        self._prepared += batch.records

    def _judge_answer(self, sent: OutgoingBatch, answer: ProducedPartition) -> Halt | Reinspect:
        """What an answer other than the expected one means (docs/research/sequence-numbers.md, §6 points 3 and 4)."""
        extent = f"target offsets {sent.first} to {sent.first + sent.records - 1}"
        name = error_codes.describe_error_code(answer.error)
        if answer.error == error_codes.NONE:
            return Halt(
                "duplicated",
                f"{sent.records} records meant for {extent} were stored at offset {answer.base_offset} instead",
                source=OffsetSpan(sent.batch.base, sent.source_end),
                target=OffsetSpan(answer.base_offset, answer.base_offset + sent.records),
            )
        if answer.error in (error_codes.UNKNOWN_TOPIC_ID, error_codes.INCONSISTENT_TOPIC_ID):
            # A broker that has just started may not know the topic yet; the inspection sees whether it is another one.
            return Reinspect(f"the target answers {name} to {extent}", "target_gone")
        if answer.error in _REJECTED:
            return judge_rejected_records(self, sent.batch, answer)
        if answer.error in _DENIED:
            return Halt("unauthorised", f"the target answers {name}: WRITE on topic {self.key.target_topic} is missing")
        if answer.error in (error_codes.MESSAGE_TOO_LARGE, error_codes.RECORD_LIST_TOO_LARGE):
            self.too_large = True
            extent = f"{self._source_of(sent)}, {sent.size} bytes, meant for {extent}"
        elif answer.error in _SUSPICIOUS:
            extent = f"{self._source_of(sent)}, meant for {extent}"
        return Reinspect(f"the target answers {name} to {extent}", _SUSPICIOUS.get(answer.error))

    def _source_of(self, sent: OutgoingBatch) -> str:
        where = f"source topic {self.key.topic}, partition {self.key.partition}"
        return f"{where}, offsets {sent.batch.base} to {sent.source_end - 1}"
