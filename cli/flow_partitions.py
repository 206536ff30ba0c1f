"""`topology flow pause` and `resume` of topics and partitions, and `topology flow move`.

What they do is in `cutover.operations.partition_control`, which Airflow uses, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from watershed.cli.actor import name_actor
from watershed.cli.plan_settings import build_settings_lookup, compile_plan_at

if TYPE_CHECKING:
    from watershed.replicator.partition_control import PartitionOrderKind

topic_option = click.option("-t", "--topic", default=None, help="Only this topic, by its name on the source.")
partition_option = click.option(
    "-p", "--partition", type=click.IntRange(0), default=None, help="Only this partition of the topic."
)
reason_option = click.option(
    "--reason", default="", metavar="TEXT", help="Why, for those who read `topology status`; with --topic."
)


@click.command(epilog="Example: topology flow move onprem-to-cloud orders.yaml --topic orders -p 3 --to host-2")
@click.argument("flow_id", metavar="FLOW")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("-t", "--topic", required=True, help="Topic name on the source.")
@partition_option
@click.option(
    "--to", "worker", default=None, metavar="WORKER",
    help="The worker, as `topology fleet status` names it; without the number at its end: whoever runs in that place.",
)  # fmt: skip
@click.option("--back", is_flag=True, help="The fleet places them again.")
@reason_option
@click.option(
    "--wait", "wait_s", type=click.FloatRange(0), default=60.0, show_default=True, metavar="SECONDS",
    help="How long to wait until the worker serves them.",
)  # fmt: skip
def move(
    flow_id: str,
    path: Path,
    topic: str,
    partition: int | None,
    worker: str | None,
    back: bool,
    reason: str,
    wait_s: float,
) -> int:
    """Have one worker serve a topic, or one partition of it, as long as that worker is there.

    The partition changes hands as in any rebalance: what is in flight is finished, and nothing is copied twice. When
    the worker is gone, others serve it. Flows that copy in transactions are refused. Exit code 0 when the worker serves
    what it was given, 3 when it did not in time; the order stands then.
    """
    if back == (worker is not None):
        raise click.UsageError("say where to: --to WORKER, or --back")
    return order_partitions(
        "release" if back else "move",
        flow_id,
        path,
        topic,
        partition,
        worker=worker or "",
        reason=reason,
        wait_s=wait_s,
    )


def order_partitions(
    kind: PartitionOrderKind,
    flow_id: str,
    path: Path,
    topic: str,
    partition: int | None,
    *,
    worker: str = "",
    reason: str = "",
    wait_s: float = 0.0,
) -> int:
    """Shows what the order is about, and gives it. Raises what giving it raises: that has the exit code."""
    from watershed.cutover.operations.partition_control import propose_partition_order
    from watershed.replicator.partition_control import PartitionOrder

    plan = compile_plan_at(path)
    order = PartitionOrder(kind, topic, partition, worker, reason)
    connect = build_settings_lookup(plan)
    proposal = propose_partition_order(plan, connect, flow_id, order, file=str(path), wait_s=wait_s)
    for line in proposal.lines:
        click.echo(line)
    for note in proposal.notes:
        click.echo(f"note: {note}", err=True)
    for line in proposal.carry_out(name_actor()):
        click.echo(line)
    return 0
