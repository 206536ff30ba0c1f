"""What stands at one offset of a partition: its batch, told by the header, or the reason why no record is there."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.answered_fetch import fetch_one
from watershed.clusters.wire.connection import open_connection
from watershed.clusters.wire.messages import READ_COMMITTED, READ_UNCOMMITTED, FetchedPartition, FetchPartition
from watershed.replicator.batch.record_batch import UNKNOWN_RECORD_COUNT, RawBatch, decode_batches
from watershed.replicator.batch.records import decode_records
from watershed.replicator.errors import BadBatch, ReplicatorError
from watershed.replicator.recovery.log_inspection import LeaderLog, require_leader_logs


class NoRecordAtOffset(ReplicatorError):
    """There is no record at the offset; the message says what is there instead."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class BatchAtOffset:
    """The batch that covers an offset. retained: whether the record itself is still in it, or compaction took it."""

    batch: RawBatch
    led: LeaderLog
    retained: bool


def read_batch_at(settings: ConnectionSettings, topic: str, partition: int, offset: int) -> BatchAtOffset:
    """What is at `offset`. Raises NoRecordAtOffset and ClusterError."""
    where = f"{topic}-{partition} on {settings.alias}"
    (led,) = require_leader_logs(settings, [(topic, partition)], READ_UNCOMMITTED).values()
    if offset < led.start:
        raise NoRecordAtOffset(
            f"{where} begins at offset {led.start}; {offset} was deleted by retention or by DeleteRecords"
        )
    if offset >= led.end:
        raise NoRecordAtOffset(f"{where} ends at offset {led.end}; there is no {offset} yet")
    with closing(open_connection(settings, led.leader)) as connection:
        asked = FetchPartition(led.topic_id, partition, offset, max_bytes=1)  # brings one whole batch (KIP-74)
        answer = fetch_one(connection, asked, isolation=READ_COMMITTED)
    if answer.error:
        raise NoRecordAtOffset(
            f"{settings.alias} answers {error_codes.describe_error_code(answer.error)} to a Fetch of {where} at "
            f"{offset}"
        )
    if offset >= answer.last_stable:
        raise NoRecordAtOffset(f"{where}, offset {offset}: it stands in, or behind, a transaction that is still open")
    batch = _covering(answer, offset, where)
    return BatchAtOffset(batch, led, _retained(batch, offset, where))


def _covering(answer: FetchedPartition, offset: int, where: str) -> RawBatch:
    try:
        batch = next((each for each in decode_batches(answer.records) if each.end > offset), None)
    except BadBatch as error:
        raise NoRecordAtOffset(f"{where}: the {error}") from None
    if batch is None or (batch.base > offset and batch.records != UNKNOWN_RECORD_COUNT):
        following = f"; the next batch begins at {batch.base}" if batch is not None else ""
        raise NoRecordAtOffset(
            f"{where}, offset {offset}: nothing is there any more, compaction removed the batch{following}"
        )
    if batch.control:
        raise NoRecordAtOffset(
            f"{where}, offset {offset} is the marker of a transaction of producer {batch.producer_id}"
        )
    if batch.transactional and any(
        producer == batch.producer_id and first <= offset for producer, first in answer.aborted
    ):
        raise NoRecordAtOffset(
            f"{where}, offset {offset} belongs to an aborted transaction of producer {batch.producer_id}; it counts as "
            "never written, and is not copied"
        )
    return batch


def _retained(batch: RawBatch, offset: int, where: str) -> bool:
    """Records are looked at only in a batch that has lost some."""
    if batch.records in (UNKNOWN_RECORD_COUNT, batch.end - batch.base):
        return True
    try:
        return batch.records > 0 and any(record.offset == offset for record in decode_records(batch))
    except BadBatch as error:
        raise NoRecordAtOffset(f"{where}: the {error}") from None
