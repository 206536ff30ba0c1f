"""`topology offsets translate` and `map`: lookups in the offset map of one partition, by one read of the ledger."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import dropwhile, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from watershed.cli.plan_settings import build_settings_lookup, compile_plan_at

if TYPE_CHECKING:
    from watershed.clusters.cluster_protocol import TopicDescription
    from watershed.clusters.topic_partition import TopicPartition
    from watershed.replicator.ledger.offset_map import OffsetMap
    from watershed.topology.plan import PlanFlow

_path = click.argument("path", type=click.Path(path_type=Path))
_flow = click.option("--flow", "flow_id", required=True, help="The flow that copied the record.")
_topic = click.option("-t", "--topic", required=True, help="Topic name on the source (or on the target).")
_partition = click.option("-p", "--partition", type=click.IntRange(0), required=True)
_form = click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)


@click.command(epilog="Example: topology offsets translate orders.yaml --flow a-to-b -t orders -p 0 --offset 42")
@_path
@_flow
@_topic
@_partition
@click.option(
    "-o", "--offset", "asked", type=click.IntRange(0), multiple=True, help="Offset to translate (repeatable)."
)
@click.option("--file", "listed", type=click.File(), help="Offsets to translate, one a line; - is standard input.")
@click.option("--reverse", is_flag=True, help="From target to source.")
@_form
def translate(
    path: Path,
    flow_id: str,
    topic: str,
    partition: int,
    asked: tuple[int, ...],
    listed: Iterable[str] | None,
    reverse: bool,
    form: str,
) -> int:
    """Where a reader at OFFSET continues on the other cluster.

    An offset in a gap (transaction marker, aborted or compacted record) gives the next record. An offset that is
    not copied yet is refused (exit code 1). Several offsets are translated by one read of the ledger: a line for each
    with both offsets, and what is wrong with those that have no translation.
    """
    from watershed.replicator.errors import ReplicatorError

    several = listed is not None or len(asked) > 1
    wanted = [*asked, *(() if listed is None else _offsets(listed))]
    if not wanted:
        raise click.UsageError("no offset to translate; give --offset N, or --file with one a line")
    known = _known(path, flow_id, topic, partition)
    about = {"schema": 1, "flow": flow_id, "topic": topic, "partition": partition}
    if not several:
        translated = known.translated(wanted[0], reverse)
        answer = about | {"offset": wanted[0], "translated": translated, "reverse": reverse}
        click.echo(json.dumps(answer) if form == "json" else translated)
        return 0
    rows: list[dict[str, Any]] = []
    for offset in wanted:
        try:
            rows.append({"offset": offset, "translated": known.translated(offset, reverse)})
        except ReplicatorError as error:
            rows.append({"offset": offset, "translated": None, "error": str(error)})
    if form == "json":
        click.echo(json.dumps(about | {"reverse": reverse, "translations": rows}))
    else:
        for row in rows:
            click.echo(f"{row['offset']}\t{row['translated'] if 'error' not in row else '-'}")
    refused = [row for row in rows if "error" in row]
    for row in refused if form == "text" else ():
        click.echo(row["error"], err=True)
    return 1 if refused else 0


@click.command("map", epilog="Example: topology offsets map orders.yaml --flow a-to-b -t orders -p 0 --from 40000")
@_path
@_flow
@_topic
@_partition
@click.option("--from", "first", type=click.IntRange(0), default=0, help="Begin at this source offset.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Runs to show at most.")
@_form
def show_map(path: Path, flow_id: str, topic: str, partition: int, first: int, limit: int, form: str) -> int:
    """The offset map of one partition as a table: which source offsets stand at which target offsets.

    One line is a run: consecutive source offsets at consecutive target offsets. `left out` counts the source offsets
    between it and the run before: markers, aborted and compacted records, and what a guard or the quarantine kept back.
    """
    known = _known(path, flow_id, topic, partition)
    end, copied = known.end, known.map.source_position(known.end)
    stretches = dropwhile(lambda each: each.source + each.records <= first, known.map.stretches(end))
    shown = list(islice(stretches, limit + 1))
    more, shown = len(shown) > limit, shown[:limit]
    if form == "json":
        answer = {
            "schema": 1,
            "flow": flow_id,
            "topic": topic,
            "partition": partition,
            "target": str(known.where),
            "target_end": end,
            "copied_through": copied,
            "runs": [{"source": s.source, "target": s.target, "records": s.records} for s in shown],
            "more": more,
        }
        click.echo(json.dumps(answer))
        return 0
    rows = [("source", "target", "records", "left out")]
    before: int | None = None
    for target, source, records in shown:
        left_out = "" if before is None else f"{source - before:,}"
        rows.append((_range(source, records), _range(target, records), f"{records:,}", left_out))
        before = source + records
    widths = [max(len(row[at]) for row in rows) for at in range(4)]
    for row in rows:
        click.echo("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    if more:
        click.echo(f"… more; go on with --from {shown[-1].source + shown[-1].records}, or a larger --limit")
    click.echo(f"copied through source offset {copied}; {known.where} ends at {end}")
    return 0


@dataclass(frozen=True, slots=True)
class _Known:
    """The map of a partition, and where its target ends."""

    map: OffsetMap
    where: TopicPartition
    target: str
    end: int

    def translated(self, offset: int, reverse: bool) -> int:
        """Raises ReplicatorError."""
        from watershed.replicator.errors import ReplicatorError

        if not reverse:
            return self.map.to_target(offset, self.end)
        if offset > self.end:
            error = ReplicatorError(
                f"{self.where} on {self.target} ends at offset {self.end}; {offset} lies behind that, where nothing "
                "is copied yet"
            )
            error.exit_code = 1  # as NotCopied, the other way round
            raise error
        return self.map.to_source(offset)


def _known(path: Path, flow_id: str, topic: str, partition: int) -> _Known:
    """Reads only the partition of the ledger that the map is in. Raises what reading raises, and NoLedger."""
    from watershed.clusters.admin import Admin
    from watershed.clusters.control_topics import compute_slot
    from watershed.clusters.topic_partition import TopicPartition
    from watershed.replicator.ledger.ledger import read_ledger

    plan = compile_plan_at(path)
    flow = plan.flow(flow_id)
    target = build_settings_lookup(plan)(flow.target)
    source_topic = topic if flow.selects(topic) else flow.source_topic(topic)
    slots = None if source_topic is None else [compute_slot(flow_id, source_topic, partition)]
    where = TopicPartition(flow.target_topic(topic) if flow.selects(topic) else topic, partition)
    # The end first: runs are announced before their batches are written, so the map covers it.
    with Admin(target) as admin:
        there = admin.topic(where.topic)
        if there is None or partition >= there.partitions:
            raise click.UsageError(_nowhere(flow, where, there))
        end = admin.offsets([where], "read_uncommitted")[where].end
    return _Known(
        read_ledger(target, flow=flow_id, slots=slots).map(flow_id, topic, partition), where, flow.target, end
    )


def _nowhere(flow: PlanFlow, where: TopicPartition, there: TopicDescription | None) -> str:
    """Why the flow cannot have copied anything to this partition."""
    if there is None:
        return (
            f"{flow.target} has no topic {where.topic}. Check the name; if it is right, nothing is copied yet: "
            "`topology apply` creates it, and `topology status` shows what runs"
        )
    return f"{where.topic} on {flow.target} has {there.partitions} partitions, counted from 0: there is no {where}"


def _offsets(lines: Iterable[str]) -> Sequence[int]:
    """One offset a line; empty lines and what stands behind a # do not count. Raises UsageError."""
    found = []
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        if not (text.isascii() and text.isdigit()) or int(text) >= 1 << 63:
            raise click.UsageError(f"--file, line {number}: `{text[:40]}` is no offset; write one whole number a line")
        found.append(int(text))
    return found


def _range(first: int, records: int) -> str:
    return f"{first}-{first + records - 1}" if records > 1 else str(first)
