"""What the keeper reports of things that travel beside records, in the `watershed.status` topic."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from watershed.clusters.control_record_codec import ControlRecordBody, ControlRecordFormat
from watershed.clusters.control_records import read_latest_values
from watershed.clusters.control_topics import STATUS_TOPIC, ControlWriter, compute_slot
from watershed.clusters.errors import TopicMissing
from watershed.clusters.settings import ConnectionSettings

log = logging.getLogger("watershed.control")

SYNC_PREFIX = "sync|"  # of keys; partitions have `<flow>|<topic>|<partition>`, and no flow's id begins so
SyncState = Literal["equal", "carried", "waiting", "different", "refused", "failed"]


@dataclass(frozen=True, slots=True)
class SyncReport(ControlRecordBody):
    """One thing of one kind: a group, a topic's configs, a principal's rights.

    kind: the key under `sync:`. state: `equal` nothing to do; `carried` just made so; `waiting` cannot be done yet and
    is tried again (why); `different` left alone on purpose (why); `refused` a right is missing or the target says no;
    `failed` a cluster did not answer. detail: numbers for machines (a group's partitions). at_ms: since 1970.
    """

    FORMAT: ClassVar[ControlRecordFormat] = ControlRecordFormat(
        "a report", STATUS_TOPIC, writes_version=False, added_later=None
    )
    flow: str
    kind: str
    name: str
    state: SyncState
    why: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)
    worker: str = ""
    at_ms: int = 0

    @property
    def key(self) -> str:
        """One record a flow, kind and name."""
        return f"{SYNC_PREFIX}{self.flow}|{self.kind}|{self.name}"


def write_sync_report(writer: ControlWriter, report: SyncReport) -> None:
    """Without waiting: a lost report is followed by a newer one."""
    writer.put_nowait(STATUS_TOPIC, report.key, report.to_json(), compute_slot(report.flow, report.kind, 0))


def delete_sync_report(writer: ControlWriter, report: SyncReport) -> None:
    """Writes a tombstone without waiting for the acknowledgement."""
    writer.put_nowait(STATUS_TOPIC, report.key, None, compute_slot(report.flow, report.kind, 0))


def read_sync_reports(settings: ConnectionSettings) -> list[SyncReport]:
    """The newest of each thing, by flow, kind and name; empty without control topics."""
    try:
        view = read_latest_values(settings, STATUS_TOPIC, prefix=SYNC_PREFIX)
    except TopicMissing:
        return []
    return parse_sync_reports(view)


def parse_sync_reports(view: Mapping[str, Mapping[str, Any]]) -> list[SyncReport]:
    """Those among the newest values of `watershed.status`, by flow, kind and name. One that
    cannot be read is logged and left out: the next report replaces it."""
    found = []
    for key, value in view.items():
        if key.startswith(SYNC_PREFIX):
            try:
                found.append(SyncReport.from_json(value, key))
            except ValueError as error:
                log.warning("report unreadable", extra={"topic": STATUS_TOPIC, "key": key[:200], "reason": str(error)})
    return sorted(found, key=lambda report: (report.flow, report.kind, report.name))
