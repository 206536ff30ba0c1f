"""`topology migrate`: the steps of a migration, in a terminal."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.plans import connector, plan_at
from cli.proving import prove_in

if TYPE_CHECKING:
    from cutover.actions import AskApproval
    from cutover.driver import Event
    from cutover.observations import ApprovalSeen
    from cutover.policy import Policy
    from topology.plan import Plan, Wave

_MARKS = {"begin": "▸", "seen": " ", "deed": "→", "done": "✓", "skipped": "✓", "refused": "✗", "ended": "■"}
_COLOURS = {"done": "green", "skipped": "green", "refused": "red", "begin": "cyan"}


@click.command(epilog="Example: topology migrate orders.yaml --dry-run && topology migrate orders.yaml --approve auto")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--wave", default=None, help="The wave to migrate.  [default: the only one]")
@click.option("--dry-run", is_flag=True, help="Print every step with its undo; connect to nothing.")
@click.option("--resume", is_flag=True, help="Continue the unfinished run where it stopped.")
@click.option("--abandon", is_flag=True, help="Give the unfinished run up: take back what it did, and end it.")
@click.option("--force", is_flag=True, help="With --abandon: end it even when not everything could be taken back.")
@click.option("--approve", type=click.Choice(["manual", "auto"]), default="manual", show_default=True)
@click.option("--evidence", type=click.Path(file_okay=False, path_type=Path), default=None, metavar="DIR",
              help="Where the evidence goes.  [default: .watershed/evidence/TOPOLOGY/RUN]")  # fmt: skip
@click.option("--step", default=None, metavar="NAME", help="Only this step; those before it must be done.")
@click.option("--run", "run_id", default=None, metavar="NAME", help="Name of the run; continues the run of that name.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def migrate(
    path: Path,
    wave: str | None,
    dry_run: bool,
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

    Anything refused before the point of no return is taken back by itself (exit 1). A run that died is continued
    with --resume, or given up with --abandon. What happened is in the journal (`topology journal`) and in the
    evidence pack.
    """
    if run_id is not None and not re.fullmatch(r"[\w.:+-]{1,200}", run_id):
        raise click.BadParameter("use letters, digits and . : + - _ only", param_hint="--run")
    from cutover.driver import Migration, applications_of, approve_all, wave_of
    from cutover.giving_up import give_up
    from cutover.policy import policy_of

    if force and not abandon:
        raise click.UsageError("--force goes with --abandon")
    if abandon and (dry_run or resume or step is not None):
        raise click.UsageError("--abandon goes without --dry-run, --resume and --step")
    plan = plan_at(path)
    migration, chosen = wave_of(plan, wave)
    if dry_run:
        _rehearse(plan, chosen, policy_of(chosen), form)
        return 0
    if approve == "manual" and not abandon and step in (None, "approval", "soak") and not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to ask for approval: add --approve auto, or run it in one")
    if chosen.window is not None:
        click.echo(f"topology: note: the window of wave {chosen.name} is not enforced by this version", err=True)
    flow = plan.flow(migration.flow)
    connect = connector(plan)
    run: Migration

    def folder() -> Path:
        return (evidence or Path(".watershed/evidence") / plan.topology / (run.run_id or "run")).resolve()

    opened = partial(
        Migration,
        plan,
        wave,
        {alias: connect(alias) for alias in (flow.source, flow.target)},
        applications=applications_of(migration, None if approve == "auto" or not sys.stdin.isatty() else _confirm),
        run_id=run_id,
        resume=resume or abandon,
        abandon=abandon,
        evidence=folder,
    )

    def say(event: Event) -> None:
        _show(event, to_stderr=form == "json")

    if abandon:
        result = give_up(opened, "the run was given up by its operator (--abandon)", say, force=force)
        if form == "json":
            click.echo(json.dumps({"schema": 1, **asdict(result)}, indent=2))
        return 0 if result.state in ("refused", "rolled_back") else result.exit_code
    run = opened(
        prove=lambda wanted: prove_in(folder() / ("tail" if wanted.final else "history"), path, plan.hash, wanted),
        approve=approve_all if approve == "auto" else _ask,
        say=say,
    )
    result = run.run_step(step) if step else run.run()
    if form == "json":
        click.echo(json.dumps({"schema": 1, "run": run.run_id, "evidence": str(folder()), **asdict(result)}, indent=2))
    elif result.state == "done":
        click.echo(f"evidence: {folder() / 'evidence.html'}")
    return result.exit_code


def _ask(ask: AskApproval) -> ApprovalSeen:
    from cutover.observations import ApprovalSeen

    click.echo(json.dumps(ask.evidence, indent=2, sort_keys=True), err=True)
    granted = click.confirm(f"{ask.by}: {ask.question}", default=False, err=True)
    return ApprovalSeen(0, granted, f"{ask.by}, in a terminal")


def _confirm(question: str) -> bool:
    """A person answers for an application without a control endpoint."""
    return click.confirm(question, default=False, err=True)


def _show(event: Event, *, to_stderr: bool) -> None:
    mark, colour = _MARKS[event.kind], _COLOURS.get(event.kind)
    text = event.text if event.kind in ("seen", "deed", "ended") else f"{event.step}: {event.text}"
    indent = "" if event.kind in ("begin", "done", "skipped", "refused", "ended") else "  "
    line = f"{event.at_ms / 1000:7.1f}s {indent}{click.style(mark, fg=colour)} {text}"
    bold = event.text.startswith("POINT OF NO RETURN")
    click.echo(click.style(line, bold=True) if bold else line, err=to_stderr)


def _rehearse(plan: Plan, wave: Wave, policy: Policy, form: str) -> None:
    from cutover.steps import steps_of

    steps = steps_of(policy)
    if form == "json":
        document = {"schema": 1, "plan": plan.hash, "wave": wave.name, "steps": [asdict(step) for step in steps]}
        click.echo(json.dumps(document, indent=2))
        return
    assert plan.migration is not None
    flow = plan.flow(plan.migration.flow)
    click.echo(f"{plan.topology}, wave {wave.name}: {flow.source} → {flow.target}, plan {plan.hash[:19]}")
    click.echo(f"topics     {', '.join(wave.topics) or 'all that the flow selects'}")
    for title, names in (("consumers", wave.consumers), ("producers", wave.producers)):
        told = (f"{name} ({_told(plan, name)})" for name in names)
        click.echo(f"{title:10} {', '.join(told) or 'none'}")
    if wave.window is not None:
        click.echo("window     declared, not enforced by this version")
    for number, step in enumerate(steps, 1):
        if step.point_of_no_return:
            click.echo(click.style(f"\n{' POINT OF NO RETURN ':═^100}", bold=True))
        bound = f"  (at most {step.bound_ms / 1000:g} s)" if step.bound_ms else ""
        click.echo(f"\n{number:2}. {click.style(step.name, bold=True)}, by {_by(step.actor)}{bound}")
        click.echo(f"    {step.does}")
        click.echo(f"    undo: {step.undo or 'nothing is changed'}")
    click.echo("\nNothing was touched.")


def _told(plan: Plan, name: str) -> str:
    found: Any = plan.migration.applications.get(name) if plan.migration else None
    return f"told at {found.http}" if found is not None and found.http else "a person confirms"


def _by(actor: str) -> str:
    return {"application": "the application", "proof": "Spark", "person": "a person"}.get(actor, "watershed")
