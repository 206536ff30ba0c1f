"""Going on behind what another copier left on the target: `topology flow adopt` and the DAG `decide__<name>`.

Both logs are read whole and compared record by record before anything is written. The decision is journaled. A worker
obeys it once, and only if the target still holds what was proven (`replicator.recovery.operator_decisions`).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from watershed.clusters.admin import Admin
from watershed.clusters.control_topics import ControlWriter
from watershed.clusters.flow_records import read_flows
from watershed.clusters.settings import ConnectionSettings, SettingsLookup
from watershed.cutover.operations.partition_decisions import await_workers
from watershed.cutover.operations.proposal import OperationRefused, Proposal
from watershed.replicator.adoption.copy_proof import ComparisonOptions, PartitionProof, prove_partitions
from watershed.replicator.adoption.decision_writer import build_adoption_decision, write_decisions
from watershed.replicator.adoption.digest_reader import NotProvable
from watershed.replicator.adoption.duplicates_and_gaps import (
    ACCEPTABLE_FINDINGS,
    FINDING_MEANINGS,
    TOLERATED_FINDINGS,
    render_findings,
)
from watershed.replicator.adoption.mirrormaker_format import MirrorMakerNotes
from watershed.replicator.adoption.mirrormaker_reader import read_active_connect_groups, read_mirrormaker_notes
from watershed.replicator.ledger.ledger import read_ledger
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.recovery.operator_decisions import DecisionWithMap, OperatorDecision
from watershed.topology.plan import Plan, PlanFlow
from watershed.topology.shell_command import render_shell_command

ADOPTION_ORIGINS: Final = {
    "mm2": "MirrorMaker 2",
    "equal-offsets": "a copier with equal offsets",
    "records": "another copier",
    "archive": "topology restore",
}
ADOPTION_WAIT_S: Final = 180.0  # for the worker's answer; it watches the target's end for 35 s first


class NotExact(OperationRefused):
    """The copy is not what the source has, and not all of that was accepted."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class AdoptionRequest:
    """What a person asks for. origin: one of ADOPTION_ORIGINS. topics: of the source, () for all of the flow. alias,
    target_alias, connect_offsets, connect_group: what MirrorMaker calls things. accepted: findings that are accepted.
    directory: for temporary files. file: what messages call the topology file. wait_s: for the workers' answers."""

    origin: str = "records"
    topics: tuple[str, ...] = ()
    alias: str | None = None
    target_alias: str | None = None
    connect_offsets: str | None = None
    connect_group: str | None = None
    accepted: frozenset[str] = frozenset()
    directory: Path | None = None
    file: str = "FILE"
    wait_s: float = ADOPTION_WAIT_S


@dataclass(frozen=True, slots=True)
class AdoptionStage:
    """A flow between its clusters, and what is asked for."""

    flow: PlanFlow
    topology: str
    source: ConnectionSettings
    target: ConnectionSettings
    asked: AdoptionRequest

    @property
    def alias(self) -> str:
        """What MirrorMaker calls the source."""
        return self.asked.alias or self.flow.source

    @property
    def tool(self) -> str:
        """Who copied, in words."""
        return ADOPTION_ORIGINS[self.asked.origin]


def parse_accepted_findings(given: Sequence[str]) -> frozenset[str]:
    """Kinds of findings from texts like `duplicates,aborted`. Raises OperationRefused for one that cannot be
    accepted."""
    accepted = frozenset(name.strip() for each in given for name in each.split(",") if name.strip())
    unknown = sorted(accepted - ACCEPTABLE_FINDINGS)
    if unknown:
        raise OperationRefused(
            f"--accept {unknown[0]}: what can be accepted is {', '.join(sorted(ACCEPTABLE_FINDINGS))}; any other "
            "finding is content that the source never had there, and the topic has to be copied again"
        )
    return accepted


def open_adoption(
    plan: Plan, connect: SettingsLookup, flow_id: str, asked: AdoptionRequest, *, applied: bool
) -> AdoptionStage:
    """Raises OperationRefused for a flow that cannot adopt a copy. applied: the flow must be known to its workers."""
    flow = plan.flow(flow_id)
    stage = AdoptionStage(flow, plan.topology, connect(flow.source), connect(flow.target), asked)
    if flow.delivery == "transactions":
        raise OperationRefused(
            f"{flow_id} copies in transactions ({flow.delivery_reason or 'by its file'}); only a flow that is the only "
            "writer of its target partitions can go on behind another copier"
        )
    if flow.offsets == "aligned":
        raise OperationRefused(
            f"{flow_id} has `offsets: aligned`, and an aligned flow fills its target itself. Take `offsets: mapped`: "
            "what was copied keeps its offsets, what follows is translated exactly"
        )
    if flow.start != "earliest":
        raise OperationRefused(
            f"{flow_id} has `start: {flow.start}`: a partition into which nothing was copied yet would begin in the "
            "middle, and what was written since the other copier stopped could be lost. Take `start: earliest`; "
            "partitions that hold a copy go on behind it in any case"
        )
    if applied and flow_id not in read_flows(stage.target):
        raise OperationRefused(
            f"flow {flow_id} was never applied to {flow.target}; run "
            f"`{render_shell_command('topology', 'apply', asked.file)}` "
            "first. Its workers write nothing into a partition that holds records of another writer"
        )
    return stage


def list_adoptable_partitions(stage: AdoptionStage) -> tuple[list[PartitionKey], list[str]]:
    """The partitions to compare, and a text for each topic that is left out. Raises
    OperationRefused, NotProvable."""
    flow, asked = stage.flow, stage.asked
    with Admin(stage.source) as source, Admin(stage.target) as target:
        here, there = source.shapes(), target.shapes()
    chosen = sorted(name for name in here if flow.selects(name))
    for name in asked.topics:
        if name not in chosen:
            raise OperationRefused(f"{flow.id} copies no topic {name} of {flow.source}; there are: {', '.join(chosen)}")
    known = {(key.topic, key.partition) for key in read_ledger(stage.target, flow=flow.id).standing()}
    keys: list[PartitionKey] = []
    skipped: list[str] = []
    for name in asked.topics or chosen:
        target_topic = flow.target_topic(name)
        begun = sorted(partition for topic, partition in known if topic == name)
        if target_topic not in there:
            told = f"{target_topic} does not exist on {flow.target}: there is no copy to adopt"
        elif len(begun) == here[name].partitions:
            told = f"{name}: {flow.id} has copied it already; there is nothing to adopt"
        elif there[target_topic].partitions != here[name].partitions:
            raise NotProvable(
                f"{name} has {here[name].partitions} partitions on {flow.source}, {target_topic} has "
                f"{there[target_topic].partitions} on {flow.target}: the partitions do not correspond one to one"
            )
        else:
            if begun:
                skipped.append(f"{name}: partitions {', '.join(map(str, begun))} are copied by {flow.id} already")
            numbers = (number for number in range(here[name].partitions) if number not in begun)
            keys += [PartitionKey(flow.id, name, target_topic, number) for number in numbers]
            continue
        if asked.topics:
            raise NotProvable(told)
        skipped.append(told)
    return keys, skipped


def prove_adoption(
    stage: AdoptionStage,
    keys: Sequence[PartitionKey],
    say: Callable[[str], None],
    progress: Callable[[PartitionKey, int], None] = lambda _key, _records: None,
) -> list[PartitionProof]:
    """Reads both logs whole. say: what a person should make sure of. progress: told of each block of records. A
    restored archive has a proof of its own (`spark.archive.restored_copy_proof`)."""
    if not keys:
        return []
    notes = _read_notes(stage, say)
    way = ComparisonOptions(
        stage.asked.origin == "equal-offsets", find_compacted_topics(stage, keys), stage.asked.directory, progress
    )
    return prove_partitions(keys, stage.source, stage.target, notes, way)


def find_compacted_topics(stage: AdoptionStage, keys: Sequence[PartitionKey]) -> frozenset[str]:
    """The topics, by source name, on which a cleaner works on either side. Raises ClusterError."""
    compacted = set()
    with Admin(stage.source) as source, Admin(stage.target) as target:
        here = source.effective_configs(sorted({key.topic for key in keys}))
        there = target.effective_configs(sorted({key.target_topic for key in keys}))
    for key in keys:
        policies = (
            here.get(key.topic, {}).get("cleanup.policy", ""),
            there.get(key.target_topic, {}).get("cleanup.policy", ""),
        )
        if any("compact" in policy for policy in policies):
            compacted.add(key.topic)
    return frozenset(compacted)


def _read_notes(stage: AdoptionStage, say: Callable[[str], None]) -> MirrorMakerNotes:
    """Reads MirrorMaker's own offset topics. Raises NotProvable, also while MirrorMaker still runs."""
    if stage.asked.origin != "mm2":
        return MirrorMakerNotes()
    group = stage.asked.connect_group or f"{stage.alias}-mm2"
    running = read_active_connect_groups(stage.target, group)
    if group in running:
        raise NotProvable(
            f"Connect's group {group} on {stage.flow.target} is {running[group]}: MirrorMaker 2 still runs. Stop its "
            "processes (SIGTERM, and wait until they are gone), then ask again"
        )
    for other, state in sorted(running.items()):
        say(f"{stage.flow.target}: the Connect group {other} is {state}; make sure that it does not copy")
    offsets = stage.asked.connect_offsets or f"mm2-offsets.{stage.alias}.internal"
    syncs = f"mm2-offset-syncs.{stage.asked.target_alias or stage.flow.target}.internal"
    elsewhere = f"mm2-offset-syncs.{stage.alias}.internal"
    checkpoints = f"{stage.alias}.checkpoints.internal"
    return read_mirrormaker_notes(
        stage.alias,
        (stage.target, offsets),
        ((stage.source, syncs), (stage.target, elsewhere)),
        (stage.target, checkpoints),
    )


def render_adoption(stage: AdoptionStage, proofs: Sequence[PartitionProof]) -> Iterator[str]:
    """What was found of each partition."""
    flow = stage.flow
    yield (f"{flow.id}: {flow.source} -> {flow.target}, copied by {stage.tool}")
    for proof in proofs:
        ends, verdict = proof.ends, proof.verdict
        proven = sum(stretch.records for stretch in verdict.stretches)
        state = "exact" if verdict.exact else "not exact: " + ", ".join(verdict.refused())
        state = state if ends.target_end else f"empty, {flow.id} begins it itself"
        yield (
            f"  {proof.key.topic}-{proof.key.partition} -> {proof.key.target_topic}-{proof.key.partition}: {state}\n"
            f"    {proven:,} records proven; target offsets {ends.target_start} to {ends.target_end} (end), source "
            f"{ends.source_start} to {ends.source_end} (end)"
        )
        if verdict.position >= 0:
            lag = max(0, ends.source_end - verdict.position)
            yield (f"    copying goes on at source offset {verdict.position} ({lag:,} offsets to go)")
        if proof.reported_position >= 0 and proof.reported_position != verdict.position:
            yield (f"    its own note says {proof.reported_position}; the records on the target decide")
        if proof.syncs:
            yield (f"    {proof.true_syncs} of {proof.syncs} offset syncs of MirrorMaker are true")
        for group, exactly in proof.groups:
            if group.downstream != exactly:
                yield (
                    f"    group {group.group} at source offset {group.upstream}: MirrorMaker sends it to "
                    f"{group.downstream}, exactly it is {exactly}"
                )
        for kind in sorted(verdict.counts):
            places = [each for each in verdict.findings if each.kind == kind]
            mark = (
                " (tolerated)" if kind in TOLERATED_FINDINGS else " (accepted)" if kind in stage.asked.accepted else ""
            )
            yield (
                f"    {kind}{mark}: {verdict.counts[kind]:,} records {FINDING_MEANINGS[kind]}; "
                f"{render_findings(places)}"
            )


def encode_adoption(stage: AdoptionStage, proofs: Sequence[PartitionProof], skipped: Sequence[str]) -> dict[str, Any]:
    """The same as a JSON document."""
    return {
        "schema": 1,
        "flow": stage.flow.id,
        "from": stage.asked.origin,
        "accepted": sorted(stage.asked.accepted),
        "skipped": list(skipped),
        "partitions": [
            {
                "topic": proof.key.topic,
                "target_topic": proof.key.target_topic,
                "partition": proof.key.partition,
                "exact": proof.verdict.exact,
                "refused": proof.verdict.refused(stage.asked.accepted),
                "proven": sum(stretch.records for stretch in proof.verdict.stretches),
                "stretches": len(proof.verdict.stretches),
                "source": [proof.ends.source_start, proof.ends.source_end],
                "target": [proof.ends.target_start, proof.ends.target_end],
                "position": proof.verdict.position,
                "noted_position": proof.reported_position,
                "syncs": proof.syncs,
                "syncs_true": proof.true_syncs,
                "groups": [
                    {"group": group.group, "source": group.upstream, "noted": group.downstream, "exact": exactly}
                    for group, exactly in proof.groups
                ],
                "counts": dict(proof.verdict.counts),
                "findings": [finding.to_json() for finding in proof.verdict.findings],
            }
            for proof in proofs
        ],
    }


def explain_refused_adoption(stage: AdoptionStage, refused: Sequence[PartitionProof]) -> str:
    """Why these partitions are not adopted, and what would help."""
    kinds = sorted({kind for proof in refused for kind in proof.verdict.refused(stage.asked.accepted)})
    lines = [f"{len(refused)} partitions are not adopted."]
    acceptable = [kind for kind in kinds if kind in ACCEPTABLE_FINDINGS]
    if acceptable and not set(kinds) - ACCEPTABLE_FINDINGS:
        lines.append(f"To adopt them all the same: --accept {','.join([*sorted(stage.asked.accepted), *acceptable])}")
    elif kinds:
        wrong = ", ".join(sorted(set(kinds) - ACCEPTABLE_FINDINGS))
        lines.append(
            f"What is {wrong} cannot be accepted: readers would see what the source never had. Empty the target topic "
            f"and let {stage.flow.id} copy it (the commands are in docs/states.md, target_foreign_write)."
        )
    if any(proof.verdict.position < 0 for proof in refused):
        lines.append(
            "Where no record can be compared, nothing says where to go on. "
            "With --from mm2, MirrorMaker's own offsets would say it."
        )
    return "\n".join(lines)


def list_refused(stage: AdoptionStage, proofs: Sequence[PartitionProof]) -> list[PartitionProof]:
    """The partitions whose copy is not exact, and not accepted by name; or of which nothing says where to go on."""
    accepted = stage.asked.accepted
    return [proof for proof in proofs if proof.verdict.refused(accepted) or proof.verdict.position < 0]


def propose_adoption(stage: AdoptionStage, proofs: Sequence[PartitionProof]) -> Proposal:
    """Go on behind the copies that were proven. Raises NotExact.

    A partition whose target was always empty needs no adoption: the flow begins it by itself, at the source's start.
    """
    if refused := list_refused(stage, proofs):
        raise NotExact(explain_refused_adoption(stage, refused))
    behind = [proof for proof in proofs if proof.ends.target_end > 0]
    kinds = sorted({kind for proof in behind for kind in proof.verdict.counts})
    lines = [
        f"{stage.flow.id} goes on with {len(behind)} partitions, behind what {stage.tool} copied",
        *(f"  with records {FINDING_MEANINGS[kind]} ({kind})" for kind in kinds),
        f"  take the right to write to these topics from {stage.tool}: one more record of it would halt them",
    ]

    def carry_out(actor: str) -> Iterator[str]:
        given = [_decide(stage, proof, actor) for proof in behind]
        with ControlWriter(stage.target, client_id="watershed-flow") as writer:
            write_decisions(writer, given, stage.topology)
        yield f"decisions written to watershed.journal: {len(given)} partitions"
        decisions = [each.decision for each in given]
        yield from await_workers(stage.flow.id, stage.target, decisions, stage.asked.wait_s, stage.asked.file)

    rows = [f"{p.key.topic}-{p.key.partition} {p.verdict.position} behind {p.ends.target_end}" for p in behind]
    basis = f"adopt {stage.flow.id}: {', '.join(rows)}; accepted: {', '.join(sorted(stage.asked.accepted))}"
    question = f"go on behind what {stage.tool} copied?"
    return Proposal(question, tuple(lines), basis, carry_out, is_needed=bool(behind))


def _decide(stage: AdoptionStage, proof: PartitionProof, actor: str) -> DecisionWithMap:
    key = proof.key
    decision = OperatorDecision(
        "adopt", key.flow, key.topic, key.partition, "target_foreign_write", 0, actor,
        target_id=proof.target_id, id=secrets.token_hex(8), at_ms=int(time.time() * 1000),
        source_id=proof.source_id, base=proof.ends.target_end, position=proof.verdict.position, tool=stage.tool,
    )  # fmt: skip
    return build_adoption_decision(decision, proof, sorted(stage.asked.accepted))
