"""What `topology status` says of a flow's record, in the table and in the live one."""

from __future__ import annotations

from typing import Any

from topology.rounded_amounts import render_decimal_size


def describe_flow_record(flow: dict[str, Any]) -> list[str]:
    """What the flow was promised, what it let go of, and that nobody serves it. flow: a row of `topology status`."""
    lines = []
    if flow.get("guarantee"):
        lines.append(f"guarantee: {flow['guarantee']}")
    if flow.get("compression"):
        lines.append(f"compression: {_describe_compression(flow)}")
    if flow.get("retired"):
        lines.append(f"applications have moved, so it no longer copies: {', '.join(flow['retired'])}")
    if flow["desired"] == "running" and not flow["partitions"]:
        lines.append(
            "no worker reports a partition of it: no topic matches, no worker runs, or its log says what fails"
        )
    return lines


def _describe_compression(flow: dict[str, Any]) -> str:
    """What workers have saved since they took the partitions that they copy now."""
    asked, copied, saved = flow["compression"], flow["copied_bytes"], flow["saved_bytes"]
    told = asked["codec"] if asked["level"] is None else f"{asked['codec']}, level {asked['level']}"
    if not copied:
        return f"{told}; nothing copied since the workers took the partitions"
    sent = f"{render_decimal_size(copied - saved)} sent of {render_decimal_size(copied)}"
    return f"{told}; {saved / copied:.0%} fewer bytes since the workers took the partitions ({sent})"
