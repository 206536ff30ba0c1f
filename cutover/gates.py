"""The steps before anything is touched: preflight, lag gate, proof of history, approval; and the soak gate."""

from __future__ import annotations

from cutover.actions import (
    AskApproval,
    Json,
    LookAtApplication,
    LookAtCluster,
    LookAtFlow,
    LookAtGroup,
    LookAtTopics,
    Prove,
    Role,
)
from cutover.errors import Refused
from cutover.ground import Ground, Progress, copies, source_logs, target_logs
from cutover.observations import (
    ApplicationSeen,
    ApprovalSeen,
    ClusterSeen,
    FlowSeen,
    GroupSeen,
    ProofSeen,
    TopicsSeen,
)
from cutover.offsets import show, to_json
from cutover.waiting import Asking, Check, ask, wait


def preflight(ground: Ground, note: Json) -> Asking[None]:
    """Everything that can be found wrong before a single client is stopped, all of it in one message."""
    problems: list[str] = []
    note["clusters"] = yield from _clusters(ground, problems)
    note["partitions"] = yield from _topics(ground, problems)
    yield from _flow(ground, sorted(note["partitions"]), problems)
    note["groups"] = yield from _groups(ground, set(note["partitions"]), problems)
    note["applications"] = yield from _applications(ground, problems)
    if problems:
        raise Refused("; ".join(problems), {"problems": problems})


def _clusters(ground: Ground, problems: list[str]) -> Asking[Json]:
    source = yield from ask(LookAtCluster("source"), ClusterSeen, ground.policy)
    target = yield from ask(LookAtCluster("target"), ClusterSeen, ground.policy)
    for seen in (source, target):
        if seen.pinned is not None and seen.pinned != seen.cluster_id:
            problems.append(f"cluster {seen.alias} is {seen.cluster_id}, the topology pins {seen.pinned}")
    if source.cluster_id == target.cluster_id:
        problems.append(f"{source.alias} and {target.alias} are the same cluster ({source.cluster_id})")
    return {seen.alias: {"cluster_id": seen.cluster_id, "brokers": seen.brokers} for seen in (source, target)}


def _topics(ground: Ground, problems: list[str]) -> Asking[dict[str, int]]:
    source = yield from ask(LookAtTopics("source"), TopicsSeen, ground.policy)
    target = yield from ask(LookAtTopics("target"), TopicsSeen, ground.policy)
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


def _flow(ground: Ground, topics: list[str], problems: list[str]) -> Asking[None]:
    seen = yield from ask(LookAtFlow(), FlowSeen, ground.policy)
    if seen.state != "running":
        problems.append(
            f"flow {ground.flow.id} is {seen.state}, not running (`topology apply`, `topology flow resume`)"
        )
    elif not seen.same_plan:
        problems.append(f"flow {ground.flow.id} runs another plan than this file: `topology apply` first")
    for topic in topics:
        if topic in seen.loud:
            problems.append(f"topic {topic}: {seen.loud[topic]}")


def _groups(ground: Ground, topics: set[str], problems: list[str]) -> Asking[Json]:
    found: Json = {}
    for group in ground.groups:
        there = yield from ask(LookAtGroup("target", group), GroupSeen, ground.policy)
        here = yield from ask(LookAtGroup("source", group), GroupSeen, ground.policy)
        if there.members:
            problems.append(f"group {group} is alive at {ground.flow.target} ({there.members} members)")
        elif there.offsets:
            problems.append(
                f"group {group} has offsets at {ground.flow.target} already: {show(there.offsets)}; "
                "they are not ours to overwrite"
            )
        mine = [p for p in here.offsets if p.topic in topics]
        if not mine and not here.members and group not in ground.policy.uncommitted:
            problems.append(
                f"group {group} has no commit at {ground.flow.source}, and the file declares no policy for it"
            )
        for topic in sorted({place.topic for place in here.offsets} - topics):
            problems.append(
                f"group {group} also reads {topic}, which is not in wave {ground.wave.name}: a group moves as a whole"
            )
        found[group] = {"state": here.state, "members": here.members, "offsets": to_json(here.offsets)}
    return found


def _applications(ground: Ground, problems: list[str]) -> Asking[dict[str, str]]:
    if not ground.producers:
        problems.append(f"wave {ground.wave.name} names no producers: nothing could be fenced or switched")
    states: dict[str, str] = {}
    roles: list[tuple[str, Role]] = [(name, "consumer") for name in ground.groups]
    roles += [(name, "producer") for name in ground.producers]
    for name, role in roles:
        seen = yield from ask(LookAtApplication(name, role), ApplicationSeen, ground.policy)
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


def lag_gate(ground: Ground, note: Json) -> Asking[None]:
    """Lag low and held, and everything that stood at the source when the gate opened copied (research C12)."""
    policy = ground.policy
    snapshot = (yield from source_logs(ground)).stable
    note["snapshot"] = to_json(snapshot)

    progress = Progress(ground)

    def look() -> Asking[Check]:
        seen = yield from copies(ground)
        logs = yield from source_logs(ground)  # read after the copies: lag is never understated
        missing = ground.behind(seen.copies, logs, logs.stable)
        lag, behind = sum(missing.values()), sum(ground.behind(seen.copies, logs, snapshot).values())
        yield from progress.look(seen, missing)
        holds = lag <= policy.max_lag and behind == 0
        text = f"lag {lag} records (gate: {policy.max_lag}), {behind} of those written before the gate to go"
        return Check(holds, text, logs.at_ms, {"lag_records": lag, "snapshot_behind": behind})

    found = yield from wait(look, policy.lag_bound_ms, policy, times=policy.hold_times, hold_ms=policy.hold_ms)
    note.update(found.seen)


def prove_history(ground: Ground, note: Json) -> Asking[None]:
    yield from prove(ground, note, ground.policy.history_level, final=False, since=None)


def prove(ground: Ground, note: Json, level: str, *, final: bool, since: str | None) -> Asking[None]:
    """Ask for a proof. Raises Refused unless it says `proven` with unproven = 0: both words count."""
    topics = tuple(sorted(ground.partitions()))
    seen = yield from ask(Prove(ground.flow.id, topics, level, final, since), ProofSeen, ground.policy)
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


def approval(ground: Ground, note: Json) -> Asking[None]:
    names = ground.policy.approvals or ("operator",)
    evidence: Json = {step: ground.outcomes[step] for step in ("lag_gate", "history_proof")}
    question = (
        f"move {', '.join(ground.groups) or 'no groups'} and then {', '.join(ground.producers)} "
        f"from {ground.flow.source} to {ground.flow.target}?"
    )
    yield from _approvals("approval", names, question, evidence, ground, note)


def soak(ground: Ground, note: Json) -> Asking[None]:
    """Consumers are at the target, producers still at the source: the last calm moment to look around."""
    policy = ground.policy
    if policy.consumer_lag is not None:
        most = policy.consumer_lag

        def look() -> Asking[Check]:
            lags: dict[str, int] = {}
            logs = yield from target_logs(ground)
            for name in ground.groups:
                group = yield from ask(LookAtGroup("target", name), GroupSeen, policy)
                lags[name] = sum(max(0, end - group.offsets.get(p, logs.starts[p])) for p, end in logs.stable.items())
            worst = max(lags.values(), default=0)
            text = f"groups on the target lag {worst} records (gate: {most})"
            return Check(worst <= most, text, logs.at_ms, {"consumer_lag": lags})

        note.update((yield from wait(look, policy.soak_bound_ms, policy)).seen)
    question = f"fence {', '.join(ground.producers)} and move them to {ground.flow.target}?"
    if policy.soak_approvals:
        evidence = {"landing_test": ground.outcomes["landing_test"]}
        yield from _approvals("soak", policy.soak_approvals, question, evidence, ground, note)


def _approvals(
    gate: str, names: tuple[str, ...], question: str, evidence: Json, ground: Ground, note: Json
) -> Asking[None]:
    granted: list[Json] = []
    for by in names:
        seen = yield from ask(AskApproval(gate, by, question, evidence), ApprovalSeen, ground.policy)
        granted.append({"asked": by, "granted": seen.granted, "by": seen.by, "note": seen.note})
        note["approvals"] = granted
        if not seen.granted:
            raise Refused(f"{by} did not approve" + (f": {seen.note}" if seen.note else ""), note)
