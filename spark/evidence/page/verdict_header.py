"""The head of the page: the verdict, `unproven`, how many of how many, and the window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from watershed.spark.evidence.page.formatting import (
    COUNT_NAMES,
    render_iso_time,
    render_offset_range,
    render_percentage,
    render_timestamp,
)
from watershed.spark.evidence.page.html_element import e
from watershed.topology.rounded_amounts import render_counted_noun

_RARE = ("quarantined", "repeated")  # not told where there is none
_SIGNS = {"proven": "✓", "repeated": "✓", "different": "✗", "incomplete": "…", "error": "!"}
_SAYS = {
    "proven": "Every record of the window stands on the target, once, unchanged and in order.",
    "repeated": "Every record of the window stands on the target, unchanged and in order, and some stand there once "
    "more. The file allows it (delivery.semantics: at_least_once); each is named.",
    "different": "Source and target differ. Every difference was seen by two reads.",
    "incomplete": "Nothing differs, but something is not proven: see what stands in the way.",
    "error": "No proof could be made. This says nothing about the records.",
}


def render_verdict_header(
    document: Mapping[str, Any], partitions: Sequence[Mapping[str, Any]], chunks: Sequence[Mapping[str, Any]]
) -> Element:
    """The head of the page: verdict, counts and window."""
    verdict = str(document["verdict"])
    sign = e("span", _SIGNS.get(verdict, "?"), cls="sign", aria_hidden="true")
    return e(
        "header",
        e("p", "Proof of ", e("strong", str(document.get("topology") or "a topology"))),
        e("h1", sign, " ", render_verdict_word(document)),
        e("p", _said(document)),
        e("pre", document["error"], cls="error") if document.get("error") else None,
        e("div", _headline(document), _classes(document), cls="numbers") if verdict != "error" else None,
        _window(document, partitions, chunks) if verdict != "error" else None,
        cls=f"band {verdict if verdict in _SIGNS else 'error'}",
    )


def render_verdict_word(document: Mapping[str, Any]) -> str:
    """The verdict for people: `proven, 12 repeated` of a flow that may repeat records, and has."""
    if document["verdict"] != "repeated":
        return str(document["verdict"])
    return f"proven, {int(document.get('repeated', 0)):,} repeated"


def count_differing(counts: Mapping[str, Any]) -> int:
    """Records that differ; what cannot be verified does not."""
    return sum(int(counts.get(name, 0)) for name in ("missing", "altered", "reordered", "duplicates", "foreign"))


def _said(document: Mapping[str, Any]) -> str:
    verdict, groups = str(document["verdict"]), int((document.get("groups") or {}).get("different", 0))
    if verdict == "different" and groups:
        lost = f"{render_counted_noun(groups, 'position')} of consumer groups would leave records out at the target."
        return f"{_SAYS[verdict]} And {lost}" if count_differing(document) else f"No record differs, but {lost}"
    return _SAYS.get(verdict, "")


def count_in_window(counts: Mapping[str, Any]) -> int:
    """Source records that the proof had to account for."""
    names = ("proven", "proven_earlier", "missing", "altered", "reordered", "unverifiable", "quarantined")
    return sum(int(counts.get(name, 0)) for name in names)


def count_proven(counts: Mapping[str, Any]) -> int:
    """By this proof and those that it builds on."""
    return int(counts["proven"]) + int(counts["proven_earlier"])


def _headline(document: Mapping[str, Any]) -> list[Element]:
    whole, proven = count_in_window(document), count_proven(document)
    least = "" if document.get("exact", True) else "at least "
    earlier = int(document.get("proven_earlier", 0))
    return [
        e(
            "p",
            e("span", f"{least}{document['unproven']:,}", cls="big"),
            e("span", "unproven", cls="unit"),
            cls="headline",
        ),
        e(
            "p",
            e("span", proven, cls="big"),
            e("span", f"proven of {whole:,} records ({render_percentage(proven, whole)})", cls="unit"),
            e("span", f"– {earlier:,} of them by earlier proofs", cls="unit") if earlier else None,
            cls="headline",
        ),
    ]


def _classes(document: Mapping[str, Any]) -> Element:
    return e(
        "ul",
        [
            e("li", e("b", int(document[name])), " ", name, cls=("some" if document[name] else "none"))
            for name in COUNT_NAMES
            if document.get(name) or name not in _RARE
        ],
        cls="classes",
    )


def _window(
    document: Mapping[str, Any], partitions: Sequence[Mapping[str, Any]], chunks: Sequence[Mapping[str, Any]]
) -> Element:
    window = document.get("window") or {}
    known = [p for p in partitions if p["source_start"] is not None]
    topics = {(p["flow"], p["topic"]) for p in partitions}
    told = [f"Window fixed {render_iso_time(window.get('fixed_at'))}, mode {document.get('mode', '–')}"]
    told.append(f"{render_counted_noun(len(partitions), 'partition')} of {render_counted_noun(len(topics), 'topic')}")
    if len(known) == 1:
        [p] = known
        told.append(
            f"source offsets {render_offset_range(p['source_start'], p['source_end'])}, barrier {p['barrier']:,}"
        )
    elif known:
        offsets = sum(p["source_end"] - p["source_start"] for p in known)
        told.append(f"{offsets:,} source offsets (each partition's below)")
    stamps = [c[f"source_{edge}"] for c in chunks for edge in ("since", "until") if c[f"source_{edge}"] >= 0]
    if stamps:
        told.append(f"records of {render_timestamp(min(stamps))} to {render_timestamp(max(stamps))} UTC")
    return e("p", " · ".join(told), cls="window")
