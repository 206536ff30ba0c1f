"""The steps of a rollback behind the point of no return, with words that fit: `home` is where applications came from,
`away` where they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from watershed.cutover.migration_step_order import USUAL_PROOF_MS, Step, StepText
from watershed.cutover.policy import WavePolicy

_LATE_ORDER: Final = (
    *("preflight_back", "carry_back", "lag_gate", "history_proof", "approval", "stop_consumers", "translate_back"),
    *("commit_back", "landing_test", "start_consumers", "consumers_joined", "hooks_rolled_back", "forget_groups"),
    "seal",
)


def list_rollback_steps(policy: WavePolicy, away: str, home: str) -> tuple[Step, ...]:
    """The steps in their order. They depend on the policy only, never on the journal: Airflow draws its DAG from the
    file, without a cluster."""
    return (
        *_prepare_rows(policy, away, home),
        *_stop_rows(policy, away),
        *_group_rows(policy, away, home),
        *_switch_rows(policy, away, home),
        *_end_rows(policy, away),
    )


def list_late_rollback_steps(policy: WavePolicy, away: str, home: str) -> tuple[Step, ...]:
    """Of a wave of late groups: only they return. Producers stay at `away`, and the flow back goes on; so nothing is
    fenced, and every step can be undone."""
    rows = {row.name: row for row in list_rollback_steps(policy, away, home)}
    rows["consumers_joined"] = replace(rows["consumers_joined"], undo=None)
    rows["carry_back"] = replace(rows["carry_back"], does="the flow back runs, and carries the wave's topics")
    rows["forget_groups"] = Step(
        "forget_groups",
        f"what stands of the groups at {away} is removed",
        "watershed",
        "with the undo of commit_back",
        policy.reach_ms,
    )
    rows["seal"] = replace(rows["seal"], undo=None)
    if "hooks_rolled_back" in rows:
        rows["hooks_rolled_back"] = replace(rows["hooks_rolled_back"], undo=None)
    return tuple(rows[name] for name in _LATE_ORDER if name in rows)


def list_refusal_steps(policy: WavePolicy, away: str, home: str) -> tuple[Step, ...]:
    """Without a flow back there is nothing to be done but to say what a blind switch would cost."""
    return (next(_prepare_rows(policy, away, home)),)


def _prepare_rows(policy: WavePolicy, away: str, home: str) -> Iterator[Step]:
    yield Step(
        "preflight_back",
        f"the way back is still open; clusters, topics, flow and groups are as the migration left them; nothing was "
        f"written at {home} since",
        "watershed",
        None,
        policy.reach_ms,
    )
    yield Step(
        "carry_back",
        "the flow back runs, from the switch on; the migration's flow lets go of the topics if it had not yet",
        "watershed",
        "none is needed: the flow back goes on, for another attempt",
        policy.reach_ms,
    )
    yield Step(
        "lag_gate",
        f"the flow back is at most {policy.max_lag} records behind ({policy.hold_times} looks in a row)",
        "watershed",
        None,
        policy.lag_bound_ms,
    )
    yield Step("history_proof", f"Spark proves what was carried back so far ({policy.history_level})", "proof", None)
    yield Step("approval", "a person lets the applications be moved back; with `auto` nobody is asked", "person", None)


def _stop_rows(policy: WavePolicy, away: str) -> Iterator[Step]:
    yield Step(
        "fence_producers",
        f"producers stop at {away}",
        "application",
        f"producers start at {away} again",
        policy.reach_ms,
        usual_ms=500,
    )
    yield Step(
        "stop_consumers",
        f"consumers stop at {away}; their groups are seen empty",
        "application",
        f"consumers start at {away} again",
        policy.empty_bound_ms,
    )
    yield Step(
        "standstill",
        f"log ends at {away} stand still for {policy.watch_ms / 1000:g} s; a straggler ends the rollback",
        "watershed",
        None,
        policy.watch_ms + policy.reach_ms,
        usual_ms=policy.watch_ms,
    )
    fixed = f"log ends at {away} are fixed; no transaction is open"
    yield Step("barrier", fixed, "watershed", None, policy.barrier_bound_ms)
    carried = "the flow back copies through the barrier"
    yield Step("drain", carried, "watershed", None, policy.drain_bound_ms, usual_ms=500)
    proven = f"Spark proves everything that was carried back ({policy.tail_level})"
    yield Step("tail_proof", proven, "proof", None, usual_ms=USUAL_PROOF_MS)


def _group_rows(policy: WavePolicy, away: str, home: str) -> Iterator[Step]:
    yield Step(
        "translate_back",
        "offsets of every group, translated back exactly: behind the switch by what the flow back carried, below it by "
        "what the migration's flow did",
        "watershed",
        None,
        policy.copied_bound_ms,
    )
    yield Step(
        "commit_back",
        f"they are committed at {home} in place of the group's old offsets, and read back",
        "watershed",
        f"what groups have read at {home} since counts at {away}; their old offsets stand at {home} again",
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
        "lower_fence_back",
        f"the migration's fence at {home} comes down, to what stood there before it",
        "watershed",
        "the fence rises again",
        policy.reach_ms,
    )
    yield Step(
        "start_consumers",
        f"consumers start at {home}",
        "application",
        f"consumers stop at {home}; their groups are seen empty",
        policy.reach_ms,
    )


def _switch_rows(policy: WavePolicy, away: str, home: str) -> Iterator[Step]:
    yield Step(
        "point_of_no_return",
        f"a last look: nothing moved since the barrier. Behind this point applications are not taken to {away} again "
        "by themselves",
        "watershed",
        None,
        policy.reach_ms,
        point_of_no_return=True,
    )
    on = _describe_way_on(away)
    yield Step("switch_producers", f"producers start at {home}", "application", on, policy.reach_ms, usual_ms=500)
    halted = f"consumers that the migration had stopped and not moved, if any, start at {home}"
    yield Step("start_halted", halted, "application", on, policy.reach_ms)
    read_back = f"the first write at {home} is read back; the log ends at {away} do not move"
    yield Step("canary", read_back, "watershed", on, policy.canary_bound_ms)
    let_go = "the flow back lets go of the wave's topics; with nothing left to carry it is stopped"
    yield Step("retire_topics", let_go, "watershed", on, policy.reach_ms)
    yield Step("consumers_joined", f"every group has members at {home}", "application", on, policy.empty_bound_ms)


def _end_rows(policy: WavePolicy, away: str) -> Iterator[Step]:
    on = _describe_way_on(away)
    if policy.hooks.rolled_back:
        yield Step("hooks_rolled_back", f"hooks: {', '.join(policy.hooks.rolled_back)}", "hook", on)
    if policy.after_ms:
        watched = f"{away} is watched for {policy.after_ms / 1000:g} s more: nothing may be written there"
        yield Step("straggler_watch", watched, "watershed", on, policy.after_ms + policy.reach_ms)
    yield Step(
        "end_migration",
        f"rights to write that were given at {away} are taken away, our fence there comes down, groups there are "
        "forgotten; a migration that had not ended ends, and gives up its lock; its flow copies again",
        "watershed",
        on,
        policy.reach_ms,
    )
    yield Step("seal", "the evidence pack is written", "watershed", on)


def _describe_way_on(away: str) -> str:
    return f"none: to go to {away} again is a new migration"


def build_rollback_texts(away: str, home: str) -> dict[str, StepText]:
    """How the steps are told that a migration has, too."""
    return {
        "lag_gate": StepText("waiting for the flow back to catch up", "the flow back keeps up"),
        "history_proof": StepText("proving what was carried back so far", "proven so far"),
        "fence_producers": StepText(f"stopping producers at {away}", "producers stopped"),
        "undo_fence_producers": StepText(f"starting producers at {away} again", f"producers write to {away}"),
        "stop_consumers": StepText(f"stopping consumers at {away}", "consumers stopped, groups empty"),
        "undo_stop_consumers": StepText(f"starting consumers at {away} again", f"consumers read from {away}"),
        "standstill": StepText(f"watching {away} for stragglers", f"{away} stands still"),
        "barrier": StepText(f"fixing the log ends at {away}", "barrier set"),
        "start_consumers": StepText(f"starting consumers at {home}", "consumers started"),
        "undo_start_consumers": StepText(f"stopping consumers at {home}", f"consumers stopped at {home}"),
        "switch_producers": StepText(f"starting producers at {home}", f"producers write to {home}"),
        "canary": StepText(f"waiting for the first write at {home}", "first write read back"),
        "retire_topics": StepText("taking the wave's topics off the flow back", "the flow back has let go of them"),
        "straggler_watch": StepText(f"watching {away} for stragglers", f"nothing was written to {away}"),
    }
