"""A fleet, the workers of one topology on one target: whether it is to run, and who of it serves what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from clusters.cluster_protocol import ClusterProtocol
from clusters.control_record_codec import ControlRecordBody, ControlRecordFormat
from clusters.control_records import read_latest_records
from clusters.control_topics import FLOWS_TOPIC, LEDGER_TOPIC, ControlWriter
from clusters.errors import TopicMissing
from clusters.settings import ConnectionSettings

FLEET_PREFIX = "fleet/"
PLACEMENT_PREFIX = "placement|"
LEADING_SLOT = 0  # whoever serves it leads: it decides the placement and syncs what is no record


@dataclass(frozen=True, slots=True)
class FleetRecord(ControlRecordBody):
    """`target` is the alias of the cluster that the workers write to (and form their group on)."""

    FORMAT: ClassVar[ControlRecordFormat] = ControlRecordFormat("a fleet record", FLOWS_TOPIC, writes_version=False)
    topology: str
    target: str
    state: Literal["running", "stopped"]
    plan_hash: str

    @property
    def key(self) -> str:
        """One record a topology and target."""
        return build_fleet_key(self.topology, self.target)


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


def build_fleet_group_id(topology: str) -> str:
    """The consumer group in which the workers of a topology share the slots of one target."""
    return f"watershed.{topology}"


def read_slot_owners(admin: ClusterProtocol, topology: str) -> dict[int, str]:
    """Slot → client id of the worker that serves it; empty while the fleet rebalances."""
    given = admin.group_assignment(build_fleet_group_id(topology))
    return {part.partition: member for member, parts in given.items() for part in parts if part.topic == LEDGER_TOPIC}


def read_fleets(settings: ConnectionSettings) -> dict[str, FleetRecord]:
    """All fleets of this cluster by key (`build_fleet_key`); empty when the cluster has no control topics yet."""
    try:
        return read_latest_records(
            settings, FLOWS_TOPIC, FleetRecord.from_json, lambda key: key.startswith(FLEET_PREFIX)
        )
    except TopicMissing:
        return {}


def read_fleet(settings: ConnectionSettings, topology: str, target: str) -> FleetRecord | None:
    """Returns the fleet's newest record, or None. Raises ClusterError."""
    return read_fleets(settings).get(build_fleet_key(topology, target))


def write_fleet(writer: ControlWriter, record: FleetRecord) -> int:
    """Write it and wait for the acknowledgement; the record's offset in `watershed.flows`."""
    return writer.put(FLOWS_TOPIC, record.key, record.to_json())
