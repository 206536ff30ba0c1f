"""The steps of a failover behind the promotion: applications get their rights, and start at the target."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import (
    ApplicationRole,
    JsonObject,
    ReadApplication,
    ReadRecords,
    ReadRights,
    ReportMessage,
    Seal,
)
from watershed.cutover.application_steps import require_stopped, tell_to_stop
from watershed.cutover.errors import Refused
from watershed.cutover.failover.loss_steps import list_application_names
from watershed.cutover.failover.source_assessment import DOES_NOT_ANSWER
from watershed.cutover.observations import (
    ObservedApplication,
    ObservedRecords,
    ObservedRights,
    SealedEvidence,
)
from watershed.cutover.offsets import find_offset_changes
from watershed.cutover.polling import ActionGenerator, ConditionCheck, perform_action, wait_for_condition
from watershed.cutover.run_context import RunContext, read_target_logs
from watershed.cutover.withheld_rights_steps import give_missing_rights


def give_remembered_rights(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Step `give_rights`: gives the rights that workers last saw at the source, which may be gone."""
    seen = yield from perform_action(ReadRights(remembered=True), ObservedRights, context.policy)
    outcome.update(asked=seen.asked, known_ms=seen.known_ms)
    if not seen.asked:
        outcome["told"] = f"flow {context.flow.id} holds no rights back (sync.acls.include_write)"
        yield ReportMessage(outcome["told"])
        return
    if seen.known_ms is None:
        raise Refused(
            f"flow {context.flow.id} holds rights to write back until a failover, and nothing is written down of them: "
            "its workers never read them from the source. Give the applications their rights by hand, set "
            "`sync.acls.include_write: never` in the file if that is done, and repeat",
            outcome,
        )
    yield from give_missing_rights(context, outcome, seen)


def stop_applications_at_source(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Applications let go of the dead source. One that does not answer may have gone with it: that is noted, and nobody
    waits for it."""
    policy = replace(context.policy, reach_ms=0)
    outcome["stopped"], outcome["silent"] = {}, {}
    roles: list[tuple[str, ApplicationRole]] = [(name, "producer") for name in context.producers]
    roles += [(name, "consumer") for name in context.groups]
    for name, role in roles:
        if context.outcomes.applications.get(name, "").startswith(DOES_NOT_ANSWER):
            with suppress(Refused):  # it may answer by now, and its replicas are known only before it is stopped
                seen = yield from perform_action(ReadApplication(name, role), ObservedApplication, policy)
                if any(seen.former.get("replicas", {}).values()):
                    outcome.setdefault("former", {})[name] = seen.former
        try:
            seen = yield from tell_to_stop(name, role, "source", policy)
        except Refused as why:
            outcome["silent"][name] = str(why)
            yield ReportMessage(
                f"{role} {name} could not be told to stop, and may have gone with {context.flow.source}: {why}"
            )
            continue
        require_stopped(seen, role)
        outcome["stopped"][name] = seen.by


def check_promoted_canary(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """The first writes on the promoted side are there to be read (redpanda#31659)."""
    policy, before = context.policy, context.outcomes.cut_off_ends
    if not context.producers:
        return
    grown: dict[TopicPartition, int] = {}

    def look() -> ActionGenerator[ConditionCheck]:
        now = yield from read_target_logs(context)
        grown.clear()
        grown.update({place: count for place, count in find_offset_changes(before, now.stable).items() if count > 0})
        text = f"{sum(grown.values())} offsets written on {len(grown)} partitions of {context.flow.target}"
        return ConditionCheck(bool(grown), text, now.at_ms, {"first_writes": {str(p): n for p, n in grown.items()}})

    outcome.update((yield from wait_for_condition(look, policy.canary_bound_ms, policy)).seen)
    read = (
        yield from perform_action(ReadRecords("target", {p: before[p] for p in grown}), ObservedRecords, policy)
    ).records
    unread = [str(place) for place, record in read.items() if record is None]
    if unread:
        raise Refused(f"first writes on {', '.join(unread)} are in the log but cannot be read back", outcome)
    outcome["read_back"] = sorted(str(place) for place in read)


def seal_failover(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Step `seal_failover`: writes the evidence and names the new primary."""
    seen = yield from perform_action(Seal(), SealedEvidence, context.policy)
    outcome.update(evidence=seen.path, root=seen.root, primary=context.flow.target)
    yield ReportMessage(
        f"{context.flow.target} is primary for {list_application_names(context)}. When {context.flow.source} is back: "
        "`topology failback`; until then nothing may write there"
    )
