"""`topology trace`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from watershed.replicator.trace import RecordTrace, TraceHop


class _RecordPlaceParam(click.ParamType[tuple[str, int, int]]):
    """`TOPIC:PARTITION:OFFSET`; a topic's name has no colon."""

    name = "place"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int, int]:
        parts = str(value).split(":")
        if len(parts) != 3 or not parts[0] or not parts[1].isdecimal() or not parts[2].isdecimal():
            self.fail(f"{value}: say TOPIC:PARTITION:OFFSET, such as orders:3:81254", param, ctx)
        return parts[0], int(parts[1]), int(parts[2])


@click.command(epilog="Example: topology trace orders.yaml --cluster cloud orders:3:81254")
@click.argument("path", type=click.Path(path_type=Path))
@click.argument("place", type=_RecordPlaceParam(), metavar="TOPIC:PARTITION:OFFSET")
@click.option("--cluster", "alias", required=True, help="The cluster that the record is on, by its alias in the file.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def trace(path: Path, place: tuple[str, int, int], alias: str, form: str) -> int:
    """Follow one record back, flow by flow, to the cluster where an application wrote it.

    Reads batch headers, the registry of producer ids and the ledgers; works after compaction, and without any record
    header. Exits 1 when no record is at that offset, or when the trail ends before the birth place.
    """
    import json

    from watershed.cli.plan_settings import build_settings_lookup, compile_plan_at
    from watershed.replicator.trace import trace_record as traced

    plan = compile_plan_at(path)
    plan.cluster(alias)
    found = traced([each.alias for each in plan.clusters], build_settings_lookup(plan), alias, *place)
    if form == "json":
        click.echo(json.dumps(found.to_json(), indent=2))
    else:
        click.echo("\n".join(_lines(found)))
    return 0 if found.born else 1


def _lines(found: RecordTrace) -> Iterator[str]:
    width = max(len(f"{hop.cluster}  {hop.topic}-{hop.partition} @ {hop.offset}") for hop in found.hops)
    for hop in found.hops:
        where = f"{hop.cluster}  {hop.topic}-{hop.partition} @ {hop.offset}".ljust(width)
        yield f"{where}  {_how(hop)}"
        if hop.note:
            yield f"{'':{width}}  note: {hop.note}"
    if not found.born:
        yield f"the trail ends here: {found.why}"


def _how(hop: TraceHop) -> str:
    when = _time(hop.timestamp)
    if hop.flow is None:
        producer = f"producer id {hop.producer_id}" if hop.producer_id >= 0 else "no producer id"
        return f"born here: written by an application ({producer}; batch of {when})"
    if hop.kind == "adopted":
        return f"brought by another tool, and adopted by {hop.flow} (batch of {when})"
    how = "in transactions" if hop.kind == "transactions" else "by sequence numbers"
    return f"brought by {hop.flow} {how} (producer id {hop.producer_id}; batch of {when})"


def _time(timestamp: int) -> str:
    from datetime import UTC, datetime

    if timestamp < 0:
        return "no time"
    return datetime.fromtimestamp(timestamp / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")
