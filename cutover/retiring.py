"""What becomes of flows when applications move: the one that they moved along lets go of their topics, and the way back
takes them up."""

from __future__ import annotations

from cutover.actions import (
    Json,
    LookAtFlow,
    LookAtTopics,
    Recall,
    RetireTopics,
    Say,
    ServeTopics,
    StartFlow,
    StopFlow,
)
from cutover.errors import Refused
from cutover.ground import Ground
from cutover.observations import FlowSeen, Recalled, TopicsSeen
from cutover.offsets import to_json
from cutover.waiting import Asking, ask


def hold_reverse(ground: Ground, note: Json) -> Asking[None]:
    """A way back that runs already (for an earlier wave, say) carries nothing of this wave until it is let go."""
    name, topics = _reverse(ground)
    before = yield from ask(LookAtFlow(name), FlowSeen, ground.policy)
    yield from _hold(ground, name, tuple(topic for topic in topics if topic not in before.retired))
    note.update(flow=name, topics=list(topics))


def _hold(ground: Ground, name: str, topics: tuple[str, ...]) -> Asking[None]:
    if not topics:
        return
    seen = yield from ask(RetireTopics(topics, name), FlowSeen, ground.policy)
    left = sorted(set(topics) - seen.retired)
    if left:
        raise Refused(f"flow {name} was to leave {', '.join(left)} alone, and is {seen.state}: `topology apply` first")


def undo_hold_reverse(ground: Ground, note: Json) -> Asking[None]:
    name, _ = _reverse(ground)
    for deed in (yield from ask(Recall("RetireTopics"), Recalled, ground.policy)).deeds:
        if deed["flow"] == name:
            yield from _serve(ground, name, tuple(deed["topics"]))
            note.update(flow=name, topics=deed["topics"])


def reverse_flow(ground: Ground, note: Json) -> Asking[None]:
    """The declared flow back starts at the cut: below it stands what came from the source, which its loop guard would
    leave out, batch by batch, for as long as that takes to read. The beginnings are there before it may copy, and what
    has not moved yet it leaves alone: that is written to at the source."""
    name, topics = _reverse(ground)
    begin = to_json(ground.cut or {})
    before = yield from ask(LookAtFlow(name), FlowSeen, ground.policy)
    if before.state != "running":
        forward = yield from ask(LookAtFlow(), FlowSeen, ground.policy)
        here = (yield from ask(LookAtTopics("source"), TopicsSeen, ground.policy)).partitions
        staying = {topic for topic in here if ground.flow.selects(topic)} - forward.retired - set(ground.partitions())
        yield from _hold(ground, name, tuple(sorted(set(map(ground.rename, staying)) - before.retired)))
    seen = yield from ask(StartFlow(name, begin), FlowSeen, ground.policy)
    yield from _serve(ground, name, topics)
    if seen.state != "running":
        raise Refused(f"the reverse flow {name} was started and is {seen.state}")
    note.update(flow=name, cut=begin)


def _serve(ground: Ground, name: str, topics: tuple[str, ...]) -> Asking[None]:
    seen = yield from ask(ServeTopics(topics, name), FlowSeen, ground.policy)
    left = sorted(set(topics) & seen.retired)
    if left:
        raise Refused(f"flow {name} was to carry {', '.join(left)} again and does not: something else changes it")


def _reverse(ground: Ground) -> tuple[str, tuple[str, ...]]:
    """The way back, and the wave's topics as it calls them."""
    assert ground.policy.reverse is not None
    return ground.policy.reverse, tuple(sorted(map(ground.rename, ground.partitions())))


def retire_topics(ground: Ground, note: Json) -> Asking[None]:
    """The flow copies the wave's topics no more: at their next restart, its workers would take the applications' own
    writes for a foreign writer. Topics of other waves go on; a flow with nothing left to copy is stopped."""
    flow, policy = ground.flow, ground.policy
    moved = tuple(sorted(ground.partitions()))
    seen = yield from ask(LookAtFlow(), FlowSeen, policy)
    if seen.state == "missing":
        note["flow"] = f"flow {flow.id} is not there any more: nothing copies {', '.join(moved)}"
    else:
        seen = yield from ask(RetireTopics(moved), FlowSeen, policy)
        left = sorted(set(moved) - seen.retired)
        if left:
            raise Refused(f"flow {flow.id} was to let go of {', '.join(left)} and still copies them")
        note["retired"] = list(moved)
        note["flow"] = yield from _rest(ground, seen)
    yield Say(note["flow"])


def _rest(ground: Ground, seen: FlowSeen) -> Asking[str]:
    flow, policy = ground.flow, ground.policy
    topics = (yield from ask(LookAtTopics("source"), TopicsSeen, policy)).partitions
    staying = sorted(topic for topic in topics if flow.selects(topic) and topic not in seen.retired)
    gone = f"flow {flow.id} has let go of {', '.join(sorted(ground.partitions()))}"
    if seen.state == "stopped":
        return f"{gone}; it is stopped already"
    if staying:
        return f"{gone} and goes on with {', '.join(staying)}"
    if not seen.same_plan:
        return f"{gone}; it stays {seen.state}, because it carries other topics than this file gives it"
    stopped = yield from ask(StopFlow(), FlowSeen, policy)
    if stopped.state != "stopped":
        raise Refused(f"flow {flow.id} was stopped, and is {stopped.state}: something else sets its state")
    return f"flow {flow.id} is stopped: everything it carries has moved to {flow.target}"
