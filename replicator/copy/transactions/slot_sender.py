"""The threads that write: one for each slot of each flow that copies in transactions."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

from watershed.clusters.control_records import read_control_log
from watershed.clusters.control_topics import LEDGER_TOPIC, ControlWriter
from watershed.clusters.errors import ClusterError, ProtocolError
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.producer_registry import ProducerRecord, register_producer
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.connection import open_connection
from watershed.replicator.copy.copy_protocol import Copy
from watershed.replicator.copy.flow_latency import FlowLatencies
from watershed.replicator.copy.transactions.open_transaction import SlotPartition
from watershed.replicator.copy.transactions.produce_answers import SessionLost
from watershed.replicator.copy.transactions.slot_writer import SlotWriter
from watershed.replicator.copy.transactions.transaction_copy import CopyPath
from watershed.replicator.ledger.ledger import LEDGER_READ_TIMEOUT_S
from watershed.replicator.ledger.transaction_positions import build_path_entry
from watershed.replicator.partition_states import Halt, Reinspect

log = logging.getLogger("watershed.transactions")

_ALIVE_S: Final = 0.25  # how long a sender sleeps unless it is woken


class SlotSender(threading.Thread):
    """Serves one slot. A *session* lasts from one `open` to the first thing that is not clear."""

    def __init__(self, writer: SlotWriter) -> None:
        super().__init__(name=f"transactions-{writer.flow}-{writer.slot}", daemon=True)
        self._writer = writer
        self._working = threading.Lock()  # the writer is used by one thread at a time
        self._changing = threading.Lock()  # of threads and session; held for an instant only
        self._condition = threading.Condition()
        self._woken = self._ending = False
        self._session, self._opened = 0, False

    def open(self) -> int:
        """The number of the open session; begins one if there is none. What the ledger says of this slot from then on
        is final until the session is lost. Raises SessionLost, ClusterError."""
        with self._working:
            if not self._opened:
                self._writer.open()
                self._session, self._opened = self._session + 1, True
            return self._session

    def add(self, partition: SlotPartition, session: int) -> None:
        """Write what this copy has got; its position was read in `session`."""
        with self._changing:
            if self._opened and session == self._session:
                self._writer.partitions = (*self._writer.partitions, partition)
            else:
                partition.copy.lost(Reinspect("the slot's session ended meanwhile"))
        self.wake()

    def remove(self, copy: Copy) -> None:
        """Write nothing more of it; nothing of it may be in the open transaction."""
        with self._changing:
            self._writer.partitions = tuple(
                partition for partition in self._writer.partitions if partition.copy is not copy
            )

    def wake(self) -> None:
        """End the wait for work. Any thread may call it."""
        with self._condition:
            self._woken = True
            self._condition.notify()

    def end(self) -> None:
        """Ask the thread to end after its current transaction; does not wait."""
        self._ending = True
        self.wake()

    def run(self) -> None:
        """Write transactions until `end`; between two of them wait for work."""
        while not self._ending:
            if not self._round():
                with self._condition:
                    if not self._woken:
                        self._condition.wait(_ALIVE_S)
                    self._woken = False
        with self._working:
            self._over(Reinspect("handed over"))

    def _round(self) -> bool:
        with self._working:
            try:
                return self._opened and self._writer.step()
            except SessionLost as lost:
                self._lost(lost.trouble)
            except ClusterError as error:
                self._lost(Reinspect(str(error)))
            except Exception as error:
                log.exception("sender failed", extra={"sender": self.name})
                self._lost(Reinspect(str(ProtocolError(f"{type(error).__name__}: {error}"))))
            return False

    def _lost(self, trouble: Halt | Reinspect) -> None:
        reason = trouble.reason if isinstance(trouble, Reinspect) else trouble.error
        log.warning("session lost", extra={"sender": self.name, "reason": reason})
        self._over(trouble)

    def _over(self, trouble: Halt | Reinspect) -> None:
        with self._changing:
            self._opened = False
            self._writer.end_session(trouble)


@dataclass(slots=True)
class SlotSenders:
    """The senders of a worker; `control` writes the registry of producer ids, `latencies` are counted."""

    target: ConnectionSettings
    control: ControlWriter
    latencies: FlowLatencies = field(default_factory=FlowLatencies)
    _senders: dict[tuple[str, int], SlotSender] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, record: FlowRecord, slot: int) -> SlotSender:
        """The sender of a slot, started when it is asked for the first time."""
        with self._lock:
            sender = self._senders.get((record.flow.id, slot))
            if sender is None or not sender.is_alive():
                sender = self._senders[record.flow.id, slot] = SlotSender(self._slot_writer(record, slot))
                sender.start()
            return sender

    def give_up(self, slots: set[int]) -> None:
        """These slots belong to others now."""
        self._end(lambda _flow_id, slot: slot in slots)

    def forget(self, flow_id: str) -> None:
        """The flow's content changed."""
        self._end(lambda known, _slot: known == flow_id)

    def end(self) -> None:
        """Ask the senders of all slots to end."""
        self._end(lambda _flow_id, _slot: True)

    def _end(self, meant: Callable[[str, int], bool]) -> None:
        with self._lock:  # looks start senders from their own threads
            for key in [key for key in self._senders if meant(*key)]:
                self._senders.pop(key).end()

    def _slot_writer(self, record: FlowRecord, slot: int) -> SlotWriter:
        flow = record.flow
        return SlotWriter(
            flow.id,
            slot,
            build_home_path(record),
            lambda address: open_connection(self.target, address),
            lambda: read_transaction_version(self.target),
            lambda producer_id, path: self._register(record, producer_id, path),
            lambda: read_slot_paths(self.target, flow.id, slot) if flow.paths else set(),
            latency=self.latencies.of(flow.id),
        )

    def _register(self, record: FlowRecord, producer_id: int, path: CopyPath) -> None:
        register_producer(
            self.control, ProducerRecord(producer_id, record.flow.id, path, "transactions", record.topology)
        )


def build_home_path(record: FlowRecord) -> CopyPath:
    """The way of records that were born on the flow's source."""
    return (record.source_cluster_id or record.flow.source,)


def read_slot_paths(target: ConnectionSettings, flow: str, slot: int) -> set[CopyPath]:
    """The ways that a slot of a flow has written, as the keys of its ledger say, whatever stands under them: a way that
    is not known is a writer that is not fenced. Raises ClusterError."""
    beginning = build_path_entry(flow, slot, ())[0]
    found: set[CopyPath] = set()
    for record in read_control_log(
        target, LEDGER_TOPIC, [slot], timeout=LEDGER_READ_TIMEOUT_S, whole=True, invalid=True
    ):
        way = record.key.removeprefix(beginning)
        if way != record.key and way and (record.why or record.value is not None):
            found.add(tuple(way.split(">")))
    return found


def read_transaction_version(target: ConnectionSettings) -> int:
    """The finalized transaction.version; 0 where the feature is unknown (before Kafka 4). Raises ClusterError."""
    with closing(open_connection(target)) as connection:
        return connection.versions.transaction_version
