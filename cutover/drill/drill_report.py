"""What a rehearsal has shown, as one document, out of its journal: times of steps, times without writes, what was lost
or read again, what was left out, which rights are missing."""

from __future__ import annotations

from typing import Any

from watershed.cutover.drill.drill_sequence import DrillResult
from watershed.cutover.drill.drill_topology import BACK_RUN_SUFFIX, list_left_out
from watershed.cutover.journal.hash_chain import JournalChain, find_step_outcome
from watershed.cutover.run_plan import RunPlan
from watershed.topology.plan import Plan

_SCHEMA = 1


def build_drill_report(
    plan: Plan, wave: str, run: str, run_plan: RunPlan, chain: JournalChain, done: DrillResult
) -> dict[str, Any]:
    """plan: the real one. `steps`: name, and seconds `there` and `back`, None where it was not done.
    `without_writes`: seconds there and back, of the producer that waited longest. `good`: nothing was found that would
    have been wrong on the day."""
    entries = chain.run(run)
    outcomes = {
        step.name: found[0] for step in run_plan.steps if (found := find_step_outcome(entries, step.name)) is not None
    }
    counted = outcomes.get("count_records", {})
    groups: dict[str, dict[str, int]] = counted.get("groups", {})
    sums = {name: sum(each[name] for each in groups.values()) for name in ("lost", "again", "out_of_order")}
    lacking = list(outcomes.get("look_at_originals", {}).get("lacking", ()))
    left = [each for name in ("remove_copies", "undo_make_copies") for each in _left(chain, run, name)]
    result = done.result
    moves = counted.get("moves", [])
    return {
        "schema": _SCHEMA,
        "topology": plan.topology,
        "kind": "drill",
        "plan": plan.hash,
        "wave": wave,
        "strategy": run_plan.policy.strategy,
        "source": run_plan.flow.source,
        "target": run_plan.flow.target,
        "run": run,
        "state": result.state,
        "step": result.step,
        "reason": result.reason,
        "back": None if done.back is None else done.back.state,
        "good": result.state == "done" and bool(groups) and not any((*sums.values(), lacking, left)),
        "steps": _steps(chain, run),
        "without_writes": {
            "there": _longest(moves, run_plan.flow.source),
            "back": _longest(moves, run_plan.flow.target),
        },
        "records": {"copied": counted.get("copied"), "acknowledged": counted.get("acknowledged")},
        "counted": sums if groups else None,
        "groups": groups,
        "left_out": list(list_left_out(plan, wave)),
        "lacking": lacking,
        "left": left,
        "journal": {"root": chain.root, "entries": len(chain.entries)},
    }


def _steps(chain: JournalChain, run: str) -> list[dict[str, Any]]:
    """In the order in which they were begun, those of the way back behind those of the way there."""
    names = dict.fromkeys(step for way in (run, run + BACK_RUN_SUFFIX) for step in _seconds(chain, way))
    there, back = _seconds(chain, run), _seconds(chain, run + BACK_RUN_SUFFIX)
    return [{"name": name, "there": there.get(name), "back": back.get(name)} for name in names]


def _seconds(chain: JournalChain, run: str) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    began: dict[str, int] = {}
    for entry in chain.run(run):
        if entry.deed or entry.step in ("run", "resume"):
            continue
        if entry.kind == "intent":
            began.setdefault(entry.step, entry.at_ms)
            found.setdefault(entry.step, None)
        else:
            found[entry.step] = (entry.at_ms - began[entry.step]) / 1000
    return found


def _longest(moves: list[dict[str, Any]], away_from: str) -> float | None:
    return max((each["seconds"] for each in moves if each["source"] == away_from), default=None)


def _left(chain: JournalChain, run: str, step: str) -> list[str]:
    found = find_step_outcome(chain.run(run), step)
    return [] if found is None else list(found[0].get("left", ()))
