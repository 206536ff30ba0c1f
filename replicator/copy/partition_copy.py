"""Copying one partition, as decisions without I/O.

The fetching side calls `accept`, the sending side `next_outgoing` and `answered`; the ledger calls `durable`.
A `PartitionCopy` lives from one inspection of the logs to the next (`replicator.recovery.recovery_point`): whenever
anything is in doubt it is thrown away and a new one starts from what the target's log says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from watershed.clusters.wire import error_codes
from watershed.clusters.wire.messages import ProducedPartition
from watershed.replicator.batch.batch_selection import SelectedBatches
from watershed.replicator.batch.header_rewrite import BATCH_HEADER_BYTES, rewrite_header
from watershed.replicator.batch.record_batch import RawBatch
from watershed.replicator.batch.repack import SMALL_BATCH_BYTES
from watershed.replicator.copy.common_copy import CommonCopy
from watershed.replicator.copy.log_append_time import check_append_time
from watershed.replicator.copy.prepared_runs import PreparedRuns
from watershed.replicator.copy.rejected_records import judge_rejected_records
from watershed.replicator.copy.sequenced_producer import SequencedProducer
from watershed.replicator.ledger.offset_map import OffsetRun
from watershed.replicator.partition_key import MAX_BATCHES_IN_FLIGHT
from watershed.replicator.partition_states import Halt, OffsetSpan, Reinspect, pick_trouble

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
        error_codes.UNKNOWN_PRODUCER_ID,
    }
)
_DENIED = frozenset({error_codes.TOPIC_AUTHORIZATION_FAILED, error_codes.CLUSTER_AUTHORIZATION_FAILED})


_STOOD_STILL: Final = "this worker stood still for a while; somebody else may have gone on"


class OutgoingBatch(NamedTuple):
    """One batch on its way: `first` is the target offset it must get, `pieces` the bytes to send, `received_at` when it
    came from the source (monotonic)."""

    first: int
    records: int
    source_end: int
    max_timestamp: int
    size: int
    pieces: tuple[bytes | memoryview, ...]
    batch: RawBatch  # as it was accepted: its records' source offsets
    received_at: float


@dataclass(slots=True, kw_only=True)
class PartitionCopy(CommonCopy[OutgoingBatch]):
    """A copy whose batches get the sequence numbers of their target offsets."""

    producer: SequencedProducer
    prepared: PreparedRuns = field(init=False)

    def __post_init__(self) -> None:
        CommonCopy.__post_init__(self)
        self.prepared = PreparedRuns(self.progress.acked, self.source.position)

    def accept(self, selected: SelectedBatches) -> list[OffsetRun]:
        """Take what a Fetch at `source.position` brought. Returns the runs that the ledger must hold before they are
        sent.

        Batches behind a new run wait until `durable` was called for it.
        """
        runs: list[OffsetRun] = []
        prepared, source = self.prepared, self.source
        with self.lock:
            for batch in selected.batches:
                target = prepared.target
                begins = source.append_leader_epoch(batch.base, batch.leader_epoch)
                for first, records in batch.spans or ((batch.base, batch.records),):
                    if first != prepared.source or begins:
                        runs.append(OffsetRun(target, first))
                        begins = False
                    target += records
                    prepared.source = first + records
                self._prepare(batch)
            source.append_leader_epoch(prepared.source, selected.leader_epoch)  # in the gap at the end, if it has one
            if selected.position != prepared.source:
                runs.append(OffsetRun(prepared.target, selected.position))
                prepared.source = selected.position
            self._end_accept(selected, runs)
        return runs

    def _end_accept(self, selected: SelectedBatches, runs: list[OffsetRun]) -> None:
        self._read_on(selected)
        if self.producer.update_sharing(selected):  # the run says nothing new, but the ledger gets a record
            runs.append(OffsetRun(self.prepared.target, self.prepared.source))
        self.prepared.block(runs)
        self._when_empty()

    def announce(self, runs: list[OffsetRun]) -> None:
        """These runs are on their way to the ledger; batches from the first of them on wait for `durable`."""
        with self.lock:
            self.prepared.block(runs)

    def durable(self, runs: list[OffsetRun]) -> None:
        """The ledger holds these runs now."""
        with self.lock:
            self.prepared.confirm(runs)

    def note_stall(self, now: int, reason: str = _STOOD_STILL) -> None:
        """The worker has not been running for a while, at `now` (ms), or has not been in touch with the target's leader
        and cannot tell for how long (`reason`); another one may have taken the partition over. A broker that knows our
        sequence numbers turns away what is not next. One that has forgotten them takes anything, so nothing more may
        be sent before a new inspection (docs/research/sequence-numbers.md, §4 R5)."""
        if self.producer.depth_at(now) == 1:
            self.halt(reason)

    def next_outgoing(self, now: int | None = None) -> OutgoingBatch | None:
        """The batch to send at `now` (ms), which is in flight then; None while there is none or it must wait."""
        queue = self.queue
        with self.lock:
            if self.trouble is not None or not queue.ready or len(queue.in_flight) >= self.producer.depth_at(now):
                return None
            if self.prepared.is_blocked(queue.ready[0].first + queue.ready[0].records):
                return None
            outgoing = queue.ready.popleft()
            queue.in_flight.append(outgoing)
            return outgoing

    def answered(self, answer: ProducedPartition, now: int | None = None) -> None:
        """The answer to the oldest batch in flight, at `now` (ms). Sets `trouble` when copying cannot simply go on."""
        queue, progress = self.queue, self.progress
        with self.lock:
            sent = queue.in_flight.pop(0)
            queue.buffered -= sent.size
            queue.saved -= sent.batch.saved
            if answer.error == error_codes.NONE and answer.base_offset == sent.first:
                progress.acked = sent.first + sent.records
                progress.copied_through = sent.source_end
                progress.copied_bytes += sent.size + sent.batch.saved
                progress.saved_bytes += sent.batch.saved
                progress.copied_timestamp = sent.max_timestamp
                self._note_stored(sent, now)
                self._when_empty()
                if self.trouble is None or isinstance(self.trouble, Reinspect):
                    self.trouble = check_append_time(self.key.target_topic, sent.batch, answer) or self.trouble
                return
            if answer.error not in _CERTAIN:
                self.producer.unanswered = True
            if answer.error == error_codes.UNKNOWN_PRODUCER_ID:
                # Kafka 2.4 forgot us and takes nothing but sequence 0 (newer ones take any, KIP-360): another producer
                # epoch begins with it.
                self.producer.needs_epoch = True
            found = self._judge_answer(sent, answer)
            self.trouble = pick_trouble(self.trouble, found)

    def _note_stored(self, sent: OutgoingBatch, now: int | None) -> None:
        self.producer.note_answer(sent.max_timestamp, now)

    def connection_lost(self, reason: str) -> None:
        """Nothing is known about what was in flight."""
        with self.lock:
            if self.queue.in_flight:
                self.producer.unanswered = True
            self.queue.in_flight.clear()
            self.trouble = pick_trouble(self.trouble, Reinspect(reason))

    @property
    def is_crowded(self) -> bool:
        """True while small batches wait because the target is slower than the source, or far away.

        Each of them takes a request of its own. What stays on the source until fewer wait comes in one answer and is
        merged (`replicator.batch.repack`). While several are on their way, one that waits is enough: it is not sent at
        once (`replicator.transport.sender`).
        """
        queue = self.queue
        waiting, under_way = len(queue.ready), len(queue.in_flight)
        most = 1 if under_way > 1 or under_way >= self.producer.depth else MAX_BATCHES_IN_FLIGHT
        return waiting >= most and queue.buffered + queue.saved < (waiting + under_way) * SMALL_BATCH_BYTES

    @property
    def is_young(self) -> bool:
        """True while the target's broker is known to hold our producer state."""
        return self.producer.depth > 1

    @property
    def can_close_epoch(self) -> bool:
        """True if the ledger may record that nothing of this producer epoch is under way any more."""
        return self.producer.needs_epoch and not self.producer.unanswered

    def _when_empty(self) -> None:
        if self.queue.is_empty:
            self.progress.copied_through = self.source.position
            CommonCopy._when_empty(self)

    def _prepare(self, batch: RawBatch) -> None:
        first, size = self.prepared.target, len(batch.data)
        header = self._rewrite_header(batch.data[:BATCH_HEADER_BYTES], first)
        self.queue.ready.append(
            OutgoingBatch(
                first=first,
                records=batch.records,
                source_end=batch.end,
                max_timestamp=batch.max_timestamp,
                size=size,
                pieces=(header, batch.data[BATCH_HEADER_BYTES:]),
                batch=batch,
                received_at=self.source.received_at,
            )
        )
        self.queue.buffered += size
        self.queue.saved += batch.saved
        self.prepared.target = first + batch.records

    def _rewrite_header(self, header: memoryview, first: int) -> bytes:
        identity = self.producer.identity
        return rewrite_header(
            header, producer_id=identity.producer_id, epoch=identity.epoch, sequence=identity.sequence(first)
        )

    def _judge_misplaced(self, sent: OutgoingBatch, answer: ProducedPartition) -> Halt | Reinspect:
        """The batch is stored, at another offset than was meant."""
        return Halt(
            "duplicated",
            f"{sent.records} records meant for target offsets {sent.first} to {sent.first + sent.records - 1} were "
            f"stored at offset {answer.base_offset} instead",
            source=OffsetSpan(sent.batch.base, sent.source_end),
            target=OffsetSpan(answer.base_offset, answer.base_offset + sent.records),
        )

    def _judge_answer(self, sent: OutgoingBatch, answer: ProducedPartition) -> Halt | Reinspect:
        """What an answer other than the expected one means (docs/research/sequence-numbers.md, §6 points 3 and 4)."""
        extent = f"target offsets {sent.first} to {sent.first + sent.records - 1}"
        name = error_codes.describe_error_code(answer.error)
        if answer.error == error_codes.NONE:
            return self._judge_misplaced(sent, answer)
        if answer.error in (error_codes.UNKNOWN_TOPIC_ID, error_codes.INCONSISTENT_TOPIC_ID):
            # A broker that has just started may not know the topic yet; the inspection sees whether it is another one.
            return Reinspect(f"the target answers {name} to {extent}", "target_gone")
        if answer.error in _REJECTED:
            return judge_rejected_records(self.key, self.refusals, sent.batch, answer)
        if answer.error in _DENIED:
            return Halt("unauthorised", f"the target answers {name}: WRITE on topic {self.key.target_topic} is missing")
        if answer.error in (error_codes.MESSAGE_TOO_LARGE, error_codes.RECORD_LIST_TOO_LARGE):
            self.refusals.too_large = True
            extent = f"{self._source_of(sent)}, {sent.size} bytes, meant for {extent}"
        elif answer.error in _SUSPICIOUS:
            extent = f"{self._source_of(sent)}, meant for {extent}"
        return Reinspect(f"the target answers {name} to {extent}", _SUSPICIOUS.get(answer.error))

    def _source_of(self, sent: OutgoingBatch) -> str:
        where = f"source topic {self.key.topic}, partition {self.key.partition}"
        return f"{where}, offsets {sent.batch.base} to {sent.source_end - 1}"
