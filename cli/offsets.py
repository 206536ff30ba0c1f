"""`topology offsets`: exact translation between source and target."""

from __future__ import annotations

import json
from pathlib import Path

import click

from cli.plans import connector, plan_at


@click.group()
def offsets() -> None:
    """Translate offsets exactly, either way."""


@offsets.command(epilog="Example: topology offsets translate orders.yaml --flow a-to-b -t orders -p 0 --offset 42")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--flow", "flow_id", required=True, help="The flow that copied the record.")
@click.option("-t", "--topic", required=True, help="Topic name on the source (or on the target).")
@click.option("-p", "--partition", type=click.IntRange(0), required=True)
@click.option("-o", "--offset", type=click.IntRange(0), required=True, help="The offset to translate.")
@click.option("--reverse", is_flag=True, help="From target to source.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def translate(path: Path, flow_id: str, topic: str, partition: int, offset: int, reverse: bool, form: str) -> int:
    """Where a reader at OFFSET continues on the other cluster.

    An offset in a gap (transaction marker, aborted or compacted record) gives the next record. An offset that is
    not copied yet is refused (exit code 1).
    """
    from clusters.admin import Admin
    from clusters.names import TopicPartition
    from replicator.errors import ReplicatorError
    from replicator.ledger import read_ledger

    plan = plan_at(path)
    flow = plan.flow(flow_id)
    target = connector(plan)(flow.target)
    found = read_ledger(target, flow=flow_id).map(flow_id, topic, partition)
    target_topic = flow.target_topic(topic) if flow.selects(topic) else topic
    where = TopicPartition(target_topic, partition)
    with Admin(target) as admin:
        end = admin.offsets([where], "read_uncommitted")[where].end
    if reverse:
        if offset > end:
            raise ReplicatorError(f"{where} on {target.alias} ends at offset {end}; {offset} lies behind that")
        translated = found.to_source(offset)
    else:
        translated = found.to_target(offset, end)
    if form == "json":
        answer = {
            "schema": 1,
            "flow": flow_id,
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "translated": translated,
            "reverse": reverse,
        }
        click.echo(json.dumps(answer))
    else:
        click.echo(translated)
    return 0
