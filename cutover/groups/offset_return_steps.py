"""Translates and commits the offsets at which groups go on at the old source. The undo keeps the groups at the flow's
source, the cluster to which the earlier run moved them."""

from __future__ import annotations

from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import ForgetGroup, JsonObject, ReadCopies, ReadGroup, RecallDeeds, ReportMessage
from watershed.cutover.errors import Refused
from watershed.cutover.groups.group_preflight import commit_positions, describe_members, list_pending, read_stable_group
from watershed.cutover.groups.group_start_positions import refuse_unmovable_progress
from watershed.cutover.groups.histories import build_switchover_maps
from watershed.cutover.observations import ObservedCopies, ObservedGroup, RecalledDeeds
from watershed.cutover.offsets import encode_offsets, render_offsets
from watershed.cutover.polling import ActionGenerator, ConditionCheck, perform_action, wait_for_condition
from watershed.cutover.rollback.earlier_run import EarlierRun
from watershed.cutover.rollback.stranded_records import find_reread_offsets, find_stranded_offsets
from watershed.cutover.run_context import RunContext, read_copies, read_target_logs
from watershed.replicator.errors import ReplicatorError
from watershed.replicator.ledger.offset_translation import Offsets
from watershed.replicator.ledger.switchover_map import SwitchoverMap, translate_returning_group

_Places = dict[TopicPartition, int]


def translate_offsets_back(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Finds where each group goes on at the old source. The map of the reverse flow translates offsets above the cut,
    the map of the migration's flow those below it. A group waits until all that it has read is carried back."""
    outcome["groups"] = {}
    stranded = yield from find_stranded_offsets(context)
    for group in context.groups:
        yield from _translate(context, group, stranded, outcome)


def _translate(
    context: RunContext, group: str, stranded: dict[TopicPartition, list[int]], outcome: JsonObject
) -> ActionGenerator[None]:
    policy, earlier = context.policy, context.run_taken_back
    pairs = tuple((context.at_target(place), place) for place in context.list_needed_partitions(group))
    last: dict[str, _Places] = {}

    def look() -> ActionGenerator[ConditionCheck]:
        seen = yield from perform_action(ReadGroup("source", group), ObservedGroup, policy)
        if seen.members:
            raise Refused(f"group {group} is alive at {context.flow.source} again ({describe_members(seen)})")
        at_target = yield from perform_action(ReadGroup("target", group), ObservedGroup, policy)
        if pending := [*list_pending(seen), *([] if at_target.members else list_pending(at_target))]:
            return ConditionCheck(False, f"group {group}: {'; '.join(pending)}", seen.at_ms, {"ahead": pending})
        logs = yield from read_target_logs(context)
        crossings = yield from _crossings(context)
        moved = earlier.translated(group)
        given, before = (moved.target, moved.source) if moved is not None else ({}, {})
        # In a partition that was added after the switch, a group without a commit has read nothing.
        added = {place: 0 for _, place in pairs if place not in earlier.outcomes.cut}
        at = {**added, **seen.offsets, **seen.done}
        try:
            found = translate_returning_group(
                at, given, before, crossings, pairs, policy.uncommitted.get(group), logs.starts
            )
        except ReplicatorError as error:
            raise Refused(f"group {group} cannot be translated back: {error}") from None
        if found.silent:
            raise Refused(
                f"group {group} never committed {', '.join(map(str, found.silent))} on either side, and the file "
                "declares no policy for it: nobody but its owner knows where it should begin"
            )
        gone = {place: at for place, at in found.offsets.items() if at < logs.starts[place]}
        if gone:
            raise Refused(
                f"group {group} would go on at {render_offsets(gone)} at {context.flow.target}, but the log there "
                f"begins behind these offsets: first let the group read on at {context.flow.source}",
                {"expired": encode_offsets(gone)},
            )
        yield from refuse_unmovable_progress(context, group, seen)
        last.update(committed=dict(seen.offsets), reached=at, found=dict(at_target.offsets), back=found.offsets)
        waiting = [str(each) for each in found.ahead]
        text = f"group {group}: {'; '.join(waiting) or 'everything it has read is carried back'}"
        return ConditionCheck(not waiting, text, seen.at_ms, {"ahead": waiting})

    yield from wait_for_condition(look, policy.copied_bound_ms, policy)
    committed, reached, back = last["committed"], last["reached"], last["back"]
    again = find_reread_offsets(context, group, back, stranded)
    # The landing test compares the offsets in `from`. Where a group reads again on purpose, no record can match.
    landing = {
        at_target: reached[at_target]
        for at_source, at_target in pairs
        if at_target in reached and at_source not in again
    }
    outcome["groups"][group] = {
        "source": encode_offsets(committed),
        "from": encode_offsets(landing),
        "target": encode_offsets(back | again),
        "found": encode_offsets(last["found"]),
    }
    if again:
        outcome["groups"][group]["read_again"] = {str(place): back[place] - at for place, at in again.items()}
    yield ReportMessage(
        f"group {group}: {render_offsets(committed)} → {render_offsets(back | again)}", outcome["groups"][group]
    )


def _crossings(context: RunContext) -> ActionGenerator[dict[TopicPartition, SwitchoverMap]]:
    """The maps of both flows across the switch, by partition of the old source."""
    earlier = context.run_taken_back
    pairs = [(context.at_target(place), place) for place in context.source_places()]
    old_places = tuple(old for old, _ in pairs)
    forward = (
        yield from perform_action(ReadCopies(old_places, earlier.flow.id), ObservedCopies, context.policy)
    ).copies
    back = (yield from read_copies(context)).copies
    return build_switchover_maps(earlier.flow.id, earlier.outcomes, pairs, forward, back)


def commit_offsets_back(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Compare-and-set. A group's offsets at the old source must be known: a run of this wave found or committed them,
    or the flow synced them. Other offsets are somebody else's, and the step refuses them."""
    outcome["committed"] = {}
    for group in context.groups:
        moved = context.translated(group)
        wanted, held = moved.target, moved.source
        at_source = yield from read_stable_group(context, "source", group)
        if at_source.members or dict(at_source.offsets) != held:
            raise Refused(
                f"group {group} moved at {context.flow.source} after it was stopped ({describe_members(at_source)}, "
                f"committed "
                f"{render_offsets(at_source.offsets)}, was {render_offsets(held)}): something else uses this group id"
            )
        at_target = yield from read_stable_group(context, "target", group)
        if at_target.members:
            raise Refused(
                f"group {group} is alive at {context.flow.target} ({describe_members(at_target)}): a live group is "
                f"never reset; "
                "stop whatever uses this group id there"
            )
        if other := find_foreign_offsets(context.run_taken_back, at_target, wanted):
            raise Refused(f"group {group} has other offsets at {context.flow.target} already: {render_offsets(other)}")
        texts = {
            context.at_target(place): text
            for place, text in at_source.texts.items()
            if context.kind_of(group) == "streams"
        }
        if any(at_target.offsets.get(place) != at for place, at in wanted.items()):
            at_target = yield from commit_positions(context, "target", group, wanted, texts, context.kind_of(group))
        if any(at_target.offsets.get(place) != at for place, at in wanted.items()):
            raise Refused(
                f"group {group}: committed {render_offsets(wanted)}, read back {render_offsets(at_target.offsets)}"
            )
        outcome["committed"][group] = encode_offsets(wanted)


def undo_commit_offsets_back(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Applications stay at the flow's source. What a group has read at the old source meanwhile counts as read at the
    flow's source. The group's offsets at the old source become again what this run found there."""
    outcome["returned"] = {}
    recalled = yield from perform_action(RecallDeeds("CommitOffsets"), RecalledDeeds, context.policy)
    begun = {deed["group"] for deed in recalled.deeds if deed["side"] == "target"}
    begun |= set(context.outcomes.get("commit_back", {}).get("committed", {}))  # found there just so: no deed
    for group in context.groups:
        if group in begun:
            outcome["returned"][group] = yield from _stay(context, group)


def _stay(context: RunContext, group: str) -> ActionGenerator[JsonObject]:
    moved, kind = context.translated(group), context.kind_of(group)
    at_source = yield from read_stable_group(context, "source", group)
    at_target = yield from read_stable_group(context, "target", group)
    if at_source.members or at_target.members:
        raise Refused(
            f"group {group} is alive ({describe_members(at_source)} at {context.flow.source}, "
            f"{describe_members(at_target)} at {context.flow.target}); its offsets cannot be taken back. "
            "Stop it, then run again with --resume"
        )
    read = yield from _read_since(context, group, moved.target, at_target.offsets, at_source.offsets)
    gone = {place: at for place, at in moved.source.items() if place not in at_source.offsets}  # by `forget_groups`
    if read or gone:
        yield from commit_positions(context, "source", group, gone | read, {}, kind)
    before = moved.found
    assert before is not None, "the step that translates back notes what it found"
    if not before and at_target.offsets:
        yield from perform_action(ForgetGroup("target", group), ObservedGroup, context.policy)
    elif any(at_target.offsets.get(place) != at for place, at in before.items()):
        yield from commit_positions(context, "target", group, before, {}, kind)
    yield ReportMessage(
        f"group {group} goes on at {context.flow.source}: {render_offsets({**at_source.offsets, **read})}"
    )
    return {"read": encode_offsets(at_target.offsets), "source": encode_offsets(read)}


def _read_since(
    context: RunContext, group: str, given: _Places, now: Offsets, held: Offsets
) -> ActionGenerator[_Places]:
    """Positions at the flow's source, from what the group has read at the old source since this run moved it."""
    crossings = yield from _crossings(context)
    read: _Places = {}
    for place in context.list_needed_partitions(group):
        old = context.at_target(place)
        if old in given and now.get(old, given[old]) > given[old]:
            at = crossings[old].to_target(now[old])
            if at > held.get(place, -1):
                read[place] = at
    return read


def find_foreign_offsets(earlier: EarlierRun, seen: ObservedGroup, wanted: _Places) -> _Places:
    """Offsets at the old source of unknown origin: no run of this wave found or committed them, and the flow did not
    sync them. Offsets that this run commits anyway are left out."""
    if earlier.unseen:
        return {}
    known = (wanted, *earlier.ours.get(seen.group, ()))
    return {place: at for place, at in seen.others().items() if all(each.get(place) != at for each in known)}
