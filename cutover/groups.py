"""The steps that move consumer groups, and their exact inverses."""

from __future__ import annotations

from clusters.names import TopicPartition
from cutover.actions import (
    CommitOffsets,
    ForgetGroup,
    Json,
    LookAtGroup,
    LookAtRecords,
    Recall,
    Say,
    Side,
    StartApplication,
    StopApplication,
)
from cutover.errors import Refused
from cutover.ground import Ground, copies, source_logs, target_logs
from cutover.observations import ApplicationSeen, GroupSeen, Recalled, RecordsSeen
from cutover.offsets import from_json, return_group, show, to_json, translate_group
from cutover.waiting import Asking, Check, ask, wait


def stop_consumers(ground: Ground, note: Json) -> Asking[None]:
    """Every application stops, then every group is seen empty several times in a row (C15, C21)."""
    yield from _stop_all(ground, "source")
    note["groups"] = {}
    for group in ground.groups:
        seen = yield from ask(LookAtGroup("source", group), GroupSeen, ground.policy)
        note["groups"][group] = to_json(seen.offsets)


def undo_stop_consumers(ground: Ground, note: Json) -> Asking[None]:
    yield from _start_all(ground, "source", note, tuple(g for g in ground.groups if ground.ran_before(g)))


def translate_offsets(ground: Ground, note: Json) -> Asking[None]:
    """Exact translation of what the source holds now. Waits for the copy to pass a commit, never guesses (C16, C17)."""
    note["groups"] = {}
    for group in ground.groups:
        yield from _translate(ground, group, note)


def _translate(ground: Ground, group: str, note: Json) -> Asking[None]:
    policy = ground.policy
    result: dict[TopicPartition, int] = {}
    committed: dict[TopicPartition, int] = {}

    def look() -> Asking[Check]:
        seen = yield from ask(LookAtGroup("source", group), GroupSeen, policy)
        if seen.members:
            raise Refused(f"group {group} is alive at {ground.flow.source} again ({seen.members} members)")
        logs = yield from source_logs(ground)
        held = (yield from copies(ground)).copies
        found = translate_group(
            seen.offsets,
            ground.source_places(),
            held,
            ground.rename,
            logs.starts,
            logs.stable,
            policy.uncommitted.get(group),
        )
        if found.uncommitted:
            names = ", ".join(str(place) for place in found.uncommitted)
            raise Refused(
                f"group {group} never committed {names} at {ground.flow.source}, and the file declares no policy for "
                "it: nobody but its owner knows whether it should begin at the earliest or the latest record"
            )
        result.clear()
        result.update(found.offsets)
        committed.clear()
        committed.update(seen.offsets)
        text = f"group {group}: " + (
            "; ".join(str(place) for place in found.ahead) if found.ahead else "every commit is copied"
        )
        return Check(not found.ahead, text, seen.at_ms, {"ahead": [str(place) for place in found.ahead]})

    yield from wait(look, policy.copied_bound_ms, policy)
    note["groups"][group] = {"source": to_json(committed), "target": to_json(result)}
    yield Say(f"group {group}: {show(committed)} → {show(result)}", note["groups"][group])


def commit_offsets(ground: Ground, note: Json) -> Asking[None]:
    """Compare-and-set: the target's group must be empty and hold nothing, or just what we would commit (C14, C18)."""
    note["committed"] = {}
    for group in ground.groups:
        wanted = from_json(_translated(ground, group)["target"])
        before = from_json(_translated(ground, group)["source"])
        here = yield from ask(LookAtGroup("source", group), GroupSeen, ground.policy)
        if here.members or dict(here.offsets) != before:
            raise Refused(
                f"group {group} moved at {ground.flow.source} after it was stopped ({here.members} members, "
                f"committed {show(here.offsets)}, was {show(before)}): something else uses this group id"
            )
        there = yield from ask(LookAtGroup("target", group), GroupSeen, ground.policy)
        if there.members:
            raise Refused(
                f"group {group} is alive at {ground.flow.target} ({there.members} members): a live group is never "
                "reset; stop whatever uses this group id there"
            )
        other = {place: at for place, at in there.offsets.items() if wanted.get(place) != at}
        if other:
            raise Refused(f"group {group} has other offsets at {ground.flow.target} already: {show(other)}")
        if dict(there.offsets) != wanted:
            done = yield from ask(CommitOffsets("target", group, wanted), GroupSeen, ground.policy)
            read = {place: done.offsets.get(place) for place in wanted}
            if read != wanted:
                raise Refused(f"group {group}: committed {show(wanted)}, read back {show(done.offsets)}")
        note["committed"][group] = to_json(wanted)


def undo_commit_offsets(ground: Ground, note: Json) -> Asking[None]:
    """Back to the source with what the group reached on the target; what we committed there is removed.

    Only groups that this run committed are touched, and only while they are empty. A commit that was begun and of
    which nobody knows whether it was done counts when the group holds just what was to be committed.
    """
    note["returned"] = {}
    mine: Json = ground.outcomes.get("commit_offsets", {}).get("committed", {})
    recalled = yield from ask(Recall("CommitOffsets"), Recalled, ground.policy)
    begun: Json = {deed["group"]: deed["offsets"] for deed in recalled.deeds if deed["side"] == "target"}
    for group in ground.groups:
        if group not in mine and group not in begun:
            continue
        given = from_json(mine[group] if group in mine else begun[group])
        there = yield from ask(LookAtGroup("target", group), GroupSeen, ground.policy)
        here = yield from ask(LookAtGroup("source", group), GroupSeen, ground.policy)
        if group not in mine and any(given.get(place) != at for place, at in there.offsets.items()):
            note["returned"][group] = None
            yield Say(f"group {group} holds other offsets at {ground.flow.target}, which are not ours: they stay")
            continue
        if group not in mine and not there.offsets:
            continue  # the commit never came to pass
        if there.members or here.members:
            raise Refused(
                f"group {group} is alive ({there.members} members at {ground.flow.target}, {here.members} at "
                f"{ground.flow.source}); its offsets cannot be taken back. Stop it, then run again with --resume"
            )
        if there.offsets:
            held = (yield from copies(ground)).copies
            at_source = from_json(_translated(ground, group)["source"])
            back = return_group(there.offsets, given, at_source, held, ground.rename)
            if back and any(here.offsets.get(place) != at for place, at in back.items()):
                yield from ask(CommitOffsets("source", group, back), GroupSeen, ground.policy)
            note["returned"][group] = {"target": to_json(there.offsets), "source": to_json(back)}
            yield from ask(ForgetGroup("target", group), GroupSeen, ground.policy)
            yield Say(f"group {group}: {show(there.offsets)} → {show(back)}", note["returned"][group])


def landing_test(ground: Ground, note: Json) -> Asking[None]:
    """The next record a group sees is the same on both sides; at the log's end, nothing is left on either (C19).

    Producers still write, so "nothing here yet" is looked at again; two different records are refused at once.
    """
    note["groups"] = {}
    for group in ground.groups:
        moved = _translated(ground, group)
        source = {p: at for p, at in from_json(moved["source"]).items() if p in set(ground.source_places())}
        target = from_json(moved["target"])
        matched = yield from _land(ground, group, source, target)
        note["groups"][group] = matched


def _land(
    ground: Ground, group: str, source: dict[TopicPartition, int], target: dict[TopicPartition, int]
) -> Asking[Json]:
    policy = ground.policy
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
            elif mine is None and theirs is None and target[there] == ends[there]:
                at_end += 1
            elif theirs is None:
                waiting.append(f"{there} has nothing at {target[there]} yet")
            else:  # the source got its record after we looked, or never had one: the next look tells
                waiting.append(f"{there} has a record at {target[there]} that {place} does not show yet")
        text = f"group {group}: {same} partitions land on the same record, {at_end} at the log's end"
        text += f"; waiting: {', '.join(waiting)}" if waiting else ""
        return Check(not waiting, text, seen.at_ms, {"same_record": same, "at_end": at_end, "waiting": waiting})

    return (yield from wait(look, policy.copied_bound_ms, policy)).seen


def start_consumers(ground: Ground, note: Json) -> Asking[None]:
    yield from _start_all(ground, "target", note, ground.groups)
    note["members"] = {}
    for group in ground.groups:

        def look(group: str = group) -> Asking[Check]:
            seen = yield from ask(LookAtGroup("target", group), GroupSeen, ground.policy)
            text = f"group {group} has {seen.members} members at {ground.flow.target}"
            return Check(seen.members > 0, text, seen.at_ms, {"members": seen.members})

        found = yield from wait(look, ground.policy.empty_bound_ms, ground.policy)
        note["members"][group] = found.seen["members"]


def undo_start_consumers(ground: Ground, note: Json) -> Asking[None]:
    yield from _stop_all(ground, "target")


def _stop_all(ground: Ground, side: Side) -> Asking[None]:
    policy = ground.policy
    alias = ground.flow.source if side == "source" else ground.flow.target
    for group in ground.groups:
        seen = yield from ask(StopApplication(group, "consumer"), ApplicationSeen, policy)
        if seen.state == "running":
            raise Refused(f"consumer {group} was told to stop and still runs at {seen.cluster}")
    for group in ground.groups:

        def look(group: str = group) -> Asking[Check]:
            found = yield from ask(LookAtGroup(side, group), GroupSeen, policy)
            text = f"group {group} at {alias} is {found.state} with {found.members} members"
            return Check(found.members == 0, text, found.at_ms, {"group": group, "members": found.members})

        yield from wait(look, policy.empty_bound_ms, policy, times=policy.empty_times)


def _start_all(ground: Ground, side: Side, note: Json, names: tuple[str, ...]) -> Asking[None]:
    note["started"] = {}
    alias = ground.flow.source if side == "source" else ground.flow.target
    for name in names:
        seen = yield from ask(StartApplication(name, "consumer", side), ApplicationSeen, ground.policy)
        if seen.state == "stopped" or seen.cluster not in (None, alias):
            raise Refused(f"consumer {name} should run at {alias}; it is {seen.state} at {seen.cluster}")
        note["started"][name] = alias


def _translated(ground: Ground, group: str) -> Json:
    moved: Json = ground.outcomes["translate_offsets"]["groups"][group]
    return moved
