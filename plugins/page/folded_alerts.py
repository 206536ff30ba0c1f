"""What needs a person, with equal alerts as one line and a count: 5,000 partitions that fail alike are one problem."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from watershed.clusters.partition_status_records import PartitionStatus
from watershed.cutover.operations.catalogue import DECIDE, OPERATE
from watershed.replicator.partition_states import REMEDIES
from watershed.replicator.worker.flow_state import describe_likeness, is_halted

MAX_ALERTS = 20  # lines of one answer; what is left is counted
MAX_ALERT_CHARS = 500
_NAMED = 5  # flows and partitions that a line names
_COMMAND = re.compile(r"`topology flow ([a-z-]+) ")
_WORDS = {
    "accept-gap": "Accept the gap",
    "reseed": "Copy again",
    "copy-foreign": "Copy the record",
    "adopt": "Adopt the copy",
    "restart": "Restart the flow",
    "resume": "Let the flow go on",
}


@dataclass(slots=True)
class FoldedAlert:
    """Alerts that differ in names and numbers only. first: the report that is shown in place of all."""

    first: PartitionStatus
    count: int = 0
    flows: list[str] = field(default_factory=list)
    partitions: list[str] = field(default_factory=list)

    def add(self, report: PartitionStatus) -> None:
        """Counts one more, and keeps the first few names."""
        self.count += 1
        if len(self.flows) <= _NAMED and report.flow not in self.flows:
            self.flows.append(report.flow)
        if len(self.partitions) < _NAMED:
            self.partitions.append(f"{report.topic}-{report.partition}")

    def to_json(self) -> dict[str, Any]:
        """The line as the page draws it."""
        return {
            "state": self.first.state,
            "count": self.count,
            "text": cut_alert_text(self.first.error),
            "remedy": cut_alert_text(self.first.remedy),
            "note": cut_alert_text(self.first.note),
            "operations": list_remedy_operations(self.first.state),
            "example": {"flow": self.first.flow, "topic": self.first.topic, "partition": self.first.partition},
            "flows": self.flows[:_NAMED],
            "more_flows": len(self.flows) > _NAMED,
            "partitions": self.partitions,
        }


def fold_alerts(reports: Iterable[PartitionStatus]) -> tuple[list[dict[str, Any]], int]:
    """The lines, those that a person must decide first, then those of most partitions; and how many lines are left out.
    A report without an error or a remedy is no alert."""
    found: dict[tuple[str, ...], FoldedAlert] = {}
    for report in reports:
        if report.error or report.remedy:
            names = report.flow, report.topic, report.target_topic
            alike = (report.state, *(describe_likeness(told, names) for told in (report.error, report.remedy)))
            found.setdefault(alike, FoldedAlert(report)).add(report)
    lines = sorted(found.values(), key=lambda each: (not is_halted(each.first.state), -each.count, each.first.key))
    return [each.to_json() for each in lines[:MAX_ALERTS]], max(0, len(lines) - MAX_ALERTS)


def list_remedy_operations(state: str) -> list[dict[str, str]]:
    """What the page can start for a partition in this halt state: the operations whose commands its remedy names.

    what: the DAG that does it, `decide` or `operate`. words: of the button.
    """
    found = []
    for operation in dict.fromkeys(_COMMAND.findall(REMEDIES.get(state, ""))):
        what = "decide" if operation in DECIDE else "operate" if operation in OPERATE else None
        if what is not None:
            found.append({"what": what, "operation": operation, "words": _WORDS[operation]})
    return found


def cut_alert_text(text: str | None) -> str | None:
    """A text of somebody else's, at most MAX_ALERT_CHARS long."""
    if text is None or len(text) <= MAX_ALERT_CHARS:
        return text
    return f"{text[: MAX_ALERT_CHARS - 1]}…"
