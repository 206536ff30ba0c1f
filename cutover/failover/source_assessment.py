"""The steps of a failover before anything is given up. The source is gone, so they use only what the target holds.

No step waits for the source. Only `assess_source` asks whether it answers. Everything that the steps need is on the
target: the ledger, what workers last saw of the source, the positions of groups that `sync.groups` carried, the rights
that `include_write: on_failover` holds back, and the journal itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from watershed.cutover import producer_steps
from watershed.cutover.actions import (
    ApplicationRole,
    CheckCutOff,
    JsonObject,
    ProbeCluster,
    ReadCluster,
    ReadFlow,
    ReadLastSeenSource,
    ReadTopics,
    ReportMessage,
    RetireTopics,
    ServeTopics,
    StartFlow,
    StopFlow,
)
from watershed.cutover.application_steps import assess_application
from watershed.cutover.errors import Refused
from watershed.cutover.failover.group_placement import plan_group_placement
from watershed.cutover.failover.loss_steps import EQUAL_LOOKS_IN_A_ROW
from watershed.cutover.hooks.hook_steps import check_hooks
from watershed.cutover.observations import (
    ClusterProbe,
    CutOffResult,
    LastSeenSource,
    ObservedCluster,
    ObservedFlow,
    ObservedTopics,
)
from watershed.cutover.polling import ActionGenerator, ConditionCheck, perform_action, wait_for_condition
from watershed.cutover.run_context import RunContext, read_target_logs
from watershed.cutover.utc_instant import render_utc_instant

DOES_NOT_ANSWER: Final = "does not answer"  # how the state of an application begins that preflight could not read


def run_failover_preflight(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Collects everything at the target that prevents the promotion, in one message. Asks the source nothing."""
    policy, flow = context.policy, context.flow
    problems: list[str] = []
    seen = yield from perform_action(ReadCluster("target"), ObservedCluster, policy)
    if seen.pinned is not None and seen.pinned != seen.cluster_id:
        problems.append(f"cluster {seen.alias} is {seen.cluster_id}, the topology pins {seen.pinned}")
    outcome["clusters"] = {seen.alias: {"cluster_id": seen.cluster_id, "brokers": seen.brokers}}
    outcome["partitions"] = yield from _topics(context, problems)
    context.outcomes["failover_preflight"] = outcome  # the calls below read the partitions from it
    state = yield from perform_action(ReadFlow(), ObservedFlow, policy)
    outcome["flow"] = state.state
    outcome["paused"] = {name: text for name, text in state.paused_topics.items() if name in outcome["partitions"]}
    if state.state == "missing":
        problems.append(f"flow {flow.id} was never applied to {flow.target}: nothing of {flow.source} was copied there")
    gone = sorted(set(outcome["partitions"]) & state.retired)
    if gone:
        problems.append(f"the applications of {', '.join(gone)} have moved to {flow.target} already")
    able = yield from perform_action(CheckCutOff(), CutOffResult, policy)
    if not able.able:
        problems.append(able.text)
    if outcome["partitions"] and not problems:
        outcome["groups"] = yield from _groups(context, problems)
    yield from _applications(context, outcome, problems)
    yield from check_hooks(context, problems)
    if problems:
        raise Refused("; ".join(problems), {"problems": problems})
    for group, wave in sorted(policy.late_groups.items()):
        yield ReportMessage(
            f"group {group} of wave {wave} is not promoted: producers of topics that it reads have moved to "
            f"{flow.target} already, and how far it had read there, only {flow.source} can say. When {flow.source} is "
            f"back, `topology migrate --wave {wave}` moves it exactly. If this failover promotes producers of its "
            f"topics, take it back first (`topology failback`), and move them by `topology migrate`. If that takes too "
            f"long, its owner chooses where it begins at {flow.target} (kafka-consumer-groups --reset-offsets)"
        )
    for text in outcome["paused"].values():
        yield ReportMessage(f"nothing newer than its pause was copied, or counted at the source: {text}")


def _topics(context: RunContext, problems: list[str]) -> ActionGenerator[dict[str, int]]:
    """Source topic → number of partitions of its copy at the target."""
    at_target = (yield from perform_action(ReadTopics("target"), ObservedTopics, context.policy)).partitions
    found = {
        topic: at_target[context.rename(topic)] for topic in context.wave.topics if context.rename(topic) in at_target
    }
    for topic in context.wave.topics:
        if topic not in found:
            problems.append(
                f"topic {context.rename(topic)} does not exist at {context.flow.target}: nothing was copied"
            )
    return found


def _groups(context: RunContext, problems: list[str]) -> ActionGenerator[JsonObject]:
    logs = yield from read_target_logs(context)
    placements: JsonObject = {}
    for group in context.groups:
        found = yield from plan_group_placement(context, group, logs)
        problems += found.problems
        placements[group] = found.to_json()
    return placements


def _applications(context: RunContext, outcome: JsonObject, problems: list[str]) -> ActionGenerator[None]:
    """Reads the state of every application. One that does not answer is no problem yet: it may be lost with the source.
    But a later step must be able to start it."""
    policy = replace(context.policy, reach_ms=0)
    if not context.producers and not context.groups:
        problems.append(f"wave {context.wave.name} names neither producers nor consumers: nothing would be moved")
    outcome["applications"] = {}
    roles: list[tuple[str, ApplicationRole]] = [(name, "consumer") for name in context.groups]
    roles += [(name, "producer") for name in context.producers]
    for name, role in roles:
        try:
            where = "`topology failover` in a terminal"
            yield from assess_application(context, name, role, outcome, problems, where, policy)
        except Refused as why:
            outcome["applications"][name] = f"{DOES_NOT_ANSWER}: {why}"


def assess_source(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Refuses when the source lives: producers may still write there (split brain). The source lives when a broker
    answers here. It also lives when none answers here but workers still see it: then only this process is cut off."""
    policy, source = context.policy, context.flow.source
    first = (yield from _last_seen(context)) or 0

    def look() -> ActionGenerator[ConditionCheck]:
        seen = yield from perform_action(ProbeCluster("source"), ClusterProbe, policy)
        now = (yield from _last_seen(context)) or 0
        text = f"{source} {'answers' if seen.answers else 'does not answer'}: {seen.text}"
        if now > first:
            text += f"; workers of {context.flow.id} have seen it at {render_utc_instant(now)}"
        lives = seen.answers or now > first
        if lives and not policy.though_source_answers:
            raise Refused(
                f"{text}. A failover gives up what is not copied, and producers that still reach {source} would go on "
                f"writing there: use `topology migrate`, which loses nothing. If {source} cannot be used although it "
                "answers, repeat with --though-source-answers",
                {"answers": seen.answers, "seen_ms": now, "told": text},
            )
        found = {"answers": lives, "seen_ms": now or None, "told": text}
        return ConditionCheck(True, text, seen.at_ms, found)

    bound = policy.reach_ms + policy.unseen_ms
    outcome.update(
        (yield from wait_for_condition(look, bound, policy, times=EQUAL_LOOKS_IN_A_ROW, hold_ms=policy.unseen_ms)).seen
    )
    yield ReportMessage(outcome["told"], outcome)


def _last_seen(context: RunContext) -> ActionGenerator[int | None]:
    """When any worker last saw the source, ms since 1970."""
    sight = yield from perform_action(ReadLastSeenSource(context.source_places()), LastSeenSource, context.policy)
    return max((each.seen_ms for each in sight.sights.values()), default=None)


def fence_source(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Fences the producers at the source. It runs only where the source answers and the operator fails over all the
    same."""
    yield from producer_steps.stop_and_fence_producers(context, outcome)


def stop_forwarding(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Removes the wave's topics from the flow and stops the flow. Even if the source comes back, it copies nothing."""
    policy, flow = context.policy, context.flow
    topics = tuple(sorted(context.partitions()))
    outcome["was"] = context.outcomes["failover_preflight"]["flow"]
    seen = yield from perform_action(RetireTopics(topics), ObservedFlow, policy)
    if set(topics) - seen.retired:
        raise Refused(f"flow {flow.id} still copies topics that this run took out of it: {', '.join(topics)}")
    seen = yield from perform_action(StopFlow(), ObservedFlow, policy)
    if seen.state != "stopped":
        raise Refused(f"flow {flow.id} was stopped, and is {seen.state}: something else sets its state")
    outcome["retired"] = list(topics)


def undo_stop_forwarding(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """The flow copies the topics again, and runs if it ran before. One that a budget stopped stands still as before:
    nobody has approved that it goes on."""
    policy, topics = context.policy, tuple(sorted(context.partitions()))
    yield from perform_action(ServeTopics(topics), ObservedFlow, policy)
    if context.outcomes["failover_preflight"]["flow"] == "running":
        yield from perform_action(StartFlow(context.flow.id, answers_breach=False), ObservedFlow, policy)
