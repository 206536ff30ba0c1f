"""The transaction coordinator of a `FakeCluster`: epochs, fencing, implicit and explicit partitions, markers.

Rules: TransactionCoordinator and TransactionMetadata of Kafka 4.3 (KIP-98, KIP-890). Markers are written at once;
`busy` plays the part of a coordinator that is still at it, and `fails_over` that of one that dies before it has noted
that a transaction is complete, which only the next request about that transaction's id shows.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from watershed.clusters.fake_log import PartitionLog
from watershed.clusters.record_batch import ABORT, COMMIT, build_marker_batch, decode_batch_header
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.transaction_requests import ProducerIdAndEpoch

_Place = tuple[uuid.UUID, int]
_NOBODY = ProducerIdAndEpoch(-1, -1)


@dataclass(slots=True)
class _Transactional:
    producer: ProducerIdAndEpoch
    before: ProducerIdAndEpoch = _NOBODY  # who wrote the transaction that ended last, and how it ended (KIP-890)
    committed: bool | None = None
    partitions: dict[_Place, None] = field(default_factory=dict)
    written: list[tuple[_Place, int, int]] = field(default_factory=list)  # markers, by epoch and kind, not noted yet


class CoordinatorHost(Protocol):
    """What the coordinator needs of its cluster: the time, fresh producer ids, and the logs it writes markers to."""

    clock: Callable[[], int]

    def issue_producer_id(self) -> int:
        """Returns a producer id that nobody has."""
        ...

    def log_by_id(self, topic_id: uuid.UUID, partition: int) -> PartitionLog | None:
        """Returns the log of a partition, or None when the topic is gone."""
        ...


class FakeCoordinator:
    """`version` is the cluster's transaction.version. `busy`: how many more requests answer CONCURRENT_TRANSACTIONS.
    `last_epoch`: behind it the id gets another producer id (32766 on a real cluster)."""

    def __init__(self, cluster: CoordinatorHost, version: int = 2) -> None:
        self.version, self.busy, self.last_epoch = version, 0, 32_766
        self.epoch = 0  # one more whenever another broker becomes coordinator
        self._cluster = cluster
        self._ids: dict[str, _Transactional] = {}

    def init(self, transactional_id: str) -> tuple[int, ProducerIdAndEpoch]:
        """A new incarnation; an open transaction of the one before is aborted."""
        if self._is_busy():
            return error_codes.CONCURRENT_TRANSACTIONS, _NOBODY
        known = self._ids.get(transactional_id)
        if known is None:
            known = _Transactional(ProducerIdAndEpoch(self._cluster.issue_producer_id(), 0))
            self._ids[transactional_id] = known
            return error_codes.NONE, known.producer
        if known.partitions:
            self._end(known, commit=False, bump=True)
        known.producer = self._next(known.producer)
        known.before, known.committed, known.written = _NOBODY, None, []
        return error_codes.NONE, known.producer

    def fails_over(self) -> None:
        """Another broker becomes coordinator, and writes markers again of which it does not know that they were written
        (ProducerAppendInfo: "allowing duplicate marker write")."""
        self.epoch += 1
        for known in self._ids.values():
            for place, epoch, kind in known.written:
                self._write(place, known.producer.producer_id, epoch, kind)

    def add(self, transactional_id: str, producer: ProducerIdAndEpoch, place: _Place) -> int:
        """What AddPartitionsToTxn does for a partition."""
        if self._is_busy():
            return error_codes.CONCURRENT_TRANSACTIONS
        known = self._ids.get(transactional_id)
        if known is None or known.producer.producer_id != producer.producer_id:
            return error_codes.INVALID_PRODUCER_ID_MAPPING
        if known.producer.epoch != producer.epoch:
            return error_codes.PRODUCER_FENCED
        known.partitions[place] = None
        known.written = []
        return error_codes.NONE

    def append(self, transactional_id: str, place: _Place, log: PartitionLog, data: bytes) -> tuple[int, int, str]:
        """A transactional Produce of one batch."""
        batch = decode_batch_header(data)
        producer = ProducerIdAndEpoch(batch.producer_id, batch.producer_epoch)
        known = self._ids.get(transactional_id)
        inside = known is not None and place in known.partitions and known.producer == producer
        if not inside and self.version >= 2:
            error = self.add(transactional_id, producer, place)
            if error:
                return error_codes.INVALID_PRODUCER_EPOCH if error == error_codes.PRODUCER_FENCED else error, -1, ""
            if batch.base_sequence != 0:
                return error_codes.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, "a transaction begins at sequence 0"
        elif not inside:
            return error_codes.INVALID_TXN_STATE, -1, "the partition is not part of the transaction"
        return log.append(data, self._cluster.clock())

    def end(
        self, transactional_id: str, producer: ProducerIdAndEpoch, commit: bool, bump: bool
    ) -> tuple[int, ProducerIdAndEpoch]:
        """EndTxn. bump: version 5 and later."""
        if self._is_busy():
            return error_codes.CONCURRENT_TRANSACTIONS, _NOBODY
        known = self._ids.get(transactional_id)
        if known is None:
            return error_codes.INVALID_PRODUCER_ID_MAPPING, _NOBODY
        if bump and producer == known.before and not known.partitions:  # the same EndTxn once more
            return (
                (error_codes.NONE, known.producer)
                if commit == known.committed
                else (error_codes.INVALID_TXN_STATE, _NOBODY)
            )
        if known.producer.producer_id != producer.producer_id:
            return error_codes.INVALID_PRODUCER_ID_MAPPING, _NOBODY
        if known.producer != producer:
            return error_codes.PRODUCER_FENCED, _NOBODY
        if not known.partitions and (commit or not bump):
            return error_codes.INVALID_TXN_STATE, _NOBODY
        self._end(known, commit, bump)
        known.before, known.committed = producer, commit
        return error_codes.NONE, known.producer

    def _end(self, known: _Transactional, commit: bool, bump: bool) -> None:
        producer_id, epoch = known.producer
        kind = COMMIT if commit else ABORT
        known.written = [(place, epoch + bump, kind) for place in known.partitions]
        for place in known.partitions:
            self._write(place, producer_id, epoch + bump, kind)
        known.partitions = {}
        if bump:
            known.producer = self._next(known.producer)

    def _write(self, place: _Place, producer_id: int, epoch: int, kind: int) -> None:
        log = self._cluster.log_by_id(*place)
        newer = log is None or any(
            state.producer_id == producer_id and state.epoch > epoch for state in log.producers.describe()
        )
        if log is not None and not newer:
            now = self._cluster.clock()
            log.write(build_marker_batch(producer_id, epoch, kind, now, self.epoch), now)
            log.coordinators[producer_id] = self.epoch

    def _next(self, producer: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
        if producer.epoch < self.last_epoch:
            return ProducerIdAndEpoch(producer.producer_id, producer.epoch + 1)
        return ProducerIdAndEpoch(self._cluster.issue_producer_id(), 0)

    def _is_busy(self) -> bool:
        if self.busy <= 0:
            return False
        self.busy -= 1
        return True
