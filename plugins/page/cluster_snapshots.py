"""What the page knows of the clusters. For each cluster, one thread follows the control topics while somebody looks,
and more slowly for as long afterwards as the charts reach back.

No request of a browser reads from Kafka. It gets the newest snapshot, with the time of the cluster's last answer. A
cluster that does not answer keeps its last snapshot, and delays only its own thread. The threads ask a separate process
(`clusters.crash_isolated_client`), and only that process holds Kafka's client. So a broker can make that process end,
but not the api-server.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from watershed.clusters.budget_breaches import BudgetBreach
from watershed.clusters.control_follower import ControlFollower, FollowedRecord
from watershed.clusters.control_follower_proxy import ControlFollowerProxy
from watershed.clusters.control_topics import FLOWS_TOPIC, JOURNAL_TOPIC, STATUS_TOPIC
from watershed.clusters.control_values import decode_control_value
from watershed.clusters.crash_isolated_client import ClientProcesses
from watershed.clusters.fleet import FLEET_PREFIX, SUPERVISOR_PREFIX, FleetRecord, SupervisorRecord
from watershed.clusters.flow_records import BREACH_PREFIX, NON_FLOW_PREFIXES, FlowRecord
from watershed.clusters.latency_buckets import LatencyCounts, compute_latency_percentile
from watershed.clusters.partition_status_records import PartitionStatus, renew_report
from watershed.clusters.sync_reports import SYNC_PREFIX, SyncReport
from watershed.clusters.worker_heartbeats import (
    HEARTBEAT_PREFIX,
    WorkerHeartbeat,
    add_worker_latencies,
    parse_heartbeats,
)
from watershed.cutover.errors import BrokenChain
from watershed.cutover.journal.hash_chain import JournalChain, JournalEntry, VoidLine
from watershed.cutover.journal.signing import TRUSTING, UNSIGNED
from watershed.plugins.page.lag_history import CHART_SLOT_S, CHART_SPAN_S, LagHistory, LagSample
from watershed.replicator.worker.flow_state import mark_if_silent
from watershed.topology.plan import PlanCluster

SNAPSHOT_PAUSE_S = 1.0  # between two snapshots
_SOON_S = 0.1  # the pause while much is left to read (at first, or after _MANY records at once): other threads run
_MANY = 100
CLUSTER_ANSWER_S = 4.0  # how long a cluster may take to answer before the page says that it does not
CLUSTER_RETRY_S = 2.0  # the pause after a cluster did not answer
_REST_S = 90.0  # a thread reads seldom when nobody has asked for so long: then only the charts need it
_REST_PAUSE_S = CHART_SLOT_S / 2  # between two snapshots then
_IDLE_S = float(CHART_SPAN_S)  # a thread ends when nobody asks for so long; the next request starts another
_CLUSTERS = 100  # threads at most
_CHAINS = 500  # journals of one cluster; anybody with WRITE can make up names of topologies
# Only one thread at a time decodes records. The api-server has one thread for all its requests: if fifty threads
# decoded at once, that one would get a fiftieth of the interpreter. No thread waits for a cluster with this lock.
_TURN = threading.Lock()
_JournalOf = tuple[str, bool]  # topology, whether its file names a key


@dataclass(frozen=True, slots=True)
class JournalView:
    """The chain of one topology. broken: why the lines after the entries cannot be trusted. unverified: how many
    entries are signed with a key that the page does not have."""

    entries: tuple[JournalEntry, ...] = ()
    void: int = 0
    broken: str | None = None
    foreign: tuple[VoidLine, ...] = ()
    unverified: int = 0


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """One cluster. flows: the records of `watershed.flows`. fleets, supervisors: of the same topic, by topology and
    target. reports and sync: by flow. journals: by topology, and by whether its file names a key. The page has no keys:
    for a file that names one it takes signed lines unverified; for a file without a key it must not believe a signed
    line. history: lag and rate of the last hours; it goes on growing. latencies: flow → bucket → records of the last 15
    to 30 seconds (`clusters.latency_buckets`); without flows that rest. heartbeats: the newest of each worker.
    breaches: flow → the budget breach by which it stands still.

    answered_at: seconds since 1970, None before the first answer. since: when the thread began to ask the cluster, or
    somebody looked again; before that, nobody looked. problem: why the cluster does not answer now. complete: its
    control topics have been read to their end; before that, the snapshot shows none of them.
    """

    flows: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    fleets: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    supervisors: Mapping[tuple[str, str], SupervisorRecord] = field(default_factory=dict)
    reports: Mapping[str, Mapping[str, PartitionStatus]] = field(default_factory=dict)
    sync: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    journals: Mapping[_JournalOf, JournalView] = field(default_factory=dict)
    history: LagHistory = field(default_factory=LagHistory)
    latencies: Mapping[str, LatencyCounts] = field(default_factory=dict)
    heartbeats: tuple[WorkerHeartbeat, ...] = ()
    breaches: Mapping[str, BudgetBreach] = field(default_factory=dict)
    answered_at: float | None = None
    since: float = 0.0
    problem: str | None = None
    complete: bool = False


class ControlTopicsView:
    """The newest values of the control topics, applied record by record. A record that cannot be read is left out, as
    the workers do: it must not hide the others."""

    def __init__(self) -> None:
        self.flows: dict[str, Mapping[str, Any]] = {}
        self.breaches: dict[str, BudgetBreach] = {}
        self.fleets: dict[tuple[str, str], Mapping[str, Any]] = {}
        self.supervisors: dict[tuple[str, str], SupervisorRecord] = {}
        self.reports: dict[str, dict[str, PartitionStatus]] = {}
        self.heartbeats: dict[str, WorkerHeartbeat] = {}
        self.sync: dict[str, dict[str, Mapping[str, Any]]] = {}
        self._chains: dict[_JournalOf, JournalChain] = {}
        self._broken: dict[_JournalOf, str] = {}

    def take(self, records: Iterable[FollowedRecord]) -> None:
        """Applies records of the control topics in log order; of a compacted key only the newest counts."""
        newest: dict[tuple[str, str], bytes | None] = {}
        for record in records:
            if record.topic == JOURNAL_TOPIC:
                self._journal(record)
            else:
                newest[record.topic, record.key] = record.payload
        for (topic, key), payload in newest.items():
            value = _parsed(payload)
            if topic == FLOWS_TOPIC and not key.startswith(NON_FLOW_PREFIXES):
                self._flow(key, value, gone=payload is None)
            elif topic == FLOWS_TOPIC and key.startswith(BREACH_PREFIX):
                self._breach(key, value, gone=payload is None)
            elif topic == FLOWS_TOPIC and key.startswith(FLEET_PREFIX):
                self._fleet(key, value, gone=payload is None)
            elif topic == FLOWS_TOPIC and key.startswith(SUPERVISOR_PREFIX):
                self._supervisor(key, value, gone=payload is None)
            elif topic == STATUS_TOPIC:
                self._status(key, value)

    def snapshot(self, answered_at: float) -> ClusterSnapshot:
        """A copy that later records do not change; answered_at: when the cluster answered, in seconds since 1970."""
        return ClusterSnapshot(
            flows=dict(self.flows),
            breaches=self._list_open_breaches(),
            fleets=dict(self.fleets),
            supervisors=dict(self.supervisors),
            reports={flow: self._renewed(each) for flow, each in self.reports.items()},
            sync={flow: dict(each) for flow, each in self.sync.items()},
            journals={
                key: JournalView(
                    tuple(chain.entries), len(chain.void), self._broken.get(key), chain.foreign, chain.signed
                )
                for key, chain in self._chains.items()
            },
            latencies=add_worker_latencies(self.heartbeats.values(), int(answered_at * 1000)),
            heartbeats=tuple(self.heartbeats.values()),
            answered_at=answered_at,
            complete=True,
        )

    def sample(self, now: float) -> dict[tuple[str, str], LagSample]:
        """Lag, delay, rate and latency of every flow at `now` (seconds since 1970), by its topology and id."""
        latencies = add_worker_latencies(self.heartbeats.values(), int(now * 1000))
        found = {}
        for flow, each in self.reports.items():
            topology = self.flows.get(flow, {}).get("topology")
            if isinstance(topology, str) and each:
                state = self.flows[flow].get("state")
                told = [mark_if_silent(one, int(now * 1000), flow_state=state) for one in self._renewed(each).values()]
                found[topology, flow] = _sampled(told, latencies.get(flow, {}))
        return found

    def _renewed(self, reports: Mapping[str, PartitionStatus]) -> dict[str, PartitionStatus]:
        return {key: renew_report(report, self.heartbeats) for key, report in reports.items()}

    def _flow(self, key: str, value: dict[str, Any] | None, *, gone: bool) -> None:
        """A record that cannot be read changes nothing. The workers do the same."""
        try:
            if value is not None:
                FlowRecord.from_json(value, key)
        except ValueError:
            return
        if gone or value is not None:
            _put(self.flows, key, FlowRecord.undo_adaptation(value) if value is not None else None)

    def _breach(self, key: str, value: dict[str, Any] | None, *, gone: bool) -> None:
        """A record that cannot be read changes nothing."""
        if gone:
            self.breaches.pop(key[len(BREACH_PREFIX) :], None)
        elif value is not None:
            with contextlib.suppress(ValueError):
                self.breaches[key[len(BREACH_PREFIX) :]] = BudgetBreach.from_json(value, key)

    def _list_open_breaches(self) -> dict[str, BudgetBreach]:
        return {
            flow: breach
            for flow, breach in self.breaches.items()
            if flow in self.flows
            and not breach.answered
            and breach.number > self.flows[flow].get("answered_breaches", 0)
        }

    def _fleet(self, key: str, value: dict[str, Any] | None, *, gone: bool) -> None:
        """A record that cannot be read changes nothing."""
        topology, _, target = key[len(FLEET_PREFIX) :].rpartition("/")
        try:
            if value is not None:
                FleetRecord.from_json(value, key)
        except ValueError:
            return
        if gone:
            self.fleets.pop((topology, target), None)
        elif value is not None:
            self.fleets[topology, target] = value

    def _supervisor(self, key: str, value: dict[str, Any] | None, *, gone: bool) -> None:
        """A record that cannot be read changes nothing, nor does one of an earlier epoch: its writer was replaced."""
        topology, _, target = key[len(SUPERVISOR_PREFIX) :].rpartition("|")
        if gone:
            self.supervisors.pop((topology, target), None)
        elif value is not None:
            with contextlib.suppress(ValueError):
                found = SupervisorRecord.from_json(value, key)
                known = self.supervisors.get((topology, target), found)
                self.supervisors[topology, target] = max(known, found, key=lambda each: each.epoch)

    def _status(self, key: str, value: dict[str, Any] | None) -> None:
        if key.startswith(HEARTBEAT_PREFIX):
            if value is None:
                self.heartbeats.pop(key.removeprefix(HEARTBEAT_PREFIX), None)
            else:
                self.heartbeats |= parse_heartbeats({key: value})
            return
        about, bare = (self.sync, key[len(SYNC_PREFIX) :]) if key.startswith(SYNC_PREFIX) else (self.reports, key)
        of_flow: dict[str, Any] = about.setdefault(bare.partition("|")[0], {})
        try:
            if value is not None and about is self.reports:
                _put(of_flow, key, PartitionStatus.from_json(value))
            else:
                _put(of_flow, key, None if value is None else SyncReport.from_json(value).to_json())
        except ValueError:
            of_flow.pop(key, None)

    def _journal(self, record: FollowedRecord) -> None:
        value = _parsed(record.payload)
        name = None if value is None else value.get("topology")
        if value is None or not isinstance(name, str):
            return
        if (name, False) not in self._chains and len(self._chains) >= 2 * _CHAINS:
            return
        for key in ((name, False), (name, True)):
            if key not in self._broken:
                chain = self._chains.setdefault(key, JournalChain(name, signing=TRUSTING if key[1] else UNSIGNED))
                try:
                    chain.follow([(record.offset, value)])
                except BrokenChain as error:
                    self._broken[key] = str(error)


class ClusterReader:
    """Follows one cluster in a thread of its own, as long as somebody calls `look` every now and then."""

    def __init__(
        self, cluster: PlanCluster, follow: Callable[[PlanCluster], ControlFollower | ControlFollowerProxy]
    ) -> None:
        self.cluster = cluster
        self._follow = follow
        self._snapshot = ClusterSnapshot()
        self.asked = 0.0  # when somebody looked last, by the monotonic clock
        self._history = LagHistory()
        self._stop = threading.Event()
        self._wake = threading.Event()  # somebody looks again, or the thread is to end
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def look(self) -> ClusterSnapshot:
        """The newest snapshot, at once."""
        rested = self.is_resting
        self.asked = time.monotonic()
        with self._lock:
            if rested:  # the last answer is as old as the pause, and that is no silence
                self._snapshot = replace(self._snapshot, since=time.time())
                self._wake.set()
            if (self._thread is None or not self._thread.is_alive()) and not self._stop.is_set():
                self._snapshot = replace(self._snapshot, since=time.time(), problem=None)
                self._thread = threading.Thread(target=self._run, name=f"page {self.cluster.alias}", daemon=True)
                self._thread.start()
        return self._snapshot

    def stop(self) -> None:
        """Makes the thread end at its next pause. No other thread starts after that."""
        self._stop.set()
        self._wake.set()

    def join(self, timeout: float) -> None:
        """Waits at most `timeout` seconds for the thread's end."""
        if self._thread is not None:
            self._thread.join(timeout)

    @property
    def is_resting(self) -> bool:
        """Whether nobody has looked lately: what is read now is for the charts."""
        return time.monotonic() - self.asked >= _REST_S

    @property
    def _wanted(self) -> bool:
        return not self._stop.is_set() and time.monotonic() - self.asked < _IDLE_S

    def _run(self) -> None:
        while self._wanted:
            try:
                with self._follow(self.cluster) as following:
                    self._read(following)
            except Exception as error:  # noqa: BLE001 (the page shows every error, and the thread tries again)
                self._snapshot = replace(self._snapshot, problem=str(error) or repr(error))
                self._pause(_REST_PAUSE_S if self.is_resting else CLUSTER_RETRY_S)

    def _read(self, following: ControlFollower | ControlFollowerProxy) -> None:
        view = ControlTopicsView()
        while self._wanted:
            following.ask(CLUSTER_ANSWER_S)
            answered_at = time.time()
            found = following.read(0.0)
            with _TURN:
                view.take(found)
            if following.complete:
                if self._history.needs_sample(answered_at):
                    self._history.add(answered_at, view.sample(answered_at))
                taken = view.snapshot(answered_at)
                self._snapshot = replace(taken, since=self._snapshot.since, history=self._history)
            else:  # an incomplete reading would show old reports as the newest, so the earlier snapshot stays
                self._snapshot = replace(self._snapshot, answered_at=answered_at)
            if not following.complete or len(found) >= _MANY:
                self._pause(_SOON_S)
            else:
                self._pause(_REST_PAUSE_S if self.is_resting else SNAPSHOT_PAUSE_S)

    def _pause(self, seconds: float) -> None:
        """Waits, or less: until somebody looks again."""
        if self._wake.wait(seconds) and not self._stop.is_set():
            self._wake.clear()


class ClusterReaders:
    """The readers of all clusters. Plans that declare a cluster in the same way share its reader."""

    def __init__(self) -> None:
        self._readers: dict[PlanCluster, ClusterReader] = {}
        self._apart = ClientProcesses()
        self._lock = threading.Lock()
        atexit.register(self.stop)

    def look(self, cluster: PlanCluster) -> ClusterSnapshot:
        """The newest snapshot of a cluster, at once; the first call begins to read it."""
        with self._lock:
            reader = self._readers.get(cluster)
            if reader is None:
                if len(self._readers) >= _CLUSTERS and not self._drop_resting():
                    return ClusterSnapshot(problem=f"not read: this page follows {_CLUSTERS} clusters already")
                reader = self._readers[cluster] = ClusterReader(cluster, partial(ControlFollowerProxy, self._apart))
        return reader.look()

    def _drop_resting(self) -> bool:
        """Ends the reader that nobody has asked for longest: clusters that a file declared differently once. False
        where all are looked at."""
        oldest = min(self._readers.values(), key=lambda each: each.asked)
        if not oldest.is_resting:
            return False
        oldest.stop()
        del self._readers[oldest.cluster]
        return True

    def stop(self) -> None:
        """Ends all threads and the separate processes, in about two seconds."""
        for reader in self._readers.values():
            reader.stop()
        self._apart.stop()
        deadline = time.monotonic() + 2 * SNAPSHOT_PAUSE_S
        for reader in self._readers.values():
            reader.join(max(0.0, deadline - time.monotonic()))


def _sampled(reports: Iterable[PartitionStatus], latency: LatencyCounts) -> LagSample:
    records, delays, rate = 0, -1, 0.0
    known = False
    for report in reports:
        rate += report.rate_bytes
        if report.lag_records is not None:
            known, records = True, records + report.lag_records
        if report.lag_ms is not None:
            delays = max(delays, report.lag_ms)
    p50, p99 = compute_latency_percentile(latency, 0.5), compute_latency_percentile(latency, 0.99)
    return LagSample(records if known else None, None if delays < 0 else delays, rate, p50, p99)


def _parsed(payload: bytes | None) -> dict[str, Any] | None:
    try:
        return None if payload is None else decode_control_value(payload)
    except ValueError:
        return None


def _put(into: dict[str, Any], key: str, value: Any) -> None:
    if value is None:
        into.pop(key, None)
    else:
        into[key] = value
