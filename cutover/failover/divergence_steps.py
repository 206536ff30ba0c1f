"""The step of a failback that compares the old primary with what was copied of it: what only one of the two has."""

from __future__ import annotations

from typing import Any, Final

from watershed.cutover.actions import FindDivergence, JsonObject, ReadCluster, ReadGroup, ReportMessage
from watershed.cutover.errors import Refused
from watershed.cutover.observations import DivergentRange, ObservedCluster, ObservedDivergence, ObservedGroup
from watershed.cutover.polling import ActionGenerator, ConditionCheck, perform_action, wait_for_condition
from watershed.cutover.run_context import RunContext
from watershed.cutover.utc_instant import render_utc_instant
from watershed.topology.kafka_streams import find_streams_topics

_SHOWN: Final = 10


def list_divergent_records(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Step `divergence`: compares both clusters up to the failover and lists records that only the old primary has.

    Raises Refused when the old primary has lost records that were copied.
    """
    earlier, policy, old = context.earlier, context.policy, context.flow.target
    assert earlier is not None, "a failback knows what it takes back"
    seen = yield from perform_action(ReadCluster("target"), ObservedCluster, policy)
    if seen.pinned is not None and seen.pinned != seen.cluster_id:
        raise Refused(f"cluster {old} is {seen.cluster_id}, the topology pins {seen.pinned}: it is not the old primary")
    copied = earlier.outcomes.barrier
    found = yield from perform_action(FindDivergence("target", copied), ObservedDivergence, policy)
    outcome.update(
        encode_divergence(found.stretches), since=earlier.outcomes["barrier"]["ends"], takes_back=earlier.run
    )
    known = earlier.outcomes.copied_topic_ids
    anew = sorted(topic for topic, id_ in known.items() if found.ids.get(topic, id_) != id_)
    if anew:
        raise Refused(
            f"{', '.join(anew)} at {old} was deleted and created again since it was copied: nothing of its history is "
            f"there. Copy it from {context.flow.source} anew instead of failing back",
            outcome,
        )
    short = {place: (found.ends[place], at) for place, at in copied.items() if found.ends[place] < at}
    if short:
        named = "; ".join(f"{place} offsets {end} to {at - 1}" for place, (end, at) in sorted(short.items()))
        raise Refused(
            f"{old} has lost records that were copied ({named}): only {context.flow.source} has them, and the flow "
            f"back carries what was written since the failover only. Copy these topics from {context.flow.source} anew",
            outcome | {"lost_at_old": {str(place): at - end for place, (end, at) in short.items()}},
        )
    _refuse_divergent_state(context, found.stretches, outcome)
    yield ReportMessage(f"DIVERGENCE: {describe_divergence(found.stretches, old)}", dict(outcome))
    if found.stretches and policy.stranded is None:
        raise Refused(
            f"{describe_divergence(found.stretches, old)}. They were never copied, and are never merged: say "
            f"--divergence skip (they "
            f"stay in the log of {old}, and groups go on behind them) or --divergence reread (groups go on in front of "
            "them, and read again what follows); --report FILE writes each one's coordinates",
            outcome,
        )


def _refuse_divergent_state(context: RunContext, stretches: tuple[DivergentRange, ...], outcome: JsonObject) -> None:
    """A Streams application restores whatever its changelogs hold. Nobody can take records out of a log, so state that
    only the old primary has would be in the stores there."""
    topics = {each.place.topic for each in stretches}
    for group in context.groups:
        internal = find_streams_topics(group, topics, context.groups)
        if internal and group not in context.policy.rebuild:
            old, new = context.flow.target, context.flow.source
            raise Refused(
                f"Streams application {group}: {', '.join(internal)} at {old} hold state that was never copied to "
                f"{new}, and it would be in the stores that the application restores there. Delete its internal topics "
                f"at {old}, copy all its topics from {new} by a new flow (with a `suffix`), and move it with `topology "
                f"migrate`; or let it begin with empty stores (migration.groups.{group}.state: rebuild)",
                outcome,
            )


def wait_for_empty_old_groups(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Members that died with the old primary are in its groups again when it comes back, until their sessions end."""
    policy, old = context.policy, context.flow.target
    outcome["waited_for"] = {}
    for group in context.groups:

        def look(group: str = group) -> ActionGenerator[ConditionCheck]:
            seen = yield from perform_action(ReadGroup("target", group), ObservedGroup, policy)
            text = f"group {group} has {seen.members} members at {old}, of before it died or alive"
            return ConditionCheck(not seen.members, text, seen.at_ms, {"members": seen.members})

        found = yield from wait_for_condition(look, policy.empty_ms(group, static=True), policy)
        outcome["waited_for"][group] = found.seen["members"]


def encode_divergence(stretches: tuple[DivergentRange, ...]) -> JsonObject:
    """By partition: `ranges` of offsets, `records` in them, and the oldest and newest timestamp."""
    partitions: dict[str, dict[str, Any]] = {}
    for each in stretches:
        row = partitions.setdefault(
            str(each.place),
            {"ranges": [], "records": 0, "oldest_ms": each.oldest_ms, "newest_ms": each.newest_ms},
        )
        row["ranges"].append([each.first, each.last])
        row["records"] += each.records
        row["oldest_ms"] = min(row["oldest_ms"], each.oldest_ms)
        row["newest_ms"] = max(row["newest_ms"], each.newest_ms)
    return {"records": sum(each.records for each in stretches), "partitions": partitions}


def describe_divergence(stretches: tuple[DivergentRange, ...], alias: str) -> str:
    """For people, in a sentence."""
    if not stretches:
        return f"{alias} holds no record that was not copied"
    named = ", ".join(f"{each.place} {each.first} to {each.last}" for each in stretches[:_SHOWN])
    named += f" and {len(stretches) - _SHOWN} more ranges" if len(stretches) > _SHOWN else ""
    oldest, newest = min(each.oldest_ms for each in stretches), max(each.newest_ms for each in stretches)
    return (
        f"{sum(each.records for each in stretches)} records are only at {alias} (offsets {named}), written from "
        f"{render_utc_instant(oldest)} to {render_utc_instant(newest)}"
    )
