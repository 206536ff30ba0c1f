"""The steps that move producers: fence, standstill, barrier, drain, tail proof, point of no return, switch, canary.

The order is the point (docs/cutover-cases.md, C12): lag 0 alone is never a gate, the barrier is taken only after the
source stood still, and every later step looks again whether it still does.
"""

from __future__ import annotations

from clusters.topic_partition import TopicPartition
from cutover.actions import (
    ClusterSide,
    JsonObject,
    ReadRecords,
    ReportMessage,
    Seal,
    StartApplication,
    StopApplication,
)
from cutover.errors import Refused
from cutover.fences.fence_steps import lower_fence, raise_fence
from cutover.fences.stragglers import refuse_stragglers, refuse_stranded_records, require_only_markers
from cutover.gates import require_proof
from cutover.observations import (
    ObservedApplication,
    ObservedLogs,
    ObservedRecords,
    SealedEvidence,
)
from cutover.offsets import encode_offsets, find_offset_changes, render_offsets
from cutover.polling import ActionGenerator, ConditionCheck, perform_action, wait_for_condition
from cutover.run_context import (
    CopyProgress,
    RunContext,
    read_copies,
    read_source_logs,
    read_target_logs,
    refuse_new_partitions,
)
from cutover.steps import describe_way_back


def fence_producers(ground: RunContext, note: JsonObject) -> ActionGenerator[None]:
    note["stopped"] = []
    for name in ground.producers:
        seen = yield from perform_action(StopApplication(name, "producer"), ObservedApplication, ground.policy)
        if seen.state == "running":
            raise Refused(f"producer {name} was told to stop and still runs at {seen.cluster}")
        note["stopped"].append({"name": name, "by": seen.by})
    yield from raise_fence(ground, note)


def undo_fence_producers(ground: RunContext, note: JsonObject) -> ActionGenerator[None]:
    yield from lower_fence(ground, note)
    names = tuple(name for name in ground.producers if ground.was_running(name))
    yield from _start(ground, "source", note, names)


def fix_barrier(ground: RunContext, note: JsonObject) -> ActionGenerator[None]:
    """Fix the source's ends. An open transaction would end behind the barrier, so none may be open."""
    policy = ground.policy
    yield from refuse_new_partitions(ground)
    ends = ground.offsets("standstill", "ends")

    def look() -> ActionGenerator[ConditionCheck]:
        nonlocal ends
        now = yield from read_source_logs(ground)
        ends = yield from require_only_markers(ground, ends, now)
        still = {place: end - now.stable[place] for place, end in now.ends.items() if now.stable[place] < end}
        named = ", ".join(f"{place} ({count} offsets)" for place, count in sorted(still.items()))
        text = f"open transactions on {named}" if still else f"barrier {render_offsets(now.ends)}"
        # A marker may have come between the look at the log ends and the look at who moved them: then look again.
        return ConditionCheck(not still and ends == dict(now.ends), text, now.at_ms, {"ends": encode_offsets(now.ends)})

    found = yield from wait_for_condition(look, policy.barrier_bound_ms, policy)
    note["ends"] = found.seen["ends"]
    note["records"] = sum(ends.values())
    yield ReportMessage(found.text, found.seen)


def drain_to_barrier(ground: RunContext, note: JsonObject) -> ActionGenerator[None]:
    """By the ledger's own map, everything below the barrier is on the target. Names the slowest if not (C10)."""
    policy = ground.policy
    ends = ground.offsets("barrier", "ends")
    progress = CopyProgress(ground)

    def look() -> ActionGenerator[ConditionCheck]:
        copied = yield from read_copies(ground)
        logs = yield from read_source_logs(ground)
        yield from refuse_stragglers(ground, ends, logs)
        behind = ground.behind(copied.copies, logs, ends)
        yield from progress.look(copied, behind)
        named = ", ".join(f"{place} {count}" for place, count in behind.items())
        text = f"to the barrier: {named} offsets to go" if behind else "every partition is copied to the barrier"
        seen: JsonObject = {"behind": {str(place): count for place, count in behind.items()}}
        if behind:
            return ConditionCheck(False, text, logs.at_ms, seen)
        # A flow that copies in transactions: the ledger may have the last one's end before all its partitions have.
        there = yield from read_target_logs(ground)
        open_ = [str(place) for place, end in sorted(there.ends.items()) if there.stable[place] < end]
        if open_:
            text = f"everything is copied; transactions are still open at {ground.flow.target} on {', '.join(open_)}"
        return ConditionCheck(not open_, text, there.at_ms, {**seen, "target_ends": encode_offsets(there.ends)})

    note["target_ends"] = (yield from wait_for_condition(look, policy.drain_bound_ms, policy)).seen["target_ends"]


def prove_tail(ground: RunContext, note: JsonObject) -> ActionGenerator[None]:
    since = ground.outcomes["history_proof"].get("summary")
    yield from require_proof(ground, note, ground.policy.tail_level, final=True, since=since)
    yield from _nothing_moved(ground)


def pass_point_of_no_return(ground: RunContext, note: JsonObject) -> ActionGenerator[None]:
    """The last look. When this step's outcome is in the journal, nothing is taken back by itself any more."""
    yield from refuse_new_partitions(ground)
    source, target = yield from _nothing_moved(ground)
    note.update(source_ends=encode_offsets(source.ends), target_ends=encode_offsets(target.ends))
    back = describe_way_back(ground.policy)
    if ground.earlier is not None:  # this run is the way back
        back = f"a new migration to {ground.flow.source}"
    yield ReportMessage(
        f"POINT OF NO RETURN: next, {', '.join(ground.producers)} write to {ground.flow.target}. "
        f"From then on nothing is switched back by itself. The way back: {back}"
    )


def _nothing_moved(ground: RunContext) -> ActionGenerator[tuple[ObservedLogs, ObservedLogs]]:
    source = yield from read_source_logs(ground)
    yield from refuse_stragglers(ground, ground.offsets("barrier", "ends"), source)
    target = yield from read_target_logs(ground)
    moved = find_offset_changes(ground.offsets("drain", "target_ends"), target.ends)
    if moved:
        named = ", ".join(f"{place} by {count:+d}" for place, count in moved.items())
        raise Refused(
            f"something else writes to the target: after the drain {named} at {ground.flow.target}",
            {"target_moved": {str(place): count for place, count in moved.items()}},
        )
    return source, target


def switch_producers(ground: RunContext, note: JsonObject) -> ActionGenerator[None]:
    yield from _start(ground, "target", note, ground.producers)


def check_canary(ground: RunContext, note: JsonObject) -> ActionGenerator[None]:
    """The first writes on the target are there to be read, and the source got none of them (redpanda#31659)."""
    policy = ground.policy
    before = ground.offsets("point_of_no_return", "target_ends")
    ends = ground.offsets("barrier", "ends")
    grown: dict[TopicPartition, int] = {}

    def look() -> ActionGenerator[ConditionCheck]:
        now = yield from read_target_logs(ground)
        grown.clear()
        grown.update(find_offset_changes(before, now.stable))
        ahead = {place: count for place, count in grown.items() if count > 0}
        text = f"{sum(ahead.values())} records beyond the barrier on {len(ahead)} partitions of the target"
        return ConditionCheck(bool(ahead), text, now.at_ms, {"first_writes": {str(p): n for p, n in ahead.items()}})

    found = yield from wait_for_condition(look, policy.canary_bound_ms, policy)
    note.update(found.seen)
    at = {place: before[place] for place, count in grown.items() if count > 0}
    read = (yield from perform_action(ReadRecords("target", at), ObservedRecords, policy)).records
    unread = [str(place) for place, record in read.items() if record is None]
    if unread:
        raise Refused(f"first writes on {', '.join(unread)} are in the log but cannot be read back", note)
    note["read_back"] = sorted(str(place) for place in read)
    yield from refuse_stranded_records(ground, ends, (yield from read_source_logs(ground)))


def seal_evidence(ground: RunContext, note: JsonObject) -> ActionGenerator[None]:
    seen = yield from perform_action(Seal(), SealedEvidence, ground.policy)
    note.update(evidence=seen.path, root=seen.root)


def _start(ground: RunContext, side: ClusterSide, note: JsonObject, names: tuple[str, ...]) -> ActionGenerator[None]:
    note["started"] = {}
    alias = ground.flow.source if side == "source" else ground.flow.target
    for name in names:
        seen = yield from perform_action(StartApplication(name, "producer", side), ObservedApplication, ground.policy)
        if seen.state == "stopped" or seen.cluster not in (None, alias):
            raise Refused(f"producer {name} should run at {alias}; it is {seen.state} at {seen.cluster}")
        note["started"][name] = alias
