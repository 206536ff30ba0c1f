"""What a rolling restart waits for before it ends the next worker: that all partitions are served."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from watershed.clusters.admin import Admin
from watershed.clusters.control_topics import SLOT_COUNT
from watershed.clusters.fleet import read_slot_owners
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.partition_status_records import PartitionStatus, read_partition_statuses
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.worker.fleet_decisions import find_unserved_partitions, is_in_trouble
from watershed.replicator.worker.worker_host import WORKER_CLIENT_PREFIX

_SERVED_S: Final = 1.0  # how often reports are read while a restart goes on
_AWAITED_S: Final = 15.0  # a restart that waits longer for partitions names one
_SETTLED_S: Final = 2.5  # for whoever was given partitions to report them


@dataclass(slots=True)
class RollingRestart:
    """Asks the workers' group and the partitions' reports. replaced: whether this restart has ended a worker."""

    target: ConnectionSettings
    topology: str
    admin: Admin
    replaced: bool = False
    _idle: set[str] = field(default_factory=set)  # partitions that nobody could serve before it ended a worker
    _awaited: str = ""  # a partition that it waits for
    _awaited_since: float = 0.0
    _owners: Mapping[int, str] = field(default_factory=dict)  # of slots, as last seen
    _owners_since: float = 0.0
    _served_due: float = 0.0

    def reset(self) -> None:
        """No restart goes on; the next one begins anew."""
        self._idle, self.replaced, self._awaited = set(), False, ""

    def are_all_served(self, flows: Mapping[str, FlowRecord], workers: set[str]) -> bool:
        """Whether the next worker may end. False, too, where that was asked a moment ago: each replacement is decided
        by fresh reports. workers: client ids of those that run. Raises ClusterError."""
        now = time.monotonic()
        if now < self._served_due:
            return False
        self._served_due = now + _SERVED_S
        if not self._is_group_settled(workers, now):
            return False
        running = {
            flow_id: flow
            for flow_id, flow in flows.items()
            if flow.topology == self.topology
            and flow.state == "running"
            and flow.flow.target == self.target.alias
            and flow.flow.transform is None  # a worker beside these serves it
        }
        reports = [
            report
            for report in read_partition_statuses(self.target)
            if report.flow in running and running[report.flow].selects(report.topic)
        ]
        there = {each.removeprefix(WORKER_CLIENT_PREFIX) for each in self._owners.values()}
        return not self._is_one_awaited(find_unserved_partitions(reports, there, time.time_ns() // 1_000_000), now)

    def describe_awaited(self) -> str:
        """A partition that the restart has waited for too long to keep silent about it; "" for none."""
        return self._awaited if time.monotonic() - self._awaited_since > _AWAITED_S else ""

    def _is_one_awaited(self, unserved: Sequence[PartitionStatus], now: float) -> bool:
        """Whether the restart waits for one of them. It does not for one that nobody could serve before it began: its
        source may be down for days, and no worker makes that worse."""
        now_ms = time.time_ns() // 1_000_000
        self._idle &= {each.key for each in unserved}
        if not self.replaced:
            self._idle |= {each.key for each in unserved if is_in_trouble(each, now_ms)}
        awaited = sorted(f"{e.flow} {e.topic}-{e.partition} ({e.state})" for e in unserved if e.key not in self._idle)
        if not self._awaited:
            self._awaited_since = now
        more = f" and {len(awaited) - 1} more" if len(awaited) > 1 else ""
        self._awaited = awaited[0] + more if awaited else ""
        return bool(awaited)

    def _is_group_settled(self, workers: set[str], now: float) -> bool:
        """Whether all workers of ours share all slots, and have done so for long enough to report them."""
        owners = read_slot_owners(self.admin, self.topology)
        if owners != self._owners:
            self._owners, self._owners_since = owners, now
        shared = len(owners) == SLOT_COUNT and (workers <= set(owners.values()) or len(workers) > SLOT_COUNT)
        return shared and now - self._owners_since >= _SETTLED_S
