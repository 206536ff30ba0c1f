"""Announcing runs: what is written to the ledger while a partition is copied.

What is new goes into a small record; after LOOSE of them, or when there is much at once, the block that is being
filled is written anew as a whole, packed, and what stood in its place gets tombstones once that is acknowledged. So a
run costs one small record when it comes alone, and a byte or two in the end (decision 0023).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from operator import gt
from threading import Lock
from typing import Final

from watershed.clusters.control_topics import LEDGER_TOPIC, ControlWriter, WriteCallback, compute_slot
from watershed.clusters.control_values import ControlValue
from watershed.clusters.errors import ClusterError
from watershed.replicator.ledger.column_rows import ColumnRows
from watershed.replicator.ledger.leader_epochs import LeaderEpochEntry
from watershed.replicator.ledger.ledger_block import BLOCK_RUNS, LedgerBlock
from watershed.replicator.ledger.offset_map import OffsetRun

MAX_LOOSE_RECORDS: Final = 16  # small records before the block that is being filled is written again
WHOLE_BLOCK_RUNS: Final = 128  # runs that go into the block right away


@dataclass(slots=True)
class PartitionLedgerWriter:
    """Writes the runs of one generation. One record is under way at a time; what comes meanwhile goes together.

    `later` runs a function soon, outside any acknowledgement: the Kafka client crashes when it is called from its
    own callback (confluent-kafka 2.16: CallState_get assertion).
    """

    writer: ControlWriter
    template: LedgerBlock  # the first block to write, without runs
    on_durable: Callable[[list[OffsetRun]], None]
    on_failure: Callable[[ClusterError], None]
    later: Callable[[Callable[[], None]], None]
    epochs: Callable[[], tuple[LeaderEpochEntry, ...]] = tuple  # the source's leader epochs as far as they are known
    needs_epoch: Callable[[], bool] = bool
    _open: tuple[array[int], array[int]] = field(default_factory=lambda: (array("q"), array("q")))  # being filled
    _written: int = 0  # records
    _whole: bool = False  # the record that is under way holds all that is open
    _replaced: list[str] = field(default_factory=list)  # keys of records whose runs the next whole block repeats
    _said: tuple[LeaderEpochEntry, ...] | None = None  # the epochs of the record before
    _waiting: list[OffsetRun] = field(default_factory=list)
    _under_way: bool = False
    _closing: bool = False
    _lock: Lock = field(default_factory=Lock)

    def append(self, runs: list[OffsetRun]) -> None:
        """Write `runs`; `on_durable` is called with them when the ledger's brokers hold them."""
        with self._lock:
            self._waiting.extend(runs)
            batch = self._next()
        if batch:
            self._write(*batch)

    def close(self) -> None:
        """Say that this generation sends nothing more and that all it sent was answered."""
        with self._lock:
            self.template = replace(self.template, closed=True)
            self._closing = True
            batch = self._next()
        if batch:
            self._write(*batch)

    def _next(self) -> tuple[LedgerBlock, list[OffsetRun]] | None:
        if self._under_way or not (self._waiting or self._closing):
            return None
        targets, sources = self._open
        if len(targets) >= BLOCK_RUNS and self._waiting:  # it was written whole when it became full
            del targets[:], sources[:]
            self._replaced.clear()
        room = BLOCK_RUNS - len(targets)
        batch, self._waiting = self._waiting[:room], self._waiting[room:]
        targets.extend(run.target for run in batch)
        sources.extend(run.source for run in batch)
        self._under_way, self._closing = True, self._closing and bool(self._waiting)
        loose = len(self._replaced)
        self._whole = (
            loose >= MAX_LOOSE_RECORDS or len(batch) >= WHOLE_BLOCK_RUNS or (bool(batch) and len(targets) >= BLOCK_RUNS)
        )
        epochs = self.epochs()
        block = replace(
            self.template,
            number=self.template.number + self._written,
            runs=_in_order(targets, sources) if self._whole else batch,
            epochs=epochs if self._whole or epochs != self._said else (),
            needs_epoch=self.needs_epoch(),
        )
        self._written, self._said = self._written + 1, epochs
        return block, batch

    def _go_on(self, written: str) -> None:
        """The record under this key is acknowledged."""
        with self._lock:
            self._under_way = False
            replaced = self._replaced if self._whole else []
            self._replaced = [written] if self._whole else [*self._replaced, written]
            following = self._next()
        for key in replaced:
            self._put(key, None, lambda error, _offset: None if error is None else self.on_failure(error))
        if following:
            self._write(*following)

    def _write(self, block: LedgerBlock, batch: list[OffsetRun]) -> None:
        def done(error: ClusterError | None, _offset: int) -> None:
            if error is not None:
                self.on_failure(error)
                return
            self.on_durable(batch)
            self.later(lambda: self._go_on(block.record_key))

        self._put(block.record_key, block.to_json(), done)

    def _put(self, key: str, value: ControlValue | None, done: WriteCallback) -> None:
        about = self.template.key
        try:
            self.writer.put_nowait(
                LEDGER_TOPIC, key, value, compute_slot(about.flow, about.topic, about.partition), on_done=done
            )
        except ClusterError as error:
            self.on_failure(error)


def _in_order(targets: array[int], sources: array[int]) -> ColumnRows[OffsetRun]:
    """A copy; two threads may have announced side by side."""
    if any(map(gt, targets, targets[1:])) or any(map(gt, sources, sources[1:])):
        return ColumnRows.of(OffsetRun, sorted(map(OffsetRun, targets, sources)))
    return ColumnRows(OffsetRun, (targets[:], sources[:]))
