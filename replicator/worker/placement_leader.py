"""Deciding the placement of a fleet: done by the worker that serves slot 0, beside the copying (decision 0020).

What persons moved to a worker comes first, and is looked at more often (decision 0116)."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from confluent_kafka import KafkaException

from watershed.clusters.admin import Admin
from watershed.clusters.control_topics import ControlWriter, compute_slot
from watershed.clusters.errors import ClusterError
from watershed.clusters.fleet import LEADING_SLOT, PlacementRecord, read_slot_owners, write_placement
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.partition_orders import find_partition_order, index_partition_orders
from watershed.clusters.partition_status_records import PartitionStatus, StatusFollower, read_status_reports
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.worker_heartbeats import WorkerHeartbeat, delete_old_heartbeats
from watershed.replicator.topic_mapping import MappedTopic
from watershed.replicator.worker.partition_placement import (
    ChosenPlace,
    PartitionLoad,
    balance_partitions,
    place_chosen_partitions,
)
from watershed.replicator.worker.worker_host import WORKER_CLIENT_PREFIX

log = logging.getLogger("watershed.placement")

_FIRST_S = 30.0  # of reports, before the first decision of a new leader
_BEFORE_S = (
    15.0  # then it reads what was reported earlier: the start of its own copies is over, and needs the processor
)
_SMOOTH = 0.1  # share of a second's report: about the mean of ten seconds
_CHOSEN_EVERY_S = 2.0  # looks at where the partitions are that persons moved: one question to the group's coordinator
_OLD_S = 15.0  # a worker that was silent for so long says nothing about now


@dataclass(slots=True)
class _Seen:
    report: PartitionStatus
    rate: float
    at: float


@dataclass(slots=True)
class _ObservedRates:
    """What partitions carried lately, from reports as they come in."""

    _seen: dict[str, _Seen] = field(default_factory=dict)
    _heartbeats: dict[str, tuple[WorkerHeartbeat, float]] = field(default_factory=dict)  # with when it came

    def begin(self, reports: Iterable[PartitionStatus], now: float) -> None:
        """Those from before we followed: a quiet partition is reported seldom."""
        for report in reports:
            self._seen.setdefault(report.key, _Seen(report, report.rate_bytes, now))

    def take(self, reports: Iterable[PartitionStatus], heartbeats: Mapping[str, WorkerHeartbeat], now: float) -> None:
        for worker, heartbeat in heartbeats.items():
            if worker not in self._heartbeats or self._heartbeats[worker][0] != heartbeat:
                self._heartbeats[worker] = heartbeat, now
        for report in reports:
            before = self._seen.get(report.key)
            rate = report.rate_bytes
            if before is not None:
                rate = (1 - _SMOOTH) * _find_rate(before, now - 1) + _SMOOTH * report.rate_bytes
            self._seen[report.key] = _Seen(report, rate, now)

    def _heard_at(self, seen: _Seen) -> float:
        heartbeat, at = self._heartbeats.get(seen.report.worker, (None, 0.0))
        return max(seen.at, at) if heartbeat is not None and heartbeat.pid == seen.report.pid else seen.at

    def loads(self, flows: Mapping[str, FlowRecord], now: float) -> list[PartitionLoad]:
        """Those of `flows`; what is not reported any more is left out."""
        self._seen = {key: seen for key, seen in self._seen.items() if now - self._heard_at(seen) < _OLD_S}
        return [
            PartitionLoad(
                key,
                seen.report.slot,
                _find_rate(seen, now),
                seen.report.young and _can_be_moved(flows[seen.report.flow]),
            )
            for key, seen in self._seen.items()
            if seen.report.flow in flows
        ]


def _find_rate(seen: _Seen, now: float) -> float:
    """What has not been reported again goes on as its last report says."""
    weight = (1 - _SMOOTH) ** max(now - seen.at, 0.0)
    return float(seen.report.rate_bytes + weight * (seen.rate - seen.report.rate_bytes))


def _can_be_moved(record: FlowRecord) -> bool:
    """With transactions the transactional id is that of the ledger's slot, so whoever serves the slot must copy."""
    return record.flow.delivery != "transactions"


def list_chosen_places(
    flows: Mapping[str, FlowRecord], topics: Mapping[str, Sequence[MappedTopic]]
) -> dict[str, ChosenPlace]:
    """`flow|topic|partition` → where a person wants it. topics: of flows, as they were found at their sources. Flows
    that copy in transactions have none."""
    found = {}
    for flow_id, record in flows.items():
        if not record.moves or not _can_be_moved(record):
            continue
        moves = index_partition_orders(record.moves)
        for mapped in topics.get(flow_id, ()):
            for partition in range(mapped.partitions) if record.selects(mapped.topic) else ():
                move = find_partition_order(moves, mapped.topic, partition)
                if move is not None:
                    home = compute_slot(flow_id, mapped.topic, partition)
                    found[f"{flow_id}|{mapped.topic}|{partition}"] = ChosenPlace(home, move.worker)
    return found


class PlacementLeader:
    """`step` never waits. moves: whether another worker may go on at once; at a target that does not tell what it
    holds of producers each takeover waits (decision 0085), so nothing is moved to even the load out. What a person
    moves is moved all the same."""

    def __init__(
        self,
        target: ConnectionSettings,
        topology: str,
        worker_id: str,
        writer: ControlWriter,
        *,
        period_s: float,
        moves: bool = True,
    ) -> None:
        self._moves = moves
        self._target, self._topology, self._worker_id, self._writer = target, topology, worker_id, writer
        self._period_s = period_s
        self._rates = _ObservedRates()
        self._reports: StatusFollower | None = None
        self._admin: Admin | None = None
        self._due = self._chosen_due = 0.0
        self._before_due = math.inf  # when earlier reports are to be read (monotonic)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="placement")
        self._deciding: Future[None] | None = None
        self._before: Future[list[PartitionStatus]] | None = None  # what was reported before we followed

    def step(
        self,
        slots: Iterable[int],
        flows: Mapping[str, FlowRecord],
        placement: PlacementRecord | None,
        topics: Mapping[str, Sequence[MappedTopic]],
    ) -> None:
        """One round: `slots` are this worker's, `placement` is the newest record, `topics` those of each flow."""
        if LEADING_SLOT not in slots:
            self._stop_leading()
            return
        now = time.monotonic()
        if self._reports is None:
            try:
                self._reports = StatusFollower(self._target)
            except (ClusterError, KafkaException) as error:  # in the middle of a rotation, perhaps
                log.warning("placement not decided", extra={"reason": str(error)})
                return
            self._due = now + min(_FIRST_S, self._period_s)
            self._before_due = now + min(_BEFORE_S, self._period_s / 2)
        if now >= self._before_due:
            self._before_due = math.inf
            self._before = self._pool.submit(self._read_before)
        self._rates.take(self._reports.read(), self._reports.heartbeats, now)
        if self._before is not None and self._before.done():
            self._rates.begin(self._before.result(), now)
            self._before = None
        if self._deciding is not None and not self._deciding.done():
            return
        is_due = now >= self._due and self._before is None
        chosen = list_chosen_places(flows, topics) if is_due or now >= self._chosen_due else {}
        if not is_due and not chosen:
            return
        self._chosen_due = now + _CHOSEN_EVERY_S
        table = {
            key: slot
            for key, slot in (placement.slots if placement is not None else {}).items()
            if _still_meant(key, flows)
        }
        loads: list[PartitionLoad] = []
        if is_due:
            self._due = now + self._period_s
            loads = [replace(each, movable=each.movable and self._moves) for each in self._rates.loads(flows, now)]
        self._deciding = self._pool.submit(self._decide, loads, table, chosen, placement)

    def close(self) -> None:
        """Stop leading and end the pool."""
        self._stop_leading()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _stop_leading(self) -> None:
        if self._reports is not None:
            self._reports.close()
            self._reports, self._admin, self._rates, self._before = None, None, _ObservedRates(), None
            self._before_due = math.inf

    def _read_before(self) -> list[PartitionStatus]:
        """Runs in a thread of its own; once for each time that we lead."""
        try:
            reports = read_status_reports(self._target)
            delete_old_heartbeats(self._writer, reports.heartbeats, time.time_ns() // 1_000_000)
            return reports.partitions
        except ClusterError as error:
            log.warning("earlier reports unknown", extra={"reason": str(error)})
            return []

    def _decide(
        self,
        loads: list[PartitionLoad],
        table: dict[str, int],
        chosen: Mapping[str, ChosenPlace],
        before: PlacementRecord | None,
    ) -> None:
        """Runs in a thread of its own. loads: empty where only what persons moved is looked at."""
        try:
            admin = self._admin = self._admin or Admin(self._target)
            clients = read_slot_owners(admin, self._topology)
            owners = {slot: client.removeprefix(WORKER_CLIENT_PREFIX) for slot, client in clients.items()}
            after, fixed = place_chosen_partitions(chosen, table, owners)
            if loads:
                loads = [replace(each, movable=each.movable and each.key not in fixed) for each in loads]
                after = balance_partitions(loads, after, owners)
            if after == dict(before.slots if before is not None else {}):
                return
            record = PlacementRecord(
                self._topology, self._target.alias, after, self._worker_id, time.time_ns() // 1_000_000
            )
            write_placement(self._writer, record)
            changed = sorted(key for key in {*after, *table} if after.get(key) != table.get(key))
            log.info("placement", extra={"moved": changed[:20], "partitions": len(changed)})
        except ClusterError as error:  # nothing depends on it: the next period comes
            log.warning("placement not decided", extra={"reason": str(error)})
        except Exception:
            log.exception("placement not decided")


def _still_meant(key: str, flows: Mapping[str, FlowRecord]) -> bool:
    flow_id, topic, _partition = key.split("|")
    record = flows.get(flow_id)
    return record is not None and _can_be_moved(record) and record.selects(topic)
