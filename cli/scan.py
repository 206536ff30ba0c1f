"""`topology scan`: what the clusters hold, read-only, as an inventory and a planning report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from watershed.cli.cluster_batches import add_cluster_options, ask_clusters, choose_clusters, report_missing_clusters
from watershed.cli.output_files import require_writable, write_output_files
from watershed.cli.quantity_param import DURATION_PARAM
from watershed.cli.report import (
    add_estimate_options,
    find_report_format,
    read_scannable_topology,
    render_planning_report,
)

if TYPE_CHECKING:
    from watershed.topology.inventory import Inventory, InventoryCluster


@click.command(epilog="Example: topology scan orders.yaml -o inventory.json --report report.html")
@click.argument("path", type=click.Path(path_type=Path))
@add_cluster_options
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the inventory here, not to stdout.")
@click.option(
    "--sample", type=DURATION_PARAM, default="5s", show_default=True, help="How long to watch logs grow; 0s: not."
)
@click.option(
    "--timeout", type=DURATION_PARAM, default="15s", show_default=True, help="How long to wait for an answer."
)
@click.option("--update", is_flag=True, help="Keep what -o says of clusters that are not read now.")
@click.option(
    "--report", "page", type=click.Path(path_type=Path), help="A planning report: a .html, .md or .json file."
)
@add_estimate_options
@click.pass_context
def scan(
    context: click.Context,
    path: Path,
    aliases: tuple[str, ...],
    parallel: int,
    need_all: bool,
    output: Path | None,
    sample: int,
    timeout: int,
    update: bool,
    page: Path | None,
    rate: int | None,
    price_per_gib: float | None,
    idle_days: int,
) -> int:
    """Take an inventory of live clusters: brokers, topics, configs, sizes, rates, groups, ACLs, quotas.

    Read-only: nothing is created, altered, committed or joined. Works on a file with findings, as long as its clusters
    can be read; flows are not needed. A cluster that does not answer, refuses, or lacks its secret is named, also in
    the inventory; the others are written, and the exit code is 3. It is 2, and nothing is written, when none answers.
    """
    from watershed.clusters.inventory_scan import scan_cluster
    from watershed.topology.inventory import Inventory
    from watershed.topology.inventory_json import encode_inventory

    if update and output is None:
        raise click.UsageError("--update needs -o: the inventory that is brought up to date")
    for file in (output, page):
        require_writable(file)
    find_report_format(page)
    topology = read_scannable_topology(path)
    before = _read_before(output) if update and output is not None else Inventory({})
    found, missing = ask_clusters(
        topology,
        choose_clusters(topology, aliases),
        lambda settings: scan_cluster(settings, sample_s=sample / 1000, timeout_s=timeout / 1000),
        parallel,
    )
    report_missing_clusters(found, missing, need_all=need_all)
    inventory = before.with_scan(found, {alias: str(error) for alias, error in missing.items()})
    files = {} if output is None else {output: encode_inventory(inventory)}
    if page is not None:
        files[page] = render_planning_report(topology, inventory, page, rate, price_per_gib, idle_days)
    write_output_files(files)
    if not context.obj or not context.obj.get("quiet"):
        for alias, cluster in found.items():
            click.echo(_line(alias, cluster), err=True)
        if len(found) + len(missing) > 1:
            click.echo(_summary(found, tuple(sorted(missing))), err=True)
    if output is None:
        click.echo(encode_inventory(inventory), nl=False)
    return 3 if missing else 0


def _read_before(output: Path) -> Inventory:
    """What the file holds before the scan; nothing where there is none yet. Raises UnreadableInventory."""
    from watershed.topology.inventory import Inventory
    from watershed.topology.inventory_json import decode_inventory
    from watershed.topology.loader import read_text_file

    return decode_inventory(read_text_file(output)) if output.exists() else Inventory({})


def _line(alias: str, cluster: InventoryCluster) -> str:
    from watershed.topology.planning.cluster_overview import summarise_cluster
    from watershed.topology.rounded_amounts import render_counted_noun, render_first_names, render_rounded_size

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


def _summary(found: Mapping[str, InventoryCluster], missing: tuple[str, ...]) -> str:
    """All clusters in one line. What is not known is said beside the sum, and is not counted as nothing."""
    from watershed.topology.planning.cluster_overview import summarise_cluster
    from watershed.topology.rounded_amounts import render_counted_noun, render_first_names, render_rounded_size

    seen = [summarise_cluster(cluster, top=0, idle_days=0) for cluster in found.values()]
    unsized = sum(topic.size_bytes is None for cluster in found.values() for topic in cluster.topics.values())
    words = (
        render_counted_noun(sum(each.topics for each in seen), "topic"),
        render_counted_noun(sum(each.partitions for each in seen), "partition"),
        f"{render_rounded_size(sum(each.bytes or 0 for each in seen))} stored"
        + (f" (and {render_counted_noun(unsized, 'topic')} of unknown size)" if unsized else ""),
        render_counted_noun(sum(len(cluster.groups) for cluster in found.values()), "group"),
    )
    said = f"read {len(found)} of {render_counted_noun(len(found) + len(missing), 'cluster')}: {', '.join(words)}"
    return f"{said}; missing: {render_first_names(missing, 20)}" if missing else said
