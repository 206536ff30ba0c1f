"""The registry of a cluster: which producer ids are Watershed's, for which flow they write, and which way what they
write has come. In `watershed.flows` of the flow's target, one record an id, for ever: ids stand in stored batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from watershed.clusters.control_record_codec import ControlRecordBody, ControlRecordFormat
from watershed.clusters.control_records import read_latest_records
from watershed.clusters.control_topics import FLOWS_TOPIC, ControlWriter
from watershed.clusters.errors import TopicMissing
from watershed.clusters.settings import ConnectionSettings

PRODUCER_PREFIX = "producer|"

_Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProducerRecord(ControlRecordBody):
    """`path` is the ids of the clusters that the records were in, from their birth place to the flow's source; a flow
    that does not tell paths has its source alone. An id means something on its own cluster only."""

    FORMAT: ClassVar[ControlRecordFormat] = ControlRecordFormat(
        "a record about a producer",
        FLOWS_TOPIC,
        remedy="The loop guard needs every record: write it again with `topology apply`",
    )
    producer_id: int
    flow: str
    path: _Path
    kind: Literal["sequence", "transactions"]
    topology: str

    @property
    def key(self) -> str:
        """One record a producer id."""
        return f"{PRODUCER_PREFIX}{self.producer_id}"

    def explain_invalid(self) -> str:
        """A way without a cluster is none."""
        return "" if self.path else "path: it names no cluster"


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
