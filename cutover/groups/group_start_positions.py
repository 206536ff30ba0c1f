"""Where each group goes on: its positions at the source become positions at the target, are committed there, looked at,
and taken back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import ForgetGroup, JsonObject, ReadGroup, ReadRecords, ReportMessage
from watershed.cutover.errors import Refused
from watershed.cutover.groups.group_preflight import (
    commit_positions,
    describe_members,
    find_unprocessed_partitions,
    is_kind_conflict,
    list_pending,
    read_stable_group,
)
from watershed.cutover.groups.histories import read_copies_without_holes
from watershed.cutover.groups.late_groups import find_unsettled_positions, wait_until_carried_back
from watershed.cutover.observations import ObservedGroup, ObservedRecords
from watershed.cutover.offsets import decode_offsets, encode_offsets, render_offsets
from watershed.cutover.polling import ActionGenerator, ConditionCheck, perform_action, wait_for_condition
from watershed.cutover.run_context import RunContext, read_source_logs, read_target_logs
from watershed.replicator.ledger.offset_translation import CopiedPartition, translate_group, translate_group_back

OffsetsByPartition = dict[TopicPartition, int]


def translate_group_offsets(context: RunContext, group: str) -> ActionGenerator[JsonObject]:
    """Exact translation of what the source holds now. Waits for the copy to pass a commit, never guesses (C16, C17).

    → source: what is committed there; from: where the group goes on at the source, also in partitions that it never
    committed; target: where at the target; texts: partitions whose text goes along; again: offsets that a share group
    gets again."""
    policy = context.policy
    begins: OffsetsByPartition = {}  # fixed by the first look: the log's end moves on while we wait for the copy
    ends: OffsetsByPartition = {}
    result: JsonObject = {}

    def look() -> ActionGenerator[ConditionCheck]:
        seen = yield from perform_action(ReadGroup("source", group), ObservedGroup, policy)
        if seen.members:
            raise Refused(f"group {group} is alive at {context.flow.source} again ({describe_members(seen)})")
        logs = yield from read_source_logs(context)
        held = yield from read_copies_without_holes(context)
        reads = _reads_now(context, group, seen)
        wanted = [place for place in reads if place not in seen.unstable]
        for place in wanted:
            ends.setdefault(place, logs.stable[place])
            if place not in seen.offsets and policy.uncommitted.get(group) is not None:
                earliest = policy.uncommitted[group] == "earliest"
                begins.setdefault(place, logs.starts[place] if earliest else ends[place])
        if pending := list_pending(seen):
            return ConditionCheck(False, f"group {group}: {'; '.join(pending)}", seen.at_ms, {"ahead": pending})
        at = {**begins, **seen.offsets, **seen.done}
        found = translate_group(at, wanted, held, context.rename, logs.starts, logs.stable)
        if found.uncommitted:
            names = ", ".join(str(place) for place in found.uncommitted)
            raise Refused(
                f"group {group} never committed {names} at {context.flow.source}, and the file declares no policy for "
                "it: nobody but its owner knows whether it should begin at the earliest or the latest record "
                f"(migration.groups.{group}.uncommitted)"
            )
        waiting = [str(place) for place in found.ahead]
        if context.is_late:
            waiting += yield from find_unsettled_positions(context, group, at, held, logs)
        if waiting and context.cut is not None:
            raise Refused(
                f"group {group} read beyond the barrier at {context.flow.source} ({'; '.join(waiting)}): records were "
                f"written there after the fence, and are not at {context.flow.target}. Find their producer and stop it",
                {"ahead": waiting},
            )
        sync_texts = {place: seen.texts[place] for place in wanted if place in seen.texts}
        waiting += _texts_waiting(sync_texts, ends, held)
        texts = [place for place in sync_texts if _same_distances(context, group, place, at[place], ends[place], held)]
        yield from refuse_unmovable_progress(context, group, seen)
        result.update(
            source=encode_offsets(seen.offsets),
            target=encode_offsets(found.offsets),
            kind=context.kind_of(group),
            texts=encode_offsets({place: len(sync_texts[place]) for place in texts}),
            texts_left=[str(place) for place in sync_texts if place not in texts],
            again=encode_offsets({place: count for place, count in seen.again.items() if place in wanted}),
        )
        result["from"] = encode_offsets({place: at[place] for place in wanted if place in at})
        text = f"group {group}: {'; '.join(waiting) or 'every commit is copied'}"
        return ConditionCheck(not waiting, text, seen.at_ms, {"ahead": waiting})

    yield from wait_for_condition(look, policy.copied_bound_ms, policy)
    yield ReportMessage(
        f"group {group}: {render_offsets(decode_offsets(result['source']))} → "
        f"{render_offsets(decode_offsets(result['target']))}",
        result,
    )
    for text in _list_warnings(group, result):
        yield ReportMessage(text)
    return result


def _reads_now(context: RunContext, group: str, seen: ObservedGroup) -> list[TopicPartition]:
    """What preflight found, and what the group has taken up since: approvals and holds may take days. Raises Refused
    for a topic that is not in the wave, or a new partition."""
    known, mine = set(context.list_needed_partitions(group)), set(context.source_places())
    internal = set(context.internal(group))
    taken_up = {place for place in seen.offsets if place not in known and place.topic not in internal}
    if others := sorted(taken_up - mine):
        named = ", ".join(map(str, others))
        raise Refused(
            f"group {group} has begun to read {named} since this run began, which it would not go on with at "
            f"{context.flow.target}: a group moves as a whole. A new run looks at it again; if it reads that no more, "
            f"delete its offsets of it at {context.flow.source} (kafka-consumer-groups --delete-offsets)",
            {"taken_up": [str(place) for place in others]},
        )
    return sorted(known | taken_up)


def _at_end(at: int, cut: int | None, end: int, record: str | None) -> bool:
    """Whether nothing is left to be read at the target, either; behind our last record may lie a transaction's end."""
    return record is None and at <= end if cut is None else at == cut


def _list_warnings(group: str, result: JsonObject) -> Iterator[str]:
    if result["texts_left"]:
        yield (
            f"group {group} keeps text beside its offsets of {', '.join(result['texts_left'])}, which stays behind: it "
            "may count offsets, and behind these positions they lie at other distances at the target"
        )
    again = decode_offsets(result["again"])
    if again:
        yield f"group {group} is delivered at most {sum(again.values())} records again ({render_offsets(again)})"


def refuse_unmovable_progress(context: RunContext, group: str, seen: ObservedGroup) -> ActionGenerator[None]:
    """Raises Refused for what the group has done, or has still to do, and that its positions do not tell."""
    again = {place: count for place, count in seen.again.items() if place in set(context.list_needed_partitions(group))}
    if again and group not in context.policy.redelivery:
        raise Refused(
            f"share group {group} is done with {sum(again.values())} offsets behind its start offsets "
            f"({render_offsets(again)}), which would be delivered again: accept that "
            f"(migration.groups.{group}.redelivery: "
            "accept), or let its consumers read everything first",
            {"again": encode_offsets(again)},
        )
    left = yield from find_unprocessed_partitions(context, group, seen)
    if left:
        raise Refused(
            f"Streams application {group} has records in {', '.join(left)} that it has not processed; these topics "
            "are not moved, so the records would be lost. Let it run until they are processed (strategy: "
            "producers_first), or put them into the wave",
            {"unprocessed": left},
        )


def _texts_waiting(
    sync_texts: Mapping[TopicPartition, str], ends: OffsetsByPartition, held: Mapping[TopicPartition, CopiedPartition]
) -> Iterator[str]:
    """A text may speak of anything that could be read when its group stopped, so all of that has to be copied."""
    for place in sorted(sync_texts):
        copied = held[place].position if place in held and held[place].map.runs else 0
        if copied < ends[place]:
            yield f"{place} has text beside its offset, and is copied through {copied} of {ends[place]}"


def _same_distances(
    context: RunContext,
    group: str,
    place: TopicPartition,
    at: int,
    end: int,
    held: Mapping[TopicPartition, CopiedPartition],
) -> bool:
    """Whether a text that counts offsets from the position on (the Parallel Consumer's bitmap of what is done with)
    means the same at the target. Streams keeps a time there, which always does."""
    if context.kind_of(group) == "streams":
        return True
    return place in held and not any(at < run.source < end for run in held[place].map.runs)


def commit_group_offsets(context: RunContext, group: str) -> ActionGenerator[JsonObject]:
    """Compare-and-set: the target's group must be empty and hold nothing, or what `sync.groups` of the flow carried
    there, or just what we would commit (C14, C18). → what was committed"""
    moved = context.translated(group)
    wanted, before, kind = moved.target, moved.source, moved.kind
    at_source = yield from read_stable_group(context, "source", group)
    if at_source.members or dict(at_source.offsets) != before:
        raise Refused(
            f"group {group} moved at {context.flow.source} after it was stopped ({describe_members(at_source)}, "
            f"committed {render_offsets(at_source.offsets)}, was {render_offsets(before)}): something else uses this "
            f"group id"
        )
    at_target = yield from read_stable_group(context, "target", group)
    if at_target.members:
        raise Refused(
            f"group {group} is alive at {context.flow.target} ({describe_members(at_target)}): a live group is never "
            f"reset; stop "
            "whatever uses this group id there"
        )
    if is_kind_conflict(kind, at_target.kind):
        raise Refused(f"group {group} is a {at_target.kind} group at {context.flow.target}, and a {kind} group here")
    other = {place: at for place, at in at_target.others().items() if wanted.get(place) != at}
    if other:
        raise Refused(f"group {group} has other offsets at {context.flow.target} already: {render_offsets(other)}")
    texts = {context.at_target(place): at_source.texts.get(place, "") for place in moved.texts}
    if dict(at_target.offsets) != wanted or dict(at_target.texts) != texts:
        at_target = yield from commit_positions(context, "target", group, wanted, texts, kind)
    read = {place: at_target.offsets.get(place) for place in wanted}
    if read != wanted or {place: at_target.texts.get(place, "") for place in texts} != texts:
        raise Refused(
            f"group {group}: committed {render_offsets(wanted)}, read back {render_offsets(at_target.offsets)}"
        )
    return encode_offsets(wanted)


def return_group_offsets(
    context: RunContext, group: str, given: OffsetsByPartition, *, done: bool
) -> ActionGenerator[JsonObject | None]:
    """The group goes on at the source with what it reached on the target; what we committed there is removed. → where
    it stood and stands, None where nothing was ours.

    given: what was to be committed; done: whether it is known to have been. Only empty groups are touched, and only
    when their positions are known on both sides.
    """
    at_target = yield from read_stable_group(context, "target", group)
    at_source = yield from read_stable_group(context, "source", group)
    if not done and any(given.get(place) != at for place, at in at_target.offsets.items()):
        yield ReportMessage(
            f"group {group} holds other offsets at {context.flow.target}, which are not ours: they stay"
        )
        return None
    if not done and not at_target.offsets:
        return None  # the commit never came to pass
    if at_target.members or at_source.members:
        raise Refused(
            f"group {group} is alive ({at_target.members} members at {context.flow.target}, {at_source.members} at "
            f"{context.flow.source}: {', '.join((*at_target.who, *at_source.who))}); its offsets cannot be taken back. "
            "Stop it, then run again with --resume"
        )
    if not at_target.offsets:
        return None
    moved = context.translated(group)
    kind = moved.kind
    reached = at_target.offsets if kind == "share" else at_target.others()
    before = moved.source
    if context.is_late:
        back = yield from wait_until_carried_back(context, group, reached, given)
    else:
        held = yield from read_copies_without_holes(context, tuple(_added(context, at_target.offsets)))
        back = translate_group_back(reached, given, before, held, context.rename)
    for place, at in at_source.offsets.items():  # somebody has read on there under this group id: that counts, too
        if place in back and at > back[place] and at != before.get(place):
            back[place] = at
    changed = {place: at for place, at in back.items() if at_source.offsets.get(place) != at}
    if changed:  # the others keep what stands beside them: texts, and what a share group has done out of order
        yield from commit_positions(context, "source", group, changed, {}, kind)
    yield from perform_action(ForgetGroup("target", group), ObservedGroup, context.policy)
    returned: JsonObject = {"target": encode_offsets(at_target.offsets), "source": encode_offsets(back)}
    yield ReportMessage(f"group {group}: {render_offsets(at_target.offsets)} → {render_offsets(back)}", returned)
    return returned


def _added(context: RunContext, reached: Mapping[TopicPartition, int]) -> Iterator[TopicPartition]:
    """Source partitions that did not exist when the run began, and in which the group has read at the target since."""
    known = {context.rename(topic): (topic, count) for topic, count in context.partitions().items()}
    for at_target in sorted(reached):
        topic, count = known.get(at_target.topic, ("", 0))
        if topic and at_target.partition >= count:
            yield TopicPartition(topic, at_target.partition)


def check_landing(context: RunContext, group: str) -> ActionGenerator[JsonObject]:
    """The next record that the group sees is the same on both sides; at the log's end, nothing is left on either (C19).

    Producers may still write. No record yet: read again. Two different records: refuse at once. After the switch, a
    group that has read everything lands on the first record that producers wrote to the target.
    """
    policy, cut, moved = context.policy, context.cut or {}, context.translated(group)
    target = moved.target
    source = {place: at for place, at in moved.begins.items() if context.at_target(place) in target}
    there_of = {place: context.at_target(place) for place in source}

    def look() -> ActionGenerator[ConditionCheck]:
        at_source = (yield from perform_action(ReadRecords("source", source), ObservedRecords, policy)).records
        at = {at_target: target[at_target] for at_target in there_of.values()}
        seen = yield from perform_action(ReadRecords("target", at), ObservedRecords, policy)
        ends = (yield from read_target_logs(context)).stable
        same = at_end = 0
        waiting: list[str] = []
        for place, at_target in there_of.items():
            mine, theirs = at_source[place], seen.records[at_target]
            if mine is not None and theirs is not None and mine != theirs:
                raise Refused(
                    f"landing test: group {group} would not go on with the same record: {place} offset "
                    f"{source[place]} and {at_target} offset {target[at_target]} at the target differ"
                )
            if mine is not None and mine == theirs:
                same += 1
            elif mine is None and _at_end(target[at_target], cut.get(at_target), ends[at_target], theirs):
                at_end += 1
            elif theirs is None:
                waiting.append(f"{at_target} has nothing at {target[at_target]} yet")
            else:  # the source got its record after we looked, or never had one: the next look tells
                waiting.append(f"{at_target} has a record at {target[at_target]} that {place} does not show yet")
        text = f"group {group}: {same} partitions land on the same record, {at_end} at the log's end"
        text += f"; waiting: {', '.join(waiting)}" if waiting else ""
        return ConditionCheck(
            not waiting, text, seen.at_ms, {"same_record": same, "at_end": at_end, "waiting": waiting}
        )

    return (yield from wait_for_condition(look, policy.copied_bound_ms, policy)).seen
