"""`topology scan`: what the clusters hold, read-only, as an inventory and a planning report."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.output_files import require_writable, write_output_files
from cli.quantity_param import DURATION_PARAM
from cli.report import add_estimate_options, find_report_format, read_scannable_topology, render_planning_report

if TYPE_CHECKING:
    from clusters.errors import ClusterError
    from topology.inventory import InventoryCluster
    from topology.model import Topology

_AT_ONCE = 8


@click.command(epilog="Example: topology scan orders.yaml -o inventory.json --report report.html")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--cluster", "aliases", multiple=True, help="Only this cluster; may be repeated.  [default: all]")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the inventory here, not to stdout.")
@click.option(
    "--sample", type=DURATION_PARAM, default="5s", show_default=True, help="How long to watch logs grow; 0s: not."
)
@click.option(
    "--timeout", type=DURATION_PARAM, default="15s", show_default=True, help="How long to wait for an answer."
)
@click.option("--skip-unreachable", is_flag=True, help="Leave out clusters that do not answer; exits 3 then.")
@click.option(
    "--report", "page", type=click.Path(path_type=Path), help="A planning report for people: a .html or .md file."
)
@add_estimate_options
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
    from topology.inventory_json import encode_inventory

    for file in (output, page):
        require_writable(file)
    find_report_format(page)
    topology = read_scannable_topology(path)
    found, missing = _scanned(topology, _chosen(topology, aliases), sample / 1000, timeout / 1000)
    unreachable = _skipped(missing, skip_unreachable)
    inventory = Inventory(found)
    files = {} if output is None else {output: encode_inventory(inventory)}
    if page is not None:
        files[page] = render_planning_report(topology, inventory, page, rate, price_per_gib, idle_days)
    write_output_files(files)
    if not context.obj or not context.obj.get("quiet"):
        for alias, cluster in found.items():
            click.echo(_line(alias, cluster), err=True)
    if output is None:
        click.echo(encode_inventory(inventory), nl=False)
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
    from clusters.inventory_scan import scan_cluster as look
    from clusters.settings import resolve_connection_settings

    settings = {alias: resolve_connection_settings(topology.clusters[alias]) for alias in aliases}

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
    from topology.planning.cluster_overview import summarise_cluster
    from topology.rounded_amounts import render_counted_noun, render_first_names, render_rounded_size

    seen = summarise_cluster(cluster, top=0, idle_days=0)
    words = (
        f"Kafka {cluster.kafka or 'of an unknown release'}",
        render_counted_noun(len(cluster.brokers), "broker"),
        render_counted_noun(seen.topics, "topic"),
        render_counted_noun(seen.partitions, "partition"),
        f"{render_rounded_size(seen.bytes)} stored",
        render_counted_noun(len(cluster.groups), "group"),
    )
    gaps = render_first_names(tuple(line.partition(":")[0] for line in cluster.not_seen), 3)
    return f"{alias}: {', '.join(words)}" + (f"; not seen: {gaps}" if gaps else "")
