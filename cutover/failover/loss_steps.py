"""The steps of a failover that give up what was not copied: it is declared, accepted, and made final."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from clusters.topic_partition import TopicPartition
from cutover.actions import (
    AskApproval,
    CutOff,
    EndRun,
    JsonObject,
    ProbeCluster,
    ReadFlow,
    ReadLastSeenSource,
    ReportMessage,
)
from cutover.errors import Refused
from cutover.failover.loss import FailoverLoss, build_failover_loss
from cutover.observations import (
    ActionDone,
    ApprovalAnswer,
    ClusterProbe,
    CutOffResult,
    LastSeenSource,
    ObservedFlow,
)
from cutover.offsets import encode_offsets
from cutover.polling import ActionGenerator, ConditionCheck, perform_action, wait_for_condition
from cutover.run_context import RunContext, read_copies, read_target_logs

_AUTOMATIC: Final = "automatic"  # who approves when nobody was asked (`cutover.driver.approve_all`)
EQUAL_LOOKS_IN_A_ROW: Final = 2  # so often in a row the same is seen


def declare_loss(ground: RunContext, note: JsonObject) -> ActionGenerator[None]:
    """What is missing, once the workers have let go: the same positions at several looks in a row."""
    policy = ground.policy
    before: JsonObject = {}

    def look() -> ActionGenerator[ConditionCheck]:
        found, at_ms = yield from _loss(ground)
        told = found.to_json()
        same = before.get("partitions") == told["partitions"]
        before.clear()
        before.update(told)
        return ConditionCheck(same, found.told(), at_ms, told)

    found = yield from wait_for_condition(look, policy.reach_ms, policy, times=EQUAL_LOOKS_IN_A_ROW)
    note["loss"] = found.seen
    note["told"] = found.text
    sight = yield from perform_action(ReadLastSeenSource(ground.source_places()), LastSeenSource, policy)
    note["carried"] = {
        group: {"at_ms": sight.carried[group][0], "state": sight.carried[group][1]}
        for group in ground.groups
        if group in sight.carried
    }
    yield ReportMessage(f"LOSS: {found.text}", found.seen)


def _loss(
    ground: RunContext, ends: Mapping[TopicPartition, int] | None = None
) -> ActionGenerator[tuple[FailoverLoss, int]]:
    """ends: of what was copied, by target partition, where something stands behind it: the fence takes an offset."""
    places = ground.source_places()
    held = dict((yield from read_copies(ground)).copies)
    for place, each in held.items():
        held[place] = replace(each, target_end=(ends or {}).get(ground.at_target(place), each.target_end))
    sight = yield from perform_action(ReadLastSeenSource(places), LastSeenSource, ground.policy)
    return build_failover_loss(sight.wall_ms, places, held, sight.sights), sight.at_ms


def accept_loss(ground: RunContext, note: JsonObject) -> ActionGenerator[None]:
    """Somebody says yes to these numbers: --accept-loss beforehand, or an approval that shows them."""
    told, loss = ground.outcomes["declare_loss"]["told"], ground.outcomes["declare_loss"]["loss"]
    most = ground.policy.accept_loss
    if most is not None:
        if loss["offsets"] > most:
            raise Refused(f"{told}. That is more than the {most} that were accepted beforehand (--accept-loss)", loss)
        if loss["unseen"] and most < sys.maxsize:
            raise Refused(
                f"{told}. {most} bounds what is known to be missing, and of these partitions nothing is known: repeat "
                "with --accept-loss any, or let a person approve it",
                loss,
            )
        note.update(accepted=loss["offsets"], by=f"--accept-loss {'any' if most == sys.maxsize else most}")
        return
    question = (
        f"promote {ground.flow.target} for {list_application_names(ground)}, and give up what is missing: {told}?"
    )
    evidence: JsonObject = {name: ground.outcomes[name] for name in ("source_gone", "declare_loss")}
    evidence["groups"] = ground.outcomes["failover_preflight"].get("groups", {})
    granted = []
    for by in ground.policy.approvals or ("operator",):
        seen = yield from perform_action(
            AskApproval("accept_loss", by, question, evidence), ApprovalAnswer, ground.policy
        )
        granted.append({"asked": by, "granted": seen.granted, "by": seen.by, "note": seen.note})
        note["approvals"] = granted
        if seen.by == _AUTOMATIC:
            raise Refused(
                f"{told}. A loss is never accepted by itself: repeat with --accept-loss RECORDS (at least "
                f"{loss['offsets']}), or let a person approve it",
                note,
            )
        if not seen.granted:
            raise Refused(f"{by} did not accept the loss" + (f": {seen.note}" if seen.note else ""), note)
    note["accepted"] = loss["offsets"]


def promote_target(ground: RunContext, note: JsonObject) -> ActionGenerator[None]:
    """The last look. When this step's outcome is in the journal, nothing is taken back by itself any more."""
    policy, flow = ground.policy, ground.flow
    state = yield from perform_action(ReadFlow(), ObservedFlow, policy)
    if state.state != "stopped":
        raise Refused(f"flow {flow.id} is {state.state} again: somebody else sets its state; nothing was promoted")
    if not policy.though_source_answers:
        seen = yield from perform_action(ProbeCluster("source"), ClusterProbe, policy)
        if seen.answers:
            raise Refused(f"{flow.source} answers again ({seen.told}): use `topology migrate`, which loses nothing")
    now, _ = yield from _loss(ground)
    accepted = ground.outcomes["declare_loss"]["loss"]
    if now.offsets > accepted["offsets"]:
        raise Refused(f"more is missing than was accepted: {now.told()}", now.to_json())
    note["loss"] = now.to_json()
    note["target_ends"] = encode_offsets((yield from read_target_logs(ground)).ends)
    yield ReportMessage(
        f"POINT OF NO RETURN: next, {flow.target} is promoted for {list_application_names(ground)}. What is "
        f"missing stays at "
        f"{flow.source}, if that ever comes back. The way back: `topology failback`"
    )


def end_unfinished_run(ground: RunContext, note: JsonObject) -> ActionGenerator[None]:
    """A migration that was under way when the source died can neither go on nor be taken back: this takes its place."""
    assert ground.earlier is not None, "there is another run"
    why = f"{ground.flow.source} was gone: {ground.flow.target} was promoted by run {{run}}"
    yield from perform_action(EndRun(ground.earlier.run, "abandoned", why), ActionDone, ground.policy)
    note["ended"] = ground.earlier.run


def cut_workers_off(ground: RunContext, note: JsonObject) -> ActionGenerator[None]:
    """No worker can append any more, also one that wakes up later. From here on the copy is final: `copied` is where a
    failback looks for what only the old side has, `target_ends` where the applications' own writes begin."""
    before = ground.offsets("promote", "target_ends")
    seen = yield from perform_action(CutOff(before), CutOffResult, ground.policy)
    note.update(how=seen.told, epochs=encode_offsets(seen.epochs), source_ids=dict(seen.ids))
    loss, _ = yield from _loss(ground, seen.ends)
    logs = yield from read_target_logs(ground)
    note["loss"] = loss.to_json()
    note["copied"] = encode_offsets({each.place: each.copied for each in loss.partitions})
    note["target_ends"] = encode_offsets(logs.ends)
    yield ReportMessage(f"the copy is final: {loss.told()}", note["loss"])


def list_application_names(ground: RunContext) -> str:
    return ", ".join((*ground.groups, *ground.producers)) or ground.wave.name
