"""The steps that move consumer groups, and their exact inverses. Offsets: `group_start_positions`."""

from __future__ import annotations

from watershed.cutover.actions import (
    ClusterSide,
    JsonObject,
    ReadGroup,
    ReadRecords,
    RecallDeeds,
    ReportMessage,
)
from watershed.cutover.application_steps import restart_applications, start_applications, stop_each_application
from watershed.cutover.errors import Refused
from watershed.cutover.groups.group_preflight import (
    describe_members,
    find_unprocessed_partitions,
    list_pending,
    read_stable_group,
)
from watershed.cutover.groups.group_start_positions import (
    OffsetsByPartition,
    check_landing,
    commit_group_offsets,
    return_group_offsets,
    translate_group_offsets,
)
from watershed.cutover.groups.late_groups import refuse_expired_starts
from watershed.cutover.observations import ObservedGroup, ObservedRecords, RecalledDeeds
from watershed.cutover.offsets import decode_offsets, encode_offsets, render_offsets
from watershed.cutover.polling import ActionGenerator, ConditionCheck, perform_action, wait_for_condition
from watershed.cutover.run_context import RunContext, refuse_new_partitions


def drain_consumers(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Every group has read the source to the barrier: at each partition it committed the end, or nothing follows."""
    policy, ends = context.policy, context.outcomes.barrier
    outcome["groups"] = {}
    for group in context.groups:
        upto = {place: ends[place] for place in context.list_needed_partitions(group)}

        def look(group: str = group, upto: OffsetsByPartition = upto) -> ActionGenerator[ConditionCheck]:
            seen = yield from perform_action(ReadGroup("source", group), ObservedGroup, policy)
            pending = list_pending(seen)  # what it has read is not known before these transactions end
            left = pending or [
                *(yield from _unread(context, group, seen, upto)),
                *(yield from find_unprocessed_partitions(context, group, seen)),
            ]
            text = f"group {group} still reads {', '.join(left)}" if left else f"group {group} has read everything"
            text = f"group {group}: {'; '.join(pending)}" if pending else text
            return ConditionCheck(not left, text, seen.at_ms, {"left": left, "offsets": encode_offsets(seen.offsets)})

        found = yield from wait_for_condition(look, policy.drain_bound_ms, policy)
        outcome["groups"][group] = found.seen["offsets"]


def _unread(
    context: RunContext, group: str, seen: ObservedGroup, upto: OffsetsByPartition
) -> ActionGenerator[list[str]]:
    """Partitions with a record that the group has still to read. Behind the last one may lie markers, and a group that
    begins at the latest record has none of them."""
    latest = context.policy.uncommitted.get(group) == "latest"
    at = {**(upto if latest else dict.fromkeys(upto, 0)), **seen.offsets, **seen.done}
    open_ = {place: at[place] for place, end in upto.items() if at[place] < end}
    if not open_:
        return []
    records = (yield from perform_action(ReadRecords("source", open_), ObservedRecords, context.policy)).records
    return [str(place) for place, record in records.items() if record is not None]


def stop_consumers(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Every application stops, then every group is seen empty several times in a row (C15, C21).

    While producers stand still, too, once is enough: the watch, the drain and the proof lie before the next look
    (`commit_offsets`, which refuses a group that moved), and every second less is one in which somebody writes.
    """
    standing = "fence_producers" in context.outcomes and "standstill" not in context.outcomes
    yield from _stop_all(context, "source", 1 if standing else context.policy.empty_times)
    outcome["groups"] = {}
    for group in context.groups:
        seen = yield from perform_action(ReadGroup("source", group), ObservedGroup, context.policy)
        outcome["groups"][group] = encode_offsets(seen.offsets)


def undo_stop_consumers(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Starts at the source again those that ran there before the run."""
    yield from restart_applications(context, context.readers, "consumer", outcome)


def translate_offsets(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Step `translate_offsets`: target offsets of each group, from copies without holes."""
    if context.cut is None:  # behind it a new partition is the applications' own affair, and the run has to end
        yield from refuse_new_partitions(context)
    outcome["groups"] = {}
    for group in context.groups:
        outcome["groups"][group] = yield from translate_group_offsets(context, group)
        if context.is_late:
            wanted = decode_offsets(outcome["groups"][group]["target"])
            yield from refuse_expired_starts(context, group, wanted)


def commit_offsets(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Step `commit_offsets`: commits each group's target offsets and reads them back."""
    outcome["committed"] = {}
    for group in context.groups:
        outcome["committed"][group] = yield from commit_group_offsets(context, group)


def undo_commit_offsets(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Only groups that this run committed are touched. A commit that was begun and of which nobody knows whether it was
    done counts when the group holds just what was to be committed."""
    outcome["returned"] = {}
    mine: JsonObject = context.outcomes.get("commit_offsets", {}).get("committed", {})
    recalled = yield from perform_action(RecallDeeds("CommitOffsets"), RecalledDeeds, context.policy)
    begun: JsonObject = {deed["group"]: deed["offsets"] for deed in recalled.deeds if deed["side"] == "target"}
    for group in context.groups:
        if group in mine or group in begun:
            given = decode_offsets(mine[group] if group in mine else begun[group])
            returned = yield from return_group_offsets(context, group, given, done=group in mine)
            outcome["returned"][group] = returned


def run_landing_test(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Step `landing_test`: the record at each committed offset is the same on both sides."""
    outcome["groups"] = {}
    for group in context.groups:
        outcome["groups"][group] = yield from check_landing(context, group)


def start_consumers(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """The positions are looked at once more: a consumer that assigns partitions to itself is no member and commits all
    the same. Applications that write, too, start with the producers."""
    for group in context.groups:
        before = context.translated(group).source
        at_source = yield from read_stable_group(context, "source", group)
        settled = context.kind_of(group) != "share"  # brokers move start offsets when they come to it
        if context.cut is None and settled and dict(at_source.offsets) != before:
            raise Refused(
                f"group {group} was at {render_offsets(before)} at {context.flow.source} when it was stopped, and is "
                f"at {render_offsets(at_source.offsets)} now: something still reads there under this group id. Find it "
                f"and stop it"
            )
        yield from _restore_target_offsets(context, group)
    yield from start_applications(context, context.readers, "consumer", "target", outcome)


def _restore_target_offsets(context: RunContext, group: str) -> ActionGenerator[None]:
    """Commits once more where the flow's own group sync has committed since `commit_offsets`. Raises Refused where
    somebody else has.

    A position in a transaction of the sync never counts behind ours (decision 0092). But share groups have none, nor
    have some servers, and some keep another order: there a slow worker may have read the target before our commit, and
    write its older position after it. Its next look finds our position and leaves it alone. A position of the same
    number counts, too, where the worker's mark replaced the text that the application keeps there.
    """
    flow, moved = context.flow, context.translated(group)
    wanted, texts = moved.target, {context.at_target(place) for place in moved.texts}
    seen = yield from read_stable_group(context, "target", group)
    other = [place for place, at in wanted.items() if seen.offsets.get(place) != at or place in texts & seen.kept]
    if seen.members or not other:
        return
    held = {place: seen.offsets[place] for place in other if place in seen.offsets}
    if set(other) - seen.kept:
        raise Refused(
            f"group {group} was committed {render_offsets(wanted)} at {flow.target} and holds "
            f"{render_offsets(seen.offsets)} now: something else commits for this group id. Find it and stop it"
        )
    yield ReportMessage(
        f"group {group}: a slow worker of flow {flow.id} wrote {render_offsets(held)} at {flow.target} after this run "
        f"had committed; the run's offsets {render_offsets(wanted)} are committed again"
    )
    yield from commit_group_offsets(context, group)


def wait_for_consumers(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Step `consumers_joined`: every group that was started has members at the target."""
    outcome["members"] = {}
    for group in context.groups:

        def look(group: str = group) -> ActionGenerator[ConditionCheck]:
            seen = yield from perform_action(ReadGroup("target", group), ObservedGroup, context.policy)
            text = f"group {group} has {seen.members} members at {context.flow.target}"
            return ConditionCheck(seen.members > 0, text, seen.at_ms, {"members": seen.members})

        found = yield from wait_for_condition(look, context.policy.empty_bound_ms, context.policy)
        outcome["members"][group] = found.seen["members"]


def undo_start_consumers(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Stops consumers at the target and waits until their groups are empty."""
    yield from _stop_all(context, "target", context.policy.empty_times)


def _stop_all(context: RunContext, side: ClusterSide, times: int) -> ActionGenerator[None]:
    policy = context.policy
    alias = context.flow.source if side == "source" else context.flow.target
    yield from stop_each_application(context, context.groups, "consumer", side)
    for group in context.groups:

        def look(group: str = group) -> ActionGenerator[ConditionCheck]:
            found = yield from perform_action(ReadGroup(side, group), ObservedGroup, policy)
            text = f"group {group} at {alias} is {found.state} with {describe_members(found)}"
            if found.static:
                text += "; a static member that has stopped keeps its place until its session.timeout.ms is over"
            seen: JsonObject = {"group": group, "members": found.members, "static": list(found.static)}
            return ConditionCheck(found.members == 0, text, found.at_ms, seen)

        bound_ms = policy.empty_ms(group, static=context.is_static(group))
        yield from wait_for_condition(look, bound_ms, policy, times=times)
