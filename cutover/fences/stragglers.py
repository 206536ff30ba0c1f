"""Whoever writes where nobody should: to the source behind its fence, or after the switch. They are named, because a
person has to find them (C11, C13).

What the log itself says counts: batches carry their producer. Brokers tell neither the principal nor the client id
behind a producer id; a transactional id, and who ACLs let write, is all they tell.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from clusters.names import TopicPartition
from cutover.actions import Json, LookAtWriters
from cutover.errors import Refused
from cutover.ground import Ground, source_logs
from cutover.observations import LogsSeen, Writer, WritersSeen
from cutover.offsets import growth, to_json
from cutover.waiting import Asking, Check, ask, wait

_Ends = Mapping[TopicPartition, int]
_SHOWN = 5  # writers that one message names


def standstill(ground: Ground, note: Json) -> Asking[None]:
    """The source's log ends stay where they are for the watch time. One record more is a straggler (C11).

    Until two looks see the same, at most `settle_ms`, ends may move: requests were under way when the fence rose, and a
    high watermark follows its log's end (acks=1). A transaction's end is no record.
    """
    policy = ground.policy
    first = yield from source_logs(ground)
    ends: dict[TopicPartition, int] = dict(first.ends)
    since_ms, settled = first.at_ms, False

    def look() -> Asking[Check]:
        nonlocal ends, since_ms, settled
        now = yield from source_logs(ground)
        if not settled and growth(ends, now.ends) and now.at_ms - first.at_ms < policy.settle_ms:
            ends, since_ms = dict(now.ends), now.at_ms
        else:
            settled = settled or now.at_ms - since_ms >= policy.poll_ms
            ends = yield from only_markers(ground, ends, now)
        text = f"source stands still for {(now.at_ms - since_ms) / 1000:.0f} of {policy.watch_ms / 1000:g} s"
        return Check(now.at_ms - since_ms >= policy.watch_ms, text, now.at_ms, {})

    yield from wait(look, policy.settle_ms + policy.watch_ms + policy.reach_ms, policy)
    note.update(ends=to_json(ends), watched_ms=policy.watch_ms)


def straggler_watch(ground: Ground, note: Json) -> Asking[None]:
    """Producers write to the target; whoever writes to the source now is stranded there (C13). What was written while
    nobody drove is seen by the next look, so that this time counts, too."""
    policy = ground.policy
    ends = ground.offsets("barrier", "ends")
    first = yield from source_logs(ground)
    left_ms = ground.left_ms("straggler_watch", policy.after_ms)

    def look() -> Asking[Check]:
        nonlocal ends
        now = yield from source_logs(ground)
        ends = yield from refuse_stranded(ground, ends, now)
        watched_ms = now.at_ms - first.at_ms
        text = f"no application writes to the source for {(policy.after_ms - left_ms + watched_ms) / 1000:.0f}"
        text += f" of {policy.after_ms / 1000:g} s"
        return Check(watched_ms >= left_ms, text, now.at_ms, {})

    yield from wait(look, left_ms + policy.reach_ms, policy)
    note["watched_ms"] = policy.after_ms


def refuse_stragglers(ground: Ground, ends: _Ends, now: LogsSeen) -> Asking[None]:
    """Raises Refused, naming partitions, amounts and writers, when the source's log ends are not `ends` any more."""
    moved = growth(ends, now.ends)
    if moved:
        raise _straggler(ground, moved, (yield from _writers(ground, moved, ends)))


def only_markers(ground: Ground, ends: _Ends, now: LogsSeen) -> Asking[dict[TopicPartition, int]]:
    """The log ends, when all that was written since is ends of transactions. Raises Refused as above for a record."""
    moved = growth(ends, now.ends)
    if not moved:
        return dict(ends)
    seen = yield from _writers(ground, moved, ends)
    if seen is None or not seen.writers or not all(writer.marker for writer in seen.writers):
        raise _straggler(ground, moved, seen)
    return {**ends, **seen.upto}


def refuse_stranded(ground: Ground, ends: _Ends, now: LogsSeen) -> Asking[dict[TopicPartition, int]]:
    """How far the source was seen to hold nothing but what the reverse flow brought since `ends`. Raises Refused when
    anybody else wrote there after the switch: that is stranded (C13)."""
    moved = growth(ends, now.ends)
    if not moved:
        return dict(ends)
    reverse = ground.policy.reverse
    if reverse is None:
        seen = yield from _writers(ground, moved, ends)
    else:  # who it was decides, so the answer is waited for
        behind = {place: ends[place] for place, count in moved.items() if count > 0}
        seen = yield from ask(LookAtWriters("source", tuple(behind), behind), WritersSeen, ground.policy)
        if all(count > 0 for count in moved.values()) and all(writer.flow == reverse for writer in seen.writers):
            return {**ends, **seen.upto}
    named = ", ".join(f"{place} offsets {ends[place]} to {now.ends[place] - 1}" for place in moved)
    raise Refused(
        f"stranded: records were written to the source after the switch: {named}{_told(ground, seen)}. Find that "
        "producer and stop it; these records are not on the target in their order",
        {"stranded": {str(place): count for place, count in moved.items()}, **_json(seen)},
    )


def _straggler(ground: Ground, moved: _Ends, seen: WritersSeen | None) -> Refused:
    named = ", ".join(f"{place} by {count:+d}" for place, count in moved.items())
    return Refused(
        f"straggler: after the fence the source still moved: {named}{_told(ground, seen)}. Some producer of these "
        f"topics is not in the wave or did not stop; find it by its writes, add it to wave {ground.wave.name}, and "
        "run again",
        {"stragglers": {str(place): count for place, count in moved.items()}, **_json(seen)},
    )


def _writers(ground: Ground, moved: _Ends, since: _Ends) -> Asking[WritersSeen | None]:
    """Asked once: a straggler is refused whether it can be named or not."""
    behind = {place: since[place] for place, count in moved.items() if count > 0}
    if not behind:  # logs became shorter: there is nobody to name
        return None
    seen = yield LookAtWriters("source", tuple(behind), behind)
    return seen if isinstance(seen, WritersSeen) else None


def _told(ground: Ground, seen: WritersSeen | None) -> str:
    """Who it was, as a part of the message."""
    if seen is None or not seen.writers:
        return " (the brokers do not tell who it was)"
    shown = [described(writer) for writer in _others_first(seen.writers)]
    more = [f"and {len(shown) - _SHOWN} more"] if len(shown) > _SHOWN else []
    hint = f"the wave's producers are {', '.join(ground.producers) or 'none'}"
    if seen.allowed:
        hint += f"; ACLs let {', '.join(seen.allowed)} write there"
    return (
        f". Written by {'; '.join(shown[:_SHOWN] + more)}. Brokers do not tell the principal or the client id of a "
        f"producer id ({hint})"
    )


def described(writer: Writer) -> str:
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
    last = f", last at {_utc(writer.last_ms)}" if writer.last_ms >= 0 else ""
    return f"{who}: {what} at {writer.place} {where}{last}"


def _utc(ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms / 1000))


def _others_first(writers: Iterable[Writer]) -> list[Writer]:
    return sorted(writers, key=lambda each: (bool(each.flow), each.marker, -each.last_ms, each.place))


def _json(seen: WritersSeen | None) -> Json:
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
                "last_write": _utc(each.last_ms) if each.last_ms >= 0 else None,
                "transactional_id": each.who,
                "flow": each.flow,
            }
            for each in _others_first(seen.writers)[: 10 * _SHOWN]
        ]
    }
