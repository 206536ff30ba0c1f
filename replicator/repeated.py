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

from clusters.errors import ClusterError, RequestRefused, TopicMissing
from clusters.settings import ConnectionSettings
from clusters.wire import codes
from clusters.wire.connection import connect
from clusters.wire.messages import READ_UNCOMMITTED, FetchPartition
from replicator.batch import LOG_APPEND_TIME, Batch, batches_in
from replicator.errors import BadBatch
from replicator.header import HEADER_SIZE
from replicator.look import leaders
from replicator.partition import PartitionKey
from replicator.records import records_of
from replicator.states import Loud, Span

log = logging.getLogger("watershed.worker")

AGAIN_S: Final = 1.0  # before a target that did not say what stands there is asked again


def as_stored(told: Loud, batch: Batch | None) -> Loud:
    """`told` as it is where `batch`, which stands at those target offsets, is what was sent with another time; else who
    wrote there was somebody else. None: nothing stands there any more, so nobody can tell."""
    sent, there = told.sent, told.target
    if sent is None or there is None or batch is None or _is(batch, sent, there):
        return replace(told, sent=None)
    return Loud(
        "target_foreign_write",
        f"the batch at target offsets {Span(batch.base, batch.end)} is somebody else's, written as this flow's "
        f"producer {batch.producer_id} epoch {batch.producer_epoch} with sequence {batch.base_sequence}, which was our "
        f"next: the target took source offsets {told.source} for a repetition of it and did not store them",
        source=told.source,
        target=Span(batch.base, batch.end),
    )


def _is(batch: Batch, sent: Batch, there: Span) -> bool:
    """Whether the stored batch holds the records of the one that was sent. Brokers refuse batches that come with the
    mark of append times, so one without it was not stamped; they compress anew where the topic has another codec."""
    if not batch.attributes & LOG_APPEND_TIME or (batch.base, batch.records) != (there.first, sent.records):
        return False
    if batch.codec == sent.codec:
        return batch.data[HEADER_SIZE:] == sent.data[HEADER_SIZE:]
    try:
        return [each.rest for each in records_of(batch)] == [each.rest for each in records_of(sent)]
    except BadBatch:
        return False


@dataclass(slots=True)
class Stored:
    """Looks at the batches that answers are about, side by side in the worker's pool."""

    target: ConnectionSettings
    pool: Executor
    _looks: dict[PartitionKey, tuple[float, Future[Batch | None]]] = field(default_factory=dict)

    def told(self, key: PartitionKey, told: Loud, now: float | None = None) -> Loud | None:
        """What the answer means; None while that is not known yet, however long the target does not say."""
        now = time.monotonic() if now is None else now
        if key not in self._looks:
            self._looks[key] = now, self.pool.submit(stored, self.target, key, told)
            return None
        began, look = self._looks[key]
        if not look.done() or (look.exception() is not None and now - began < AGAIN_S):
            return None
        del self._looks[key]
        error = look.exception()
        if error is not None:
            log.warning("what was answered for cannot be read", extra={"flow": key.flow, "reason": str(error)})
            return None
        return as_stored(told, look.result())


def stored(target: ConnectionSettings, key: PartitionKey, told: Loud) -> Batch | None:
    """The batch at the target offsets that are told; None when it is gone. Raises ClusterError."""
    assert told.target is not None
    place = (key.target_topic, key.partition)
    led = leaders(target, [place], READ_UNCOMMITTED)[place]
    if isinstance(led, TopicMissing):
        return None
    if isinstance(led, ClusterError):
        raise led
    if not led.start <= told.target.first < led.end:
        return None
    with closing(connect(target, led.leader)) as connection:
        asked = FetchPartition(led.topic_id, key.partition, told.target.first)
        (answer,) = connection.fetch((asked,), max_wait_ms=0, isolation=READ_UNCOMMITTED)
    if answer.error:
        raise RequestRefused(
            f"cluster {target.alias} answers {codes.name_of(answer.error)} to a Fetch of "
            f"{key.target_topic}-{key.partition}",
            alias=target.alias,
            topic=key.target_topic,
            partition=key.partition,
        )
    return next((batch for batch in batches_in(answer.records) if batch.end > told.target.first), None)
