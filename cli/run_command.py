"""What `topology migrate`, `rollback`, `failover` and `failback` share: their options, and driving a run."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from watershed.cli.plan_settings import build_settings_lookup, compile_plan_at
from watershed.cli.proof_process import ProofProcess
from watershed.cli.run_dialogue import ask_approval, choose_person_prompt, show_run_event
from watershed.cli.wave_status import read_migration_journal
from watershed.topology.shell_command import render_shell_command

if TYPE_CHECKING:
    from watershed.clusters.settings import ConnectionSettings
    from watershed.cutover.driver import RunDriver
    from watershed.cutover.journal.hash_chain import JournalChain
    from watershed.cutover.run_plan import RunPlan
    from watershed.cutover.step_runner import RunResult
    from watershed.topology.plan import Plan

_F = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options that failover, failback and rollback share. form: `text` or `json`."""

    path: Path
    wave: str | None
    dry_run: bool
    resume: bool
    abandon: bool
    force: bool
    approve: str
    evidence: Path | None
    step: str | None
    run_id: str | None
    form: str


def add_run_options(wave: str) -> Callable[[_F], _F]:
    """Adds the options of `RunOptions` to a command, which gets them as its first argument. wave: the help text of
    --wave."""
    every = (
        click.argument("path", type=click.Path(path_type=Path)),
        click.option("--wave", default=None, help=wave),
        click.option("--dry-run", is_flag=True, help="Print every step with its undo; connect to nothing."),
        click.option("--resume", is_flag=True, help="Continue the unfinished run where it stopped."),
        click.option("--abandon", is_flag=True, help="Give the unfinished run up: take back what it did, and end it."),
        click.option("--force", is_flag=True, help="With --abandon: end it even when not everything could be undone."),
        click.option("--approve", type=click.Choice(["manual", "auto"]), default="manual", show_default=True),
        click.option("--evidence", type=click.Path(file_okay=False, path_type=Path), default=None, metavar="DIR",
                     help="Where the evidence goes.  [default: .watershed/evidence/TOPOLOGY/RUN]"),
        click.option("--step", default=None, metavar="NAME", help="Only this step; those before it must be done."),
        click.option("--run", "run_id", default=None, metavar="NAME",
                     help="Name of the run; continues the run of that name."),
        click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True),
    )  # fmt: skip

    def decorated(command: _F) -> _F:
        @wraps(command)
        def with_options(**given: Any) -> Any:
            wanted = RunOptions(**{field.name: given.pop(field.name) for field in fields(RunOptions)})
            return command(wanted, **given)

        decorating: _F = with_options
        for each in reversed(every):
            decorating = each(decorating)
        return decorating

    return decorated


def compile_for_run(wanted: RunOptions) -> Plan:
    """Compiles the file. Raises UsageError for options that exclude one another, and what compiling raises."""
    if wanted.run_id is not None and not re.fullmatch(r"[\w.:+-]{1,200}", wanted.run_id):
        raise click.BadParameter("use letters, digits and . : + - _ only", param_hint="--run")
    if wanted.force and not wanted.abandon:
        raise click.UsageError("--force goes with --abandon")
    if wanted.abandon and (wanted.dry_run or wanted.resume or wanted.step is not None):
        raise click.UsageError("--abandon goes without --dry-run, --resume and --step")
    return compile_plan_at(wanted.path)


def resolve_migration_settings(plan: Plan) -> dict[str, ConnectionSettings]:
    """The connection settings of both clusters of the migration's flow. Raises NotSupported without a migration."""
    from watershed.cutover.run_plan import find_wave

    if plan.migration is None:
        find_wave(plan, None)
        raise AssertionError
    flow, connect = plan.flow(plan.migration.flow), build_settings_lookup(plan)
    return {alias: connect(alias) for alias in (flow.source, flow.target)}


def read_target_journal(plan: Plan, settings: dict[str, ConnectionSettings]) -> JournalChain:
    """Reads the journal from the target cluster of the migration. Does not connect to the source."""
    assert plan.migration is not None
    return read_migration_journal(plan, settings[plan.flow(plan.migration.flow).target])


def show_run_plan(plan: Plan, run_plan: RunPlan, form: str) -> int:
    """Prints the steps of a run plan. Connects to nothing."""
    from watershed.cli.migrate_dry_run import show_preview_lines
    from watershed.cutover.run_preview import describe_run

    if form == "json":
        steps = [asdict(step) for step in run_plan.steps]
        document = {"schema": 1, "plan": plan.hash, "kind": run_plan.kind, "wave": run_plan.wave.name, "steps": steps}
        click.echo(json.dumps(document, indent=2))
        return 0
    show_preview_lines(describe_run(plan, run_plan))
    click.echo("\nNothing was touched.")
    return 0


def drive_run(
    plan: Plan, run_plan: RunPlan, settings: dict[str, ConnectionSettings], wanted: RunOptions, asks: set[str]
) -> int:
    """Run the plan to its end. asks: the steps that ask a person. Raises CutoverError and ClusterError."""
    unasked = wanted.approve == "manual" and not wanted.abandon and not sys.stdin.isatty()
    if unasked and asks & ({wanted.step} if wanted.step is not None else {step.name for step in run_plan.steps}):
        raise click.UsageError("there is no terminal to ask for approval: add --approve auto, or run it in one")
    if wanted.abandon:
        return abandon_and_report(plan, run_plan, settings, wanted)
    return perform_run(plan, run_plan, settings, wanted, {"kind": run_plan.kind}).exit_code


def abandon_and_report(
    plan: Plan, run_plan: RunPlan, settings: Mapping[str, ConnectionSettings], wanted: RunOptions
) -> int:
    """Give up the named run, or the unfinished one. Returns 0 if everything is taken back, or nothing had begun."""
    from watershed.cutover.run_abandonment import abandon_run
    from watershed.cutover.run_opening import open_run

    opened = partial(
        open_run, plan, run_plan, settings, run_id=wanted.run_id, resume=True, abandon=True,
        ask=choose_person_prompt(wanted.approve), evidence=wanted.evidence,
    )  # fmt: skip
    say = partial(show_run_event, to_stderr=wanted.form == "json")
    result = abandon_run(opened, "the run was given up by its operator (--abandon)", say, force=wanted.force)
    if wanted.form == "json":
        click.echo(json.dumps({"schema": 1, **asdict(result)}, indent=2))
    return 0 if result.state in ("refused", "rolled_back") else result.exit_code


def perform_run(
    plan: Plan,
    run_plan: RunPlan,
    settings: Mapping[str, ConnectionSettings],
    wanted: RunOptions,
    label: Mapping[str, str],
) -> RunResult:
    """Run the plan to its end, or only the requested step. label: the field of the JSON that names the run's `kind` or
    `wave`.

    Raises CutoverError and ClusterError.
    """
    from watershed.cutover.driver import approve_all
    from watershed.cutover.run_opening import open_run

    say = partial(show_run_event, to_stderr=wanted.form == "json")
    run: RunDriver

    def folder() -> Path:
        return (wanted.evidence or Path(".watershed/evidence") / plan.topology / (run.run_id or "run")).resolve()

    with ProofProcess(wanted.path, plan.hash) as proofs:
        run = open_run(
            plan,
            run_plan,
            settings,
            ask=choose_person_prompt(wanted.approve),
            run_id=wanted.run_id,
            resume=wanted.resume,
            evidence=folder,
            prove=lambda each: proofs.prove(folder() / ("tail" if each.final else "history"), each),
            approve=approve_all if wanted.approve == "auto" else ask_approval,
            say=say if wanted.step else proofs.wrap_with_warm_up(say, run_plan, folder),
        )
        with tell_how_to_go_on(run, wanted.path):
            result = run.run_step(wanted.step) if wanted.step else run.run()
    if wanted.form == "json":
        document = {"schema": 1, "run": run.run_id, **label, "evidence": str(folder()), **asdict(result)}
        click.echo(json.dumps(document, indent=2))
    elif result.state == "done":
        click.echo(f"evidence: {folder() / 'evidence.html'}")
    return result


@contextmanager
def tell_how_to_go_on(run: RunDriver, path: Path) -> Iterator[None]:
    """Says after Ctrl-C, or after a question without an answer, that the run is unfinished and what to do with it."""
    try:
        yield
    except (KeyboardInterrupt, click.Abort):
        if run.run_id is not None:
            command = partial(render_shell_command, "topology", run.run_plan.kind, path)
            click.echo(
                f"run {run.run_id} is not finished: nothing is taken back, and it holds the topology's lock. To go on: "
                f"`{command('--resume')}`. To take it back: `{command('--abandon')}`",
                err=True,
            )
        raise
