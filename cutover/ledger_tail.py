"""Following the ledger: reads it once whole and then only what is new, so that a look at a large one stays cheap."""

from __future__ import annotations

from collections.abc import Iterable

from clusters.control import LEDGER, read_log
from clusters.errors import TopicMissing
from clusters.settings import ConnectionSettings
from replicator.ledger import Block, Ledger, assembled


class LedgerTail:
    """The ledger of one flow on its target cluster, in some slots; each `read` is as new as the cluster is."""

    def __init__(self, settings: ConnectionSettings, flow: str, slots: Iterable[int]) -> None:
        self._settings, self._flow, self._slots = settings, flow, sorted(slots)
        self._next: dict[int, int] = {}
        self._blocks: dict[str, Block] = {}

    def read(self) -> Ledger:
        """Raises ClusterError. An absent ledger is an empty one."""
        try:
            records = read_log(self._settings, LEDGER, self._slots, self._next)
            for record in records:
                if record.value is None:
                    self._blocks.pop(record.key, None)
                elif record.value.get("flow") == self._flow:
                    self._blocks[record.key] = Block.from_record(record)
                self._next[record.partition] = record.offset + 1
        except TopicMissing:
            return Ledger({})
        return Ledger(assembled(self._blocks.values()))
