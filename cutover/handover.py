"""The steps that move producers: fence, standstill, barrier, drain, tail proof, point of no return, switch, canary.

The order is the point (docs/cutover-cases.md, C12): lag 0 alone is never a gate, the barrier is taken only after the
source stood still, and every later step looks again whether it still does.
"""

from __future__ import annotations

from clusters.names import TopicPartition
from cutover.actions import (
    Json,
    LookAtRecords,
    Say,
    Seal,
    Side,
    StartApplication,
    StopApplication,
)
from cutover.errors import Refused
from cutover.fences.fencing import lower_fence, raise_fence
from cutover.fences.stragglers import only_markers, refuse_stragglers, refuse_stranded
from cutover.gates import prove
from cutover.ground import Ground, Progress, copies, refuse_growth, source_logs, target_logs
from cutover.observations import (
    ApplicationSeen,
    LogsSeen,
    RecordsSeen,
    Sealed,
)
from cutover.offsets import growth, show, to_json
from cutover.steps import way_back
from cutover.waiting import Asking, Check, ask, wait


def fence_producers(ground: Ground, note: Json) -> Asking[None]:
    note["stopped"] = []
    for name in ground.producers:
        seen = yield from ask(StopApplication(name, "producer"), ApplicationSeen, ground.policy)
        if seen.state == "running":
            raise Refused(f"producer {name} was told to stop and still runs at {seen.cluster}")
        note["stopped"].append({"name": name, "by": seen.by})
    yield from raise_fence(ground, note)


def undo_fence_producers(ground: Ground, note: Json) -> Asking[None]:
    yield from lower_fence(ground, note)
    names = tuple(name for name in ground.producers if ground.ran_before(name))
    yield from _start(ground, "source", note, names)


def barrier(ground: Ground, note: Json) -> Asking[None]:
    """Fix the source's ends. An open transaction would end behind the barrier, so none may be open."""
    policy = ground.policy
    yield from refuse_growth(ground)
    ends = ground.offsets("standstill", "ends")

    def look() -> Asking[Check]:
        nonlocal ends
        now = yield from source_logs(ground)
        ends = yield from only_markers(ground, ends, now)
        still = {place: end - now.stable[place] for place, end in now.ends.items() if now.stable[place] < end}
        named = ", ".join(f"{place} ({count} offsets)" for place, count in sorted(still.items()))
        text = f"open transactions on {named}" if still else f"barrier {show(now.ends)}"
        # A marker may have come between the look at the log ends and the look at who moved them: then look again.
        return Check(not still and ends == dict(now.ends), text, now.at_ms, {"ends": to_json(now.ends)})

    found = yield from wait(look, policy.barrier_bound_ms, policy)
    note["ends"] = found.seen["ends"]
    note["records"] = sum(ends.values())
    yield Say(found.text, found.seen)


def drain(ground: Ground, note: Json) -> Asking[None]:
    """By the ledger's own map, everything below the barrier is on the target. Names the slowest if not (C10)."""
    policy = ground.policy
    ends = ground.offsets("barrier", "ends")
    progress = Progress(ground)

    def look() -> Asking[Check]:
        copied = yield from copies(ground)
        logs = yield from source_logs(ground)
        yield from refuse_stragglers(ground, ends, logs)
        behind = ground.behind(copied.copies, logs, ends)
        yield from progress.look(copied, behind)
        named = ", ".join(f"{place} {count}" for place, count in behind.items())
        text = f"to the barrier: {named} offsets to go" if behind else "every partition is copied to the barrier"
        seen: Json = {"behind": {str(place): count for place, count in behind.items()}}
        if behind:
            return Check(False, text, logs.at_ms, seen)
        # A flow that copies in transactions: the ledger may have the last one's end before all its partitions have.
        there = yield from target_logs(ground)
        open_ = [str(place) for place, end in sorted(there.ends.items()) if there.stable[place] < end]
        if open_:
            text = f"everything is copied; transactions are still open at {ground.flow.target} on {', '.join(open_)}"
        return Check(not open_, text, there.at_ms, {**seen, "target_ends": to_json(there.ends)})

    note["target_ends"] = (yield from wait(look, policy.drain_bound_ms, policy)).seen["target_ends"]


def prove_tail(ground: Ground, note: Json) -> Asking[None]:
    since = ground.outcomes["history_proof"].get("summary")
    yield from prove(ground, note, ground.policy.tail_level, final=True, since=since)
    yield from _nothing_moved(ground)


def point_of_no_return(ground: Ground, note: Json) -> Asking[None]:
    """The last look. When this step's outcome is in the journal, nothing is taken back by itself any more."""
    yield from refuse_growth(ground)
    source, target = yield from _nothing_moved(ground)
    note.update(source_ends=to_json(source.ends), target_ends=to_json(target.ends))
    back = way_back(ground.policy)
    if ground.earlier is not None:  # this run is the way back
        back = f"a new migration to {ground.flow.source}"
    yield Say(
        f"POINT OF NO RETURN: next, {', '.join(ground.producers)} write to {ground.flow.target}. "
        f"From then on nothing is switched back by itself. The way back: {back}"
    )


def _nothing_moved(ground: Ground) -> Asking[tuple[LogsSeen, LogsSeen]]:
    source = yield from source_logs(ground)
    yield from refuse_stragglers(ground, ground.offsets("barrier", "ends"), source)
    target = yield from target_logs(ground)
    moved = growth(ground.offsets("drain", "target_ends"), target.ends)
    if moved:
        named = ", ".join(f"{place} by {count:+d}" for place, count in moved.items())
        raise Refused(
            f"something else writes to the target: after the drain {named} at {ground.flow.target}",
            {"target_moved": {str(place): count for place, count in moved.items()}},
        )
    return source, target


def switch_producers(ground: Ground, note: Json) -> Asking[None]:
    yield from _start(ground, "target", note, ground.producers)


def canary(ground: Ground, note: Json) -> Asking[None]:
    """The first writes on the target are there to be read, and the source got none of them (redpanda#31659)."""
    policy = ground.policy
    before = ground.offsets("point_of_no_return", "target_ends")
    ends = ground.offsets("barrier", "ends")
    grown: dict[TopicPartition, int] = {}

    def look() -> Asking[Check]:
        now = yield from target_logs(ground)
        grown.clear()
        grown.update(growth(before, now.stable))
        ahead = {place: count for place, count in grown.items() if count > 0}
        text = f"{sum(ahead.values())} records beyond the barrier on {len(ahead)} partitions of the target"
        return Check(bool(ahead), text, now.at_ms, {"first_writes": {str(p): n for p, n in ahead.items()}})

    found = yield from wait(look, policy.canary_bound_ms, policy)
    note.update(found.seen)
    at = {place: before[place] for place, count in grown.items() if count > 0}
    read = (yield from ask(LookAtRecords("target", at), RecordsSeen, policy)).records
    unread = [str(place) for place, record in read.items() if record is None]
    if unread:
        raise Refused(f"first writes on {', '.join(unread)} are in the log but cannot be read back", note)
    note["read_back"] = sorted(str(place) for place in read)
    yield from refuse_stranded(ground, ends, (yield from source_logs(ground)))


def seal(ground: Ground, note: Json) -> Asking[None]:
    seen = yield from ask(Seal(), Sealed, ground.policy)
    note.update(evidence=seen.path, root=seen.root)


def _start(ground: Ground, side: Side, note: Json, names: tuple[str, ...]) -> Asking[None]:
    note["started"] = {}
    alias = ground.flow.source if side == "source" else ground.flow.target
    for name in names:
        seen = yield from ask(StartApplication(name, "producer", side), ApplicationSeen, ground.policy)
        if seen.state == "stopped" or seen.cluster not in (None, alias):
            raise Refused(f"producer {name} should run at {alias}; it is {seen.state} at {seen.cluster}")
        note["started"][name] = alias
