"""Tables of the page. Each ends after `ROWS` rows and says what it left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from watershed.spark.evidence.page.formatting import (
    COUNT_NAMES,
    render_offset_range,
    render_partition_name,
    render_percentage,
    render_timestamp,
)
from watershed.spark.evidence.page.html_element import HtmlContent, e
from watershed.spark.evidence.page.verdict_header import count_differing, count_in_window, count_proven
from watershed.topology.rounded_amounts import render_counted_noun, render_decimal_size

MAX_TABLE_ROWS = 200
_BAR = 120
_PARTS = {"equal": "proven", "earlier": "proven_earlier", "different": "unproven", "pending": "pending"}
_FEW = 3  # columns that need not be drawn apart over the whole width
_JUDGED = {  # of a group's position (`spark.judging.group_position_landing`), worst first: sign, class
    "different": ("✗", "different"),
    "unknown": ("…", "incomplete"),
    "told": ("○", "told"),
    "same": ("✓", "proven"),
}


def render_table(
    heads: Sequence[str], rows: Sequence[Sequence[HtmlContent]], *, numbers: Iterable[str] = (), caption: str
) -> Element:
    """Columns named in `numbers` are set to the right."""
    kinds = ["n" if head in set(numbers) else None for head in heads]
    return e(
        "div",
        e(
            "table",
            e("caption", caption),
            e(
                "thead",
                e("tr", [e("th", head, cls=kind, scope="col") for head, kind in zip(heads, kinds, strict=True)]),
            ),
            e(
                "tbody",
                [e("tr", [e("td", cell, cls=kind) for cell, kind in zip(row, kinds, strict=True)]) for row in rows],
            ),
        ),
        cls="scroll" if len(heads) > _FEW else "scroll few",
        role="region",
        tabindex="0",
        aria_label=caption,
    )


def render_topics(document: Mapping[str, Any]) -> Element:
    """One row a topic, in the order of the summary: what is unproven or pending comes first."""
    lines = document["topics"]
    rows = []
    for t in lines[:MAX_TABLE_ROWS]:
        name = t["topic"] if t["topic"] == t["target_topic"] else f"{t['topic']} → {t['target_topic']}"
        differing = ", ".join(f"{t[kind]:,} {kind}" for kind in COUNT_NAMES[:-1] if t.get(kind))
        earlier = f", {t['proven_earlier']:,} earlier" if t["proven_earlier"] else ""
        rows.append(
            [
                [e("code", name), e("small", t["flow"])],
                t["partitions"],
                [count_proven(t), e("small", f" of {count_in_window(t):,}{earlier}")],
                render_share_bar(t),
                render_strong(t["unproven"]),
                differing or "–",
                render_strong(t["pending"], "pending"),
                render_decimal_size(t["bytes"]),
            ]
        )
    heads = ["topic", "partitions", "proven", "share", "unproven", "of which", "pending", "read"]
    made = render_table(heads, rows, numbers={*heads} - {"topic", "share", "of which"}, caption="Result by topic")
    told = made if rows else e("p", "No topic was compared.")
    return render_section("Topics", told, render_rows_left_out(len(lines), MAX_TABLE_ROWS, "topics"))


def render_share_bar(counts: Mapping[str, Any]) -> Element:
    """Proven, unproven and pending as parts of a whole; what is not 0 can be seen."""
    parts = [(kind, counts[name]) for kind, name in _PARTS.items()]
    whole = sum(count for _, count in parts)
    shown = render_percentage(count_proven(counts), whole)
    drawn, x = [], 0.0
    room = _BAR - 3 * sum(1 for _, count in parts if count)
    for kind, count in parts:
        if count:
            width = 3 + room * count / whole
            drawn.append(e("rect", x=x, y=0, width=width, height=12, cls=kind))
            x += width
    return e(
        "svg",
        e("title", f"{shown} proven"),
        drawn,
        cls="bar",
        viewBox=f"0 0 {_BAR} 12",
        width=_BAR,
        height=12,
        role="img",
    )


def render_differences(document: Mapping[str, Any], diffs: Sequence[Mapping[str, Any]]) -> Element | None:
    """Where records differ and in what; never what is in them."""
    if not diffs and not count_differing(document):
        return None
    rows: list[list[HtmlContent]] = [
        [
            e("code", render_partition_name(dict(d))),
            e("code", d["chunk"]),
            e("span", d["kind"], cls="kind"),
            _offset(d["source_offset"]),
            _offset(d["target_offset"]),
            ", ".join(d["components"]) or "–",
            _stamps(d),
        ]
        for d in diffs[:MAX_TABLE_ROWS]
    ]
    heads = ["partition", "chunk", "kind", "source offset", "target offset", "differs in", "record's time (UTC)"]
    made = render_table(
        heads, rows, numbers={"source offset", "target offset"}, caption="Records that differ, by coordinates"
    )
    told = e(
        "p",
        "Only where records differ, and in what: keys and values stay on the clusters. ",
        e("code", "topology verify --explain CHUNK"),
        " shows the records around a difference.",
    )
    some = e("p", "The records were counted, not listed.") if not rows else None
    return render_section(
        "Differences",
        told,
        some or made,
        render_rows_left_out(len(diffs), MAX_TABLE_ROWS, "differences", "the table diffs"),
    )


def render_groups(lines: Sequence[Mapping[str, Any]]) -> Element | None:
    """Where consumer groups would go on; what is not as it should be first."""
    if not lines:
        return None
    ordered = sorted(lines, key=lambda g: (_rank(g["judged"]), g["flow"], g["group"], g["topic"], g["partition"]))
    rows = [
        [
            _mark(str(g["judged"])),
            e("code", g["group"] if g["group"] == g["target_group"] else f"{g['group']} → {g['target_group']}"),
            e("code", render_partition_name(dict(g))),
            _offset(g["committed"]),
            _offset(g["translated"]),
            _offset(g["at_target"]),
            _away(g["translation"], g["translation_records"]),
            _away(g["landing"], g["landing_records"]),
            g["why"] or "–",
        ]
        for g in ordered[:MAX_TABLE_ROWS]
    ]
    heads = [
        "result", "group", "partition", "committed", "translated", "at target", "translation", "landing", "why",
    ]  # fmt: skip
    made = render_table(
        heads, rows, numbers={"committed", "translated", "at target"}, caption="Landing test of consumer groups"
    )
    told = e(
        "p",
        "The record at a group's committed offset at the source is compared with the record at the translated offset, "
        "and with the one at which the group stands at the target.",
    )
    return render_section(
        "Consumer groups", told, made, render_rows_left_out(len(lines), MAX_TABLE_ROWS, "positions", "the table groups")
    )


def render_windows(document: Mapping[str, Any], partitions: Sequence[Mapping[str, Any]]) -> HtmlContent:
    """The vector of offsets, and what was found of every partition."""
    if not partitions:
        return None
    looked_at = (document.get("window") or {}).get("partitions", ())
    by_keys = {(w["flow"], w["topic"], w["partition"]) for w in looked_at if w.get("mode") == "state"}
    rows = [
        [
            [e("code", render_partition_name(dict(p))), e("small", "counts keys") if _key(p) in by_keys else None],
            p["flow"],
            render_offset_range(p["source_start"], p["source_end"]),
            render_offset_range(p["target_start"], p["target_end"]),
            _offset(p["barrier"]),
            count_proven(p),
            render_strong(p["unproven"]),
            render_strong(p["pending"], "pending"),
        ]
        for p in sorted(partitions, key=lambda p: (-p["unproven"], -p["pending"]))[:MAX_TABLE_ROWS]
    ]
    heads = ["partition", "flow", "source offsets", "target offsets", "barrier", "proven", "unproven", "pending"]
    numbers = {"source offsets", "target offsets", "barrier", "proven", "unproven", "pending"}
    made = render_table(heads, rows, numbers=numbers, caption="Window and result by partition")
    summary = e("summary", f"Offsets and result of {render_counted_noun(len(partitions), 'partition')}")
    more = render_rows_left_out(len(partitions), MAX_TABLE_ROWS, "partitions", "the table partitions")
    keys = "judged by the last record of every key (compacted): keys are counted there."
    told = e("p", f"{render_counted_noun(len(by_keys), 'partition')} {keys}", cls="more") if by_keys else None
    return [told, e("details", summary, made, more, open_=("" if len(partitions) <= 12 else None))]


def _key(line: Mapping[str, Any]) -> tuple[Any, ...]:
    return line["flow"], line["topic"], line["partition"]


def render_section(title: str, *content: HtmlContent) -> Element:
    """A section of the page under its title."""
    return e("section", e("h2", title), content)


def render_rows_left_out(there: int, shown: int, noun: str, where: str = "summary.json") -> Element | None:
    """Says how many rows the page leaves out and where they are; None when it shows all."""
    if there <= shown:
        return None
    return e("p", f"The first {shown:,} of {there:,} {noun}; the others are in {where}.", cls="more")


def render_strong(count: int, kind: str = "") -> HtmlContent:
    """A count in bold, so that it is seen; 0 plain."""
    return e("b", count, cls=f"some {kind}".strip()) if count else "0"


def _offset(offset: int | None) -> str:
    return "–" if offset is None else f"{offset:,}"


def _stamps(d: Mapping[str, Any]) -> str:
    here, there = d.get("source_timestamp"), d.get("target_timestamp")
    told = [render_timestamp(ms) for ms in dict.fromkeys((here, there)) if ms is not None]
    return " → ".join(told) or "–"


def _rank(judged: str) -> int:
    return list(_JUDGED).index(judged) if judged in _JUDGED else 0


def _mark(judged: str) -> Element:
    sign, kind = _JUDGED.get(judged, ("?", "incomplete"))
    return e("span", f"{sign} {judged}", cls=f"mark {kind}")


def _away(word: Any, records: int | None) -> str:
    return f"{word} by {render_counted_noun(abs(records), 'record')}" if records else str(word)
