"""The evidence pack of a run: `evidence.json` and one self-contained `evidence.html`, both from the journal alone."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutover.evidence_page import page
from cutover.journal import Chain, Entry, outcome_of
from cutover.steps import Step
from topology.plan import Plan, PlanFlow, Wave

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Identity:
    """Which run the evidence is about."""

    plan: Plan
    flow: PlanFlow
    wave: Wave
    run: str
    steps: tuple[Step, ...]


def write_evidence(directory: Path, identity: Identity, chain: Chain) -> Path:
    """Write both files into `directory` (made if missing) and return the JSON's path. Raises OSError."""
    document = evidence(identity, chain)
    directory.mkdir(parents=True, exist_ok=True)
    _replace(directory / "evidence.html", page(document))
    return _replace(directory / "evidence.json", json.dumps(document, indent=2, sort_keys=True) + "\n")


def evidence(identity: Identity, chain: Chain) -> dict[str, Any]:
    """The pack as JSON. Times are wall clock, ms since 1970, as journaled; durations in ms.

    `producers_stopped_ms`: first producer told to stop → first write read back on the target. It is an upper bound of
    the time without writes; the applications' own records have the exact one.
    """
    entries = chain.run(identity.run)
    outcomes = {step.name: outcome_of(entries, step.name) for step in identity.steps}
    done = {name: found[0] for name, found in outcomes.items() if found is not None}
    return {
        "schema": SCHEMA,
        "topology": identity.plan.topology,
        "run": identity.run,
        "plan": identity.plan.hash,
        "flow": identity.flow.id,
        "source": identity.flow.source,
        "target": identity.flow.target,
        "wave": identity.wave.name,
        "began": _iso(entries[0].at_ms),
        "actors": sorted({entry.actor for entry in entries}),
        "processes": len({entry.holder for entry in entries}),
        "steps": [_step(step, entries) for step in identity.steps],
        "undone": [e.step for e in entries if e.step.startswith("undo_") and e.kind == "outcome" and not e.deed],
        "deeds": [_deed(entry) for entry in entries if entry.deed and entry.kind == "outcome"],
        "proofs": {name: done[name] for name in ("history_proof", "tail_proof") if name in done},
        "approvals": done.get("approval", {}).get("approvals", []),
        "groups": _groups(done),
        "barrier": done.get("barrier", {}).get("ends"),
        "producers_stopped_ms": _stopped(entries),
        "journal": {"root": chain.root, "entries": len(chain.entries), "void": chain.void},
    }


def _step(step: Step, entries: list[Entry]) -> dict[str, Any]:
    began = [e.at_ms for e in entries if e.step == step.name and e.kind == "intent" and not e.deed]
    ended = [e.at_ms for e in entries if e.step == step.name and e.kind == "outcome" and not e.deed]
    found = outcome_of(entries, step.name)
    return {
        "name": step.name,
        "does": step.does,
        "actor": step.actor,
        "undo": step.undo,
        "point_of_no_return": step.point_of_no_return,
        "attempts": len(began),
        "began": _iso(began[0]) if began else None,
        "duration_ms": ended[-1] - began[0] if began and ended else None,
        "outcome": found[0] if found else None,
        "refused": found[1] if found else None,
    }


def _deed(entry: Entry) -> dict[str, Any]:
    return {"at": _iso(entry.at_ms), "step": entry.step, "deed": entry.deed, "what": entry.observation}


def _groups(done: dict[str, dict[str, Any]]) -> dict[str, Any]:
    translated = done.get("translate_offsets", {}).get("groups", {})
    committed = done.get("commit_offsets", {}).get("committed", {})
    landed = done.get("landing_test", {}).get("groups", {})
    return {
        group: {
            "source_before": moved["source"],
            "translated": moved["target"],
            "committed": committed.get(group),
            "landing": landed.get(group),
        }
        for group, moved in translated.items()
    }


def _stopped(entries: list[Entry]) -> int | None:
    fenced = [e.at_ms for e in entries if e.step == "fence_producers" and e.deed == "StopApplication"]
    written = [e.at_ms for e in entries if e.step == "canary" and e.kind == "outcome" and not e.deed]
    return written[0] - fenced[0] if fenced and written else None


def _iso(at_ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_ms / 1000)) + f".{at_ms % 1000:03d}Z"


def _replace(path: Path, text: str) -> Path:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
    return path
