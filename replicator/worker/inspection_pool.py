"""Looks at the logs under way, side by side in the worker's pool."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from itertools import groupby

from clusters.control_topics import ControlWriter
from clusters.errors import ClusterError
from clusters.flow_records import FlowRecord
from clusters.settings import ConnectionSettings
from replicator.copy.partition_copy import PartitionKey
from replicator.copy.schema_ids import SchemaIdTranslations
from replicator.copy.transactions.slot_sender import SlotSenders
from replicator.copy.transactions.slot_takeover import TakenTransactionPartition, TransactionTakeover
from replicator.recovery.log_inspection import SettledLogEnds
from replicator.recovery.operator_decisions import COPY_FOREIGN
from replicator.recovery.takeover import TakenPartition, take_over_partitions
from replicator.states import Halt, Reinspect
from replicator.worker.loop_guards import LoopGuards
from replicator.worker.partition_task import PartitionTask

log = logging.getLogger("watershed.worker")

_TOGETHER = 64  # partitions that one look takes on, at least, if there are so many

_Found = TakenPartition | TakenTransactionPartition | Halt | Reinspect


@dataclass(slots=True)
class InspectionPool:
    """`start` begins them, `finished` hands out what they found."""

    target: ConnectionSettings
    connect: Callable[[str], ConnectionSettings]
    pool: Executor
    writer: ControlWriter
    worker_id: str
    expiration_ms: int
    senders: SlotSenders
    guards: LoopGuards
    stillness: SettledLogEnds = field(default_factory=SettledLogEnds)
    schema_ids: SchemaIdTranslations | None = None  # asked first: who waits for a schema takes nothing over
    _under_way: list[tuple[list[PartitionTask], Future[dict[PartitionKey, _Found]]]] = field(default_factory=list)

    def start(self, seats: Iterable[PartitionTask]) -> None:
        """Look for those that are due. A flow's next ones wait until its last ones are done, so that they go together:
        each look reads the ledger of its slots."""
        now = time.monotonic()
        busy = {under_way[0].key.flow for under_way, _ in self._under_way}
        due: dict[str, list[PartitionTask]] = defaultdict(list)
        for seat in seats:
            if seat.is_ready_to_inspect(now) and seat.key.flow not in busy:
                due[seat.key.flow].append(seat)
        for waiting in due.values():
            for together in _chunks(waiting):
                for seat in together:
                    seat.looks()
                self._under_way.append((together, self.pool.submit(self._look, together[0].record, together)))

    def finished(self) -> Iterator[tuple[PartitionTask, _Found]]:
        under_way, self._under_way = self._under_way, []
        for seats, future in under_way:
            if not future.done():
                self._under_way.append((seats, future))
                continue
            results = _results(seats, future)
            for seat in seats:
                seat.looked(judged=not isinstance(results[seat.key], Reinspect))
                yield seat, results[seat.key]

    def _look(self, record: FlowRecord, seats: list[PartitionTask]) -> dict[PartitionKey, _Found]:
        try:
            source = self.connect(record.flow.source)
        except ClusterError as error:
            return {seat.key: Reinspect(str(error)) for seat in seats}
        waiting: dict[PartitionKey, _Found] = {}
        if self.schema_ids is not None:
            try:
                why = self.schema_ids.ask(record.flow, source, [seat.key for seat in seats])
            except ClusterError as error:
                return {seat.key: Reinspect(str(error)) for seat in seats}
            waiting = {key: Reinspect(told) for key, told in why.items()}
            seats = [seat for seat in seats if seat.key not in waiting]
            if not seats:
                return waiting
        slots = {seat.key: seat.slot for seat in seats}
        orders = {seat.key: seat.order for seat in seats if seat.order is not None and seat.order.kind != COPY_FOREIGN}
        if record.flow.delivery == "transactions":
            taking = TransactionTakeover(record, source, self.target, self.stillness, self.senders, self.writer, orders)
            return {**waiting, **taking.of(slots)}
        taken = take_over_partitions(
            record,
            slots,
            source,
            self.target,
            self.expiration_ms,
            self.stillness,
            self.worker_id,
            self.writer,
            orders,
            [seat.key for seat in seats if seat.way is not None],
            self.guards.of(record, source).at,
        )
        return {**waiting, **taken}


def _results(seats: list[PartitionTask], future: Future[dict[PartitionKey, _Found]]) -> dict[PartitionKey, _Found]:
    """What was found. A look that ended in a way nobody thought of (a fault of ours) concerns its partitions only: each
    is looked at by itself then, so that the one that it is about ends up alone, and loud."""
    try:
        found = future.result()
    except Exception as error:
        log.exception("look failed", extra={"flow": seats[0].key.flow, "partitions": len(seats)})
        told = f"looking at the logs failed ({type(error).__name__}: {error})"
        found = dict.fromkeys((seat.key for seat in seats), Reinspect(told, "failed" if len(seats) == 1 else None))
        for seat in seats:
            seat.alone = True
    return found


def _chunks(seats: list[PartitionTask]) -> Iterator[list[PartitionTask]]:
    """Parts that can be looked at side by side; no slot is in two of them, so no ledger partition is read twice. Those
    that are to be alone come by themselves."""
    yield from ([seat] for seat in seats if seat.alone)
    chunk: list[PartitionTask] = []
    together = [seat for seat in seats if not seat.alone]
    for _slot, group in groupby(sorted(together, key=lambda seat: seat.slot), key=lambda seat: seat.slot):
        chunk += group
        if len(chunk) >= _TOGETHER:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
