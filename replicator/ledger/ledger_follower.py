"""Following the ledger of one flow: read once whole, and then only what is new, so that an inspection of a large one
stays cheap."""

from __future__ import annotations

import math
from collections.abc import Iterable

from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.ledger.ledger import Ledger
from watershed.replicator.ledger.shared_ledger import SharedLedger


class LedgerFollower:
    """The ledger of one flow on its target cluster, in some slots; each `read` is as new as the cluster is."""

    def __init__(self, settings: ConnectionSettings, flow: str, slots: Iterable[int]) -> None:
        self._ledger = SharedLedger(settings, kept_s=math.inf)
        self._flow, self._slots = flow, sorted(slots)

    def read(self) -> Ledger:
        """Raises ClusterError, also where a record cannot be read. An absent ledger is an empty one.

        Whole, as `read_ledger` is: a run that was announced counts, even while some transaction is open below it.
        """
        return self._ledger.read([self._flow], self._slots).require_valid()
