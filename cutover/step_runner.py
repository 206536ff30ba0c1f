"""Runs the steps of a strategy as a generator: it yields actions and receives observations.

The generator does no I/O, reads no clock and does not sleep. So the same code runs under the Airflow operators, the
command line and the tests. A resumed run replays its steps: when the journal holds the outcome of a step, the step
gets this outcome and does not run again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from watershed.cutover.actions import BeginStep, FinishStep, JsonObject, ReportMessage
from watershed.cutover.errors import Refused
from watershed.cutover.hooks.hook_steps import call_hooks_rolled_back
from watershed.cutover.migration_step_order import Step, describe_way_back, name_undo_step
from watershed.cutover.observations import RecordedStep
from watershed.cutover.polling import ActionGenerator
from watershed.cutover.run_context import RunContext
from watershed.cutover.step_definitions import STEPS, StepAct

RunState = Literal["done", "refused", "rolled_back", "rollback_incomplete", "abandoned", "stopped", "paused"]


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a migration ended. step: where it ended. reason: what the gate said.

    done · refused: nothing was changed · rolled_back · rollback_incomplete and stopped: the run is unfinished; a person
    repairs the cause and continues it with --resume · abandoned: the run was given up by force, and not everything is
    undone · paused: the requested steps are done.
    """

    state: RunState
    step: str
    reason: str = ""

    @property
    def exit_code(self) -> int:
        """0 for a run that is done, or that paused after the requested steps; else 1."""
        return 0 if self.state in ("done", "paused") else 1

    @property
    def finished(self) -> bool:
        """Nothing is left to do, so the run releases its lock."""
        return self.state in ("done", "refused", "rolled_back", "abandoned")


def execute_steps(context: RunContext, steps: tuple[Step, ...]) -> ActionGenerator[RunResult]:
    """Run these steps (`cutover.migration_step_order`) in their order. Fills `context.outcomes`."""
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
    """Runs one step. Its outcome goes to `context.outcomes`. Returns why the step was refused, or None.

    final: the step is after the point of no return. There, and in an undo, a refusal is not recorded as the outcome:
    the step stays unfinished.
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
    """Ends a run that was refused after the point of no return. It switches nothing back. The message says where the
    run stands and how it continues."""
    text = (
        f"{why}. This is behind the point of no return: nothing is switched back, because a switch back would strand "
        f"what {context.flow.target} has taken since. Repair the cause and run again with --resume. The way back: "
        f"{step.undo or describe_way_back(context.policy)}"
    )
    yield ReportMessage(text)
    return RunResult("stopped", step.name, text)
