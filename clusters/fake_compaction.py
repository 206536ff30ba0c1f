"""The log cleaner on a log in memory: what compaction leaves of batches.

Rules: Kafka 4.3's Cleaner and MemoryRecords.filterTo. A batch keeps its base offset, its last offset, its producer id,
epoch and base sequence whatever is taken out of it. One that loses all records is gone, except that of each producer
the newest batch stays as an empty one, for its sequence. Records above the last stable offset and those of the active
segment (here: the last batch) are never touched.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from watershed.clusters.fake_producers import FakeProducerStates
from watershed.clusters.record_batch import (
    CODEC_IDS,
    DELETE_HORIZON,
    BatchHeader,
    BatchRecord,
    assign_batch_offset,
    build_batch,
    decode_batch_header,
)

_NAMES = {number: name for name, number in CODEC_IDS.items()}


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch of the log: its decoded header, and all its bytes with the offsets that the log gave them."""

    header: BatchHeader
    data: bytes


class CleanableLog(Protocol):
    """What the cleaner reads of a log; `clusters.fake_log.PartitionLog` is one."""

    producers: FakeProducerStates

    @property
    def batches(self) -> Sequence[StoredBatch]:
        """The log's batches by offset."""
        ...

    def last_stable(self) -> int:
        """Returns the last stable offset."""
        ...

    def is_aborted(self, batch: BatchHeader) -> bool:
        """Whether the batch belongs to an aborted transaction."""
        ...

    def records_of(self, kept: StoredBatch) -> list[BatchRecord]:
        """Returns the decoded records of a batch."""
        ...

    def config(self, key: str) -> str:
        """Returns the topic's setting, or the broker's default."""
        ...


def compact_log(log: CleanableLog, before: int, now_ms: int) -> list[StoredBatch]:
    """The log's batches after the cleaner has been through everything below `before`."""
    until = min(before, log.last_stable(), log.batches[-1].header.base_offset if log.batches else 0)
    cleaned = [kept for kept in log.batches if kept.header.last_offset < until]
    newest: dict[bytes, int] = {}
    for kept in cleaned:
        if not kept.header.is_control and not log.is_aborted(kept.header):
            newest |= {record.key: record.offset for record in log.records_of(kept) if record.key is not None}
    sequences = {state.producer_id: state.last_sequence for state in log.producers.describe()}
    left: list[StoredBatch] = []
    for kept in log.batches:
        if kept.header.last_offset >= until or kept.header.is_control or not kept.header.count:
            left.append(kept)
            continue
        records = [] if log.is_aborted(kept.header) else log.records_of(kept)
        survivors = [each for each in records if each.key is None or newest[each.key] == each.offset]
        last_of_producer = (
            kept.header.producer_id >= 0 and sequences.get(kept.header.producer_id) == kept.header.last_sequence
        )
        if survivors or last_of_producer:
            left.append(_rewritten(kept, survivors, now_ms + int(log.config("delete.retention.ms"))))
    return left


def _rewritten(kept: StoredBatch, survivors: list[BatchRecord], horizon: int) -> StoredBatch:
    """With these records only. Batches with tombstones get a delete horizon the first time."""
    head = kept.header
    if len(survivors) == head.count:
        return kept
    tombstones = any(record.value is None for record in survivors)
    if head.attributes & DELETE_HORIZON:
        horizon, tombstones = struct.unpack_from(">q", kept.data, 27)[0], True
    batch = build_batch(
        [
            BatchRecord(each.offset - head.base_offset, each.timestamp, each.key, each.value, each.headers)
            for each in survivors
        ],
        codec=_NAMES[head.codec] if survivors else "none",
        producer_id=head.producer_id,
        epoch=head.producer_epoch,
        base_sequence=head.base_sequence,
        transactional=head.is_transactional,
        last_offset_delta=head.last_offset_delta,
        delete_horizon=horizon if tombstones else None,
    )
    data = assign_batch_offset(batch, head.base_offset, head.leader_epoch)
    return type(kept)(decode_batch_header(data), data)
