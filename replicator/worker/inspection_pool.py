"""Log inspections under way, side by side in the pool of the worker."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType
from typing import Final, NamedTuple

from watershed.clusters.control_topics import ControlWriter
from watershed.clusters.errors import ClusterError
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.partition_end_records import PartitionEnd, build_end_key
from watershed.clusters.settings import ConnectionSettings, SettingsLookup
from watershed.replicator.copy.schema_ids import SchemaIdTranslations
from watershed.replicator.copy.transactions.slot_sender import SlotSenders
from watershed.replicator.copy.transactions.slot_takeover import TakenTransactionPartition, TransactionTakeover
from watershed.replicator.copy_limit import CopyLimit
from watershed.replicator.ledger.shared_ledger import SharedLedger
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import Halt, Reinspect
from watershed.replicator.recovery.found_ends import LimitOrTrouble, find_limits
from watershed.replicator.recovery.operator_decisions import COPY_FOREIGN
from watershed.replicator.recovery.repeat_takeover import RepeatTakeover, TakenRepeatablePartition
from watershed.replicator.recovery.settled_log_ends import SettledLogEnds
from watershed.replicator.recovery.takeover import TakenPartition, take_over_partitions
from watershed.replicator.worker.loop_guards import LoopGuards
from watershed.replicator.worker.partition_task import PartitionTask
from watershed.topology.delivery_guarantee import AT_LEAST_ONCE

log = logging.getLogger("watershed.worker")

INSPECTION_THREADS: Final = 4
_TOGETHER: Final = 64  # partitions that one inspection takes on, at least, if there are so many

_Found = TakenPartition | TakenTransactionPartition | TakenRepeatablePartition | Halt | Reinspect


class _Inspected(NamedTuple):
    """What was found of each partition, and how far those are copied that have an end: the flow's of this revision."""

    found: dict[PartitionKey, _Found]
    limits: Mapping[PartitionKey, LimitOrTrouble] = MappingProxyType({})
    revision: int = 0

    def judge(self, task: PartitionTask) -> _Found:
        """What was found, or why it cannot be used: nothing may be copied behind an end."""
        result, limit = self.found[task.key], self.limits.get(task.key)
        if isinstance(result, Halt | Reinspect):
            return result
        if self.revision != task.record.end_revision:
            return Reinspect("the flow's end has changed meanwhile")
        return limit if isinstance(limit, Reinspect) else result


@dataclass(slots=True)
class InspectionPool:
    """`start` begins them, `finished` hands out what they found."""

    target: ConnectionSettings
    connect: SettingsLookup
    pool: Executor
    writer: ControlWriter
    worker_id: str
    expiration_ms: int
    senders: SlotSenders
    guards: LoopGuards
    ledger: SharedLedger
    stillness: SettledLogEnds = field(default_factory=SettledLogEnds)
    ends: Mapping[str, PartitionEnd] = field(default_factory=dict)  # what is written down of them, by key
    schema_ids: SchemaIdTranslations | None = None  # asked first: who waits for a schema takes nothing over
    _under_way: list[tuple[list[PartitionTask], Future[_Inspected]]] = field(default_factory=list)

    @property
    def is_idle(self) -> bool:
        """True while none is under way."""
        return not self._under_way

    def start(self, tasks: Iterable[PartitionTask]) -> None:
        """Look for those that are due. A flow's next ones wait until its last ones are done, so that they go together:
        each inspection asks for the leaders of all its topics. To be called in each round of the worker's loop."""
        now = time.monotonic()
        self.stillness.note_round(now)
        busy = {under_way[0].key.flow for under_way, _ in self._under_way}
        due: dict[str, list[PartitionTask]] = defaultdict(list)
        for task in tasks:
            if task.is_ready_to_inspect(now) and task.key.flow not in busy:
                due[task.key.flow].append(task)
        for waiting in due.values():
            for together in _chunks(waiting):
                for task in together:
                    task.begin_inspection()
                self._under_way.append((together, self.pool.submit(self._inspect, together[0].record, together)))

    def finished(self) -> Iterator[tuple[PartitionTask, _Found]]:
        """Yield the tasks whose inspection has ended, with its result."""
        under_way, self._under_way = self._under_way, []
        for tasks, future in under_way:
            if not future.done():
                self._under_way.append((tasks, future))
                continue
            inspected = _results(tasks, future)
            for task in tasks:
                limit, result = inspected.limits.get(task.key), inspected.judge(task)
                task.limit = limit if isinstance(limit, CopyLimit) else None
                task.end_inspection(decision_judged=not isinstance(result, Reinspect))
                inspected.found.pop(task.key)  # so that not all of it is there when all copies are
                yield task, result

    def _inspect(self, record: FlowRecord, tasks: list[PartitionTask]) -> _Inspected:
        try:
            source = self.connect(record.flow.source)
        except ClusterError as error:
            return _Inspected({task.key: Reinspect(str(error)) for task in tasks})
        limits: dict[PartitionKey, LimitOrTrouble] = {}
        if record.flow.end is not None:
            known = {key: self.ends.get(build_end_key(key.flow, key.topic, key.partition)) for key in _keys(tasks)}
            limits = find_limits(record, known, source, self.writer, self.worker_id)
        found = self._take_over(record, tasks, source)
        self.ledger.release(record.flow.id, {task.slot for task in tasks})
        return _Inspected(found, limits, record.end_revision)

    def _take_over(
        self, record: FlowRecord, tasks: list[PartitionTask], source: ConnectionSettings
    ) -> dict[PartitionKey, _Found]:
        waiting: dict[PartitionKey, _Found] = {}
        if self.schema_ids is not None:
            try:
                why = self.schema_ids.ask(record.flow, source, [task.key for task in tasks])
            except ClusterError as error:
                return {task.key: Reinspect(str(error)) for task in tasks}
            waiting = {key: Reinspect(reason) for key, reason in why.items()}
            tasks = [task for task in tasks if task.key not in waiting]
            if not tasks:
                return waiting
        slots = {task.key: task.slot for task in tasks}
        decisions = {
            task.key: task.decision
            for task in tasks
            if task.decision is not None and task.decision.kind != COPY_FOREIGN
        }
        if record.flow.delivery == "transactions":
            taking = TransactionTakeover(
                record, source, self.target, self.stillness, self.writer, self.senders, self.ledger, decisions=decisions
            )
            return {**waiting, **taking.of(slots)}
        if record.guarantee == AT_LEAST_ONCE:
            repeatable = RepeatTakeover(
                record,
                source,
                self.target,
                self.stillness,
                self.writer,
                self.guards.of(record, source).at,
                self.ledger,
                decisions=decisions,
            )
            return {**waiting, **repeatable.take(list(slots))}
        taken = take_over_partitions(
            record,
            slots,
            source,
            self.target,
            self.expiration_ms,
            self.stillness,
            self.worker_id,
            self.writer,
            decisions,
            [task.key for task in tasks if task.gap_method is not None],
            self.guards.of(record, source).at,
            self.ledger,
        )
        return {**waiting, **taken}


def _keys(tasks: list[PartitionTask]) -> list[PartitionKey]:
    return [task.key for task in tasks]


def _results(tasks: list[PartitionTask], future: Future[_Inspected]) -> _Inspected:
    """What was found. An inspection that ended in a way nobody thought of (a fault of ours) concerns its partitions
    only: each is looked at by itself then, so that the one that it is about ends up alone, and halted."""
    try:
        return future.result()
    except Exception as error:
        log.exception("look failed", extra={"flow": tasks[0].key.flow, "partitions": len(tasks)})
        reason = f"looking at the logs failed ({type(error).__name__}: {error})"
        for task in tasks:
            task.alone = True
        trouble = Reinspect(reason, "failed" if len(tasks) == 1 else None)
        return _Inspected(dict.fromkeys(_keys(tasks), trouble))


def _chunks(tasks: list[PartitionTask]) -> Iterator[list[PartitionTask]]:
    """Parts that can be looked at side by side; no slot is in two of them, so nobody waits for another's ledger. As few
    as keep the pool busy: each asks for the leaders of all its topics. Those that are to be alone come by themselves.
    """
    yield from ([task] for task in tasks if task.alone)
    chunk: list[PartitionTask] = []
    together = [task for task in tasks if not task.alone]
    size = max(_TOGETHER, len(together) // INSPECTION_THREADS)
    for _slot, group in groupby(sorted(together, key=lambda task: task.slot), key=lambda task: task.slot):
        chunk += group
        if len(chunk) >= size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
