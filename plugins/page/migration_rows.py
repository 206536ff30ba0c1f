"""What the page says of migrations, as JSON: waves, runs and the timeline of one run, all from the journal's chain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from watershed.cutover.drill.drill_plan import plan_drill, preview_drill_back
from watershed.cutover.drill.drill_topology import BACK_RUN_SUFFIX, build_drill_topology
from watershed.cutover.errors import CutoverError, NotSupported
from watershed.cutover.evidence.pack import measure_producer_stop_ms
from watershed.cutover.journal.hash_chain import RUN_STEP, TAKEOVER_STEP, JournalChain, JournalEntry, find_step_outcome
from watershed.cutover.migration_step_order import Step, StepText, estimate_write_pause_ms
from watershed.cutover.overdue_runs import is_overdue
from watershed.cutover.run_claim import read_run_kind
from watershed.cutover.step_definitions import STEP_TEXTS
from watershed.cutover.wave_states import KINDS_TO_TARGET, NO_RETURN_STEPS, WAVE_SEPARATOR, WaveState, list_wave_states
from watershed.plugins.page.cluster_snapshots import JournalView
from watershed.plugins.page.step_evidence import GATE_EVIDENCE, MAX_VALUE_CHARS, flatten_evidence, render_gate_brief
from watershed.plugins.steps.migration_dag_tasks import preview_run_plan
from watershed.topology.migration_waves import Wave, encode_gate
from watershed.topology.plan import Plan

_Row = dict[str, Any]
_RUNS = 100
_LEAVES = 80  # values of one step's evidence
_DEEDS = 40
_FOREIGN = 20  # lines of others, the newest
_UNDO = "undo_"
_DRILL = "drill"
_BY_AIRFLOW = "airflow "  # so begins the actor of a run that a DAG drives (`plugins.steps.step_driver`)

_PlanOf = Callable[[str], Plan | None]


def build_migrations_view(
    plan: Plan, journal: JournalView, plan_of: _PlanOf, wanted: str = "", heard_ms: int = 0
) -> _Row:
    """Waves, the newest runs, and one of them step by step: the wanted one, or the one under way, or the newest.

    wanted: its name in the journal, or the id of the DAG run that drives it. plan_of: the plan with a hash, None where
    it is not kept any more. heard_ms: when the cluster with the journal last answered, since 1970: whether the process
    of a run is dead is judged as of then (`overdue`).
    """
    runs = _runs(journal.entries)
    asked = (run for run in runs if wanted in (run[0].run, _dag_run(run)))
    shown = next(asked, runs[0] if runs and not wanted else None)
    waves = plan.migration.waves if plan.migration is not None else ()
    states = list_wave_states(plan, JournalChain(plan.topology, list(journal.entries)))
    drills = [_build_migration_run_row(run) for run in runs if read_run_kind(run) == _DRILL]
    return {
        "topology": plan.topology,
        "flow": plan.migration.flow if plan.migration is not None else None,
        "waves": [_wave(wave, state, drills) for wave, state in zip(waves, states, strict=True)],
        "runs": [_build_migration_run_row(run) for run in runs[:_RUNS]],
        "more_runs": max(0, len(runs) - _RUNS),
        "run": None
        if shown is None
        else build_run_timeline(shown, plan, plan_of)
        | {"overdue": not _is_ended(shown) and is_overdue(shown, heard_ms)},
        "wanted": wanted,
        "journal": {
            "entries": len(journal.entries),
            "void": journal.void,
            "broken": journal.broken,
            "foreign": [each.to_json() for each in journal.foreign[-_FOREIGN:]],
            "unverified": journal.unverified,
        },
    }


def _build_migration_run_row(entries: Sequence[JournalEntry]) -> _Row:
    """state: under_way, or how the run ended. dag: the DAG that drives it, None when it was begun on a command line."""
    first, last = entries[0], entries[-1]
    ended = _is_ended(entries)
    return {
        "run": first.run,
        "kind": read_run_kind(list(entries)),
        "wave": first.wave,
        "state": str(last.observation.get("state")) if ended else "under_way",
        "reason": str(last.observation.get("reason") or "") if ended else "",
        "began_ms": first.at_ms,
        "ended_ms": last.at_ms if ended else None,
        "last_ms": last.at_ms,
        "by": first.actor,
        "dag": _dag(entries),
        "dag_run": _dag_run(entries),
        "strategy": first.observation.get("strategy"),
        "step": None if ended else _current(entries),
        "plan": first.plan_hash,
        "sealed_root": _find_sealed_root(entries),
    }


def _find_sealed_root(entries: Sequence[JournalEntry]) -> str | None:
    """The journal's root when the run's evidence was sealed; None where it was not, or the step was refused."""
    outcomes = (find_step_outcome(entries, name) for name in ("seal", "seal_failover"))
    roots = (found[0].get("root") for found in outcomes if found is not None and found[1] is None)
    return next((str(root) for root in roots if root), None)


def build_run_timeline(entries: Sequence[JournalEntry], plan: Plan, plan_of: _PlanOf) -> _Row:
    """The run with its steps in order: what is done with its evidence, what is under way, what would follow."""
    row = _build_migration_run_row(entries)
    now = _rehearsed(plan, entries) if row["kind"] == _DRILL else plan
    own = now if now.hash == row["plan"] else plan_of(row["plan"])
    run_plan, words = _planned(own or now, row["kind"], row["wave"], row["strategy"] or "", row["run"])
    seen = [name for name in dict.fromkeys(e.step for e in entries) if name not in (RUN_STEP, TAKEOVER_STEP)]
    rows = {step.name: step for step in run_plan}
    names = list(dict.fromkeys([*rows, *(name for name in seen if not name.startswith(_UNDO))]))
    steps = [_step(name, rows.get(name), words.get(name), entries) for name in names]
    over = row["ended_ms"] is not None or any(name.startswith(_UNDO) for name in seen)
    following = None if over else next((each["name"] for each in steps if each["state"] == "planned"), None)
    return row | {
        "steps": steps,
        "undone": [_step(name, None, words.get(name), entries) for name in seen if name.startswith(_UNDO)],
        "next": following,
        "point_of_no_return": next((each["name"] for each in steps if each["point_of_no_return"]), None),
        "crossed": any(each["point_of_no_return"] and each["state"] == "done" for each in steps),
        "loss": _loss(entries),
        "writes": _measure_write_pause(entries, run_plan),
        "decisions": list(_decisions(entries)),
        "processes": len({entry.holder for entry in entries}),
        "taken_over": sum(entry.step == TAKEOVER_STEP for entry in entries),
        "another_plan": now.hash != row["plan"],
        "plan_known": own is not None,
    }


def _runs(entries: Sequence[JournalEntry]) -> list[list[JournalEntry]]:
    """Of each run its entries, the newest run first. One run is under way at most, and holds the lock."""
    found: dict[str, list[JournalEntry]] = {}
    for entry in entries:
        found.setdefault(entry.run, []).append(entry)
    return list(reversed(found.values()))


def _planned(
    plan: Plan, kind: str, wave: str, strategy: str, run: str
) -> tuple[Sequence[Step], Mapping[str, StepText]]:
    """The steps that such a run takes, and the words for them; none where only the journal knows."""
    try:
        if kind == _DRILL:
            run_plan = preview_drill_back(plan) if run.endswith(BACK_RUN_SUFFIX) else plan_drill(plan)
        else:
            run_plan = preview_run_plan(plan, kind, wave, strategy)  # type: ignore[arg-type]
    except (CutoverError, ImportError, KeyError):
        return (), STEP_TEXTS
    return run_plan.steps, {**STEP_TEXTS, **run_plan.texts}


def _rehearsed(plan: Plan, entries: Sequence[JournalEntry]) -> Plan:
    """The plan that a rehearsal has of its own; the file's where the file has no such wave any more."""
    try:
        return build_drill_topology(plan, entries[0].wave, entries[0].run)
    except NotSupported:
        return plan


def _measure_write_pause(entries: Sequence[JournalEntry], steps: Sequence[Step]) -> _Row:
    """Seconds without writes of the wave's producers. measured_ms: from the first producer that was told to stop to the
    first write that was read back. since_ms: since when they stand, while they do. usual_ms: what is to be expected."""
    measured = measure_producer_stop_ms(list(entries))
    told = (entry.at_ms for entry in entries if entry.step == "fence_producers" and entry.deed == "StopApplication")
    since = next(told, None)
    is_over = measured is not None or _is_ended(entries)
    taken_back = any(entry.step == f"{_UNDO}fence_producers" and entry.kind == "outcome" for entry in entries)
    return {
        "measured_ms": measured,
        "since_ms": None if is_over or taken_back else since,
        "usual_ms": estimate_write_pause_ms(tuple(steps)),
    }


def _is_ended(entries: Sequence[JournalEntry]) -> bool:
    last = entries[-1]
    return last.step == RUN_STEP and last.kind == "outcome"


def _loss(entries: Sequence[JournalEntry]) -> _Row | None:
    """What a failover declared as missing; `told` says it whole, `accepted` by whom it was."""
    found = find_step_outcome(entries, "declare_loss")
    if found is None or "loss" not in found[0]:
        return None
    final = find_step_outcome(entries, "cut_workers_off")
    loss = (final[0] if final is not None else found[0])["loss"]
    accepted = find_step_outcome(entries, "accept_loss")
    return {
        "offsets": loss.get("offsets"),
        "rpo_ms": loss.get("rpo_ms"),
        "told": str(found[0].get("told", ""))[: 10 * MAX_VALUE_CHARS],
        "accepted": None
        if accepted is None or accepted[1] is not None
        else render_gate_brief("accept_loss", accepted[0]),
    }


def _step(name: str, row: Step | None, told: StepText | None, entries: Sequence[JournalEntry]) -> _Row:
    own = [entry for entry in entries if entry.step == name]
    bare = [entry for entry in own if not entry.deed]
    began = next((entry.at_ms for entry in bare if entry.kind == "intent"), None)
    found = find_step_outcome(own, name)
    ended = next((entry.at_ms for entry in bare if entry.kind == "outcome"), None)
    state = "under_way" if own else "planned"
    if found is not None:
        state = "refused" if found[1] is not None else "done"
    if any(entry.step == _UNDO + name and entry.kind == "outcome" and not entry.deed for entry in entries):
        state = "taken_back"
    outcome = found[0] if found is not None else {}
    evidence = list(flatten_evidence(outcome))
    return {
        "name": name,
        "does": row.does if row is not None else (told.doing if told is not None else name.replace("_", " ")),
        "told": (told.done if state == "done" else told.doing) if told is not None and own else "",
        "gate": name in GATE_EVIDENCE,
        "brief": render_gate_brief(name, outcome),
        "actor": row.actor if row is not None else None,
        "undo": row.undo if row is not None else None,
        "bound_ms": row.bound_ms if row is not None else 0,
        "point_of_no_return": row.point_of_no_return if row is not None else name in NO_RETURN_STEPS,
        "state": state,
        "refused": found[1] if found is not None else None,
        "began_ms": began,
        "ended_ms": ended,
        "evidence": evidence[:_LEAVES],
        "more_evidence": max(0, len(evidence) - _LEAVES),
        "deeds": [_deed(entry) for entry in own if entry.deed][:_DEEDS],
    }


def _deed(entry: JournalEntry) -> _Row:
    seen = entry.observation
    about = " ".join(str(seen[key]) for key in ("name", "group", "side", "flow", "hook", "kind") if seen.get(key))
    failed = seen.get("failed")
    return {
        "deed": entry.deed,
        "kind": entry.kind,
        "about": about[:MAX_VALUE_CHARS],
        "failed": None if failed is None else str(failed)[:MAX_VALUE_CHARS],
        "at_ms": entry.at_ms,
    }


def _decisions(entries: Sequence[JournalEntry]) -> Iterator[_Row]:
    """Who said yes or no, where."""
    for entry in entries:
        if entry.kind == "outcome" and not entry.deed:
            outcome = entry.observation.get("outcome")
            approvals = outcome.get("approvals") if isinstance(outcome, Mapping) else None
            for each in approvals if isinstance(approvals, list) else ():
                if not isinstance(each, Mapping):
                    continue  # whoever wrote it
                yield {"step": entry.step, "at_ms": entry.at_ms} | {
                    key: each.get(key) for key in ("asked", "granted", "by", "note")
                }


def _dag(entries: Sequence[JournalEntry]) -> str | None:
    actors = (entry.actor for entry in reversed(entries))
    by_airflow = (actor[len(_BY_AIRFLOW) :] for actor in actors if actor.startswith(_BY_AIRFLOW))
    return next((dag.partition(" for ")[0] for dag in by_airflow), None)


def _dag_run(entries: Sequence[JournalEntry]) -> str | None:
    """The DAG run whose tasks write these entries; each of its waves is a run of its own (`StepOrder`)."""
    if _dag(entries) is None:
        return None
    first = entries[0]
    return first.run.removeprefix(f"{read_run_kind(list(entries))}.").removesuffix(f".{first.wave}")


def _current(entries: Sequence[JournalEntry]) -> str | None:
    return next((entry.step for entry in reversed(entries) if entry.step not in (RUN_STEP, TAKEOVER_STEP)), None)


def _wave(wave: Wave, seen: WaveState, drills: Sequence[_Row]) -> _Row:
    """state: done, under_way, blocked, or how its newest run ended (`rolled_back` also by a run of its own); not_begun
    without one. truth: the cluster whose records count. rehearsed: its newest rehearsal. at_source: groups of a late
    wave that are still there; since_ms: when their producers moved."""
    states = {"done": "done", "unfinished": "under_way", "blocked": "blocked"}
    ended = "rolled_back" if seen.ended == "done" and seen.kind not in KINDS_TO_TARGET else seen.ended
    return {
        "name": wave.name,
        "after": list(wave.after),
        "strategy": wave.strategy,
        "fence": wave.fence.kind,
        "topics": _some(wave.topics),
        "consumers": _some(wave.consumers),
        "producers": _some(wave.producers),
        "window": None if wave.window is None else {"opens": wave.window.opens, "length_ms": wave.window.length_ms},
        "gates_before": [_gate(encode_gate(gate)) for gate in wave.gates_before],
        "gates_after": [_gate(encode_gate(gate)) for gate in wave.gates_after],
        "state": states.get(seen.state, ended or "not_begun"),
        "waits_for": list(seen.waits_for),
        "truth": seen.truth,
        "at_source": _some(seen.at_source),
        "since_ms": seen.since_ms,
        "kind": seen.kind,
        "run": seen.run,
        "rehearsed": next((row for row in drills if wave.name in row["wave"].split(WAVE_SEPARATOR)), None),
    }


def _gate(value: Mapping[str, Mapping[str, Any]]) -> str:
    [(name, fields)] = value.items()
    told = [_field(key, each) for key, each in fields.items() if (key, each) != ("sample", 1.0)]
    return f"{name.replace('_', ' ')} ({', '.join(told)})" if told else name.replace("_", " ")


def _field(key: str, value: Any) -> str:
    if key.endswith("_ms"):
        seconds = value / 1000
        return f"{key[:-3].replace('_', ' ')} " + (f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s")
    return f"{key.replace('_', ' ')} {value}"


def _some(names: Sequence[str], most: int = 12) -> list[str]:
    return [*names[:most], *([f"and {len(names) - most} more"] if len(names) > most else [])]
