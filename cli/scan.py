"""`topology scan`: what the clusters hold, read-only, as an inventory and a planning report."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.output import writable, write_all
from cli.quantity import DURATION
from cli.report import estimates, form, readable, rendered

if TYPE_CHECKING:
    from clusters.errors import ClusterError
    from topology.inventory import InventoryCluster
    from topology.model import Topology

_AT_ONCE = 8


@click.command(epilog="Example: topology scan orders.yaml -o inventory.json --report report.html")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--cluster", "aliases", multiple=True, help="Only this cluster; may be repeated.  [default: all]")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the inventory here, not to stdout.")
@click.option("--sample", type=DURATION, default="5s", show_default=True, help="How long to watch logs grow; 0s: not.")
@click.option("--timeout", type=DURATION, default="15s", show_default=True, help="How long to wait for an answer.")
@click.option("--skip-unreachable", is_flag=True, help="Leave out clusters that do not answer; exits 3 then.")
@click.option(
    "--report", "page", type=click.Path(path_type=Path), help="A planning report for people: a .html or .md file."
)
@estimates
@click.pass_context
def scan(
    context: click.Context,
    path: Path,
    aliases: tuple[str, ...],
    output: Path | None,
    sample: int,
    timeout: int,
    skip_unreachable: bool,
    page: Path | None,
    rate: int | None,
    price_per_gib: float | None,
    idle_days: int,
) -> int:
    """Take an inventory of live clusters: brokers, topics, configs, sizes, rates, groups, ACLs, quotas.

    Read-only: nothing is created, altered, committed or joined. Works on a file with findings, as long as its clusters
    can be read. A cluster that does not answer ends the scan with exit code 2, and nothing is written.
    """
    from topology.inventory import Inventory
    from topology.inventory_json import inventory_json

    for file in (output, page):
        writable(file)
    form(page)
    topology = readable(path)
    found, missing = _scanned(topology, _chosen(topology, aliases), sample / 1000, timeout / 1000)
    unreachable = _skipped(missing, skip_unreachable)
    inventory = Inventory(found)
    files = {} if output is None else {output: inventory_json(inventory)}
    if page is not None:
        files[page] = rendered(topology, inventory, page, rate, price_per_gib, idle_days)
    write_all(files)
    if not context.obj or not context.obj.get("quiet"):
        for alias, cluster in found.items():
            click.echo(_line(alias, cluster), err=True)
    if output is None:
        click.echo(inventory_json(inventory), nl=False)
    return 3 if unreachable else 0


def _chosen(topology: Topology, aliases: tuple[str, ...]) -> tuple[str, ...]:
    """Raises UsageError for a cluster that the file does not have, and for a file without any."""
    if not topology.clusters:
        raise click.UsageError(f"{topology.file} has no clusters to scan")
    for alias in aliases:
        if alias not in topology.clusters:
            known = ", ".join(sorted(topology.clusters))
            raise click.UsageError(f"{topology.file} has no cluster `{alias}`; it has {known}")
    return tuple(dict.fromkeys(aliases)) or tuple(sorted(topology.clusters))


def _scanned(
    topology: Topology, aliases: tuple[str, ...], sample_s: float, timeout_s: float
) -> tuple[dict[str, InventoryCluster], list[ClusterError]]:
    """All clusters at once; what could not be scanned, with the reason. Secrets are looked up before any connection."""
    from clusters.errors import ClusterError
    from clusters.scan import scan as look
    from clusters.settings import connection_settings

    settings = {alias: connection_settings(topology.clusters[alias]) for alias in aliases}

    def one(alias: str) -> InventoryCluster | ClusterError:
        try:
            return look(settings[alias], sample_s=sample_s, timeout_s=timeout_s)
        except ClusterError as error:
            return error

    with ThreadPoolExecutor(min(_AT_ONCE, len(aliases))) as pool:
        answers = dict(zip(aliases, pool.map(one, aliases), strict=True))
    found = {alias: each for alias, each in answers.items() if not isinstance(each, ClusterError)}
    return found, [each for each in answers.values() if isinstance(each, ClusterError)]


def _skipped(missing: list[ClusterError], skip_unreachable: bool) -> bool:
    """Whether clusters are left out, which is said. Raises the first error that may not be skipped, with the others'
    messages."""
    from clusters.errors import Unreachable

    fatal = [error for error in missing if not (skip_unreachable and isinstance(error, Unreachable))]
    if fatal:
        for error in fatal[1:]:
            click.echo(f"topology: {error}", err=True)
        raise fatal[0]
    for error in missing:
        click.echo(f"skipped: {error}", err=True)
    return bool(missing)


def _line(alias: str, cluster: InventoryCluster) -> str:
    from topology.planning.amounts import counted, several, size
    from topology.planning.overview import overview

    seen = overview(cluster, top=0, idle_days=0)
    words = (
        f"Kafka {cluster.kafka or 'of an unknown release'}",
        counted(len(cluster.brokers), "broker"),
        counted(seen.topics, "topic"),
        counted(seen.partitions, "partition"),
        f"{size(seen.bytes)} stored",
        counted(len(cluster.groups), "group"),
    )
    gaps = several(tuple(line.partition(":")[0] for line in cluster.not_seen), 3)
    return f"{alias}: {', '.join(words)}" + (f"; not seen: {gaps}" if gaps else "")
