"""What a whole flow is doing, from the reports of its partitions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from watershed.clusters.partition_status_records import PartitionStatus
from watershed.clusters.worker_heartbeats import SILENT_MS
from watershed.replicator.partition_states import COMPLETE

SILENT_STATE: Final = "silent"  # no worker has reported lately; nobody writes this state down
_NUMBER: Final = re.compile(r"\d+")
_READ_CHARS, _LIKENESS_CHARS = 2_000, 500  # of an error that anybody may have written
_ORDER: Final = (
    COMPLETE,
    "paused",  # of a flow that runs: by a person, for single partitions; the others say how the flow is
    "running",
    "catching_up",
    "aligning",
    "stopped",
    "starting",
    "retrying",
    SILENT_STATE,
)


def mark_if_silent(report: PartitionStatus, now_ms: int) -> PartitionStatus:
    """The report, or that it is too old to be believed; what is complete needs no worker. now_ms: since 1970."""
    if now_ms - report.at_ms <= SILENT_MS or report.state == COMPLETE:
        return report
    text = "no worker has reported for this partition lately"
    if report.error is not None:  # and its remedy stands beside it
        text += f"; the last report said {report.state.replace('_', ' ')}: {report.error}"
    return replace(report, state=SILENT_STATE, rate_bytes=0.0, error=text)


def pick_worst_state(states: Iterable[str]) -> str:
    """The state that needs most attention; one not in the list is a halt state."""
    return max(states, key=lambda state: (_ORDER.index(state) if state in _ORDER else len(_ORDER), state))


def describe_likeness(text: str | None, names: Iterable[str]) -> str:
    """The error or remedy of a partition without what differs from one to the next: numbers, and the names of its flow
    and topics. Two that are alike are one problem."""
    told = (text or "")[:_READ_CHARS]
    for name in sorted(set(names), key=len, reverse=True):
        told = told.replace(name, "…") if name else told
    return _NUMBER.sub("#", told)[:_LIKENESS_CHARS]


def is_halted(state: str) -> bool:
    """Whether somebody has to decide something (`replicator.partition_states.REMEDIES`)."""
    return state not in _ORDER
