"""`topology flow`: the desired state of one flow, and decisions about its partitions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from watershed.cli.actor import name_actor
from watershed.cli.flow_adopt import adopt
from watershed.cli.flow_decisions import accept_gap, copy_foreign, prune, reseed
from watershed.cli.flow_partitions import move, order_partitions, partition_option, reason_option, topic_option
from watershed.cli.plan_settings import build_settings_lookup, compile_plan_at

if TYPE_CHECKING:
    from watershed.replicator.copy.quarantine import QuarantinedRecord
    from watershed.replicator.flow_state_order import FlowOrder

_ORDERS: tuple[tuple[FlowOrder, str], ...] = (
    ("stop", "Copy nothing more; positions are kept."),
    ("restart", "Go on, and look again at partitions that stopped loudly."),
)


@click.group(epilog="Example: topology flow pause onprem-to-cloud orders.yaml")
def flow() -> None:
    """Pause, resume, stop or restart a flow; pause or move single partitions; decide about those that stopped loudly;
    go on behind another copier.

    Workers follow within a second. Positions are kept in every case; `restart` also makes partitions that stopped
    loudly look at their logs again.
    """


def _desired(order: FlowOrder, meaning: str) -> click.Command:
    @click.command(order, help=meaning, epilog=f"Example: topology flow {order} onprem-to-cloud orders.yaml")
    @click.argument("flow_id", metavar="FLOW")
    @click.argument("path", type=click.Path(path_type=Path))
    def command(flow_id: str, path: Path) -> int:
        return _want(order, flow_id, path)

    return command


for _order, _meaning in _ORDERS:
    flow.add_command(_desired(_order, _meaning))
flow.add_command(move)
flow.add_command(accept_gap)
flow.add_command(reseed)
flow.add_command(copy_foreign)
flow.add_command(adopt)
flow.add_command(prune)


def _want(order: FlowOrder, flow_id: str, path: Path) -> int:
    from watershed.cutover.operations.flow_state import give_flow_order, list_order_notes
    from watershed.cutover.operations.moved_applications import refuse_end_of_way_back

    plan = compile_plan_at(path)
    connect = build_settings_lookup(plan)
    if order == "stop":
        refuse_end_of_way_back(plan, connect, {flow_id})
    for line in give_flow_order(connect(plan.flow(flow_id).target), flow_id, order, name_actor()):
        click.echo(line)
    for note in list_order_notes(plan, connect, order):  # behind the order, which may be urgent
        click.echo(f"note: {note}", err=True)
    return 0


@flow.command(epilog="Example: topology flow pause onprem-to-cloud orders.yaml --topic orders --partition 3")
@click.argument("flow_id", metavar="FLOW")
@click.argument("path", type=click.Path(path_type=Path))
@topic_option
@partition_option
@reason_option
def pause(flow_id: str, path: Path, topic: str | None, partition: int | None, reason: str) -> int:
    """Copy nothing more for now, of the flow, of one topic or of one partition; positions are kept.

    A paused topic or partition stays paused over restarts of the workers and after `topology apply`, until `topology
    flow resume` names it. `topology status` says who paused it, when and why. Until then no migration of its topic
    begins, and a proof calls what is not copied unproven.
    """
    if topic is None:
        if partition is not None or reason:
            raise click.UsageError("--partition and --reason are about a topic: name it with --topic")
        return _want("pause", flow_id, path)
    return order_partitions("pause", flow_id, path, topic, partition, reason=reason)


@flow.command(epilog="Example: topology flow resume onprem-to-cloud orders.yaml --topic orders")
@click.argument("flow_id", metavar="FLOW")
@click.argument("path", type=click.Path(path_type=Path))
@topic_option
@partition_option
def resume(flow_id: str, path: Path, topic: str | None, partition: int | None) -> int:
    """Go on where it was paused or stopped: the flow, one topic with all of its partitions, or one partition.

    Without --topic the flow goes on, and what was paused alone stays paused.
    """
    if topic is None:
        if partition is not None:
            raise click.UsageError("--partition is about a topic: name it with --topic")
        return _want("resume", flow_id, path)
    return order_partitions("resume", flow_id, path, topic, partition)


@flow.command(epilog="Example: topology flow quarantined onprem-to-cloud orders.yaml --topic orders")
@click.argument("flow_id", metavar="FLOW")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("-t", "--topic", default=None, help="Only this source topic.")
@click.option("--reveal", is_flag=True, help="Show keys, values and headers, too; they may be confidential.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def quarantined(flow_id: str, path: Path, topic: str | None, reveal: bool, form: str) -> int:
    """List the records that the target did not take, with their source coordinates and the reason.

    They are in the topic watershed.quarantine of the target cluster; nothing deletes them. Values are only shown with
    --reveal.
    """
    from watershed.replicator.copy.quarantine import read_quarantine

    plan = compile_plan_at(path)
    found = read_quarantine(build_settings_lookup(plan)(plan.flow(flow_id).target), flow_id)
    shown = [each for each in found if topic in (None, each.topic)]
    if form == "json":
        rows = [_row(each, reveal) for each in shown]
        click.echo(json.dumps({"schema": 1, "flow": flow_id, "count": len(rows), "records": rows}, indent=2))
        return 0
    for each in shown:
        row = _row(each, reveal)
        click.echo(
            f"{each.topic}-{each.partition} offset {each.offset}  {row['time']}  {each.size:,} bytes  {row['reason']}"
        )
        if not each.whole:
            click.echo("  only these coordinates are kept: it was too large for the quarantine as well")
        elif reveal:
            click.echo(f"  key {row['key']}  headers {row['headers']}\n  value {row['value']}")
    click.echo(f"{len(shown)} records of {flow_id} are in quarantine")
    return 0


def _row(each: QuarantinedRecord, reveal: bool) -> dict[str, Any]:
    from watershed.topology.text_escaping import escape_controls

    row: dict[str, Any] = {
        "topic": each.topic,
        "target_topic": each.target_topic,
        "partition": each.partition,
        "offset": each.offset,
        "timestamp": each.timestamp,
        "time": _when(each.timestamp),
        "size": each.size,
        "whole": each.whole,
        "reason": escape_controls(each.reason),
    }
    if reveal:
        row |= {"key": _text(each.key), "value": _text(each.value)}
        row["headers"] = [[escape_controls(name), _text(value)] for name, value in each.headers]
    return row


def _when(timestamp: int) -> str:
    """A timestamp out of any range is why many a record is here."""
    from datetime import UTC, datetime, timedelta

    try:
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp)
    except OverflowError:
        return f"timestamp {timestamp}"
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")


def _text(content: bytes | None) -> str | None:
    from watershed.topology.text_escaping import escape_controls

    return None if content is None else escape_controls(content.decode(errors="backslashreplace"))
