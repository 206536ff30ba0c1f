"""What the workers report about each partition, in the `watershed.status` topic."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, NamedTuple

from confluent_kafka import OFFSET_END, TopicPartition

from watershed.clusters.control_record_codec import ControlRecordBody, ControlRecordFormat
from watershed.clusters.control_records import read_latest_values
from watershed.clusters.control_topics import SLOT_COUNT, STATUS_TOPIC, ControlWriter, WriteCallback, compute_slot
from watershed.clusters.control_values import decode_control_value
from watershed.clusters.errors import TopicMissing
from watershed.clusters.partition_consumer import bound_read_ahead, build_partition_consumer
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.sync_reports import SYNC_PREFIX, SyncReport, parse_sync_reports
from watershed.clusters.worker_heartbeats import HEARTBEAT_PREFIX, WorkerHeartbeat, parse_heartbeats

log = logging.getLogger("watershed.worker")


@dataclass(frozen=True, slots=True)
class PartitionStatus(ControlRecordBody):
    """One partition of one flow at `at_ms` (the worker's clock, milliseconds since 1970).

    state: a partition state of docs/states.md. source_position: next source offset to copy. source_end (the last stable
    offset), target_end: log ends as last seen (-1: not seen yet). lag_records counts offsets; lag_bytes is an estimate;
    lag_ms is for how long the oldest uncopied record has been waiting (`replicator.worker.partition_lag`); event_age_ms
    is how old the timestamp of the last copied record is, whatever that says. None: not known. open_records: offsets
    behind the source's last stable offset, which wait for a transaction to end. rate_bytes: a second; copied_bytes:
    since the worker took the partition, before its own compression, which saved `saved_bytes` of them. error, remedy:
    for people. seen: a loud state's offsets and topic ids (`replicator.partition_states.Halt.to_json`). note: what was
    given up on the way, and by whose decision, or what else a person should know. aligning: while an aligned partition
    is filled, how far it is: `done` and `of` are offsets of the target, `rate` is offsets a second, `seconds_left` an
    estimate. young: the target's brokers hold the producer state that keeps several workers from harm, so that the
    partition may move to another one at any time. source_seen_ms: when the source last told its end (the worker's
    clock, milliseconds since 1970): all that a failover
    knows of what was there. worker, pid: who serves it; serving: through which slot.
    """

    FORMAT: ClassVar[ControlRecordFormat] = ControlRecordFormat(
        "a report", STATUS_TOPIC, writes_version=False, added_later=None
    )
    flow: str
    topic: str
    target_topic: str
    partition: int
    state: str
    source_position: int = -1
    source_end: int = -1
    target_end: int = -1
    lag_records: int | None = None
    lag_ms: int | None = None
    lag_bytes: int | None = None
    event_age_ms: int | None = None
    open_records: int = 0
    aligning: dict[str, float | None] | None = None
    rate_bytes: float = 0.0
    copied_bytes: int = 0
    error: str | None = None
    remedy: str | None = None
    seen: dict[str, Any] | None = None
    note: str | None = None
    young: bool = False
    source_seen_ms: int | None = None
    worker: str = ""
    pid: int = 0
    at_ms: int = 0
    serving: int = -1
    saved_bytes: int = 0

    @property
    def key(self) -> str:
        """One record a flow and source partition."""
        return f"{self.flow}|{self.topic}|{self.partition}"

    @property
    def slot(self) -> int:
        """The partition of `watershed.status` that holds it."""
        return compute_slot(self.flow, self.topic, self.partition)


_SYNC, _HEARTBEAT = SYNC_PREFIX.encode(), HEARTBEAT_PREFIX.encode()
_COPYING: Final = ("running", "catching_up")


def renew_report(report: PartitionStatus, heartbeats: Mapping[str, WorkerHeartbeat]) -> PartitionStatus:
    """The report as of the newest heartbeat of the worker that wrote it: what it says still holds, as long as that
    worker serves the slot. heartbeats: by worker."""
    heartbeat = heartbeats.get(report.worker)
    if heartbeat is None or heartbeat.pid != report.pid or report.serving not in heartbeat.slots:
        return report
    later = heartbeat.at_ms - report.at_ms
    if later <= 0:
        return report
    waits = report.lag_ms is not None and (report.lag_ms > 0 or (report.lag_records or 0) > 0)
    seen = heartbeat.seen.get(report.flow) if report.state in _COPYING else None
    return replace(
        report,
        at_ms=heartbeat.at_ms,
        lag_ms=(report.lag_ms or 0) + later if waits else report.lag_ms,
        event_age_ms=None if report.event_age_ms is None else report.event_age_ms + later,
        source_seen_ms=max(filter(None, (report.source_seen_ms, seen)), default=None),
    )


class StatusFollower:
    """Reports as they come in, from now on, and the newest heartbeat of each worker since then. Not thread-safe."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self.heartbeats: dict[str, WorkerHeartbeat] = {}
        self._consumer = build_partition_consumer(
            settings, {"enable.partition.eof": False, **bound_read_ahead(SLOT_COUNT)}
        )
        self._consumer.assign([TopicPartition(STATUS_TOPIC, number, OFFSET_END) for number in range(SLOT_COUNT)])

    def read(self) -> list[PartitionStatus]:
        """What has arrived since the last call; never waits. A reader that falls behind is given later reports."""
        found = []
        for message in self._consumer.consume(1_000, timeout=0):
            payload, key = message.value(), message.key() or b""
            if message.error() is None and payload is not None and not key.startswith(_SYNC):
                try:
                    value = decode_control_value(payload)
                    if key.startswith(_HEARTBEAT):
                        heartbeat = WorkerHeartbeat.from_json(value)
                        self.heartbeats[heartbeat.worker] = heartbeat
                    else:
                        found.append(PartitionStatus.from_json(value))
                except ValueError as error:  # whoever wrote it
                    log.warning("report unreadable", extra={"topic": STATUS_TOPIC, "reason": str(error)})
        return found

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def read_partition_statuses(settings: ConnectionSettings) -> list[PartitionStatus]:
    """The newest report of every partition, as of its worker's newest heartbeat, by flow, topic and partition; empty
    without control topics."""
    return read_status_reports(settings).partitions


class StatusReports(NamedTuple):
    """What workers say: of partitions (by flow, topic and number), of what travels beside records, and that they
    live."""

    partitions: list[PartitionStatus]
    beside: list[SyncReport]
    heartbeats: list[WorkerHeartbeat]


def read_status_reports(settings: ConnectionSettings) -> StatusReports:
    """The newest reports, by one reading of the topic; empty without control topics."""
    try:
        view = read_latest_values(settings, STATUS_TOPIC)
    except TopicMissing:
        return StatusReports([], [], [])
    heartbeats = parse_heartbeats(view)
    reports = []
    for key, value in view.items():
        if not key.startswith((SYNC_PREFIX, HEARTBEAT_PREFIX)):
            try:
                reports.append(renew_report(PartitionStatus.from_json(value, key), heartbeats))
            except ValueError as error:  # the next report replaces it
                log.warning("report unreadable", extra={"topic": STATUS_TOPIC, "key": key[:200], "reason": str(error)})
    reports.sort(key=lambda report: (report.flow, report.topic, report.partition))
    return StatusReports(reports, parse_sync_reports(view), [*heartbeats.values()])


def delete_partition_status(writer: ControlWriter, report: PartitionStatus) -> None:
    """Nobody copies the partition any more, and nobody is meant to: its report is removed."""
    writer.put_nowait(STATUS_TOPIC, report.key, None, report.slot)


def write_partition_status(
    writer: ControlWriter, report: PartitionStatus, on_done: WriteCallback | None = None
) -> None:
    """Write it without waiting: a lost report is followed by a newer one."""
    writer.put_nowait(STATUS_TOPIC, report.key, report.to_json(), report.slot, on_done=on_done)
