"""The evidence pack of a run: `evidence.json` and one self-contained `evidence.html`, both from the journal alone."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from watershed.clusters.private_files import make_folder, replace_file
from watershed.cutover.evidence.page import render_evidence_page
from watershed.cutover.fences.journaled_fence import find_standing_fence
from watershed.cutover.journal.hash_chain import JournalChain, JournalEntry, find_step_outcome
from watershed.cutover.migration_step_order import Step
from watershed.cutover.run_plan import RunPlan
from watershed.cutover.wave_states import KINDS_TO_TARGET, list_wave_states
from watershed.product_version import describe_product_version
from watershed.topology.plan import Plan, PlanFlow

_SCHEMA = 2
_PROOFS = ("history_proof", "tail_proof")


@dataclass(frozen=True, slots=True)
class EvidenceSubject:
    """Which run the evidence is about, and what it was to do."""

    plan: Plan
    run_plan: RunPlan
    run: str


def write_run_evidence(directory: Path, identity: EvidenceSubject, chain: JournalChain, state: str = "done") -> Path:
    """Write both files into `directory` (made if missing) and return the JSON's path. Raises OSError."""
    document = build_run_evidence(identity, chain, state)
    make_folder(directory)
    _replace(directory / "evidence.html", render_evidence_page(document))
    return _replace(directory / "evidence.json", json.dumps(document, indent=2, sort_keys=True) + "\n")


def build_run_evidence(identity: EvidenceSubject, chain: JournalChain, state: str = "done") -> dict[str, Any]:
    """The pack as JSON. Times are wall clock, as journaled; durations in ms. state: how the run ends, for it is sealed
    before that is journaled.

    `producers_stopped_ms`: first producer told to stop → first write read back on the target. It is an upper bound of
    the time without writes; the applications' own records have the exact one. `undoing_ms`: how long taking back took.
    """
    entries = chain.run(identity.run)
    run_plan = identity.run_plan
    outcomes = {step.name: find_step_outcome(entries, step.name) for step in run_plan.steps}
    done = {name: found[0] for name, found in outcomes.items() if found is not None}
    undone = [entry for entry in entries if entry.step.startswith("undo_") and not entry.deed]
    return {
        "schema": _SCHEMA,
        "watershed_version": describe_product_version(),
        "topology": identity.plan.topology,
        "kind": run_plan.kind,
        "strategy": run_plan.policy.strategy,
        "state": state,
        "run": identity.run,
        "plan": identity.plan.hash,
        "flow": run_plan.flow.id,
        "source": run_plan.flow.source,
        "target": run_plan.flow.target,
        "wave": run_plan.wave.name,
        "topics": list(run_plan.wave.topics),
        "waves": _waves(identity, chain, state),
        "began": _iso(entries[0].at_ms),
        "took_ms": entries[-1].at_ms - entries[0].at_ms,
        "actors": sorted({entry.actor for entry in entries}),
        "processes": len({entry.holder for entry in entries}),
        "steps": [_step(step, entries) for step in run_plan.steps],
        "undone": [entry.step for entry in undone if entry.kind == "outcome"],
        "undoing_ms": undone[-1].at_ms - undone[0].at_ms if undone else None,
        "deeds": [_deed(entry) for entry in entries if entry.deed and entry.kind == "outcome"],
        "proofs": {name: done[name] for name in _PROOFS if name in done},
        "approvals": [each for outcome in done.values() for each in outcome.get("approvals", [])],
        "hooks": [_hook(step, name, seen) for step in done for name, seen in done[step].get("hooks", {}).items()],
        "fence": _fence(entries, done),
        "groups": _groups(done, run_plan.flow),
        "barrier": done.get("barrier", {}).get("ends"),
        "cut": done.get("point_of_no_return", done.get("cut_workers_off", {})).get("target_ends"),
        "loss": done.get("cut_workers_off", done.get("declare_loss", {})).get("loss"),
        "divergence": done.get("divergence"),
        "producers_stopped_ms": measure_producer_stop_ms(entries),
        "journal": {"root": chain.root, "entries": len(chain.entries), "void": len(chain.void), **_foreign(chain)},
    }


def _foreign(chain: JournalChain) -> dict[str, Any]:
    """What others wrote into the journal; nothing where nobody did."""
    return {"foreign": [each.to_json() for each in chain.foreign]} if chain.foreign else {}


def _waves(identity: EvidenceSubject, chain: JournalChain, state: str) -> list[dict[str, Any]]:
    """As they are when this run is over: it is sealed a moment before."""
    if identity.plan.migration is None:
        return []
    found = [each.to_json() for each in list_wave_states(identity.plan, chain)]
    for each in found:
        if each["run"] == identity.run and each["state"] == "unfinished" and state == "done":
            each.update(state="done" if identity.run_plan.kind in KINDS_TO_TARGET else "next", ended="done")
    return found


def _step(step: Step, entries: list[JournalEntry]) -> dict[str, Any]:
    began = [e.at_ms for e in entries if e.step == step.name and e.kind == "intent" and not e.deed]
    ended = [e.at_ms for e in entries if e.step == step.name and e.kind == "outcome" and not e.deed]
    found = find_step_outcome(entries, step.name)
    return {
        "name": step.name,
        "does": step.does,
        "actor": step.actor,
        "undo": step.undo,
        "bound_ms": step.bound_ms,
        "point_of_no_return": step.point_of_no_return,
        "attempts": len(began),
        "began": _iso(began[0]) if began else None,
        "duration_ms": ended[-1] - began[0] if began and ended else None,
        "outcome": found[0] if found else None,
        "refused": found[1] if found else None,
    }


def _deed(entry: JournalEntry) -> dict[str, Any]:
    return {"at": _iso(entry.at_ms), "step": entry.step, "deed": entry.deed, "what": entry.observation}


def _hook(step: str, name: str, seen: dict[str, Any]) -> dict[str, Any]:
    return {"step": step, "hook": name, **seen}


def _fence(entries: list[JournalEntry], done: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """How producers were kept out, and whether the fence stands still when the run is over."""
    fenced = done.get("fence_producers", {})
    raised: dict[str, Any] = fenced.get("fence") or {"kind": "stop"}
    return {**raised, "stopped": fenced.get("stopped", []), "stands": find_standing_fence(entries) is not None}


def _groups(done: dict[str, dict[str, Any]], flow: PlanFlow) -> dict[str, Any]:
    """Each group's offsets before and after, by side, whatever the run plan calls its steps. partitions: the same, side
    by side; before None: it never committed there."""
    outcomes = list(done.values())
    committed = {group: at for outcome in outcomes for group, at in outcome.get("committed", {}).items()}
    landed = done.get("landing_test", {}).get("groups", {})
    moved = {
        group: each
        for outcome in outcomes
        for group, each in (outcome.get("groups") or {}).items()
        if isinstance(each, dict) and {"source", "target"} <= each.keys()
    }
    return {
        group: {
            "source_before": each["source"],
            "translated": each["target"],
            "committed": committed.get(group),
            "landing": landed.get(group),
            "partitions": _side_by_side(flow, each["source"], each["target"]),
        }
        for group, each in moved.items()
    }


def _side_by_side(flow: PlanFlow, before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
    source_of = {flow.target_topic(topic): topic for topic in before}
    return [
        {
            "topic": topic,
            "partition": int(partition),
            "before": before.get(source_of.get(topic, topic), {}).get(partition),
            "after": offset,
        }
        for topic, partitions in after.items()
        for partition, offset in partitions.items()
    ]


def measure_producer_stop_ms(entries: list[JournalEntry]) -> int | None:
    """From the first producer that is told to stop to the first write that is read back; None while that is not."""
    fenced = [e.at_ms for e in entries if e.step == "fence_producers" and e.deed == "StopApplication"]
    canaries = ("canary", "canary_there")
    written = [e.at_ms for e in entries if e.step in canaries and e.kind == "outcome" and not e.deed]
    return written[0] - fenced[0] if fenced and written else None


def _iso(at_ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_ms / 1000)) + f".{at_ms % 1000:03d}Z"


def _replace(path: Path, text: str) -> Path:
    replace_file(path, text.encode("utf-8", "backslashreplace"))
    return path
