"""The step of a failback that compares the old primary with what was copied of it: what only one of the two has."""

from __future__ import annotations

from typing import Any, Final

from cutover.actions import Json, LookAtCluster, LookAtDivergence, LookAtGroup, Say
from cutover.errors import Refused
from cutover.failover.loss import instant
from cutover.ground import Ground
from cutover.observations import ClusterSeen, DivergenceSeen, Divergent, GroupSeen
from cutover.waiting import Asking, Check, ask, wait

_SHOWN: Final = 10


def divergence(ground: Ground, note: Json) -> Asking[None]:
    """What only the old side has, and what only the new side has of the time before the failover."""
    earlier, policy, old = ground.earlier, ground.policy, ground.flow.target
    assert earlier is not None, "a failback knows what it takes back"
    seen = yield from ask(LookAtCluster("target"), ClusterSeen, policy)
    if seen.pinned is not None and seen.pinned != seen.cluster_id:
        raise Refused(f"cluster {old} is {seen.cluster_id}, the topology pins {seen.pinned}: it is not the old primary")
    copied = earlier.offsets("barrier", "ends")
    found = yield from ask(LookAtDivergence("target", copied), DivergenceSeen, policy)
    note.update(report(found.stretches), since=earlier.outcomes["barrier"]["ends"], takes_back=earlier.run)
    known: dict[str, str] = earlier.outcomes["cut_workers_off"].get("source_ids", {})
    anew = sorted(topic for topic, id_ in known.items() if found.ids.get(topic, id_) != id_)
    if anew:
        raise Refused(
            f"{', '.join(anew)} at {old} was deleted and created again since it was copied: nothing of its history is "
            f"there. Copy it from {ground.flow.source} anew instead of failing back",
            note,
        )
    short = {place: (found.ends[place], at) for place, at in copied.items() if found.ends[place] < at}
    if short:
        named = "; ".join(f"{place} offsets {end} to {at - 1}" for place, (end, at) in sorted(short.items()))
        raise Refused(
            f"{old} has lost records that were copied ({named}): only {ground.flow.source} has them, and the flow back "
            f"carries what was written since the failover only. Copy these topics from {ground.flow.source} anew",
            note | {"lost_at_old": {str(place): at - end for place, (end, at) in short.items()}},
        )
    yield Say(f"DIVERGENCE: {told(found.stretches, old)}", dict(note))
    if found.stretches and policy.stranded is None:
        raise Refused(
            f"{told(found.stretches, old)}. They were never copied, and are never merged: say --divergence skip (they "
            f"stay in the log of {old}, and groups go on behind them) or --divergence reread (groups go on in front of "
            "them, and read again what follows); --report FILE writes each one's coordinates",
            note,
        )


def old_groups_empty(ground: Ground, note: Json) -> Asking[None]:
    """Members that died with the old primary are in its groups again when it comes back, until their sessions end."""
    policy, old = ground.policy, ground.flow.target
    note["waited_for"] = {}
    for group in ground.groups:

        def look(group: str = group) -> Asking[Check]:
            seen = yield from ask(LookAtGroup("target", group), GroupSeen, policy)
            text = f"group {group} has {seen.members} members at {old}, of before it died or alive"
            return Check(not seen.members, text, seen.at_ms, {"members": seen.members})

        found = yield from wait(look, policy.empty_ms(group, static=True), policy)
        note["waited_for"][group] = found.seen["members"]


def report(stretches: tuple[Divergent, ...]) -> Json:
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


def told(stretches: tuple[Divergent, ...], alias: str) -> str:
    """For people, in a sentence."""
    if not stretches:
        return f"{alias} holds no record that was not copied"
    named = ", ".join(f"{each.place} {each.first} to {each.last}" for each in stretches[:_SHOWN])
    named += f" and {len(stretches) - _SHOWN} more ranges" if len(stretches) > _SHOWN else ""
    oldest, newest = min(each.oldest_ms for each in stretches), max(each.newest_ms for each in stretches)
    return (
        f"{sum(each.records for each in stretches)} records are only at {alias} (offsets {named}), written from "
        f"{instant(oldest)} to {instant(newest)}"
    )
