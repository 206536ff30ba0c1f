"""`topology lab`: real Kafka clusters on this machine, for trying things out, tests and the demo."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

_FIRST_NAMES = ("onprem", "cloud")
_DIRECTORY = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".watershed/lab"),
    show_default=True,
    help="Where the brokers keep their data.",
)
_FORMAT = click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)


@click.group(epilog="Example: topology lab up --clusters 2 && topology lab status && topology lab down")
def lab() -> None:
    """Real Kafka clusters on this machine, loopback only, from Maven's jars; no container needed."""


@lab.command()
@click.option("--clusters", type=click.IntRange(1, 16), default=None, help="How many clusters.  [default: 2]")
@click.option("--names", default=None, help="Aliases, comma-separated.  [default: onprem, cloud, c3 …]")
@click.option("--brokers", type=click.IntRange(1, 9), default=1, show_default=True, help="Brokers a cluster.")
@click.option("--kafka", default=None, help="Release, or by cluster: onprem=2.4.1,cloud=3.9.1.  [default: 4.3.1]")
@_DIRECTORY
@_FORMAT
def up(clusters: int | None, names: str | None, brokers: int, kafka: str | None, directory: Path, form: str) -> None:
    """Start the clusters that do not run; return when all are ready.

    Running brokers are kept, dead ones start again on their data and ports.

    Example: topology lab up --names onprem,cloud,dr --brokers 3 --kafka onprem=2.4.1
    """
    aliases = _aliases(clusters, names)
    releases = _releases(kafka)

    def act() -> Lab:
        from watershed.lab.clusters import start_clusters as lab_up

        return lab_up(directory, aliases, brokers, kafka=releases)

    _show(_run(act), form)


@lab.command("status")
@_DIRECTORY
@_FORMAT
@click.pass_context
def show_lab_status(context: click.Context, directory: Path, form: str) -> None:
    """Show the clusters; exit 1 when a broker or a ZooKeeper of them does not run.

    Example: topology lab status --format json
    """

    def act() -> Lab:
        from watershed.lab.clusters import read_lab as lab_status

        return lab_status(directory)

    found = _run(act)
    _show(found, form)
    processes = [each for cluster in found.clusters.values() for each in (*cluster.brokers, cluster.zookeeper) if each]
    if any(process.pid is None for process in processes):
        context.exit(1)


@lab.command()
@click.option("--keep", is_flag=True, help="Keep the data: the next `up` continues with it.")
@_DIRECTORY
@_FORMAT
def down(keep: bool, directory: Path, form: str) -> None:
    """End the brokers that `up` started, and nothing else; remove their data.

    Example: topology lab down --keep
    """

    def act() -> Lab:
        from watershed.lab.clusters import end_clusters as lab_down

        return lab_down(directory, keep)

    found = _run(act)
    if form == "json":
        _show(found, form)
        return
    names = ", ".join(found.clusters)
    click.echo(f"{names}: down{', data kept' if keep else ''}" if names else f"no lab in {directory}")


def _aliases(clusters: int | None, names: str | None) -> list[str]:
    if names is None:
        count = 2 if clusters is None else clusters
        return [*_FIRST_NAMES, *(f"c{number}" for number in range(3, count + 1))][:count]
    aliases = [name.strip() for name in names.split(",")]
    if len(set(aliases)) < len(aliases):
        raise click.BadParameter("a name is there twice", param_hint="--names")
    if clusters not in (None, len(aliases)):
        raise click.BadParameter(f"{len(aliases)} names for {clusters} clusters", param_hint="--names")
    return aliases


def _releases(kafka: str | None) -> dict[str, str] | str | None:
    if kafka is None or "=" not in kafka:
        return kafka
    by_alias: dict[str, str] = {}
    for each in kafka.split(","):
        alias, _, release = map(str.strip, each.partition("="))
        if not (alias and release) or alias in by_alias:
            raise click.BadParameter("one release, or CLUSTER=RELEASE,… with each cluster once", param_hint="--kafka")
        by_alias[alias] = release
    return by_alias


class _LabFailed(click.ClickException):
    """A lab that could not be started, found or ended."""

    exit_code = 2


def _run(act: Callable[[], Lab]) -> Lab:
    from watershed.lab.errors import LabError

    try:
        return act()
    except LabError as error:
        raise _LabFailed(str(error)) from None


def _show(found: Lab, form: str) -> None:
    from watershed.lab.clusters import encode_lab

    shape: dict[str, Any] = encode_lab(found)
    if form == "json":
        click.echo(json.dumps(shape, indent=2))
        return
    if not shape["clusters"]:
        click.echo(f"no lab in {found.directory}")
    for cluster in shape["clusters"]:
        click.echo(f"{cluster['alias']:12} {cluster['bootstrap']}  cluster id {cluster['cluster_id']}")
        for broker in cluster["brokers"]:
            _show_process(f"broker {broker['id']}", broker, f"Kafka {broker['kafka']:9} {broker['data']}")
        if there := cluster["zookeeper"]:
            _show_process("ZooKeeper", there, there["home"])


def _show_process(name: str, process: dict[str, Any], more: str) -> None:
    state = f"pid {process['pid']}" if process["pid"] else "not running"
    click.echo(f"  {name:10} port {process['port']}  {state:12} {more}")
