"""`topology clients`: who uses the clusters, from the brokers' own view and from their request logs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from watershed.cli.client_sources import ClientRounds, list_request_logs, read_request_logs
from watershed.cli.cluster_batches import add_cluster_options, choose_clusters, report_missing_clusters
from watershed.cli.output_files import require_writable, write_output_files
from watershed.cli.quantity_param import DURATION_PARAM
from watershed.cli.report import read_scannable_topology

if TYPE_CHECKING:
    from datetime import tzinfo

    from watershed.clusters.errors import ClusterError
    from watershed.topology.client_inventory import ClientInventory, ClusterClients
    from watershed.topology.errors import UnreadableInventory


@click.command(epilog="Example: topology clients orders.yaml -o clients.json --watch 10m")
@click.argument("path", type=click.Path(path_type=Path))
@add_cluster_options
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Add what is seen to this file; what it has is kept.  [default: stdout]",
)
@click.option("--watch", type=DURATION_PARAM, default="0s", show_default=True, help="Scan again and again for so long.")
@click.option("--every", type=DURATION_PARAM, default="30s", show_default=True, help="With --watch: how often.")
@click.option(
    "--request-log",
    "logs",
    multiple=True,
    metavar="CLUSTER=PATH",
    help="A broker's request log, also compressed by gzip, or a folder of them; may be repeated.",
)
@click.option("--logs-only", is_flag=True, help="Read logs, and ask no cluster.")
@click.option(
    "--log-zone", default="UTC", show_default=True, help="Zone of times in logs that name none: Europe/Berlin."
)
@click.option(
    "--inventory", type=click.Path(path_type=Path), help="Names for topics that logs have by id (`topology scan`)."
)
@click.option(
    "--timeout", type=DURATION_PARAM, default="15s", show_default=True, help="How long to wait for an answer."
)
@click.pass_context
def clients(
    context: click.Context,
    path: Path,
    aliases: tuple[str, ...],
    parallel: int,
    need_all: bool,
    output: Path | None,
    watch: int,
    every: int,
    logs: tuple[str, ...],
    logs_only: bool,
    log_zone: str,
    inventory: Path | None,
    timeout: int,
) -> int:
    """List the clients of live clusters: principal, client id, software, topics read and written, last seen.

    Read-only. Group members, producer states and rights come from the brokers; principals, software and producers by
    name only from request logs. A client that was seen once stays in the file. Exits 3 when a cluster or a log could
    not be read, 2 when none could.
    """
    require_writable(output)
    zone = _read_zone(log_zone)
    topology = read_scannable_topology(path)
    chosen = choose_clusters(topology, aliases)
    files = list_request_logs(topology, logs)
    if logs_only and not files:
        raise click.UsageError("--logs-only needs --request-log CLUSTER=PATH")
    kept, topic_ids = _read_kept(output), _read_topic_ids(inventory)
    seen: dict[str, ClusterClients] = {}
    missing: Mapping[str, ClusterError] = {}
    if not logs_only:
        rounds = ClientRounds(topology, chosen, parallel, timeout / 1000)
        for seen in rounds.watch(watch / 1000, every / 1000):
            if output is not None and seen and not (need_all and rounds.missing):
                _write(output, kept, seen)  # a watch that is interrupted keeps what it saw
        missing, topic_ids = rounds.missing, rounds.add_topic_ids(topic_ids)
    logged, unread = read_request_logs(files, topic_ids, zone)
    report_missing_clusters({**seen, **logged}, missing, need_all=need_all)
    _report_unread(unread, nothing_else=not seen and not logged, need_all=need_all)
    found = _write(output, kept, seen, logged)
    if not context.obj or not context.obj.get("quiet"):
        for alias in sorted({*seen, *logged}):
            click.echo(_line(found.clusters[alias]), err=True)
    return 3 if missing or unread else 0


def _write(output: Path | None, kept: ClientInventory, *parts: Mapping[str, ClusterClients]) -> ClientInventory:
    """Everything together, on stdout or in the file. Raises UnreadableInventory where an alias means two clusters."""
    from watershed.topology.client_inventory import ClientInventory, merge_inventories
    from watershed.topology.client_inventory_json import encode_client_inventory

    found = kept
    for part in parts:
        found = merge_inventories(found, ClientInventory(part))
    text = encode_client_inventory(found)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_output_files({output: text})
    return found


def _report_unread(unread: list[UnreadableInventory], *, nothing_else: bool, need_all: bool) -> None:
    """Names the logs that could not be read. Raises the first one's error where nothing else was read, or `need_all`
    says that the rest is not enough."""
    if unread and (nothing_else or need_all):
        for error in unread[1:]:
            click.echo(f"topology: {error}", err=True)
        raise unread[0]
    for error in unread:
        click.echo(f"missing: {error}", err=True)


def _read_kept(output: Path | None) -> ClientInventory:
    """What the file holds already; nothing where there is none. Raises UnreadableInventory."""
    from watershed.topology.client_inventory import ClientInventory
    from watershed.topology.client_inventory_json import decode_client_inventory
    from watershed.topology.loader import read_text_file

    if output is None or not output.is_file():
        return ClientInventory({})
    return decode_client_inventory(read_text_file(output))


def _read_topic_ids(inventory: Path | None) -> dict[str, dict[str, str]]:
    """Cluster → topic id → name, from an inventory. Raises UnreadableInventory."""
    from watershed.topology.inventory_json import decode_inventory
    from watershed.topology.loader import read_text_file

    if inventory is None:
        return {}
    return {
        alias: {topic.id: name for name, topic in cluster.topics.items() if topic.id is not None}
        for alias, cluster in decode_inventory(read_text_file(inventory)).clusters.items()
    }


def _read_zone(name: str) -> tzinfo:
    from datetime import UTC
    from zoneinfo import ZoneInfo

    try:
        return UTC if name == "UTC" else ZoneInfo(name)  # a machine without a time zone database knows UTC
    except (KeyError, ValueError, OSError):
        raise click.UsageError(f"--log-zone {name}: no such zone; name one such as UTC or Europe/Berlin") from None


def _line(cluster: ClusterClients) -> str:
    """One cluster in a line: what is known, and what is not."""
    from watershed.topology.planning.client_overview import summarise_cluster_clients
    from watershed.topology.rounded_amounts import render_counted_noun, render_first_names

    seen = summarise_cluster_clients(cluster)
    words = [
        render_counted_noun(len(seen.clients), "client"),
        f"{sum(bool(each.reads) for each in seen.clients)} read",
        f"{sum(bool(each.writes) for each in seen.clients)} write",
        f"{sum(each.principal is None for each in seen.clients)} without a known principal",
        f"{render_counted_noun(len(seen.unknown), 'producer')} without a name",
    ]
    if seen.never_seen is not None:
        words.append(f"{render_counted_noun(len(seen.never_seen), 'principal')} with rights and never seen")
    failed = sum(each.failed for each in cluster.observations)
    gaps = sum(len(each.gaps) for each in cluster.observations)
    if failed or gaps:
        words.append(f"{failed} scans and lines failed, {render_counted_noun(gaps, 'gap')} in time")
    hidden = tuple(dict.fromkeys(line.partition(":")[0] for each in cluster.observations for line in each.not_seen))
    return f"{cluster.alias}: {', '.join(words)}" + (f"; not seen: {render_first_names(hidden, 3)}" if hidden else "")
