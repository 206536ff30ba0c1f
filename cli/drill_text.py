"""What a rehearsal has shown, as text."""

from __future__ import annotations

from typing import Any


def render_drill_report(document: dict[str, Any]) -> str:
    """document: `cutover.drill.drill_report.build_drill_report`."""
    rows = [(step["name"], _seconds(step["there"]), _seconds(step["back"])) for step in document["steps"]]
    width = max(len(row[0]) for row in rows) if rows else 4
    lines = [f"  {'step':<{width}}  {'there':>9}  {'back':>9}"]
    lines += [f"  {name:<{width}}  {there:>9}  {back:>9}" for name, there, back in rows]
    return "\n".join([*lines, "", *_numbers(document), *_lists(document)])


def _numbers(document: dict[str, Any]) -> list[str]:
    without, counted, records = document["without_writes"], document["counted"], document["records"]
    source, target = document["source"], document["target"]
    rows = [
        (
            "seconds without writes, there",
            _plain(without["there"]),
            f"last acknowledgement at {source} to first at {target}",
        ),
        (
            "seconds without writes, back",
            _plain(without["back"]),
            f"last acknowledgement at {target} to first at {source}",
        ),
    ]
    if counted is None:
        rows.append(("counted", "nothing", "it did not come so far"))
    else:
        rows += [
            (
                "records",
                f"{records['copied'] + records['acknowledged']:,}",
                f"{records['copied']:,} of them copied before",
            ),
            ("lost", f"{counted['lost']:,}", "acknowledged, and not read by a group"),
            ("read again", f"{counted['again']:,}", "by the same group"),
            ("out of order", f"{counted['out_of_order']:,}", "within a key"),
        ]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return [f"  {what:<{widths[0]}}  {value:>{widths[1]}}  {where}" for what, value, where in rows]


def _lists(document: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for title, names in (
        ("left out of the rehearsal", document["left_out"]),
        ("rights that the migration needs and this process lacks", document["lacking"]),
        ("not removed", document["left"]),
    ):
        if names:
            lines += ["", f"  {title}:", *(f"    {name}" for name in names)]
    return lines


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} s"


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
