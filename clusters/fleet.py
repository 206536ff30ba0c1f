"""Desired state of a fleet, the workers of one topology on one target, so that it can be stopped gracefully."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from clusters.control import FLOWS, ControlWriter, latest
from clusters.errors import ProtocolError, TopicMissing
from clusters.settings import ConnectionSettings

FLEET_PREFIX = "fleet/"


@dataclass(frozen=True, slots=True)
class FleetRecord:
    """`target` is the alias of the cluster that the workers write to (and form their group on)."""

    topology: str
    target: str
    state: Literal["running", "stopped"]
    plan_hash: str

    @property
    def key(self) -> str:
        return fleet_key(self.topology, self.target)

    def to_json(self) -> dict[str, Any]:
        return {
            "topology": self.topology,
            "target": self.target,
            "state": self.state,
            "plan_hash": self.plan_hash,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> FleetRecord:
        try:
            return cls(value["topology"], value["target"], value["state"], value["plan_hash"])
        except KeyError as error:
            raise ProtocolError(f"{FLOWS} holds a fleet record without {error}.", topic=FLOWS) from None


def fleet_key(topology: str, target: str) -> str:
    return f"{FLEET_PREFIX}{topology}/{target}"


def read_fleets(settings: ConnectionSettings) -> dict[str, FleetRecord]:
    """All fleets of this cluster by key (`fleet_key`); empty when the cluster has no control topics yet."""
    try:
        view = latest(settings, FLOWS)
    except TopicMissing:
        return {}
    return {key: FleetRecord.from_json(value) for key, value in view.items() if key.startswith(FLEET_PREFIX)}


def read_fleet(settings: ConnectionSettings, topology: str, target: str) -> FleetRecord | None:
    return read_fleets(settings).get(fleet_key(topology, target))


def write_fleet(writer: ControlWriter, record: FleetRecord) -> int:
    """Write it and wait for the acknowledgement; the record's offset in `watershed.flows`."""
    return writer.put(FLOWS, record.key, record.to_json())
