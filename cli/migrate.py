"""`topology migrate`: the steps of a migration, in a terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from watershed.cli.plan_settings import build_settings_lookup, compile_plan_at
from watershed.cli.run_command import RunOptions, abandon_and_report, perform_run
from watershed.cli.wave_status import read_migration_journal, show_wave_states

if TYPE_CHECKING:
    from watershed.clusters.settings import ConnectionSettings
    from watershed.cutover.run_plan import RunPlan
    from watershed.cutover.step_runner import RunResult
    from watershed.topology.migration_waves import Wave, WaveStrategy
    from watershed.topology.plan import Plan


@click.command(epilog="Example: topology migrate orders.yaml --dry-run && topology migrate orders.yaml --approve auto")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--wave", default=None, help="The wave to migrate.  [default: the next one that can run]")
@click.option("--strategy", type=click.Choice(["consumers_first", "producers_first", "fenced"]), default=None,
              help="Another order of steps than the file's. A run that goes on keeps its own.")  # fmt: skip
@click.option("--all-waves", is_flag=True, help="One wave after the other, each a run; the first that stops ends it.")
@click.option("--status", is_flag=True, help="Only show how far each wave is, and where its topics are written to.")
@click.option("--dry-run", is_flag=True, help="Print every step with its undo; connect to nothing.")
@click.option("--drill", "rehearsed", is_flag=True, help="Rehearse one wave on copies of its topics.")
@click.option("--drill-records", type=click.IntRange(1), default=None, metavar="N",
              help="With --drill: so many of a topic's newest records are copied.  [default: 10000]")  # fmt: skip
@click.option("--keep", is_flag=True, help="With --drill: leave the copies, to expire in an hour.")
@click.option("--resume", is_flag=True, help="Continue the unfinished run where it stopped.")
@click.option("--abandon", is_flag=True, help="Give the unfinished run up: take back what it did, and end it.")
@click.option("--force", is_flag=True, help="With --abandon: end it even when not everything could be taken back.")
@click.option("--approve", type=click.Choice(["manual", "auto"]), default="manual", show_default=True)
@click.option("--evidence", type=click.Path(file_okay=False, path_type=Path), default=None, metavar="DIR",
              help="Where the evidence goes.  [default: .watershed/evidence/TOPOLOGY/RUN]")  # fmt: skip
@click.option("--step", default=None, metavar="NAME",
              help="Only this step; those before it must be done. A proof of the tail starts Spark anew.")  # fmt: skip
@click.option("--run", "run_id", default=None, metavar="NAME", help="Name of the run; continues the run of that name.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def migrate(
    path: Path,
    wave: str | None,
    strategy: WaveStrategy | None,
    all_waves: bool,
    status: bool,
    dry_run: bool,
    rehearsed: bool,
    drill_records: int | None,
    keep: bool,
    resume: bool,
    abandon: bool,
    force: bool,
    approve: str,
    evidence: Path | None,
    step: str | None,
    run_id: str | None,
    form: str,
) -> int:
    """Move the applications of one wave to the other cluster, step by step, each step a gate.

    Without --wave it is the one that is unfinished, or the next whose turn it is; a wave that is done already is left
    alone (exit 0), and one whose turn it is not is refused (exit 1).

    Anything refused before the point of no return is taken back by itself (exit 1). A run that died is continued
    with --resume, or given up with --abandon. What happened is in the journal (`topology journal`) and in the
    evidence pack.

    With --drill the wave is rehearsed, there and back, on copies of its topics: on the same clusters, with the workers,
    Spark and rights of the day, and with producers and consumers of its own. See docs/drill.md.
    """
    if rehearsed:
        from watershed.cli.drill import DrillOptions, refuse_excluded_options, run_drill_command

        given = {"--step": step, "--resume": resume, "--all-waves": all_waves, "--status": status, "--run": run_id}
        refuse_excluded_options(given | {"--force": force, "--abandon": abandon, "--dry-run": dry_run, "--keep": keep})
        many = drill_records or 10_000
        return run_drill_command(
            DrillOptions(path, wave, strategy, dry_run, abandon, approve, evidence, many, keep, form)
        )
    if drill_records is not None or keep:
        raise click.UsageError("--drill-records and --keep go with --drill")
    if run_id is not None and not re.fullmatch(r"[\w.:+-]{1,200}", run_id):
        raise click.BadParameter("use letters, digits and . : + - _ only", param_hint="--run")
    _refuse_contradictions(
        force and not abandon and "--force goes with --abandon",
        abandon and (dry_run or resume or step is not None) and "--abandon goes without --dry-run, --resume and --step",
        all_waves
        and (wave or step or run_id or abandon)
        and "--all-waves goes without --wave, --step, --run and --abandon: each wave is a run",
    )
    plan = compile_plan_at(path)
    waves = _chosen(plan, wave)
    if dry_run:
        from watershed.cli.migrate_dry_run import show_dry_run

        show_dry_run(plan, waves, form, strategy)
        return 0
    if not (abandon or status):
        _require_approver(approve, step)
    flow = plan.flow(plan.migration.flow if plan.migration else "")
    connect = build_settings_lookup(plan)
    settings = {alias: connect(alias) for alias in (flow.source, flow.target)}
    if status:
        return show_wave_states(plan, read_migration_journal(plan, settings[flow.target]), form)
    one = partial(_run, plan, path, settings, approve, evidence, step, run_id, form, strategy)
    if abandon:
        name = _meant(plan, wave, settings[flow.target], form)
        run_plan = _build_run_plan(plan, name, settings[flow.target], strategy)
        wanted = RunOptions(path, name, False, True, True, force, approve, evidence, None, run_id, form)
        return abandon_and_report(plan, run_plan, settings, wanted)
    return _run_waves(
        lambda again: one(_meant(plan, wave, settings[flow.target], form), resume=again), resume, all_waves, form
    )


def _run_waves(run: Callable[[bool], RunResult], resume: bool, all_waves: bool, form: str) -> int:
    """One run, or one after the other until a wave is not done. Returns the exit code."""
    from watershed.cutover.errors import WaveDone

    try:
        while True:
            result = run(resume)
            if not all_waves or result.state != "done":
                return result.exit_code
            resume = False
    except WaveDone as done:
        click.echo(f"{done}; nothing is left to do", err=form == "json")
        return 0


def _refuse_contradictions(*found: object) -> None:
    """Each is a sentence about options that exclude each other, or false. Raises UsageError with the first."""
    for problem in found:
        if problem:
            raise click.UsageError(str(problem))


def _require_approver(approve: str, step: str | None) -> None:
    """Raises UsageError when a person has to approve, and there is no terminal to ask in."""
    if approve == "manual" and step in (None, "approval", "soak") and not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to ask for approval: add --approve auto, or run it in one")


def _chosen(plan: Plan, wave: str | None) -> list[Wave]:
    """The wave, or all of them, each found fit to run. Raises NotSupported."""
    from watershed.cutover.run_plan import find_wave

    names = [wave] if wave is not None or plan.migration is None else [each.name for each in plan.migration.waves]
    return [find_wave(plan, name)[1] for name in names or [None]]


def _meant(plan: Plan, wave: str | None, target: ConnectionSettings, form: str) -> str:
    """The wave that was named, the only one, or the next by the journal, which is said. Raises WaveDone."""
    from watershed.cutover.wave_states import find_next_wave

    waves = plan.migration.waves if plan.migration else ()
    if wave is not None or len(waves) == 1:
        return wave or waves[0].name
    found = find_next_wave(plan, read_migration_journal(plan, target))
    click.echo(f"wave {found} of {', '.join(each.name for each in waves)}", err=form == "json")
    return found


def _build_run_plan(plan: Plan, wave: str, target: ConnectionSettings | None, strategy: WaveStrategy | None) -> RunPlan:
    """strategy: what was asked for. target: with the journal of a run that may go on, which keeps the strategy with
    which it was begun, in Airflow or here."""
    from watershed.cutover.run_choice import RunChoice, plan_run, preview_run

    choice = RunChoice("migrate", wave, strategy)
    return preview_run(plan, choice) if target is None else plan_run(plan, choice, read_migration_journal(plan, target))


def _run(
    plan: Plan,
    path: Path,
    settings: Mapping[str, ConnectionSettings],
    approve: str,
    evidence: Path | None,
    step: str | None,
    run_id: str | None,
    form: str,
    strategy: WaveStrategy | None,
    wave: str,
    *,
    resume: bool,
) -> RunResult:
    """One wave. Raises CutoverError and ClusterError."""
    target = settings[plan.flow(plan.migration.flow).target] if plan.migration else None
    run_plan = _build_run_plan(plan, wave, target if resume or run_id is not None else None, strategy)
    wanted = RunOptions(path, wave, False, resume, False, False, approve, evidence, step, run_id, form)
    return perform_run(plan, run_plan, settings, wanted, {"wave": wave})
