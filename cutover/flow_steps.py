"""What becomes of flows when applications move: the one that they moved along lets go of their topics, and the way back
takes them up."""

from __future__ import annotations

from watershed.cutover.actions import (
    JsonObject,
    ReadFlow,
    ReadTopics,
    RecallDeeds,
    ReportMessage,
    RetireTopics,
    ServeTopics,
    StartFlow,
    StopFlow,
)
from watershed.cutover.errors import Refused
from watershed.cutover.observations import ObservedFlow, ObservedTopics, RecalledDeeds
from watershed.cutover.offsets import encode_offsets
from watershed.cutover.polling import ActionGenerator, perform_action
from watershed.cutover.run_context import RunContext


def hold_reverse_flow(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """A way back that runs already (for an earlier wave, say) carries nothing of this wave until it is let go."""
    name, topics = _reverse(context)
    before = yield from perform_action(ReadFlow(name), ObservedFlow, context.policy)
    yield from _hold(context, name, tuple(topic for topic in topics if topic not in before.retired))
    outcome.update(flow=name, topics=list(topics))


def _hold(context: RunContext, name: str, topics: tuple[str, ...]) -> ActionGenerator[None]:
    if not topics:
        return
    seen = yield from perform_action(RetireTopics(topics, name), ObservedFlow, context.policy)
    left = sorted(set(topics) - seen.retired)
    if left:
        raise Refused(f"flow {name} was to leave {', '.join(left)} alone, and is {seen.state}: `topology apply` first")


def undo_hold_reverse_flow(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """The reverse flow carries again exactly the topics that this run took off it."""
    name, _ = _reverse(context)
    for deed in (yield from perform_action(RecallDeeds("RetireTopics"), RecalledDeeds, context.policy)).deeds:
        if deed["flow"] == name:
            yield from _serve(context, name, tuple(deed["topics"]))
            outcome.update(flow=name, topics=deed["topics"])


def start_reverse_flow(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """The declared flow back starts at the cut: below it stands what came from the source, which its loop guard would
    leave out, batch by batch, for as long as that takes to read. The beginnings are there before it may copy, and what
    has not moved yet it leaves alone: that is written to at the source."""
    name, topics = _reverse(context)
    begin = encode_offsets(context.cut or {})
    before = yield from perform_action(ReadFlow(name), ObservedFlow, context.policy)
    if before.state != "running":
        forward = yield from perform_action(ReadFlow(), ObservedFlow, context.policy)
        at_source = (yield from perform_action(ReadTopics("source"), ObservedTopics, context.policy)).partitions
        staying = (
            {topic for topic in at_source if context.flow.selects(topic)} - forward.retired - set(context.partitions())
        )
        yield from _hold(context, name, tuple(sorted(set(map(context.rename, staying)) - before.retired)))
    seen = yield from perform_action(StartFlow(name, begin), ObservedFlow, context.policy)
    yield from _serve(context, name, topics)
    if seen.state != "running":
        raise Refused(f"the reverse flow {name} was started and is {seen.state}")
    outcome.update(flow=name, cut=begin)


def _serve(context: RunContext, name: str, topics: tuple[str, ...]) -> ActionGenerator[None]:
    seen = yield from perform_action(ServeTopics(topics, name), ObservedFlow, context.policy)
    left = sorted(set(topics) & seen.retired)
    if left:
        raise Refused(f"flow {name} was to carry {', '.join(left)} again and does not: something else changes it")


def _reverse(context: RunContext) -> tuple[str, tuple[str, ...]]:
    """The way back, and the wave's topics as it calls them."""
    assert context.policy.reverse is not None
    return context.policy.reverse, tuple(sorted(map(context.rename, context.partitions())))


def retire_topics(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """The flow copies the wave's topics no more: at their next restart, its workers would take the applications' own
    writes for a foreign writer. Topics of other waves go on; a flow with nothing left to copy is stopped."""
    flow, policy = context.flow, context.policy
    moved = tuple(sorted(context.partitions()))
    seen = yield from perform_action(ReadFlow(), ObservedFlow, policy)
    if seen.state == "missing":
        outcome["flow"] = f"flow {flow.id} is not there any more: nothing copies {', '.join(moved)}"
    else:
        seen = yield from perform_action(RetireTopics(moved), ObservedFlow, policy)
        left = sorted(set(moved) - seen.retired)
        if left:
            raise Refused(f"flow {flow.id} was to let go of {', '.join(left)} and still copies them")
        outcome["retired"] = list(moved)
        outcome["flow"] = yield from _rest(context, seen)
    yield ReportMessage(outcome["flow"])


def _rest(context: RunContext, seen: ObservedFlow) -> ActionGenerator[str]:
    flow, policy = context.flow, context.policy
    topics = (yield from perform_action(ReadTopics("source"), ObservedTopics, policy)).partitions
    staying = sorted(topic for topic in topics if flow.selects(topic) and topic not in seen.retired)
    gone = f"flow {flow.id} has let go of {', '.join(sorted(context.partitions()))}"
    if seen.state == "stopped":
        return f"{gone}; it is stopped already"
    if staying:
        return f"{gone} and goes on with {', '.join(staying)}"
    if not seen.same_plan:
        return f"{gone}; it stays {seen.state}, because it carries other topics than this file gives it"
    stopped = yield from perform_action(StopFlow(), ObservedFlow, policy)
    if stopped.state != "stopped":
        raise Refused(f"flow {flow.id} was stopped, and is {stopped.state}: something else sets its state")
    return f"flow {flow.id} is stopped: everything it carries has moved to {flow.target}"
