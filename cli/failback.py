"""`topology failback`: back to the old primary, along the flow back; what only the old one has is listed first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from watershed.cli.output_files import require_writable, write_output_files
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
    from watershed.clusters.topic_partition import TopicPartition
    from watershed.cutover.run_plan import RunPlan
    from watershed.replicator.batch.records import RawRecord


@click.command(epilog="Example: topology failback orders.yaml --report only-old.jsonl")
@add_run_options("The wave (or waves, `a+b`) that was promoted.  [default: that of the newest failover]")
@click.option("--divergence", type=click.Choice(["refuse", "skip", "reread"]), default="refuse", show_default=True,
              help="Records that only the old primary has stay in its log: groups go on behind them (skip), or in "
              "front of them and read again what follows (reread).")  # fmt: skip
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), default=None, metavar="FILE",
              help="Only write the coordinates of each such record to FILE (JSON lines), and stop.")  # fmt: skip
@click.option("--reveal", is_flag=True, help="With --report: keys, values and headers, too; they may be confidential.")
def failback(wanted: RunOptions, divergence: str, report: Path | None, reveal: bool) -> int:
    """Take applications back to the old primary after a failover, with everything that was written since.

    Records that the old primary held when it died and nobody had copied are named by offset; they are never merged. The
    flow back then carries what the new primary took, it is proven, and applications return: producers are fenced, the
    rest is drained and proven, groups are translated back, consumers and producers start at the old primary.
    """
    from watershed.cutover.run_choice import RunChoice, plan_run, preview_run

    if reveal and report is None:
        raise click.UsageError("--reveal goes with --report")
    require_writable(report)
    plan, stranded = compile_for_run(wanted), None if divergence == "refuse" else divergence
    choice = RunChoice("failback", wanted.wave, stranded=stranded)  # type: ignore[arg-type]
    if wanted.dry_run:
        return show_run_plan(plan, preview_run(plan, choice), wanted.form)
    settings = resolve_migration_settings(plan)
    run_plan = plan_run(plan, choice, read_target_journal(plan, settings))
    if report is not None:
        return _report(run_plan, settings, report, reveal=reveal, form=wanted.form)
    return drive_run(plan, run_plan, settings, wanted, {"approval"})


def _report(run_plan: RunPlan, settings: dict[str, ConnectionSettings], path: Path, *, reveal: bool, form: str) -> int:
    from watershed.cutover.failover.failback_plan import find_copied_ends
    from watershed.replicator.recovery.divergence import read_divergent_records

    old = settings[run_plan.flow.target]
    rows = [
        _row(place, record, reveal=reveal) for place, record in read_divergent_records(old, find_copied_ends(run_plan))
    ]
    write_output_files({path: "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)})
    if form == "json":
        click.echo(json.dumps({"schema": 1, "cluster": old.alias, "records": len(rows), "report": str(path)}, indent=2))
    else:
        click.echo(f"{len(rows)} records are only at {old.alias}: {path}")
    return 0


def _row(place: TopicPartition, record: RawRecord, *, reveal: bool) -> dict[str, Any]:
    from watershed.replicator.batch.records import decode_record_fields

    row: dict[str, Any] = {
        "topic": place.topic,
        "partition": place.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    if reveal:
        found = decode_record_fields(record.rest)
        row |= {"key": _text(found.key), "value": _text(found.value)}
        row["headers"] = [[_text(name), _text(value)] for name, value in found.headers]
    return row


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode(errors="backslashreplace")
