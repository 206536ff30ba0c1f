"""Decisions about halted partitions: `topology flow accept-gap`, `reseed`, `copy-foreign` and the DAG `decide__<name>`.

Each shows what it will do before anything is written, is recorded in watershed.journal, and names the state that it
answers, so that a worker obeys it once or refuses it (`replicator.recovery.operator_decisions`).
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from watershed.clusters.admin import Admin
from watershed.clusters.alignment_records import read_alignments
from watershed.clusters.control_topics import ControlWriter
from watershed.clusters.partition_status_records import PartitionStatus, read_partition_statuses
from watershed.clusters.settings import ConnectionSettings, SettingsLookup
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.operations.proposal import NoAnswerYet, OperationRefused, Proposal, WorkersRefused
from watershed.replicator.ledger.ledger import DecisionBasis, read_ledger
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import (
    COPY_FOREIGN_STATE,
    GAP_ACCEPTABLE_STATES,
    RESEEDABLE_STATES,
    OffsetSpan,
)
from watershed.replicator.recovery.operator_decisions import COPY_FOREIGN, OperatorDecision, submit_decision
from watershed.topology.plan import Plan, PlanFlow
from watershed.topology.shell_command import render_shell_command

_STALE_MS = 20_000  # a worker's heartbeat comes every second
DECISION_WAIT_S: Final = 120.0  # so long a worker's answer is waited for


class TargetNotEmpty(OperationRefused):
    """What is in the way of copying into the target, with the commands that remove it."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class FlowScene:
    """A flow on its target: what workers report and where the ledger says its partitions stand.

    file: what messages call the topology file. aligned: source topics whose offsets are the same on the target. wait_s:
    so long a worker's answer is waited for.
    """

    flow: PlanFlow
    topology: str
    source: Callable[[], ConnectionSettings]
    target: ConnectionSettings
    reports: dict[tuple[str, int], PartitionStatus]
    standing: dict[PartitionKey, DecisionBasis]
    file: str
    aligned: frozenset[str] = frozenset()
    wait_s: float = DECISION_WAIT_S

    def find_key(self, topic: str, partition: int) -> PartitionKey | None:
        """The ledger's key of a source partition; None where it knows nothing of it."""
        wanted = (self.flow.id, topic, partition)
        return next((key for key in self.standing if (key.flow, key.topic, key.partition) == wanted), None)


def read_flow_scene(
    plan: Plan, connect: SettingsLookup, flow_id: str, file: str = "FILE", wait_s: float = DECISION_WAIT_S
) -> FlowScene:
    """Reads the target cluster. Raises ClusterError, NotInPlan."""
    flow = plan.flow(flow_id)
    target = connect(flow.target)
    reports = {(each.topic, each.partition): each for each in read_partition_statuses(target) if each.flow == flow_id}
    aligned = frozenset(
        topic for (named, topic), each in read_alignments(target).items() if named == flow_id and each.mode == "aligned"
    )
    standing = read_ledger(target, flow=flow_id).standing()
    return FlowScene(
        flow, plan.topology, lambda: connect(flow.source), target, reports, standing, file, aligned, wait_s
    )


def propose_gap_acceptance(scene: FlowScene, topic: str, partition: int, through: int | None = None) -> Proposal:
    """Give up source records that expired before they were copied. through: the last source offset that may be lost if
    more expires before a worker obeys. Raises OperationRefused."""
    flow = scene.flow
    report = find_report(scene, topic, partition)
    lost = (report.seen or {}).get("source")
    if report.state not in GAP_ACCEPTABLE_STATES or not lost:
        raise OperationRefused(
            f"{topic}-{partition} of {flow.id} is {report.state}; accept-gap answers "
            f"{', '.join(sorted(GAP_ACCEPTABLE_STATES))}"
        )
    span = OffsetSpan(*lost)
    if through is not None and through < span.end - 1:
        raise OperationRefused(f"through {through} is less than what is lost already: source offsets {span}")
    lines = [
        f"{topic}-{partition} of flow {flow.id} ({flow.source} -> {flow.target}):",
        f"  lost for good: source offsets {span}, at most {span.end - span.first} records, expired before they were "
        "copied",
        f"  copying goes on at source offset {span.end}; a reader inside the lost range continues with the next record",
    ]
    if through is not None:
        lines.append(f"  if more expires meanwhile, it may be lost up to and with source offset {through}")
    decision = OperatorDecision(
        "accept-gap", flow.id, topic, partition, report.state, find_basis(scene, topic, partition).generation, "",
        lost=span, through=-1 if through is None else through + 1,
    )  # fmt: skip
    return _propose(scene, [decision], lines, f"give up source offsets {span} of {topic}-{partition}?")


def propose_reseed(scene: FlowScene, topic: str, partition: int | None = None) -> Proposal:
    """Copy a topic, or one partition, again into an empty target. Raises OperationRefused; TargetNotEmpty with the
    commands that empty it."""
    flow = scene.flow
    numbers = [partition] if partition is not None else _list_copied(scene, topic)
    with Admin(scene.target) as admin:
        found = admin.topic(flow.target_topic(topic))
        not_ready = _explain_not_ready(scene, admin, topic, numbers, whole=partition is None)
    if not_ready:
        raise TargetNotEmpty(not_ready)
    assert found is not None  # or it would not be ready
    decisions = [
        OperatorDecision(
            "reseed", flow.id, topic, number, _find_reseedable_state(scene, topic, number, str(found.topic_id)),
            find_basis(scene, topic, number).generation, "", target_id=found.topic_id,
        )
        for number in numbers
    ]  # fmt: skip
    lines = [
        f"{topic} of flow {flow.id}: partitions {', '.join(map(str, numbers))} are copied again from the start of "
        f"{flow.source} into the empty {found.name} of {flow.target}.",
        "  Offsets on the target are new: a group that has committed offsets there has to be translated and moved "
        "again,",
        "  and readers that keep offsets elsewhere have to ask `topology offsets translate` again. Stop them until the "
        "copy",
        "  has caught up.",
    ]
    return _propose(scene, decisions, lines, f"copy {topic} again from the start?")


def propose_foreign_copy(scene: FlowScene, topic: str, partition: int, through: int | None = None) -> Proposal:
    """Copy source records that carry a flow's producer id and are not its own. through: the last source offset up to
    which no batch is believed to be a flow's. Raises OperationRefused."""
    flow = scene.flow
    report = find_report(scene, topic, partition)
    found = (report.seen or {}).get("source")
    if report.state != COPY_FOREIGN_STATE or not found:
        raise OperationRefused(
            f"{topic}-{partition} of {flow.id} is {report.state}; copy-foreign answers {COPY_FOREIGN_STATE}"
        )
    span = OffsetSpan(*found)
    if through is not None and through < span.end - 1:
        raise OperationRefused(f"through {through} is less than what stands there already: source offsets {span}")
    span = span if through is None else OffsetSpan(span.first, through + 1)
    with Admin(scene.source()) as admin:
        at_source = admin.topic(topic)
    if at_source is None:
        raise OperationRefused(f"cluster {flow.source} has no topic {topic}")
    key = scene.find_key(topic, partition)
    decision = OperatorDecision(
        COPY_FOREIGN, flow.id, topic, partition, report.state, scene.standing[key].generation if key else 0, "",
        lost=span, source_id=at_source.topic_id,
    )  # fmt: skip
    lines = [
        f"{topic}-{partition} of flow {flow.id} ({flow.source} -> {flow.target}):",
        f"  source offsets {span} are copied as an application's records, whatever producer they name",
    ]

    def carry_out(actor: str) -> Iterator[str]:
        given = _give([decision], actor)
        yield from _submit(scene, given)
        yield from _await_foreign_copy(scene, given[0], span)

    return Proposal(f"copy source offsets {span} of {topic}-{partition}?", tuple(lines), _basis([decision]), carry_out)


def await_workers(
    flow_id: str, target: ConnectionSettings, decisions: Sequence[OperatorDecision], wait_s: float, file: str = "FILE"
) -> Iterator[str]:
    """A line for each partition that obeyed. The ledger names the decision that a partition obeyed, the status one that
    it refused. Raises WorkersRefused, NoAnswerYet, when the others have said what they have to say."""
    waiting, refusals = {(each.topic, each.partition): each for each in decisions}, list[str]()
    deadline = time.monotonic() + wait_s
    while waiting and time.monotonic() < deadline:
        time.sleep(min(1.0, wait_s))
        standing = read_ledger(target, flow=flow_id).standing()
        obeyed = {(key.topic, key.partition): known.order for key, known in standing.items()}
        refused = {
            (report.topic, report.partition): report.error or ""
            for report in read_partition_statuses(target)
            if report.flow == flow_id and " is refused: " in (report.error or "")
        }
        for where, decision in list(waiting.items()):
            if obeyed.get(where) == decision.id:
                yield f"{decision.topic}-{decision.partition}: {decision.note}"
                del waiting[where]
            elif f"{decision.kind} {decision.id} " in refused.get(where, ""):
                refusals.append(f"{decision.topic}-{decision.partition}: {refused[where]}")
                del waiting[where]
    silent = [_tell_no_answer(decision, file) for decision in waiting.values()]
    if silent:
        raise NoAnswerYet("\n".join([*refusals, *silent]))
    if refusals:
        raise WorkersRefused("\n".join(refusals))


def find_report(scene: FlowScene, topic: str, partition: int) -> PartitionStatus:
    """What a worker says of the partition now. Raises OperationRefused where none serves it."""
    report = scene.reports.get((topic, partition))
    if report is None:
        known = ", ".join(sorted({name for name, _ in scene.reports})) or "none"
        raise OperationRefused(
            f"nobody has reported on {topic}-{partition} of {scene.flow.id}; topics that are reported: {known}"
        )
    if time.time() * 1000 - report.at_ms > _STALE_MS:
        raise OperationRefused(
            f"no worker serves {topic}-{partition} of {scene.flow.id} now, so nobody can say what is lost; "
            f"start one: {render_shell_command('topology', 'worker', scene.file, '--target', scene.flow.target)}"
        )
    return report


def find_basis(scene: FlowScene, topic: str, partition: int) -> DecisionBasis:
    """What the ledger knows of the partition. Raises OperationRefused where it knows nothing."""
    key = scene.find_key(topic, partition)
    if key is None:
        raise OperationRefused(
            f"the ledger knows nothing of {topic}-{partition} of {scene.flow.id}: nothing was copied, so there is "
            "nothing to decide. Empty the target if it holds foreign records, then "
            f"`{render_shell_command('topology', 'flow', 'restart', scene.flow.id, scene.file)}`"
        )
    return scene.standing[key]


def _propose(scene: FlowScene, decisions: Sequence[OperatorDecision], lines: Sequence[str], question: str) -> Proposal:
    def carry_out(actor: str) -> Iterator[str]:
        given = _give(decisions, actor)
        yield from _submit(scene, given)
        yield from await_workers(scene.flow.id, scene.target, given, scene.wait_s, scene.file)

    return Proposal(question, tuple(lines), _basis(decisions), carry_out)


def _basis(decisions: Sequence[OperatorDecision]) -> str:
    """All of it that a worker compares with what it finds. Where more may be lost than is lost now, its end is left
    out: it grows while a person reads, and `through` is what was approved."""
    documents = [each.to_json() for each in decisions]
    for each, document in zip(decisions, documents, strict=True):
        if each.kind == "accept-gap" and each.through >= 0 and each.lost is not None:
            document["lost"] = [each.lost.first]
    return "; ".join(json.dumps(document, sort_keys=True) for document in documents)


def _give(decisions: Sequence[OperatorDecision], actor: str) -> list[OperatorDecision]:
    now_ms = int(time.time() * 1000)
    return [replace(each, id=secrets.token_hex(8), at_ms=now_ms, actor=actor) for each in decisions]


def _submit(scene: FlowScene, given: Sequence[OperatorDecision]) -> Iterator[str]:
    with ControlWriter(scene.target, client_id="watershed-flow") as writer:
        for decision in given:
            submit_decision(writer, decision, scene.topology)
    yield f"ordered and written to watershed.journal: {', '.join(each.id for each in given)}"


def _await_foreign_copy(scene: FlowScene, decision: OperatorDecision, span: OffsetSpan) -> Iterator[str]:
    where = (decision.flow, decision.topic, decision.partition)
    deadline = time.monotonic() + scene.wait_s
    while time.monotonic() < deadline:
        time.sleep(min(1.0, scene.wait_s))
        reports = read_partition_statuses(scene.target)
        seen = next((each for each in reports if (each.flow, each.topic, each.partition) == where), None)
        if seen is not None and seen.source_position >= span.end:
            yield f"{decision.topic}-{decision.partition}: {decision.note}"
            return
    raise NoAnswerYet(
        f"{decision.topic}-{decision.partition}: not copied yet; "
        f"`{render_shell_command('topology', 'status', scene.file)}` will show it"
    )


def _tell_no_answer(decision: OperatorDecision, file: str) -> str:
    return (
        f"{decision.topic}-{decision.partition}: no worker has answered yet; "
        f"`{render_shell_command('topology', 'status', file)}` will show it"
    )


def _list_copied(scene: FlowScene, topic: str) -> list[int]:
    found = sorted(key.partition for key in scene.standing if key.topic == topic)
    if not found:
        find_basis(scene, topic, 0)
    return found


def _find_reseedable_state(scene: FlowScene, topic: str, partition: int, target_id: str) -> str:
    """The halt state that the decision answers; a partition without traffic may not have noticed a new topic yet."""
    report = find_report(scene, topic, partition)
    if report.state in RESEEDABLE_STATES:
        return report.state
    if str(find_basis(scene, topic, partition).target_id) != target_id:
        return "target_gone"
    raise OperationRefused(
        f"{topic}-{partition} of {scene.flow.id} is {report.state}; reseed answers "
        f"{', '.join(sorted(RESEEDABLE_STATES))}. "
        "Name single partitions with --partition"
    )


def _explain_not_ready(scene: FlowScene, admin: Admin, topic: str, numbers: Sequence[int], *, whole: bool) -> str:
    """What is in the way of copying into the target, with the commands that remove it; empty when nothing is."""
    name = scene.flow.target_topic(topic)
    call = ["--bootstrap-server", ",".join(scene.target.bootstrap)]
    if scene.target.protocol != "PLAINTEXT":
        call += ["--command-config", "admin.properties"]
    found = admin.topic(name)
    one = [] if whole else ["--partition", numbers[0]]
    again = (
        f"then: {render_shell_command('topology', 'flow', 'reseed', scene.flow.id, scene.file, '--topic', topic, *one)}"
    )
    if found is None:
        replicas = scene.flow.replication_factor or min(3, admin.brokers())
        create = render_shell_command(
            *("kafka-topics", *call, "--create", "--topic", name, "--partitions", max(_list_copied(scene, topic)) + 1),
            *("--replication-factor", replicas, "--config", "compression.type=producer"),
        )
        return (
            f"topic {name} does not exist on {scene.flow.target}. Create it:\n  {create}\n  (with the configs of the "
            f"source that it had; `{render_shell_command('topology', 'plan', scene.file)}` shows what differs)\n{again}"
        )
    lacking = [number for number in numbers if number >= found.partitions]
    if lacking:
        needed = max(lacking) + 1
        return (
            f"topic {name} on {scene.flow.target} has {found.partitions} partitions, {needed} are needed:\n"
            "  "
            f"{render_shell_command('kafka-topics', *call, '--alter', '--topic', name, '--partitions', needed)}"
            f"\n{again}"
        )
    spans = admin.offsets([TopicPartition(name, number) for number in numbers], "read_uncommitted")
    aligned = topic in scene.aligned  # a log that was only emptied goes on where it ended
    full = {
        key.partition: span for key, span in sorted(spans.items()) if span.start < span.end or (aligned and span.end)
    }
    if not full:
        return ""
    held = "; ".join(f"partition {number}: offsets {s.start} to {s.end - 1}" for number, s in full.items())
    if whole or aligned:
        configs = admin.topic_configs([name])[name]
        config = [part for key, value in sorted(configs.items()) for part in ("--config", f"{key}={value}")]
        create = render_shell_command(
            *("kafka-topics", *call, "--create", "--topic", name, "--partitions", found.partitions),
            *("--replication-factor", found.replication_factor, *config),
        )
        empty = f"  {render_shell_command('kafka-topics', *call, '--delete', '--topic', name)}\n  {create}"
    else:
        rows = [{"topic": name, "partition": number, "offset": -1} for number in full]
        document = json.dumps({"version": 1, "partitions": rows}, separators=(",", ":"))
        empty = (
            f"  {render_shell_command('echo', document)} > empty.json\n"
            f"  {render_shell_command('kafka-delete-records', *call, '--offset-json-file', 'empty.json')}"
        )
    return (
        f"topic {name} on {scene.flow.target} still holds records ({held}). Stop its readers, then:\n{empty}\n{again}"
    )
