"""Following the ledger: reads it once whole and then only what is new, so that an inspection of a large one stays
cheap."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from clusters.control_records import ControlRecord, read_control_log
from clusters.control_topics import LEDGER_TOPIC
from clusters.errors import TopicMissing
from clusters.settings import ConnectionSettings
from replicator.ledger.ledger import LEDGER_READ_TIMEOUT_S, Ledger, build_ledger
from replicator.ledger.ledger_state import LedgerState
from replicator.ledger.record_format import FlowPartition, parse_ledger_key
from replicator.ledger.transaction_positions import PositionAndRuns
from replicator.partition_key import PartitionKey


class LedgerFollower:
    """The ledger of one flow on its target cluster, in some slots; each `read` is as new as the cluster is.

    Only partitions of which something new was read are put together again. Not thread-safe.
    """

    def __init__(self, settings: ConnectionSettings, flow: str, slots: Iterable[int]) -> None:
        self._settings, self._flow, self._slots = settings, flow, sorted(slots)
        self._next: dict[int, int] = {}
        self._records: dict[FlowPartition, dict[str, ControlRecord]] = defaultdict(dict)
        self._place_of: dict[str, FlowPartition] = {}
        self._partitions: dict[PartitionKey, tuple[LedgerState, int]] = {}
        self._positions: dict[PartitionKey, PositionAndRuns] = {}
        self._keys: dict[FlowPartition, set[PartitionKey]] = {}
        self._changed: set[FlowPartition] = set()  # read, and not put together yet: a read may end half way

    def read(self) -> Ledger:
        """Raises ClusterError. An absent ledger is an empty one.

        Whole, as `read_ledger` is: a run that was announced counts, even while some transaction is open below it.
        """
        try:
            for record in read_control_log(
                self._settings,
                LEDGER_TOPIC,
                self._slots,
                self._next,
                timeout=LEDGER_READ_TIMEOUT_S,
                whole=True,
                invalid=True,
            ):
                self._next[record.partition] = record.offset + 1
                place = self._taken(record)
                if place is not None:
                    self._changed.add(place)
        except TopicMissing:
            return Ledger({})
        for place in list(self._changed):
            self._put_together(place)
            self._changed.discard(place)
        return Ledger(dict(self._partitions), dict(self._positions))

    def _taken(self, record: ControlRecord) -> FlowPartition | None:
        """The partition that the record is about; None when it is none of ours."""
        if record.value is None and not record.why:
            place = self._place_of.pop(record.key, None)
            if place is not None:
                self._records[place].pop(record.key, None)
            return place
        place = parse_ledger_key(record.key)  # all that is known of a partition has to be put together at once
        if place is None or place.flow != self._flow:
            return None
        self._place_of[record.key] = place
        self._records[place][record.key] = record
        return place

    def _put_together(self, place: FlowPartition) -> None:
        for key in self._keys.pop(place, ()):
            self._partitions.pop(key, None)
            self._positions.pop(key, None)
        found = build_ledger(self._records[place].values())
        self._keys[place] = set(found.partitions)
        self._partitions.update(found.partitions)
        self._positions.update(found.positions)
