"""The page from its parts."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any
from xml.etree.ElementTree import Element

from watershed.spark.evidence.page.chunk_map import render_chunk_map
from watershed.spark.evidence.page.formatting import render_iso_time
from watershed.spark.evidence.page.html_element import e, render_html
from watershed.spark.evidence.page.latency import render_latency
from watershed.spark.evidence.page.page_tables import (
    MAX_TABLE_ROWS,
    render_differences,
    render_groups,
    render_rows_left_out,
    render_section,
    render_topics,
    render_windows,
)
from watershed.spark.evidence.page.records_over_time import render_records_over_time
from watershed.spark.evidence.page.verdict_header import render_verdict_header
from watershed.topology.installed_version import read_installed_version
from watershed.topology.rounded_amounts import render_decimal_size

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_LONG = 400
Rows = Sequence[Mapping[str, Any]]


def render_proof_page(document: Mapping[str, Any], tables: Mapping[str, Rows]) -> str:
    """HTML of a summary and, where they are, its tables `partitions`, `chunks`, `diffs`, `groups`."""
    partitions, chunks = tables.get("partitions", ()), tables.get("chunks", ())
    verdict = str(document["verdict"])
    done = verdict != "error"
    body = e(
        "body",
        render_verdict_header(document, partitions, chunks),
        e(
            "main",
            _list("What stands in the way", document.get("findings", ()), "finding"),
            (render_topics(document), render_windows(document, partitions)) if done else None,
            render_differences(document, tables.get("diffs", ())) if done else None,
            (render_chunk_map(partitions, chunks), render_records_over_time(chunks)) if done else None,
            render_latency(chunks, partitions) if done and partitions else None,
            render_groups(tables.get("groups", ())),
            _list("Not compared", document.get("not_compared", ()), "note"),
            _provenance(document, chunks),
        ),
    )
    head = e(
        "head",
        e("meta", charset="utf-8"),
        e("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        e("meta", name="viewport", content="width=device-width, initial-scale=1"),
        e("meta", name="color-scheme", content="light dark"),
        e("title", f"Proof of {document.get('topology') or 'a topology'}: {verdict}"),
        _style(),
    )
    return render_html(e("html", head, body, lang="en"))


def render_fallback_page(document: Mapping[str, Any], error: Exception) -> str:
    """In place of a page that could not be drawn: the verdict, and why there is no more."""
    told = f"{document.get('verdict')}: {document.get('unproven')} unproven, {document.get('pending')} pending."
    why = "This page could not be drawn, which is a flaw of it; summary.json and the tables beside it are whole."
    body = e("body", e("h1", "Proof"), e("p", told), e("p", why), e("pre", f"{type(error).__name__}: {error}"))
    return render_html(e("html", e("head", e("meta", charset="utf-8"), e("title", "Proof")), body, lang="en"))


def _style() -> Element:
    style = e("style")
    style.text = files("watershed.spark.evidence.page").joinpath("page.css").read_text(encoding="utf-8")
    return style


def _list(title: str, lines: Sequence[str], noun: str) -> Element | None:
    if not lines:
        return None
    return render_section(
        title,
        e("ul", [e("li", line) for line in lines[:MAX_TABLE_ROWS]], cls=noun),
        render_rows_left_out(len(lines), MAX_TABLE_ROWS, f"{noun}s"),
    )


def _provenance(document: Mapping[str, Any], chunks: Rows) -> Element:
    """Who proved what by which means: what a change ticket needs."""
    here = [c for c in chunks if c["status"] != "earlier"]
    read = sum(c[f"{side}_bytes"] * max(1, c["reads"]) for c in here for side in ("source", "target"))
    seconds = float(document.get("seconds") or 0)
    rate = (
        f", about {render_decimal_size(read / seconds)}/s of both sides with all that it cost"
        if read and seconds
        else ""
    )
    started = (
        f"{render_iso_time(document.get('started_at'))} to {render_iso_time(document.get('ended_at'))} "
        f"({seconds:,.1f} s)"
    )
    engine = document.get("engine") or "–"
    spark = f", Spark {document['spark_version']}" if document.get("spark_version") else ""
    version = read_installed_version() or "from a checkout"
    done = document["verdict"] != "error"
    lines: list[tuple[str, Any]] = [
        ("topology", document.get("topology") or "–"),
        ("plan", e("code", str(document.get("plan_hash") or "–"))),
        ("flows", ", ".join(map(_flow, document.get("flows", ()))) or "–"),
        ("run", e("code", str(document.get("run_id") or "–"))),
        ("level and mode", f"{document.get('level', '–')}, {document.get('mode', '–')}"),
        ("asked for", _asked(document.get("policy") or {})),
        ("time", started),
        (
            "engine",
            f"{engine}{spark}, Python {platform.python_version()}, Watershed {version}",
        ),
    ]
    fingerprint = f"version {document.get('fingerprint')}: XXH64 of key, value, headers, timestamp; summed up"
    lines += [
        ("read", f"{document.get('records', 0):,} records in {document.get('chunks', 0):,} chunks{rate}"),
        ("fingerprint", fingerprint),
        ("proof root", e("code", str(document.get("proof_root") or "–"))),
    ] if done else []  # fmt: skip
    told = e(
        "p",
        "The proof root is a Merkle root over all chunks: ",
        e("code", "topology verify --check"),
        " tells whether the evidence beside this page is as it was written. XXH64 finds accidents, "
        "not somebody who forges records on purpose.",
    )
    return render_section(
        "Provenance", e("dl", [(e("dt", name), e("dd", value)) for name, value in lines]), told if done else None
    )


def _flow(flow: Mapping[str, Any]) -> str:
    """The flow's id, with what it was promised."""
    return f"{flow['id']} ({flow['guarantee']})" if flow.get("guarantee") else str(flow["id"])


def _asked(policy: Mapping[str, Any]) -> str:
    """Names and values of what was asked for beside level and mode."""
    told = [f"{name} {_plain(value)}" for name, value in policy.items() if value and name not in ("level", "final")]
    text = ", ".join(told) or "–"
    return text if len(text) <= _LONG else f"{text[: _LONG - 1]}…"


def _plain(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else "yes" if value is True else str(value)
