"""Steps of a run that another version of Watershed has, or another file: what is refused, so that nothing that was done
stays done while the journal says that it was taken back (decision 0135)."""

from __future__ import annotations

from collections.abc import Iterable

from watershed.cutover.errors import PlanChanged
from watershed.cutover.journal.hash_chain import RUN_STEP, TAKEOVER_STEP, JournalEntry, find_step_outcome
from watershed.cutover.migration_step_order import name_undo_step
from watershed.cutover.run_plan import RunPlan
from watershed.cutover.step_definitions import STEPS


def list_step_names(run_plan: RunPlan) -> list[str]:
    """The names of the run plan's steps, in their order, as the first entry of a run holds them."""
    return [step.name for step in run_plan.steps]


def refuse_other_steps(first: JournalEntry, run_plan: RunPlan) -> None:
    """first: of the run that goes on. Raises PlanChanged where this version has other steps, or another order of them,
    than the version that began the run: a step would be left out, or come too late."""
    begun = first.observation.get("steps")  # none in runs of v0.1.0, whose steps are ours
    ours = list_step_names(run_plan)
    if begun is None or begun == ours:
        return
    raise PlanChanged(
        f"run {first.run} was begun by a version of Watershed with other steps ({', '.join(map(str, begun))}), this "
        f"one has {', '.join(ours)}: a run keeps its order of steps. Continue it, or take it back, with the version "
        "that began it, and with the options that it was begun with (docs/upgrade.md)"
    )


def refuse_lost_undos(entries: list[JournalEntry], run_plan: RunPlan) -> None:
    """entries: of the run that goes on, or is given up. Raises PlanChanged where it began a step that this run plan
    would not undo: the run would be called rolled back while that step still stands."""
    ours = {*list_step_names(run_plan)}
    lost = [name for name in _list_standing_steps(entries) if name not in ours and _can_need_undo(name)]
    if lost:
        raise PlanChanged(
            f"run {entries[0].run} began {', '.join(lost)}, which this version of Watershed, with this file, would not "
            "undo: the run would be called rolled back while that still stands. Take it back with the version that did "
            f"it and the file that compiles to {entries[0].plan_hash} (docs/upgrade.md)"
        )


def refuse_unknown_steps(entries: list[JournalEntry]) -> None:
    """entries: of the run that another run takes back. Raises PlanChanged where it began a step that this version does
    not know: what that step did would stay."""
    unknown = [name for name in _list_standing_steps(entries) if name not in STEPS]
    if unknown:
        raise PlanChanged(
            f"run {entries[0].run} began {', '.join(unknown)}, which this version of Watershed does not know and would "
            "leave as it is. Take the run back with the version that did it, or a newer one (docs/upgrade.md)"
        )


def _list_standing_steps(entries: Iterable[JournalEntry]) -> list[str]:
    """The steps that were begun and not undone, in their order."""
    found = list(entries)
    begun = dict.fromkeys(entry.step for entry in found if entry.step not in (RUN_STEP, TAKEOVER_STEP))
    undo = name_undo_step("")  # of a step that was not begun, too: such as hooks, which are always taken back
    return [name for name in begun if not name.startswith(undo) and not _is_undone(found, name)]


def _is_undone(entries: list[JournalEntry], name: str) -> bool:
    outcome = find_step_outcome(entries, name_undo_step(name))
    return outcome is not None and outcome[1] is None


def _can_need_undo(name: str) -> bool:
    """Whether something may be left of the step. One that this version does not know may have done anything."""
    return name not in STEPS or STEPS[name].undo is not None
