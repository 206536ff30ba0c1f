"""Records that somebody who did not move wrote at the old source after the switch: no flow carries them, and a group
that returns meets them, or has passed them already."""

from __future__ import annotations

from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import FindDivergence, JsonObject
from watershed.cutover.errors import Refused
from watershed.cutover.observations import ObservedDivergence
from watershed.cutover.offsets import decode_offsets, encode_offsets, render_offsets
from watershed.cutover.polling import ActionGenerator, perform_action
from watershed.cutover.run_context import RunContext

_Places = dict[TopicPartition, int]


def find_stranded_records(context: RunContext, problems: list[str]) -> ActionGenerator[JsonObject]:
    """Everything behind the barrier that is not the flow's; `find_stranded_offsets` looks for more of it later."""
    places = map(context.at_target, context.source_places())  # all of one that was added since is looked at
    barrier = dict.fromkeys(places, 0) | context.run_taken_back.outcomes.barrier
    seen = yield from perform_action(FindDivergence("target", barrier), ObservedDivergence, context.policy)
    found = [[each.place.topic, each.place.partition, each.first, each.last, each.records] for each in seen.stretches]
    if found and context.policy.stranded is None:
        named = ", ".join(f"{each.place} offsets {each.first} to {each.last}" for each in seen.stretches)
        count = sum(each.records for each in seen.stretches)
        problems.append(
            f"{count} records were written at {context.flow.target} after the switch, by somebody who did not move: "
            f"{named}. Groups that have read on at {context.flow.source} can not meet them in their order: say "
            "--stranded skip (they are left to you) or --stranded reread (groups go on in front of them, and read "
            "again what follows), and stop their producer"
        )
    return {"upto": encode_offsets(seen.ends), "stretches": found}


def find_stranded_offsets(context: RunContext) -> ActionGenerator[dict[TopicPartition, list[int]]]:
    """By partition, the first offset of each stretch: those of preflight, and what came since."""
    before: JsonObject = context.outcomes["preflight_back"]["stranded"]
    found: dict[TopicPartition, list[int]] = {}
    for topic, partition, first, _, _ in before["stretches"]:
        found.setdefault(TopicPartition(topic, partition), []).append(first)
    look = FindDivergence("target", decode_offsets(before["upto"]))
    for each in (yield from perform_action(look, ObservedDivergence, context.policy)).stretches:
        found.setdefault(each.place, []).append(each.first)
    return found


def find_reread_offsets(
    context: RunContext, group: str, back: _Places, stranded: dict[TopicPartition, list[int]]
) -> dict[TopicPartition, int]:
    """Where the group has passed records that only the old source has, and is to go on in front of them."""
    passed = {p: min(firsts) for p, firsts in stranded.items() if p in back and min(firsts) < back[p]}
    if passed and context.policy.stranded is None:
        raise Refused(
            f"group {group} has read beyond records that were written at {context.flow.target} after the switch "
            f"({render_offsets(passed)}): say --stranded skip or --stranded reread",
            {"stranded": encode_offsets(passed)},
        )
    return passed if context.policy.stranded == "reread" else {}
