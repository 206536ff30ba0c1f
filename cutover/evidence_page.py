"""The evidence pack as one self-contained HTML page: no scripts, nothing loaded, every value escaped."""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --good: #1a7f37; --bad: #b42318; --dim: #7a7a7a; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2.5rem auto; padding: 0 1.5rem; }
h1 { font-size: 1.5rem; margin: 0 0 .2rem; } h2 { font-size: 1.05rem; margin: 2.2rem 0 .6rem; }
p.sub, td.dim { color: var(--dim); } code { font: 13px ui-monospace, monospace; overflow-wrap: anywhere; }
.band { border-left: 5px solid var(--good); padding: .5rem 1rem; margin: 1.2rem 0; }
.band.bad { border-color: var(--bad); }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; vertical-align: top; padding: .35rem .7rem .35rem 0;
border-bottom: 1px solid var(--line); } th { font-weight: 600; }
td.n { text-align: right; font-variant-numeric: tabular-nums;
white-space: nowrap; } tr.line td { border-bottom: 3px double var(--bad); }
details pre { font: 12px/1.45 ui-monospace, monospace; margin: .3rem 0;
white-space: pre-wrap; overflow-wrap: anywhere; }
"""


def page(document: dict[str, Any]) -> str:
    """`document` is what `cutover.evidence.evidence` gives."""
    tail = document["proofs"].get("tail_proof", {})
    proven = tail.get("verdict") == "proven" and tail.get("unproven") == 0
    verdict = (
        f"Everything up to the barrier is proven: {tail.get('counts', {}).get('proven', '?')} records, 0 unproven."
        if proven
        else "Not everything was proven; see the steps."
    )
    stopped = document["producers_stopped_ms"]
    title = f"Migration of {document['topology']}: {document['source']} → {document['target']}"
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width'>",
        "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        f"<p class=sub>wave {escape(document['wave'])} · run {escape(document['run'])} · "
        f"{escape(document['began'])}</p>",
        f"<div class='band{'' if proven else ' bad'}'>{escape(verdict)}"
        + (f" Producers were stopped for at most {stopped / 1000:.1f} s." if stopped is not None else "")
        + "</div>",
        "<h2>Steps</h2>",
        _table(("step", "what it did", "seconds", "seen"), (_step_row(step) for step in document["steps"])),
        "<h2>Groups</h2>",
        _table(
            ("group", "topic", "partition", "source offset", "target offset"),
            (row for name, group in document["groups"].items() for row in _group_rows(name, group)),
        ),
        "<h2>Proofs</h2>",
        _table(("proof", "verdict", "unproven", "proof root"), (_proof_row(*p) for p in document["proofs"].items())),
        "<h2>Chain</h2>",
        f"<p>plan <code>{escape(document['plan'])}</code><br>journal root "
        f"<code>{escape(document['journal']['root'])}</code> ({document['journal']['entries']} entries)<br>"
        f"acting: {escape(', '.join(document['actors']))}</p>",
        "</body></html>\n",
    ]
    return "".join(parts)


def _step_row(step: dict[str, Any]) -> str:
    seconds = "" if step["duration_ms"] is None else f"{step['duration_ms'] / 1000:.1f}"
    seen = ""
    if step["outcome"]:
        body = escape(json.dumps(step["outcome"], indent=1, sort_keys=True))
        seen = f"<details><summary>observations</summary><pre>{body}</pre></details>"
    if step["refused"]:
        seen = f"<b>refused:</b> {escape(step['refused'])}{seen}"
    kind = " class=line" if step["point_of_no_return"] else ""
    name = step["name"].replace("_", " ")
    return (
        f"<tr{kind}><td><b>{escape(name)}</b></td><td class=dim>{escape(step['does'])}</td>"
        f"<td class=n>{seconds}</td><td>{seen}</td></tr>"
    )


def _group_rows(name: str, group: dict[str, Any]) -> Iterable[str]:
    for topic, partitions in group["translated"].items():
        for partition, offset in partitions.items():
            before = group["source_before"].get(topic, {}).get(partition, "")
            yield (
                f"<tr><td>{escape(name)}</td><td>{escape(topic)}</td><td class=n>{escape(partition)}</td>"
                f"<td class=n>{escape(str(before))}</td><td class=n>{offset}</td></tr>"
            )


def _proof_row(name: str, proof: dict[str, Any]) -> str:
    cells = (name.replace("_", " "), proof.get("verdict"), proof.get("unproven"), proof.get("proof_root"))
    return "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in cells) + "</tr>"


def _table(head: tuple[str, ...], rows: Iterable[str]) -> str:
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    return f"<table><tr>{cells}</tr>{''.join(rows)}</table>"
