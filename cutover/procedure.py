"""A migration as a generator over the steps of its strategy: it yields actions and is sent observations.

No I/O, no clock, no sleep: the same code runs under the Airflow operators, the command line and the tests. Resuming
is replaying: a step whose outcome the journal holds is answered with it and not done again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from cutover import gates, handover, retiring, rights
from cutover.actions import Begin, Finish, Json, Say
from cutover.drill import steps as drill
from cutover.errors import Refused
from cutover.failover import diverging, losing, placing, promoting, surveying
from cutover.fences import stragglers
from cutover.ground import Ground
from cutover.groups import moving, returns
from cutover.hooks import steps as hooks
from cutover.observations import Recorded
from cutover.rollback import taking_back
from cutover.steps import Step, undo_of, way_back
from cutover.waiting import Asking
from cutover.words import PRESENTATION

_Act = Callable[[Ground, Json], Asking[None]]
State = Literal["done", "refused", "rolled_back", "rollback_incomplete", "abandoned", "stopped", "paused"]

ACTS: dict[str, _Act] = {
    "preflight": gates.preflight,
    "lag_gate": gates.lag_gate,
    "history_proof": gates.prove_history,
    "window": gates.window,
    "hold_before": gates.hold_before,
    "checks_before": hooks.checks_before,
    "approval": gates.approval,
    "hooks_before": hooks.hooks_before,
    "drain_consumers": moving.drain_consumers,
    "stop_consumers": moving.stop_consumers,
    "translate_offsets": moving.translate_offsets,
    "commit_offsets": moving.commit_offsets,
    "landing_test": moving.landing_test,
    "start_consumers": moving.start_consumers,
    "consumers_joined": moving.consumers_joined,
    "soak": gates.soak,
    "hold_after": gates.hold_after,
    "checks_after": hooks.checks_after,
    "fence_producers": handover.fence_producers,
    "standstill": stragglers.standstill,
    "hooks_fenced": hooks.hooks_fenced,
    "barrier": handover.barrier,
    "drain": handover.drain,
    "tail_proof": handover.prove_tail,
    "write_rights": rights.write_rights,
    "point_of_no_return": handover.point_of_no_return,
    "switch_producers": handover.switch_producers,
    "canary": handover.canary,
    "retire_topics": retiring.retire_topics,
    "hold_reverse": retiring.hold_reverse,
    "reverse_flow": retiring.reverse_flow,
    "hooks_switched": hooks.hooks_switched,
    "straggler_watch": stragglers.straggler_watch,
    "seal": handover.seal,
    "preflight_back": taking_back.preflight_back,
    "carry_back": taking_back.carry_back,
    "translate_back": returns.translate_back,
    "commit_back": returns.commit_back,
    "lower_fence_back": taking_back.lower_fence_back,
    "start_halted": taking_back.start_halted,
    "hooks_rolled_back": hooks.hooks_rolled_back,
    "end_migration": taking_back.end_migration,
    "divergence": diverging.divergence,
    "old_groups_empty": diverging.old_groups_empty,
    "failover_preflight": surveying.failover_preflight,
    "source_gone": surveying.source_gone,
    "fence_source": surveying.fence_source,
    "stop_forwarding": surveying.stop_forwarding,
    "declare_loss": losing.declare_loss,
    "accept_loss": losing.accept_loss,
    "promote": losing.promote,
    "end_unfinished": losing.end_unfinished,
    "cut_workers_off": losing.cut_workers_off,
    "give_rights": promoting.give_rights,
    "stop_at_source": promoting.stop_at_source,
    "place_groups": placing.place_groups,
    "landing_at_target": placing.landing_at_target,
    "start_consumers_there": placing.start_consumers_there,
    "canary_there": promoting.canary_there,
    "seal_failover": promoting.seal_failover,
    "look_at_originals": drill.look_at_originals,
    "make_copies": drill.make_copies,
    "count_records": drill.count_records,
    "remove_copies": drill.remove_copies,
}
UNDOS: dict[str, _Act] = {
    "stop_consumers": moving.undo_stop_consumers,
    "commit_offsets": moving.undo_commit_offsets,
    "start_consumers": moving.undo_start_consumers,
    "write_rights": rights.undo_write_rights,
    "fence_producers": handover.undo_fence_producers,
    "commit_back": returns.undo_commit_back,
    "lower_fence_back": taking_back.undo_lower_fence_back,
    "fence_source": handover.undo_fence_producers,
    "stop_forwarding": surveying.undo_stop_forwarding,
    "hold_reverse": retiring.undo_hold_reverse,
    "make_copies": drill.remove_copies,
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


def proceed(ground: Ground, steps: tuple[Step, ...]) -> Asking[Result]:
    """Run these steps (`cutover.steps`) in their order. Fills `ground.outcomes`."""
    begun: list[Step] = []
    crossed = False
    for step in steps:
        begun.append(step)
        refused = yield from _do(step.name, ACTS[step.name], ground, final=crossed)
        if refused is not None and crossed:
            return (yield from _stop(ground, step, refused))
        if refused is not None:
            return (yield from _roll_back(ground, begun, refused))
        crossed = crossed or step.point_of_no_return
    return Result("done", begun[-1].name)


def _do(name: str, act: _Act, ground: Ground, *, undo: bool = False, final: bool = False) -> Asking[str | None]:
    """One step: its outcome goes to `ground.outcomes`; returns why it was refused, or None.

    final: a refusal is not an outcome (behind the point of no return, or in an undo): the step stays unfinished.
    """
    recorded = yield Begin(name, undo)
    assert isinstance(recorded, Recorded)
    if recorded.outcome is not None:
        ground.outcomes[name] = recorded.outcome
        return recorded.refused
    ground.ago_ms[name] = recorded.ago_ms
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
    if ground.policy.hooks.rolled_back and (undone or any(step.name == "hooks_before" for step in begun)):
        yield from _do(undo_of("hooks"), hooks.hooks_rolled_back, ground, undo=True)
    return Result("rolled_back" if undone else "refused", at, why)


def _stop(ground: Ground, step: Step, why: str) -> Asking[Result]:
    """Behind the point of no return nothing is switched back: say where we are, and what the way on is."""
    text = (
        f"{why}. This is behind the point of no return: nothing is switched back, because a switch back would strand "
        f"what {ground.flow.target} has taken since. Repair the cause and run again with --resume. The way back: "
        f"{step.undo or way_back(ground.policy)}"
    )
    yield Say(text)
    return Result("stopped", step.name, text)
