"""The thread that has fetched records transformed: one micro-batch after the other, of all partitions that wait.

Whoever evaluates the expressions (`TransformEngine`) does nothing but that: it reads no topic, writes none and keeps
nothing. So a micro-batch that failed, or ran twice, is the same as one that never was; what is exact about a flow is
where it is read and written (`replicator.copy.transactions`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from watershed.clusters.errors import ClusterError
from watershed.clusters.registry.record_schemas import NO_RECORD_SCHEMAS, RecordSchemas, UnknownSchema
from watershed.replicator.batch.record_batch import RawBatch
from watershed.replicator.batch.repack import RejectedRecord
from watershed.replicator.batch.untransformed_selection import UntransformedPart
from watershed.replicator.copy.transactions.transformed_copy import TransformedCopy
from watershed.replicator.copy.writer_schemas import FlowWriterSchemas
from watershed.replicator.errors import ReplicatorError
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import Halt, OffsetSpan, Reinspect
from watershed.replicator.transport.active_copy import ActiveCopy
from watershed.topology.egress_compression import EgressCompression
from watershed.topology.record_transform import RecordTransform

log = logging.getLogger("watershed.transforms")

_MICRO_BATCH_BYTES: Final = 64 << 20  # of batches as stored, all partitions together
_PARTITION_BYTES: Final = 16 << 20  # of one of them; a job costs Spark the same whatever is in it
_ALIVE_S: Final = 0.25  # how long the thread sleeps unless it is woken
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 10.0  # until a micro-batch that failed is tried again
UNTRANSFORMED_STATE: Final = "untransformed"


class TransformRequest(NamedTuple):
    """A part of a source partition. leave_out: source offset → why, of records that the target does not take.
    schemas: what is known of the schema ids in front of its keys and values. compression: of batches that have no
    codec."""

    key: PartitionKey
    part: UntransformedPart
    leave_out: Mapping[int, str]
    batch_bytes: int  # of records, uncompressed, at which a batch is full
    schemas: RecordSchemas = NO_RECORD_SCHEMAS
    compression: EgressCompression | None = None


class TransformedPart(NamedTuple):
    """What became of a part: batches with spans, in order, and the records that no expression could be applied to.
    unknown: schema ids in it of which nothing is known; nothing else counts then, and it is to be tried again. failed:
    why none of it can be used, also when it is tried again."""

    batches: list[RawBatch]
    rejected: list[RejectedRecord]
    unknown: frozenset[UnknownSchema] = frozenset()
    failed: str = ""


class TransformEngine(Protocol):
    """Evaluates the expressions of flows."""

    def transform(self, transform: RecordTransform, requests: Sequence[TransformRequest]) -> list[TransformedPart]:
        """One result a request, in their order. Raises TransformFailed."""


class TransformFailed(ReplicatorError):
    """The expressions could not be evaluated at all; the message says why, and never names a value of a record.
    is_lasting: somebody has to change something; else it is tried again."""

    def __init__(self, message: str, *, is_lasting: bool = False) -> None:
        super().__init__(message)
        self.is_lasting = is_lasting


@dataclass(slots=True)
class _Served:
    active: ActiveCopy
    copy: TransformedCopy
    transform: RecordTransform
    batch_bytes: int
    schemas: FlowWriterSchemas | None

    def build_request(self, part: UntransformedPart) -> TransformRequest:
        known = NO_RECORD_SCHEMAS if self.schemas is None else self.schemas.list_known(self.copy.key.topic)
        terms = self.active.terms
        return TransformRequest(self.copy.key, part, terms.refused, self.batch_bytes, known, terms.compression)


@dataclass(slots=True)
class TransformThread:
    """Serves the partitions that are added to it. The thread starts with the first."""

    engine: TransformEngine
    _served: dict[int, _Served] = field(default_factory=dict)
    _condition: threading.Condition = field(default_factory=threading.Condition)
    _woken: bool = False
    _first: int = 0  # of the partitions
    _ending: bool = False
    _pause_s: float = _FIRST_PAUSE_S
    _thread: threading.Thread | None = None

    def add(
        self,
        active: ActiveCopy,
        transform: RecordTransform,
        batch_bytes: int,
        schemas: FlowWriterSchemas | None = None,
    ) -> None:
        """Transform what this partition's copy holds. schemas: where ids in front of its records are looked at."""
        assert isinstance(active.copy, TransformedCopy)
        self._served[id(active)] = _Served(active, active.copy, transform, batch_bytes, schemas)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="transforms", daemon=True)
            self._thread.start()

    def remove(self, active: ActiveCopy) -> None:
        """The partition is nobody's any more."""
        self._served.pop(id(active), None)

    def wake(self) -> None:
        """Something waits. Any thread may call it."""
        with self._condition:
            self._woken = True
            self._condition.notify()

    def end(self) -> None:
        """Ask the thread to end; does not wait."""
        self._ending = True
        self.wake()

    def _run(self) -> None:
        while not self._ending:
            if not self.step():
                with self._condition:
                    if not self._woken:
                        self._condition.wait(_ALIVE_S)
                    self._woken = False

    def step(self) -> bool:
        """Transform one micro-batch of each flow; False: nothing waited."""
        flows: dict[RecordTransform, list[tuple[_Served, UntransformedPart]]] = {}
        room = _MICRO_BATCH_BYTES
        everybody = list(self._served.values())
        first = self._first % max(len(everybody), 1)
        self._first = first + 1
        for served in everybody[first:] + everybody[:first]:  # another one is first each time: there is room for few
            for part in served.copy.list_waiting(min(_PARTITION_BYTES, room)) if room > 0 else ():
                flows.setdefault(served.transform, []).append((served, part))
                room -= part.size
        for transform, waiting in flows.items():
            self._transform(transform, waiting)
        return bool(flows)

    def _transform(self, transform: RecordTransform, waiting: list[tuple[_Served, UntransformedPart]]) -> None:
        requests = [served.build_request(part) for served, part in waiting]
        began = time.monotonic()
        try:
            results = self.engine.transform(transform, requests)
        except TransformFailed as error:
            if error.is_lasting:
                self._stop(waiting, Halt(UNTRANSFORMED_STATE, str(error)))
            else:
                self._try_later(waiting, str(error))
            return
        except Exception as error:
            log.exception("transform failed", extra={"flow": requests[0].key.flow})
            self._stop(waiting, Reinspect(f"the transformation failed: {type(error).__name__}", "failed"))
            return
        log.debug("transformed", extra={"parts": len(requests), "seconds": round(time.monotonic() - began, 3)})
        try:
            self._take_results(waiting, results)
        except Exception as error:  # the thread serves all flows
            log.exception("results failed", extra={"flow": requests[0].key.flow})
            why = f"what the transformation gave could not be taken: {type(error).__name__}: {error}"
            self._stop(waiting, Reinspect(why, "failed"))

    def _take_results(
        self, waiting: list[tuple[_Served, UntransformedPart]], results: Sequence[TransformedPart]
    ) -> None:
        """Parts of a partition are taken in order: where one is not, those behind it go on waiting."""
        taken: list[_Served] = []
        behind: set[int] = set()  # copies of which a part was not taken
        learning: set[str] = set()  # topics of which schemas were unknown
        later: tuple[_Served, UntransformedPart, str] | None = None
        for (served, part), result in zip(waiting, results, strict=True):
            if id(served.copy) in behind:
                continue
            if result.unknown:
                behind.add(id(served.copy))
                learning.add(served.copy.key.topic)
                if why := self._learn(served, part, result.unknown):
                    later = served, part, why
                    break
            elif self._take(served, part, result):
                taken.append(served)
            else:
                behind.add(id(served.copy))
        for served in taken:
            if served.schemas is not None and served.copy.key.topic not in learning:
                served.schemas.settle(served.copy.key.topic)
            served.active.hindrance = ""
            served.active.wake()
            served.active.room()
        if later is None:
            self._pause_s = _FIRST_PAUSE_S
        else:
            self._try_later([later[:2]], later[2])

    def _learn(self, served: _Served, part: UntransformedPart, unknown: frozenset[UnknownSchema]) -> str:
        """Ask for schemas; the part waits until they are known. Returns why a registry did not answer; "" where it
        did."""
        assert served.schemas is not None, "a record was opened whose flow knows no schemas"
        try:
            why = served.schemas.learn(served.copy.key, unknown, part.start)
        except ClusterError as error:
            return str(error)
        if why:
            served.copy.stop(Reinspect(why))
        return ""

    def _try_later(self, waiting: list[tuple[_Served, UntransformedPart]], why: str) -> None:
        """What waits goes on waiting; the partitions say why."""
        log.warning("not transformed", extra={"reason": why, "again_s": self._pause_s})
        for served, _ in waiting:
            served.active.hindrance = why
        with self._condition:
            self._condition.wait_for(lambda: self._ending, self._pause_s)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    def _stop(self, waiting: list[tuple[_Served, UntransformedPart]], trouble: Halt | Reinspect) -> None:
        for served, _ in waiting:
            served.copy.stop(trouble)

    def _take(self, served: _Served, part: UntransformedPart, result: TransformedPart) -> bool:
        """False where it was not taken, nor can be what is behind it."""
        copy, quarantine = served.copy, served.active.quarantine
        batches = result.batches
        refused, through = None, part.end
        if result.failed:
            where = f"source topic {copy.key.topic}, partition {copy.key.partition}"
            span = OffsetSpan(part.start, part.end)
            text = f"{where}, some batch of offsets {span.first} to {span.end - 1}: {result.failed}"
            refused, through, batches = Halt(UNTRANSFORMED_STATE, text, source=span), part.start, []
        elif result.rejected and quarantine is not None:
            try:
                quarantine.keep(copy.key, result.rejected)
            except ClusterError as error:
                copy.stop(Reinspect(f"{len(result.rejected)} records could not be quarantined: {error}"))
                return False
        elif result.rejected:
            first = result.rejected[0]
            through = first.source_offset
            batches = [batch for batch in batches if batch.base < through]
            refused = _build_halt(copy.key, first, len(result.rejected) - 1)
        return copy.take_transformed(part, batches, refused, through)


def _build_halt(key: PartitionKey, first: RejectedRecord, more: int) -> Halt:
    others = f" (and {more} more near it)" if more else ""
    text = f"source topic {key.topic}, partition {key.partition}, offset {first.source_offset}{others}: {first.reason}"
    return Halt(UNTRANSFORMED_STATE, text, source=OffsetSpan(first.source_offset, first.source_offset + 1))
