"""The clusters that a read-only command asks: which of the file's, several at a time, and what is said of those that
do not answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from watershed.clusters.errors import ClusterError
    from watershed.clusters.settings import ConnectionSettings
    from watershed.topology.model import Topology

_T = TypeVar("_T")


def add_cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which clusters are asked, and how many at a time."""
    for option in (
        click.option("--all", "need_all", is_flag=True, help="Write nothing unless every cluster was read; exits 2."),
        click.option(
            "--parallel", type=click.IntRange(1, 64), default=8, show_default=True, help="How many clusters at a time."
        ),
        click.option("--cluster", "aliases", multiple=True, help="Only this cluster; may be repeated.  [default: all]"),
    ):
        command = option(command)
    return command


def choose_clusters(topology: Topology, aliases: tuple[str, ...]) -> tuple[str, ...]:
    """The aliases that are asked, each once. Raises UsageError for a cluster that the file does not have, and for a
    file without any."""
    if not topology.clusters:
        raise click.UsageError(f"{topology.file} has no clusters to scan")
    for alias in aliases:
        if alias not in topology.clusters:
            known = ", ".join(sorted(topology.clusters))
            raise click.UsageError(f"{topology.file} has no cluster `{alias}`; it has {known}")
    return tuple(dict.fromkeys(aliases)) or tuple(sorted(topology.clusters))


def ask_clusters(
    topology: Topology, aliases: tuple[str, ...], ask: Callable[[ConnectionSettings], _T], parallel: int
) -> tuple[dict[str, _T], dict[str, ClusterError]]:
    """The answers by alias, and why others gave none: no answer, rights, a secret that is missing where the command
    runs. Secrets are looked up before any connection is made."""
    from watershed.clusters.errors import ClusterError
    from watershed.clusters.settings import resolve_connection_settings

    settings: dict[str, ConnectionSettings] = {}
    missing: dict[str, ClusterError] = {}
    for alias in aliases:
        try:
            settings[alias] = resolve_connection_settings(topology.clusters[alias])
        except ClusterError as error:
            missing[alias] = error

    def ask_one(alias: str) -> _T | ClusterError:
        try:
            return ask(settings[alias])
        except ClusterError as error:
            return error

    found: dict[str, _T] = {}
    with ThreadPoolExecutor(parallel) as pool:
        for alias, answer in zip(settings, pool.map(ask_one, settings), strict=True):
            if isinstance(answer, ClusterError):
                missing[alias] = answer
            else:
                found[alias] = answer
    return found, missing


def report_missing_clusters(found: Mapping[str, Any], missing: Mapping[str, ClusterError], *, need_all: bool) -> None:
    """One line for each cluster that is missing. Raises the first one's error where none was read, or `need_all` says
    that the rest is not enough; the lines of the others come before it."""
    errors = [missing[alias] for alias in sorted(missing)]
    if errors and (need_all or not found):
        for error in errors[1:]:
            click.echo(f"topology: {error}", err=True)
        raise errors[0]
    for error in errors:
        click.echo(f"missing: {error}", err=True)
