"""The steps that move consumer groups, and their exact inverses. What becomes of positions: `group_positions`."""

from __future__ import annotations

from cutover.actions import Json, LookAtGroup, LookAtRecords, Recall, Side, StartApplication, StopApplication
from cutover.errors import Refused
from cutover.ground import Ground, refuse_growth
from cutover.groups.kinds import members, unprocessed
from cutover.groups.positions import Positions, commit, land, take_back, translate
from cutover.observations import ApplicationSeen, GroupSeen, Recalled, RecordsSeen
from cutover.offsets import from_json, show, to_json
from cutover.waiting import Asking, Check, ask, wait


def drain_consumers(ground: Ground, note: Json) -> Asking[None]:
    """Every group has read the source to the barrier: at each partition it committed the end, or nothing follows."""
    policy, ends = ground.policy, ground.offsets("barrier", "ends")
    note["groups"] = {}
    for group in ground.groups:
        upto = {place: ends[place] for place in ground.read_by(group)}

        def look(group: str = group, upto: Positions = upto) -> Asking[Check]:
            seen = yield from ask(LookAtGroup("source", group), GroupSeen, policy)
            left = [*(yield from _unread(ground, group, seen, upto)), *(yield from unprocessed(ground, group, seen))]
            text = f"group {group} still reads {', '.join(left)}" if left else f"group {group} has read everything"
            return Check(not left, text, seen.at_ms, {"left": left, "offsets": to_json(seen.offsets)})

        found = yield from wait(look, policy.drain_bound_ms, policy)
        note["groups"][group] = found.seen["offsets"]


def _unread(ground: Ground, group: str, seen: GroupSeen, upto: Positions) -> Asking[list[str]]:
    """Partitions with a record that the group has still to read. Behind the last one may lie markers, and a group that
    begins at the latest record has none of them."""
    latest = ground.policy.uncommitted.get(group) == "latest"
    at = {**(upto if latest else dict.fromkeys(upto, 0)), **seen.offsets, **seen.done}
    open_ = {place: at[place] for place, end in upto.items() if at[place] < end}
    if not open_:
        return []
    records = (yield from ask(LookAtRecords("source", open_), RecordsSeen, ground.policy)).records
    return [str(place) for place, record in records.items() if record is not None]


def stop_consumers(ground: Ground, note: Json) -> Asking[None]:
    """Every application stops, then every group is seen empty several times in a row (C15, C21).

    While producers stand still, too, once is enough: the watch, the drain and the proof lie before the next look
    (`commit_offsets`, which refuses a group that moved), and every second less is one in which somebody writes.
    """
    standing = "fence_producers" in ground.outcomes and "standstill" not in ground.outcomes
    yield from _stop_all(ground, "source", 1 if standing else ground.policy.empty_times)
    note["groups"] = {}
    for group in ground.groups:
        seen = yield from ask(LookAtGroup("source", group), GroupSeen, ground.policy)
        note["groups"][group] = to_json(seen.offsets)


def undo_stop_consumers(ground: Ground, note: Json) -> Asking[None]:
    yield from _start_all(ground, "source", note, tuple(g for g in ground.readers if ground.ran_before(g)))


def translate_offsets(ground: Ground, note: Json) -> Asking[None]:
    if ground.cut is None:  # behind it a new partition is the applications' own affair, and the run has to end
        yield from refuse_growth(ground)
    note["groups"] = {}
    for group in ground.groups:
        note["groups"][group] = yield from translate(ground, group)


def commit_offsets(ground: Ground, note: Json) -> Asking[None]:
    note["committed"] = {}
    for group in ground.groups:
        note["committed"][group] = yield from commit(ground, group)


def undo_commit_offsets(ground: Ground, note: Json) -> Asking[None]:
    """Only groups that this run committed are touched. A commit that was begun and of which nobody knows whether it was
    done counts when the group holds just what was to be committed."""
    note["returned"] = {}
    mine: Json = ground.outcomes.get("commit_offsets", {}).get("committed", {})
    recalled = yield from ask(Recall("CommitOffsets"), Recalled, ground.policy)
    begun: Json = {deed["group"]: deed["offsets"] for deed in recalled.deeds if deed["side"] == "target"}
    for group in ground.groups:
        if group in mine or group in begun:
            given = from_json(mine[group] if group in mine else begun[group])
            returned = yield from take_back(ground, group, given, done=group in mine)
            note["returned"][group] = returned


def landing_test(ground: Ground, note: Json) -> Asking[None]:
    note["groups"] = {}
    for group in ground.groups:
        note["groups"][group] = yield from land(ground, group)


def start_consumers(ground: Ground, note: Json) -> Asking[None]:
    """The positions are looked at once more: a worker that stood still may have carried an older one meanwhile, and a
    consumer that assigns partitions to itself is no member and commits all the same. Applications that write, too,
    start with the producers."""
    for group in ground.groups:
        before = from_json(ground.translated(group)["source"])
        here = yield from ask(LookAtGroup("source", group), GroupSeen, ground.policy)
        settled = ground.kind_of(group) != "share"  # brokers move start offsets when they come to it
        if ground.cut is None and settled and dict(here.offsets) != before:
            raise Refused(
                f"group {group} was at {show(before)} at {ground.flow.source} when it was stopped, and is at "
                f"{show(here.offsets)} now: something still reads there under this group id. Find it and stop it"
            )
        wanted = from_json(ground.translated(group)["target"])
        there = yield from ask(LookAtGroup("target", group), GroupSeen, ground.policy)
        if not there.members and any(there.offsets.get(place) != at for place, at in wanted.items()):
            raise Refused(
                f"group {group} was committed {show(wanted)} at {ground.flow.target} and holds {show(there.offsets)} "
                "now: something else commits for this group id"
            )
    yield from _start_all(ground, "target", note, ground.readers)


def consumers_joined(ground: Ground, note: Json) -> Asking[None]:
    note["members"] = {}
    for group in ground.groups:

        def look(group: str = group) -> Asking[Check]:
            seen = yield from ask(LookAtGroup("target", group), GroupSeen, ground.policy)
            text = f"group {group} has {seen.members} members at {ground.flow.target}"
            return Check(seen.members > 0, text, seen.at_ms, {"members": seen.members})

        found = yield from wait(look, ground.policy.empty_bound_ms, ground.policy)
        note["members"][group] = found.seen["members"]


def undo_start_consumers(ground: Ground, note: Json) -> Asking[None]:
    yield from _stop_all(ground, "target", ground.policy.empty_times)


def _stop_all(ground: Ground, side: Side, times: int) -> Asking[None]:
    policy = ground.policy
    alias = ground.flow.source if side == "source" else ground.flow.target
    for group in ground.groups:
        seen = yield from ask(StopApplication(group, "consumer"), ApplicationSeen, policy)
        if seen.state == "running":
            raise Refused(f"consumer {group} was told to stop and still runs at {seen.cluster}")
    for group in ground.groups:

        def look(group: str = group) -> Asking[Check]:
            found = yield from ask(LookAtGroup(side, group), GroupSeen, policy)
            text = f"group {group} at {alias} is {found.state} with {members(found)}"
            if found.static:
                text += "; a static member that has stopped keeps its place until its session.timeout.ms is over"
            seen: Json = {"group": group, "members": found.members, "static": list(found.static)}
            return Check(found.members == 0, text, found.at_ms, seen)

        bound_ms = policy.empty_ms(group, static=ground.is_static(group))
        yield from wait(look, bound_ms, policy, times=times)


def _start_all(ground: Ground, side: Side, note: Json, names: tuple[str, ...]) -> Asking[None]:
    note["started"] = {}
    alias = ground.flow.source if side == "source" else ground.flow.target
    for name in names:
        seen = yield from ask(StartApplication(name, "consumer", side), ApplicationSeen, ground.policy)
        if seen.state == "stopped" or seen.cluster not in (None, alias):
            raise Refused(f"consumer {name} should run at {alias}; it is {seen.state} at {seen.cluster}")
        note["started"][name] = alias
