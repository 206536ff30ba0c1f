"""The ledger of a target cluster for all who need it at the same time: read once, and then only what is new.

When a worker starts, topic discovery and each inspection need the ledger. To read and put together what 10,000
partitions have there takes seconds of processor time, so they share it.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from watershed.clusters.control_records import ControlRecord, StoredControlRecord, read_stored_records
from watershed.clusters.control_topics import LEDGER_TOPIC, SLOT_COUNT
from watershed.clusters.control_values import log_invalid_record
from watershed.clusters.errors import ProtocolError, TopicMissing
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.ledger.ledger import LEDGER_READ_TIMEOUT_S, Ledger, build_partition_ledger, decode_blocks
from watershed.replicator.ledger.ledger_block import LedgerBlock
from watershed.replicator.ledger.record_format import FlowPartition, parse_ledger_key
from watershed.replicator.partition_key import PartitionKey

_KEPT_S: Final = 30.0  # a start is over then, and what is kept for longer only takes memory


@dataclass(slots=True)
class _SlotRecords:
    """What was read of one slot for some flows. next: the offset in the ledger at which the next read begins."""

    flows: frozenset[str]
    next: int = 0
    stored: dict[FlowPartition, dict[bytes, StoredControlRecord]] = field(default_factory=lambda: defaultdict(dict))
    changed: set[FlowPartition] = field(default_factory=set)  # taken, and not put together yet: a read may end half way
    built: dict[str, Ledger] = field(default_factory=lambda: defaultdict(lambda: Ledger({})))  # by flow
    keys: dict[FlowPartition, tuple[PartitionKey, ...]] = field(default_factory=dict)

    def take(self, record: StoredControlRecord) -> None:
        """Keep a record, unless another thread has read it meanwhile."""
        if record.offset < self.next:
            return
        self.next = record.offset + 1
        place = parse_ledger_key(record.key.decode(errors="replace"))
        if place is None or place.flow not in self.flows:
            return
        if record.value is None and not record.decode().why:
            self.stored[place].pop(record.key, None)
        else:
            self.stored[place][record.key] = record
        self.changed.add(place)

    def put_together(self, flows: Collection[str], alias: str) -> None:
        """Only partitions of which something new was read, and of flows that are asked for."""
        for place in [place for place in self.changed if place.flow in flows]:
            known = self.built[place.flow]
            for key in self.keys.pop(place, ()):
                for by_key in (known.partitions, known.positions, known.records):
                    by_key.pop(key, None)
            known.invalid.pop(place, None)
            found = build_partition_ledger(place, self.decode(place, alias))
            self.keys[place] = tuple({*found.partitions, *found.positions, *found.records})
            known.update(found)
            self.changed.discard(place)

    def without(self, flow: str) -> _SlotRecords:
        """The same without what a flow has there. A thread that reads the flow now keeps what it has."""
        kept = _SlotRecords(self.flows - {flow}, self.next)
        kept.stored.update((place, records) for place, records in self.stored.items() if place.flow != flow)
        kept.changed = {place for place in self.changed if place.flow != flow}
        kept.built.update((other, found) for other, found in self.built.items() if other != flow)
        kept.keys = {place: keys for place, keys in self.keys.items() if place.flow != flow}
        return kept

    def decode(self, place: FlowPartition, alias: str) -> list[ControlRecord]:
        """What compaction would leave of a partition; a record that is not valid is logged."""
        records = [record.decode() for record in self.stored[place].values()]
        for record in records:
            if record.why:
                log_invalid_record(record.invalid(alias, LEDGER_TOPIC))
        return records


class SharedLedger:
    """Each read is as new as the cluster is. Thread-safe; nobody waits for another's read, only for what it brings.

    A read keeps the records of all flows that were ever asked for: others will ask for them soon. kept_s: seconds
    after which everything is read anew.
    """

    def __init__(self, settings: ConnectionSettings, kept_s: float = _KEPT_S) -> None:
        self._settings, self._kept_s = settings, kept_s
        self._slots: dict[int, _SlotRecords] = {}
        self._flows: frozenset[str] = frozenset()
        self._begun = 0.0  # monotonic
        self._lock = threading.Lock()

    def read(self, flows: Collection[str], slots: Iterable[int] = range(SLOT_COUNT)) -> Ledger:
        """What the ledger says of these flows in these slots; partitions of which a record cannot be read stand in
        `invalid`. Whole, as `read_ledger` is. An absent ledger is an empty one. Raises ClusterError."""
        parts = self._read(flows, slots)
        found = Ledger({})
        with self._lock:
            for part in parts:
                part.put_together(flows, self._settings.alias)
                for flow in flows:
                    found.update(part.built[flow])
        return found

    def read_blocks(self, places: Collection[FlowPartition], slots: Iterable[int]) -> list[LedgerBlock]:
        """The blocks of runs of these partitions, without the partitions of which one cannot be read. Raises
        ClusterError."""
        parts = self._read({place.flow for place in places}, slots)
        found: list[LedgerBlock] = []
        with self._lock:
            for part in parts:
                for place in part.stored.keys() & set(places):
                    records = part.decode(place, self._settings.alias)
                    try:  # who takes such a partition over is told (`Ledger.halted`)
                        found += [] if any(record.why for record in records) else decode_blocks(records)
                    except ProtocolError:
                        continue
        return found

    def release(self, flow: str, slots: Iterable[int]) -> None:
        """Nobody needs this flow in these slots for now. Whoever asks for it all the same reads them anew."""
        with self._lock:
            for slot in slots:
                if (known := self._slots.get(slot)) is not None:
                    self._slots[slot] = known.without(flow)

    def forget_old(self) -> None:
        """Drop what was read long ago. To be called now and then."""
        with self._lock:
            self._drop_old()

    def _drop_old(self) -> None:
        if time.monotonic() - self._begun > self._kept_s:
            self._slots = {}

    def _read(self, flows: Collection[str], slots: Iterable[int]) -> list[_SlotRecords]:
        with self._lock:
            self._drop_old()
            if not self._slots:
                self._begun = time.monotonic()
            parts = {slot: self._find_part(slot, frozenset(flows)) for slot in sorted(slots)}
            following = {slot: part.next for slot, part in parts.items()}
        try:
            for record in read_stored_records(
                self._settings, LEDGER_TOPIC, list(parts), following, timeout=LEDGER_READ_TIMEOUT_S, whole=True
            ):
                with self._lock:
                    parts[record.partition].take(record)
        except TopicMissing:
            return []
        return list(parts.values())

    def _find_part(self, slot: int, flows: frozenset[str]) -> _SlotRecords:
        known = self._slots.get(slot)
        if known is None or not flows <= known.flows:
            self._flows |= flows
            known = self._slots[slot] = _SlotRecords(self._flows)
        return known
