"""Whoever writes where nobody should: to the source behind its fence, or after the switch. They are named, because a
person has to find them (C11, C13).

What the log itself says counts: batches carry their producer. Brokers tell neither the principal nor the client id
behind a producer id; a transactional id, and who ACLs let write, is all they tell.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import FindWriters, JsonObject
from watershed.cutover.errors import Refused
from watershed.cutover.observations import ObservedLogs, ObservedWriter, ObservedWriters
from watershed.cutover.offsets import encode_offsets, find_offset_changes
from watershed.cutover.polling import ActionGenerator, ConditionCheck, perform_action, wait_for_condition
from watershed.cutover.run_context import RunContext, read_source_logs

_Ends = Mapping[TopicPartition, int]
_SHOWN = 5  # writers that one message names


def wait_for_standstill(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """The source's log ends stay where they are for the watch time. One record more is a straggler (C11).

    Log ends may still move for up to `settle_ms` after the fence: requests were in flight, and with acks=1 the high
    watermark follows later. From the first two equal readings on, every new record is a straggler. The marker of a
    transaction's end is no record.
    """
    policy = context.policy
    first = yield from read_source_logs(context)
    ends: dict[TopicPartition, int] = dict(first.ends)
    since_ms, settled = first.at_ms, False

    def look() -> ActionGenerator[ConditionCheck]:
        nonlocal ends, since_ms, settled
        now = yield from read_source_logs(context)
        if not settled and find_offset_changes(ends, now.ends) and now.at_ms - first.at_ms < policy.settle_ms:
            ends, since_ms = dict(now.ends), now.at_ms
        else:
            settled = settled or now.at_ms - since_ms >= policy.poll_ms
            ends = yield from require_only_markers(context, ends, now)
        text = f"source stands still for {(now.at_ms - since_ms) / 1000:.0f} of {policy.watch_ms / 1000:g} s"
        return ConditionCheck(now.at_ms - since_ms >= policy.watch_ms, text, now.at_ms, {})

    yield from wait_for_condition(look, policy.settle_ms + policy.watch_ms + policy.reach_ms, policy)
    outcome.update(ends=encode_offsets(ends), watched_ms=policy.watch_ms)


def watch_for_stragglers(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Producers write to the target; whoever writes to the source now is stranded there (C13). What was written while
    nobody drove is seen by the next look, so that this time counts, too."""
    policy = context.policy
    ends = context.outcomes.barrier
    first = yield from read_source_logs(context)
    left_ms = context.left_ms("straggler_watch", policy.after_ms)

    def look() -> ActionGenerator[ConditionCheck]:
        nonlocal ends
        now = yield from read_source_logs(context)
        ends = yield from refuse_stranded_records(context, ends, now)
        watched_ms = now.at_ms - first.at_ms
        text = f"no application writes to the source for {(policy.after_ms - left_ms + watched_ms) / 1000:.0f}"
        text += f" of {policy.after_ms / 1000:g} s"
        return ConditionCheck(watched_ms >= left_ms, text, now.at_ms, {})

    yield from wait_for_condition(look, left_ms + policy.reach_ms, policy)
    outcome["watched_ms"] = policy.after_ms


def refuse_stragglers(context: RunContext, ends: _Ends, now: ObservedLogs) -> ActionGenerator[None]:
    """Raises Refused, naming partitions, amounts and writers, when the source's log ends are not `ends` any more."""
    moved = find_offset_changes(ends, now.ends)
    if moved:
        raise _straggler(context, moved, (yield from _writers(context, moved, ends)))


def require_only_markers(
    context: RunContext, ends: _Ends, now: ObservedLogs
) -> ActionGenerator[dict[TopicPartition, int]]:
    """The log ends, when all that was written since is ends of transactions. Raises Refused as above for a record."""
    moved = find_offset_changes(ends, now.ends)
    if not moved:
        return dict(ends)
    seen = yield from _writers(context, moved, ends)
    if seen is None or not _has_seen_all(seen, moved, now) or not all(writer.marker for writer in seen.writers):
        raise _straggler(context, moved, seen)
    return {**ends, **seen.upto}


def refuse_stranded_records(
    context: RunContext, ends: _Ends, now: ObservedLogs
) -> ActionGenerator[dict[TopicPartition, int]]:
    """How far the source was seen to hold nothing but what the reverse flow brought since `ends`. Raises Refused when
    anybody else wrote there after the switch: that is stranded (C13)."""
    moved = find_offset_changes(ends, now.ends)
    if not moved:
        return dict(ends)
    reverse = context.policy.reverse
    if reverse is None:
        seen = yield from _writers(context, moved, ends)
    else:  # who it was decides, so the answer is waited for
        behind = {place: ends[place] for place, count in moved.items() if count > 0}
        seen = yield from perform_action(FindWriters("source", tuple(behind), behind), ObservedWriters, context.policy)
        if _has_seen_all(seen, moved, now) and all(writer.flow == reverse for writer in seen.writers):
            return {**ends, **seen.upto}
    named = ", ".join(f"{place} offsets {ends[place]} to {now.ends[place] - 1}" for place in moved)
    raise Refused(
        f"stranded: records were written to the source after the switch: {named}{_by_whom(context, seen)}. Find that "
        "producer and stop it; these records are not on the target in their order",
        {"stranded": {str(place): count for place, count in moved.items()}, **_json(seen)},
    )


def _has_seen_all(seen: ObservedWriters, moved: _Ends, now: ObservedLogs) -> bool:
    """Whether each log that moved was read up to its end, and somebody was seen to write there. Otherwise nothing can
    be said of who it was: "all of the writers are ours" is also true of none."""
    written = {writer.place for writer in seen.writers}
    return all(place in written and seen.upto.get(place, -1) >= now.ends[place] for place in moved)


def _straggler(context: RunContext, moved: _Ends, seen: ObservedWriters | None) -> Refused:
    named = ", ".join(f"{place} by {count:+d}" for place, count in moved.items())
    return Refused(
        f"straggler: after the fence the source still moved: {named}{_by_whom(context, seen)}. Some producer of these "
        f"topics is not in the wave or did not stop; find it by its writes, add it to wave {context.wave.name}, and "
        "run again",
        {"stragglers": {str(place): count for place, count in moved.items()}, **_json(seen)},
    )


def _writers(context: RunContext, moved: _Ends, since: _Ends) -> ActionGenerator[ObservedWriters | None]:
    """Asked once: a straggler is refused whether it can be named or not."""
    behind = {place: since[place] for place, count in moved.items() if count > 0}
    if not behind:  # logs became shorter: there is nobody to name
        return None
    seen = yield FindWriters("source", tuple(behind), behind)
    return seen if isinstance(seen, ObservedWriters) else None


def _by_whom(context: RunContext, seen: ObservedWriters | None) -> str:
    """Who it was, as a part of the message."""
    if seen is None or not seen.writers:
        return " (the brokers do not tell who it was)"
    shown = [describe_writer(writer) for writer in _others_first(seen.writers)]
    more = [f"and {len(shown) - _SHOWN} more"] if len(shown) > _SHOWN else []
    hint = f"the wave's producers are {', '.join(context.producers) or 'none'}"
    if seen.allowed:
        hint += f"; ACLs let {', '.join(seen.allowed)} write there"
    if seen.unnamed:
        hint += f"; {seen.unnamed}"
    return (
        f". Written by {'; '.join(shown[:_SHOWN] + more)}. Brokers do not tell the principal or the client id of a "
        f"producer id ({hint})"
    )


def describe_writer(writer: ObservedWriter) -> str:
    """One writer for people: who, what and when (UTC)."""
    if writer.producer_id < 0:
        who = "a producer without idempotence"
    else:
        who = f"producer id {writer.producer_id} (epoch {writer.epoch}"
        who += f", transactional id {writer.who})" if writer.who else ")"
    if writer.flow:
        who = f"flow {writer.flow} of Watershed, {who}"
    what = f"{writer.records} record" + "s" * (writer.records != 1)
    what = "the end of a transaction" if writer.marker else what
    where = f"offsets {writer.first} to {writer.last}" if writer.last > writer.first else f"offset {writer.first}"
    last = f", last at {_render_utc_second(writer.last_ms)}" if writer.last_ms >= 0 else ""
    return f"{who}: {what} at {writer.place} {where}{last}"


def _render_utc_second(ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms / 1000))


def _others_first(writers: Iterable[ObservedWriter]) -> list[ObservedWriter]:
    return sorted(writers, key=lambda each: (bool(each.flow), each.marker, -each.last_ms, each.place))


def _json(seen: ObservedWriters | None) -> JsonObject:
    """For journal and evidence."""
    if seen is None:
        return {}
    return {
        "writers": [
            {
                "at": str(each.place),
                "producer_id": each.producer_id,
                "epoch": each.epoch,
                "sequence": each.sequence,
                "offsets": [each.first, each.last],
                "records": each.records,
                "last_write": _render_utc_second(each.last_ms) if each.last_ms >= 0 else None,
                "transactional_id": each.who,
                "flow": each.flow,
            }
            for each in _others_first(seen.writers)[: 10 * _SHOWN]
        ]
    }
