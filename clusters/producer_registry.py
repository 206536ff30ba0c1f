"""The registry of a cluster: which producer ids are Watershed's, for which flow they write, and which way what they
write has come. In `watershed.flows` of the flow's target, one record an id, for ever: ids stand in stored batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from clusters.control_records import read_latest_records
from clusters.control_topics import FLOWS_TOPIC, ControlWriter
from clusters.errors import ProtocolError, TopicMissing
from clusters.settings import ConnectionSettings

PRODUCER_PREFIX = "producer|"
_SCHEMA = 1

_Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """`path` is the ids of the clusters that the records were in, from their birth place to the flow's source; a flow
    that does not tell paths has its source alone. An id means something on its own cluster only."""

    producer_id: int
    flow: str
    path: _Path
    kind: Literal["sequence", "transactions"]
    topology: str

    @property
    def key(self) -> str:
        """One record a producer id."""
        return f"{PRODUCER_PREFIX}{self.producer_id}"

    def to_json(self) -> dict[str, Any]:
        """Returns the record as JSON, as it stands in the control topic."""
        return {
            "schema": _SCHEMA,
            "producer_id": self.producer_id,
            "flow": self.flow,
            "path": list(self.path),
            "kind": self.kind,
            "topology": self.topology,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ProducerRecord:
        """Raises `ProtocolError`."""
        try:
            if value["schema"] != _SCHEMA:
                raise ValueError(f"schema {value['schema']}")
            path = tuple(value["path"])
            if not path or not all(isinstance(cluster, str) for cluster in path):
                raise ValueError(f"path {value['path']}")
            return cls(int(value["producer_id"]), value["flow"], path, value["kind"], value["topology"])
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(
                f"{FLOWS_TOPIC} holds a record about a producer that this version cannot read ({error!r}). "
                "Use the version that wrote it, or a newer one: the loop guard needs every record.",
                topic=FLOWS_TOPIC,
            ) from None


def register_producer(writer: ControlWriter, record: ProducerRecord) -> int:
    """Write it and wait for the acknowledgement; its offset in `watershed.flows`. Before the id's first batch: an id
    that is not found in the registry afterwards belongs to an application. Raises `ClusterError`."""
    return writer.put(FLOWS_TOPIC, record.key, record.to_json())


def read_producers(settings: ConnectionSettings) -> dict[int, ProducerRecord]:
    """All producers of Watershed on this cluster by id; empty when it has no control topics."""
    try:
        view = read_latest_records(
            settings, FLOWS_TOPIC, ProducerRecord.from_json, lambda key: key.startswith(PRODUCER_PREFIX)
        )
    except TopicMissing:
        return {}
    return {record.producer_id: record for record in view.values()}
