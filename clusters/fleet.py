"""A fleet, the workers of one topology on one target: what it should be, who sees to that, and who serves what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from watershed.clusters.cluster_protocol import ClusterProtocol
from watershed.clusters.control_record_codec import ControlRecordBody, ControlRecordFormat
from watershed.clusters.control_records import read_latest_records
from watershed.clusters.control_topics import FLOWS_TOPIC, LEDGER_TOPIC, ControlWriter
from watershed.clusters.errors import ClusterError, TopicMissing
from watershed.clusters.settings import ConnectionSettings
from watershed.topology.language.flow import MOST_WORKERS
from watershed.topology.plan import PlanCluster, WorkerPlacement

FLEET_PREFIX = "fleet/"
PLACEMENT_PREFIX = "placement|"
SUPERVISOR_PREFIX = "supervisor|"
LEADING_SLOT = 0  # whoever serves it leads: it decides the placement and syncs what is no record
_MOST_CLUSTERS = 1_000
_MOST_SUPERSEDED = 32


@dataclass(frozen=True, slots=True)
class FleetRecord(ControlRecordBody):
    """What a fleet should be. `target` is the alias of the cluster that the workers write to (and form their group on).

    plan_hash: of the plan that was applied last; superseded: of those before it, the newest last. workers: how many
    should be there; planned: how many the file asked for when it was applied last. restarts grows with each order to
    restart: workers that were started under a smaller number are replaced. clusters: alias → cluster, as the plan has
    it, with references to secrets; empty where an earlier version wrote the record.
    """

    FORMAT: ClassVar[ControlRecordFormat] = ControlRecordFormat(
        "a fleet record",
        FLOWS_TOPIC,
        writes_version=False,
        added_later=("workers", "planned", "engine", "placement", "restarts", "clusters", "superseded"),
        remedy="Write it again with `topology apply`",
    )
    topology: str
    target: str
    state: Literal["running", "stopped"]
    plan_hash: str
    workers: int = 1
    planned: int = 1
    engine: Literal["spark", "process"] = "process"
    placement: WorkerPlacement = "embedded"
    restarts: int = 0
    clusters: Mapping[str, PlanCluster] = field(default_factory=dict)
    superseded: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """One record a topology and target."""
        return build_fleet_key(self.topology, self.target)

    @property
    def wanted(self) -> int:
        """How many workers should be there now."""
        return self.workers if self.state == "running" else 0

    def explain_invalid(self) -> str:
        """Why nobody may follow the record; anybody with WRITE on the topic may have written it."""
        if not 1 <= self.workers <= MOST_WORKERS:
            return f"workers: {self.workers}, and a fleet has from 1 to {MOST_WORKERS}"
        if len(self.clusters) > _MOST_CLUSTERS or any(alias != each.alias for alias, each in self.clusters.items()):
            return "clusters: too many, or one stands under another alias than its own"
        return ""

    def with_plan(self, plan_hash: str, clusters: Mapping[str, PlanCluster]) -> FleetRecord:
        """The record after another plan was applied."""
        before = tuple(each for each in self.superseded if each != plan_hash)
        if plan_hash != self.plan_hash:
            before = (*before, self.plan_hash)[-_MOST_SUPERSEDED:]
        return replace(self, plan_hash=plan_hash, clusters=clusters, superseded=before)


@dataclass(frozen=True, slots=True)
class SupervisorRecord(ControlRecordBody):
    """Who sees to it that a fleet is as its record says. A supervisor writes it when it gets the fleet's lease.

    epoch grows with each holder of the lease. ready: its workers are there, so workers of an earlier epoch end. holder:
    names the process. restarted: the restart (FleetRecord.restarts) that all its workers have seen. note: what keeps
    the fleet from its size, for people. at_ms: when it was written, milliseconds since 1970. bridged: the program that
    hosted the workers has died, and until those of this epoch are ready, processes beside the supervisor copy.
    """

    FORMAT: ClassVar[ControlRecordFormat] = ControlRecordFormat(
        "a supervisor record", FLOWS_TOPIC, added_later=("bridged",)
    )
    topology: str
    target: str
    epoch: int
    holder: str
    ready: bool = False
    restarted: int = 0
    note: str = ""
    at_ms: int = 0
    bridged: bool = False

    @property
    def key(self) -> str:
        """One record a topology and target."""
        return build_supervisor_key(self.topology, self.target)

    def is_overtaken_by(self, known: SupervisorRecord | None) -> bool:
        """Whether it was written too late: by a supervisor that hung while another began this epoch or a later one.
        known: what stands before it in the topic."""
        if known is None or self.epoch > known.epoch:
            return False
        return self.epoch < known.epoch or self.holder != known.holder


def build_supervisor_key(topology: str, target: str) -> str:
    """The record key of a fleet's supervisor."""
    return f"{SUPERVISOR_PREFIX}{topology}|{target}"


def build_lease_group_id(topology: str, target: str) -> str:
    """The consumer group whose one member with a partition holds the lease on a fleet (decision 0088)."""
    return f"watershed-supervisor.{topology}.{target}"


def read_lease_holder(admin: ClusterProtocol, topology: str, target: str) -> str:
    """The client id of the supervisor that holds the lease; "" without one, and while the lease changes hands."""
    given = admin.group_assignment(build_lease_group_id(topology, target)) or {}
    return next((member for member, parts in sorted(given.items()) if parts), "")


def write_supervisor(writer: ControlWriter, record: SupervisorRecord) -> int:
    """Write it and wait for the acknowledgement; the record's offset in `watershed.flows`."""
    return writer.put(FLOWS_TOPIC, record.key, record.to_json())


def build_fleet_key(topology: str, target: str) -> str:
    """The record key of a fleet: of the workers for one target of a topology."""
    return f"{FLEET_PREFIX}{topology}/{target}"


@dataclass(frozen=True, slots=True)
class PlacementRecord(ControlRecordBody):
    """Partitions that another slot serves than `compute_slot` says: `flow|topic|partition` → slot.

    Their ledger and status records stay where `compute_slot` puts them. `target` is the cluster's alias; worker: who
    decided it; at_ms: when, milliseconds since 1970.
    """

    FORMAT: ClassVar[ControlRecordFormat] = ControlRecordFormat("a placement record", FLOWS_TOPIC, writes_version=False)
    topology: str
    target: str
    slots: Mapping[str, int] = field(default_factory=dict)
    worker: str = ""
    at_ms: int = 0

    @property
    def key(self) -> str:
        """One record a topology and target."""
        return build_placement_key(self.topology, self.target)


def build_placement_key(topology: str, target: str) -> str:
    """The record key of a fleet's partition placement."""
    return f"{PLACEMENT_PREFIX}{topology}|{target}"


def write_placement(writer: ControlWriter, record: PlacementRecord) -> int:
    """Write it and wait for the acknowledgement; the record's offset in `watershed.flows`."""
    return writer.put(FLOWS_TOPIC, record.key, record.to_json())


def build_fleet_group_id(topology: str, *, transforms: bool = False) -> str:
    """The consumer group in which the workers of a topology share the slots of one target. transforms: of those that
    serve the flows with `transform`."""
    return f"watershed.{topology}.transform" if transforms else f"watershed.{topology}"


def read_slot_owners(admin: ClusterProtocol, topology: str) -> dict[int, str]:
    """Slot → client id of the worker that serves it; empty while the fleet rebalances."""
    given = admin.group_assignment(build_fleet_group_id(topology)) or {}
    return {part.partition: member for member, parts in given.items() for part in parts if part.topic == LEDGER_TOPIC}


def read_fleet_members(admin: ClusterProtocol, topology: str) -> set[str] | None:
    """The client ids of the workers that are there; None while the fleet rebalances."""
    given = admin.group_assignment(build_fleet_group_id(topology))
    return None if given is None else set(given)


def read_fleets(settings: ConnectionSettings) -> dict[str, FleetRecord]:
    """All fleets of this cluster by key (`build_fleet_key`); empty when the cluster has no control topics yet."""
    try:
        return read_latest_records(
            settings, FLOWS_TOPIC, FleetRecord.from_json, lambda key: key.startswith(FLEET_PREFIX)
        )
    except TopicMissing:
        return {}


def read_supervisors(settings: ConnectionSettings) -> dict[str, SupervisorRecord]:
    """The newest record of each supervisor of this cluster by key; empty without control topics."""
    try:
        return read_latest_records(
            settings, FLOWS_TOPIC, SupervisorRecord.from_json, lambda key: key.startswith(SUPERVISOR_PREFIX)
        )
    except TopicMissing:
        return {}


def read_fleet(settings: ConnectionSettings, topology: str, target: str) -> FleetRecord | None:
    """Returns the fleet's newest record, or None. Raises ClusterError."""
    return read_fleets(settings).get(build_fleet_key(topology, target))


def write_fleet(writer: ControlWriter, record: FleetRecord) -> int:
    """Write it and wait for the acknowledgement; the record's offset in `watershed.flows`.

    Raises ClusterError, also for a record that nobody could follow.
    """
    why = record.explain_invalid()
    if why:
        raise ClusterError(f"the record of the fleet into {record.target} is not written: {why}", alias=record.target)
    return writer.put(FLOWS_TOPIC, record.key, record.to_json())
