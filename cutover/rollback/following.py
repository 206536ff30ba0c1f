"""The migration's flow after applications have come back: it copies again, as before the migration."""

from __future__ import annotations

from cutover.actions import JsonObject, ReadFlow, Rejoin, ServeTopics, StartFlow
from cutover.observations import ObservedFlow, RejoinResult
from cutover.polling import ActionGenerator, perform_action
from cutover.run_context import RunContext


def resume_forward_flow(ground: RunContext) -> ActionGenerator[str]:
    """Said for people. In transactions it goes on by itself: its loop guard leaves out what was carried back. By
    sequence numbers it is ordered to, behind what applications wrote at its target."""
    flow = ground.run_taken_back.flow
    topics = tuple(sorted({ground.rename(topic) for topic in ground.partitions()}))
    left: dict[str, str] = {}
    if flow.delivery != "transactions":
        order = f"rejoin-{ground.run_taken_back.run}"
        there = ground.run_taken_back.outcomes["preflight"]["partitions"]
        grown = {topic for topic in topics if ground.partitions()[flow.target_topic(topic)] != there[topic]}
        returns = {topic: each for topic, each in _returns(ground).items() if topic not in grown}
        wanted = Rejoin(flow.id, ground.flow.id, order, returns)
        left = dict((yield from perform_action(wanted, RejoinResult, ground.policy)).left)
        left |= dict.fromkeys(grown, "partitions were added since it moved")
    again = tuple(topic for topic in topics if topic not in left)
    told = []
    if again:
        seen = yield from perform_action(ReadFlow(flow.id), ObservedFlow, ground.policy)
        if seen.retired & set(again):
            seen = yield from perform_action(ServeTopics(again, flow.id), ObservedFlow, ground.policy)
        if seen.state == "stopped":
            seen = yield from perform_action(StartFlow(flow.id), ObservedFlow, ground.policy)
        told.append(f"flow {flow.id} is {seen.state} and copies {', '.join(again)} again")
    if left:
        told.append(
            f"flow {flow.id} stays without {'; '.join(f'{topic} ({why})' for topic, why in sorted(left.items()))}: "
            f"{flow.target} holds what applications wrote there. To migrate this wave again takes a flow with a "
            "`suffix`, names at the target that are not taken, and `provenance: {guard: none}`, because a guard leaves "
            "out what was carried back; it has no way back (`rollback: {none: …}`)"
        )
    return "; ".join(told)


def _returns(ground: RunContext) -> JsonObject:
    """By partition of the migration's source: where its copy ended at its target, how far applications wrote there, and
    where they go on at home."""
    cut = ground.run_taken_back.cut
    away, home = (ground.offsets("point_of_no_return", f"{side}_ends") for side in ("source", "target"))
    copied = ground.run_taken_back.offsets("barrier", "ends")
    found: JsonObject = {}
    for place, base in sorted(away.items()):
        back = ground.at_target(place)
        if place not in cut:
            continue
        found.setdefault(back.topic, {})[str(back.partition)] = [cut[place], copied[back], base, home[back]]
    return found
