"""Reads the last batch of a partition again, where its topic has no id and was not read for a moment.

A topic that was made anew has another batch there. What was fetched is used only when the batch behind it was seen
afterwards: a topic that is another one then was one before, or became one after the Fetch was answered.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Final

from watershed.clusters.wire.connection import Connection
from watershed.clusters.wire.messages import READ_UNCOMMITTED, FetchedPartition, FetchPartition
from watershed.clusters.wire.topic_names import is_stand_in_id
from watershed.replicator.batch.record_batch import BatchChecksum, decode_batches
from watershed.replicator.copy.copy_protocol import Copy
from watershed.replicator.errors import BadBatch
from watershed.replicator.partition_states import Reinspect

# Longer than two answers in a row take on a usual network; shorter than it takes to delete a topic, to make it again
# and to fill it up to our position.
SILENCE_S: Final = 0.5
_PATIENCE_S: Final = 30.0  # with a quota used up the broker may be silent so long
_Place = tuple[uuid.UUID, int]  # topic id and partition


def needs_confirmation(copy: Copy, answer: FetchedPartition, arrived: float) -> bool:
    """Whether the last batch has to be read again before the records of `answer` are used. arrived: monotonic."""
    cursor = copy.source
    if not answer.records or cursor.last_batch is None or not is_stand_in_id(copy.source_id):
        return False
    return arrived - cursor.asked_at > SILENCE_S or answer.high_watermark < cursor.high_watermark


def confirm_sources(connection: Connection, copies: Mapping[_Place, Copy]) -> set[_Place]:
    """Those of the copies whose source holds their last batch still. One whose source does not is stopped: the
    inspection compares records, as the cleaner rewrites batches. Raises ClusterError."""
    confirmed: set[_Place] = set()
    left, deadline = dict(copies), time.monotonic() + _PATIENCE_S
    while left and time.monotonic() < deadline:
        asked = tuple(_ask_again(place, copy) for place, copy in left.items())
        answers = connection.fetch(asked, max_wait_ms=0, isolation=READ_UNCOMMITTED)
        for answer in answers:
            place = answer.topic_id, answer.partition
            is_same = _is_same(left[place], answer)
            if is_same is None:
                continue
            if is_same:
                confirmed.add(place)
            else:
                reason = f"the source holds another batch than before at offset {_get_last_batch(left[place]).base}"
                left[place].stop(Reinspect(reason))
            del left[place]
        if left:
            time.sleep(min(max(connection.throttle_ms, 20), 1_000) / 1000)
    return confirmed


def _ask_again(place: _Place, copy: Copy) -> FetchPartition:
    last = _get_last_batch(copy)
    return FetchPartition(*place, last.base, max_bytes=last.size)


def _is_same(copy: Copy, answer: FetchedPartition) -> bool | None:
    """None: the answer had no room for the batch."""
    last = _get_last_batch(copy)
    if answer.error:
        return False
    try:
        first = next(decode_batches(answer.records), None)
    except BadBatch:
        return False
    if first is None:
        return None if answer.high_watermark > last.base and not answer.records else False
    return BatchChecksum.of(first) == last


def _get_last_batch(copy: Copy) -> BatchChecksum:
    assert copy.source.last_batch is not None, "needs_confirmation has looked"
    return copy.source.last_batch
