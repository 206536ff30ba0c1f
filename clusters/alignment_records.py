"""Which topics of a flow have the same offsets at both ends, and why others do not. In `watershed.flows` of the flow's
target, one record a topic: decided once, and for ever."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from watershed.clusters.control_record_codec import ControlRecordBody, ControlRecordFormat
from watershed.clusters.control_records import ControlRecord, read_control_log
from watershed.clusters.control_topics import FLOWS_TOPIC, ControlWriter
from watershed.clusters.control_values import log_invalid_record
from watershed.clusters.errors import TopicMissing
from watershed.clusters.flow_records import ALIGNMENT_PREFIX
from watershed.clusters.settings import ConnectionSettings

_Mode = Literal["aligned", "mapped", "unreadable"]


@dataclass(frozen=True, slots=True)
class AlignmentRecord(ControlRecordBody):
    """topic is the source's name. reason says why offsets are translated, although the file asks for equal ones. way:
    of an aligned topic, how offsets without records are filled. unreadable: the record exists but cannot be parsed
    (see reason); it must not count as missing, or a worker would decide again, perhaps differently. by: who decided;
    at_ms: milliseconds since 1970."""

    FORMAT: ClassVar[ControlRecordFormat] = ControlRecordFormat("a record about equal offsets", FLOWS_TOPIC)
    flow: str
    topic: str
    mode: _Mode
    reason: str = ""
    way: Literal["markers", "transactions"] = "transactions"
    by: str = ""
    at_ms: int = 0

    @property
    def key(self) -> str:
        """One record a flow and topic."""
        return f"{ALIGNMENT_PREFIX}{self.flow}|{self.topic}"

    def explain_invalid(self) -> str:
        """`unreadable` says something of a record and is never written."""
        return "mode: it is unreadable" if self.mode == "unreadable" else ""


def read_alignments(settings: ConnectionSettings) -> dict[tuple[str, str], AlignmentRecord]:
    """By flow and source topic; the first record counts. Empty when the cluster has no control topics yet."""
    found: dict[tuple[str, str], AlignmentRecord] = {}
    try:
        for record in read_control_log(settings, FLOWS_TOPIC):
            if record.key.startswith(ALIGNMENT_PREFIX) and record.value is not None:
                try:
                    decided = AlignmentRecord.from_json(record.value, record.key)
                except ValueError as error:
                    log_invalid_record(record.invalid(settings.alias, FLOWS_TOPIC, str(error)))
                    decided = _unreadable(record, str(error))
                before = found.get((decided.flow, decided.topic))
                if before is None or before.mode == "unreadable":
                    found[decided.flow, decided.topic] = decided
    except TopicMissing:
        return {}
    return found


def _unreadable(record: ControlRecord, why: str) -> AlignmentRecord:
    _, flow, topic = (*record.key.split("|", 2), "")[:3]
    told = (
        f"{FLOWS_TOPIC} holds a record at offset {record.offset}, key {record.key!r:.200}, that cannot be read: {why}"
    )
    return AlignmentRecord(flow, topic, "unreadable", told)


def agree_on_alignment(writer: ControlWriter, settings: ConnectionSettings, record: AlignmentRecord) -> AlignmentRecord:
    """Write a decision; the one that counts, which is another's if that came first. Raises ClusterError.

    Where one is there already nothing is written: what another worker has done with the topic since (it holds offsets
    now, it was copied) may be why this one decided otherwise, and compaction keeps the record that was written last.
    """
    there = read_alignments(settings).get((record.flow, record.topic))
    if there is not None:
        return there
    writer.put(FLOWS_TOPIC, record.key, record.to_json())
    first = read_alignments(settings)[record.flow, record.topic]
    if first != record:
        writer.put(FLOWS_TOPIC, first.key, first.to_json())  # compaction keeps the last one
    return first
