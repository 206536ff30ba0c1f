"""A copy into a target without idempotent producers: one batch in flight, and the ledger follows the answers.

Batches carry no producer id, so a broker takes whatever comes. Where a batch stands is known from its answer only. A
batch whose answer is another offset than the log's end that we knew, or that never came, ends the copy: the next
takeover reads the end of the target's log (`replicator.recovery.tail_comparison`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from watershed.clusters.wire.messages import ProducedPartition
from watershed.replicator.batch.batch_selection import SelectedBatches
from watershed.replicator.batch.header_rewrite import remove_producer
from watershed.replicator.copy.partition_copy import OutgoingBatch, PartitionCopy
from watershed.replicator.copy.sequenced_producer import SequencedProducer
from watershed.replicator.ledger.offset_map import ExplicitRun, OffsetRun
from watershed.replicator.ledger.position_writer import StoredProgress
from watershed.replicator.partition_key import ProducerIdentity
from watershed.replicator.partition_states import Halt, Reinspect

_NOBODY: Final = ProducerIdentity(-1, -1, 0)


def build_plain_producer() -> SequencedProducer:
    """A producer without identity, with one batch in flight: so batches keep their order, and an answer that is not the
    log's end shows that somebody else wrote."""
    return SequencedProducer(_NOBODY, depth=1, depth_confirmed=1)


@dataclass(slots=True, kw_only=True)
class RepeatableCopy(PartitionCopy):
    """A copy whose batches carry no producer id."""

    producer: SequencedProducer = field(default_factory=build_plain_producer)
    _landed: list[ExplicitRun] = field(init=False, default_factory=list)
    _leader_epoch: int = field(init=False, default=-1)

    def __post_init__(self) -> None:
        PartitionCopy.__post_init__(self)
        self._leader_epoch = self.source.leader_epoch

    def accept(self, selected: SelectedBatches) -> list[OffsetRun]:
        """Take what a Fetch brought. No run has to be in the ledger before it is sent."""
        with self.lock:
            for batch in selected.batches:
                self._prepare(batch)
            self._read_on(selected)
            self._when_empty()
        return []

    def take_progress(self) -> StoredProgress:
        """What is to be written to the ledger; the next call returns what came later."""
        with self.lock:
            landed, self._landed = tuple(self._landed), []
            settled = self.is_idle and not self.producer.unanswered
            progress = self.progress
            return StoredProgress(landed, progress.copied_through, self._leader_epoch, progress.acked, settled)

    def _rewrite_header(self, header: memoryview, first: int) -> bytes:
        return remove_producer(header)

    def _note_stored(self, sent: OutgoingBatch, now: int | None) -> None:
        target = sent.first
        for source, records in sent.batch.spans or ((sent.batch.base, sent.records),):
            self._landed.append(ExplicitRun(target, source, records))
            target += records
        self._leader_epoch = sent.batch.leader_epoch

    def _judge_misplaced(self, sent: OutgoingBatch, answer: ProducedPartition) -> Halt | Reinspect:
        self.producer.unanswered = True  # it is stored, and the ledger does not know what stands in front of it
        return Reinspect(
            f"{sent.records} records meant for target offset {sent.first} were stored at {answer.base_offset}: "
            "something else landed in front of them, and the end of the log is read"
        )
