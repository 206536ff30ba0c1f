"""Which denials of WRITE protect the target of a flow (`protect: true`), in `watershed.flows` of that target.

Each is written down by itself before it is made, so that every denial of ours is found and taken away, also where a
worker and `topology apply` make some at once. One that a person made has no record and stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from watershed.clusters.control_record_codec import ControlRecordBody, ControlRecordFormat
from watershed.clusters.control_records import read_latest_records
from watershed.clusters.control_topics import FLOWS_TOPIC, ControlWriter
from watershed.clusters.errors import TopicMissing
from watershed.clusters.flow_records import PROTECTION_PREFIX
from watershed.clusters.settings import ConnectionSettings
from watershed.topology.inventory import InventoryAcl


@dataclass(frozen=True, slots=True)
class ProtectionRecord(ControlRecordBody):
    """A denial that we made, or began to make, and have not taken away since."""

    FORMAT: ClassVar[ControlRecordFormat] = ControlRecordFormat("a record of a protection", FLOWS_TOPIC)
    flow: str
    denial: InventoryAcl

    @property
    def key(self) -> str:
        """One record for each topic of the target and principal. A topic's name has no `|`."""
        return f"{PROTECTION_PREFIX}{self.flow}|{self.denial.name}|{self.denial.principal}"


def read_protections(target: ConnectionSettings) -> dict[str, frozenset[InventoryAcl]]:
    """Flow → its denials that are written down, of all flows into this cluster. Raises ClusterError."""
    try:
        records = read_latest_records(
            target, FLOWS_TOPIC, ProtectionRecord.from_json, lambda each: each.startswith(PROTECTION_PREFIX)
        )
    except TopicMissing:
        return {}
    found: dict[str, set[InventoryAcl]] = {}
    for each in records.values():
        found.setdefault(each.flow, set()).add(each.denial)
    return {flow: frozenset(denials) for flow, denials in found.items()}


def write_protection(
    target: ConnectionSettings, flow: str, made: Iterable[InventoryAcl], gone: Iterable[InventoryAcl] = ()
) -> None:
    """Writes down what is made, strikes out what is gone, and waits for each. Raises ClusterError."""
    records = [*((each, False) for each in made), *((each, True) for each in gone)]
    if not records:
        return
    with ControlWriter(target, "watershed-access") as writer:
        for denial, is_gone in records:
            record = ProtectionRecord(flow, denial)
            writer.put(FLOWS_TOPIC, record.key, None if is_gone else record.to_json(), 0)
