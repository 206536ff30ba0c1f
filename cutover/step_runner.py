"""A migration as a generator over the steps of its strategy: it yields actions and is sent observations.

No I/O, no clock, no sleep: the same code runs under the Airflow operators, the command line and the tests. Resuming
is replaying: a step whose outcome the journal holds is answered with it and not done again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from cutover import flow_steps, gates, producer_switchover, withheld_rights
from cutover.actions import BeginStep, FinishStep, JsonObject, ReportMessage
from cutover.drill import copy_steps as drill
from cutover.errors import Refused
from cutover.failover import divergence_steps, group_placement, loss_steps, promotion_steps, source_assessment
from cutover.fences import stragglers
from cutover.groups import consumer_steps, offset_return
from cutover.hooks import hook_steps as hooks
from cutover.observations import RecordedStep
from cutover.polling import ActionGenerator
from cutover.rollback import rollback_steps
from cutover.run_context import RunContext
from cutover.step_texts import STEP_TEXTS
from cutover.steps import Step, describe_way_back, name_undo_step

_Act = Callable[[RunContext, JsonObject], ActionGenerator[None]]
RunState = Literal["done", "refused", "rolled_back", "rollback_incomplete", "abandoned", "stopped", "paused"]

STEP_ACTS: dict[str, _Act] = {
    "preflight": gates.run_preflight,
    "lag_gate": gates.wait_for_low_lag,
    "history_proof": gates.prove_history,
    "window": gates.wait_for_window,
    "hold_before": gates.hold_before,
    "checks_before": hooks.call_checks_before,
    "approval": gates.ask_move_approval,
    "hooks_before": hooks.call_hooks_before,
    "drain_consumers": consumer_steps.drain_consumers,
    "stop_consumers": consumer_steps.stop_consumers,
    "translate_offsets": consumer_steps.translate_offsets,
    "commit_offsets": consumer_steps.commit_offsets,
    "landing_test": consumer_steps.run_landing_test,
    "start_consumers": consumer_steps.start_consumers,
    "consumers_joined": consumer_steps.wait_for_consumers,
    "soak": gates.run_soak_gate,
    "hold_after": gates.hold_after,
    "checks_after": hooks.call_checks_after,
    "fence_producers": producer_switchover.fence_producers,
    "standstill": stragglers.wait_for_standstill,
    "hooks_fenced": hooks.call_hooks_fenced,
    "barrier": producer_switchover.fix_barrier,
    "drain": producer_switchover.drain_to_barrier,
    "tail_proof": producer_switchover.prove_tail,
    "write_rights": withheld_rights.give_withheld_rights,
    "point_of_no_return": producer_switchover.pass_point_of_no_return,
    "switch_producers": producer_switchover.switch_producers,
    "canary": producer_switchover.check_canary,
    "retire_topics": flow_steps.retire_topics,
    "hold_reverse": flow_steps.hold_reverse_flow,
    "reverse_flow": flow_steps.start_reverse_flow,
    "hooks_switched": hooks.call_hooks_switched,
    "straggler_watch": stragglers.watch_for_stragglers,
    "seal": producer_switchover.seal_evidence,
    "preflight_back": rollback_steps.run_rollback_preflight,
    "carry_back": rollback_steps.start_flow_back,
    "translate_back": offset_return.translate_offsets_back,
    "commit_back": offset_return.commit_offsets_back,
    "lower_fence_back": rollback_steps.lower_migration_fence,
    "start_halted": rollback_steps.start_halted_consumers,
    "hooks_rolled_back": hooks.call_hooks_rolled_back,
    "end_migration": rollback_steps.end_taken_back_run,
    "divergence": divergence_steps.list_divergent_records,
    "old_groups_empty": divergence_steps.wait_for_empty_old_groups,
    "failover_preflight": source_assessment.run_failover_preflight,
    "source_gone": source_assessment.assess_source,
    "fence_source": source_assessment.fence_source,
    "stop_forwarding": source_assessment.stop_forwarding,
    "declare_loss": loss_steps.declare_loss,
    "accept_loss": loss_steps.accept_loss,
    "promote": loss_steps.promote_target,
    "end_unfinished": loss_steps.end_unfinished_run,
    "cut_workers_off": loss_steps.cut_workers_off,
    "give_rights": promotion_steps.give_remembered_rights,
    "stop_at_source": promotion_steps.stop_applications_at_source,
    "place_groups": group_placement.place_groups,
    "landing_at_target": group_placement.check_landing_at_target,
    "start_consumers_there": group_placement.start_promoted_consumers,
    "canary_there": promotion_steps.check_promoted_canary,
    "seal_failover": promotion_steps.seal_failover,
    "look_at_originals": drill.read_originals,
    "make_copies": drill.make_copies,
    "count_records": drill.count_records,
    "remove_copies": drill.remove_copies,
}
STEP_UNDOS: dict[str, _Act] = {
    "stop_consumers": consumer_steps.undo_stop_consumers,
    "commit_offsets": consumer_steps.undo_commit_offsets,
    "start_consumers": consumer_steps.undo_start_consumers,
    "write_rights": withheld_rights.undo_give_withheld_rights,
    "fence_producers": producer_switchover.undo_fence_producers,
    "commit_back": offset_return.undo_commit_offsets_back,
    "lower_fence_back": rollback_steps.undo_lower_migration_fence,
    "fence_source": producer_switchover.undo_fence_producers,
    "stop_forwarding": source_assessment.undo_stop_forwarding,
    "hold_reverse": flow_steps.undo_hold_reverse_flow,
    "make_copies": drill.remove_copies,
}


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
        refused = yield from _do(step.name, STEP_ACTS[step.name], context, final=crossed)
        if refused is not None and crossed:
            return (yield from _stop(context, step, refused))
        if refused is not None:
            return (yield from _roll_back(context, begun, refused))
        crossed = crossed or step.point_of_no_return
    return RunResult("done", begun[-1].name)


def _do(
    name: str, act: _Act, context: RunContext, *, undo: bool = False, final: bool = False
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
        yield FinishStep(name, outcome, undo, refused)
    return refused


def _roll_back(context: RunContext, begun: list[Step], why: str) -> ActionGenerator[RunResult]:
    """Take back every step that was begun, the last one first."""
    at = begun[-1].name
    undone = 0
    for step in reversed(begun):
        if step.name not in STEP_UNDOS:
            continue
        name = name_undo_step(step.name)
        failed = yield from _do(name, STEP_UNDOS[step.name], context, undo=True)
        if failed is not None:
            left = [
                STEP_TEXTS[name_undo_step(s.name)].doing for s in begun[: begun.index(step) + 1] if s.name in STEP_UNDOS
            ]
            text = f"{why}. The rollback could not finish: {failed}. Still to do: {', then '.join(reversed(left))}"
            yield ReportMessage(text)
            return RunResult("rollback_incomplete", at, text)
        undone += 1
    if context.policy.hooks.rolled_back and (undone or any(step.name == "hooks_before" for step in begun)):
        yield from _do(name_undo_step("hooks"), hooks.call_hooks_rolled_back, context, undo=True)
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
