"""`topology rollback`: back to the old source behind the point of no return, in a terminal."""

from __future__ import annotations

from typing import Literal

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


@click.command(epilog="Example: topology rollback orders.yaml --dry-run && topology rollback orders.yaml")
@add_run_options("The wave to take back.  [default: the only one]")
@click.option("--stranded", type=click.Choice(["skip", "reread"]), default=None,
              help="Records that somebody wrote at the old source after the switch: groups go on behind them, or in "
              "front of them.  [default: they are refused]")  # fmt: skip
def rollback(wanted: RunOptions, stranded: Literal["skip", "reread"] | None) -> int:
    """Take a wave back whose producers have been switched already, and with it whatever they have written since.

    The flow back (`rollback.reverse`) carries the new records to the old source, from the switch on; they are proven,
    groups go on there exactly where they are, and applications follow. A switch back without such a flow is refused
    and says how many records it would strand. Before the switch, use `topology migrate --abandon` instead.

    What is refused before this rollback's own point of no return is taken back: applications stay at the target (exit
    1), and a migration that was not finished can be continued.
    """
    from watershed.cutover.run_choice import RunChoice, plan_run, preview_run

    plan, choice = compile_for_run(wanted), RunChoice("rollback", wanted.wave, stranded=stranded)
    if wanted.dry_run:
        return show_run_plan(plan, preview_run(plan, choice), wanted.form)
    settings = resolve_migration_settings(plan)
    run_plan = plan_run(plan, choice, read_target_journal(plan, settings))
    return drive_run(plan, run_plan, settings, wanted, {"approval"})
