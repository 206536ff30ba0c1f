"""What a whole flow is doing, from the reports of its partitions."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

from watershed.clusters.partition_status_records import PartitionStatus
from watershed.clusters.worker_heartbeats import SILENT_MS
from watershed.replicator.partition_states import COMPLETE, OVER_BUDGET, PAUSED, STOPPED

SILENT_STATE: Final = "silent"  # no worker has reported lately; nobody writes this state down
_STANDING_STILL: Final = frozenset({PAUSED, STOPPED, OVER_BUDGET})
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


def is_silent(report: PartitionStatus, now_ms: int) -> bool:
    """Whether no worker has reported of the partition lately; what is complete needs no worker. now_ms: since 1970."""
    return now_ms - report.at_ms > SILENT_MS and report.state != COMPLETE


def mark_if_silent(
    report: PartitionStatus, now_ms: int, *, flow_state: object, heard_ms: int | None = None
) -> PartitionStatus:
    """The report as it is to be told at `now_ms` (since 1970): status, page and exporter tell the same.

    One that is not too old is told as it is. Of one that is, the state is no longer believed, but for a halt: a person
    has to decide, whoever serves the partition. Nobody reads the source, so a record may have been waiting since then,
    and the lag grows. A flow that was stopped (`flow_state`: what is wanted of it) owes nothing, and its lag stays.
    heard_ms: when the cluster that holds the reports last answered, if that is earlier: what its workers reported
    since then nobody knows, so the lag grows up to there only.
    """
    if not is_silent(report, now_ms):
        return report
    silence = "no worker has reported for this partition lately"
    if is_halted(report.state):
        state, text = report.state, f"{report.error}; {silence}" if report.error else silence
    else:
        state, text = SILENT_STATE, silence
        if report.error is not None:
            text += f"; the last report said {report.state.replace('_', ' ')}: {report.error}"
    waited_ms = max(min(now_ms, now_ms if heard_ms is None else heard_ms) - report.at_ms, 0)
    lag_ms = report.lag_ms if flow_state == "stopped" else (report.lag_ms or 0) + waited_ms
    return replace(report, state=state, rate_bytes=0.0, lag_ms=lag_ms, error=text)


def is_lag_lower_bound(state: str, states: Collection[str], lags: Iterable[int | None]) -> bool:
    """Whether more records may wait than the partitions' `lags` tell together: nobody looks at the source while the
    flow stands still, or one of its partitions was not looked at (None). state: the flow's. states: its
    partitions'; one that was halted before a budget stopped the flow keeps its state."""
    return state in _STANDING_STILL or OVER_BUDGET in states or None in lags


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
