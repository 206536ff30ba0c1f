"""The steps that move producers: fence, standstill, barrier, drain, tail proof, point of no return, switch, canary.

The order is the point (docs/cutover-cases.md, C12): lag 0 alone is never a gate, the barrier is taken only after the
source stood still, and every later step looks again whether it still does.
"""

from __future__ import annotations

from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import JsonObject, ReadRecords, ReportMessage, Seal
from watershed.cutover.application_steps import restart_applications, start_applications, stop_each_application
from watershed.cutover.errors import Refused
from watershed.cutover.fences.fence_steps import lower_fence, raise_fence
from watershed.cutover.fences.stragglers import refuse_stragglers, refuse_stranded_records, require_only_markers
from watershed.cutover.gates import require_proof
from watershed.cutover.migration_step_order import describe_way_back
from watershed.cutover.observations import ObservedApplication, ObservedLogs, ObservedRecords, SealedEvidence
from watershed.cutover.offsets import encode_offsets, find_offset_changes, render_offsets
from watershed.cutover.polling import ActionGenerator, ConditionCheck, perform_action, wait_for_condition
from watershed.cutover.run_context import (
    CopyProgress,
    RunContext,
    read_copies,
    read_source_logs,
    read_target_logs,
    refuse_new_partitions,
    refuse_paused_topics,
)


def fence_producers(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Step `fence_producers`: stops every producer, then raises the file's fence. Raises Refused where a partition was
    paused meanwhile: nobody would write while the run waits for it."""
    yield from refuse_paused_topics(context, context.partitions())
    yield from stop_and_fence_producers(context, outcome)


def stop_and_fence_producers(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Stops every producer, then raises the file's fence, whether the flow still copies or not."""
    stopped: list[JsonObject] = []
    outcome["stopped"] = stopped

    def note(seen: ObservedApplication) -> None:
        stopped.append({"name": seen.name, "by": seen.by, **({"said": seen.text} if seen.text else {})})

    yield from stop_each_application(context, context.producers, "producer", "source", note)
    yield from raise_fence(context, outcome)


def undo_fence_producers(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Lowers the fence and starts the producers that ran before the run."""
    yield from lower_fence(context, outcome)
    yield from restart_applications(context, context.producers, "producer", outcome)


def fix_barrier(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Fix the source's ends. An open transaction would end behind the barrier, so none may be open."""
    policy = context.policy
    yield from refuse_new_partitions(context)
    ends = context.outcomes.standstill_ends

    def look() -> ActionGenerator[ConditionCheck]:
        nonlocal ends
        now = yield from read_source_logs(context)
        ends = yield from require_only_markers(context, ends, now)
        still = {place: end - now.stable[place] for place, end in now.ends.items() if now.stable[place] < end}
        named = ", ".join(f"{place} ({count} offsets)" for place, count in sorted(still.items()))
        text = f"open transactions on {named}" if still else f"barrier {render_offsets(now.ends)}"
        # A marker may have come between the look at the log ends and the look at who moved them: then look again.
        return ConditionCheck(not still and ends == dict(now.ends), text, now.at_ms, {"ends": encode_offsets(now.ends)})

    found = yield from wait_for_condition(look, policy.barrier_bound_ms, policy)
    outcome["ends"] = found.seen["ends"]
    outcome["records"] = sum(ends.values())
    yield ReportMessage(found.text, found.seen)


def drain_to_barrier(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """By the ledger's own map, everything below the barrier is on the target. Names the slowest if not (C10)."""
    policy = context.policy
    ends = context.outcomes.barrier
    progress = CopyProgress(context)

    def look() -> ActionGenerator[ConditionCheck]:
        copied = yield from read_copies(context)
        logs = yield from read_source_logs(context)
        yield from refuse_stragglers(context, ends, logs)
        behind = context.behind(copied.copies, logs, ends)
        yield from progress.look(copied, behind)
        named = ", ".join(f"{place} {count}" for place, count in behind.items())
        text = f"to the barrier: {named} offsets to go" if behind else "every partition is copied to the barrier"
        seen: JsonObject = {"behind": {str(place): count for place, count in behind.items()}}
        if behind:
            return ConditionCheck(False, text, logs.at_ms, seen)
        # A flow that copies in transactions: the ledger may have the last one's end before all its partitions have.
        at_target = yield from read_target_logs(context)
        open_ = [str(place) for place, end in sorted(at_target.ends.items()) if at_target.stable[place] < end]
        if open_:
            text = f"everything is copied; transactions are still open at {context.flow.target} on {', '.join(open_)}"
        return ConditionCheck(not open_, text, at_target.at_ms, {**seen, "target_ends": encode_offsets(at_target.ends)})

    outcome["target_ends"] = (yield from wait_for_condition(look, policy.drain_bound_ms, policy)).seen["target_ends"]


def prove_tail(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Step `tail_proof`: everything up to the barrier, on top of the proof of history; then the source must not have
    moved."""
    since = context.outcomes["history_proof"].get("summary")
    yield from require_proof(context, outcome, context.policy.tail_level, final=True, since=since)
    yield from _nothing_moved(context)


def pass_point_of_no_return(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """The last look. When this step's outcome is in the journal, nothing is taken back by itself any more."""
    yield from refuse_new_partitions(context)
    source, target = yield from _nothing_moved(context)
    outcome.update(source_ends=encode_offsets(source.ends), target_ends=encode_offsets(target.ends))
    back = describe_way_back(context.policy)
    if context.earlier is not None:  # this run is the way back
        back = f"a new migration to {context.flow.source}"
    yield ReportMessage(
        f"POINT OF NO RETURN: next, {', '.join(context.producers)} write to {context.flow.target}. "
        f"From then on nothing is switched back by itself. The way back: {back}"
    )


def _nothing_moved(context: RunContext) -> ActionGenerator[tuple[ObservedLogs, ObservedLogs]]:
    source = yield from read_source_logs(context)
    yield from refuse_stragglers(context, context.outcomes.barrier, source)
    target = yield from read_target_logs(context)
    moved = find_offset_changes(context.outcomes.drained_ends, target.ends)
    if moved:
        named = ", ".join(f"{place} by {count:+d}" for place, count in moved.items())
        raise Refused(
            f"something else writes to the target: after the drain {named} at {context.flow.target}",
            {"target_moved": {str(place): count for place, count in moved.items()}},
        )
    return source, target


def switch_producers(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Step `switch_producers`: starts the wave's producers at the target."""
    yield from start_applications(context, context.producers, "producer", "target", outcome)


def check_canary(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """The first writes on the target are there to be read, and the source got none of them (redpanda#31659)."""
    policy = context.policy
    before = context.outcomes.cut
    ends = context.outcomes.barrier
    grown: dict[TopicPartition, int] = {}

    def look() -> ActionGenerator[ConditionCheck]:
        now = yield from read_target_logs(context)
        grown.clear()
        grown.update(find_offset_changes(before, now.stable))
        ahead = {place: count for place, count in grown.items() if count > 0}
        text = f"{sum(ahead.values())} records beyond the barrier on {len(ahead)} partitions of the target"
        return ConditionCheck(bool(ahead), text, now.at_ms, {"first_writes": {str(p): n for p, n in ahead.items()}})

    found = yield from wait_for_condition(look, policy.canary_bound_ms, policy)
    outcome.update(found.seen)
    at = {place: before[place] for place, count in grown.items() if count > 0}
    read = (yield from perform_action(ReadRecords("target", at), ObservedRecords, policy)).records
    unread = [str(place) for place, record in read.items() if record is None]
    if unread:
        raise Refused(f"first writes on {', '.join(unread)} are in the log but cannot be read back", outcome)
    outcome["read_back"] = sorted(str(place) for place in read)
    yield from refuse_stranded_records(context, ends, (yield from read_source_logs(context)))


def seal_evidence(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Step `seal`: writes the evidence pack; `root` is the journal's hash at that moment."""
    seen = yield from perform_action(Seal(), SealedEvidence, context.policy)
    outcome.update(evidence=seen.path, root=seen.root)
