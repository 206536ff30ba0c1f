"""Whether the groups that have moved keep up at the target: counted from where they were translated to, by what they
have committed since, and by records; a marker or a hole of compaction at a log's end is nothing to read."""

from __future__ import annotations

from collections.abc import Mapping

from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import JsonObject, ReadGroup, ReadRecords
from watershed.cutover.groups.group_preflight import describe_members
from watershed.cutover.observations import ObservedGroup, ObservedLogs, ObservedRecords
from watershed.cutover.polling import ActionGenerator, ConditionCheck, perform_action, wait_for_condition
from watershed.cutover.run_context import RunContext, read_target_logs

_SHOWN = 5  # partitions that one message names
_Positions = Mapping[TopicPartition, int]


def wait_for_consumer_lag(context: RunContext, outcome: JsonObject, most: int) -> ActionGenerator[None]:
    """The gate `consumer_lag`: every group is at most so many offsets behind. One that is not, when the time is over,
    is named, with its partitions, its members, and whether it has committed anything since it came here."""

    def look() -> ActionGenerator[ConditionCheck]:
        logs = yield from read_target_logs(context)
        lags: dict[str, int] = {}
        seen: JsonObject = {}
        late: list[str] = []
        for name in context.groups:
            group = yield from perform_action(ReadGroup("target", name), ObservedGroup, context.policy)
            begun = context.translated(name).target
            at = _standing(context, name, group, begun, logs)
            behind = yield from _behind(context, at, logs, most)
            lags[name] = sum(behind.values())
            moved = any(at[place] != begun.get(place, at[place]) for place in at)
            seen[name] = {"moved": moved, "members": group.members, "behind": {str(p): n for p, n in behind.items()}}
            if lags[name] > most:
                late.append(_describe_lag(name, group, behind, moved=moved))
        worst = max(lags.values(), default=0)
        text = f"groups on the target lag {worst} records (gate: {most})" + "".join(f"; {each}" for each in late)
        return ConditionCheck(not late, text, logs.at_ms, {"consumer_lag": lags, "groups": seen})

    outcome.update((yield from wait_for_condition(look, context.policy.soak_bound_ms, context.policy)).seen)


def _standing(
    context: RunContext, name: str, group: ObservedGroup, begun: _Positions, logs: ObservedLogs
) -> _Positions:
    """How far the group is, in each partition that it reads. What it has not committed since, it was translated to; of
    a share group, what it is done with behind its start offset counts."""
    places = [context.at_target(place) for place in context.list_needed_partitions(name)]
    at = {place: group.offsets.get(place, begun.get(place, logs.starts[place])) for place in places}
    return {place: max(offset, logs.starts[place], group.done.get(place, 0)) for place, offset in at.items()}


def _behind(
    context: RunContext, at: _Positions, logs: ObservedLogs, most: int
) -> ActionGenerator[dict[TopicPartition, int]]:
    """Offsets to the last that can be read. Where that is more than the gate allows, records are looked for: offsets
    alone may be markers."""
    behind = {place: logs.stable[place] - offset for place, offset in at.items() if logs.stable[place] > offset}
    if sum(behind.values()) <= most:
        return behind
    look = ReadRecords("target", {place: at[place] for place in behind})
    records = (yield from perform_action(look, ObservedRecords, context.policy)).records
    return {place: count for place, count in behind.items() if records[place] is not None}


def _describe_lag(name: str, group: ObservedGroup, behind: Mapping[TopicPartition, int], *, moved: bool) -> str:
    worst = sorted(behind.items(), key=lambda each: (-each[1], each[0]))
    named = ", ".join(f"{place} {count}" for place, count in worst[:_SHOWN])
    more = f" and {len(worst) - _SHOWN} more" if len(worst) > _SHOWN else ""
    progress = "" if moved else ", has committed nothing since it came here"
    return f"group {name} lags {sum(behind.values())} ({named}{more}){progress}, with {describe_members(group)}"
