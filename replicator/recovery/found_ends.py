"""Where the copies of partitions end (`delivery.end`), looked up at the source.

What is found is written down before anything is copied up to it (`clusters.partition_end_records`), and holds from then
on: records expire, and a log answers otherwise later.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping

from watershed.clusters.control_topics import ControlWriter
from watershed.clusters.errors import ClusterError
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.partition_end_records import PartitionEnd, write_partition_ends
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.messages import READ_UNCOMMITTED
from watershed.replicator.copy_limit import CopyLimit
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import Reinspect
from watershed.replicator.recovery.log_inspection import BrokerAddress, read_leader_logs
from watershed.replicator.recovery.start_offsets import ask_offsets
from watershed.topology.copy_bounds import CopyBound

LimitOrTrouble = CopyLimit | Reinspect


def find_limits(
    record: FlowRecord,
    known: Mapping[PartitionKey, PartitionEnd | None],
    source: ConnectionSettings,
    writer: ControlWriter,
    worker: str,
) -> dict[PartitionKey, LimitOrTrouble]:
    """How far each partition is copied; one without an end is left out. known: what is written down of each; an end
    that is not, and can be found now, is. Never raises ClusterError."""
    found: dict[PartitionKey, LimitOrTrouble] = {}
    unknown: list[PartitionKey] = []
    end, revision = record.flow.end, record.end_revision
    for key, written in known.items():
        if written is not None and written.is_of(record):
            found[key] = CopyLimit(written.offset, revision=revision)
        elif isinstance(end, CopyBound) and end.offsets:
            offset = end.find_offset(key.topic, key.partition)
            if offset is not None:
                found[key] = CopyLimit(offset, revision=revision)
        elif end is not None:
            unknown.append(key)
    if not unknown:
        return found
    before_ms = end.timestamp_ms if isinstance(end, CopyBound) else None
    try:
        looked_up = look_up_ends(source, unknown, before_ms)
        write_partition_ends(
            writer,
            [
                build_partition_end(key, CopyLimit(at, revision=revision), worker)
                for key, at in looked_up.items()
                if isinstance(at, int) and at >= 0
            ],
        )
    except ClusterError as error:
        return found | {key: Reinspect(str(error)) for key in unknown}
    for key, answer in looked_up.items():
        if isinstance(answer, ClusterError):
            found[key] = Reinspect(str(answer))
        else:
            found[key] = CopyLimit(answer if answer >= 0 else None, before_ms, revision)
    return found


def build_partition_end(
    key: PartitionKey, limit: CopyLimit, worker: str, position: int = -1, target_end: int = -1, order: str = ""
) -> PartitionEnd:
    """What is written down of a partition's end. position, target_end: where both logs are copied through when it is
    reached, -1 before; order: see `PartitionEnd`."""
    assert limit.offset is not None, "an end that is known"
    now = int(time.time() * 1000)
    return PartitionEnd(
        key.flow, key.topic, key.partition, limit.revision, limit.offset, position, target_end, order, worker, now
    )


def look_up_ends(
    source: ConnectionSettings, keys: list[PartitionKey], before_ms: int | None
) -> dict[PartitionKey, int | ClusterError]:
    """The log's end now, or the first offset of an instant (-1: no record is that new). before_ms: the instant,
    milliseconds since 1970. Records of open transactions count, too: the copy waits for them. Raises ClusterError."""
    logs = read_leader_logs(source, [(key.topic, key.partition) for key in keys], READ_UNCOMMITTED)
    found: dict[PartitionKey, int | ClusterError] = {}
    by_leader: dict[BrokerAddress, list[PartitionKey]] = defaultdict(list)
    for key in keys:
        log = logs[key.topic, key.partition]
        if isinstance(log, ClusterError):
            found[key] = log
        elif before_ms is None:
            found[key] = log.end
        else:
            by_leader[log.leader].append(key)
    for leader, led in by_leader.items():
        assert before_ms is not None, "leaders are asked for an instant only"
        found |= ask_offsets(source, leader, led, before_ms)
    return found
