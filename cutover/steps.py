"""The steps of a migration as a table: what each does, who acts, how it is undone, how long it may take.

Presentation (what a person reads while it runs) is the second table. The order of the rows is the order of the
work, and its reverse is the order of a rollback (design 05; research/linking-and-kcp §6).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cutover.policy import Policy

NO_WAY_BACK = "none: behind the point of no return there is no way back in this version"

Actor = Literal["watershed", "application", "proof", "person"]


@dataclass(frozen=True, slots=True)
class Step:
    """A row. undo None: nothing is changed, so nothing is undone. bound_ms 0: decided without waiting."""

    name: str
    does: str
    actor: Actor
    undo: str | None
    bound_ms: int = 0
    point_of_no_return: bool = False


@dataclass(frozen=True, slots=True)
class Presentation:
    """How a step is told: while it runs, and when it is done."""

    doing: str
    done: str


def steps_of(policy: Policy) -> tuple[Step, ...]:
    """The rows of `consumers_first`, with the bounds that this wave's gates give them."""
    bound = policy
    return (
        Step(
            "preflight",
            "clusters answer and are the right ones, topics match, flow runs, groups and applications are as expected",
            "watershed",
            None,
            bound.reach_ms,
        ),
        Step(
            "lag_gate",
            f"lag at or below {policy.max_lag} records for {_time(policy.hold_ms)} "
            f"({policy.hold_times} looks in a row), and everything written before the gate copied",
            "watershed",
            None,
            bound.lag_bound_ms,
        ),
        Step("history_proof", f"Spark proves what was copied so far ({policy.history_level})", "proof", None),
        Step("approval", "a person (or --approve auto) lets the applications be moved", "person", None),
        Step(
            "stop_consumers",
            "consumers stop at the source; their groups are seen empty",
            "application",
            "consumers start at the source again",
            bound.empty_bound_ms,
        ),
        Step(
            "translate_offsets",
            "committed offsets of every group, translated exactly; never beyond what is copied",
            "watershed",
            None,
            bound.copied_bound_ms,
        ),
        Step(
            "commit_offsets",
            "the target's groups are empty and untouched; translated offsets are committed and read back",
            "watershed",
            "offsets translated back from what was committed on the target, committed at the source; "
            "our offsets on the target removed",
            bound.reach_ms,
        ),
        Step(
            "landing_test",
            "the record at each committed offset is the same record on both sides",
            "watershed",
            None,
            bound.copied_bound_ms,
        ),
        Step(
            "start_consumers",
            "consumers start at the target and join their groups",
            "application",
            "consumers stop at the target; their groups are seen empty",
            bound.empty_bound_ms,
        ),
        Step("soak", _soak(policy), "person" if policy.soak_approvals else "watershed", None, policy.soak_bound_ms),
        Step(
            "fence_producers",
            "producers stop at the source",
            "application",
            "producers start at the source again",
            bound.reach_ms,
        ),
        Step(
            "standstill",
            f"source end offsets stand still for {_time(policy.watch_ms)}; a straggler ends the migration",
            "watershed",
            None,
            policy.watch_ms + bound.reach_ms,
        ),
        Step(
            "barrier",
            "source end offsets are fixed; no transaction is open",
            "watershed",
            None,
            bound.barrier_bound_ms,
        ),
        Step("drain", "the flow copies through the barrier", "watershed", None, bound.drain_bound_ms),
        Step("tail_proof", f"Spark proves everything up to the barrier ({policy.tail_level})", "proof", None),
        Step(
            "point_of_no_return",
            "a last look: nothing moved since the barrier. Behind this point there is no way back in this version",
            "watershed",
            None,
            bound.reach_ms,
            point_of_no_return=True,
        ),
        Step(
            "switch_producers",
            "producers start at the target",
            "application",
            NO_WAY_BACK,
            bound.reach_ms,
        ),
        Step(
            "canary",
            "the first write on the target is read back; the source's end does not move",
            "watershed",
            NO_WAY_BACK,
            bound.canary_bound_ms,
        ),
        Step(
            "seal",
            "the flow is stopped when everything it carries has moved; the evidence pack is written",
            "watershed",
            NO_WAY_BACK,
        ),
    )


PRESENTATION: dict[str, Presentation] = {
    "preflight": Presentation("looking at both clusters", "both clusters are ready"),
    "lag_gate": Presentation("waiting for the flow to catch up", "the flow keeps up"),
    "history_proof": Presentation("proving what was copied so far", "history proven"),
    "approval": Presentation("asking for approval", "approved"),
    "stop_consumers": Presentation("stopping consumers at the source", "consumers stopped, groups empty"),
    "translate_offsets": Presentation("translating group offsets", "offsets translated"),
    "commit_offsets": Presentation("committing group offsets on the target", "offsets committed and read back"),
    "landing_test": Presentation("comparing the records that groups go on with", "same records on both sides"),
    "start_consumers": Presentation("starting consumers at the target", "consumers read from the target"),
    "soak": Presentation("watching consumers on the target", "consumers settled"),
    "fence_producers": Presentation("stopping producers at the source", "producers stopped"),
    "standstill": Presentation("watching the source for stragglers", "the source stands still"),
    "barrier": Presentation("fixing the source's end", "barrier set"),
    "drain": Presentation("draining to the barrier", "everything up to the barrier is copied"),
    "tail_proof": Presentation("proving everything up to the barrier", "tail proven"),
    "point_of_no_return": Presentation("a last look before the switch", "POINT OF NO RETURN"),
    "switch_producers": Presentation("starting producers at the target", "producers write to the target"),
    "canary": Presentation("waiting for the first write on the target", "first write read back"),
    "seal": Presentation("writing the evidence", "evidence sealed"),
    "undo_fence_producers": Presentation("starting producers at the source again", "fence lifted"),
    "undo_start_consumers": Presentation("stopping consumers at the target", "consumers stopped at the target"),
    "undo_commit_offsets": Presentation("taking group offsets back to the source", "offsets are back"),
    "undo_stop_consumers": Presentation("starting consumers at the source again", "consumers back at the source"),
}


def undo_of(step: str) -> str:
    """The name under which a step's undo is journaled."""
    return f"undo_{step}"


def _soak(policy: Policy) -> str:
    parts = []
    if policy.consumer_lag is not None:
        parts.append(f"groups on the target lag at most {policy.consumer_lag} records")
    parts += [f"approval by {by}" for by in policy.soak_approvals]
    return "; ".join(parts) or "no soak gate declared"


def _time(ms: int) -> str:
    return f"{ms / 60_000:g} min" if ms >= 60_000 else f"{ms / 1000:g} s"
