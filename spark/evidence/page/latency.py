"""How late records arrived, where the logs tell it, and what was still to come at the barrier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from watershed.spark.evidence.page.formatting import render_milliseconds, render_partition_name
from watershed.spark.evidence.page.html_element import HtmlContent, e
from watershed.spark.evidence.page.page_tables import render_section, render_table
from watershed.topology.rounded_amounts import render_counted_noun

_QUANTILES = ((0.5, "half"), (0.9, "90 %"), (0.99, "99 %"), (1.0, "all"))
_MOST = 10


def render_latency(chunks: Sequence[Mapping[str, Any]], partitions: Sequence[Mapping[str, Any]]) -> Element:
    """The section on replication latency, and on the lag when the window was fixed."""
    late = compute_chunk_delays(chunks)
    told: HtmlContent
    if late:
        records = sum(count for _, count in late)
        rows = [[name, render_milliseconds(pick_quantile(late, part))] for part, name in _QUANTILES]
        told = [
            e(
                "p",
                f"Of {records:,} records the target stamps the time of append; the record's own time is the source's. "
                f"These are means of {render_counted_noun(len(late), 'chunk')}: single records can be later, and "
                "clocks differ.",
            ),
            render_table(
                ["of the records", "arrived within"], rows, numbers={"arrived within"}, caption="Replication latency"
            ),
        ]
    else:
        told = e(
            "p",
            "Not known: the copy keeps each record's own timestamp, so the target's log does not say when a record "
            "arrived. It does where the target topic has message.timestamp.type=LogAppendTime; ",
            e("code", "topology status"),
            " tells the lag of flows that run.",
        )
    return render_section("Latency and lag", told, _lag(partitions))


def compute_chunk_delays(chunks: Sequence[Mapping[str, Any]]) -> list[tuple[float, int]]:
    """(mean of target time less source time in ms, records) of chunks whose target has times of its own, rising."""
    found = []
    for c in chunks:
        count = c["source_records"]
        if c["status"] != "equal" or c["by"] != "records" or not count or count != c["target_records"]:
            continue
        here, there = (int(c[f"{side}_timestamp"], 16) for side in ("source", "target"))
        if here != there and min(c["source_since"], c["target_since"]) >= 0:
            found.append(((there - here) / count, count))
    return sorted(found)


def pick_quantile(late: Sequence[tuple[float, int]], part: float) -> float:
    """The delay in ms within which this part (0 to 1) of the records arrived. late: (ms, records), rising."""
    wanted, seen = part * sum(count for _, count in late), 0
    for ms, count in late:
        seen += count
        if seen >= wanted:
            return ms
    return late[-1][0]


def _lag(partitions: Sequence[Mapping[str, Any]]) -> list[Element | None]:
    behind = sorted((p for p in partitions if p["pending"]), key=lambda p: -p["pending"])
    if not behind:
        return [e("p", "At the barrier nothing was left to copy.")]
    total = sum(p["pending"] for p in behind)
    rows = [[e("code", render_partition_name(dict(p))), p["flow"], p["pending"]] for p in behind[:_MOST]]
    said = (
        f"At the barrier {render_counted_noun(total, 'record')} of {render_counted_noun(len(behind), 'partition')} had "
        "not been copied"
    )
    said += f", most of them in these {_MOST}." if len(behind) > _MOST else "."
    return [
        e("p", said),
        render_table(
            ["partition", "flow", "pending"], rows, numbers={"pending"}, caption="Lag when the window was fixed"
        ),
    ]
