"""The steps of a rollback behind the point of no return that no migration has: whether the way back is open, the flow
back from the cut, the reverse translation, the fence at the source, and what is written down at the end.

Everything else is a migration's own steps along the flow back: its source is where applications are, its target where
they came from.
"""

from __future__ import annotations

from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import (
    ApplicationRole,
    EndRun,
    ForgetGroup,
    JsonObject,
    ReadClock,
    ReadFlow,
    ReadGroup,
    ReadLogs,
    ReportMessage,
    RetireTopics,
    ServeTopics,
    StartFlow,
)
from watershed.cutover.application_steps import assess_application, start_applications
from watershed.cutover.errors import Refused
from watershed.cutover.fences.fence_steps import check_fence, lower_fence, lower_journaled_fence, raise_fence_again
from watershed.cutover.gates import check_clusters, check_wave_topics
from watershed.cutover.groups.group_preflight import describe_members
from watershed.cutover.groups.offset_return_steps import find_foreign_offsets
from watershed.cutover.hooks.hook_steps import check_hooks
from watershed.cutover.observations import (
    ActionDone,
    ObservedFlow,
    ObservedGroup,
    ObservedLogs,
    ObservedTime,
)
from watershed.cutover.offsets import encode_offsets, render_offsets
from watershed.cutover.polling import ActionGenerator, perform_action
from watershed.cutover.protection_steps import protect_after_return
from watershed.cutover.rollback.following import resume_forward_flow
from watershed.cutover.rollback.stranded_records import find_stranded_records
from watershed.cutover.run_context import RunContext
from watershed.cutover.withheld_rights_steps import take_rights

_Places = dict[TopicPartition, int]


def run_rollback_preflight(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Everything that can be found wrong before a single client is stopped, all of it in one message."""
    earlier, problems = context.run_taken_back, list[str]()
    outcome["takes_back"] = earlier.run
    yield from _still_open(context, problems)
    outcome["clusters"] = yield from check_clusters(context, problems)
    if context.wave.rollback is None or context.wave.rollback.reverse is None:
        yield from _blind(context)
    outcome["partitions"] = yield from check_wave_topics(context, problems)
    context.outcomes["preflight_back"] = outcome  # the partitions are asked for below
    yield from _flow(context, problems)
    outcome["written"] = yield from _written(context, sorted(outcome["partitions"]))
    outcome["groups"] = yield from _groups(context, problems)
    yield from _applications(context, outcome, problems)
    outcome["stranded"] = yield from find_stranded_records(context, problems)
    if not context.wave.is_late:  # late groups inherit the fence of the file and never raise it
        outcome["fence"] = yield from check_fence(context, outcome["partitions"], problems)
    yield from check_hooks(context, problems)
    if problems:
        raise Refused("; ".join(problems), {"problems": problems})


def _still_open(context: RunContext, problems: list[str]) -> ActionGenerator[None]:
    """The file says how long the way back is kept; it counts from the switch."""
    earlier, until_ms = (
        context.run_taken_back,
        context.wave.rollback.until_ms if context.wave.rollback is not None else None,
    )
    if until_ms is None:
        return
    passed_ms = (yield from perform_action(ReadClock(), ObservedTime, context.policy)).wall_ms - earlier.switched_ms
    if passed_ms > until_ms:
        problems.append(
            f"the way back of wave {context.wave.name} was open for {until_ms / 3_600_000:g} h after the switch, which "
            f"was {passed_ms / 3_600_000:.1f} h ago (`rollback.until`): raise it in the file if the logs still hold "
            "everything, and compile"
        )


def _blind(context: RunContext) -> ActionGenerator[None]:
    written = yield from _written(context, None)
    said = context.wave.rollback.none_because if context.wave.rollback is not None else None
    why = f"; the file says `none: {said}`" if said else ""
    raise Refused(
        f"no flow leads back (`rollback.reverse` of wave {context.wave.name}{why}): to switch back now would strand "
        f"{_describe_written(written, context)} at {context.flow.source}. Declare one from {context.flow.source} to "
        f"{context.flow.target}, apply it, and roll back then: it carries them back first",
        {"stranded": written},
    )


def _written(context: RunContext, topics: list[str] | None) -> ActionGenerator[JsonObject]:
    """Offsets behind the cut, by partition: what applications have written since the switch."""
    cut = dict.fromkeys(context.source_places() if topics is not None else (), 0) | context.run_taken_back.outcomes.cut
    wanted = {p: at for p, at in cut.items() if topics is None or p.topic in topics}
    seen = yield from perform_action(ReadLogs("source", tuple(sorted(wanted))), ObservedLogs, context.policy)
    return {str(p): seen.ends[p] - at for p, at in sorted(wanted.items()) if seen.ends[p] > at}


def _describe_written(written: JsonObject, context: RunContext) -> str:
    where = ", ".join(f"{place} {count}" for place, count in written.items())
    return f"{sum(written.values())} records" + (f" ({where})" if where else "")


def _flow(context: RunContext, problems: list[str]) -> ActionGenerator[None]:
    flow = context.flow
    seen = yield from perform_action(ReadFlow(), ObservedFlow, context.policy)
    if seen.state == "missing":
        written = yield from _written(context, None)
        problems.append(
            f"flow {flow.id} is not applied (`topology apply`), so that to switch back now would strand "
            f"{_describe_written(written, context)} at {flow.source}"
        )
    elif not seen.same_plan:
        problems.append(f"flow {flow.id} runs another plan than this file: `topology apply` first")
    for topic in sorted(context.wave.topics):
        if topic in seen.halted_topics:
            problems.append(f"topic {topic}: {seen.halted_topics[topic]}")
        if topic in seen.paused_topics:
            problems.append(seen.paused_topics[topic])


def _groups(context: RunContext, problems: list[str]) -> ActionGenerator[JsonObject]:
    """What each group is, as the migration found it, with what stands at the old source."""
    earlier, flow = context.run_taken_back, context.flow
    found: JsonObject = {}
    for group in context.groups:
        at_source = yield from perform_action(ReadGroup("source", group), ObservedGroup, context.policy)
        at_target = yield from perform_action(ReadGroup("target", group), ObservedGroup, context.policy)
        if at_target.members:
            problems.append(
                f"group {group} is alive at {flow.target} ({describe_members(at_target)}), and was moved to "
                f"{flow.source}: stop "
                "whatever uses this group id there"
            )
        elif other := find_foreign_offsets(earlier, at_target, {}):
            problems.append(
                f"group {group} has offsets at {flow.target} that no run of this migration left there: "
                f"{render_offsets(other)}; "
                "they are not ours to overwrite"
            )
        before = earlier.outcomes["preflight"]
        known: JsonObject = before.get("groups", {}).get(group, {})
        others = sorted(
            {place.topic for place in at_source.list_committed()} - {*context.wave.topics, *at_source.internal}
        )
        if others:
            problems.append(
                f"group {group} reads {', '.join(others)} at {flow.source}, too, which is not in wave "
                f"{context.wave.name} and would not go home with it: give that to another group, or delete its offsets "
                f"of it at {flow.source} (kafka-consumer-groups --delete-offsets)"
            )
        topics: list[str] = list(known["reads"] if "reads" in known else before["partitions"])
        reads = sorted(earlier.flow.target_topic(topic) for topic in topics)
        found[group] = {
            **known,
            "reads": reads,
            "state": at_source.state,
            "members": at_source.members,
            "static": list(at_source.static),
            "offsets": encode_offsets(at_source.offsets),
        }
    return found


def _applications(context: RunContext, outcome: JsonObject, problems: list[str]) -> ActionGenerator[None]:
    outcome["applications"] = {}
    roles: list[tuple[str, ApplicationRole]] = [
        (name, "consumer") for name in (*context.groups, *context.run_taken_back.halted)
    ]
    roles += [(name, "producer") for name in context.producers]
    where = "`topology rollback` in a terminal without --approve auto"
    for name, role in roles:
        seen = yield from assess_application(context, name, role, outcome, problems, where)
        if role == "producer" and seen.state == "running" and seen.cluster == context.flow.target:
            problems.append(
                f"producer {name} runs at {seen.cluster} already: what it writes there stands among what "
                f"{context.flow.source} has taken before it. Stop it"
            )


def start_flow_back(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """The flow back runs, from the cut on: what lies below came from the source. The migration's flow lets go of the
    topics first, as it would at the end of a migration: what comes back is not for it."""
    flow, begin, topics = (
        context.flow,
        encode_offsets(context.run_taken_back.outcomes.cut),
        tuple(sorted(context.wave.topics)),
    )
    home = tuple(sorted(map(context.rename, topics)))
    at_target = yield from perform_action(
        RetireTopics(home, context.run_taken_back.flow.id), ObservedFlow, context.policy
    )
    if at_target.state != "missing" and set(home) - at_target.retired:
        raise Refused(f"flow {context.run_taken_back.flow.id} was to let go of {', '.join(home)} and still copies them")
    yield from perform_action(StartFlow(flow.id, begin), ObservedFlow, context.policy)
    seen = yield from perform_action(ServeTopics(topics), ObservedFlow, context.policy)
    if seen.state != "running" or seen.retired & set(topics):
        raise Refused(f"flow {flow.id} was started and is {seen.state}: something else changes it")
    outcome.update(flow=flow.id, cut=begin)


def lower_migration_fence(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """The migration's fence at the old source comes down, by what stood there before it rose."""
    fence = context.run_taken_back.fence
    if fence is None:
        outcome["lowered"] = "no fence of the migration stands there"
    else:
        yield from lower_journaled_fence(context, outcome, fence, "target")


def undo_lower_migration_fence(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Raises the migration's fence again, from the snapshot of its first raising."""
    fence = context.run_taken_back.fence
    if fence is not None:
        yield from raise_fence_again(context, outcome, fence, "target")


def start_halted_consumers(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Consumers that the migration had stopped at the old source and never moved: their offsets stand there still."""
    yield from start_applications(context, context.run_taken_back.halted, "consumer", "target", outcome)


def end_taken_back_run(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """As before the migration: rights to write that were given where applications have left are taken away, and only
    then our fence there comes down; the run that is taken back, if it was not finished, gives up its lock; and the flow
    there goes on if it may."""
    earlier = context.run_taken_back
    yield from take_rights(context, outcome, earlier.rights, "source")
    yield from lower_fence(context, outcome)
    yield from _forget_groups(context, outcome)
    why = f"behind the point of no return, by `topology rollback`; see the journal for run {{run}} ({earlier.run})"
    if not earlier.state:
        yield from perform_action(EndRun(earlier.run, "rolled_back", why), ActionDone, context.policy)
        outcome["ended"] = earlier.run
    outcome["flow"] = yield from resume_forward_flow(context)
    yield from protect_after_return(context, outcome)
    yield ReportMessage(outcome["flow"])


def forget_left_groups(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Step `forget_groups`, the end of a late group's way back: its producers stay, and so does everything of them."""
    yield from _forget_groups(context, outcome)


def _forget_groups(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Positions that are left where applications have been would be somebody else's to another migration of the wave.
    They are in the journal (`translate_back`). What is alive there again is its owner's, and is told."""
    outcome["forgotten"] = []
    for group in context.groups:
        seen = yield from perform_action(ReadGroup("source", group), ObservedGroup, context.policy)
        if seen.members:
            yield ReportMessage(
                f"group {group} is alive at {context.flow.source} again ({describe_members(seen)}): it stays there"
            )
        elif also := {place.topic for place in seen.list_committed()} - {
            *context.partitions(),
            *context.internal(group),
        }:
            yield ReportMessage(
                f"group {group} stays at {context.flow.source}: it reads {', '.join(sorted(also))} there, too"
            )
        elif seen.kind != "unknown":
            yield from perform_action(ForgetGroup("source", group), ObservedGroup, context.policy)
            outcome["forgotten"].append(group)
