"""Answers the actions of a failover: who answers, what was last seen of the source, fencing workers, divergence.

Everything but `ProbeCluster` and `FindDivergence` asks the target alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from typing import Final

from watershed.clusters.control_records import read_control_log
from watershed.clusters.control_topics import SLOT_COUNT, STATUS_TOPIC
from watershed.clusters.control_values import ControlValue, log_invalid_record
from watershed.clusters.errors import ClusterError, TopicMissing, Unreachable, WrongCluster
from watershed.clusters.flow_records import FlowRecord, read_flows
from watershed.clusters.partition_status_records import PartitionStatus, renew_report
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.sync_reports import SYNC_PREFIX, parse_sync_reports
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire.connection import Connection
from watershed.clusters.worker_heartbeats import HEARTBEAT_PREFIX, WorkerHeartbeat, parse_heartbeats
from watershed.cutover.actions import (
    Action,
    CheckCutOff,
    ClusterSide,
    CutOff,
    FindDivergence,
    ProbeCluster,
    ReadLastSeenSource,
)
from watershed.cutover.observations import (
    ClusterProbe,
    CutOffResult,
    DivergentRange,
    LastSeenPartition,
    LastSeenSource,
    Observation,
    ObservedDivergence,
)
from watershed.replicator.copy.flow_epoch_fence import FlowNotFenced, explain_fence_refusal, fence_flow
from watershed.replicator.recovery.divergence import read_divergence
from watershed.replicator.sync.group_control_records import FlowsFollower
from watershed.topology.plan import PlanFlow

_ANSWER_S: Final = 3.0  # for each step of the handshake with a broker that may hang
_GROUPS: Final = "groups"  # how `sync.groups` is called in reports


class LiveFailover:
    """Answers what a failover and a failback ask besides. Raises ClusterError and ReplicatorError."""

    def __init__(
        self, flow: PlanFlow, settings: Mapping[ClusterSide, ConnectionSettings], now: Callable[[], int]
    ) -> None:
        self._flow, self._settings, self._now = flow, settings, now
        self._sights = _Sights(settings["target"], flow.id)
        self._flows = FlowsFollower(settings["target"])

    def answers(self) -> dict[type[Action], Callable[..., Observation]]:
        """Action class → the method that answers it."""
        return {
            ProbeCluster: self.whether_answers,
            ReadLastSeenSource: self.last_sight,
            CheckCutOff: self.check_cut_off,
            CutOff: self.cut_off,
            FindDivergence: self.divergence,
        }

    def whether_answers(self, action: ProbeCluster) -> ClusterProbe:
        """Whether a live broker of the cluster answers at a bootstrap address."""
        answers, text = probe_bootstrap_brokers(self._settings[action.side])
        return ClusterProbe(self._now(), answers, text)

    def last_sight(self, action: ReadLastSeenSource) -> LastSeenSource:
        """What workers last wrote of the source: log ends, the groups that were synced, and the state of Streams
        applications that came with their positions."""
        newest = self._sights.read()
        sights = {place: _sight(newest[place]) for place in action.places if place in newest}
        carried = {
            each.name: (each.at_ms, each.state)
            for each in parse_sync_reports(self._sights.beside)
            if each.flow == self._flow.id and each.kind == _GROUPS and each.name
        }
        self._flows.read()
        states = self._flows.state_ranges(self._flow.id)
        return LastSeenSource(self._now(), time.time_ns() // 1_000_000, sights, carried, states)

    def check_cut_off(self, _action: CheckCutOff) -> CutOffResult:
        """Whether this process has the rights to fence the flow's producers."""
        record = read_flows(self._settings["target"]).get(self._flow.id)
        text = "" if record is None else explain_fence_refusal(record, self._settings["target"])
        return CutOffResult(self._now(), not text, text)

    def cut_off(self, action: CutOff) -> CutOffResult:
        """Fences the flow's producers in every log; a worker that wakes up later can write nothing."""
        record, target = self._record(), self._settings["target"]
        found = fence_flow(record, action.offsets, target)
        text = f"producer {record.producer_id} is fenced by epoch in {len(found.epochs)} partitions"
        if record.flow.delivery == "transactions":
            text = f"the transactional ids of all {SLOT_COUNT} slots are fenced"
        return CutOffResult(self._now(), True, text, found.epochs, found.ends, found.source_ids)

    def divergence(self, action: FindDivergence) -> ObservedDivergence:
        """Ranges of records that only this cluster has, since the offsets asked for. Reads the logs."""
        found = read_divergence(self._settings[action.side], action.since)
        stretches = tuple(
            DivergentRange(each.place, each.first, each.last, each.records, each.oldest_ms, each.newest_ms)
            for each in found.stretches
        )
        return ObservedDivergence(self._now(), stretches, found.starts, found.ends, found.ids)

    def _record(self) -> FlowRecord:
        record = read_flows(self._settings["target"]).get(self._flow.id)
        if record is None:
            raise FlowNotFenced(f"flow {self._flow.id} is not on {self._flow.target}")
        return record


def probe_bootstrap_brokers(settings: ConnectionSettings) -> tuple[bool, str]:
    """Whether any bootstrap address belongs to a live broker of the cluster, asked all at once: (answers, text).

    A broker that refuses our login lives, too; one of another cluster than the pinned one does not count.
    """
    addresses = [(host.strip("[]"), int(port)) for host, _, port in (at.rpartition(":") for at in settings.bootstrap)]
    texts: list[str] = []
    with ThreadPoolExecutor(max_workers=len(addresses) or 1, thread_name_prefix="answers") as pool:
        for done in as_completed([pool.submit(_answers, settings, address) for address in addresses]):
            answers, text = done.result()
            if answers:
                return True, text
            texts.append(text)
    return False, "; ".join(sorted(texts)) or "no bootstrap address is given"


def _answers(settings: ConnectionSettings, address: tuple[str, int]) -> tuple[bool, str]:
    at = f"{address[0]}:{address[1]}"
    try:
        with closing(Connection(settings, address, timeout_s=_ANSWER_S)) as broker:
            actual = broker.cluster_id()
    except Unreachable as error:
        return False, f"{at}: {error.__cause__ or error}"
    except WrongCluster as error:
        return False, str(error)
    except ClusterError as error:
        return True, f"{at} is there ({error})"
    if settings.cluster_id not in (None, actual):
        return False, f"{at} is cluster {actual}, not {settings.cluster_id}"
    return True, f"{at} is there"


class _Sights:
    """The newest report of every partition that says where the source ended; each `read` takes what is new.

    A worker that was started when the source was gone already knows nothing of it, and replaces nothing here, as long
    as the topic's cleaner has left what stood there before. beside: the newest reports of what travels beside records.
    """

    def __init__(self, target: ConnectionSettings, flow: str) -> None:
        self._target, self._flow = target, flow
        self._next: dict[int, int] = {}
        self._newest: dict[TopicPartition, PartitionStatus] = {}
        self._heartbeats: dict[str, WorkerHeartbeat] = {}
        self.beside: dict[str, ControlValue] = {}

    def read(self) -> Mapping[TopicPartition, PartitionStatus]:
        """Raises ClusterError."""
        try:
            for record in read_control_log(self._target, STATUS_TOPIC, range(SLOT_COUNT), self._next):
                self._next[record.partition] = record.offset + 1
                value = record.value
                if record.key.startswith(SYNC_PREFIX):
                    self.beside.pop(record.key, None)
                    self.beside |= {} if value is None else {record.key: value}
                elif record.key.startswith(HEARTBEAT_PREFIX):
                    self._heartbeats |= {} if value is None else parse_heartbeats({record.key: value})
                elif value is not None and value.get("flow") == self._flow:
                    try:
                        report = PartitionStatus.from_json(value)
                    except ValueError as error:
                        log_invalid_record(record.invalid(self._target.alias, STATUS_TOPIC, str(error)))
                        continue
                    if report.source_end >= 0 and report.source_seen_ms is not None:
                        self._newest[TopicPartition(report.topic, report.partition)] = report
        except TopicMissing:
            pass
        return {place: renew_report(report, self._heartbeats) for place, report in self._newest.items()}


def _sight(report: PartitionStatus) -> LastSeenPartition:
    assert report.source_seen_ms is not None
    waiting_since = report.at_ms - (report.lag_ms or 0)
    return LastSeenPartition(
        report.source_end, report.open_records, report.source_seen_ms, min(waiting_since, report.source_seen_ms)
    )
