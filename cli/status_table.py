"""The live table of `topology status --watch`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text as RichText

from watershed.cli.alignment_progress import render_alignment_progress
from watershed.cli.copy_mode_text import describe_single_batch_mode
from watershed.cli.flow_record_text import describe_flow_record, render_flow_lag
from watershed.cli.sync_text import describe_flow_sync
from watershed.cli.terminal import get_unfiltered_output, make_visible
from watershed.topology.rounded_amounts import render_decimal_size

_EVERY_S = 1.0
_MOST_PARTITIONS = 12  # told one by one below a flow; those that need a person come first
_COLOURS = {
    "complete": "green",
    "running": "green",
    "catching_up": "cyan",
    "starting": "cyan",
    "aligning": "cyan",
    "paused": "dim",
    "stopped": "dim",
    "not applied": "dim",
    "retrying": "yellow",
    "silent": "yellow",
}
_LOUD = "bold red"
_BARS = " ▁▂▃▄▅▆▇█"


def watch_flows(
    topology: str,
    flows: Callable[[], list[dict[str, Any]]],
    console: Console | None = None,
    others: Sequence[str] = (),
) -> int:
    """Draw what `flows` gives (rows of `topology status --format json`), again and again, until Ctrl-C; 0. others:
    lines about copies that are not ours."""
    from watershed.clusters.errors import ClusterError

    history: dict[str, list[float]] = {}
    console = console or Console(file=get_unfiltered_output())  # it moves the cursor; what it shows is `Text`
    last, since = Group(make_visible_text(topology)), time.strftime("%H:%M:%S")
    try:
        with Live(console=console, auto_refresh=False, screen=console.is_terminal) as live:
            while True:
                try:
                    last, since = draw_status_table(topology, flows(), history, others), time.strftime("%H:%M:%S")
                    live.update(last, refresh=True)
                except ClusterError as error:
                    live.update(_mark_stale(last, since, error), refresh=True)
                time.sleep(_EVERY_S)
    except KeyboardInterrupt:
        return 0


def make_visible_text(text: str, style: str = "") -> RichText:
    """Text for a cell; control characters are shown, not obeyed."""
    return RichText(make_visible(text), style=style)


def _mark_stale(last: Group, since: str, error: Exception) -> Group:
    """The last picture, which nobody should take for one of now."""
    reason = make_visible_text(f"not read since {since}; tried again. {error}", style=_LOUD)
    return Group(*last.renderables, reason)


def draw_status_table(
    topology: str, flows: list[dict[str, Any]], history: dict[str, list[float]], others: Sequence[str] = ()
) -> Group:
    """The table of now; `history` (flow id → rates in bytes a second) grows by one."""
    table = Table(title=f"{topology}  {time.strftime('%H:%M:%S')}", title_justify="left", expand=True, box=None)
    for name, right in (("flow", False), ("state", False), ("partitions", True), ("lag", True), ("behind", True)):
        table.add_column(name, justify="right" if right else "left", no_wrap=name != "flow")
    table.add_column("rate", justify="right", no_wrap=True)
    table.add_column("last minute", no_wrap=True)
    for flow in flows:
        rates = history.setdefault(flow["id"], [])
        rates.append(flow["rate_bytes"])
        del rates[:-60]
        table.add_row(
            flow["id"],
            _state(flow["state"]),
            str(len(flow["partitions"])),
            render_flow_lag(flow),
            render_delay(flow["lag_ms"]),
            render_decimal_size(flow["rate_bytes"]) + "/s",
            make_visible_text(draw_sparkline(rates[-30:]), style="cyan"),
        )
    beside = [make_visible_text(line, style="dim") for line in others]
    return Group(table, *_told(flows), *beside, make_visible_text("Ctrl-C ends", style="dim"))


def _told(flows: list[dict[str, Any]]) -> list[RichText]:
    """What needs somebody, partition by partition."""
    lines: list[RichText] = []
    for flow in flows:
        lines += [make_visible_text(f"  {flow['id']}: {line}", style="dim") for line in describe_flow_record(flow)]
        old = describe_single_batch_mode(flow)
        if old:
            lines.append(make_visible_text(f"  {flow['id']}: {old}", style="dim"))
        lines += [make_visible_text(f"  {flow['id']} {line}") for line in describe_flow_sync(flow)]
        lines += [
            make_visible_text(
                f"  {flow['id']} {row['topic']}-{row['partition']}: {render_alignment_progress(row['aligning'])}",
                style="cyan",
            )
            for row in flow["partitions"]
            if row.get("aligning")
        ][:_MOST_PARTITIONS]
        rows = [row for row in flow["partitions"] if row["error"] or row["open_records"]]
        rows.sort(key=lambda row: (row["remedy"] is None, row["topic"], row["partition"]))
        for row in rows[:_MOST_PARTITIONS]:
            line = make_visible_text(f"  {flow['id']} {row['topic']}-{row['partition']}: ")
            line.append(_state(row["state"]))
            waiting = f"{row['open_records']:,} offsets wait for a transaction at the source to end"
            line.append(f": {row['error'] or waiting}")
            lines.append(line)
            if row["remedy"]:
                lines.append(make_visible_text(f"    what to do: {row['remedy']}", style="bold"))
        if len(rows) > _MOST_PARTITIONS:
            lines.append(
                make_visible_text(f"  {flow['id']}: {len(rows) - _MOST_PARTITIONS} more partitions", style="dim")
            )
    return lines


def _state(state: str) -> RichText:
    return make_visible_text(state, style=_COLOURS.get(state, _LOUD))


def render_delay(milliseconds: int | None) -> str:
    """`0.4 s`, `2 m 10 s`, `5 h 3 m`; `-` when not known."""
    if milliseconds is None:
        return "-"
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} m {int(seconds % 60)} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} m"


def draw_sparkline(values: list[float]) -> str:
    """A bar for each value, the highest one full."""
    most = max(values, default=0.0)
    return "".join(_BARS[round(value / most * (len(_BARS) - 1))] if most else _BARS[0] for value in values)
