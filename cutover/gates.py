"""The steps before anything is touched: preflight, lag gate, proof of history, approval; and the soak gate."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cutover.actions import (
    ApplicationRole,
    AskApproval,
    JsonObject,
    ReadApplication,
    ReadClock,
    ReadCluster,
    ReadFlow,
    ReadTopics,
    RequestProof,
)
from cutover.errors import Refused
from cutover.fences.fence_steps import check_fence
from cutover.groups.consumer_lag import wait_for_consumer_lag
from cutover.groups.group_preflight import check_groups, find_groups_left_behind
from cutover.hooks.hook_steps import check_hooks
from cutover.observations import (
    ApprovalAnswer,
    ObservedApplication,
    ObservedCluster,
    ObservedFlow,
    ObservedTime,
    ObservedTopics,
    ProofOutcome,
)
from cutover.offsets import encode_offsets
from cutover.polling import ActionGenerator, ConditionCheck, perform_action, wait_for_condition
from cutover.run_context import CopyProgress, RunContext, read_copies, read_source_logs
from cutover.withheld_rights import check_withheld_rights
from topology.migration_waves import WaveWindow

STEADY_LAG_MS: Final = 60_000  # as long as a flow may copy nothing before it is called stalled (Policy.stall_ms)


def run_preflight(ground: RunContext, note: JsonObject) -> ActionGenerator[None]:
    """Everything that can be found wrong before a single client is stopped, all of it in one message."""
    problems: list[str] = []
    note["clusters"] = yield from check_clusters(ground, problems)
    note["partitions"] = yield from check_wave_topics(ground, problems)
    yield from _flow(ground, sorted(note["partitions"]), problems)
    note["groups"] = yield from check_groups(ground, set(note["partitions"]), problems)
    note["left_behind"] = yield from find_groups_left_behind(ground, set(note["partitions"]))
    note["applications"] = yield from _applications(ground, problems)
    yield from check_hooks(ground, problems)
    if ground.policy.fence.kind != "stop":
        note["fence"] = yield from check_fence(ground, note["partitions"], problems)
    if ground.flow.sync.acls.holds_back:
        note["rights"] = yield from check_withheld_rights(ground, note["partitions"], problems)
    if problems:
        raise Refused("; ".join(problems), {"problems": problems})


def check_clusters(ground: RunContext, problems: list[str]) -> ActionGenerator[JsonObject]:
    source = yield from perform_action(ReadCluster("source"), ObservedCluster, ground.policy)
    target = yield from perform_action(ReadCluster("target"), ObservedCluster, ground.policy)
    for seen in (source, target):
        if seen.pinned is not None and seen.pinned != seen.cluster_id:
            problems.append(f"cluster {seen.alias} is {seen.cluster_id}, the topology pins {seen.pinned}")
    if source.cluster_id == target.cluster_id:
        problems.append(f"{source.alias} and {target.alias} are the same cluster ({source.cluster_id})")
    return {seen.alias: {"cluster_id": seen.cluster_id, "brokers": seen.brokers} for seen in (source, target)}


def check_wave_topics(ground: RunContext, problems: list[str]) -> ActionGenerator[dict[str, int]]:
    source = yield from perform_action(ReadTopics("source"), ObservedTopics, ground.policy)
    target = yield from perform_action(ReadTopics("target"), ObservedTopics, ground.policy)
    wanted = ground.wave.topics or tuple(sorted(t for t in source.partitions if ground.flow.selects(t)))
    if not wanted:
        problems.append(f"flow {ground.flow.id} selects no topic that exists at {ground.flow.source}")
    found: dict[str, int] = {}
    for topic in wanted:
        here, there = source.partitions.get(topic), target.partitions.get(ground.rename(topic))
        if not ground.flow.selects(topic):
            problems.append(f"topic {topic} is not carried by flow {ground.flow.id}")
        elif here is None:
            problems.append(f"topic {topic} does not exist at {ground.flow.source}")
        elif there is None:
            problems.append(f"topic {ground.rename(topic)} does not exist at {ground.flow.target}")
        elif here != there:
            problems.append(
                f"topic {topic} has {here} partitions at {ground.flow.source} and {there} at {ground.flow.target}: "
                "keys would change partition"
            )
        else:
            found[topic] = here
    return found


def _flow(ground: RunContext, topics: list[str], problems: list[str]) -> ActionGenerator[None]:
    seen = yield from perform_action(ReadFlow(), ObservedFlow, ground.policy)
    if seen.state != "running":
        problems.append(
            f"flow {ground.flow.id} is {seen.state}, not running (`topology apply`, `topology flow resume`)"
        )
    elif not seen.same_plan:
        problems.append(f"flow {ground.flow.id} runs another plan than this file: `topology apply` first")
    for topic in topics:
        if topic in seen.loud:
            problems.append(f"topic {topic}: {seen.loud[topic]}")
        if topic in seen.retired:
            problems.append(
                f"topic {topic} has moved already: flow {ground.flow.id} let go of it, and {ground.rename(topic)} at "
                f"{ground.flow.target} holds what applications have written there. If they have come back since, the "
                "rollback has told what another migration takes (`topology journal`, step end_migration)"
            )
    yield from _reverse(ground, problems)


def _reverse(ground: RunContext, problems: list[str]) -> ActionGenerator[None]:
    name = ground.policy.reverse
    if name is None:
        return
    seen = yield from perform_action(ReadFlow(name), ObservedFlow, ground.policy)
    if seen.state == "missing":
        problems.append(f"flow {name}, the way back of wave {ground.wave.name}, is missing: `topology apply` first")


def _applications(ground: RunContext, problems: list[str]) -> ActionGenerator[dict[str, str]]:
    if not ground.producers:
        problems.append(f"wave {ground.wave.name} names no producers: nothing could be fenced or switched")
    states: dict[str, str] = {}
    roles: list[tuple[str, ApplicationRole]] = [(name, "consumer") for name in ground.groups]
    roles += [(name, "producer") for name in ground.producers]
    for name, role in roles:
        seen = yield from perform_action(ReadApplication(name, role), ObservedApplication, ground.policy)
        if seen.state == "running" and seen.cluster not in (None, ground.flow.source):
            problems.append(f"{role} {name} runs at {seen.cluster}, not at {ground.flow.source}")
        if seen.by == "nobody":
            problems.append(
                f"{role} {name} has no control endpoint, and nobody can be asked to stop and start it: declare its "
                f"address in migration.applications.{name}.http, or run `topology migrate` in a terminal without "
                "--approve auto"
            )
        states[name] = seen.state
    return states


def wait_for_low_lag(ground: RunContext, note: JsonObject) -> ActionGenerator[None]:
    """Lag low and held, and everything that stood at the source when the gate opened copied (C12).

    Lag is what stood at the source when a look began and was not copied when it ended, as workers report it: what is
    written during a look, which takes seconds on a busy machine, is not behind.
    """
    policy = ground.policy
    snapshot = (yield from read_source_logs(ground)).stable
    note["snapshot"] = encode_offsets(snapshot)

    progress, steady = CopyProgress(ground), SteadyLag(policy.max_lag)

    def look() -> ActionGenerator[ConditionCheck]:
        logs = yield from read_source_logs(ground)
        seen = yield from read_copies(ground)
        missing = ground.behind(seen.copies, logs, logs.stable)
        lag, behind = sum(missing.values()), sum(ground.behind(seen.copies, logs, snapshot).values())
        yield from progress.look(seen, missing)
        holds = lag <= policy.max_lag and behind == 0
        text = f"lag {lag} records (gate: {policy.max_lag}), {behind} of those written before the gate to go"
        text += steady.describe(seen.at_ms, lag, behind)
        return ConditionCheck(holds, text, seen.at_ms, {"lag_records": lag, "snapshot_behind": behind})

    found = yield from wait_for_condition(
        look, policy.lag_bound_ms, policy, times=policy.hold_times, hold_ms=policy.hold_ms
    )
    note.update(found.seen)


@dataclass(slots=True)
class SteadyLag:
    """Tells a flow that keeps up, at a lag above the gate, from one that catches up."""

    max_lag: int
    _since_ms: int | None = None
    _least: int = 0
    _most: int = 0

    def describe(self, at_ms: int, lag: int, behind: int) -> str:
        """What to do, once the lag has been above the gate for STEADY_MS although all that is old is copied."""
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


def prove_history(ground: RunContext, note: JsonObject) -> ActionGenerator[None]:
    yield from require_proof(ground, note, ground.policy.history_level, final=False, since=None)


def require_proof(
    ground: RunContext, note: JsonObject, level: str, *, final: bool, since: str | None
) -> ActionGenerator[None]:
    """Ask for a proof. Raises Refused unless it says `proven` with unproven = 0: both words count."""
    topics = tuple(sorted(ground.partitions()))
    seen = yield from perform_action(
        RequestProof(ground.flow.id, topics, level, final, since), ProofOutcome, ground.policy
    )
    note.update(
        verdict=seen.verdict,
        unproven=seen.unproven,
        counts=dict(seen.counts),
        summary=seen.summary,
        proof_root=seen.proof_root,
        level=level,
    )
    if seen.verdict != "proven" or seen.unproven != 0:
        counts = " ".join(f"{name}={count}" for name, count in sorted(seen.counts.items()) if count)
        what = seen.message or f"verdict {seen.verdict}, {seen.unproven} unproven"
        raise Refused(f"not proven: {what}" + (f" ({counts})" if counts else "") + _where(seen.summary), note)


def _where(summary: str | None) -> str:
    return f"; see {summary}" if summary else ""


def ask_move_approval(ground: RunContext, note: JsonObject) -> ActionGenerator[None]:
    names = ground.policy.approvals or ("operator",)
    evidence: JsonObject = {step: ground.outcomes[step] for step in ("lag_gate", "history_proof")}
    if "preflight_back" in ground.outcomes:  # what a blind switch back would strand, and what stands in the way
        back = ground.outcomes["preflight_back"]
        evidence |= {"written_since_the_switch": back["written"], "stranded": back["stranded"]["stretches"]}
    if "divergence" in ground.outcomes:  # of a failback: what only the old primary has
        evidence["divergence"] = {name: ground.outcomes["divergence"][name] for name in ("records", "partitions")}
    if ground.outcomes.get("preflight", {}).get("left_behind"):
        evidence["groups_left_behind"] = ground.outcomes["preflight"]["left_behind"]
    consumers, producers = ", ".join(ground.groups) or "no groups", ", ".join(ground.producers)
    who = {
        "consumers_first": f"{consumers} and then {producers}",
        "producers_first": f"{producers} and then {consumers}",
        "fenced": f"{consumers} and {producers} together",
    }[ground.policy.strategy]
    question = f"move {who} from {ground.flow.source} to {ground.flow.target}?"
    yield from _approvals("approval", names, question, evidence, ground, note)
    if "window" in ground.outcomes:  # whoever was asked may have answered the next morning
        yield from _open(ground)


def run_soak_gate(ground: RunContext, note: JsonObject) -> ActionGenerator[None]:
    """Consumers are at the target: the last calm moment to look around before producers follow; or, where they have
    moved already, the look at what the wave has become."""
    policy = ground.policy
    if policy.consumer_lag is not None:
        yield from wait_for_consumer_lag(ground, note, policy.consumer_lag)
    question = f"fence {', '.join(ground.producers)} and move them to {ground.flow.target}?"
    if ground.cut is not None:
        question = f"is wave {ground.wave.name} done, with its applications at {ground.flow.target} for good?"
    if policy.soak_approvals:
        evidence = {"landing_test": ground.outcomes["landing_test"]}
        yield from _approvals("soak", policy.soak_approvals, question, evidence, ground, note)


def _approvals(
    gate: str, names: tuple[str, ...], question: str, evidence: JsonObject, ground: RunContext, note: JsonObject
) -> ActionGenerator[None]:
    granted: list[JsonObject] = []
    for by in names:
        seen = yield from perform_action(AskApproval(gate, by, question, evidence), ApprovalAnswer, ground.policy)
        granted.append({"asked": by, "granted": seen.granted, "by": seen.by, "note": seen.note})
        note["approvals"] = granted
        if not seen.granted:
            raise Refused(f"{by} did not approve" + (f": {seen.note}" if seen.note else ""), note)


def wait_for_window(ground: RunContext, note: JsonObject) -> ActionGenerator[None]:
    """Waits until the wave's window opens; one that has closed is refused, also when the last approval comes."""
    policy, wanted = ground.policy, ground.policy.window
    assert wanted is not None
    first = (yield from perform_action(ReadClock(), ObservedTime, policy)).wall_ms

    def look() -> ActionGenerator[ConditionCheck]:
        seen = yield from _open(ground)
        text = f"the window opens at {wanted.opens}"
        return ConditionCheck(seen.wall_ms >= _opens_ms(wanted), text, seen.at_ms, {})

    yield from wait_for_condition(look, max(0, _opens_ms(wanted) - first) + policy.reach_ms, policy)
    note["opens"] = wanted.opens


def _open(ground: RunContext) -> ActionGenerator[ObservedTime]:
    """Raises Refused when the window has closed; it may be still to open."""
    wanted = ground.policy.window
    assert wanted is not None
    seen = yield from perform_action(ReadClock(), ObservedTime, ground.policy)
    left = _opens_ms(wanted) + wanted.length_ms - seen.wall_ms
    if left <= 0:
        raise Refused(
            f"the window of wave {ground.wave.name} closed {-left / 60_000:.0f} min ago: it was open from "
            f"{wanted.opens} for {wanted.length_ms / 60_000:g} min; give the wave a new window",
            {"wall_ms": seen.wall_ms},
        )
    return seen


def _opens_ms(window: WaveWindow) -> int:
    return int(datetime.fromisoformat(window.opens).timestamp() * 1000)


def hold_before(ground: RunContext, note: JsonObject) -> ActionGenerator[None]:
    yield from _hold(ground, note, "hold_before", ground.policy.hold_before_ms)


def hold_after(ground: RunContext, note: JsonObject) -> ActionGenerator[None]:
    yield from _hold(ground, note, "hold_after", ground.policy.hold_after_ms)


def _hold(ground: RunContext, note: JsonObject, step: str, hold_ms: int) -> ActionGenerator[None]:
    """What passed while nobody drove counts, too: people have looked all the same."""
    left_ms = ground.left_ms(step, hold_ms)
    told = f"holding for {hold_ms / 1000:g} s" + (f", {left_ms / 1000:g} s of it are left" if left_ms < hold_ms else "")

    def look() -> ActionGenerator[ConditionCheck]:
        seen = yield from perform_action(ReadClock(), ObservedTime, ground.policy)
        return ConditionCheck(True, told, seen.at_ms, {})

    yield from wait_for_condition(look, left_ms + ground.policy.reach_ms, ground.policy, hold_ms=left_ms)
    note["held_ms"] = hold_ms
