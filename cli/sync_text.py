"""What travels beside records, in a line or two for `topology status`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

_FINE = ("equal", "carried")
_MOST = 5  # told one by one; those that need a person come first
_ALWAYS_TOLD = ("protection",)  # also what is fine: by it one sees what is protected
_ORDER = ("refused", "failed", "different", "waiting", "equal")
_OLD = " (as last told: nobody follows them now)"  # reports are written when they change only


def describe_flow_sync(flow: Mapping[str, Any]) -> list[str]:
    """As `describe_sync_reports`, for a row of `topology status`."""
    reports = flow.get("sync", ())
    if not reports:
        return []
    served = flow["desired"] == "running" and any(not row["silent"] for row in flow["partitions"])
    return describe_sync_reports(reports, served=served)


def describe_sync_reports(reports: Iterable[dict[str, Any]], *, served: bool = True) -> list[str]:
    """One line a kind with its counts by state, and one for each thing that is not equal. served: workers serve the
    flow."""
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for report in reports:
        by_kind.setdefault(report["kind"], []).append(report)
    lines: list[str] = []
    for kind, found in sorted(by_kind.items()):
        counts = Counter("equal" if report["state"] in _FINE else report["state"] for report in found)
        lines.append(
            f"{kind}: "
            + ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
            + ("" if served else _OLD)
        )
        told = [report for report in found if report["state"] not in _FINE or kind in _ALWAYS_TOLD]
        told.sort(key=lambda report: (_ORDER.index(report["state"]), report["name"]))
        for report in told[:_MOST]:
            lines.append("  " + ": ".join(filter(None, (report["name"], report["state"], report["why"]))))
        if len(told) > _MOST:
            lines.append(f"  {len(told) - _MOST} more {kind}")
        standby = [(each["name"], each["detail"]["streams"]["told"]) for each in found if _has_standby(each)]
        lines += [f"  {name}: {text}" for name, text in standby[:_MOST]]
        if len(standby) > _MOST:
            lines.append(f"  {len(standby) - _MOST} more standbys are ready")
    return lines


def _has_standby(report: Mapping[str, Any]) -> bool:
    """Whether a Streams application could go on at the target: what it lacks otherwise is in its own line."""
    return report["state"] in _FINE and "streams" in report.get("detail", {})
