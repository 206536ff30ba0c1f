"""`topology init`: a first topology file."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from watershed.topology.inventory import Inventory
    from watershed.topology.starter_file import StarterCluster


@click.command(epilog="Example: topology init orders --cluster onprem=k1:9092,k2:9092 --cluster cloud=c1:9092")
@click.argument("name")
@click.option("--cluster", "clusters", multiple=True, metavar="ALIAS=HOST:PORT[,HOST:PORT]", help="May be repeated.")
@click.option("--inventory", type=click.Path(path_type=Path), help="What the clusters hold (`topology scan` wrote it).")
@click.option("--source", help="Alias of the cluster to copy from.  [default: the first]")
@click.option("--target", help="Alias of the cluster to copy to.  [default: the second]")
@click.option("--owner", default="my-team", show_default=True, help="Who answers for the topology.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the file here, not to stdout.")
def init(
    name: str,
    clusters: tuple[str, ...],
    inventory: Path | None,
    source: str | None,
    target: str | None,
    owner: str,
    output: Path | None,
) -> None:
    """Write a first topology file: two clusters and one flow between them.

    The clusters come from --cluster, from an inventory, or from both: addresses from the one, ids and topics from the
    other. Connects to nothing. A file that is there already is not written over.
    """
    from watershed.cli.output_files import require_writable, write_output_files
    from watershed.topology.starter_file import render_starter_file

    require_writable(output)
    if output is not None and output.exists():
        raise click.UsageError(f"{output} is there already; name another file")
    known = _collect_clusters(clusters, _read(inventory))
    one, other = _choose(known, source, target)
    text = render_starter_file(name, owner, one, other)
    _require_right_values(text)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_output_files({output: text})
        click.echo(f"{output} is written. Next: topology lint {shlex.quote(str(output))}", err=True)


def _require_right_values(text: str) -> None:
    """Refuses a name, alias or address that the language does not take. Raises UsageError."""
    from watershed.topology.lint import lint_topology
    from watershed.topology.loader import parse_topology

    wrong = next((each for each in lint_topology(parse_topology(text)).findings if each.rule == "SYN011"), None)
    if wrong is not None:
        raise click.UsageError(f"{wrong.message}. Nothing was written")


def _read(path: Path | None) -> Inventory | None:
    from watershed.topology.inventory_json import decode_inventory
    from watershed.topology.loader import read_text_file

    return None if path is None else decode_inventory(read_text_file(path))


def _collect_clusters(said: tuple[str, ...], seen: Inventory | None) -> dict[str, StarterCluster]:
    """By alias, those that were said first. Raises UsageError."""
    from watershed.topology.starter_file import StarterCluster

    found: dict[str, StarterCluster] = {}
    for each in said:
        alias, _, addresses = each.partition("=")
        hosts = tuple(host.strip() for host in addresses.split(",") if host.strip())
        if not alias or not hosts:
            raise click.UsageError(f"--cluster {each}: write ALIAS=HOST:PORT, for example onprem=broker-1:9092")
        found[alias] = StarterCluster(alias, hosts, seen.cluster(alias) if seen is not None else None)
    for alias, cluster in sorted(seen.clusters.items()) if seen is not None else ():
        found.setdefault(alias, StarterCluster(alias, (), cluster))
    return found


def _choose(
    known: dict[str, StarterCluster], source: str | None, target: str | None
) -> tuple[StarterCluster, StarterCluster]:
    """Raises UsageError."""
    for alias in (source, target):
        if alias is not None and alias not in known:
            raise click.UsageError(f"there is no cluster {alias}; known are: {', '.join(known) or 'none'}")
    left = [alias for alias in known if alias not in (source, target)]
    one = source or (left.pop(0) if left else None)
    other = target or (left.pop(0) if left else None)
    if one is None or other is None or one == other:
        raise click.UsageError("two clusters are needed: say --cluster twice, or give an inventory that has two")
    return known[one], known[other]
