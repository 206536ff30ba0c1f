"""What becomes of flows when applications move: the one that they moved along lets go of their topics, and the way back
takes them up."""

from __future__ import annotations

from cutover.actions import (
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
from cutover.errors import Refused
from cutover.observations import ObservedFlow, ObservedTopics, RecalledDeeds
from cutover.offsets import encode_offsets
from cutover.polling import ActionGenerator, perform_action
from cutover.run_context import RunContext


def hold_reverse_flow(ground: RunContext, note: JsonObject) -> ActionGenerator[None]:
    """A way back that runs already (for an earlier wave, say) carries nothing of this wave until it is let go."""
    name, topics = _reverse(ground)
    before = yield from perform_action(ReadFlow(name), ObservedFlow, ground.policy)
    yield from _hold(ground, name, tuple(topic for topic in topics if topic not in before.retired))
    note.update(flow=name, topics=list(topics))


def _hold(ground: RunContext, name: str, topics: tuple[str, ...]) -> ActionGenerator[None]:
    if not topics:
        return
    seen = yield from perform_action(RetireTopics(topics, name), ObservedFlow, ground.policy)
    left = sorted(set(topics) - seen.retired)
    if left:
        raise Refused(f"flow {name} was to leave {', '.join(left)} alone, and is {seen.state}: `topology apply` first")


def undo_hold_reverse_flow(ground: RunContext, note: JsonObject) -> ActionGenerator[None]:
    name, _ = _reverse(ground)
    for deed in (yield from perform_action(RecallDeeds("RetireTopics"), RecalledDeeds, ground.policy)).deeds:
        if deed["flow"] == name:
            yield from _serve(ground, name, tuple(deed["topics"]))
            note.update(flow=name, topics=deed["topics"])


def start_reverse_flow(ground: RunContext, note: JsonObject) -> ActionGenerator[None]:
    """The declared flow back starts at the cut: below it stands what came from the source, which its loop guard would
    leave out, batch by batch, for as long as that takes to read. The beginnings are there before it may copy, and what
    has not moved yet it leaves alone: that is written to at the source."""
    name, topics = _reverse(ground)
    begin = encode_offsets(ground.cut or {})
    before = yield from perform_action(ReadFlow(name), ObservedFlow, ground.policy)
    if before.state != "running":
        forward = yield from perform_action(ReadFlow(), ObservedFlow, ground.policy)
        here = (yield from perform_action(ReadTopics("source"), ObservedTopics, ground.policy)).partitions
        staying = {topic for topic in here if ground.flow.selects(topic)} - forward.retired - set(ground.partitions())
        yield from _hold(ground, name, tuple(sorted(set(map(ground.rename, staying)) - before.retired)))
    seen = yield from perform_action(StartFlow(name, begin), ObservedFlow, ground.policy)
    yield from _serve(ground, name, topics)
    if seen.state != "running":
        raise Refused(f"the reverse flow {name} was started and is {seen.state}")
    note.update(flow=name, cut=begin)


def _serve(ground: RunContext, name: str, topics: tuple[str, ...]) -> ActionGenerator[None]:
    seen = yield from perform_action(ServeTopics(topics, name), ObservedFlow, ground.policy)
    left = sorted(set(topics) & seen.retired)
    if left:
        raise Refused(f"flow {name} was to carry {', '.join(left)} again and does not: something else changes it")


def _reverse(ground: RunContext) -> tuple[str, tuple[str, ...]]:
    """The way back, and the wave's topics as it calls them."""
    assert ground.policy.reverse is not None
    return ground.policy.reverse, tuple(sorted(map(ground.rename, ground.partitions())))


def retire_topics(ground: RunContext, note: JsonObject) -> ActionGenerator[None]:
    """The flow copies the wave's topics no more: at their next restart, its workers would take the applications' own
    writes for a foreign writer. Topics of other waves go on; a flow with nothing left to copy is stopped."""
    flow, policy = ground.flow, ground.policy
    moved = tuple(sorted(ground.partitions()))
    seen = yield from perform_action(ReadFlow(), ObservedFlow, policy)
    if seen.state == "missing":
        note["flow"] = f"flow {flow.id} is not there any more: nothing copies {', '.join(moved)}"
    else:
        seen = yield from perform_action(RetireTopics(moved), ObservedFlow, policy)
        left = sorted(set(moved) - seen.retired)
        if left:
            raise Refused(f"flow {flow.id} was to let go of {', '.join(left)} and still copies them")
        note["retired"] = list(moved)
        note["flow"] = yield from _rest(ground, seen)
    yield ReportMessage(note["flow"])


def _rest(ground: RunContext, seen: ObservedFlow) -> ActionGenerator[str]:
    flow, policy = ground.flow, ground.policy
    topics = (yield from perform_action(ReadTopics("source"), ObservedTopics, policy)).partitions
    staying = sorted(topic for topic in topics if flow.selects(topic) and topic not in seen.retired)
    gone = f"flow {flow.id} has let go of {', '.join(sorted(ground.partitions()))}"
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
