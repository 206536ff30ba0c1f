"""`topology flow adopt`: go on behind what MirrorMaker 2, a cluster link or another copier left on the target.

Both logs are read whole and compared record by record before anything is written. The decision is journaled. A worker
obeys it once, and only if the target still holds what was proven (`replicator.recovery.operator_decisions`).
"""

from __future__ import annotations

import getpass
import json
import secrets
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.confirmation import require_confirmation
from cli.plan_settings import build_settings_lookup, compile_plan_at
from topology.shell_command import render_shell_command

if TYPE_CHECKING:
    from clusters.settings import ConnectionSettings
    from replicator.adoption.copy_proof import PartitionProof
    from replicator.adoption.mirrormaker_format import MirrorMakerNotes
    from replicator.partition_key import PartitionKey
    from topology.plan import PlanFlow

_TOOLS = {"mm2": "MirrorMaker 2", "equal-offsets": "a copier with equal offsets", "records": "another copier"}
_EXIT_FOUND = 1
_PROGRESS_S = 5.0


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the command line says."""

    path: Path
    origin: str
    topics: tuple[str, ...]
    alias: str | None
    target_alias: str | None
    connect_offsets: str | None
    connect_group: str | None
    accepted: frozenset[str]
    directory: Path | None


@dataclass(frozen=True, slots=True)
class _Stage:
    flow: PlanFlow
    topology: str
    source: ConnectionSettings
    target: ConnectionSettings
    asked: _Asked

    @property
    def alias(self) -> str:
        return self.asked.alias or self.flow.source

    @property
    def tool(self) -> str:
        return _TOOLS[self.asked.origin]


@click.command(epilog="Example: topology flow adopt onprem-to-cloud orders.yaml --from mm2 --dry-run")
@click.argument("flow_id", metavar="FLOW")
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--from", "origin", type=click.Choice(list(_TOOLS)), default="records", show_default=True,
    help="Who copied. mm2: also reads MirrorMaker's own offset topics; equal-offsets (Cluster Linking): requires the "
    "source's offsets; records: needs only the records.",
)  # fmt: skip
@click.option("-t", "--topic", "topics", multiple=True, help="Only this source topic; default: all of the flow.")
@click.option("--alias", default=None, help="mm2: what MirrorMaker calls the source; default: its alias in the file.")
@click.option("--target-alias", default=None, help="mm2: what MirrorMaker calls the target; default: as in the file.")
@click.option(
    "--connect-offsets", default=None, metavar="TOPIC",
    help="mm2: the topic of Connect's source offsets on the target; default: mm2-offsets.ALIAS.internal.",
)  # fmt: skip
@click.option(
    "--connect-group", default=None, metavar="GROUP", help="mm2: Connect's group on the target; default: ALIAS-mm2."
)
@click.option(
    "--accept", "accept", multiple=True, metavar="KIND[,KIND]",
    help="Go on although there are such records: duplicates, aborted, missing, compacted, timestamps, unverifiable.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only compare, and say what was found.")
@click.option(
    "--scratch", "directory", type=click.Path(path_type=Path, exists=True, file_okay=False), default=None,
    metavar="DIRECTORY", help="For temporary files: 8 bytes for each record on each side; default: the system's.",
)  # fmt: skip
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--yes", is_flag=True, help="Do not ask; needed where there is no terminal.")
@click.option(
    "--wait", "wait_s", type=click.FloatRange(0), default=180.0, show_default=True, metavar="SECONDS",
    help="How long to wait for the worker's answer; it watches the target's end for 35 s first.",
)  # fmt: skip
def adopt(
    flow_id: str, path: Path, origin: str, topics: tuple[str, ...], alias: str | None, target_alias: str | None,
    connect_offsets: str | None, connect_group: str | None, accept: tuple[str, ...], dry_run: bool,
    directory: Path | None, form: str, yes: bool, wait_s: float,
) -> int:  # fmt: skip
    """Go on behind what another copier left on the target, after a proof of it.

    Compares source and target record by record (key, value, headers, timestamp, order). For each partition it shows
    what is proven, what is not an exact copy (with offsets), and where copying would go on. Stop the other copier
    first. With --dry-run nothing is written. Otherwise the flow's workers begin behind the last record that was found.
    Offsets of the part that the other copier wrote are translated exactly, too.

    Exit code 0 when all of it is exact (or accepted by name), 1 when it is not or the worker refuses, 3 when no worker
    answers in time.
    """
    from replicator.adoption.copy_findings import ACCEPTABLE_FINDINGS

    accepted = frozenset(name.strip() for each in accept for name in each.split(",") if name.strip())
    unknown = sorted(accepted - ACCEPTABLE_FINDINGS)
    if unknown:
        raise click.UsageError(
            f"--accept {unknown[0]}: what can be accepted is {', '.join(sorted(ACCEPTABLE_FINDINGS))}; any other "
            "finding is content that the source never had there, and the topic has to be copied again"
        )
    only_mm2 = {"--alias": alias, "--target-alias": target_alias, "--connect-offsets": connect_offsets,
                "--connect-group": connect_group}  # fmt: skip
    needless = [option for option, value in only_mm2.items() if value is not None]
    if needless and origin != "mm2":
        raise click.UsageError(f"{needless[0]} is for --from mm2; with --from {origin} nothing of it is read")
    asked = _Asked(path, origin, topics, alias, target_alias, connect_offsets, connect_group, accepted, directory)
    stage = _staged(flow_id, asked, applied=not dry_run)
    keys, skipped = _keys(stage)
    for told in skipped:
        click.echo(told, err=True)
    proofs = _proven(stage, keys)
    refused = [proof for proof in proofs if proof.verdict.refused(accepted) or proof.verdict.position < 0]
    if form == "json":
        click.echo(json.dumps(_document(stage, proofs, skipped), indent=2))
    else:
        _print(stage, proofs)
    if refused:
        click.echo(_refusal(stage, refused), err=True)
        return _EXIT_FOUND
    # A partition whose target was always empty needs no adoption: the flow begins it by itself, at the source's start.
    behind = [proof for proof in proofs if proof.ends.target_end > 0]
    if dry_run or not behind:
        return 0
    return _ordered(stage, behind, yes, wait_s, aside=form == "json")


def _staged(flow_id: str, asked: _Asked, *, applied: bool) -> _Stage:
    """Raises UsageError for a flow that cannot adopt a copy. applied: the flow must be known to its workers."""
    from clusters.flow_records import read_flows

    plan = compile_plan_at(asked.path)
    connect_to = build_settings_lookup(plan)
    flow = plan.flow(flow_id)
    stage = _Stage(flow, plan.topology, connect_to(flow.source), connect_to(flow.target), asked)
    if flow.delivery == "transactions":
        raise click.UsageError(
            f"{flow_id} copies in transactions ({flow.delivery_reason or 'by its file'}); only a flow that is the only "
            "writer of its target partitions can go on behind another copier"
        )
    if flow.offsets == "aligned":
        raise click.UsageError(
            f"{flow_id} has `offsets: aligned`, and an aligned flow fills its target itself. Take `offsets: mapped`: "
            "what was copied keeps its offsets, what follows is translated exactly"
        )
    if flow.start == "latest":
        raise click.UsageError(
            f"{flow_id} has `start: latest`: a partition into which nothing was copied yet would begin at its end, and "
            "what was written since the other copier stopped would be lost. Take `start: earliest`; partitions that "
            "hold a copy go on behind it in any case"
        )
    if applied and flow_id not in read_flows(stage.target):
        raise click.UsageError(
            f"flow {flow_id} was never applied to {flow.target}; run "
            f"`{render_shell_command('topology', 'apply', asked.path)}` "
            "first. Its workers write nothing into a partition that holds records of another writer"
        )
    return stage


def _keys(stage: _Stage) -> tuple[list[PartitionKey], list[str]]:
    """The partitions to compare, and a text for each topic that is left out. Raises UsageError, NotProvable."""
    from clusters.admin import Admin
    from replicator.adoption.digest_reader import NotProvable
    from replicator.ledger.ledger import read_ledger
    from replicator.partition_key import PartitionKey

    flow, asked = stage.flow, stage.asked
    with Admin(stage.source) as source, Admin(stage.target) as target:
        here, there = source.shapes(), target.shapes()
    chosen = sorted(name for name in here if flow.selects(name))
    for name in asked.topics:
        if name not in chosen:
            raise click.UsageError(f"{flow.id} copies no topic {name} of {flow.source}; there are: {', '.join(chosen)}")
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


def _proven(stage: _Stage, keys: Sequence[PartitionKey]) -> list[PartitionProof]:
    from clusters.admin import Admin
    from replicator.adoption.copy_proof import ComparisonOptions, prove_partitions

    if not keys:
        return []
    notes = _notes(stage)
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
    reading = _Reading()
    way = ComparisonOptions(
        stage.asked.origin == "equal-offsets", frozenset(compacted), stage.asked.directory, reading.read
    )
    return prove_partitions(keys, stage.source, stage.target, notes, way)


def _notes(stage: _Stage) -> MirrorMakerNotes:
    """Reads MirrorMaker's own offset topics. Raises NotProvable, also while MirrorMaker still runs."""
    from replicator.adoption.digest_reader import NotProvable
    from replicator.adoption.mirrormaker_format import MirrorMakerNotes
    from replicator.adoption.mirrormaker_reader import read_active_connect_groups, read_mirrormaker_notes

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
        click.echo(
            f"{stage.flow.target}: the Connect group {other} is {state}; make sure that it does not copy", err=True
        )
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


class _Reading:
    """Reports the progress of the comparison on standard error, if that is a terminal."""

    def __init__(self) -> None:
        self._records, self._said = 0, time.monotonic()

    def read(self, key: PartitionKey, records: int) -> None:
        self._records += records
        now = time.monotonic()
        if now - self._said >= _PROGRESS_S and sys.stderr.isatty():
            self._said = now
            click.echo(f"{key.topic}-{key.partition}: {self._records:,} records read in all", err=True)


def _print(stage: _Stage, proofs: Sequence[PartitionProof]) -> None:
    from replicator.adoption.copy_findings import FINDING_MEANINGS, TOLERATED_FINDINGS, render_findings

    flow = stage.flow
    click.echo(f"{flow.id}: {flow.source} -> {flow.target}, copied by {stage.tool}")
    for proof in proofs:
        ends, verdict = proof.ends, proof.verdict
        proven = sum(stretch.records for stretch in verdict.stretches)
        state = "exact" if verdict.exact else "not exact: " + ", ".join(verdict.refused())
        state = state if ends.target_end else f"empty, {flow.id} begins it itself"
        click.echo(
            f"  {proof.key.topic}-{proof.key.partition} -> {proof.key.target_topic}-{proof.key.partition}: {state}\n"
            f"    {proven:,} records proven; target offsets {ends.target_start} to {ends.target_end} (end), source "
            f"{ends.source_start} to {ends.source_end} (end)"
        )
        if verdict.position >= 0:
            lag = max(0, ends.source_end - verdict.position)
            click.echo(f"    copying goes on at source offset {verdict.position} ({lag:,} offsets to go)")
        if proof.reported_position >= 0 and proof.reported_position != verdict.position:
            click.echo(f"    its own note says {proof.reported_position}; the records on the target decide")
        if proof.syncs:
            click.echo(f"    {proof.true_syncs} of {proof.syncs} offset syncs of MirrorMaker are true")
        for group, exactly in proof.groups:
            if group.downstream != exactly:
                click.echo(
                    f"    group {group.group} at source offset {group.upstream}: MirrorMaker sends it to "
                    f"{group.downstream}, exactly it is {exactly}"
                )
        for kind in sorted(verdict.counts):
            places = [each for each in verdict.findings if each.kind == kind]
            mark = (
                " (tolerated)" if kind in TOLERATED_FINDINGS else " (accepted)" if kind in stage.asked.accepted else ""
            )
            click.echo(
                f"    {kind}{mark}: {verdict.counts[kind]:,} records {FINDING_MEANINGS[kind]}; "
                f"{render_findings(places)}"
            )


def _document(stage: _Stage, proofs: Sequence[PartitionProof], skipped: Sequence[str]) -> dict[str, Any]:
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


def _refusal(stage: _Stage, refused: Sequence[PartitionProof]) -> str:
    from replicator.adoption.copy_findings import ACCEPTABLE_FINDINGS

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


def _ordered(stage: _Stage, proofs: Sequence[PartitionProof], yes: bool, wait_s: float, *, aside: bool) -> int:
    """Writes the decisions and waits for the workers. aside: standard output already holds a document."""
    from clusters.control_topics import ControlWriter
    from replicator.adoption.copy_findings import FINDING_MEANINGS
    from replicator.adoption.decision_writer import build_adoption_decision, write_decisions
    from replicator.recovery.operator_decisions import DecisionWithMap, OperatorDecision

    kinds = sorted({kind for proof in proofs for kind in proof.verdict.counts})
    click.echo(
        f"{stage.flow.id} goes on with {len(proofs)} partitions, behind what {stage.tool} copied"
        + "".join(f"\n  with records {FINDING_MEANINGS[kind]} ({kind})" for kind in kinds)
        + f"\n  take the right to write to these topics from {stage.tool}: one more record of it would halt them",
        err=True,
    )
    if not yes:
        require_confirmation("Do this?")
    given: list[DecisionWithMap] = []
    for proof in proofs:
        key = proof.key
        order = OperatorDecision(
            "adopt", key.flow, key.topic, key.partition, "target_foreign_write", 0, getpass.getuser(),
            target_id=proof.target_id, id=secrets.token_hex(8), at_ms=int(time.time() * 1000),
            source_id=proof.source_id, base=proof.ends.target_end, position=proof.verdict.position, tool=stage.tool,
        )  # fmt: skip
        given.append(build_adoption_decision(order, proof, sorted(stage.asked.accepted)))
    with ControlWriter(stage.target, client_id="watershed-flow") as writer:
        write_decisions(writer, given, stage.topology)
    click.echo(f"decisions written to watershed.journal: {len(given)} partitions", err=True)
    from cli.flow_decisions import await_workers

    return await_workers(
        stage.flow.id, stage.target, stage.asked.path, [each.decision for each in given], wait_s, aside=aside
    )
