"""The fence as the steps see it: looked at before anything is touched, raised from what stood there, lowered exactly.

It is journaled before it is raised, so whoever continues a run, or takes it back later, knows what to lower. In any
rollback it comes down; after a success it stays up, until a way back is taken (`lower`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from watershed.cutover.actions import (
    CallHook,
    ClusterSide,
    JsonObject,
    LowerFence,
    RaiseFence,
    ReadFence,
    RecallDeeds,
    ReportMessage,
)
from watershed.cutover.errors import Refused
from watershed.cutover.fences.journaled_fence import RAISING_DEEDS, list_raising_deeds
from watershed.cutover.observations import HookAnswer, ObservedFence, RecalledDeeds
from watershed.cutover.polling import ActionGenerator, perform_action
from watershed.cutover.run_context import RunContext


def check_fence(context: RunContext, topics: Iterable[str], problems: list[str]) -> ActionGenerator[JsonObject]:
    """What would keep the fence from being raised is found before a single client is stopped."""
    fence = context.policy.fence
    if fence.kind in ("acl", "quota"):
        look = ReadFence(fence.kind, "source", tuple(sorted(topics)), context.producers, fence.rate)
        try:
            seen = yield from perform_action(look, ObservedFence, context.policy)
        except Refused as why:
            problems.append(str(why))
        else:
            yield from _carried(context, seen.carriers, problems)
            return {"kind": fence.kind, "there": seen.snapshot, "told": seen.text, "carriers": list(seen.carriers)}
    elif fence.kind == "external" and fence.hook is None:
        problems.append(f"wave {context.wave.name} has an external fence and no hook for it: name it in `fence.hook`")
    return {"kind": fence.kind}


def _carried(context: RunContext, carriers: Iterable[str], problems: list[str]) -> ActionGenerator[None]:
    """Only flows of this file are told of its fences. A quota would slow the producers where they have moved to; a
    denial says the name that the other flow gives the topic, which is not that of this wave."""
    flow = context.flow
    for carrier in carriers:
        text = f"flow {carrier}, of another file, carries {{}} from {flow.source} to {flow.target}"
        if context.policy.fence.kind == "quota":
            problems.append(
                f"{text.format('quotas')}, and would carry the fence's, too: the producers would be as slow there. Say "
                "`sync.quotas.mode: never` in that file and apply it, or use another kind of fence"
            )
        else:
            yield ReportMessage(
                f"{text.format('access rights')}, and will carry the fence's denials under its own topics' names: take "
                "the wave's topics out of its `sync.acls`, or take the denials away there afterwards"
            )


def raise_fence(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """What stood there first is what an earlier driver of this run journaled, else what stands there now."""
    fence, policy = context.policy.fence, context.policy
    if fence.kind == "stop":
        return
    topics, names = tuple(sorted(context.partitions())), context.producers
    if fence.kind == "external":
        assert fence.hook is not None, "refused in preflight"
        body: JsonObject = {"source": context.flow.source, "target": context.flow.target}
        body |= {"topics": list(topics), "producers": list(names)}
        answer = yield from perform_action(_hook(context, fence.hook, "raise", body), HookAnswer, policy)
        outcome["fence"] = {"kind": fence.kind, "hook": fence.hook, "told": answer.text}
        if not answer.agreed:
            raise Refused(f"hook {fence.hook} did not raise the fence: {answer.text}", outcome)
        return
    recalled = yield from perform_action(RecallDeeds("RaiseFence"), RecalledDeeds, policy)
    if recalled.deeds:
        snapshot = recalled.deeds[0]["snapshot"]
    else:
        look = ReadFence(fence.kind, "source", topics, names, fence.rate)
        snapshot = (yield from perform_action(look, ObservedFence, policy)).snapshot
    seen = yield from perform_action(RaiseFence(fence.kind, "source", topics, names, snapshot), ObservedFence, policy)
    outcome["fence"] = {"kind": fence.kind, "snapshot": snapshot, "told": seen.text}
    if not seen.up:
        raise Refused(f"the {fence.kind} fence was raised and is not in force: {seen.text}", outcome)


def lower_fence(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Whatever this run raised, or began to."""
    deeds: list[JsonObject] = []
    for kind in RAISING_DEEDS:
        deeds += (yield from perform_action(RecallDeeds(kind), RecalledDeeds, context.policy)).deeds
    for deed in list_raising_deeds(deeds):
        if deed["body"]["source"] == context.flow.source if "point" in deed else deed["side"] == "source":
            yield from lower_journaled_fence(context, outcome, deed)
            return


def lower_journaled_fence(
    context: RunContext, outcome: JsonObject, deed: Mapping[str, Any], side: ClusterSide = "source"
) -> ActionGenerator[None]:
    """Lower the fence that this deed (`find_standing_fence`, or this run's own) raised, by what stood there before.
    side: the role that its cluster has in the flow of `context`: a rollback along the reverse flow lowers it at the
    target.
    Lowering twice does no harm. Raises Refused when it is still up then."""
    if "point" in deed:
        hook = _hook(context, deed["name"], "lower", deed["body"])
        answer = yield from perform_action(hook, HookAnswer, context.policy)
        outcome["lowered"] = answer.text
        if not answer.agreed:
            raise Refused(f"hook {deed['name']} did not lower the fence: {answer.text}", outcome)
        return
    down = LowerFence(deed["kind"], side, tuple(deed["topics"]), tuple(deed["names"]), deed["snapshot"])
    seen = yield from perform_action(down, ObservedFence, context.policy)
    outcome["lowered"] = seen.text
    if seen.up:
        raise Refused(f"the {deed['kind']} fence was lowered and is still in force: {seen.text}", outcome)


def raise_fence_again(
    context: RunContext, outcome: JsonObject, deed: Mapping[str, Any], side: ClusterSide = "source"
) -> ActionGenerator[None]:
    """The inverse of `lower`: a way back that is itself taken back. Raises Refused when it is not up then."""
    if "point" in deed:
        hook = _hook(context, deed["name"], "raise", deed["body"])
        answer = yield from perform_action(hook, HookAnswer, context.policy)
        outcome["raised"] = answer.text
        if not answer.agreed:
            raise Refused(f"hook {deed['name']} did not raise the fence again: {answer.text}", outcome)
        return
    up = RaiseFence(deed["kind"], side, tuple(deed["topics"]), tuple(deed["names"]), deed["snapshot"])
    seen = yield from perform_action(up, ObservedFence, context.policy)
    outcome["raised"] = seen.text
    if not seen.up:
        raise Refused(f"the {deed['kind']} fence was raised again and is not in force: {seen.text}", outcome)


def _hook(context: RunContext, name: str, point: str, body: JsonObject) -> CallHook:
    return CallHook(name, point, f"{context.wave.name}/{point}/{name}", body)
