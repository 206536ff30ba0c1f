"""The steps of a failover that give up what was not copied: it is declared, accepted, and made final."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import (
    AskApproval,
    CutOff,
    EndRun,
    JsonObject,
    ProbeCluster,
    ReadFlow,
    ReadLastSeenSource,
    ReportMessage,
)
from watershed.cutover.errors import Refused
from watershed.cutover.failover.loss import FailoverLoss, build_failover_loss
from watershed.cutover.failover.streams_standby import (
    assess_states,
    describe_states,
    read_state_ranges,
    report_states,
    require_whole_states,
)
from watershed.cutover.observations import (
    ActionDone,
    ApprovalAnswer,
    ClusterProbe,
    CutOffResult,
    LastSeenSource,
    ObservedFlow,
)
from watershed.cutover.offsets import encode_offsets
from watershed.cutover.polling import ActionGenerator, ConditionCheck, perform_action, wait_for_condition
from watershed.cutover.run_context import RunContext, read_copies, read_target_logs
from watershed.replicator.ledger.offset_translation import CopiedPartition

_AUTOMATIC: Final = "automatic"  # who approves when nobody was asked (`cutover.driver.approve_all`)
EQUAL_LOOKS_IN_A_ROW: Final = 2  # so often in a row the same is seen


def declare_loss(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """What is missing, once the workers have let go: the same positions at several looks in a row."""
    policy = context.policy
    before: JsonObject = {}

    def look() -> ActionGenerator[ConditionCheck]:
        found, at_ms = yield from _loss(context)
        loss_json = found.to_json()
        same = before.get("partitions") == loss_json["partitions"]
        before.clear()
        before.update(loss_json)
        return ConditionCheck(same, found.describe(), at_ms, loss_json)

    found = yield from wait_for_condition(look, policy.reach_ms, policy, times=EQUAL_LOOKS_IN_A_ROW)
    outcome["loss"] = found.seen
    sight = yield from perform_action(ReadLastSeenSource(context.source_places()), LastSeenSource, policy)
    outcome["states"] = yield from _assess_states(context)
    outcome["told"] = ". ".join((found.text, *describe_states(outcome["states"])))
    outcome["carried"] = {
        group: {"at_ms": sight.carried[group][0], "state": sight.carried[group][1]}
        for group in context.groups
        if group in sight.carried
    }
    yield ReportMessage(f"LOSS: {found.text}", found.seen)
    yield from report_states(context, outcome["states"])


def _assess_states(
    context: RunContext, ends: Mapping[TopicPartition, int] | None = None
) -> ActionGenerator[JsonObject]:
    """Of Streams applications; none may lack state that belongs to its positions. ends: as for `_loss`."""
    states = yield from read_state_ranges(context)
    found = assess_states(states, (yield from _read_copies_to(context, ends))) if states else {}
    require_whole_states(found, context.flow.target)
    return found


def _loss(
    context: RunContext, ends: Mapping[TopicPartition, int] | None = None
) -> ActionGenerator[tuple[FailoverLoss, int]]:
    """ends: of what was copied, by target partition, where something stands behind it: the fence takes an offset."""
    places = context.source_places()
    held = yield from _read_copies_to(context, ends)
    sight = yield from perform_action(ReadLastSeenSource(places), LastSeenSource, context.policy)
    return build_failover_loss(sight.wall_ms, places, held, sight.sights), sight.at_ms


def _read_copies_to(
    context: RunContext, ends: Mapping[TopicPartition, int] | None
) -> ActionGenerator[dict[TopicPartition, CopiedPartition]]:
    held = dict((yield from read_copies(context)).copies)
    for place, each in held.items():
        held[place] = replace(each, target_end=(ends or {}).get(context.at_target(place), each.target_end))
    return held


def accept_loss(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Somebody says yes to these numbers: --accept-loss beforehand, or an approval that shows them."""
    text, loss = context.outcomes["declare_loss"]["told"], context.outcomes["declare_loss"]["loss"]
    most = context.policy.accept_loss
    if most is not None:
        if loss["offsets"] > most:
            raise Refused(f"{text}. That is more than the {most} that were accepted beforehand (--accept-loss)", loss)
        if loss["unseen"] and most < sys.maxsize:
            raise Refused(
                f"{text}. {most} bounds what is known to be missing, and of these partitions nothing is known: repeat "
                "with --accept-loss any, or let a person approve it",
                loss,
            )
        outcome.update(accepted=loss["offsets"], by=f"--accept-loss {'any' if most == sys.maxsize else most}")
        return
    question = (
        f"promote {context.flow.target} for {list_application_names(context)}, and give up what is missing: {text}?"
    )
    evidence: JsonObject = {name: context.outcomes[name] for name in ("source_gone", "declare_loss")}
    evidence["groups"] = context.outcomes["failover_preflight"].get("groups", {})
    if paused := context.outcomes["failover_preflight"].get("paused"):
        evidence["paused"] = paused  # their loss is larger than what was seen of it
    granted = []
    for by in context.policy.approvals or ("operator",):
        seen = yield from perform_action(
            AskApproval("accept_loss", by, question, evidence), ApprovalAnswer, context.policy
        )
        granted.append({"asked": by, "granted": seen.granted, "by": seen.by, "note": seen.note})
        outcome["approvals"] = granted
        if seen.by == _AUTOMATIC:
            raise Refused(
                f"{text}. A loss is never accepted by itself: repeat with --accept-loss RECORDS (at least "
                f"{loss['offsets']}), or let a person approve it",
                outcome,
            )
        if not seen.granted:
            raise Refused(f"{by} did not accept the loss" + (f": {seen.note}" if seen.note else ""), outcome)
    outcome["accepted"] = loss["offsets"]


def promote_target(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """The last look. When this step's outcome is in the journal, nothing is taken back by itself any more."""
    policy, flow = context.policy, context.flow
    state = yield from perform_action(ReadFlow(), ObservedFlow, policy)
    if state.state != "stopped":
        raise Refused(f"flow {flow.id} is {state.state} again: somebody else sets its state; nothing was promoted")
    if not policy.though_source_answers:
        seen = yield from perform_action(ProbeCluster("source"), ClusterProbe, policy)
        if seen.answers:
            raise Refused(f"{flow.source} answers again ({seen.text}): use `topology migrate`, which loses nothing")
    now, _ = yield from _loss(context)
    accepted = context.outcomes["declare_loss"]["loss"]
    if now.offsets > accepted["offsets"]:
        raise Refused(f"more is missing than was accepted: {now.describe()}", now.to_json())
    outcome["loss"] = now.to_json()
    outcome["target_ends"] = encode_offsets((yield from read_target_logs(context)).ends)
    declared = context.wave.rollback
    first = (
        f", once a flow back is declared and applied (the file says `none: {declared.none_because}`)"
        if declared is not None and declared.none_because
        else ""
    )
    yield ReportMessage(
        f"POINT OF NO RETURN: next, {flow.target} is promoted for {list_application_names(context)}. What is "
        f"missing stays at "
        f"{flow.source}, if that ever comes back. The way back: `topology failback`{first}"
    )


def end_unfinished_run(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """A migration that was under way when the source died can neither go on nor be taken back: this takes its place."""
    assert context.earlier is not None, "there is another run"
    why = f"{context.flow.source} was gone: {context.flow.target} was promoted by run {{run}}"
    yield from perform_action(EndRun(context.earlier.run, "abandoned", why), ActionDone, context.policy)
    outcome["ended"] = context.earlier.run


def cut_workers_off(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """No worker can append any more, also one that wakes up later. From here on the copy is final: `copied` is where a
    failback looks for what only the old side has, `target_ends` where the applications' own writes begin."""
    before = context.outcomes.promoted_ends
    seen = yield from perform_action(CutOff(before), CutOffResult, context.policy)
    outcome.update(how=seen.text, epochs=encode_offsets(seen.epochs), source_ids=dict(seen.ids))
    loss, _ = yield from _loss(context, seen.ends)
    logs = yield from read_target_logs(context)
    outcome["loss"] = loss.to_json()
    outcome["states"] = yield from _assess_states(context, seen.ends)
    outcome["copied"] = encode_offsets({each.place: each.copied for each in loss.partitions})
    outcome["target_ends"] = encode_offsets(logs.ends)
    yield ReportMessage(f"the copy is final: {loss.describe()}", outcome["loss"])
    yield from report_states(context, outcome["states"])


def list_application_names(context: RunContext) -> str:
    """Groups and producers of the wave, for messages; the wave's name where it has neither."""
    return ", ".join((*context.groups, *context.producers)) or context.wave.name
