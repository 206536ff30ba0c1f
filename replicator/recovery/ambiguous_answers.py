"""Answers that leave open what stands at the target: a batch that was stamped, or one that somebody else wrote.

Where somebody wrote under our producer id with the sequence number that was next, the broker takes our batch for a
repetition of that one: it answers with its time and its offset, and stores nothing. A topic that stamps answers alike.
To go on behind the former would lose records, so what stands there is read before the partition is called the one or
the other.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import Executor, Future
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final

from watershed.clusters.errors import ClusterError, RequestRefused, TopicMissing
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.answered_fetch import fetch_one
from watershed.clusters.wire.connection import open_connection
from watershed.clusters.wire.messages import READ_UNCOMMITTED, FetchPartition
from watershed.replicator.batch.header_rewrite import BATCH_HEADER_BYTES
from watershed.replicator.batch.record_batch import LOG_APPEND_TIME, RawBatch, decode_batches
from watershed.replicator.batch.records import decode_records
from watershed.replicator.errors import BadBatch
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import Halt, OffsetSpan
from watershed.replicator.recovery.log_inspection import read_leader_logs

log = logging.getLogger("watershed.worker")

REREAD_AFTER_S: Final = 1.0  # before a target that did not say what stands there is asked again


def judge_stored_batch(halt: Halt, batch: RawBatch | None) -> Halt:
    """`halt` as it is where `batch`, which stands at those target offsets, is what was sent with another time; else who
    wrote there was somebody else. None: nothing stands there any more, so nobody can tell."""
    sent, there = halt.sent, halt.target
    if sent is None or there is None or batch is None or _is_same_batch(batch, sent, there):
        return replace(halt, sent=None)
    return Halt(
        "target_foreign_write",
        f"the batch at target offsets {OffsetSpan(batch.base, batch.end)} is somebody else's, written as this flow's "
        f"producer {batch.producer_id} epoch {batch.producer_epoch} with sequence {batch.base_sequence}, which was our "
        f"next: the target took source offsets {halt.source} for a repetition of it and did not store them",
        source=halt.source,
        target=OffsetSpan(batch.base, batch.end),
    )


def _is_same_batch(batch: RawBatch, sent: RawBatch, there: OffsetSpan) -> bool:
    """Whether the stored batch holds the records of the one that was sent. Brokers refuse batches that come with the
    mark of append times, so one without it was not stamped; they compress anew where the topic has another codec."""
    if not batch.attributes & LOG_APPEND_TIME or (batch.base, batch.records) != (there.first, sent.records):
        return False
    if batch.codec == sent.codec:
        return batch.data[BATCH_HEADER_BYTES:] == sent.data[BATCH_HEADER_BYTES:]
    try:
        return [each.rest for each in decode_records(batch)] == [each.rest for each in decode_records(sent)]
    except BadBatch:
        return False


@dataclass(slots=True)
class AmbiguousAnswers:
    """Looks at the batches that answers are about, side by side in the worker's pool."""

    target: ConnectionSettings
    pool: Executor
    _inspections: dict[PartitionKey, tuple[float, Future[RawBatch | None]]] = field(default_factory=dict)

    def judge(self, key: PartitionKey, judge: Halt, now: float | None = None) -> Halt | None:
        """What the answer means; None while that is not known yet, however long the target does not say."""
        now = time.monotonic() if now is None else now
        if key not in self._inspections:
            self._inspections[key] = now, self.pool.submit(read_stored_batch, self.target, key, judge)
            return None
        began, inspection = self._inspections[key]
        if not inspection.done() or (inspection.exception() is not None and now - began < REREAD_AFTER_S):
            return None
        del self._inspections[key]
        error = inspection.exception()
        if error is not None:
            log.warning("what was answered for cannot be read", extra={"flow": key.flow, "reason": str(error)})
            return None
        return judge_stored_batch(judge, inspection.result())


def read_stored_batch(target: ConnectionSettings, key: PartitionKey, halt: Halt) -> RawBatch | None:
    """The batch at the target offsets that are told; None when it is gone. Raises ClusterError."""
    assert halt.target is not None
    place = (key.target_topic, key.partition)
    led = read_leader_logs(target, [place], READ_UNCOMMITTED)[place]
    if isinstance(led, TopicMissing):
        return None
    if isinstance(led, ClusterError):
        raise led
    if not led.start <= halt.target.first < led.end:
        return None
    with closing(open_connection(target, led.leader)) as connection:
        asked = FetchPartition(led.topic_id, key.partition, halt.target.first)
        answer = fetch_one(connection, asked, isolation=READ_UNCOMMITTED)
    if answer.error:
        raise RequestRefused(
            f"cluster {target.alias} answers {error_codes.describe_error_code(answer.error)} to a Fetch of "
            f"{key.target_topic}-{key.partition}",
            alias=target.alias,
            topic=key.target_topic,
            partition=key.partition,
        )
    return next((batch for batch in decode_batches(answer.records) if batch.end > halt.target.first), None)
