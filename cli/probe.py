"""`topology probe`: what a cluster can do, tried on a topic of its own."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from watershed.cli.output_files import require_writable, write_output_files

if TYPE_CHECKING:
    from types import FrameType

    from watershed.topology.cluster_capabilities import TriedCapability


@click.command(epilog="Example: topology probe orders.yaml --cluster cloud -o cloud.json")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--cluster", "alias", required=True, help="The cluster to try.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write the capability record here, for `lint --inventory … --capabilities` and `plan --capabilities`.",
)
def probe(path: Path, alias: str, form: str, output: Path | None) -> int:
    """Try on a topic of our own what a cluster does: idempotence, whether sequence numbers are checked, transactions,
    markers, DeleteRecords, DescribeProducers, timestamps, log ends, compaction, checksums, the largest batch, batches
    byte for byte.

    Creates one topic (watershed.probe-…), writes up to 32 MiB to it and deletes it, also after an error and Ctrl-C.
    Needs CREATE, DELETE, WRITE, READ, DESCRIBE_CONFIGS and ALTER_CONFIGS on topics of that prefix, and WRITE on
    transactional ids that begin with `watershed-probe|`; markers need ALTER on the cluster. With DESCRIBE_CONFIGS on
    the cluster it sees beforehand whether brokers delete topics at all. What a missing right keeps from being tried
    is `null` in the record. Exits 1 when something does not work.
    """
    from watershed.cli.report import read_scannable_topology
    from watershed.clusters.settings import resolve_connection_settings
    from watershed.replicator.capability_probe import probe_cluster
    from watershed.replicator.probe_topic import find_left_topics
    from watershed.topology.inventory_json import encode_capability_record

    require_writable(output)
    topology = read_scannable_topology(path)
    if alias not in topology.clusters:
        known = ", ".join(sorted(topology.clusters)) or "none"
        raise click.UsageError(f"{topology.file} has no cluster `{alias}`; it has {known}")
    settings = resolve_connection_settings(topology.clusters[alias])
    for name in find_left_topics(settings):
        click.echo(f"topic {name} at {alias} is of a probe that was killed, or of one that runs: delete it", err=True)
    before = {number: signal.signal(number, _interrupt_once) for number in _list_signals()}
    try:
        found = probe_cluster(settings, _print_result if form == "text" else lambda _name, _tried: None)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    record = encode_capability_record(found)
    if output is not None:
        write_output_files({output: record})
    if form == "json":
        click.echo(record, nl=False)
    else:
        click.echo(f"{alias}: {found.releases}, {found.answered} of {found.brokers} brokers answered")
    return int(any(each.works is False for each in found.tried.values()))


def _print_result(name: str, tried: TriedCapability) -> None:
    word = {True: "works", False: "does not work", None: "not tried"}[tried.works]
    click.echo(f"{name:<20} {word:<14} {tried.told}")


def _list_signals() -> list[signal.Signals]:
    """Those that end a probe. A terminal that is closed sends SIGHUP; under `nohup` it stays ignored."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([] if is_ignored else [signal.SIGHUP])]


def _interrupt_once(_number: int, _frame: FrameType | None) -> None:
    """The topic is deleted then; a second interrupt must not keep it from that."""
    for number in _list_signals():
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
