"""How steps and their undos are told: while they run, and when they are done."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepText:
    """How a step is told: while it runs, and when it is done."""

    doing: str
    done: str


STEP_TEXTS: dict[str, StepText] = {
    "preflight": StepText("looking at both clusters", "both clusters are ready"),
    "lag_gate": StepText("waiting for the flow to catch up", "the flow keeps up"),
    "history_proof": StepText("proving what was copied so far", "history proven"),
    "window": StepText("waiting for the window", "the window is open"),
    "hold_before": StepText("holding", "held"),
    "hold_after": StepText("holding", "held"),
    "checks_before": StepText("asking your own checks", "your own checks agree"),
    "checks_after": StepText("asking your own checks", "your own checks agree"),
    "hooks_before": StepText("calling hooks", "hooks called"),
    "hooks_fenced": StepText("calling hooks", "hooks called"),
    "hooks_switched": StepText("calling hooks", "hooks called"),
    "drain_consumers": StepText("waiting for consumers to reach the barrier", "consumers read everything"),
    "consumers_joined": StepText("waiting for consumers to join their groups", "consumers joined"),
    "retire_topics": StepText("taking the wave's topics off the flow", "the flow copies these topics no more"),
    "hold_reverse": StepText("holding the way back", "the way back is held"),
    "reverse_flow": StepText("starting the reverse flow", "the reverse flow carries new records back"),
    "straggler_watch": StepText("watching the source for stragglers", "nothing was written to the source"),
    "approval": StepText("asking for approval", "approved"),
    "stop_consumers": StepText("stopping consumers at the source", "consumers stopped, groups empty"),
    "translate_offsets": StepText("translating group offsets", "offsets translated"),
    "commit_offsets": StepText("committing group offsets on the target", "offsets committed and read back"),
    "landing_test": StepText("comparing the records that groups go on with", "same records on both sides"),
    "start_consumers": StepText("starting consumers at the target", "consumers started"),
    "soak": StepText("watching consumers on the target", "consumers settled"),
    "fence_producers": StepText("stopping producers at the source", "producers stopped"),
    "standstill": StepText("watching the source for stragglers", "the source stands still"),
    "barrier": StepText("fixing the source's end", "barrier set"),
    "drain": StepText("draining to the barrier", "everything up to the barrier is copied"),
    "tail_proof": StepText("proving everything up to the barrier", "tail proven"),
    "write_rights": StepText("giving the rights that were held back", "producers may write to the target"),
    "point_of_no_return": StepText("a last look before the switch", "POINT OF NO RETURN"),
    "switch_producers": StepText("starting producers at the target", "producers write to the target"),
    "canary": StepText("waiting for the first write on the target", "first write read back"),
    "preflight_back": StepText("looking whether the way back is open", "the way back is open"),
    "carry_back": StepText("starting the flow back", "the flow back carries what was written since the switch"),
    "translate_back": StepText("translating group offsets back", "offsets translated back"),
    "commit_back": StepText("committing group offsets at the old source", "offsets committed and read back"),
    "undo_commit_back": StepText("taking group offsets back", "offsets are back"),
    "lower_fence_back": StepText("lowering the migration's fence", "the fence is down"),
    "undo_lower_fence_back": StepText("raising the migration's fence again", "the fence is up again"),
    "start_halted": StepText("starting consumers that were never moved", "consumers started"),
    "hooks_rolled_back": StepText("telling hooks that everything was taken back", "hooks told"),
    "end_migration": StepText("ending what was taken back", "the migration has ended"),
    "seal": StepText("writing the evidence", "evidence sealed"),
    "look_at_originals": StepText("looking at the wave's topics", "they can be rehearsed"),
    "make_copies": StepText("making copies", "copies, flows and applications of the rehearsal are there"),
    "count_records": StepText("counting what was written and read", "counted"),
    "remove_copies": StepText("removing the copies", "what the rehearsal made is removed"),
    "undo_make_copies": StepText("removing the copies", "what the rehearsal made is removed"),
    "undo_hooks": StepText("telling hooks that everything was taken back", "hooks told"),
    "undo_fence_source": StepText("starting producers at the source again", "fence lifted"),
    "undo_stop_forwarding": StepText("letting the flow copy again", "the flow copies again"),
    "undo_write_rights": StepText("taking the rights away that were given", "those rights are gone"),
    "undo_fence_producers": StepText("starting producers at the source again", "fence lifted"),
    "undo_hold_reverse": StepText("letting the way back go on", "the way back is as it was"),
    "undo_start_consumers": StepText("stopping consumers at the target", "consumers stopped at the target"),
    "undo_commit_offsets": StepText("taking group offsets back to the source", "offsets are back"),
    "undo_stop_consumers": StepText("starting consumers at the source again", "consumers back at the source"),
}
