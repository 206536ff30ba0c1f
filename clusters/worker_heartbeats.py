"""That a worker lives, in the `watershed.status` topic: once a second, however many partitions it serves.

A report of a partition is written when something changes, and seldom otherwise. In between it is as new as the
heartbeat of the worker that wrote it: `clusters.partition_status_records.renew_report`. Both times are of the worker's
clock.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from watershed.clusters.control_record_codec import ControlRecordBody, ControlRecordFormat
from watershed.clusters.control_topics import STATUS_TOPIC, ControlWriter, WriteCallback, compute_slot
from watershed.clusters.flow_totals import FlowTotals
from watershed.clusters.latency_buckets import LatencyCounts, add_latency_counts

log = logging.getLogger("watershed.control")

HEARTBEAT_PREFIX: Final = "worker|"  # of keys; partitions have `<flow>|<topic>|<partition>`, and no flow is called so
SILENT_MS: Final = 15_000  # whoever has written none for so long does not live
_FORGOTTEN_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class WorkerHeartbeat(ControlRecordBody):
    """A worker at `at_ms` (its clock, milliseconds since 1970), with the slots that it serves.

    seen: flow → when the sources of all its partitions that this worker copies had told where their logs end (its
    clock, the earliest of them, as of the heartbeat before). latencies: flow → bucket (`clusters.latency_buckets`) →
    records that the worker has copied in the last 15 to 30 seconds; without those of flows that rest. worker, pid: as
    in its reports. pauses_partitions: whether it obeys pauses of single partitions; earlier
    versions pause the whole flow instead, and do not say so.

    topology: whose flows it serves. transforms: of these it serves those with `transform`, and no others. version: of
    its program (`watershed.product_version`). began_ms: when it began (its clock, milliseconds since 1970). With
    `worker` it names one life of one. totals: flow → what it has copied since then. Where a worker copies
    many flows, most heartbeats tell only of those that copied in the last 15 to 30 seconds; tells_all: these are the
    totals of all. throttled_s: how many seconds brokers have asked it to wait since then. Earlier versions write none.
    """

    FORMAT: ClassVar[ControlRecordFormat] = ControlRecordFormat(
        "a heartbeat", STATUS_TOPIC, writes_version=False, added_later=None
    )
    worker: str
    pid: int
    at_ms: int
    slots: tuple[int, ...] = ()
    seen: Mapping[str, int] = field(default_factory=dict)
    latencies: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    pauses_partitions: bool = False
    topology: str = ""
    version: str = ""
    began_ms: int = 0
    totals: Mapping[str, FlowTotals] = field(default_factory=dict)
    throttled_s: float = 0.0
    tells_all: bool = False
    transforms: bool = False

    @property
    def key(self) -> str:
        """One record a worker."""
        return f"{HEARTBEAT_PREFIX}{self.worker}"


def write_heartbeat(writer: ControlWriter, heartbeat: WorkerHeartbeat, on_done: WriteCallback | None = None) -> None:
    """Write it without waiting: a lost one is followed by a newer one."""
    slot = compute_slot(HEARTBEAT_PREFIX, heartbeat.worker, 0)
    writer.put_nowait(STATUS_TOPIC, heartbeat.key, heartbeat.to_json(), slot, on_done=on_done)


def parse_heartbeats(view: Mapping[str, Mapping[str, Any]]) -> dict[str, WorkerHeartbeat]:
    """Those among values of `watershed.status`, by worker. One that cannot be read is logged and left out: the next
    one replaces it."""
    found = {}
    for key, value in view.items():
        if key.startswith(HEARTBEAT_PREFIX):
            try:
                heartbeat = WorkerHeartbeat.from_json(value, key)
            except ValueError as error:
                log.warning("report unreadable", extra={"topic": STATUS_TOPIC, "key": key[:200], "reason": str(error)})
            else:
                found[heartbeat.worker] = heartbeat
    return found


def add_worker_latencies(heartbeats: Iterable[WorkerHeartbeat], now_ms: int) -> dict[str, dict[int, int]]:
    """Flow → bucket → records of the last 15 to 30 seconds before `now_ms` (since 1970), of all workers that live."""
    by_flow: dict[str, list[LatencyCounts]] = {}
    for heartbeat in heartbeats:
        if now_ms - heartbeat.at_ms <= SILENT_MS:
            for flow, counts in heartbeat.latencies.items():
                by_flow.setdefault(flow, []).append(counts)
    return {flow: add_latency_counts(each) for flow, each in by_flow.items()}


def delete_old_heartbeats(writer: ControlWriter, heartbeats: Iterable[WorkerHeartbeat], now_ms: int) -> None:
    """Remove those of workers that have been silent for a day; does not wait. Raises ClusterError."""
    for heartbeat in heartbeats:
        if now_ms - heartbeat.at_ms > _FORGOTTEN_MS:
            slot = compute_slot(HEARTBEAT_PREFIX, heartbeat.worker, 0)
            writer.put_nowait(STATUS_TOPIC, heartbeat.key, None, slot)
