"""The evidence pack as one self-contained HTML page: no scripts, nothing loaded, every value escaped."""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from typing import Any

from watershed.cutover.evidence.proof_summary import PROVEN_VERDICTS
from watershed.topology.text_escaping import escape_control_lines

_LONGEST_MS = 10**15  # a duration is below; what is not, a journal made up
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --good: #1a7f37; --bad: #b42318; --dim: #7a7a7a; }
@media (prefers-color-scheme: dark) { :root { --good: #3fb950; --bad: #f85149; --dim: #9a9a9a; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2.5rem auto; padding: 0 1.5rem; }
h1 { font-size: 1.5rem; margin: 0 0 .2rem; } h2 { font-size: 1.05rem; margin: 2.2rem 0 .6rem; }
p.sub, .dim { color: var(--dim); } code { font: 13px ui-monospace, monospace; overflow-wrap: anywhere; }
.band { border-left: 5px solid var(--good); padding: .5rem 1rem; margin: 1.2rem 0; }
.band.bad { border-color: var(--bad); }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; vertical-align: top; padding: .35rem .7rem .35rem 0;
border-bottom: 1px solid var(--line); } th { font-weight: 600; }
td.n { text-align: right; font-variant-numeric: tabular-nums;
white-space: nowrap; } tr.line td { border-bottom: 3px double var(--bad); }
td:first-child, summary { white-space: nowrap; } td.dim { min-width: 20rem; } summary { cursor: pointer; }
details pre { font: 12px/1.45 ui-monospace, monospace; margin: .3rem 0;
white-space: pre-wrap; overflow-wrap: anywhere; }
"""


_TITLES = {
    "migrate": "Migration of {topology}: {source} → {target}",
    "rollback": "Rollback of {topology}: {source} → {target}",
    "failover": "Failover of {topology}: {source} → {target}",
    "failback": "Failback of {topology}: {source} → {target}",
    "drill": "Rehearsal of {topology}: {source} → {target}",
}


EVIDENCE_PAGE_CSP = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'"  # no script
)


def render_evidence_page(document: dict[str, Any]) -> str:
    """The page; a value of a journal that it stumbles over does not keep the run from its evidence: then it says so."""
    try:
        return render_run_evidence(document)
    except Exception as error:  # noqa: BLE001 (whatever is in the journal, evidence.json is whole)
        why = f"This page could not be drawn: {type(error).__name__}: {error}. evidence.json beside it is whole."
        return (
            f"<!doctype html><html lang=en><head><meta charset=utf-8><meta http-equiv=Content-Security-Policy "
            f'content="{EVIDENCE_PAGE_CSP}"><title>Evidence</title></head><body><h1>Evidence</h1><p>{_shown(why)}</p></body></html>\n'
        )


def render_run_evidence(document: dict[str, Any]) -> str:
    """`document` is what `cutover.evidence.pack.build_run_evidence` gives."""
    title = _TITLES[document["kind"]].format(**document)
    good, verdict = _verdict(document)
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width'>",
        f"<meta http-equiv=Content-Security-Policy content=\"{EVIDENCE_PAGE_CSP}\">",
        f"<title>{_shown(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{_shown(title)}</h1>",
        f"<p class=sub>wave {_shown(document['wave'])} · {_shown(_words(document['strategy']))} · run "
        f"{_shown(document['run'])} · {_shown(document['began'])} · "
        f"took {_shown(_seconds(document['took_ms'], 0))}</p>",
        f"<div class='band{'' if good else ' bad'}'>{_shown(verdict)}</div>",
        "<h2>Steps</h2>",
        _table(("step", "what it does", "seconds", "seen"), (_step_row(step) for step in document["steps"])),
        *_section("Groups", ("group", "topic at the target", "partition", "before", "after", "landing"),
                  (row for name, group in document["groups"].items() for row in _group_rows(name, group))),
        *_section("Proofs", ("proof", "verdict", "records proven", "unproven", "proof root"),
                  (_proof_row(*each) for each in document["proofs"].items())),
        *_section("Fence", ("how", "who stopped", "what was done", "still up"), _fence_rows(document["fence"])),
        *_section("Approvals", ("asked", "answer", "by", "note"), map(_approval_row, document["approvals"])),
        *_section("Hooks", ("step", "hook", "answer"), map(_hook_row, document["hooks"])),
        *_section("Waves", ("wave", "state", "its topics are written to at", "topics"),
                  map(_wave_row, document["waves"])),
        *_section("Journal lines that are not ours, and do not count", ("offset", "run", "step", "why"),
                  map(_foreign_row, document["journal"].get("foreign", []))),
        "<h2>Chain</h2>",
        f"<p>plan <code>{_shown(document['plan'])}</code><br>journal root "
        f"<code>{_shown(document['journal']['root'])}</code> ({_shown(document['journal']['entries'])} entries)<br>"
        f"acting: {_shown(', '.join(map(str, document['actors'])))}</p>",
        "</body></html>\n",
    ]  # fmt: skip
    return "".join(parts)


def _verdict(document: dict[str, Any]) -> tuple[bool, str]:
    """Whether it is good news, and what the band at the top says."""
    tail, stopped, undoing = (
        document["proofs"].get("tail_proof", {}),
        document["producers_stopped_ms"],
        document["undoing_ms"],
    )
    proven = tail.get("verdict") in PROVEN_VERDICTS and tail.get("unproven") == 0
    refused = next((step for step in document["steps"] if step["refused"]), None)
    match document["state"]:
        case "done" if proven:
            count = tail.get("counts", {}).get("proven", "?")
            text = f"Everything up to the barrier is proven: {count} records, 0 unproven."
        case "done" if document.get("loss"):
            missing, rpo = document["loss"]["offsets"], document["loss"]["rpo_ms"]
            proven, text = True, f"Promoted. Declared and accepted as missing: at most {missing} records"
            text += f", {_seconds(rpo)} of writing." if rpo is not None else "."
        case "done":
            text = "Done, without a proof of everything; see the steps."
        case "rolled_back":
            text = "Refused, and everything was taken back" + (f" in {_seconds(undoing)}." if undoing else ".")
        case "refused":
            text = "Refused before anything was changed."
        case state:
            text = f"Not finished: {_words(state)}. The journal says what is left to be done."
    if refused is not None:
        text += f" Step {_words(refused['name'])}: {refused['refused']}"
    if stopped is not None:
        text += f" Producers were stopped for at most {_seconds(stopped)}."
    return document["state"] == "done" and proven, text


def _section(title: str, head: tuple[str, ...], rows: Iterable[str]) -> Iterable[str]:
    """Nothing where there is nothing to show."""
    found = list(rows)
    return (f"<h2>{title}</h2>", _table(head, found)) if found else ()


def _foreign_row(line: dict[str, Any]) -> str:
    return _row(line["offset"], line["run"], line["step"], line["why"])


def _step_row(step: dict[str, Any]) -> str:
    seconds = "" if step["duration_ms"] is None else _shown(_seconds(step["duration_ms"]).removesuffix(" s"))
    seen = ""
    if step["outcome"]:
        body = escape(json.dumps(step["outcome"], indent=1, sort_keys=True))  # ASCII: nothing hidden in it
        seen = f"<details><summary>observations</summary><pre>{body}</pre></details>"
    if step["refused"]:
        seen = f"<b>refused:</b> {_shown(step['refused'])}{seen}"
    if not step["attempts"]:
        seen = "<span class=dim>not reached</span>"
    kind = " class=line" if step["point_of_no_return"] else ""
    name = _words(step["name"])
    return (
        f"<tr{kind}><td><b>{_shown(name)}</b></td><td class=dim>{_shown(step['does'])}</td>"
        f"<td class=n>{seconds}</td><td>{seen}</td></tr>"
    )


def _group_rows(name: str, group: dict[str, Any]) -> Iterable[str]:
    landing = group["landing"] or {}
    landed = f"{landing.get('same_record', 0)} on the same record, {landing.get('at_end', 0)} at the log's end"
    for each in group["partitions"]:
        before = "" if each["before"] is None else each["before"]
        yield (
            f"<tr><td>{_shown(name)}</td><td>{_shown(each['topic'])}</td><td class=n>{_shown(each['partition'])}</td>"
            f"<td class=n>{_shown(before)}</td><td class=n>{_shown(each['after'])}</td>"
            f"<td class=dim>{_shown(landed) if landing else ''}</td></tr>"
        )
        landing = {}  # it is the group's as a whole


def _proof_row(name: str, proof: dict[str, Any]) -> str:
    proven = proof.get("counts", {}).get("proven", "")
    return _row(_words(name), proof.get("verdict"), proven, proof.get("unproven"), proof.get("proof_root"))


def _fence_rows(fence: dict[str, Any]) -> Iterable[str]:
    if fence["stopped"]:
        who = ", ".join(f"{each['name']} ({each['by']})" for each in fence["stopped"])
        yield _row(fence["kind"], who, fence.get("told", ""), "yes" if fence["stands"] else "no")


def _approval_row(approval: dict[str, Any]) -> str:
    answer = "granted" if approval["granted"] else "denied"
    return _row(approval["asked"], answer, approval["by"], approval["note"])


def _hook_row(hook: dict[str, Any]) -> str:
    return _row(_words(hook["step"]), hook["hook"], hook.get("text", ""))


def _wave_row(wave: dict[str, Any]) -> str:
    return _row(wave["name"], wave["state"], wave["truth"], ", ".join(map(str, wave["topics"])))


def _shown(value: object) -> str:
    """Text for the page, whatever it was: no markup, and nothing hidden in it."""
    return escape(escape_control_lines(str(value)))


def _words(name: object) -> str:
    return str(name).replace("_", " ")


def _seconds(ms: object, digits: int = 1) -> str:
    """A duration in ms; as it stands where it is none."""
    is_time = isinstance(ms, int | float) and not isinstance(ms, bool) and abs(ms) < _LONGEST_MS
    return f"{ms / 1000:.{digits}f} s" if is_time else str(ms)  # type: ignore[operator]


def _row(*cells: object) -> str:
    return "<tr>" + "".join(f"<td>{_shown(cell)}</td>" for cell in cells) + "</tr>"


def _table(head: tuple[str, ...], rows: Iterable[str]) -> str:
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    return f"<table><tr>{cells}</tr>{''.join(rows)}</table>"
