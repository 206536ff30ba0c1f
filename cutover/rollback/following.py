"""The migration's flow after applications have come back: it copies again, as before the migration."""

from __future__ import annotations

from collections.abc import Sequence

from watershed.cutover.actions import JsonObject, ReadFlow, Rejoin, ServeTopics, StartFlow
from watershed.cutover.observations import ObservedFlow, RejoinResult
from watershed.cutover.polling import ActionGenerator, perform_action
from watershed.cutover.run_context import RunContext


def resume_forward_flow(context: RunContext) -> ActionGenerator[str]:
    """Said for people. In transactions it goes on by itself: its loop guard leaves out what was carried back. By
    sequence numbers it is ordered to, behind what applications wrote at its target."""
    flow = context.run_taken_back.flow
    topics = tuple(sorted({context.rename(topic) for topic in context.partitions()}))
    left: dict[str, str] = {}
    if flow.delivery != "transactions":
        order = f"rejoin-{context.run_taken_back.run}"
        there = context.run_taken_back.outcomes.partitions
        grown = {topic for topic in topics if context.partitions()[flow.target_topic(topic)] != there[topic]}
        returns = {topic: each for topic, each in _returns(context).items() if topic not in grown}
        wanted = Rejoin(flow.id, context.flow.id, order, returns)
        left = dict((yield from perform_action(wanted, RejoinResult, context.policy)).left)
        left |= dict.fromkeys(grown, "partitions were added since it moved")
    again = tuple(topic for topic in topics if topic not in left)
    sentences = []
    if again:
        seen = yield from perform_action(ReadFlow(flow.id), ObservedFlow, context.policy)
        if seen.retired & set(again):
            seen = yield from perform_action(ServeTopics(again, flow.id), ObservedFlow, context.policy)
        if seen.state == "stopped":
            seen = yield from perform_action(StartFlow(flow.id), ObservedFlow, context.policy)
        sentences.append(_describe_return(flow.id, again, seen))
    if left:
        sentences.append(
            f"flow {flow.id} stays without {'; '.join(f'{topic} ({why})' for topic, why in sorted(left.items()))}: "
            f"{flow.target} holds what applications wrote there. To migrate this wave again takes a flow with a "
            "`suffix`, names at the target that are not taken, and `provenance: {guard: none}`, because a guard leaves "
            "out what was carried back; it has no way back (`rollback: {none: …}`)"
        )
    return "; ".join(sentences)


def _describe_return(flow: str, topics: Sequence[str], seen: ObservedFlow) -> str:
    """That the flow copies these topics again; where a person or a budget stopped some, who did and what to do."""
    told = {seen.paused_topics[topic] for topic in topics if topic in seen.paused_topics}
    stopped = sorted((told | {seen.stands_still}) - {""})
    if seen.state != "running":
        stopped = [f"it is {seen.state}", *stopped]
    if not stopped:
        return f"flow {flow} is {seen.state} and copies {', '.join(topics)} again"
    return f"flow {flow} has {', '.join(topics)} again and does not copy all of it now: {'; '.join(stopped)}"


def _returns(context: RunContext) -> JsonObject:
    """By partition of the migration's source: where its copy ended at its target, how far applications wrote there, and
    where they go on at home."""
    cut = context.run_taken_back.outcomes.cut
    away, home = context.outcomes.switch_source_ends, context.outcomes.cut
    copied = context.run_taken_back.outcomes.barrier
    found: JsonObject = {}
    for place, base in sorted(away.items()):
        back = context.at_target(place)
        if place not in cut:
            continue
        found.setdefault(back.topic, {})[str(back.partition)] = [cut[place], copied[back], base, home[back]]
    return found
