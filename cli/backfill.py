"""`topology backfill`: a bounded copy of a selection, by a worker that ends with it."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from watershed.cli.plan_settings import build_settings_lookup, compile_plan_at
from watershed.cli.quantity_param import RATE_PARAM
from watershed.topology.shell_command import render_shell_command

if TYPE_CHECKING:
    from watershed.clusters.partition_status_records import PartitionStatus
    from watershed.clusters.settings import ConnectionSettings
    from watershed.cutover.operations.backfill import BackfilledPartition, BackfillPlan

_EVERY_S = 2.0
_TOLD_S = 10.0  # between two lines of progress
_LOOKS = 6  # some halted partitions go on by themselves


@click.command(epilog="Example: topology backfill orders.yaml --flow onprem-to-cloud --from 2026-11-01T00:00:00Z "
               "--to 2026-12-01T00:00:00Z --dry-run")  # fmt: skip
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--flow", "flow_id", required=True, help="The flow of the file that copies.")
@click.option("--from", "start", required=True, metavar="PLACE",
              help="earliest, an instant (its first record), group:NAME, or TOPIC:PARTITION:OFFSET,…")  # fmt: skip
@click.option("--to", "end", required=True, metavar="PLACE",
              help="Not copied any more: latest, an instant, or TOPIC:PARTITION:OFFSET,…")  # fmt: skip
@click.option("--topics", multiple=True, metavar="GLOB,GLOB", help="Only these topics of the flow.  [default: all]")
@click.option("--max-rate", type=RATE_PARAM, metavar="RATE", help="Copy no faster, e.g. 50MiB/s.")
@click.option("--dry-run", is_flag=True, help="Say what would be copied, how much, and how long it takes.")
@click.option("--yes", is_flag=True, help="Do not ask; needed where there is no terminal.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def backfill(
    path: Path,
    flow_id: str,
    start: str,
    end: str,
    topics: tuple[str, ...],
    max_rate: int | None,
    dry_run: bool,
    yes: bool,
    form: str,
) -> int:
    """Copy a part of a flow's topics, in order and each record once, and end.

    The flow is applied with these bounds, and a worker copies until every partition is complete; other workers of the
    file's fleet help. Run the same command again after a kill: it goes on where it stopped. Afterwards `topology apply`
    lets the flow go on behind it, without a gap or a repeat. Into topics that the flow has copied already, only what
    follows can be copied: a log grows at its end only.

    Exit code 0: complete; 1: partitions have halted, each is named with what to do; 2: refused. Needs what `topology
    apply` and `topology worker` need.
    """
    from watershed.cli.confirmation import require_confirmation
    from watershed.cutover.operations import backfill as filling
    from watershed.replicator.apply import apply_plan

    names = tuple(name.strip() for text in topics for name in text.split(",") if name.strip())
    asked = filling.BackfillRequest(
        flow_id, filling.parse_backfill_start(start), filling.parse_backfill_end(end), names, max_rate, str(path)
    )
    plan = compile_plan_at(path)
    filling.require_boundable(path, asked)
    connect = build_settings_lookup(plan)
    found = filling.plan_backfill(plan, connect, asked)
    source, target = connect(found.flow.source), connect(found.flow.target)
    lines, document = _describe(found, source)
    if dry_run:
        click.echo(json.dumps(document, indent=2) if form == "json" else "\n".join(lines))
        return 0
    for line in lines:
        click.echo(line, err=True)
    if not yes:
        require_confirmation("Copy this?")
    apply_plan(
        found.plan, connect, lambda change: click.echo(f"{change.cluster}: {change.what} {change.name}", err=True)
    )
    watch = _Watch(target, found, str(path))
    _work(found, target, connect, watch)
    halted = watch.halted
    result = {**document, "complete": not watch.open, "halted": halted}
    done = f"complete: {len(found.partitions)} partitions; `topology apply {path}` lets {flow_id} go on behind them"
    if form == "json":
        click.echo(json.dumps(result, indent=2))
    elif not watch.open:
        click.echo(done)
    for line in halted:
        click.echo(line, err=True)
    if watch.open and not halted:
        click.echo(f"{len(watch.open)} partitions are not complete; run the same command again to go on", err=True)
    return 1 if halted or watch.open else 0


def _describe(found: BackfillPlan, source: ConnectionSettings) -> tuple[list[str], dict[str, Any]]:
    """What would be copied, as lines and as a document."""
    from watershed.cutover.operations.backfill import estimate_backfill_bytes
    from watershed.spark.judging.partition_sizes import read_partition_bytes
    from watershed.topology.rounded_amounts import render_rounded_size

    sizes = read_partition_bytes(source, {part.key.topic for part in found.partitions})
    size = estimate_backfill_bytes(found.partitions, {(at.topic, at.partition): each for at, each in sizes.items()})
    offsets, rate = sum(part.left for part in found.partitions), found.flow.quota
    seconds = None if size is None or rate is None else round(size / rate)
    lines = [_describe_partition(part) for part in found.partitions]
    about = "an unknown size (no broker tells it)" if size is None else f"about {render_rounded_size(size)}"
    takes = "" if seconds is None else f", {seconds:,} s at the rate limit"
    lines.append(f"{found.flow.id}: {offsets:,} offsets, {about}{takes}")
    document = {
        "schema": 1,
        "flow": found.flow.id,
        "offsets": offsets,
        "bytes": size,
        "rate_bytes": rate,
        "seconds": seconds,
        "partitions": [
            {
                "topic": part.key.topic,
                "target_topic": part.key.target_topic,
                "partition": part.key.partition,
                "first": part.first,
                "end": part.end,
                "position": None if part.position < 0 else part.position,
            }
            for part in found.partitions
        ],
    }
    return lines, document


def _describe_partition(part: BackfilledPartition) -> str:
    begun = "" if part.position < 0 else f", copied through {part.position} already"
    return (
        f"{part.key.topic}-{part.key.partition} -> {part.key.target_topic}: offsets {part.first} to {part.end}{begun}"
    )


class _Watch:
    """Follows what is written down of the partitions, and says when all are complete or none of the rest goes on."""

    def __init__(self, target: ConnectionSettings, found: BackfillPlan, file: str) -> None:
        self._target, self._found, self._file = target, found, file
        self._began_ms, self._told = int(time.time() * 1000), time.monotonic()
        self.open: list[BackfilledPartition] = list(found.partitions)
        self.halted: list[str] = []
        self._stands = 0  # looks in a row at which none of them went on

    def look(self) -> bool:
        """Whether there is nothing to wait for any more. Raises ClusterError."""
        from watershed.clusters.partition_status_records import read_partition_statuses
        from watershed.cutover.operations.backfill import find_open_partitions
        from watershed.replicator.partition_states import PAUSED
        from watershed.replicator.worker.flow_state import is_halted

        self.open, _ = find_open_partitions(self._target, self._found)
        reports = {
            (each.topic, each.partition): each
            for each in read_partition_statuses(self._target)
            if each.flow == self._found.flow.id and each.at_ms >= self._began_ms
        }
        told = [reports.get((part.key.topic, part.key.partition)) for part in self.open]
        self.halted = [
            _describe_halt(each, self._file)
            for each in told
            if each is not None and (is_halted(each.state) or each.state == PAUSED)
        ]
        if time.monotonic() - self._told >= _TOLD_S:
            self._told = time.monotonic()
            click.echo(self._describe_progress(reports), err=True)
        self._stands = self._stands + 1 if len(self.halted) == len(self.open) else 0
        return not self.open or self._stands >= _LOOKS

    def _describe_progress(self, reports: Mapping[tuple[str, int], PartitionStatus]) -> str:
        parts = self._found.partitions
        still = {part.key for part in self.open}
        left = 0
        for part in self.open:
            report = reports.get((part.key.topic, part.key.partition))
            at = part.first if report is None else max(report.source_position, part.first)
            left += max(0, part.end - max(at, part.position))
        rate = sum(each.rate_bytes for each in reports.values())
        done = f"{len(parts) - len(still)} of {len(parts)} partitions complete"
        return f"{done}, {left:,} offsets left, {rate / 1e6:.1f} MB/s"


def _describe_halt(report: PartitionStatus, file: str) -> str:
    from watershed.replicator.partition_states import PAUSED

    if report.state == PAUSED:
        return (
            f"{report.topic}-{report.partition}: paused by a person; "
            f"`{render_shell_command('topology', 'status', file)}` says by whom, and how it goes on"
        )
    remedy = f"\n  what to do: {report.remedy}" if report.remedy else ""
    return f"{report.topic}-{report.partition}: {report.state}: {report.error}{remedy}"


def _work(
    found: BackfillPlan, target: ConnectionSettings, connect: Callable[[str], ConnectionSettings], watch: _Watch
) -> None:
    """Serves the fleet's flows until the watch has nothing to wait for, or somebody stops it."""
    from watershed.replicator.worker.worker import run_worker

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with ThreadPoolExecutor(1, thread_name_prefix="follow") as pool:
        following = pool.submit(_follow, watch, stop)
        try:
            run_worker(
                target,
                connect,
                topology=found.plan.topology,
                worker_id=f"{socket.gethostname()}-{os.getpid()}",
                stop=stop,
                plan_hash=found.plan.hash,
            )
        finally:
            stop.set()
        following.result()


def _follow(watch: _Watch, stop: threading.Event) -> None:
    """Looks until nothing is left to wait for, and ends the worker then, or when it cannot look any more."""
    from watershed.clusters.errors import ClusterError

    try:
        while not stop.is_set():
            try:
                if watch.look():
                    return
            except ClusterError as error:  # the worker waits for the cluster, too
                click.echo(f"not seen: {error}", err=True)
            stop.wait(_EVERY_S)
    finally:
        stop.set()
