"""Several scans of the clients of one cluster, so that short-lived ones are seen, too."""

from __future__ import annotations

from dataclasses import replace

from watershed.clusters.client_scan import ClientScan
from watershed.topology.client_inventory import BROKERS, ClientObservation, ClusterClients, SeenSpan, merge_clients

_MOST_GAPS = 1_000


class ClientWatch:
    """What the scans saw, and what they missed: a scan without an answer is counted, and the time without one is a
    gap. Times are milliseconds since 1970."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self.topic_ids: dict[str, str] = {}
        self._clients: ClusterClients | None = None
        self._began_ms = 0
        self._answered_ms = 0  # the last scan that was answered
        self._missed_ms = 0  # the last one that was not, since then
        self._used = self._failed = 0
        self._gaps: list[SeenSpan] = []
        self._not_seen: dict[str, None] = {}

    def take(self, scan: ClientScan, ms: int) -> None:
        """A scan that was answered at `ms`. Raises UnreadableInventory when it is of another cluster than before."""
        seen = replace(scan.clients, observations=())
        self._clients = seen if self._clients is None else merge_clients(self._clients, seen)
        self.topic_ids.update(scan.topic_ids)
        self._not_seen |= dict.fromkeys(line for each in scan.clients.observations for line in each.not_seen)
        self._began_ms = self._began_ms or ms
        if self._missed_ms and self._answered_ms:
            self._note_gap(ms)
        self._answered_ms, self._missed_ms, self._used = ms, 0, self._used + 1

    def miss(self, ms: int) -> None:
        """A scan that was not answered."""
        self._missed_ms, self._failed = ms, self._failed + 1

    def build_clients(self) -> ClusterClients | None:
        """All that was seen so far; None where no scan was answered."""
        if self._clients is None:
            return None
        gaps = list(self._gaps)
        if self._missed_ms:
            gaps.append(SeenSpan(self._answered_ms, self._missed_ms))
        observation = ClientObservation(
            BROKERS,
            "",
            SeenSpan(self._began_ms, max(self._answered_ms, self._missed_ms)),
            self._used,
            self._failed,
            tuple(gaps),
            not_seen=tuple(sorted(self._not_seen)),
        )
        return replace(self._clients, observations=(observation,))

    def _note_gap(self, ms: int) -> None:
        if len(self._gaps) < _MOST_GAPS:
            self._gaps.append(SeenSpan(self._answered_ms, ms))
