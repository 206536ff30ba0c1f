"""What a batch means for its partition if we cannot copy it, or if the target does not take its records."""

from __future__ import annotations

from watershed.clusters.wire import error_codes
from watershed.clusters.wire.messages import ProducedPartition
from watershed.replicator.batch.record_batch import RawBatch
from watershed.replicator.copy.copy_state import Refusals
from watershed.replicator.errors import (
    BadBatch,
    CompactionHole,
    EndPassed,
    ForeignWrite,
    PartlyMarked,
    ReturnedRecord,
    SchemaMissing,
)
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import Halt, OffsetSpan, Reinspect


def judge_rejected_records(
    key: PartitionKey, refusals: Refusals, batch: RawBatch, answer: ProducedPartition
) -> Halt | Reinspect:
    """The target refuses the batch as a whole, or names the records that it does not take (KIP-467).

    Named records are added to `refusals.records`; with quarantine the next attempt leaves them out.
    """
    name, whole = error_codes.describe_error_code(answer.error), answer.message or "no reason given"
    where = f"source topic {key.topic}, partition {key.partition}"
    refused = {
        batch.source_offset(index): f"{name}: {reason or whole}"
        for index, reason in answer.record_errors
        if 0 <= index < batch.records
    }
    if not refused:
        text = f"the target answers {name} to {where}, offsets {batch.base} to {batch.end - 1}: {whole}"
        return Halt("rejected", text, source=OffsetSpan(batch.base, batch.end))
    refusals.records |= refused
    first, last = min(refused), max(refused)
    more = f" and {len(refused) - 1} more up to offset {last}" if len(refused) > 1 else ""
    text = f"the target does not take {where}, offset {first}{more}: {refused[first]}"
    if refusals.quarantine:
        return Reinspect(text, "rejected")
    return Halt("rejected", text, source=OffsetSpan(first, last + 1))


def judge_refused_batch(batch: BadBatch) -> Halt | Reinspect:
    """Bytes that are damaged on this disk or on the way: only the former stays when they are fetched again."""
    if isinstance(batch, CompactionHole | EndPassed | SchemaMissing):
        return Reinspect(str(batch))
    if batch.passing:
        return Reinspect(str(batch), batch.state)
    end = batch.end if isinstance(batch, ForeignWrite | PartlyMarked | ReturnedRecord) else batch.base_offset + 1
    return Halt(batch.state, str(batch), source=OffsetSpan(batch.base_offset, end))
