"""Giving a run up: no step of it succeeds any more, so that the driver takes back what was done; then it is over.

Before the point of no return everything is taken back. Behind it nothing is, and the result says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from watershed.cutover.actions import Action
from watershed.cutover.driver import ActionHandler, RunDriver, RunEvent
from watershed.cutover.errors import NothingToResume
from watershed.cutover.evidence.proof_summary import build_failed_proof
from watershed.cutover.journal.hash_chain import find_step_outcome
from watershed.cutover.observations import ActionFailed, ApprovalAnswer, Observation
from watershed.cutover.step_runner import RunResult

_Opened = Callable[..., RunDriver]


def abandon_run(
    opened: _Opened,
    why: str,
    say: Callable[[RunEvent], None],
    run: str | None = None,
    *,
    force: bool = False,
) -> RunResult:
    """Give up the run of that name, or the unfinished one when `run` is None; or finish its rollback.

    opened: makes the driver, given its hooks `prove`, `approve` and `say`. A run that never began, or is over, is
    left alone. force: when undoing cannot be finished, the run ends all the same (`abandoned`), and the journal
    names what was not undone. Raises NothingToResume when there is no unfinished run and none was named.
    """
    migration = opened(
        say=say,
        prove=lambda _wanted: build_failed_proof(why),
        approve=lambda _wanted: ApprovalAnswer(0, granted=False, by="nobody", note=why),
    )
    migration.ports = replace(migration.ports, handler=_GivenUp(migration, migration.ports.handler, why))
    chain = migration.journal.refresh()
    entries = chain.unfinished() if run is None else chain.run(run)
    if not entries and run is None:
        raise NothingToResume(f"topology {migration.plan.topology} has no unfinished run: there is nothing to give up")
    if not entries:
        return RunResult("refused", migration.steps[0].name, "nothing had begun")
    done = {step.name: find_step_outcome(entries, step.name) for step in migration.steps}
    left = [name for name, outcome in done.items() if outcome is None or outcome[1] is not None]
    result = RunResult("paused", migration.steps[-1].name)
    for name in left or [migration.steps[-1].name]:
        result = migration.run_step(name)
        if result.state != "paused":  # a step without anything to ask succeeds even now
            break
    if force and result.state == "rollback_incomplete":
        return migration.abandon(result)
    return result


class _GivenUp:
    """Action handler that refuses every step of its driver and lets undos through."""

    def __init__(self, driver: RunDriver, handler: ActionHandler, why: str) -> None:
        self._driver, self._handler, self._why = driver, handler, why

    def answer(self, action: Action) -> Observation:
        if self._driver.is_undoing:
            return self._handler.answer(action)
        return ActionFailed(0, self._why, transient=False)
