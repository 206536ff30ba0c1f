"""What `topology clients` reads: at clusters, again and again while it watches, and into request logs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from watershed.cli.cluster_batches import ask_clusters

if TYPE_CHECKING:
    from datetime import tzinfo

    from watershed.clusters.client_watch import ClientWatch
    from watershed.clusters.errors import ClusterError
    from watershed.topology.client_inventory import ClusterClients
    from watershed.topology.errors import UnreadableInventory
    from watershed.topology.model import Topology

_TopicIds = dict[str, dict[str, str]]  # cluster → topic id → name


class ClientRounds:
    """Scans all clusters at once, round by round. missing: clusters that answered no scan, and why the last one
    failed."""

    def __init__(self, topology: Topology, aliases: tuple[str, ...], parallel: int, timeout_s: float) -> None:
        from watershed.clusters.client_watch import ClientWatch

        self._topology, self._aliases = topology, aliases
        self._parallel, self._timeout_s = parallel, timeout_s
        self._watches: dict[str, ClientWatch] = {alias: ClientWatch(alias) for alias in aliases}
        self.missing: dict[str, ClusterError] = {}

    def watch(self, watch_s: float, every_s: float) -> Iterator[dict[str, ClusterClients]]:
        """Yields what was seen so far after each round; the first comes at once, the last at the end of `watch_s`."""
        until = time.monotonic() + watch_s
        while True:
            began = time.monotonic()
            yield self._scan()
            following = began + max(every_s, 1.0)
            if following > until:
                return
            time.sleep(max(0.0, following - time.monotonic()))

    def add_topic_ids(self, known: _TopicIds) -> _TopicIds:
        """The names that the clusters give to topic ids; a cluster knows better than an inventory."""
        asked = {alias: {**known.get(alias, {}), **watch.topic_ids} for alias, watch in self._watches.items()}
        return {**known, **asked}

    def _scan(self) -> dict[str, ClusterClients]:
        from watershed.clusters.client_scan import scan_clients

        scans, failed = ask_clusters(
            self._topology,
            self._aliases,
            lambda settings: scan_clients(settings, timeout_s=self._timeout_s),
            self._parallel,
        )
        now = int(time.time() * 1000)
        for alias, scan in scans.items():
            self._watches[alias].take(scan, now)
        for alias in failed:
            self._watches[alias].miss(now)
        seen = {alias: each for alias, watch in self._watches.items() if (each := watch.build_clients()) is not None}
        self.missing = {alias: error for alias, error in {**self.missing, **failed}.items() if alias not in seen}
        return seen


def list_request_logs(topology: Topology, logs: tuple[str, ...]) -> list[tuple[str, Path]]:
    """The files of `CLUSTER=PATH`, those of a folder by name. Raises UsageError for a cluster that the file does not
    have, and for a path that is not there."""
    found: list[tuple[str, Path]] = []
    for text in logs:
        alias, sign, name = text.partition("=")
        if not sign or alias not in topology.clusters:
            known = ", ".join(sorted(topology.clusters))
            raise click.UsageError(f"--request-log {text}: name a cluster of the file ({known}), `=`, and a path")
        path = Path(name)
        if not path.exists():
            raise click.UsageError(f"--request-log {text}: {path} is not there")
        files = sorted(each for each in path.iterdir() if each.is_file()) if path.is_dir() else [path]
        found += [(alias, each) for each in files]
    return found


def read_request_logs(
    files: list[tuple[str, Path]], topic_ids: Mapping[str, Mapping[str, str]], zone: tzinfo
) -> tuple[dict[str, ClusterClients], list[UnreadableInventory]]:
    """The clients by cluster, and the errors of files that are no logs."""
    from watershed.clusters.request_log import read_request_log
    from watershed.topology.client_inventory import merge_clients
    from watershed.topology.errors import UnreadableInventory

    found: dict[str, ClusterClients] = {}
    unread: list[UnreadableInventory] = []
    for alias, path in files:
        try:
            seen = read_request_log(path, alias, topic_ids=topic_ids.get(alias, {}), zone=zone)
        except UnreadableInventory as error:
            unread.append(error)
        else:
            found[alias] = merge_clients(found[alias], seen) if alias in found else seen
    return found, unread
