"""Where each group goes on: its positions at the source become positions at the target, are committed there, looked at,
and taken back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from clusters.names import TopicPartition
from cutover.actions import CommitOffsets, ForgetGroup, Json, LookAtGroup, LookAtRecords, Say
from cutover.errors import Refused
from cutover.ground import Ground, source_logs, target_logs
from cutover.groups.histories import histories
from cutover.groups.kinds import members, other_kind, unprocessed
from cutover.observations import GroupSeen, RecordsSeen
from cutover.offsets import from_json, show, to_json
from cutover.waiting import Asking, Check, ask, wait
from replicator.translation import CopiedPartition, return_group, translate_group

Positions = dict[TopicPartition, int]


def translate(ground: Ground, group: str) -> Asking[Json]:
    """Exact translation of what the source holds now. Waits for the copy to pass a commit, never guesses (C16, C17).

    → source: what is committed there; from: where the group goes on at the source, also in partitions that it never
    committed; target: where at the target; texts: partitions whose text goes along; again: offsets that a share group
    gets again."""
    policy = ground.policy
    begins: Positions = {}  # fixed by the first look: the log's end moves on while we wait for the copy
    ends: Positions = {}
    result: Json = {}

    def look() -> Asking[Check]:
        seen = yield from ask(LookAtGroup("source", group), GroupSeen, policy)
        if seen.members:
            raise Refused(f"group {group} is alive at {ground.flow.source} again ({members(seen)})")
        logs = yield from source_logs(ground)
        held = yield from histories(ground)
        reads = _reads_now(ground, group, seen)
        wanted = [place for place in reads if place not in seen.unstable]
        for place in wanted:
            ends.setdefault(place, logs.stable[place])
            if place not in seen.offsets and policy.uncommitted.get(group) is not None:
                earliest = policy.uncommitted[group] == "earliest"
                begins.setdefault(place, logs.starts[place] if earliest else ends[place])
        at = {**begins, **seen.offsets, **seen.done}
        found = translate_group(at, wanted, held, ground.rename, logs.starts, logs.stable)
        if found.uncommitted:
            names = ", ".join(str(place) for place in found.uncommitted)
            raise Refused(
                f"group {group} never committed {names} at {ground.flow.source}, and the file declares no policy for "
                "it: nobody but its owner knows whether it should begin at the earliest or the latest record "
                f"(migration.groups.{group}.uncommitted)"
            )
        waiting = [str(place) for place in found.ahead]
        if waiting and ground.cut is not None:
            raise Refused(
                f"group {group} read beyond the barrier at {ground.flow.source} ({'; '.join(waiting)}): records were "
                f"written there after the fence, and are not at {ground.flow.target}. Find their producer and stop it",
                {"ahead": waiting},
            )
        waiting += [f"{place} is committed in a transaction that is still open" for place in sorted(seen.unstable)]
        told = {place: seen.texts[place] for place in wanted if place in seen.texts}
        waiting += _texts_waiting(told, ends, held)
        texts = [place for place in told if _same_distances(ground, group, place, at[place], ends[place], held)]
        yield from refuse_undone(ground, group, seen)
        result.update(
            source=to_json(seen.offsets),
            target=to_json(found.offsets),
            kind=ground.kind_of(group),
            texts=to_json({place: len(told[place]) for place in texts}),
            texts_left=[str(place) for place in told if place not in texts],
            again=to_json({place: count for place, count in seen.again.items() if place in wanted}),
        )
        result["from"] = to_json({place: at[place] for place in wanted if place in at})
        text = f"group {group}: {'; '.join(waiting) or 'every commit is copied'}"
        return Check(not waiting, text, seen.at_ms, {"ahead": waiting})

    yield from wait(look, policy.copied_bound_ms, policy)
    yield Say(f"group {group}: {show(from_json(result['source']))} → {show(from_json(result['target']))}", result)
    for text in _told(group, result):
        yield Say(text)
    return result


def _reads_now(ground: Ground, group: str, seen: GroupSeen) -> list[TopicPartition]:
    """What preflight found, and what the group has taken up since: approvals and holds may take days. Raises Refused
    for a topic that is not in the wave, or a new partition."""
    known, mine = set(ground.read_by(group)), set(ground.source_places())
    internal = set(ground.internal(group))
    taken_up = {place for place in seen.offsets if place not in known and place.topic not in internal}
    if others := sorted(taken_up - mine):
        named = ", ".join(map(str, others))
        raise Refused(
            f"group {group} has begun to read {named} since this run began, which it would not go on with at "
            f"{ground.flow.target}: a group moves as a whole. A new run looks at it again; if it reads that no more, "
            f"delete its offsets of it at {ground.flow.source} (kafka-consumer-groups --delete-offsets)",
            {"taken_up": [str(place) for place in others]},
        )
    return sorted(known | taken_up)


def _at_end(at: int, cut: int | None, end: int, record: str | None) -> bool:
    """Whether nothing is left to be read at the target, either; behind our last record may lie a transaction's end."""
    return record is None and at <= end if cut is None else at == cut


def _told(group: str, result: Json) -> Iterator[str]:
    if result["texts_left"]:
        yield (
            f"group {group} keeps text beside its offsets of {', '.join(result['texts_left'])}, which stays behind: it "
            "may count offsets, and behind these positions they lie at other distances at the target"
        )
    again = from_json(result["again"])
    if again:
        yield f"group {group} is delivered at most {sum(again.values())} records again ({show(again)})"


def refuse_undone(ground: Ground, group: str, seen: GroupSeen) -> Asking[None]:
    """Raises Refused for what the group has done, or has still to do, and that its positions do not tell."""
    again = {place: count for place, count in seen.again.items() if place in set(ground.read_by(group))}
    if again and group not in ground.policy.redelivery:
        raise Refused(
            f"share group {group} is done with {sum(again.values())} offsets behind its start offsets "
            f"({show(again)}), which would be delivered again: accept that (migration.groups.{group}.redelivery: "
            "accept), or let its consumers read everything first",
            {"again": to_json(again)},
        )
    left = yield from unprocessed(ground, group, seen)
    if left:
        raise Refused(
            f"Streams application {group} has records in {', '.join(left)} that it has not processed; these topics "
            "are not moved, so the records would be lost. Let it run until they are processed (strategy: "
            "producers_first), or put them into the wave",
            {"unprocessed": left},
        )


def _texts_waiting(
    told: Mapping[TopicPartition, str], ends: Positions, held: Mapping[TopicPartition, CopiedPartition]
) -> Iterator[str]:
    """A text may speak of anything that could be read when its group stopped, so all of that has to be copied."""
    for place in sorted(told):
        copied = held[place].position if place in held and held[place].map.runs else 0
        if copied < ends[place]:
            yield f"{place} has text beside its offset, and is copied through {copied} of {ends[place]}"


def _same_distances(
    ground: Ground, group: str, place: TopicPartition, at: int, end: int, held: Mapping[TopicPartition, CopiedPartition]
) -> bool:
    """Whether a text that counts offsets from the position on (the Parallel Consumer's bitmap of what is done with)
    means the same at the target. Streams keeps a time there, which always does."""
    if ground.kind_of(group) == "streams":
        return True
    return place in held and not any(at < run.source < end for run in held[place].map.runs)


def commit(ground: Ground, group: str) -> Asking[Json]:
    """Compare-and-set: the target's group must be empty and hold nothing, or what `sync.groups` of the flow carried
    there, or just what we would commit (C14, C18). → what was committed"""
    moved = ground.translated(group)
    wanted, before = from_json(moved["target"]), from_json(moved["source"])
    kind = moved.get("kind", "classic")
    here = yield from ask(LookAtGroup("source", group), GroupSeen, ground.policy)
    if here.members or dict(here.offsets) != before:
        raise Refused(
            f"group {group} moved at {ground.flow.source} after it was stopped ({members(here)}, "
            f"committed {show(here.offsets)}, was {show(before)}): something else uses this group id"
        )
    there = yield from ask(LookAtGroup("target", group), GroupSeen, ground.policy)
    if there.members:
        raise Refused(
            f"group {group} is alive at {ground.flow.target} ({members(there)}): a live group is never reset; stop "
            "whatever uses this group id there"
        )
    if other_kind(kind, there.kind):
        raise Refused(f"group {group} is a {there.kind} group at {ground.flow.target}, and a {kind} group here")
    other = {place: at for place, at in there.others().items() if wanted.get(place) != at}
    if other:
        raise Refused(f"group {group} has other offsets at {ground.flow.target} already: {show(other)}")
    texts = {ground.at_target(place): here.texts.get(place, "") for place in from_json(moved.get("texts", {}))}
    if dict(there.offsets) != wanted or dict(there.texts) != texts:
        there = yield from ask(CommitOffsets("target", group, wanted, texts, kind), GroupSeen, ground.policy)
    read = {place: there.offsets.get(place) for place in wanted}
    if read != wanted or {place: there.texts.get(place, "") for place in texts} != texts:
        raise Refused(f"group {group}: committed {show(wanted)}, read back {show(there.offsets)}")
    return to_json(wanted)


def take_back(ground: Ground, group: str, given: Positions, *, done: bool) -> Asking[Json | None]:
    """The group goes on at the source with what it reached on the target; what we committed there is removed. → where
    it stood and stands, None where nothing was ours.

    given: what was to be committed; done: whether it is known to have been. Only empty groups are touched.
    """
    there = yield from ask(LookAtGroup("target", group), GroupSeen, ground.policy)
    here = yield from ask(LookAtGroup("source", group), GroupSeen, ground.policy)
    if not done and any(given.get(place) != at for place, at in there.offsets.items()):
        yield Say(f"group {group} holds other offsets at {ground.flow.target}, which are not ours: they stay")
        return None
    if not done and not there.offsets:
        return None  # the commit never came to pass
    if there.members or here.members:
        raise Refused(
            f"group {group} is alive ({there.members} members at {ground.flow.target}, {here.members} at "
            f"{ground.flow.source}: {', '.join((*there.who, *here.who))}); its offsets cannot be taken back. Stop it, "
            "then run again with --resume"
        )
    if not there.offsets:
        return None
    moved = ground.translated(group)
    kind = moved.get("kind", "classic")
    held = yield from histories(ground, tuple(_added(ground, there.offsets)))
    reached = there.offsets if kind == "share" else there.others()
    before = from_json(moved["source"])
    back = return_group(reached, given, before, held, ground.rename)
    for place, at in here.offsets.items():  # somebody has read on there under this group id: that counts, too
        if place in back and at > back[place] and at != before.get(place):
            back[place] = at
    changed = {place: at for place, at in back.items() if here.offsets.get(place) != at}
    if changed:  # the others keep what stands beside them: texts, and what a share group has done out of order
        yield from ask(CommitOffsets("source", group, changed, {}, kind), GroupSeen, ground.policy)
    yield from ask(ForgetGroup("target", group), GroupSeen, ground.policy)
    returned: Json = {"target": to_json(there.offsets), "source": to_json(back)}
    yield Say(f"group {group}: {show(there.offsets)} → {show(back)}", returned)
    return returned


def _added(ground: Ground, reached: Mapping[TopicPartition, int]) -> Iterator[TopicPartition]:
    """Source partitions that did not exist when the run began, and in which the group has read at the target since."""
    known = {ground.rename(topic): (topic, count) for topic, count in ground.partitions().items()}
    for there in sorted(reached):
        topic, count = known.get(there.topic, ("", 0))
        if topic and there.partition >= count:
            yield TopicPartition(topic, there.partition)


def land(ground: Ground, group: str) -> Asking[Json]:
    """The next record that the group sees is the same on both sides; at the log's end, nothing is left on either (C19).

    Producers may still write, so "nothing here yet" is looked at again; two different records are refused at once.
    Once they write to the target, a group that has read everything lands where their first record stands.
    """
    policy, cut, moved = ground.policy, ground.cut or {}, ground.translated(group)
    target = from_json(moved["target"])
    begins = from_json(moved["from"] if "from" in moved else moved["source"])
    source = {place: at for place, at in begins.items() if ground.at_target(place) in target}
    there_of = {place: ground.at_target(place) for place in source}

    def look() -> Asking[Check]:
        here = (yield from ask(LookAtRecords("source", source), RecordsSeen, policy)).records
        at = {there: target[there] for there in there_of.values()}
        seen = yield from ask(LookAtRecords("target", at), RecordsSeen, policy)
        ends = (yield from target_logs(ground)).stable
        same = at_end = 0
        waiting: list[str] = []
        for place, there in there_of.items():
            mine, theirs = here[place], seen.records[there]
            if mine is not None and theirs is not None and mine != theirs:
                raise Refused(
                    f"landing test: group {group} would not go on with the same record: {place} offset "
                    f"{source[place]} and {there} offset {target[there]} at the target differ"
                )
            if mine is not None and mine == theirs:
                same += 1
            elif mine is None and _at_end(target[there], cut.get(there), ends[there], theirs):
                at_end += 1
            elif theirs is None:
                waiting.append(f"{there} has nothing at {target[there]} yet")
            else:  # the source got its record after we looked, or never had one: the next look tells
                waiting.append(f"{there} has a record at {target[there]} that {place} does not show yet")
        text = f"group {group}: {same} partitions land on the same record, {at_end} at the log's end"
        text += f"; waiting: {', '.join(waiting)}" if waiting else ""
        return Check(not waiting, text, seen.at_ms, {"same_record": same, "at_end": at_end, "waiting": waiting})

    return (yield from wait(look, policy.copied_bound_ms, policy)).seen
