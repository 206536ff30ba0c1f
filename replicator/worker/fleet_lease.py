"""The lease on a fleet: who may supervise it, in which epoch, and the records that say so.

The lease is a place in a consumer group on the target cluster (`replicator.worker.membership`), so it needs no clock,
pid, file or folder. Each holder of the lease begins an epoch, which it writes down.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from watershed.clusters.control_topics import FLOWS_TOPIC, ControlWriter
from watershed.clusters.errors import ClusterError
from watershed.clusters.fleet import (
    FleetRecord,
    SupervisorRecord,
    build_fleet_key,
    build_lease_group_id,
    build_supervisor_key,
    write_supervisor,
)
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.worker.desired_state import DesiredState
from watershed.replicator.worker.membership import Membership

_PACE_S: Final = 0.2
_NOTE_S: Final = 2.0  # how often the record of the supervisor may change


@dataclass(slots=True)
class FleetLease:
    """Call `join` first. holder names this process. epoch: None until its record is written; given where somebody else
    holds the lease for us. since: when the epoch began, in seconds of the monotonic clock."""

    target: ConnectionSettings
    topology: str
    holder: str
    epoch: int | None = None
    since: float = 0.0
    _renews: bool = False
    _written: float = 0.0
    _membership: Membership | None = None
    _desired: DesiredState = field(init=False)
    _writer: ControlWriter = field(init=False)

    def __post_init__(self) -> None:
        self._desired = DesiredState(self.target)
        self._writer = ControlWriter(self.target, client_id=self._client_id)

    @property
    def _client_id(self) -> str:
        return f"watershed-supervisor-{self.holder}"

    @property
    def fleet(self) -> FleetRecord | None:
        """What the fleet should be; None before it was applied."""
        return self._desired.fleets.get(build_fleet_key(self.topology, self.target.alias))

    @property
    def flows(self) -> Mapping[str, FlowRecord]:
        """All flows into the target, also of other topologies."""
        return self._desired.flows

    @property
    def has_transforms(self) -> bool:
        """Whether a flow of the fleet has `transform`."""
        return any(
            record.topology == self.topology
            and record.flow.target == self.target.alias
            and record.flow.transform is not None
            for record in self._desired.flows.values()
        )

    @property
    def record(self) -> SupervisorRecord | None:
        """The newest record of a supervisor of the fleet, ours or another's."""
        return self._desired.supervisors.get(build_supervisor_key(self.topology, self.target.alias))

    @property
    def is_held(self) -> bool:
        """Whether the lease is ours; where somebody else holds it for us, whether the epoch is still the newest."""
        if self._membership is None:
            return self.record is None or self.record.epoch == self.epoch
        return bool(self._membership.slots)

    @property
    def is_superseded(self) -> bool:
        """Whether a later epoch has begun, by another process."""
        return self.epoch is not None and self.record is not None and self.record.epoch > self.epoch

    @property
    def is_epoch_taken(self) -> bool:
        """Whether a record has the number of our epoch, or a later one: the next epoch to begin needs one more."""
        return self.epoch is not None and self.record is not None and self.record.epoch >= self.epoch

    @property
    def can_change(self) -> bool:
        """Whether the record may be written again: it changes now and then only."""
        return time.monotonic() - self._written >= _NOTE_S

    def join(self) -> None:
        """Read the target's records, and ask for the lease. Raises ClusterError."""
        self.since = time.monotonic()
        self._desired.catch_up()
        if self.epoch is None:
            group = build_lease_group_id(self.topology, self.target.alias)
            self._membership = Membership(self.target, group, self._client_id, lambda _lost: None, topic=FLOWS_TOPIC)

    def keep(self) -> None:
        """Wait for a moment, and keep the lease meanwhile."""
        if self._membership is not None:
            self._membership.poll(_PACE_S)
        else:
            time.sleep(_PACE_S)

    def follow(self) -> None:
        """The same, and take note of what has been written. Raises ClusterError."""
        self.keep()
        if self._desired.there:
            self._desired.follow(0)
        else:
            self._desired.catch_up()

    def renew(self) -> None:
        """End our epoch: who holds the lease begins the next one, which ends the workers of this one."""
        self._renews = True

    def is_ours(self, record: SupervisorRecord) -> bool:
        """Whether this process wrote it, in its present epoch."""
        return record.epoch == self.epoch and record.holder == self.holder

    def has_epoch(self) -> bool:
        """Whether the holder of the lease may act, or has to begin an epoch before. Raises ClusterError."""
        if self._membership is None:
            return True
        known = self.record
        if known is not None and self._is_current(known):
            if known.key in self._desired.overtaken:  # a supervisor before us woke up: only ours is to be found there
                self.write(known)
            return True
        self._desired.catch_up()
        known = self.record
        return known is not None and self._is_current(known)

    def begin_epoch(self, *, bridged: bool) -> bool:
        """Write down that we supervise from now on; False where another process was faster.

        An epoch begins when its record is acknowledged and read again, and not before: workers of an epoch that stands
        in no record would never be ready. Raises ClusterError where it cannot be written.
        """
        known, epoch = self.record, self.epoch
        if epoch is None or self.is_epoch_taken:
            epoch = 1 if known is None else known.epoch + 1
        restarted = 0 if known is None else known.restarted
        record = SupervisorRecord(self.topology, self.target.alias, epoch, self.holder, restarted=restarted)
        self.write(replace(record, bridged=bridged))
        self._desired.catch_up()
        written = self.record
        if written is None or (written.epoch, written.holder) != (epoch, self.holder):
            return False
        self.epoch, self.since, self._renews = epoch, time.monotonic(), False
        return True

    def write(self, record: SupervisorRecord) -> None:
        """Write the record of the supervisor, as of now. Raises ClusterError."""
        self._written = time.monotonic()
        write_supervisor(self._writer, replace(record, at_ms=time.time_ns() // 1_000_000))

    def close(self) -> None:
        """Give the lease up, which another one may have at once."""
        if self._membership is not None:
            self._membership.close()
        with suppress(ClusterError):
            self._writer.flush(2)
        self._desired.close()

    def _is_current(self, record: SupervisorRecord) -> bool:
        return self.is_ours(record) and not self._renews
