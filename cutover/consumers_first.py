"""The migration `consumers_first` as a generator: it yields actions and is sent observations.

No I/O, no clock, no sleep: the same code runs under the Airflow operators, the command line and the tests. Resuming
is replaying: a step whose outcome the journal holds is answered with it and not done again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from cutover import gates, groups, handover
from cutover.actions import Begin, Finish, Json, Say
from cutover.errors import Refused
from cutover.ground import Ground
from cutover.observations import Recorded
from cutover.steps import PRESENTATION, Step, steps_of, undo_of
from cutover.waiting import Asking

Act = Callable[[Ground, Json], Asking[None]]
State = Literal["done", "refused", "rolled_back", "rollback_incomplete", "abandoned", "stopped", "paused"]

ACTS: dict[str, Act] = {
    "preflight": gates.preflight,
    "lag_gate": gates.lag_gate,
    "history_proof": gates.prove_history,
    "approval": gates.approval,
    "stop_consumers": groups.stop_consumers,
    "translate_offsets": groups.translate_offsets,
    "commit_offsets": groups.commit_offsets,
    "landing_test": groups.landing_test,
    "start_consumers": groups.start_consumers,
    "soak": gates.soak,
    "fence_producers": handover.fence_producers,
    "standstill": handover.standstill,
    "barrier": handover.barrier,
    "drain": handover.drain,
    "tail_proof": handover.prove_tail,
    "point_of_no_return": handover.point_of_no_return,
    "switch_producers": handover.switch_producers,
    "canary": handover.canary,
    "seal": handover.seal,
}
UNDOS: dict[str, Act] = {
    "stop_consumers": groups.undo_stop_consumers,
    "commit_offsets": groups.undo_commit_offsets,
    "start_consumers": groups.undo_start_consumers,
    "fence_producers": handover.undo_fence_producers,
}


@dataclass(frozen=True, slots=True)
class Result:
    """How a migration ended. `step` is where; `reason` what the gate said.

    done · refused (nothing had been changed) · rolled_back · rollback_incomplete and stopped (unfinished: a person
    looks, then --resume) · abandoned (given up by force, not everything is undone) · paused (the steps asked for
    are done).
    """

    state: State
    step: str
    reason: str = ""

    @property
    def exit_code(self) -> int:
        return 0 if self.state in ("done", "paused") else 1

    @property
    def finished(self) -> bool:
        """Nothing is left to be done: the run gives up its lock."""
        return self.state in ("done", "refused", "rolled_back", "abandoned")


def consumers_first(ground: Ground) -> Asking[Result]:
    """Run all steps of one wave. Fills `ground.outcomes`. See `cutover.steps` for the rows."""
    begun: list[Step] = []
    crossed = False
    for step in steps_of(ground.policy):
        begun.append(step)
        refused = yield from _do(step.name, ACTS[step.name], ground, final=crossed)
        if refused is not None and crossed:
            return (yield from _stop(ground, step, refused))
        if refused is not None:
            return (yield from _roll_back(ground, begun, refused))
        crossed = crossed or step.point_of_no_return
    return Result("done", begun[-1].name)


def _do(name: str, act: Act, ground: Ground, *, undo: bool = False, final: bool = False) -> Asking[str | None]:
    """One step: its outcome goes to `ground.outcomes`; returns why it was refused, or None.

    final: a refusal is not an outcome (behind the point of no return, or in an undo): the step stays unfinished.
    """
    recorded = yield Begin(name, undo)
    assert isinstance(recorded, Recorded)
    if recorded.outcome is not None:
        ground.outcomes[name] = recorded.outcome
        return recorded.refused
    note: Json = {}
    refused: str | None = None
    try:
        yield from act(ground, note)
    except Refused as why:
        refused = str(why)
        note = {**note, **why.seen}
    ground.outcomes[name] = note
    if refused is None or not (final or undo):
        yield Finish(name, note, undo, refused)
    return refused


def _roll_back(ground: Ground, begun: list[Step], why: str) -> Asking[Result]:
    """Take back every step that was begun, the last one first."""
    at = begun[-1].name
    undone = 0
    for step in reversed(begun):
        if step.name not in UNDOS:
            continue
        name = undo_of(step.name)
        failed = yield from _do(name, UNDOS[step.name], ground, undo=True)
        if failed is not None:
            left = [PRESENTATION[undo_of(s.name)].doing for s in begun[: begun.index(step) + 1] if s.name in UNDOS]
            text = f"{why}. The rollback could not finish: {failed}. Still to do: {', then '.join(reversed(left))}"
            yield Say(text)
            return Result("rollback_incomplete", at, text)
        undone += 1
    return Result("rolled_back" if undone else "refused", at, why)


def _stop(ground: Ground, step: Step, why: str) -> Asking[Result]:
    """Behind the point of no return nothing is switched back: say where we are, and what the way on is."""
    text = (
        f"{why}. This is behind the point of no return: nothing is switched back, because a switch back would strand "
        f"what {ground.flow.target} has taken since; behind this point there is no way back in this version. "
        "Repair the cause and run again with --resume"
    )
    yield Say(text)
    return Result("stopped", step.name, text)
