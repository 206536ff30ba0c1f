"""Where the copy of a partition ends, once that was found, and whether it was reached. In `watershed.flows` of the
flow's target, one record a partition."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from watershed.clusters.control_record_codec import ControlRecordBody, ControlRecordFormat
from watershed.clusters.control_records import read_latest_records
from watershed.clusters.control_topics import FLOWS_TOPIC, ControlWriter
from watershed.clusters.errors import ClusterError, TopicMissing
from watershed.clusters.flow_records import END_PREFIX, FlowRecord
from watershed.clusters.settings import ConnectionSettings


@dataclass(frozen=True, slots=True)
class PartitionEnd(ControlRecordBody):
    """The end of one source partition: nothing at `offset` or behind it is copied.

    It is written when it is first found, and holds from then on: what a log answers to an instant changes when records
    expire. The newest record counts. revision: of the flow's end that it is about (`FlowRecord.end_revision`).
    position: source offset behind what was copied when the end was reached; -1: it was not reached yet. target_end: the
    offset behind the last copied record at the target then. order: id of the newest operator decision about the
    partition then; a later one has it looked at again. worker: who wrote it; at_ms: milliseconds since 1970.
    """

    FORMAT: ClassVar[ControlRecordFormat] = ControlRecordFormat("the end of a partition", FLOWS_TOPIC)
    flow: str
    topic: str
    partition: int
    revision: int
    offset: int
    position: int = -1
    target_end: int = -1
    order: str = ""
    worker: str = ""
    at_ms: int = 0

    @property
    def key(self) -> str:
        """One record a flow and source partition."""
        return build_end_key(self.flow, self.topic, self.partition)

    @property
    def is_reached(self) -> bool:
        """Whether everything in front of it is copied."""
        return self.position >= 0

    def is_of(self, record: FlowRecord) -> bool:
        """Whether it is about the end that the flow has now."""
        return record.flow.end is not None and self.revision == record.end_revision


def build_end_key(flow: str, topic: str, partition: int) -> str:
    """The key in `watershed.flows`."""
    return f"{END_PREFIX}{flow}|{topic}|{partition}"


def read_partition_ends(settings: ConnectionSettings) -> dict[str, PartitionEnd]:
    """All ends by their keys; empty when the cluster has no control topics yet. Raises ClusterError."""
    try:
        return read_latest_records(
            settings, FLOWS_TOPIC, PartitionEnd.from_json, lambda key: key.startswith(END_PREFIX)
        )
    except TopicMissing:
        return {}


def write_partition_ends(writer: ControlWriter, ends: Iterable[PartitionEnd]) -> None:
    """Write them and wait for the acknowledgements. Raises ClusterError."""
    failures: list[ClusterError] = []  # of these records: a flush would also raise those of other threads

    def done(error: ClusterError | None, _offset: int) -> None:
        if error is not None:
            failures.append(error)

    written = [*ends]
    for end in written:
        writer.put_nowait(FLOWS_TOPIC, end.key, end.to_json(), on_done=done)
    if written:
        writer.flush()
    if failures:
        raise failures[0]
