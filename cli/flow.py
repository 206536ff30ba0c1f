"""`topology flow`: the desired state of one flow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.plans import connector, plan_at

if TYPE_CHECKING:
    from clusters.flows import FlowState

_WANTED: dict[str, FlowState] = {"pause": "paused", "resume": "running", "stop": "stopped", "restart": "running"}


@click.command(epilog="Example: topology flow pause onprem-to-cloud orders.yaml")
@click.argument("order", type=click.Choice(list(_WANTED)))
@click.argument("flow_id", metavar="FLOW")
@click.argument("path", type=click.Path(path_type=Path))
def flow(order: str, flow_id: str, path: Path) -> int:
    """Pause, resume, stop or restart a flow.

    Workers follow within a second. Positions are kept in every case; `restart` also makes partitions that stopped
    loudly look at their logs again.
    """
    from clusters.control import ControlWriter
    from clusters.flows import read_flows, write_flow

    plan = plan_at(path)
    target = connector(plan)(plan.flow(flow_id).target)
    record = read_flows(target).get(flow_id)
    if record is None:
        raise click.UsageError(f"flow {flow_id} was never applied to {target.alias}; run `topology apply {path}` first")
    changed = record.with_state(_WANTED[order])
    if order == "restart":
        changed = replace(changed, generation=record.generation + 1)
    if changed == record:
        click.echo(f"{flow_id} is {record.state} already")
        return 0
    with ControlWriter(target, client_id="watershed-flow") as writer:
        write_flow(writer, changed)
    click.echo(f"{flow_id}: {record.state} -> {changed.state}" + (" (restarted)" if order == "restart" else ""))
    return 0
