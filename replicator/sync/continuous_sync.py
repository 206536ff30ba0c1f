"""Keeping equal what travels beside records: done by the worker that serves slot 0, beside the copying."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from watershed.clusters.control_topics import ControlWriter
from watershed.clusters.errors import ClusterError, Unauthorised
from watershed.clusters.fleet import LEADING_SLOT
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.settings import ConnectionSettings, SettingsLookup
from watershed.clusters.sync_reports import (
    SyncReport,
    SyncState,
    delete_sync_report,
    read_sync_reports,
    write_sync_report,
)
from watershed.replicator.errors import ReplicatorError
from watershed.replicator.sync.all_kinds import KEPT_KINDS
from watershed.replicator.sync.sync_kind import (
    DifferenceOutcome,
    RememberingSyncKind,
    ReportingSyncKind,
    StoppedFlowSyncKind,
    SyncClusters,
    SyncKind,
)
from watershed.topology.drift import FieldDrift
from watershed.topology.plan import PlanFlow

log = logging.getLogger("watershed.sync")

_FAILED_AGAIN_S = 5.0
_THREADS = 8  # a cluster that does not answer holds one up to a minute for each kind
_KeptKind = SyncKind | ReportingSyncKind


@dataclass(slots=True)
class ContinuousSync:
    """`step` never waits. One flow's kind is never under way twice; flows go side by side. reports: what was told so
    far, by this worker or one before it."""

    target: ConnectionSettings
    connect: SettingsLookup
    worker_id: str
    writer: ControlWriter
    kinds: tuple[_KeptKind, ...] = KEPT_KINDS
    reports: Callable[[ConnectionSettings], list[SyncReport]] = read_sync_reports
    _leading: bool = False
    _due: dict[tuple[str, str], float] = field(default_factory=dict)
    _under_way: dict[tuple[str, str], Future[None]] = field(default_factory=dict)
    _told: dict[str, SyncReport] = field(default_factory=dict)  # by key, as last written
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_THREADS, thread_name_prefix="sync"))

    def step(self, slots: Iterable[int], flows: Mapping[str, FlowRecord]) -> None:
        """One round: `slots` are this worker's."""
        self._under_way = {key: future for key, future in self._under_way.items() if not future.done()}
        if LEADING_SLOT not in slots:
            self._leading = False
            return
        if not self._leading:
            self._leading = True
            self._under_way["", ""] = self._pool.submit(self._remember)
        if ("", "") in self._under_way:
            return
        self._forget_what_is_over(flows)
        now = time.monotonic()
        running = [record.flow for record in flows.values() if record.state == "running"]
        for flow_id, record in flows.items():
            for kind in self.kinds:
                at = flow_id, kind.name
                if _is_kept(kind, record) and at not in self._under_way and now >= self._due.get(at, 0):
                    self._due[at] = now + kind.every_ms(record.flow) / 1000
                    self._under_way[at] = self._pool.submit(self._once, kind, record, tuple(running))

    def current_reports(self) -> list[SyncReport]:
        """What this worker keeps, as last reported; nothing while another worker does."""
        return list(self._told.copy().values()) if self._leading else []

    def close(self) -> None:
        """End the pool; a sync under way runs to its end."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _remember(self) -> None:
        """What a worker before told, so that it is taken back once it is over. Runs in the pool."""
        for kind in self.kinds:
            if isinstance(kind, RememberingSyncKind):
                kind.forget()
        try:
            self._told = {each.key: each for each in self.reports(self.target)}
        except ClusterError as error:
            log.warning("reports not read", extra={"reason": str(error)})
            self._leading = False  # at the next step again

    def _forget_what_is_over(self, flows: Mapping[str, FlowRecord]) -> None:
        """Of kinds that are not kept any more. Flows of other topologies are not among `flows`, nor ours to judge."""
        kinds = {kind.name: kind for kind in self.kinds}
        for key, old in list(self._told.items()):
            record, kind = flows.get(old.flow), kinds.get(old.kind)
            if record is None or kind is None:
                continue
            if kind.mode(record.flow) != "continuous" and (old.flow, old.kind) not in self._under_way:
                delete_sync_report(self.writer, old)
                del self._told[key]

    def _once(self, kind: _KeptKind, record: FlowRecord, running: tuple[PlanFlow, ...]) -> None:
        """Runs in the pool."""
        flow = record.serving
        try:
            if record.state == "stopped" and isinstance(kind, StoppedFlowSyncKind):
                self._tell(flow.id, kind, kind.keep_stopped(flow, self.target))
                return
            source = self.connect(flow.source)
            pinned = replace(source, cluster_id=source.cluster_id or record.source_cluster_id)
            sides = SyncClusters(pinned, self.target, running)
            if isinstance(kind, ReportingSyncKind):
                self._tell(flow.id, kind, kind.keep(flow, sides))
                return
            found = kind.compare(flow, sides)
            done = kind.carry(flow, sides, [each for each in found if each.applied])
            left = [each for each in found if not each.applied]
            _log_carried(flow.id, kind.name, done)
            self._tell(flow.id, kind, build_sync_reports(flow.id, kind.name, done, left))
        except (ClusterError, ReplicatorError) as error:
            state: SyncState = "refused" if isinstance(error, Unauthorised) else "failed"
            log.warning("sync failed", extra={"flow": flow.id, "kind": kind.name, "reason": str(error)})
            self._tell(flow.id, kind, [SyncReport(flow.id, kind.name, "", state, str(error))])
            self._due[flow.id, kind.name] = time.monotonic() + _FAILED_AGAIN_S
        except Exception as error:  # a fault of ours: the copying goes on
            log.exception("sync failed", extra={"flow": flow.id, "kind": kind.name})
            why = f"a fault of Watershed's own, see the worker's log ({type(error).__name__})"
            self._tell(flow.id, kind, [SyncReport(flow.id, kind.name, "", "failed", why)])

    def _tell(self, flow_id: str, kind: _KeptKind, found: list[SyncReport]) -> None:
        """Write what is new, and take back what is over."""
        now = {each.key: each for each in found}
        for key, report in now.items():
            before = self._told.get(key)
            if before is None or replace(before, at_ms=0, worker="") != report:
                reports = replace(report, at_ms=time.time_ns() // 1_000_000, worker=self.worker_id)
                write_sync_report(self.writer, reports)
                self._told[key] = reports
                if before is None or before.state != report.state:
                    log.info(
                        "sync", extra={"flow": flow_id, "kind": kind.name, "thing": report.name, "to": report.state}
                    )
        for key, old in list(self._told.items()):
            if old.flow == flow_id and old.kind == kind.name and key not in now:
                delete_sync_report(self.writer, old)
                del self._told[key]


def _is_kept(kind: _KeptKind, record: FlowRecord) -> bool:
    """Whether a round of this kind is due for the flow: while it runs, and for few kinds when it is stopped."""
    is_asked = record.state == "running" or (record.state == "stopped" and isinstance(kind, StoppedFlowSyncKind))
    return is_asked and kind.mode(record.flow) == "continuous"


def _log_carried(flow_id: str, kind: str, done: Iterable[DifferenceOutcome]) -> None:
    """What a cluster was changed in without anybody there stands in the log, field by field."""
    for each in done:
        if each.error is None:
            what = each.difference
            about = {"flow": flow_id, "kind": kind, "thing": what.name, "field": what.field}
            log.info("carried over", extra=about | {"was": what.live, "now": what.wanted})


def build_sync_reports(
    flow_id: str, kind: str, done: Iterable[DifferenceOutcome], left: Iterable[FieldDrift]
) -> list[SyncReport]:
    """One a thing: the worst of what its differences came to."""
    found: dict[str, SyncReport] = {}
    by_name: dict[str, list[FieldDrift]] = {}
    for each in left:
        by_name.setdefault(each.name, []).append(each)
    for name, differences in by_name.items():
        more = f" (and {len(differences) - 1} more)" if len(differences) > 1 else ""
        detail = {"differences": len(differences)}
        found[name] = SyncReport(flow_id, kind, name, "different", f"{differences[0].why}{more}", detail)
    for each_done in done:
        name = each_done.difference.name
        if each_done.error is not None:
            found[name] = SyncReport(flow_id, kind, name, "refused", each_done.error)
        elif name not in found:
            found[name] = SyncReport(flow_id, kind, name, "carried")
    return [found[name] for name in sorted(found)]
