"""Rights to write that a flow holds back until applications move (`sync.acls.include_write: on_failover`).

They are written down in `watershed.flows` of the flow's target, one record a flow, whenever they change at the source:
in a failover the source cannot be asked.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import ClassVar

from watershed.clusters.control_record_codec import ControlRecordBody, ControlRecordFormat
from watershed.clusters.control_records import read_latest_records
from watershed.clusters.control_topics import FLOWS_TOPIC, ControlWriter
from watershed.clusters.errors import TopicMissing
from watershed.clusters.flow_records import WITHHELD_RIGHTS_PREFIX
from watershed.clusters.settings import ConnectionSettings
from watershed.topology.inventory import InventoryAcl


@dataclass(frozen=True, slots=True)
class WithheldRights(ControlRecordBody):
    """acls: in the target's names. at_ms: when they were read from the source, milliseconds since 1970."""

    FORMAT: ClassVar[ControlRecordFormat] = ControlRecordFormat(
        "a record of rights that wait for a failover", FLOWS_TOPIC
    )
    flow: str
    acls: tuple[InventoryAcl, ...]
    at_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    @property
    def key(self) -> str:
        """One record a flow."""
        return f"{WITHHELD_RIGHTS_PREFIX}{self.flow}"


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
