"""Records over time on both sides, from what chunks know: how many, the first and the last timestamp."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any
from xml.etree.ElementTree import Element

from watershed.spark.evidence.page.formatting import render_milliseconds, render_timestamp
from watershed.spark.evidence.page.html_element import e
from watershed.spark.evidence.page.page_tables import render_section
from watershed.topology.rounded_amounts import render_counted_noun

TIME_BUCKETS = 120
_LEFT, _WIDTH, _HEIGHT, _BELOW = 70, 850, 150, 22


def render_records_over_time(chunks: Sequence[Mapping[str, Any]]) -> Element | None:
    """None without timestamps."""
    stamped = {
        side: [c for c in chunks if c[f"{side}_since"] >= 0 and c[f"{side}_records"]] for side in ("source", "target")
    }
    edges = [c[f"{side}_{edge}"] for side, some in stamped.items() for c in some for edge in ("since", "until")]
    if not edges:
        return None
    low, high = min(edges), max(edges)
    step = max(1.0, (high - low + 1) / TIME_BUCKETS)
    source, target = (count_by_bucket(stamped[side], side, low, step) for side in ("source", "target"))
    top = max([*source, *target, 1.0])
    drawn = [
        e("path", d=_steps(source, top) + f" V{_HEIGHT} H{_LEFT} Z", cls="source-area"),
        e("path", d=_steps(target, top), cls="target-line"),
    ]
    ticks = [
        (
            e("line", x1=_LEFT, x2=_LEFT + _WIDTH, y1=y, y2=y, cls="tick"),
            e("text", f"{top * part:,.0f}", x=_LEFT - 6, y=y + 4, text_anchor="end", cls="axis"),
        )
        for part in (0.0, 0.5, 1.0)
        for y in [8 + (_HEIGHT - 8) * (1 - part)]
    ]
    times = [
        e(
            "text",
            render_timestamp(int(low + (high - low) * part)),
            x=_LEFT + _WIDTH * part,
            y=_HEIGHT + 16,
            text_anchor=anchor,
            cls="axis",
        )
        for part, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end"))
    ]
    picture = e(
        "svg",
        e("title", "Records over time, source and target"),
        ticks,
        drawn,
        times,
        viewBox=f"0 0 {_LEFT + _WIDTH + 10} {_HEIGHT + _BELOW}",
        cls="chart",
        role="img",
    )
    said = e(
        "p",
        f"Records in each {render_milliseconds(step)} by their own timestamps (UTC), from "
        f"{render_counted_noun(len(chunks), 'chunk')}: "
        "those of a chunk are spread evenly between its first and its last timestamp. "
        "Where the line leaves the area, one side has more.",
    )
    legend = e(
        "ul",
        e("li", _key("rect"), " source: ", e("b", sum(c["source_records"] for c in stamped["source"]))),
        e("li", _key("line"), " target: ", e("b", sum(c["target_records"] for c in stamped["target"]))),
        cls="legend",
    )
    return render_section("Records over time", said, legend, e("div", picture, cls="scroll"))


def count_by_bucket(chunks: Sequence[Mapping[str, Any]], side: str, low: int, step: float) -> list[float]:
    """Records in each bucket of `step` ms from `low`; together as many as the chunks hold."""
    found = [0.0] * TIME_BUCKETS
    for c in chunks:
        count, since, until = c[f"{side}_records"], c[f"{side}_since"], c[f"{side}_until"]
        begin, took = since - low, until + 1 - since
        first, last = (min(TIME_BUCKETS - 1, int((stamp - low) / step)) for stamp in (since, until))
        edges = [begin, *(at * step for at in range(first + 1, last + 1)), begin + took]
        for at, (left, right) in enumerate(pairwise(edges), first):  # neighbours share an edge: nothing is lost
            found[at] += count * (right - left) / took
    return found


def _steps(values: Sequence[float], top: float) -> str:
    """A line of steps, from the left edge to the right one."""
    step = _WIDTH / len(values)
    heights = [8 + (_HEIGHT - 8) * (1 - value / top) for value in values]
    parts = [f"M{_LEFT},{heights[0]:.1f}"]
    for at, y in enumerate(heights):
        parts.append(f"V{y:.1f} H{_LEFT + (at + 1) * step:.1f}")
    return " ".join(parts)


def _key(kind: str) -> Element:
    drawn = (
        e("rect", width=14, height=12, y=2, cls="source-area")
        if kind == "rect"
        else e("path", d="M0,8 H14", cls="target-line")
    )
    return e("svg", drawn, width=14, height=14, aria_hidden="true")
