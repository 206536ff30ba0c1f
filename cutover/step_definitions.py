"""The steps of every kind of run, each in one row: its name, what it does, what people read, and how it is undone.

A strategy or a kind of run is an order of these names (`step_order`, `rollback.rollback_step_order`,
`failover.failover_plan`, `failover.failback_plan`, `drill.drill_plan`). How long each may take there follows
from the wave's policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from watershed.cutover import flow_steps, gates, producer_steps, protection_steps, withheld_rights_steps
from watershed.cutover.actions import JsonObject
from watershed.cutover.drill import copy_steps
from watershed.cutover.failover import divergence_steps, group_placement, loss_steps, promotion_steps, source_assessment
from watershed.cutover.fences import stragglers
from watershed.cutover.groups import consumer_steps, offset_return_steps
from watershed.cutover.hooks import hook_steps
from watershed.cutover.migration_step_order import StepText, name_undo_step
from watershed.cutover.polling import ActionGenerator
from watershed.cutover.rollback import rollback_steps
from watershed.cutover.run_context import RunContext

StepAct = Callable[[RunContext, JsonObject], ActionGenerator[None]]


@dataclass(frozen=True, slots=True)
class UndoDefinition:
    """How a step is taken back before the point of no return; journaled as `undo_` + the step's name."""

    act: StepAct
    doing: str
    done: str


@dataclass(frozen=True, slots=True)
class StepDefinition:
    """A step of some run. name: journal text, never changed. act: fills the step's outcome, or raises Refused. doing,
    done: shown while it runs, and when it is done. undo None: it changes nothing that would have to be taken back.

    gate: the fields of its outcome by which it decides, for people; () all of them, None: it is no gate. waits_long: a
    scheduler better waits for it without a worker.
    """

    name: str
    act: StepAct
    doing: str
    done: str
    undo: UndoDefinition | None = None
    gate: tuple[str, ...] | None = None
    waits_long: bool = False


_STEPS = (
    # before applications move
    StepDefinition("preflight", gates.run_preflight, "looking at both clusters", "both clusters are ready"),
    StepDefinition(
        "lag_gate",
        gates.wait_for_low_lag,
        "waiting for the flow to catch up",
        "the flow keeps up",
        gate=(
            "lag_records",
            "snapshot_behind",
        ),
    ),
    StepDefinition(
        "history_proof",
        gates.prove_history,
        "proving what was copied so far",
        "history proven",
        gate=(
            "verdict",
            "level",
            "unproven",
            "counts",
        ),
    ),
    StepDefinition(
        "window",
        gates.wait_for_window,
        "waiting for the window",
        "the window is open",
        gate=("opens",),
        waits_long=True,
    ),
    StepDefinition("hold_before", gates.hold_before, "holding", "held", gate=("held_ms",), waits_long=True),
    StepDefinition(
        "checks_before",
        hook_steps.call_checks_before,
        "asking your own checks",
        "your own checks agree",
        gate=("hooks",),
    ),
    StepDefinition("approval", gates.ask_move_approval, "asking for approval", "approved", gate=("approvals",)),
    StepDefinition("hooks_before", hook_steps.call_hooks_before, "calling hooks", "hooks called"),
    # consumers, and their groups
    StepDefinition(
        "drain_consumers",
        consumer_steps.drain_consumers,
        "waiting for consumers to reach the barrier",
        "consumers read everything",
        gate=("groups",),
    ),
    StepDefinition(
        "stop_consumers",
        consumer_steps.stop_consumers,
        "stopping consumers at the source",
        "consumers stopped, groups empty",
        UndoDefinition(
            consumer_steps.undo_stop_consumers, "starting consumers at the source again", "consumers back at the source"
        ),
    ),
    StepDefinition(
        "translate_offsets", consumer_steps.translate_offsets, "translating group offsets", "offsets translated"
    ),
    StepDefinition(
        "commit_offsets",
        consumer_steps.commit_offsets,
        "committing group offsets on the target",
        "offsets committed and read back",
        UndoDefinition(
            consumer_steps.undo_commit_offsets, "taking group offsets back to the source", "offsets are back"
        ),
    ),
    StepDefinition(
        "landing_test",
        consumer_steps.run_landing_test,
        "comparing the records that groups go on with",
        "same records on both sides",
        gate=("groups",),
    ),
    StepDefinition(
        "start_consumers",
        consumer_steps.start_consumers,
        "starting consumers at the target",
        "consumers started",
        UndoDefinition(
            consumer_steps.undo_start_consumers, "stopping consumers at the target", "consumers stopped at the target"
        ),
    ),
    StepDefinition(
        "consumers_joined",
        consumer_steps.wait_for_consumers,
        "waiting for consumers to join their groups",
        "consumers joined",
        gate=("members",),
    ),
    StepDefinition(
        "soak",
        gates.run_soak_gate,
        "watching consumers on the target",
        "consumers settled",
        gate=(
            "consumer_lag",
            "approvals",
        ),
    ),
    StepDefinition("hold_after", gates.hold_after, "holding", "held", gate=("held_ms",), waits_long=True),
    StepDefinition(
        "checks_after", hook_steps.call_checks_after, "asking your own checks", "your own checks agree", gate=("hooks",)
    ),
    # producers, from the fence to the switch
    StepDefinition(
        "fence_producers",
        producer_steps.fence_producers,
        "stopping producers at the source",
        "producers stopped",
        UndoDefinition(producer_steps.undo_fence_producers, "starting producers at the source again", "fence lifted"),
    ),
    StepDefinition(
        "standstill",
        stragglers.wait_for_standstill,
        "watching the source for stragglers",
        "the source stands still",
        gate=("watched_ms",),
    ),
    StepDefinition("hooks_fenced", hook_steps.call_hooks_fenced, "calling hooks", "hooks called"),
    StepDefinition("barrier", producer_steps.fix_barrier, "fixing the source's end", "barrier set"),
    StepDefinition(
        "drain",
        producer_steps.drain_to_barrier,
        "draining to the barrier",
        "everything up to the barrier is copied",
    ),
    StepDefinition(
        "tail_proof",
        producer_steps.prove_tail,
        "proving everything up to the barrier",
        "tail proven",
        gate=(
            "verdict",
            "level",
            "unproven",
            "counts",
        ),
    ),
    StepDefinition(
        "lift_protection",
        protection_steps.lift_protection,
        "opening the target's topics for applications",
        "the target's topics are not protected any more",
        UndoDefinition(
            protection_steps.undo_lift_protection,
            "protecting the target's topics again",
            "the target's topics are protected",
        ),
    ),
    StepDefinition(
        "write_rights",
        withheld_rights_steps.give_withheld_rights,
        "giving the rights that were held back",
        "producers may write to the target",
        UndoDefinition(
            withheld_rights_steps.undo_give_withheld_rights,
            "taking the rights away that were given",
            "those rights are gone",
        ),
    ),
    StepDefinition(
        "point_of_no_return",
        producer_steps.pass_point_of_no_return,
        "a last look before the switch",
        "POINT OF NO RETURN",
    ),
    StepDefinition(
        "switch_producers",
        producer_steps.switch_producers,
        "starting producers at the target",
        "producers write to the target",
    ),
    StepDefinition(
        "canary",
        producer_steps.check_canary,
        "waiting for the first write on the target",
        "first write read back",
        gate=("read_back",),
    ),
    # flows
    StepDefinition(
        "retire_topics",
        flow_steps.retire_topics,
        "taking the wave's topics off the flow",
        "the flow copies these topics no more",
    ),
    StepDefinition(
        "hold_reverse",
        flow_steps.hold_reverse_flow,
        "holding the way back",
        "the way back is held",
        UndoDefinition(flow_steps.undo_hold_reverse_flow, "letting the way back go on", "the way back is as it was"),
    ),
    StepDefinition(
        "reverse_flow",
        flow_steps.start_reverse_flow,
        "starting the reverse flow",
        "the reverse flow carries new records back",
    ),
    StepDefinition("hooks_switched", hook_steps.call_hooks_switched, "calling hooks", "hooks called"),
    # the end
    StepDefinition(
        "straggler_watch",
        stragglers.watch_for_stragglers,
        "watching the source for stragglers",
        "nothing was written to the source",
        gate=("watched_ms",),
        waits_long=True,
    ),
    StepDefinition("seal", producer_steps.seal_evidence, "writing the evidence", "evidence sealed"),
    # a rollback
    StepDefinition(
        "preflight_back",
        rollback_steps.run_rollback_preflight,
        "looking whether the way back is open",
        "the way back is open",
    ),
    StepDefinition(
        "carry_back",
        rollback_steps.start_flow_back,
        "starting the flow back",
        "the flow back carries what was written since the switch",
    ),
    StepDefinition(
        "translate_back",
        offset_return_steps.translate_offsets_back,
        "translating group offsets back",
        "offsets translated back",
    ),
    StepDefinition(
        "commit_back",
        offset_return_steps.commit_offsets_back,
        "committing group offsets at the old source",
        "offsets committed and read back",
        UndoDefinition(offset_return_steps.undo_commit_offsets_back, "taking group offsets back", "offsets are back"),
    ),
    StepDefinition(
        "lower_fence_back",
        rollback_steps.lower_migration_fence,
        "lowering the migration's fence",
        "the fence is down",
        UndoDefinition(
            rollback_steps.undo_lower_migration_fence, "raising the migration's fence again", "the fence is up again"
        ),
    ),
    StepDefinition(
        "start_halted",
        rollback_steps.start_halted_consumers,
        "starting consumers that were never moved",
        "consumers started",
    ),
    StepDefinition(
        "hooks_rolled_back",
        hook_steps.call_hooks_rolled_back,
        "telling hooks that everything was taken back",
        "hooks told",
    ),
    StepDefinition(
        "end_migration", rollback_steps.end_taken_back_run, "ending what was taken back", "the migration has ended"
    ),
    StepDefinition(
        "forget_groups",
        rollback_steps.forget_left_groups,
        "removing what is left of the groups that went back",
        "only one side knows these groups",
    ),
    # a failback
    StepDefinition(
        "divergence",
        divergence_steps.list_divergent_records,
        "comparing the old primary with what was copied",
        "both sides are compared",
    ),
    StepDefinition(
        "old_groups_empty",
        divergence_steps.wait_for_empty_old_groups,
        "waiting for sessions at the old primary to end",
        "its groups are empty",
    ),
    # a failover
    StepDefinition(
        "failover_preflight", source_assessment.run_failover_preflight, "looking at the target", "the target is ready"
    ),
    StepDefinition(
        "source_gone",
        source_assessment.assess_source,
        "asking the source whether it answers",
        "the source was asked",
        gate=("told",),
    ),
    StepDefinition(
        "fence_source",
        source_assessment.fence_source,
        "stopping producers at the source",
        "producers stopped",
        UndoDefinition(producer_steps.undo_fence_producers, "starting producers at the source again", "fence lifted"),
    ),
    StepDefinition(
        "stop_forwarding",
        source_assessment.stop_forwarding,
        "stopping the flow",
        "the flow copies nothing more",
        UndoDefinition(source_assessment.undo_stop_forwarding, "letting the flow copy again", "the flow copies again"),
    ),
    StepDefinition("declare_loss", loss_steps.declare_loss, "counting what is missing", "the loss is declared"),
    StepDefinition(
        "accept_loss",
        loss_steps.accept_loss,
        "asking whether the loss is accepted",
        "the loss is accepted",
        gate=(
            "accepted",
            "by",
            "approvals",
        ),
    ),
    StepDefinition("promote", loss_steps.promote_target, "a last look before the promotion", "POINT OF NO RETURN"),
    StepDefinition(
        "end_unfinished", loss_steps.end_unfinished_run, "ending the run that was under way", "that run is ended"
    ),
    StepDefinition(
        "cut_workers_off", loss_steps.cut_workers_off, "fencing the flow's workers", "no worker can write any more"
    ),
    StepDefinition(
        "give_rights",
        promotion_steps.give_remembered_rights,
        "giving the rights that were held back",
        "applications may write",
    ),
    StepDefinition(
        "stop_at_source",
        promotion_steps.stop_applications_at_source,
        "telling applications to let go of the source",
        "applications let go of it",
    ),
    StepDefinition("place_groups", group_placement.place_groups, "placing groups", "every group has its positions"),
    StepDefinition(
        "landing_at_target",
        group_placement.check_landing_at_target,
        "reading what groups go on with",
        "every position can be read",
        gate=("groups",),
    ),
    StepDefinition(
        "start_consumers_there", group_placement.start_promoted_consumers, "starting consumers", "consumers started"
    ),
    StepDefinition(
        "canary_there", promotion_steps.check_promoted_canary, "waiting for the first write", "first write read back"
    ),
    StepDefinition("seal_failover", promotion_steps.seal_failover, "writing the evidence", "evidence sealed"),
    # a drill
    StepDefinition(
        "look_at_originals", copy_steps.read_originals, "looking at the wave's topics", "they can be rehearsed"
    ),
    StepDefinition(
        "make_copies",
        copy_steps.make_copies,
        "making copies",
        "copies, flows and applications of the rehearsal are there",
        UndoDefinition(copy_steps.remove_copies, "removing the copies", "what the rehearsal made is removed"),
    ),
    StepDefinition("count_records", copy_steps.count_records, "counting what was written and read", "counted", gate=()),
    StepDefinition(
        "remove_copies", copy_steps.remove_copies, "removing the copies", "what the rehearsal made is removed"
    ),
)
STEPS: Final[Mapping[str, StepDefinition]] = {step.name: step for step in _STEPS}
assert len(STEPS) == len(_STEPS), "two steps of one name"


def _list_texts() -> dict[str, StepText]:
    texts = {step.name: StepText(step.doing, step.done) for step in _STEPS}
    undos = {name_undo_step(step.name): step.undo for step in _STEPS if step.undo is not None}
    texts |= {name: StepText(undo.doing, undo.done) for name, undo in undos.items()}
    return texts | {name_undo_step("hooks"): texts["hooks_rolled_back"]}


STEP_TEXTS: Final[Mapping[str, StepText]] = _list_texts()  # of steps and undos, by their names in the journal
