"""How steps and their undos are told: while they run, and when they are done."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Presentation:
    """How a step is told: while it runs, and when it is done."""

    doing: str
    done: str


PRESENTATION: dict[str, Presentation] = {
    "preflight": Presentation("looking at both clusters", "both clusters are ready"),
    "lag_gate": Presentation("waiting for the flow to catch up", "the flow keeps up"),
    "history_proof": Presentation("proving what was copied so far", "history proven"),
    "window": Presentation("waiting for the window", "the window is open"),
    "hold_before": Presentation("holding", "held"),
    "hold_after": Presentation("holding", "held"),
    "checks_before": Presentation("asking your own checks", "your own checks agree"),
    "checks_after": Presentation("asking your own checks", "your own checks agree"),
    "hooks_before": Presentation("calling hooks", "hooks called"),
    "hooks_fenced": Presentation("calling hooks", "hooks called"),
    "hooks_switched": Presentation("calling hooks", "hooks called"),
    "drain_consumers": Presentation("waiting for consumers to reach the barrier", "consumers read everything"),
    "consumers_joined": Presentation("waiting for consumers to join their groups", "consumers joined"),
    "retire_topics": Presentation("taking the wave's topics off the flow", "the flow copies these topics no more"),
    "hold_reverse": Presentation("holding the way back", "the way back is held"),
    "reverse_flow": Presentation("starting the reverse flow", "the reverse flow carries new records back"),
    "straggler_watch": Presentation("watching the source for stragglers", "nothing was written to the source"),
    "approval": Presentation("asking for approval", "approved"),
    "stop_consumers": Presentation("stopping consumers at the source", "consumers stopped, groups empty"),
    "translate_offsets": Presentation("translating group offsets", "offsets translated"),
    "commit_offsets": Presentation("committing group offsets on the target", "offsets committed and read back"),
    "landing_test": Presentation("comparing the records that groups go on with", "same records on both sides"),
    "start_consumers": Presentation("starting consumers at the target", "consumers started"),
    "soak": Presentation("watching consumers on the target", "consumers settled"),
    "fence_producers": Presentation("stopping producers at the source", "producers stopped"),
    "standstill": Presentation("watching the source for stragglers", "the source stands still"),
    "barrier": Presentation("fixing the source's end", "barrier set"),
    "drain": Presentation("draining to the barrier", "everything up to the barrier is copied"),
    "tail_proof": Presentation("proving everything up to the barrier", "tail proven"),
    "write_rights": Presentation("giving the rights that were held back", "producers may write to the target"),
    "point_of_no_return": Presentation("a last look before the switch", "POINT OF NO RETURN"),
    "switch_producers": Presentation("starting producers at the target", "producers write to the target"),
    "canary": Presentation("waiting for the first write on the target", "first write read back"),
    "preflight_back": Presentation("looking whether the way back is open", "the way back is open"),
    "carry_back": Presentation("starting the flow back", "the flow back carries what was written since the switch"),
    "translate_back": Presentation("translating group offsets back", "offsets translated back"),
    "commit_back": Presentation("committing group offsets at the old source", "offsets committed and read back"),
    "undo_commit_back": Presentation("taking group offsets back", "offsets are back"),
    "lower_fence_back": Presentation("lowering the migration's fence", "the fence is down"),
    "undo_lower_fence_back": Presentation("raising the migration's fence again", "the fence is up again"),
    "start_halted": Presentation("starting consumers that were never moved", "consumers started"),
    "hooks_rolled_back": Presentation("telling hooks that everything was taken back", "hooks told"),
    "end_migration": Presentation("ending what was taken back", "the migration has ended"),
    "seal": Presentation("writing the evidence", "evidence sealed"),
    "look_at_originals": Presentation("looking at the wave's topics", "they can be rehearsed"),
    "make_copies": Presentation("making copies", "copies, flows and applications of the rehearsal are there"),
    "count_records": Presentation("counting what was written and read", "counted"),
    "remove_copies": Presentation("removing the copies", "what the rehearsal made is removed"),
    "undo_make_copies": Presentation("removing the copies", "what the rehearsal made is removed"),
    "undo_hooks": Presentation("telling hooks that everything was taken back", "hooks told"),
    "undo_fence_source": Presentation("starting producers at the source again", "fence lifted"),
    "undo_stop_forwarding": Presentation("letting the flow copy again", "the flow copies again"),
    "undo_write_rights": Presentation("taking the rights away that were given", "those rights are gone"),
    "undo_fence_producers": Presentation("starting producers at the source again", "fence lifted"),
    "undo_hold_reverse": Presentation("letting the way back go on", "the way back is as it was"),
    "undo_start_consumers": Presentation("stopping consumers at the target", "consumers stopped at the target"),
    "undo_commit_offsets": Presentation("taking group offsets back to the source", "offsets are back"),
    "undo_stop_consumers": Presentation("starting consumers at the source again", "consumers back at the source"),
}
