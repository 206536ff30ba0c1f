"""Writing one slot of a flow: one transaction after the other, and who writes them.

Every method runs on the thread of the slot's sender; the fetching side only fills the copies.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from watershed.clusters.control_topics import LEDGER_TOPIC
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.transaction_requests import TransactionWire
from watershed.replicator.copy.flow_latency import FlowLatency, measure_age_s
from watershed.replicator.copy.transactions.open_transaction import LedgerPartition, OpenTransaction, SlotPartition
from watershed.replicator.copy.transactions.produce_answers import SessionLost
from watershed.replicator.copy.transactions.transaction_copy import CopyPath, TransactionCopy
from watershed.replicator.copy.transactions.transactional_producer import (
    COORDINATOR_PATIENCE_S,
    COORDINATOR_PAUSE_S,
    TransactionalProducer,
    TransactionConnect,
)
from watershed.replicator.ledger.transaction_positions import LedgerEntry, build_path_entry
from watershed.replicator.partition_states import Halt, Reinspect
from watershed.replicator.recovery.log_inspection import BrokerAddress

_POSITION_S: Final = 0.5  # how long a position that moved without a record (markers at the end) waits for company
_ROLLED_BACK_IN_A_ROW: Final = 3  # before the session is given up


@dataclass(slots=True)
class SlotWriter:
    """`home` is the way of the source's own records. `register` notes a producer id before its first batch, `paths`
    reads from the ledger which other ways this slot has written, `version` asks for the target's transaction.version,
    `latency` counts how long after their arrival records are committed.
    """

    flow: str
    slot: int
    home: CopyPath
    connect: TransactionConnect
    version: Callable[[], int]
    register: Callable[[int, CopyPath], None] = lambda _producer_id, _path: None
    paths: Callable[[], Iterable[CopyPath]] = tuple
    latency: FlowLatency = field(default_factory=FlowLatency)
    partitions: tuple[SlotPartition, ...] = ()
    _bump: bool = True
    _ledger: LedgerPartition | None = None
    _producers: dict[CopyPath, TransactionalProducer] = field(default_factory=dict)
    _wires: dict[BrokerAddress, TransactionWire] = field(default_factory=dict)
    _registered: set[tuple[int, CopyPath]] = field(default_factory=set)
    _first: int = 0
    _positions_at: float = 0.0
    _rolled_back: int = 0  # transactions in a row
    _turned_away_since: float = 0.0  # monotonic; 0: the newest transaction was let in

    def open(self) -> None:
        """Begin a session: whoever wrote this slot before is fenced and what he left open has ended, on every path.
        Only then may the ledger be read. Raises SessionLost, ClusterError."""
        self.close()
        self._bump = self.version() >= 2
        self._ledger = self._find_ledger_leader()
        self._begin(self.home)
        for path in self.paths():
            if path != self.home:
                self._begin(path)

    def step(self) -> bool:
        """Write one transaction; False: there was nothing to write. After SessionLost or ClusterError call `lose`."""
        path = next(
            (way for partition in self._rotate_partitions() if (way := partition.copy.next_path()) is not None), None
        )
        if path is not None:
            self._transaction(path)
            return True
        lagging = self._find_lagging()
        now = time.monotonic()
        if any(copy.begins for copy in lagging) or (lagging and now - self._positions_at >= _POSITION_S):
            self._positions_at = now
            self._commit(self._open_transaction(self._producers[self.home]), lagging)
            return True
        return False

    def end_session(self, trouble: Halt | Reinspect) -> None:
        """The session is over; every partition is looked at again."""
        partitions, self.partitions = self.partitions, ()
        self.close()
        for partition in partitions:
            partition.copy.lost(trouble)

    def close(self) -> None:
        """Close all connections to brokers and coordinators. An open transaction times out at its coordinator."""
        for producer in self._producers.values():
            producer.close()
        for wire in self._wires.values():
            with suppress(OSError):
                wire.close()
        self._producers.clear()
        self._wires.clear()
        self._rolled_back, self._turned_away_since = 0, 0.0

    # -- one transaction ---------------------------------------------------------------------------------------

    def _transaction(self, path: CopyPath) -> None:
        transaction = self._open_transaction(self._producer(path))
        transaction.fill(self._rotate_partitions, path)
        if transaction.is_turned_away and self._bump:
            self._wait_for_previous(transaction)
        elif transaction.failed:
            self._roll_back(transaction)
        else:
            others = [copy for copy in self._find_lagging() if id(copy) not in transaction.copies]
            self._commit(transaction, [*transaction.copies.values(), *others])
            for partition in self.partitions:
                if id(partition.copy) in transaction.copies:
                    partition.room()

    def _commit(self, transaction: OpenTransaction, copies: list[TransactionCopy]) -> None:
        transaction.write([entry for copy in copies for entry in copy.entries()])
        transaction.producer.end(commit=True)
        self._rolled_back, self._turned_away_since = 0, 0.0
        now, now_ms = time.monotonic(), int(time.time() * 1000)
        for copy in copies:
            for received_at, records, timestamp_ms in copy.committed():
                self.latency.add(now - received_at, records, measure_age_s(now_ms, timestamp_ms))

    def _roll_back(self, transaction: OpenTransaction) -> None:
        transaction.producer.end(commit=False)
        for copy in transaction.copies.values():
            copy.rolled_back()
        for copy, trouble in transaction.troubles:
            copy.stop(trouble)
        if not self._bump:
            # In TV1 the sequence numbers go on, and which of the aborted ones were used is not known for sure.
            raise SessionLost(Reinspect("a transaction was rolled back"))
        self._rolled_back += not transaction.troubles
        if self._rolled_back >= _ROLLED_BACK_IN_A_ROW:
            raise SessionLost(Reinspect(f"{self._rolled_back} transactions in a row could not be written"))

    def _wait_for_previous(self, transaction: OpenTransaction) -> None:
        """Nothing of this transaction was written, so the same batches may simply be sent again."""
        transaction.producer.forget_sent()
        for copy in transaction.copies.values():
            copy.rolled_back()
        self._turned_away_since = self._turned_away_since or transaction.started
        if transaction.started - self._turned_away_since > COORDINATOR_PATIENCE_S:
            raise SessionLost(Reinspect("the transaction before is not completed by the target's brokers"))
        time.sleep(COORDINATOR_PAUSE_S)

    # -- who and where -----------------------------------------------------------------------------------------

    def _open_transaction(self, producer: TransactionalProducer) -> OpenTransaction:
        assert self._ledger is not None
        return OpenTransaction(producer, self._ledger, self._wire)

    def _begin(self, path: CopyPath) -> TransactionalProducer:
        producer = TransactionalProducer(self._id_of(path), self.connect, self._bump)
        self._producers[path] = producer
        producer.begin()
        return producer

    def _producer(self, path: CopyPath) -> TransactionalProducer:
        """Return the producer for this path.

        A new path is first committed to the ledger under the slot's own transactional id. A replaced worker is fenced
        there, so its successor finds every id that it must fence.
        """
        producer = self._producers.get(path)
        if producer is None:
            producer = self._begin(path)
            entries: list[LedgerEntry] = [build_path_entry(self.flow, self.slot, path)]
            transaction = self._open_transaction(self._producers[self.home])
            transaction.write(entries)
            transaction.producer.end(commit=True)
        if (producer.identity.producer_id, path) not in self._registered:
            self.register(producer.identity.producer_id, path)
            self._registered.add((producer.identity.producer_id, path))
        return producer

    def _id_of(self, path: CopyPath) -> str:
        plain = f"watershed.{self.flow}.{self.slot}"
        return plain if path == self.home else f"{plain}.{hashlib.sha256('|'.join(path).encode()).hexdigest()[:12]}"

    def _find_ledger_leader(self) -> LedgerPartition:
        asked = self.connect(None)
        try:
            metadata = asked.metadata((LEDGER_TOPIC,))
        finally:
            asked.close()
        (topic,) = metadata.topics
        node = next((part.node for part in topic.partitions if part.partition == self.slot), -1)
        if topic.error or node not in metadata.brokers:
            reason = error_codes.describe_error_code(topic.error or error_codes.LEADER_NOT_AVAILABLE)
            raise SessionLost(Reinspect(f"the target answers {reason} about {LEDGER_TOPIC}-{self.slot}"))
        return LedgerPartition(topic.topic_id, self.slot, BrokerAddress(*metadata.brokers[node]))

    def _wire(self, address: BrokerAddress) -> TransactionWire:
        if address not in self._wires:
            self._wires[address] = self.connect(address)
        return self._wires[address]

    def _find_lagging(self) -> list[TransactionCopy]:
        return [partition.copy for partition in self.partitions if partition.copy.lagging]

    def _rotate_partitions(self) -> tuple[SlotPartition, ...]:
        """The threads, another one first every time."""
        partitions = self.partitions
        if not partitions:
            return ()
        self._first = (self._first + 1) % len(partitions)
        return partitions[self._first :] + partitions[: self._first]
