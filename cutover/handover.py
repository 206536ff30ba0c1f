"""The steps that move producers: fence, standstill, barrier, drain, tail proof, point of no return, switch, canary.

The order is the point (design 05, research C12): lag 0 alone is never a gate, the barrier is taken only after the
source stood still, and every later step looks again whether it still does.
"""

from __future__ import annotations

from clusters.names import TopicPartition
from cutover.actions import (
    Json,
    LookAtFlow,
    LookAtRecords,
    LookAtTopics,
    Say,
    Seal,
    Side,
    StartApplication,
    StopApplication,
    StopFlow,
)
from cutover.errors import Refused
from cutover.gates import prove
from cutover.ground import Ground, Progress, copies, refuse_stragglers, source_logs, target_logs
from cutover.observations import ApplicationSeen, FlowSeen, LogsSeen, RecordsSeen, Sealed, TopicsSeen
from cutover.offsets import growth, show, to_json
from cutover.waiting import Asking, Check, ask, wait


def fence_producers(ground: Ground, note: Json) -> Asking[None]:
    note["stopped"] = []
    for name in ground.producers:
        seen = yield from ask(StopApplication(name, "producer"), ApplicationSeen, ground.policy)
        if seen.state == "running":
            raise Refused(f"producer {name} was told to stop and still runs at {seen.cluster}")
        note["stopped"].append({"name": name, "by": seen.by})


def undo_fence_producers(ground: Ground, note: Json) -> Asking[None]:
    names = tuple(name for name in ground.producers if ground.ran_before(name))
    yield from _start(ground, "source", note, names)


def standstill(ground: Ground, note: Json) -> Asking[None]:
    """The source's log ends stay where they are for the watch time. One record more is a straggler (C11)."""
    policy = ground.policy
    first = yield from source_logs(ground)

    def look() -> Asking[Check]:
        now = yield from source_logs(ground)
        refuse_stragglers(ground, first.ends, now)
        text = f"source stands still for {(now.at_ms - first.at_ms) / 1000:.0f} of {policy.watch_ms / 1000:g} s"
        return Check(now.at_ms - first.at_ms >= policy.watch_ms, text, now.at_ms, {})

    yield from wait(look, policy.watch_ms + policy.reach_ms, policy)
    note.update(ends=to_json(first.ends), watched_ms=policy.watch_ms)


def barrier(ground: Ground, note: Json) -> Asking[None]:
    """Fix the source's ends. An open transaction would end behind the barrier, so none may be open."""
    policy = ground.policy
    ends = ground.offsets("standstill", "ends")

    def look() -> Asking[Check]:
        now = yield from source_logs(ground)
        refuse_stragglers(ground, ends, now)
        still = {place: end - now.stable[place] for place, end in now.ends.items() if now.stable[place] < end}
        named = ", ".join(f"{place} ({count} offsets)" for place, count in sorted(still.items()))
        text = f"open transactions on {named}" if still else f"barrier {show(now.ends)}"
        return Check(not still, text, now.at_ms, {"ends": to_json(now.ends)})

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
        refuse_stragglers(ground, ends, logs)
        behind = ground.behind(copied.copies, logs, ends)
        yield from progress.look(copied, behind)
        named = ", ".join(f"{place} {count}" for place, count in behind.items())
        text = f"to the barrier: {named} offsets to go" if behind else "every partition is copied to the barrier"
        seen: Json = {"behind": {str(place): count for place, count in behind.items()}}
        return Check(not behind, text, logs.at_ms, seen)

    yield from wait(look, policy.drain_bound_ms, policy)
    note["target_ends"] = to_json((yield from target_logs(ground)).ends)


def prove_tail(ground: Ground, note: Json) -> Asking[None]:
    since = ground.outcomes["history_proof"].get("summary")
    yield from prove(ground, note, ground.policy.tail_level, final=True, since=since)
    yield from _nothing_moved(ground)


def point_of_no_return(ground: Ground, note: Json) -> Asking[None]:
    """The last look. When this step's outcome is in the journal, there is no way back in this version."""
    source, target = yield from _nothing_moved(ground)
    note.update(source_ends=to_json(source.ends), target_ends=to_json(target.ends))
    yield Say(
        f"POINT OF NO RETURN: next, {', '.join(ground.producers)} write to {ground.flow.target}. "
        "From then on nothing is switched back: behind this point there is no way back in this version"
    )


def _nothing_moved(ground: Ground) -> Asking[tuple[LogsSeen, LogsSeen]]:
    source = yield from source_logs(ground)
    refuse_stragglers(ground, ground.offsets("barrier", "ends"), source)
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
    refuse_stranded(ground, ends, (yield from source_logs(ground)))


def refuse_stranded(ground: Ground, ends: dict[TopicPartition, int], now: LogsSeen) -> None:
    """Raises Refused when records were written to the source after the switch: they are stranded there (C13)."""
    moved = growth(ends, now.ends)
    if moved:
        named = ", ".join(f"{place} offsets {ends[place]} to {now.ends[place] - 1}" for place in moved)
        raise Refused(
            f"stranded: records were written to the source after the switch: {named}. Find that producer and stop "
            "it; these records are not on the target in their order",
            {"stranded": {str(place): count for place, count in moved.items()}},
        )


def seal(ground: Ground, note: Json) -> Asking[None]:
    yield from _retire_flow(ground, note)
    seen = yield from ask(Seal(), Sealed, ground.policy)
    note.update(evidence=seen.path, root=seen.root)


def _retire_flow(ground: Ground, note: Json) -> Asking[None]:
    """Stop a flow that carries nothing any more but what has moved: at its workers' next restart, it would take the
    applications' own writes for a foreign writer. A flow that carries other topics too goes on."""
    flow, policy = ground.flow, ground.policy
    seen = yield from ask(LookAtFlow(), FlowSeen, policy)
    topics = (yield from ask(LookAtTopics("source"), TopicsSeen, policy)).partitions
    moved = ground.partitions()
    staying = sorted(topic for topic in topics if flow.selects(topic) and topic not in moved)
    if seen.state in ("stopped", "missing"):
        note["flow"] = f"flow {flow.id} is {seen.state} already"
    elif staying or not seen.same_plan:
        why = f"carries {', '.join(staying)} too" if staying else "carries other topics than this file gives it"
        note["flow"] = (
            f"flow {flow.id} {why} and stays {seen.state}: after a restart of its workers, the partitions of "
            f"{', '.join(sorted(moved))} report target_foreign_write. That is expected, because applications write "
            f"there now"
        )
    else:
        seen = yield from ask(StopFlow(), FlowSeen, policy)
        if seen.state != "stopped":
            raise Refused(f"flow {flow.id} was stopped, and is {seen.state}: something else sets its state")
        note["flow"] = f"flow {flow.id} is stopped: everything it carries has moved to {flow.target}"
    yield Say(note["flow"])


def _start(ground: Ground, side: Side, note: Json, names: tuple[str, ...]) -> Asking[None]:
    note["started"] = {}
    alias = ground.flow.source if side == "source" else ground.flow.target
    for name in names:
        seen = yield from ask(StartApplication(name, "producer", side), ApplicationSeen, ground.policy)
        if seen.state == "stopped" or seen.cluster not in (None, alias):
            raise Refused(f"producer {name} should run at {alias}; it is {seen.state} at {seen.cluster}")
        note["started"][name] = alias
