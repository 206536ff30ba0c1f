"""`topology rollback`: back to the old source behind the point of no return, in a terminal."""

from __future__ import annotations

from typing import Any, Literal

import click

from cli.courses import Wanted, chain_of, drive, options, planned, rehearse, settings_of


@click.command(epilog="Example: topology rollback orders.yaml --dry-run && topology rollback orders.yaml")
@options("The wave to take back.  [default: the only one]")
@click.option("--stranded", type=click.Choice(["skip", "reread"]), default=None,
              help="Records that somebody wrote at the old source after the switch: groups go on behind them, or in "
              "front of them.  [default: they are refused]")  # fmt: skip
def rollback(stranded: Literal["skip", "reread"] | None, **given: Any) -> int:
    """Take a wave back whose producers have been switched already, and with it whatever they have written since.

    The flow back (`rollback.reverse`) carries the new records to the old source, from the switch on; they are proven,
    groups go on there exactly where they are, and applications follow. A switch back without such a flow is refused
    and says how many records it would strand. Before the switch, use `topology migrate --abandon` instead.

    What is refused before this rollback's own point of no return is taken back: applications stay at the target (exit
    1), and a migration that was not finished can be continued.
    """
    from cutover.rollback.course import rehearsed, rollback_course

    wanted = Wanted(**given)
    plan = planned(wanted)
    if wanted.dry_run:
        return rehearse(plan, rehearsed(plan, wanted.wave), wanted.form)
    settings = settings_of(plan)
    course = rollback_course(plan, wanted.wave, chain_of(plan, settings), stranded=stranded)
    return drive(plan, course, settings, wanted, {"approval"})
