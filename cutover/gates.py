"""The steps before anything is touched: preflight, lag gate, proof of history, approval; and the soak gate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import (
    ApplicationRole,
    AskApproval,
    JsonObject,
    ReadClock,
    ReadCluster,
    ReadFlow,
    ReadTopics,
    RequestProof,
)
from watershed.cutover.application_steps import assess_application
from watershed.cutover.errors import Refused
from watershed.cutover.evidence.proof_summary import PROVEN_VERDICTS
from watershed.cutover.fences.fence_steps import check_fence
from watershed.cutover.groups.consumer_lag import wait_for_consumer_lag
from watershed.cutover.groups.group_preflight import check_groups, find_groups_left_behind
from watershed.cutover.groups.late_groups import (
    check_flow_back,
    check_producer_switches,
    check_repeats,
    read_lag_back,
)
from watershed.cutover.hooks.hook_steps import check_hooks
from watershed.cutover.observations import (
    ApprovalAnswer,
    ObservedCluster,
    ObservedFlow,
    ObservedTime,
    ObservedTopics,
    ProofOutcome,
)
from watershed.cutover.offsets import encode_offsets
from watershed.cutover.polling import ActionGenerator, ConditionCheck, perform_action, wait_for_condition
from watershed.cutover.run_context import CopyProgress, RunContext, read_copies, read_source_logs, read_target_logs
from watershed.cutover.withheld_rights_steps import check_withheld_rights
from watershed.topology.kafka_streams import is_repartition_topic
from watershed.topology.migration_waves import WaveWindow

STEADY_LAG_MS: Final = 60_000  # as long as a flow may copy nothing before it is called stalled (Policy.stall_ms)


def run_preflight(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Everything that can be found wrong before a single client is stopped, all of it in one message."""
    problems: list[str] = []
    outcome["clusters"] = yield from check_clusters(context, problems)
    outcome["partitions"] = yield from check_wave_topics(context, problems)
    if context.is_late:
        outcome["switch"] = yield from check_producer_switches(context, problems)
        yield from check_flow_back(context, sorted(outcome["partitions"]), problems)
        yield from check_repeats(context, outcome["partitions"], problems)
    else:
        yield from _flow(context, sorted(outcome["partitions"]), problems)
    outcome["groups"] = yield from check_groups(context, set(outcome["partitions"]), problems)
    outcome["left_behind"] = yield from find_groups_left_behind(context, set(outcome["partitions"]))
    yield from _applications(context, outcome, problems)
    yield from check_hooks(context, problems)
    if not context.is_late:
        yield from _writing(context, outcome, problems)
    if problems:
        raise Refused("; ".join(problems), {"problems": problems})


def _writing(context: RunContext, outcome: JsonObject, problems: list[str]) -> ActionGenerator[None]:
    """What producers need: a fence that can be raised, and rights at the target."""
    if context.policy.fence.kind != "stop":
        outcome["fence"] = yield from check_fence(context, outcome["partitions"], problems)
    if context.flow.sync.acls.holds_back:
        outcome["rights"] = yield from check_withheld_rights(context, outcome["partitions"], problems)


def check_clusters(context: RunContext, problems: list[str]) -> ActionGenerator[JsonObject]:
    """Adds a problem for a cluster that is not the pinned one, or is both sides. Returns alias → id and brokers."""
    source = yield from perform_action(ReadCluster("source"), ObservedCluster, context.policy)
    target = yield from perform_action(ReadCluster("target"), ObservedCluster, context.policy)
    for seen in (source, target):
        if seen.pinned is not None and seen.pinned != seen.cluster_id:
            problems.append(f"cluster {seen.alias} is {seen.cluster_id}, the topology pins {seen.pinned}")
    if source.cluster_id == target.cluster_id:
        problems.append(f"{source.alias} and {target.alias} are the same cluster ({source.cluster_id})")
    return {seen.alias: {"cluster_id": seen.cluster_id, "brokers": seen.brokers} for seen in (source, target)}


def check_wave_topics(context: RunContext, problems: list[str]) -> ActionGenerator[dict[str, int]]:
    """Adds a problem for each topic that is missing or has other partition counts. Returns topic → partitions of the
    rest."""
    source = yield from perform_action(ReadTopics("source"), ObservedTopics, context.policy)
    target = yield from perform_action(ReadTopics("target"), ObservedTopics, context.policy)
    wanted = context.wave.topics or tuple(sorted(t for t in source.partitions if context.flow.selects(t)))
    if not wanted:
        problems.append(f"flow {context.flow.id} selects no topic that exists at {context.flow.source}")
    found: dict[str, int] = {}
    for topic in wanted:
        at_source, at_target = source.partitions.get(topic), target.partitions.get(context.rename(topic))
        if not context.flow.selects(topic):
            problems.append(f"topic {topic} is not carried by flow {context.flow.id}")
        elif at_source is None:
            problems.append(f"topic {topic} does not exist at {context.flow.source}")
        elif at_target is None:
            problems.append(f"topic {context.rename(topic)} does not exist at {context.flow.target}")
        elif at_source != at_target:
            problems.append(
                f"topic {topic} has {at_source} partitions at {context.flow.source} and {at_target} "
                f"at {context.flow.target}: keys would change partition"
            )
        else:
            found[topic] = at_source
    return found


def _flow(context: RunContext, topics: list[str], problems: list[str]) -> ActionGenerator[None]:
    seen = yield from perform_action(ReadFlow(), ObservedFlow, context.policy)
    if seen.state != "running":
        problems.append(
            f"flow {context.flow.id} is {seen.state}, not running (`topology apply`, `topology flow resume`)"
        )
    elif not seen.same_plan:
        problems.append(f"flow {context.flow.id} runs another plan than this file: `topology apply` first")
    for topic in topics:
        if topic in seen.halted_topics:
            problems.append(f"topic {topic}: {seen.halted_topics[topic]}")
        if topic in seen.paused_topics:
            problems.append(seen.paused_topics[topic])
        if topic in seen.retired:
            problems.append(
                f"topic {topic} has moved already: flow {context.flow.id} let go of it, and {context.rename(topic)} at "
                f"{context.flow.target} holds what applications have written there. If they have come back since, the "
                "rollback has told what another migration takes (`topology journal`, step end_migration)"
            )
    yield from _reverse(context, topics, problems)


def _reverse(context: RunContext, topics: list[str], problems: list[str]) -> ActionGenerator[None]:
    name, late = context.policy.reverse, context.policy.late_groups
    if name is None and late:
        problems.append(
            f"groups {', '.join(sorted(late))} stay at {context.flow.source} after wave {context.wave.name}, and no "
            "flow brings them what is written since: name one in `rollback.reverse` of the wave"
        )
    if name is None:
        return
    seen = yield from perform_action(ReadFlow(name), ObservedFlow, context.policy)
    if seen.state == "missing":
        problems.append(f"flow {name}, the way back of wave {context.wave.name}, is missing: `topology apply` first")
    back = seen.paused_topics
    problems += [f"on the way back, {back[name]}" for name in map(context.rename, topics) if name in back]


def _applications(context: RunContext, outcome: JsonObject, problems: list[str]) -> ActionGenerator[None]:
    if not context.producers and not context.is_late:
        problems.append(f"wave {context.wave.name} names no producers: nothing could be fenced or switched")
    outcome["applications"] = {}
    roles: list[tuple[str, ApplicationRole]] = [(name, "consumer") for name in context.groups]
    roles += [(name, "producer") for name in context.producers]
    where = "`topology migrate` in a terminal without --approve auto"
    for name, role in roles:
        seen = yield from assess_application(context, name, role, outcome, problems, where)
        if seen.state in ("running", "starting") and seen.cluster not in (None, context.flow.source):
            problems.append(f"{role} {name} runs at {seen.cluster}, not at {context.flow.source}")


def wait_for_low_lag(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Lag low and held, and everything that stood at the source when the gate opened copied (C12).

    Lag is what stood at the source when a look began and was not copied when it ended, as workers report it: what is
    written during a look, which takes seconds on a busy machine, is not behind. Late groups wait for the flow back.
    """
    policy = context.policy
    read_logs, read_lag = (read_target_logs, read_lag_back) if context.is_late else (read_source_logs, _read_lag)
    snapshot = (yield from read_logs(context)).stable
    outcome["snapshot"] = encode_offsets(snapshot)

    progress = CopyProgress(context, policy.reverse if context.is_late else None)
    steady = SteadyLag(policy.max_lag)

    def look() -> ActionGenerator[ConditionCheck]:
        lag, behind, at_ms = yield from read_lag(context, snapshot, progress)
        holds = lag <= policy.max_lag and behind == 0
        text = f"lag {lag} records (gate: {policy.max_lag}), {behind} of those written before the gate to go"
        text += steady.describe(at_ms, lag, behind)
        return ConditionCheck(holds, text, at_ms, {"lag_records": lag, "snapshot_behind": behind})

    found = yield from wait_for_condition(
        look, policy.lag_bound_ms, policy, times=policy.hold_times, hold_ms=policy.hold_ms
    )
    outcome.update(found.seen)


def _read_lag(
    context: RunContext, snapshot: Mapping[TopicPartition, int], progress: CopyProgress
) -> ActionGenerator[tuple[int, int, int]]:
    """Records that the flow has not copied: (all of them, those below the snapshot, the time of the look in ms)."""
    logs = yield from read_source_logs(context)
    seen = yield from read_copies(context)
    missing = context.behind(seen.copies, logs, logs.stable)
    lag, behind = sum(missing.values()), sum(context.behind(seen.copies, logs, snapshot).values())
    yield from progress.look(seen, missing)
    return lag, behind, seen.at_ms


@dataclass(slots=True)
class SteadyLag:
    """Tells a flow that keeps up, at a lag above the gate, from one that catches up."""

    max_lag: int
    _since_ms: int | None = None
    _least: int = 0
    _most: int = 0

    def describe(self, at_ms: int, lag: int, behind: int) -> str:
        """What to do, once the lag has been above the gate for STEADY_LAG_MS although all that is old is copied."""
        if lag <= self.max_lag or behind:
            self._since_ms = None
            return ""
        if self._since_ms is None:
            self._since_ms, self._least, self._most = at_ms, lag, lag
        self._least, self._most = min(self._least, lag), max(self._most, lag)
        if at_ms - self._since_ms < STEADY_LAG_MS:
            return ""
        seconds = (at_ms - self._since_ms) // 1000
        return (
            f". For {seconds} s it has been {self._least} to {self._most}, and everything older is copied: the flow "
            "keeps up with the producers, and the gate is too low for what they write. Set "
            f"gates.before.lag.max_records above {self._most}, add workers, or slow the producers down"
        )


def prove_history(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Step `history_proof`: everything copied so far, while the applications still run."""
    yield from require_proof(context, outcome, context.policy.history_level, final=False, since=None)


def list_history_topics(topics: Iterable[str]) -> tuple[str, ...]:
    """What can be proven while applications run: all topics but the repartition topics of Kafka Streams, from which a
    running application deletes what it has processed, also while it is compared. The tail's proof reads them whole."""
    return tuple(sorted(topic for topic in topics if not is_repartition_topic(topic)))


def require_proof(
    context: RunContext, outcome: JsonObject, level: str, *, final: bool, since: str | None
) -> ActionGenerator[None]:
    """Ask for a proof. Raises Refused unless it says `proven` (or `repeated`, of a flow whose file allows repeats) with
    unproven = 0: both words count."""
    flow, moved = context.flow.id, context.partitions()
    topics = tuple(sorted(moved)) if final else list_history_topics(moved)
    if context.is_late:  # what its groups read at the source is what the flow back brought there
        assert context.policy.reverse is not None, "preflight refuses late groups without a way back"
        flow, topics = context.policy.reverse, tuple(sorted(map(context.rename, topics)))
    seen = yield from perform_action(RequestProof(flow, topics, level, final, since), ProofOutcome, context.policy)
    outcome.update(
        flow=flow,
        verdict=seen.verdict,
        unproven=seen.unproven,
        counts=dict(seen.counts),
        summary=seen.summary,
        proof_root=seen.proof_root,
        level=level,
    )
    if seen.verdict not in PROVEN_VERDICTS or seen.unproven != 0:
        counts = " ".join(f"{name}={count}" for name, count in sorted(seen.counts.items()) if count)
        what = seen.message or f"verdict {seen.verdict}, {seen.unproven} unproven"
        raise Refused(f"not proven: {what}" + (f" ({counts})" if counts else "") + _where(seen.summary), outcome)


def _where(summary: str | None) -> str:
    return f"; see {summary}" if summary else ""


def ask_move_approval(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Step `approval`: everybody whom the file names sees lag, proof and losses, and has to agree."""
    names = context.policy.approvals or ("operator",)
    evidence: JsonObject = {step: context.outcomes[step] for step in ("lag_gate", "history_proof")}
    if "preflight_back" in context.outcomes:  # what a blind switch back would strand, and what stands in the way
        back = context.outcomes["preflight_back"]
        evidence |= {"written_since_the_switch": back["written"], "stranded": back["stranded"]["stretches"]}
    if "divergence" in context.outcomes:  # of a failback: what only the old primary has
        evidence["divergence"] = {name: context.outcomes["divergence"][name] for name in ("records", "partitions")}
    if context.outcomes.get("preflight", {}).get("left_behind"):
        evidence["groups_left_behind"] = context.outcomes["preflight"]["left_behind"]
    consumers, producers = ", ".join(context.groups) or "no groups", ", ".join(context.producers)
    who = {
        "consumers_first": f"{consumers} and then {producers}",
        "producers_first": f"{producers} and then {consumers}",
        "fenced": f"{consumers} and {producers} together" if producers else consumers,
        "consumers_last": consumers,
    }[context.policy.strategy]
    question = f"move {who} from {context.flow.source} to {context.flow.target}?"
    yield from _approvals("approval", names, question, evidence, context, outcome)
    if "window" in context.outcomes:  # whoever was asked may have answered the next morning
        yield from _open(context)


def run_soak_gate(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Consumers are at the target: the last calm moment to look around before producers follow; or, where they have
    moved already, the look at what the wave has become."""
    policy = context.policy
    if policy.consumer_lag is not None:
        yield from wait_for_consumer_lag(context, outcome, policy.consumer_lag)
    question = f"fence {', '.join(context.producers)} and move them to {context.flow.target}?"
    if context.cut is not None or context.is_late:
        question = f"is wave {context.wave.name} done, with its applications at {context.flow.target} for good?"
    if policy.soak_approvals:
        evidence = {"landing_test": context.outcomes["landing_test"]}
        yield from _approvals("soak", policy.soak_approvals, question, evidence, context, outcome)


def _approvals(
    gate: str, names: tuple[str, ...], question: str, evidence: JsonObject, context: RunContext, outcome: JsonObject
) -> ActionGenerator[None]:
    granted: list[JsonObject] = []
    for by in names:
        seen = yield from perform_action(AskApproval(gate, by, question, evidence), ApprovalAnswer, context.policy)
        granted.append({"asked": by, "granted": seen.granted, "by": seen.by, "note": seen.note})
        outcome["approvals"] = granted
        if not seen.granted:
            raise Refused(f"{by} did not approve" + (f": {seen.note}" if seen.note else ""), outcome)


def wait_for_window(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Waits until the wave's window opens; one that has closed is refused, also when the last approval comes."""
    policy, wanted = context.policy, context.policy.window
    assert wanted is not None
    first = (yield from perform_action(ReadClock(), ObservedTime, policy)).wall_ms

    def look() -> ActionGenerator[ConditionCheck]:
        seen = yield from _open(context)
        text = f"the window opens at {wanted.opens}"
        return ConditionCheck(seen.wall_ms >= _opens_ms(wanted), text, seen.at_ms, {})

    yield from wait_for_condition(look, max(0, _opens_ms(wanted) - first) + policy.reach_ms, policy)
    outcome["opens"] = wanted.opens


def _open(context: RunContext) -> ActionGenerator[ObservedTime]:
    """Raises Refused when the window has closed; it may be still to open."""
    wanted = context.policy.window
    assert wanted is not None
    seen = yield from perform_action(ReadClock(), ObservedTime, context.policy)
    left = _opens_ms(wanted) + wanted.length_ms - seen.wall_ms
    if left <= 0:
        raise Refused(
            f"the window of wave {context.wave.name} closed {-left / 60_000:.0f} min ago: it was open from "
            f"{wanted.opens} for {wanted.length_ms / 60_000:g} min; give the wave a new window",
            {"wall_ms": seen.wall_ms},
        )
    return seen


def _opens_ms(window: WaveWindow) -> int:
    return int(datetime.fromisoformat(window.opens).timestamp() * 1000)


def hold_before(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Step `hold_before`: does nothing for `hold_before_ms`; time that passed before a restart counts."""
    yield from _hold(context, outcome, "hold_before", context.policy.hold_before_ms)


def hold_after(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Step `hold_after`: does nothing for `hold_after_ms`; time that passed before a restart counts."""
    yield from _hold(context, outcome, "hold_after", context.policy.hold_after_ms)


def _hold(context: RunContext, outcome: JsonObject, step: str, hold_ms: int) -> ActionGenerator[None]:
    """What passed while nobody drove counts, too: people have looked all the same."""
    left_ms = context.left_ms(step, hold_ms)
    text = f"holding for {hold_ms / 1000:g} s" + (f", {left_ms / 1000:g} s of it are left" if left_ms < hold_ms else "")

    def look() -> ActionGenerator[ConditionCheck]:
        seen = yield from perform_action(ReadClock(), ObservedTime, context.policy)
        return ConditionCheck(True, text, seen.at_ms, {})

    yield from wait_for_condition(look, left_ms + context.policy.reach_ms, context.policy, hold_ms=left_ms)
    outcome["held_ms"] = hold_ms
