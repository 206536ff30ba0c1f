"""Targets that put their own time in place of the records' (`message.timestamp.type=LogAppendTime`).

A copy in such a topic is complete and wrong: whatever goes by time (retention, offsets for times, stream windows) sees
the time of copying. A topic that says so is held before the first batch (`replicator.topic_mapping`); one that says
something else, or was changed meanwhile, is found by the broker's own answers.

A batch that somebody else wrote under our producer id is answered for in the same way: see
`replicator.recovery.ambiguous_answers`.
"""

from __future__ import annotations

from typing import Final

from watershed.clusters.wire.messages import ProducedPartition
from watershed.replicator.batch.record_batch import RawBatch
from watershed.replicator.partition_states import Halt, OffsetSpan

APPEND_TIME_STATE: Final = "append_time"


def check_append_time(target_topic: str, batch: RawBatch, answer: ProducedPartition) -> Halt | None:
    """What the answer to a stored batch says of its timestamps; None when they were kept.

    A broker answers an append time only where it stamps (ProduceResponse.json: "The timestamp returned by broker after
    appending the messages. If CreateTime is used for the topic, the timestamp will be -1"), and for a repeated batch
    the largest timestamp of the one that it holds (UnifiedLog.append).
    """
    if answer.append_time in (-1, batch.max_timestamp):
        return None
    stored = OffsetSpan(answer.base_offset, answer.base_offset + batch.records)
    return Halt(
        APPEND_TIME_STATE,
        f"topic {target_topic} of the target put its own time ({answer.append_time} ms) in place of those of the "
        f"records at target offsets {stored}, the newest of which is of {batch.max_timestamp} ms",
        source=OffsetSpan(batch.base, batch.end),
        target=stored,
        sent=batch,
    )
