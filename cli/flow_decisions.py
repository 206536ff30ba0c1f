"""`topology flow accept-gap`, `reseed`, `copy-foreign` and `prune`: decisions that stay as they are, in a terminal.

What they do is in `cutover.operations`, which Airflow uses, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from watershed.cli.actor import name_actor
from watershed.cli.confirmation import require_confirmation
from watershed.cli.plan_settings import build_settings_lookup, compile_plan_at

if TYPE_CHECKING:
    from watershed.cutover.operations.partition_decisions import FlowScene
    from watershed.cutover.operations.proposal import Proposal

_flow_argument = click.argument("flow_id", metavar="FLOW")
_path_argument = click.argument("path", type=click.Path(path_type=Path))
_topic = click.option("-t", "--topic", required=True, help="Topic name on the source.")
_yes = click.option("--yes", is_flag=True, help="Do not ask; needed where there is no terminal.")
_wait = click.option(
    "--wait", "wait_s", type=click.FloatRange(0), default=120.0, show_default=True, metavar="SECONDS",
    help="How long to wait for the worker's answer.",
)  # fmt: skip


@click.command("accept-gap", epilog="Example: topology flow accept-gap onprem-to-cloud orders.yaml -t orders -p 3")
@_flow_argument
@_path_argument
@_topic
@click.option("-p", "--partition", type=click.IntRange(0), required=True)
@click.option(
    "--through",
    type=click.IntRange(0),
    default=None,
    metavar="OFFSET",
    help="The last source offset that may be lost if more expires before a worker obeys; default: nothing more.",
)
@_yes
@_wait
def accept_gap(
    flow_id: str, path: Path, topic: str, partition: int, through: int | None, yes: bool, wait_s: float
) -> int:
    """Give up source records that expired before they were copied, and go on behind them.

    For a partition in state source_expired. Shows the exact offsets that are lost. Exit code 0 when the worker goes
    on, 1 when it refused (more has expired meanwhile), 3 when it did not answer in time.
    """
    from watershed.cutover.operations.partition_decisions import propose_gap_acceptance

    return _decide(propose_gap_acceptance(_scene(flow_id, path, wait_s), topic, partition, through), yes)


@click.command(epilog="Example: topology flow reseed onprem-to-cloud orders.yaml -t orders")
@_flow_argument
@_path_argument
@_topic
@click.option("-p", "--partition", type=click.IntRange(0), default=None, help="Only this one; default: all of them.")
@_yes
@_wait
def reseed(flow_id: str, path: Path, topic: str, partition: int | None, yes: bool, wait_s: float) -> int:
    """Copy a topic, or one partition, again from the source into an empty target.

    For partitions in state duplicated, target_foreign_write, target_gone, source_recreated, source_truncated or
    append_time. The target has to be empty already: this command deletes nothing, it shows the commands that do. Exit
    code 0 when the workers copy again, 1 when the target is not empty or the order was refused, 3 without an answer in
    time.
    """
    from watershed.cutover.operations.partition_decisions import propose_reseed

    return _decide(propose_reseed(_scene(flow_id, path, wait_s), topic, partition), yes)


@click.command("copy-foreign", epilog="Example: topology flow copy-foreign onprem-to-cloud orders.yaml -t orders -p 3")
@_flow_argument
@_path_argument
@_topic
@click.option("-p", "--partition", type=click.IntRange(0), required=True)
@click.option(
    "--through",
    type=click.IntRange(0),
    default=None,
    metavar="OFFSET",
    help="The last source offset up to which no batch is believed to be a flow's; default: this batch only.",
)
@_yes
@_wait
def copy_foreign(
    flow_id: str, path: Path, topic: str, partition: int, through: int | None, yes: bool, wait_s: float
) -> int:
    """Copy source records that carry a flow's producer id and are not its own, as those of an application.

    For a partition in state source_foreign_write. With --through the loop guard believes no producer id up to that
    offset, so what a flow brought there from the target would be copied back: name only offsets that no flow wrote.
    Exit code 0 when the worker has copied them, 3 when it did not in time.
    """
    from watershed.cutover.operations.partition_decisions import propose_foreign_copy

    return _decide(propose_foreign_copy(_scene(flow_id, path, wait_s), topic, partition, through), yes)


@click.command(epilog="Example: topology flow prune onprem-to-cloud orders.yaml")
@_flow_argument
@_path_argument
@click.option(
    "--above-share",
    is_flag=True,
    help="Also where more than half of what the sync brought is gone at the source at once.",
)
@_yes
def prune(flow_id: str, path: Path, above_share: bool, yes: bool) -> int:
    """Remove rights and SCRAM users at the target that the sync brought and the source has taken away.

    Needs `prune: approve` or `auto` under `sync.acls` or `sync.users`. Shows each of them, with when it came and since
    when it is gone. What a person gave at the target stays, and so do the rights of Watershed itself. Exit code 0 when
    they are removed, 1 when something was refused.
    """
    from watershed.cutover.operations.access_pruning import propose_pruning

    plan = compile_plan_at(path)
    proposal = propose_pruning(plan, build_settings_lookup(plan), flow_id, above_share=above_share)
    if proposal.is_needed:
        return _decide(proposal, yes)
    for line in proposal.lines:
        click.echo(line)
    return 0


def _scene(flow_id: str, path: Path, wait_s: float) -> FlowScene:
    from watershed.cutover.operations.partition_decisions import read_flow_scene

    plan = compile_plan_at(path)
    return read_flow_scene(plan, build_settings_lookup(plan), flow_id, str(path), wait_s)


def _decide(proposal: Proposal, yes: bool) -> int:
    """Shows what it will do, asks, does it. Raises what carrying it out raises: that has the exit code."""
    for line in proposal.lines:
        click.echo(line)
    if not yes:
        require_confirmation("Do this?")
    for line in proposal.carry_out(name_actor()):
        click.echo(line)
    return 0
