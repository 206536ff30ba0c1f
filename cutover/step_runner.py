"""A migration as a generator over the steps of its strategy: it yields actions and is sent observations.

No I/O, no clock, no sleep: the same code runs under the Airflow operators, the command line and the tests. Resuming
is replaying: a step whose outcome the journal holds is answered with it and not done again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cutover.actions import BeginStep, FinishStep, JsonObject, ReportMessage
from cutover.errors import Refused
from cutover.hooks.hook_steps import call_hooks_rolled_back
from cutover.observations import RecordedStep
from cutover.polling import ActionGenerator
from cutover.run_context import RunContext
from cutover.step_table import STEPS, StepAct
from cutover.steps import Step, describe_way_back, name_undo_step

RunState = Literal["done", "refused", "rolled_back", "rollback_incomplete", "abandoned", "stopped", "paused"]


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a migration ended. `step` is where; `reason` what the gate said.

    done · refused (nothing had been changed) · rolled_back · rollback_incomplete and stopped (unfinished: a person
    looks, then --resume) · abandoned (given up by force, not everything is undone) · paused (the steps asked for
    are done).
    """

    state: RunState
    step: str
    reason: str = ""

    @property
    def exit_code(self) -> int:
        """0 for a run that is done, or paused where it was asked to; else 1."""
        return 0 if self.state in ("done", "paused") else 1

    @property
    def finished(self) -> bool:
        """Nothing is left to be done: the run gives up its lock."""
        return self.state in ("done", "refused", "rolled_back", "abandoned")


def execute_steps(context: RunContext, steps: tuple[Step, ...]) -> ActionGenerator[RunResult]:
    """Run these steps (`cutover.steps`) in their order. Fills `context.outcomes`."""
    begun: list[Step] = []
    crossed = False
    for step in steps:
        begun.append(step)
        refused = yield from _do(step.name, STEPS[step.name].act, context, final=crossed)
        if refused is not None and crossed:
            return (yield from _stop(context, step, refused))
        if refused is not None:
            return (yield from _roll_back(context, begun, refused))
        crossed = crossed or step.point_of_no_return
    return RunResult("done", begun[-1].name)


def _do(
    name: str, act: StepAct, context: RunContext, *, undo: bool = False, final: bool = False
) -> ActionGenerator[str | None]:
    """One step: its outcome goes to `context.outcomes`; returns why it was refused, or None.

    final: a refusal is not an outcome (behind the point of no return, or in an undo): the step stays unfinished.
    """
    recorded = yield BeginStep(name, undo)
    assert isinstance(recorded, RecordedStep)
    if recorded.outcome is not None:
        context.outcomes[name] = recorded.outcome
        return recorded.refused
    context.ago_ms[name] = recorded.ago_ms
    outcome: JsonObject = {}
    refused: str | None = None
    try:
        yield from act(context, outcome)
    except Refused as why:
        refused = str(why)
        outcome = {**outcome, **why.seen}
    context.outcomes[name] = outcome
    if refused is None or not (final or undo):
        yield FinishStep(name, outcome, refused)
    return refused


def _roll_back(context: RunContext, begun: list[Step], why: str) -> ActionGenerator[RunResult]:
    """Take back every step that was begun, the last one first."""
    at = begun[-1].name
    undone = 0
    for step in reversed(begun):
        undo = STEPS[step.name].undo
        if undo is None:
            continue
        failed = yield from _do(name_undo_step(step.name), undo.act, context, undo=True)
        if failed is not None:
            undos = [STEPS[each.name].undo for each in begun[: begun.index(step) + 1]]
            left = [each.doing for each in undos if each is not None]
            text = f"{why}. The rollback could not finish: {failed}. Still to do: {', then '.join(reversed(left))}"
            yield ReportMessage(text)
            return RunResult("rollback_incomplete", at, text)
        undone += 1
    if context.policy.hooks.rolled_back and (undone or any(step.name == "hooks_before" for step in begun)):
        yield from _do(name_undo_step("hooks"), call_hooks_rolled_back, context, undo=True)
    return RunResult("rolled_back" if undone else "refused", at, why)


def _stop(context: RunContext, step: Step, why: str) -> ActionGenerator[RunResult]:
    """Behind the point of no return nothing is switched back: say where we are, and what the way on is."""
    text = (
        f"{why}. This is behind the point of no return: nothing is switched back, because a switch back would strand "
        f"what {context.flow.target} has taken since. Repair the cause and run again with --resume. The way back: "
        f"{step.undo or describe_way_back(context.policy)}"
    )
    yield ReportMessage(text)
    return RunResult("stopped", step.name, text)
