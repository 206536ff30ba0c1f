"""Rights to write that a flow holds back until applications move (`sync.acls.include_write: on_failover`).

They are written down in `watershed.flows` of the flow's target, one record a flow, whenever they change at the source:
in a failover the source cannot be asked.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any

from clusters.control_records import read_latest_records
from clusters.control_topics import FLOWS_TOPIC, ControlWriter
from clusters.errors import ProtocolError, TopicMissing
from clusters.flow_records import WITHHELD_RIGHTS_PREFIX
from clusters.settings import ConnectionSettings
from topology.inventory import InventoryAcl

_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class WithheldRights:
    """acls: in the target's names. at_ms: when they were read from the source, milliseconds since 1970."""

    flow: str
    acls: tuple[InventoryAcl, ...]
    at_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    @property
    def key(self) -> str:
        """One record a flow."""
        return f"{WITHHELD_RIGHTS_PREFIX}{self.flow}"

    def to_json(self) -> dict[str, Any]:
        """Returns the record as JSON, as it stands in the control topic."""
        acls = [asdict(acl) for acl in self.acls]
        return {"schema": _SCHEMA, "flow": self.flow, "acls": acls, "at_ms": self.at_ms}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> WithheldRights:
        """Raises `ProtocolError`."""
        try:
            if value["schema"] != _SCHEMA:
                raise ValueError(f"schema {value['schema']}")
            return cls(value["flow"], tuple(InventoryAcl(**acl) for acl in value["acls"]), value["at_ms"])
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(
                f"{FLOWS_TOPIC} holds a record of rights that wait for a failover, which this version cannot read "
                f"({error!r}). Use the version that wrote it, or a newer one.",
                topic=FLOWS_TOPIC,
            ) from None


def write_withheld_rights(target: ConnectionSettings, withheld: WithheldRights) -> None:
    """Raises ClusterError."""
    with ControlWriter(target, "watershed-acls") as writer:
        writer.put(FLOWS_TOPIC, withheld.key, withheld.to_json(), 0)


def read_withheld_rights(target: ConnectionSettings, flow: str) -> WithheldRights | None:
    """None when nothing was ever written down for the flow. Raises ClusterError."""
    key = f"{WITHHELD_RIGHTS_PREFIX}{flow}"
    try:
        return read_latest_records(target, FLOWS_TOPIC, WithheldRights.from_json, lambda each: each == key).get(key)
    except TopicMissing:
        return None
