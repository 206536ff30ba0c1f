"""The steps of migrations as a table: what each does, who acts, how it is undone, how long it may take; and the order
in which each strategy takes them.

What a step does and how it is undone is in `step_definitions`. The order of the steps is the order of the work,
and its reverse is the order of a rollback.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from watershed.cutover.policy import WavePolicy
from watershed.topology.migration_waves import WaveFence, WaveWindow

_Actor = Literal["watershed", "application", "proof", "person", "hook"]


@dataclass(frozen=True, slots=True)
class Step:
    """A row. undo None: nothing is changed, so nothing is undone. bound_ms 0: decided without waiting. usual_ms: how
    long when everybody follows at once; the dry run adds up those between fence and switch."""

    name: str
    does: str
    actor: _Actor
    undo: str | None
    bound_ms: int = 0
    point_of_no_return: bool = False
    usual_ms: int = 100


@dataclass(frozen=True, slots=True)
class StepText:
    """What people read of a step. doing: while it runs. done: when it is done."""

    doing: str
    done: str


USUAL_PROOF_MS = 3_000  # a small tail, by the application that proved the history; a new one takes 15 s more
_BEFORE = (
    "preflight",
    "window",
    "lag_gate",
    "history_proof",
    "hold_before",
    "checks_before",
    "approval",
    "hooks_before",
)
_GROUPS = ("translate_offsets", "commit_offsets", "landing_test")
_FENCE = ("fence_producers", "standstill", "hooks_fenced")
_TAIL = ("barrier", "drain", "tail_proof")
# `lift_protection` and `write_rights` come before `point_of_no_return`: if the target refuses one of them, the run
# still rolls back by itself.
_SWITCH = ("lift_protection", "write_rights", "point_of_no_return", "switch_producers", "canary", "retire_topics")
_CONSUMERS = ("stop_consumers", *_GROUPS, "start_consumers", "consumers_joined")
_BACK = ("reverse_flow", "hooks_switched")
_SOAK = ("soak", "hold_after", "checks_after")
_END = ("straggler_watch", "seal")
# With `consumers_last`, producers have moved with an earlier wave: nothing is fenced, and every step can be undone.
# `consumers_joined` is apart from `start_consumers`: joining takes seconds, in which under `fenced` nobody would write.
# With `producers_first`, the reverse flow waits until consumers have moved. Otherwise it would write to the source
# behind the barrier, and consumers would read those records there.
STRATEGY_STEPS: dict[str, tuple[str, ...]] = {
    "consumers_first": (*_BEFORE, *_CONSUMERS, *_SOAK, *_FENCE, *_TAIL, *_SWITCH, *_BACK, *_END),
    "producers_first": (
        *(*_BEFORE, "hold_reverse", *_FENCE, *_TAIL, *_SWITCH, "hooks_switched", "drain_consumers", *_CONSUMERS),
        *("reverse_flow", *_SOAK, *_END),
    ),
    "fenced": (
        *(*_BEFORE, "fence_producers", "stop_consumers", "standstill", "hooks_fenced", *_TAIL, *_GROUPS),
        *("start_consumers", *_SWITCH, *_BACK, "consumers_joined", *_SOAK, *_END),
    ),
    "consumers_last": (*_BEFORE, *_CONSUMERS, *_SOAK, "hooks_switched", "seal"),
}


def list_strategy_steps(policy: WavePolicy, *, rights: bool = False, protected: bool = False) -> tuple[Step, ...]:
    """The steps of a migration with this policy's strategy, without those that its wave does not ask for. rights: its
    flow holds rights to write back until applications move (`AclSync.holds_back`). protected: the target refuses their
    writes until then (`PlanFlow.protect`)."""
    unasked = {name for name, asked in (("write_rights", rights), ("lift_protection", protected)) if not asked}
    return list_named_steps(policy, tuple(name for name in STRATEGY_STEPS[policy.strategy] if name not in unasked))


def list_named_steps(policy: WavePolicy, names: tuple[str, ...]) -> tuple[Step, ...]:
    """These rows, with the bounds that the policy gives them. What cannot be undone behind the point of no return says
    so."""
    rows = {row.name: row for row in _rows(policy)}
    steps = tuple(rows[name] for name in names if name in rows)
    crossed = next((n for n, step in enumerate(steps) if step.point_of_no_return), len(steps))
    return tuple(replace(step, undo=describe_way_back(policy)) if n > crossed else step for n, step in enumerate(steps))


def estimate_write_pause_ms(steps: tuple[Step, ...]) -> int | None:
    """How long producers usually write nowhere: from the fence to the switch. None where producers are not moved."""
    names = [step.name for step in steps]
    if "fence_producers" not in names or "switch_producers" not in names:
        return None
    fenced = steps[names.index("fence_producers") : names.index("switch_producers") + 1]
    return sum(step.usual_ms for step in fenced)


def describe_way_back(policy: WavePolicy) -> str:
    """How a step behind the point of no return is taken back."""
    if policy.reverse is None:
        return "none: behind the point of no return there is no way back without a reverse flow"
    return f"by `topology rollback`: the flow {policy.reverse} carries back what was written since"


def _rows(policy: WavePolicy) -> Iterator[Step]:
    if policy.strategy == "consumers_last":
        told = _describe_late_steps(policy)
        yield from (replace(row, does=told.get(row.name, row.does)) for row in _list_rows(policy))
    else:
        yield from _list_rows(policy)


def _describe_late_steps(policy: WavePolicy) -> dict[str, str]:
    """What steps do for groups that move after their producers, where it is something else."""
    back = policy.reverse
    return {
        "preflight": f"producers have moved, the flow {back} runs, groups and applications are as expected",
        "lag_gate": f"lag of {back} at or below {policy.max_lag} records for {_time(policy.hold_ms)} "
        f"({policy.hold_times} looks in a row), and everything written before the gate carried back",
        "history_proof": f"Spark proves what {back} has carried back so far ({policy.history_level})",
        "translate_offsets": "committed offsets of every group, translated exactly: below the switch by the "
        f"migration's flow, above it by what {back} carried",
    }


def _list_rows(policy: WavePolicy) -> Iterator[Step]:
    yield from _gate_rows(policy)
    yield from _consumer_rows(policy)
    yield from _soak_rows(policy)
    yield from _fence_rows(policy)
    yield from _switch_rows(policy)
    yield from _end_rows(policy)


def _gate_rows(policy: WavePolicy) -> Iterator[Step]:
    yield Step(
        "preflight",
        "clusters answer and are the right ones, topics match, flow runs, groups and applications are as expected",
        "watershed",
        None,
        policy.reach_ms,
    )
    if policy.window is not None:
        yield Step("window", f"the wave's window ({_window(policy.window)}) is open", "watershed", None)
    yield Step(
        "lag_gate",
        f"lag at or below {policy.max_lag} records for {_time(policy.hold_ms)} "
        f"({policy.hold_times} looks in a row), and everything written before the gate copied",
        "watershed",
        None,
        policy.lag_bound_ms,
    )
    yield Step("history_proof", f"Spark proves what was copied so far ({policy.history_level})", "proof", None)
    if policy.hold_before_ms:
        held = f"nothing is done for {_time(policy.hold_before_ms)}: time to look"
        yield Step("hold_before", held, "watershed", None, policy.hold_before_ms + policy.reach_ms)
    if policy.checks_before:
        yield Step("checks_before", f"checks of your own: {', '.join(policy.checks_before)}", "hook", None)
    yield Step("approval", "a person lets the applications be moved; with `auto` nobody is asked", "person", None)
    if policy.hooks.before:
        yield Step("hooks_before", f"hooks: {', '.join(policy.hooks.before)}", "hook", None)


def _consumer_rows(policy: WavePolicy) -> Iterator[Step]:
    if policy.strategy == "producers_first":
        yield Step(
            "drain_consumers",
            "consumers read the source to the barrier",
            "application",
            None,
            policy.drain_bound_ms,
        )
    yield Step(
        "stop_consumers",
        "consumers stop at the source; their groups are seen empty",
        "application",
        "consumers start at the source again",
        policy.empty_bound_ms,
    )
    yield Step(
        "translate_offsets",
        "committed offsets of every group, translated exactly; never beyond what is copied",
        "watershed",
        None,
        policy.copied_bound_ms,
    )
    yield Step(
        "commit_offsets",
        "the target's groups are empty and untouched; translated offsets are committed and read back",
        "watershed",
        "offsets translated back from what was committed on the target, committed at the source; "
        "our offsets on the target removed",
        policy.reach_ms,
    )
    yield Step(
        "landing_test",
        "the record at each committed offset is the same record on both sides",
        "watershed",
        None,
        policy.copied_bound_ms,
    )
    yield Step(
        "start_consumers",
        "consumers start at the target",
        "application",
        "consumers stop at the target; their groups are seen empty",
        policy.reach_ms,
    )
    yield Step(
        "consumers_joined",
        "every group has members at the target",
        "application",
        None,
        policy.empty_bound_ms,
    )


def _soak_rows(policy: WavePolicy) -> Iterator[Step]:
    if policy.hold_after_ms:
        held = f"nothing is done for {_time(policy.hold_after_ms)}: time to look"
        yield Step("hold_after", held, "watershed", None, policy.hold_after_ms + policy.reach_ms)
    if policy.checks_after:
        yield Step("checks_after", f"checks of your own: {', '.join(policy.checks_after)}", "hook", None)
    yield Step("soak", _soak(policy), "person" if policy.soak_approvals else "watershed", None, policy.soak_bound_ms)


def _fence_rows(policy: WavePolicy) -> Iterator[Step]:
    if policy.reverse is not None:
        yield Step(
            "hold_reverse",
            f"the flow {policy.reverse} leaves the wave's topics alone until consumers have moved",
            "watershed",
            f"the flow {policy.reverse} carries them again",
            policy.reach_ms,
        )
    yield Step(
        "fence_producers",
        f"producers stop at the source{_fence(policy.fence)}",
        "application",
        f"{_lowered(policy.fence)}producers start at the source again",
        policy.reach_ms,
        usual_ms=500,
    )
    yield Step(
        "standstill",
        f"source end offsets stand still for {_time(policy.watch_ms)}; a straggler ends the migration",
        "watershed",
        None,
        policy.settle_ms + policy.watch_ms + policy.reach_ms,
        usual_ms=policy.watch_ms,
    )
    if policy.hooks.fenced:
        yield Step("hooks_fenced", f"hooks: {', '.join(policy.hooks.fenced)}", "hook", None, usual_ms=1_000)
    yield Step(
        "barrier",
        "source end offsets are fixed; no transaction is open",
        "watershed",
        None,
        policy.barrier_bound_ms,
    )
    yield Step("drain", "the flow copies through the barrier", "watershed", None, policy.drain_bound_ms, usual_ms=500)
    proven = f"Spark proves everything up to the barrier ({policy.tail_level})"
    yield Step("tail_proof", proven, "proof", None, usual_ms=USUAL_PROOF_MS)


def _switch_rows(policy: WavePolicy) -> Iterator[Step]:
    yield Step(
        "lift_protection",
        "the denials that protected the wave's topics at the target are taken away, and no broker there shows them",
        "watershed",
        "the topics are protected again",
        policy.reach_ms,
        usual_ms=200,
    )
    yield Step(
        "write_rights",
        "rights to write that the flow has held back are given at the target, and every broker there shows them",
        "watershed",
        "exactly those that were given are taken away again",
        policy.reach_ms,
        usual_ms=200,
    )
    yield Step(
        "point_of_no_return",
        "a last look: nothing moved since the barrier. Behind this point nothing is taken back by itself",
        "watershed",
        None,
        policy.reach_ms,
        point_of_no_return=True,
    )
    yield Step(
        "switch_producers",
        "producers start at the target",
        "application",
        None,
        policy.reach_ms,
        usual_ms=500,
    )
    yield Step(
        "canary",
        "the first write on the target is read back; the source's end does not move",
        "watershed",
        None,
        policy.canary_bound_ms,
    )
    yield Step(
        "retire_topics",
        "the flow lets go of the wave's topics, whose target partitions are the applications' now; a flow with nothing "
        "left is stopped",
        "watershed",
        None,
        policy.reach_ms,
    )


def _end_rows(policy: WavePolicy) -> Iterator[Step]:
    if policy.reverse is not None:
        yield Step(
            "reverse_flow",
            f"the flow {policy.reverse} starts: what the target takes from now on is carried back for a rollback",
            "watershed",
            None,
            policy.reach_ms,
        )
    if policy.hooks.switched:
        yield Step("hooks_switched", f"hooks: {', '.join(policy.hooks.switched)}", "hook", None)
    if policy.after_ms:
        yield Step(
            "straggler_watch",
            f"the source is watched for {_time(policy.after_ms)} more: nothing may be written there",
            "watershed",
            None,
            policy.after_ms + policy.reach_ms,
        )
    yield Step(
        "seal",
        "the evidence pack is written",
        "watershed",
        None,
    )


def name_undo_step(step: str) -> str:
    """The name under which a step's undo is journaled."""
    return f"undo_{step}"


def _window(window: WaveWindow) -> str:
    return f"from {window.opens} for {_time(window.length_ms)}"


def _fence(fence: WaveFence) -> str:
    fence_texts = {
        "acl": "; ACLs deny them WRITE on the topics",
        "quota": f"; a quota leaves them {fence.rate} B/s",
        "external": f"; the hook {fence.hook} keeps them out",
    }
    return fence_texts.get(fence.kind, "")


def _lowered(fence: WaveFence) -> str:
    return "" if fence.kind == "stop" else f"the {fence.kind} fence is lowered to exactly what stood there; "


def _soak(policy: WavePolicy) -> str:
    parts = []
    if policy.consumer_lag is not None:
        parts.append(f"groups on the target lag at most {policy.consumer_lag} records")
    parts += [f"approval by {by}" for by in policy.soak_approvals]
    return "; ".join(parts) or "no soak gate declared"


def _time(ms: int) -> str:
    return f"{ms / 60_000:g} min" if ms >= 60_000 else f"{ms / 1000:g} s"
