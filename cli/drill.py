"""`topology migrate --drill`: a wave rehearsed on copies of its topics, in a terminal."""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from watershed.cli.actor import name_actor
from watershed.cli.plan_settings import compile_plan_at
from watershed.cli.proof_process import ProofProcess
from watershed.cli.run_dialogue import show_run_event
from watershed.cli.wave_status import read_migration_journal

if TYPE_CHECKING:
    from watershed.clusters.settings import ConnectionSettings
    from watershed.cutover.drill.drill_preflight import Drill
    from watershed.cutover.driver import RunEvent
    from watershed.topology.migration_waves import WaveStrategy
    from watershed.topology.plan import Plan

_EXCLUDED_OPTIONS = {
    "--step": "its steps follow each other in one process, which has the producers and consumers",
    "--resume": "it is never resumed, because its producers and consumers died with it: end it with --drill --abandon",
    "--all-waves": "each wave is rehearsed by itself",
    "--status": "a rehearsal moves no wave",
    "--run": "its name is its own",
    "--force": "what cannot be removed is said, and it ends all the same",
}


@dataclass(frozen=True, slots=True)
class DrillOptions:
    """What the command is asked for."""

    path: Path
    wave: str | None
    strategy: WaveStrategy | None
    dry_run: bool
    abandon: bool
    approve: str
    evidence: Path | None
    records: int
    keep: bool
    form: str


def refuse_excluded_options(given: Mapping[str, Any]) -> None:
    """Raises UsageError for options of a migration that a rehearsal has not: option → whether it was given."""
    for option, why in _EXCLUDED_OPTIONS.items():
        if given[option]:
            raise click.UsageError(f"--drill goes without {option}: {why}")
    if given["--abandon"] and (given["--dry-run"] or given["--keep"]):
        raise click.UsageError("--drill --abandon goes without --dry-run and --keep")


def run_drill_command(wanted: DrillOptions) -> int:
    """Raises UsageError, CutoverError and ClusterError."""
    from watershed.cutover.run_plan import find_wave

    plan = compile_plan_at(wanted.path)
    if wanted.abandon:
        return _abandon(plan, wanted)
    if wanted.wave is not None or plan.migration is None or len(plan.migration.waves) == 1:
        find_wave(plan, wanted.wave)  # is there such a one, and can it be run
    run = f"drill-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
    if wanted.dry_run:
        return _dry_run(plan, wanted, run)
    if wanted.approve == "manual" and not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to ask on: add --approve auto, or run it in one")
    settings = _settings(plan)
    return _run(plan, _wave(plan, wanted, settings), settings, wanted, run)


def _settings(plan: Plan) -> dict[str, ConnectionSettings]:
    """For both clusters of the migration's flow. Raises NotSupported without a migration."""
    from watershed.cli.run_command import resolve_migration_settings

    return resolve_migration_settings(plan)


def _wave(plan: Plan, wanted: DrillOptions, settings: Mapping[str, ConnectionSettings]) -> str:
    """The wave that was named, the only one, or the next by the journal. Raises WaveDone for one that is done, Locked
    while another run is unfinished."""
    from watershed.cutover.errors import WaveDone
    from watershed.cutover.run_claim import refuse_locked_topology
    from watershed.cutover.wave_states import find_next_wave, list_wave_states

    assert plan.migration is not None
    target = plan.flow(plan.migration.flow).target
    chain = read_migration_journal(plan, settings[target])
    refuse_locked_topology(plan, chain)
    only = plan.migration.waves[0].name if len(plan.migration.waves) == 1 else None
    name = wanted.wave or only or find_next_wave(plan, chain)
    if next(each for each in list_wave_states(plan, chain) if each.name == name).state == "done":
        raise WaveDone(f"wave {name} of {plan.topology} is done already: there is nothing left to rehearse")
    return name


def _dry_run(plan: Plan, wanted: DrillOptions, run: str) -> int:
    """Connects to nothing."""
    from watershed.cli.migrate_dry_run import show_run_steps
    from watershed.cutover.drill.drill_plan import has_way_back, plan_drill, preview_drill_back
    from watershed.cutover.drill.drill_topology import build_drill_topology, list_left_out
    from watershed.cutover.run_plan import find_wave

    wave = find_wave(plan, wanted.wave)[1].name
    derived = build_drill_topology(plan, wave, run, wanted.strategy)
    run_plans = [plan_drill(derived), *([preview_drill_back(derived)] if has_way_back(derived) else [])]
    if wanted.form == "json":
        shown = [[asdict(step) for step in run_plan.steps] for run_plan in run_plans]
        document = {
            "schema": 1,
            "kind": "drill",
            "plan": plan.hash,
            "wave": wave,
            "topics": list(run_plans[0].wave.topics),
        }
        document |= {
            "left_out": list(list_left_out(plan, wave)),
            "steps": shown[0],
            "back": shown[1] if shown[1:] else None,
        }
        click.echo(json.dumps(document, indent=2))
        return 0
    for run_plan in run_plans:
        click.echo(f"{plan.topology}: rehearsal of {wave}, {run_plan.flow.source} → {run_plan.flow.target}")
        for title, names in (("topics", run_plan.wave.topics), ("consumers", run_plan.wave.consumers)):
            click.echo(f"{title:10} {', '.join(names) or 'none'}")
        click.echo(f"producers  {', '.join(run_plan.wave.producers) or 'none'}")
        show_run_steps(run_plan.steps)
        click.echo()
    _say_left_out(list_left_out(plan, wave))
    click.echo("Nothing was touched.")
    return 0


def _say_left_out(names: tuple[str, ...], *, err: bool = False) -> None:
    if names:
        click.echo("left out of the rehearsal:\n" + "\n".join(f"  {name}" for name in names), err=err)


def _run(plan: Plan, wave: str, settings: dict[str, ConnectionSettings], wanted: DrillOptions, run: str) -> int:
    from watershed.cutover.drill.drill_plan import has_way_back, plan_drill, preview_drill_back
    from watershed.cutover.drill.drill_preflight import Drill
    from watershed.cutover.drill.drill_report import build_drill_report
    from watershed.cutover.drill.drill_sequence import run_drill
    from watershed.cutover.drill.drill_session import DrillSession
    from watershed.cutover.drill.drill_topology import build_drill_topology
    from watershed.topology.plan import encode_plan

    began, told = time.monotonic(), [run]

    def say(event: RunEvent) -> None:
        if event.kind == "skipped":  # the run there goes on behind the way back
            return
        if event.run != told[-1]:
            told.append(event.run)
            click.echo("the way back" if event.run != run else "the end", err=wanted.form == "json")
        at_ms = int((time.monotonic() - began) * 1000)
        show_run_event(replace(event, at_ms=at_ms), to_stderr=wanted.form == "json")

    one = Drill(
        plan, wave, run, build_drill_topology(plan, wave, run, wanted.strategy), settings, wanted.records, wanted.keep
    )
    if has_way_back(one.drill):
        preview_drill_back(one.drill)  # a flow that does not lead back is refused before anything is made
    _confirm(one, wanted)
    folder = (wanted.evidence or Path(".watershed/evidence") / plan.topology / run).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    compiled = folder / "drill.plan.json"
    compiled.write_text(encode_plan(one.drill), encoding="utf-8")
    with (
        ProofProcess(compiled, one.drill.hash) as proofs,
        DrillSession(one, folder, proofs.prove, say, _actor()) as rehearsing,
    ):
        done = run_drill(one.drill, run, rehearsing.opened, rehearsing.end)
        chain = rehearsing.journal.refresh()
    document = build_drill_report(plan, wave, run, plan_drill(one.drill), chain, done) | {"evidence": str(folder)}
    (folder / "drill.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    _show(document, wanted.form)
    return done.result.exit_code or (0 if document["good"] else 1)


def _confirm(one: Drill, wanted: DrillOptions) -> None:
    """The one question, with what will be made."""
    from watershed.cutover.drill.drill_topology import list_left_out

    flow, wave = one.flow, one.moved
    lines = [f"The rehearsal of wave {one.wave} makes, and {'keeps' if one.keep else 'removes at its end'}:"]
    for copy, topic in one.copies.items():
        name = flow.target_topic(copy)
        lines.append(
            f"  {copy} at {flow.source}" + (f", {name} at {flow.target}" if name != copy else f" and {flow.target}")
        )
        lines.append(f"    with the newest records of {topic}, {one.records:,} at most")
    lines += [f"  flow {each.id} ({each.source} → {each.target})" for each in one.drill.flows]
    lines += [f"  group {group}" for group in wave.consumers]
    lines.append(
        "Its own producers and consumers run in this process. The real topics are read, nothing else is touched."
    )
    if wanted.form == "text" or wanted.approve == "manual":
        click.echo("\n".join(lines), err=wanted.form == "json")
        _say_left_out(list_left_out(one.plan, one.wave), err=wanted.form == "json")
    if wanted.approve == "manual":
        click.confirm("Begin?", abort=True, err=True)


def _show(document: dict[str, Any], form: str) -> None:
    from watershed.cli.drill_text import render_drill_report

    if form == "json":
        click.echo(json.dumps(document, indent=2))
        return
    click.echo(f"\n{render_drill_report(document)}\n\n  evidence: {document['evidence']}/evidence.html\n")
    if document["good"]:
        click.echo("the rehearsal went through: nothing lost, nothing read again")
    elif document["state"] == "done":
        click.echo("the rehearsal went through, and found what is named above")
    else:
        click.echo(f"the rehearsal came to step {document['step']} ({document['state'].replace('_', ' ')}): "
                   f"{document['reason']}")  # fmt: skip


def _abandon(plan: Plan, wanted: DrillOptions) -> int:
    """Exit 1 when something is left that somebody has to remove."""
    from watershed.cutover.drill.drill_abandonment import end_drills
    from watershed.cutover.journal.topology_journal import open_journal

    settings = _settings(plan)
    assert plan.migration is not None
    target = plan.flow(plan.migration.flow).target
    journal = open_journal(plan, settings[target], secrets.token_hex(8))
    say = partial(click.echo, err=wanted.form == "json")
    ended = end_drills(journal, settings, _actor(), "given up by its operator (--drill --abandon)", say)
    if wanted.form == "json":
        click.echo(json.dumps({"schema": 1, **asdict(ended)}, indent=2))
    return 1 if ended.left else 0


def _actor() -> str:
    return f"{name_actor()} (pid {os.getpid()})"
