"""`topology failover`: the source is gone; the target is promoted with what it holds."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import click

from watershed.cli.run_command import (
    RunOptions,
    add_run_options,
    compile_for_run,
    drive_run,
    read_target_journal,
    resolve_migration_settings,
    show_run_plan,
)

if TYPE_CHECKING:
    from watershed.clusters.settings import ConnectionSettings
    from watershed.cutover.run_plan import RunPlan
    from watershed.topology.plan import Plan


@click.command(epilog="Example: topology failover orders.yaml --dry-run && topology failover orders.yaml")
@add_run_options("The wave to promote.  [default: everything that has not moved]")
@click.option("--accept-loss", metavar="RECORDS", default=None,
              help="Accept that at most so many records (or `any`) are missing, instead of being asked.")  # fmt: skip
@click.option("--though-source-answers", is_flag=True,
              help="Go on although the source answers; its producers are stopped and fenced first.")  # fmt: skip
@click.option("--show-loss", is_flag=True, help="Only show what would be lost now, from the target alone, and stop.")
def failover(wanted: RunOptions, accept_loss: str | None, though_source_answers: bool, show_loss: bool) -> int:
    """Promote the standby when its source is gone: for good, and with what is missing declared first.

    Needs only the target. What was not copied is given up, in offsets and seconds, and only when somebody accepts that:
    in a terminal, or with --accept-loss; --approve auto does not. A source that still answers is refused: `topology
    migrate` loses nothing. When the old source is back, `topology failback` shows what only it has.
    """
    from watershed.cutover.run_choice import RunChoice, plan_run, preview_run

    plan, most = compile_for_run(wanted), _most(accept_loss)
    choice = RunChoice("failover", wanted.wave, accept_loss=most, though_source_answers=though_source_answers)
    if wanted.dry_run:
        return show_run_plan(plan, preview_run(plan, choice), wanted.form)
    settings = resolve_migration_settings(plan)
    chain = read_target_journal(plan, settings)
    run_plan = plan_run(plan, choice, chain, wanted.run_id)
    if show_loss:
        return _show_loss(plan, run_plan, settings, wanted.form)
    return drive_run(plan, run_plan, settings, wanted, set() if most is not None else {"accept_loss"})


def _show_loss(plan: Plan, run_plan: RunPlan, settings: dict[str, ConnectionSettings], form: str) -> int:
    """Changes nothing, and asks the source nothing."""
    from watershed.cutover.actions import ReadCopies, ReadLastSeenSource, ReadTopics
    from watershed.cutover.failover.loss import build_failover_loss
    from watershed.cutover.failover.streams_standby import assess_states, describe_states, select_states
    from watershed.cutover.live.action_handler import LiveActionHandler
    from watershed.cutover.live.application_control import NO_APPLICATIONS
    from watershed.cutover.observations import ActionFailed, LastSeenSource, ObservedCopies, ObservedTopics
    from watershed.cutover.offsets import list_partitions

    handler = LiveActionHandler(plan, run_plan.flow, settings, NO_APPLICATIONS, time.monotonic)
    there = handler.answer(ReadTopics("target"))
    known = there.partitions if isinstance(there, ObservedTopics) else {}
    names = {topic: run_plan.flow.target_topic(topic) for topic in run_plan.wave.topics}
    wanted = list_partitions({topic: known[name] for topic, name in names.items() if name in known})
    copies, sight = handler.answer(ReadCopies(wanted)), handler.answer(ReadLastSeenSource(wanted))
    for seen in (there, copies, sight):
        if isinstance(seen, ActionFailed):
            click.echo(seen.error, err=True)
            return 2
    assert isinstance(copies, ObservedCopies)
    assert isinstance(sight, LastSeenSource)
    loss = build_failover_loss(sight.wall_ms, wanted, copies.copies, sight.sights)
    states = assess_states(select_states(run_plan.flow, run_plan.wave.consumers, sight), copies.copies)
    if form == "json":
        found = {"schema": 1, "wave": run_plan.wave.name, "loss": loss.to_json(), "states": states}
        click.echo(json.dumps(found, indent=2))
    else:
        click.echo(f"{run_plan.wave.name}, if {run_plan.flow.source} ended now: {loss.describe()}")
        for text in describe_states(states):
            click.echo(text)
    return 0


def _most(text: str | None) -> int | None:
    if text is None or text.isdecimal():
        return None if text is None else int(text)
    if text == "any":
        return sys.maxsize
    raise click.BadParameter(f"`{text}` is neither a number of records nor `any`", param_hint="--accept-loss")
