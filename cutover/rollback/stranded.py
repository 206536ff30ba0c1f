"""Records that somebody who did not move wrote at the old source after the switch: no flow carries them, and a group
that returns meets them, or has passed them already."""

from __future__ import annotations

from clusters.names import TopicPartition
from cutover.actions import Json, LookAtDivergence
from cutover.errors import Refused
from cutover.ground import Ground
from cutover.observations import DivergenceSeen
from cutover.offsets import from_json, show, to_json
from cutover.waiting import Asking, ask

_Places = dict[TopicPartition, int]


def look_for_stranded(ground: Ground, problems: list[str]) -> Asking[Json]:
    """Everything behind the barrier that is not the flow's; more of it is looked for later (`stranded_by_now`)."""
    places = map(ground.at_target, ground.source_places())  # all of one that was added since is looked at
    barrier = dict.fromkeys(places, 0) | ground.taking_back.offsets("barrier", "ends")
    seen = yield from ask(LookAtDivergence("target", barrier), DivergenceSeen, ground.policy)
    found = [[each.place.topic, each.place.partition, each.first, each.last, each.records] for each in seen.stretches]
    if found and ground.policy.stranded is None:
        named = ", ".join(f"{each.place} offsets {each.first} to {each.last}" for each in seen.stretches)
        count = sum(each.records for each in seen.stretches)
        problems.append(
            f"{count} records were written at {ground.flow.target} after the switch, by somebody who did not move: "
            f"{named}. Groups that have read on at {ground.flow.source} can not meet them in their order: say "
            "--stranded skip (they are left to you) or --stranded reread (groups go on in front of them, and read "
            "again what follows), and stop their producer"
        )
    return {"upto": to_json(seen.ends), "stretches": found}


def stranded_by_now(ground: Ground) -> Asking[dict[TopicPartition, list[int]]]:
    """By partition, the first offset of each stretch: those of preflight, and what came since."""
    before: Json = ground.outcomes["preflight_back"]["stranded"]
    found: dict[TopicPartition, list[int]] = {}
    for topic, partition, first, _, _ in before["stretches"]:
        found.setdefault(TopicPartition(topic, partition), []).append(first)
    look = LookAtDivergence("target", from_json(before["upto"]))
    for each in (yield from ask(look, DivergenceSeen, ground.policy)).stretches:
        found.setdefault(each.place, []).append(each.first)
    return found


def in_front(
    ground: Ground, group: str, back: _Places, stranded: dict[TopicPartition, list[int]]
) -> dict[TopicPartition, int]:
    """Where the group has passed records that only the old source has, and is to go on in front of them."""
    passed = {p: min(firsts) for p, firsts in stranded.items() if p in back and min(firsts) < back[p]}
    if passed and ground.policy.stranded is None:
        raise Refused(
            f"group {group} has read beyond records that were written at {ground.flow.target} after the switch "
            f"({show(passed)}): say --stranded skip or --stranded reread",
            {"stranded": to_json(passed)},
        )
    return passed if ground.policy.stranded == "reread" else {}
