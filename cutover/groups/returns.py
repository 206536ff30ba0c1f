"""Where groups go on when they return to the old source, and the exact inverse: that they stay after all."""

from __future__ import annotations

from clusters.names import TopicPartition
from cutover.actions import CommitOffsets, ForgetGroup, Json, LookAtCopies, LookAtGroup, Recall, Say
from cutover.errors import Refused
from cutover.ground import Ground, copies, target_logs
from cutover.groups.kinds import members
from cutover.groups.positions import refuse_undone
from cutover.observations import CopiesSeen, GroupSeen, Recalled
from cutover.offsets import from_json, show, to_json
from cutover.rollback.earlier import Earlier
from cutover.rollback.stranded import in_front, stranded_by_now
from cutover.waiting import Asking, Check, ask, wait
from replicator.crossing import Crossing, group_returns
from replicator.errors import ReplicatorError
from replicator.offsetmap import OffsetMap
from replicator.retraced import retraced
from replicator.translation import CopiedPartition, Offsets

_Places = dict[TopicPartition, int]


def translate_back(ground: Ground, note: Json) -> Asking[None]:
    """Where each group goes on at the old source: behind the cut by what the flow back carried, below it by what the
    migration's flow did; never before anything that the group has read."""
    note["groups"] = {}
    stranded = yield from stranded_by_now(ground)
    for group in ground.groups:
        yield from _translate(ground, group, stranded, note)


def _translate(ground: Ground, group: str, stranded: dict[TopicPartition, list[int]], note: Json) -> Asking[None]:
    policy, earlier = ground.policy, ground.taking_back
    pairs = tuple((ground.at_target(place), place) for place in ground.read_by(group))
    last: dict[str, _Places] = {}

    def look() -> Asking[Check]:
        seen = yield from ask(LookAtGroup("source", group), GroupSeen, policy)
        if seen.members:
            raise Refused(f"group {group} is alive at {ground.flow.source} again ({members(seen)})")
        there = yield from ask(LookAtGroup("target", group), GroupSeen, policy)
        logs = yield from target_logs(ground)
        crossings = yield from _crossings(ground)
        given, before = earlier.of_group(group, "target"), earlier.of_group(group, "source")
        # In a partition that was added since the switch, who has committed nothing has read nothing.
        added = {place: 0 for _, place in pairs if place not in earlier.cut}
        at = {**added, **seen.offsets, **seen.done}
        try:
            found = group_returns(at, given, before, crossings, pairs, policy.uncommitted.get(group), logs.starts)
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
                f"group {group} has yet to read {show(gone)} at {ground.flow.target}, and its log begins behind that: "
                f"let the group read on at {ground.flow.source} first",
                {"expired": to_json(gone)},
            )
        yield from refuse_undone(ground, group, seen)
        last.update(committed=dict(seen.offsets), reached=at, found=dict(there.offsets), back=found.offsets)
        waiting = [str(each) for each in found.ahead]
        waiting += [f"{place} is committed in a transaction that is still open" for place in sorted(seen.unstable)]
        text = f"group {group}: {'; '.join(waiting) or 'everything it has read is carried back'}"
        return Check(not waiting, text, seen.at_ms, {"ahead": waiting})

    yield from wait(look, policy.copied_bound_ms, policy)
    committed, reached, back = last["committed"], last["reached"], last["back"]
    again = in_front(ground, group, back, stranded)
    # A partition in which the group goes back on purpose has no record to land on: the landing test looks at `from`.
    landing = {there: reached[there] for here, there in pairs if there in reached and here not in again}
    note["groups"][group] = {
        "source": to_json(committed),
        "from": to_json(landing),
        "target": to_json(back | again),
        "found": to_json(last["found"]),
    }
    if again:
        note["groups"][group]["read_again"] = {str(place): back[place] - at for place, at in again.items()}
    yield Say(f"group {group}: {show(committed)} → {show(back | again)}", note["groups"][group])


def _crossings(ground: Ground) -> Asking[dict[TopicPartition, Crossing]]:
    """By partition of the old source."""
    earlier, cut = ground.taking_back, ground.taking_back.cut
    barrier = earlier.offsets("barrier", "ends")
    here = tuple(ground.at_target(place) for place in ground.source_places())
    there = (yield from ask(LookAtCopies(here, earlier.flow.id), CopiesSeen, ground.policy)).copies
    back = (yield from copies(ground)).copies
    found: dict[TopicPartition, Crossing] = {}
    for place in ground.source_places():
        old = ground.at_target(place)
        if place not in cut:  # added since the switch: all of it is the applications' own
            found[old] = Crossing(0, 0, OffsetMap(()), back.get(place))
            continue
        held: CopiedPartition | None = there.get(old)
        if held is None:
            raise Refused(
                f"the ledger of flow {earlier.flow.id} says nothing of {old}: nothing tells where a group goes on "
                "there. Its records in watershed.ledger are not to be deleted"
            )
        carried = back.get(place)
        history = retraced(held.map, carried.map) if carried is not None else held.map
        found[old] = Crossing(cut[place], barrier[old], history, carried)
    return found


def commit_back(ground: Ground, note: Json) -> Asking[None]:
    """Compare-and-set: the group's old offsets at the source are ours from before, or what the flow back carried
    there; anything else is somebody's."""
    note["committed"] = {}
    for group in ground.groups:
        moved = ground.translated(group)
        wanted, held = from_json(moved["target"]), from_json(moved["source"])
        here = yield from ask(LookAtGroup("source", group), GroupSeen, ground.policy)
        if here.members or dict(here.offsets) != held:
            raise Refused(
                f"group {group} moved at {ground.flow.source} after it was stopped ({members(here)}, committed "
                f"{show(here.offsets)}, was {show(held)}): something else uses this group id"
            )
        there = yield from ask(LookAtGroup("target", group), GroupSeen, ground.policy)
        if there.members:
            raise Refused(
                f"group {group} is alive at {ground.flow.target} ({members(there)}): a live group is never reset; "
                "stop whatever uses this group id there"
            )
        if other := not_ours(ground.taking_back, there, wanted):
            raise Refused(f"group {group} has other offsets at {ground.flow.target} already: {show(other)}")
        texts = {
            ground.at_target(place): text for place, text in here.texts.items() if ground.kind_of(group) == "streams"
        }
        if any(there.offsets.get(place) != at for place, at in wanted.items()):
            commit = CommitOffsets("target", group, wanted, texts, ground.kind_of(group))
            there = yield from ask(commit, GroupSeen, ground.policy)
        if any(there.offsets.get(place) != at for place, at in wanted.items()):
            raise Refused(f"group {group}: committed {show(wanted)}, read back {show(there.offsets)}")
        note["committed"][group] = to_json(wanted)


def undo_commit_back(ground: Ground, note: Json) -> Asking[None]:
    """Applications stay where they are, at the flow's source: what a group has read at the old source meanwhile counts
    there, and its offsets at the old source are again those that stood there."""
    note["returned"] = {}
    recalled = yield from ask(Recall("CommitOffsets"), Recalled, ground.policy)
    begun = {deed["group"] for deed in recalled.deeds if deed["side"] == "target"}
    for group in ground.groups:
        if group in begun:
            note["returned"][group] = yield from _stay(ground, group)


def _stay(ground: Ground, group: str) -> Asking[Json]:
    moved, kind = ground.translated(group), ground.kind_of(group)
    here = yield from ask(LookAtGroup("source", group), GroupSeen, ground.policy)
    there = yield from ask(LookAtGroup("target", group), GroupSeen, ground.policy)
    if here.members or there.members:
        raise Refused(
            f"group {group} is alive ({members(here)} at {ground.flow.source}, {members(there)} at "
            f"{ground.flow.target}); its offsets cannot be taken back. Stop it, then run again with --resume"
        )
    read = yield from _read_since(ground, group, from_json(moved["target"]), there.offsets, here.offsets)
    if read:
        yield from ask(CommitOffsets("source", group, read, {}, kind), GroupSeen, ground.policy)
    before = from_json(moved["found"])
    if not before and there.offsets:
        yield from ask(ForgetGroup("target", group), GroupSeen, ground.policy)
    elif any(there.offsets.get(place) != at for place, at in before.items()):
        yield from ask(CommitOffsets("target", group, before, {}, kind), GroupSeen, ground.policy)
    yield Say(f"group {group} goes on at {ground.flow.source}: {show({**here.offsets, **read})}")
    return {"read": to_json(there.offsets), "source": to_json(read)}


def _read_since(ground: Ground, group: str, given: _Places, now: Offsets, held: Offsets) -> Asking[_Places]:
    """What the group has read at the old source since it was started there, in the other side's offsets."""
    crossings = yield from _crossings(ground)
    read: _Places = {}
    for place in ground.read_by(group):
        old = ground.at_target(place)
        if old in given and now.get(old, given[old]) > given[old]:
            at = crossings[old].to_target(now[old])
            if at > held.get(place, -1):
                read[place] = at
    return read


def not_ours(earlier: Earlier, seen: GroupSeen, wanted: _Places) -> _Places:
    """What neither the migration found or left there, nor the flow carried there, nor we would commit anyway."""
    if earlier.unseen:
        return {}
    known = (wanted, *earlier.ours.get(seen.group, ()))
    return {place: at for place, at in seen.others().items() if all(each.get(place) != at for each in known)}
