"""Writing one archived partition into the log of a target partition, exactly once.

The log itself says how far a restore is. Each attempt reads where it ends, compares what is new there with the archive,
and goes on behind it with the copies that workers use (`AlignedCopy`, `PartitionCopy`). When an answer is lost or not
the expected one, nothing is sent again: the next attempt looks at the log anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from watershed.clusters.cluster_protocol import LogRange
from watershed.clusters.errors import ClusterError, RequestRefused, Unreachable
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.messages import ProducePartition
from watershed.replicator.batch.batch_selection import SelectedBatches, select_batches
from watershed.replicator.batch.repack import RepackTerms
from watershed.replicator.copy.aligned.aligned_copy import AlignedCopy
from watershed.replicator.copy.aligned.empty_log_filler import fill_log
from watershed.replicator.copy.aligned.gap_filler import GapFiller, GapMethod
from watershed.replicator.copy.aligned.target_log import TargetLog
from watershed.replicator.copy.copy_state import SourceCursor, TargetProgress
from watershed.replicator.copy.partition_copy import PartitionCopy
from watershed.replicator.copy.sequenced_producer import SequencedProducer
from watershed.replicator.copy.transactions.produce_answers import SessionLost
from watershed.replicator.errors import Misaligned
from watershed.replicator.ledger.offset_map import OffsetMap
from watershed.replicator.limits import TargetLimits
from watershed.replicator.partition_key import (
    MAX_BATCHES_IN_FLIGHT,
    PRODUCER_EXPIRY_MARGIN_MS,
    PartitionKey,
    ProducerIdentity,
)
from watershed.replicator.partition_states import Halt, Reinspect
from watershed.spark.archive.archive_reader import open_object
from watershed.spark.archive.manifest import ArchivedObject, ArchivedPartition
from watershed.spark.archive.object_format import join_batches
from watershed.spark.archive.offset_mapping import build_restored_map
from watershed.spark.archive.restore_producer import OpenConnection, RestoreProducer, take_producer, wait_for_quiet_logs
from watershed.spark.archive.storage import ArchiveStorage, ReusedMemory
from watershed.spark.archive.topic_comparison import compare_partition
from watershed.spark.errors import NotRestorable
from watershed.spark.reading.batch_decoding import BatchView
from watershed.spark.reading.fetch_answers import PartitionAddress

RESTORE_FLOW: Final = "restore"  # stands in for a flow where ids and keys need one
_PIECE_BYTES: Final = 4 << 20  # of stored batches that are prepared together
_STUCK_S: Final = 120.0  # without a single record
_PAUSE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class TargetTerms:
    """What the target cluster and topic allow. gap_method: None: offsets cannot be equal, they are mapped.
    expiration_ms: for how long brokers remember a producer, None: unknown. bump: transaction.version is 2 or more."""

    gap_method: GapMethod | None
    bump: bool
    expiration_ms: int | None
    limits: TargetLimits


class _Interrupted(Exception):
    """The attempt cannot go on, and the next one may: `trouble` says why."""

    def __init__(self, trouble: Reinspect) -> None:
        super().__init__(trouble.reason)


class PartitionRestore:
    """One partition's way into its target. `log` is this object's own; close it when done. Not thread-safe."""

    def __init__(
        self,
        storage: ArchiveStorage,
        objects: Sequence[ArchivedObject],
        archived: ArchivedPartition,
        settings: ConnectionSettings,
        log: TargetLog,
        connect: OpenConnection,
        report: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._storage, self._objects, self._archived = storage, objects, archived
        self._log, self._connect, self._report = log, connect, report
        self._address = PartitionAddress(settings, log.topic, log.topic_id, log.partition)
        self._offsets: tuple[OffsetMap, int] | None = None
        self._verified = 0  # below this offset of the target the log holds what the archive says
        self._producer: RestoreProducer | None = None

    @property
    def log(self) -> TargetLog:
        """The target's log."""
        return self._log

    @property
    def archived(self) -> ArchivedPartition:
        """What the archive says of the partition."""
        return self._archived

    @property
    def records(self) -> int:
        """How many records the archive holds of it."""
        return sum(each.records for each in self._objects)

    def may_be_followed(self, terms: TargetTerms) -> bool:
        """Whether requests of an earlier run may still be under way, unnoticed, to a log that has to be gone on with.
        Raises as `run`."""
        if self.is_complete(is_equal=terms.gap_method is not None):
            return False
        return self._take_producer(terms)

    def is_complete(self, *, is_equal: bool) -> bool:
        """Whether the log ends where the archive does. Raises ArchiveDamaged, ClusterError."""
        return self._ends_with_archive(self._log.range(), is_equal=is_equal)

    def check(self, log: LogRange, *, is_equal: bool) -> str:
        """Whether what stands in the log is the archive's: "" or why not. Raises ArchiveDamaged, NotReadable,
        ClusterError."""
        if is_equal and log.end <= self._archived.start:
            return ""  # nothing, or filler, which `fill_log` looks at
        begin = max(self._verified, log.start)
        offsets = None if is_equal else self.find_offsets(log.start)[0]
        found = compare_partition(
            self._storage, self._objects, self._address, log, offsets, begin=begin, is_whole=False
        )
        if not found.is_equal:
            return (
                f"{self._log} holds something else than the archive, first at offset {found.first_difference}. Restore "
                "it under another name (--rename), or delete the topic"
            )
        self._verified = log.end
        return ""

    def find_offsets(self, base: int) -> tuple[OffsetMap, int]:
        """(where records stand without equal offsets, the end of the log then). base: the offset of the first one; what
        the first call says counts. Raises ArchiveDamaged."""
        if self._offsets is None:
            opened = (open_object(self._storage, entry) for entry in self._objects)
            self._offsets = build_restored_map(opened, base, self._archived.end)
        return self._offsets

    def run(self, terms: TargetTerms) -> int:
        """Brings the log to the archive's end; the offset behind it.

        Raises NotRestorable, ArchiveDamaged, ClusterError.
        """
        furthest, moved = -1, time.monotonic()
        while True:
            try:
                return self._attempt(terms)
            except (ClusterError, SessionLost, Misaligned, _Interrupted) as trouble:
                self._log.lost()
                self._producer = None
                if self._verified > furthest:
                    furthest, moved = self._verified, time.monotonic()
                self._raise_lasting(trouble, is_stuck=time.monotonic() - moved > _STUCK_S)
            time.sleep(_PAUSE_S)

    def _raise_lasting(self, trouble: Exception, *, is_stuck: bool) -> None:
        """Raises what another attempt does not mend."""
        if isinstance(trouble, SessionLost) and isinstance(trouble.trouble, Halt):
            raise NotRestorable(f"{self._log}: {trouble.trouble.error}") from None
        if isinstance(trouble, SessionLost) and trouble.code in error_codes.AUTHORIZATION_CODES:
            raise NotRestorable(f"{self._log}: {trouble}. Give this account WRITE on the topic") from None
        if isinstance(trouble, Misaligned):
            raise NotRestorable(str(trouble)) from None
        if isinstance(trouble, ClusterError) and (is_stuck or not _is_passing(trouble)):
            raise trouble
        if is_stuck:
            raise NotRestorable(f"{self._log} does not go on: {trouble}. Run it again: it goes on where it stopped")

    def _attempt(self, terms: TargetTerms) -> int:
        is_equal = terms.gap_method is not None
        there, start = self._log.range(), self._archived.start
        if is_equal and there.end <= start and there != LogRange(start, start):
            bare, most = terms.gap_method == "markers", terms.limits.max_batch
            fill_log(self._log, start, RESTORE_FLOW, terms.bump, bare=bare, max_batch=most)
        there = self._log.range()
        if self._ends_with_archive(there, is_equal=is_equal):
            if why := self.check(there, is_equal=is_equal):
                raise NotRestorable(why)
            return there.end
        if self._producer is None and self._take_producer(terms):
            wait_for_quiet_logs([self._log])
        assert self._producer is not None
        there = LogRange(self._log.range().start, self._log.appended())
        if self._log.range().end != there.end:
            raise _Interrupted(Reinspect("what the leader holds is not replicated yet"))
        if why := self.check(there, is_equal=is_equal):
            raise NotRestorable(why)
        position = there.end if is_equal else self.find_offsets(there.start)[0].to_source(there.end)
        return self._write(self._build_copy(terms, self._producer, position, there.end), terms)

    def _take_producer(self, terms: TargetTerms) -> bool:
        """Whether the log has to be quiet before it is gone on with. Where it holds no record yet, the first batch that
        comes, whosever it is, makes the broker know the producer: the other one has the same sequence number."""
        self._producer = take_producer(self._log, self._connect, terms.bump)
        log = self._log.range()
        is_untouched = log.start == log.end or (terms.gap_method is not None and log.end <= self._archived.start)
        return self._producer.may_be_followed and not is_untouched

    def _ends_with_archive(self, log: LogRange, *, is_equal: bool) -> bool:
        return log.end == (self._archived.end if is_equal else self.find_offsets(log.start)[1])

    def _build_copy(self, terms: TargetTerms, producer: RestoreProducer, position: int, end: int) -> PartitionCopy:
        now = int(time.time() * 1000)
        expiration = terms.expiration_ms
        young = expiration is not None and producer.newest + expiration - now > PRODUCER_EXPIRY_MARGIN_MS
        depth = MAX_BATCHES_IN_FLIGHT if young and producer.newest >= 0 else 1
        identity = ProducerIdentity(*producer.identity, end - producer.next_sequence)
        key = PartitionKey(RESTORE_FLOW, self._log.topic, self._log.topic, self._log.partition)
        return (PartitionCopy if terms.gap_method is None else AlignedCopy)(
            key=key,
            source_id=self._log.topic_id,
            target_id=self._log.topic_id,
            source=SourceCursor(position),
            progress=TargetProgress(end),
            producer=SequencedProducer(
                identity, depth, depth if expiration is None else MAX_BATCHES_IN_FLIGHT,
                expiration_ms=expiration, remembered_by=producer.newest,
            ),
        )  # fmt: skip

    def _write(self, copy: PartitionCopy, terms: TargetTerms) -> int:
        repacking = RepackTerms(terms.limits, dense=terms.gap_method is not None)
        gaps, memory = None, ReusedMemory()
        if terms.gap_method is not None:
            gaps = GapFiller(self._log, RESTORE_FLOW, terms.gap_method, terms.bump)
        try:
            for entry in self._objects:
                if entry.end <= copy.source.position:
                    continue
                for piece, end in _cut_pieces(open_object(self._storage, entry, memory).batches):
                    self._write_piece(copy, gaps, piece, max(end, copy.source.position), repacking)
                self._report(entry.end)
            self._accept(copy, SelectedBatches([], self._archived.end, -1))
            self._pump(copy, gaps, drain=True)
        finally:
            if gaps is not None:
                gaps.close()
        self._verified = copy.progress.acked
        return copy.progress.acked

    def _write_piece(
        self, copy: PartitionCopy, gaps: GapFiller | None, piece: memoryview, end: int, terms: RepackTerms
    ) -> None:
        while copy.source.position < end:
            selected = select_batches(piece, copy.source.position, terms=terms)
            if selected.refused is not None:
                raise NotRestorable(f"{self._log}: {selected.refused}")
            self._accept(copy, selected)
            self._pump(copy, gaps)

    def _accept(self, copy: PartitionCopy, selected: SelectedBatches) -> None:
        """There is no ledger to wait for: where records stand follows from the archive."""
        copy.durable(copy.accept(selected))

    def _pump(self, copy: PartitionCopy, gaps: GapFiller | None, *, drain: bool = False) -> None:
        """Sends what may be sent. Returns when no batch waits to be sent; drain: and when all is answered."""
        log = self._log
        while True:
            while (outgoing := copy.next_outgoing(int(time.time() * 1000))) is not None:
                log.leader().send_produce((ProducePartition(log.topic_id, log.partition, outgoing.pieces),))
            if copy.trouble is not None or (copy.is_idle and not copy.has_unsent):
                break
            if not copy.is_idle:
                if not copy.has_unsent and not drain:
                    return
                [answer] = log.leader().receive_produce()
                copy.answered(answer, int(time.time() * 1000))
            elif isinstance(copy, AlignedCopy) and gaps is not None and (gap := copy.due()) is not None:
                gaps.advance(gap.end)
                copy.closed(gap)
        self._raise_trouble(copy)

    def _raise_trouble(self, copy: PartitionCopy) -> None:
        if copy.trouble is None:
            return
        self._verified = max(self._verified, copy.progress.acked)
        if isinstance(copy.trouble, Reinspect):
            raise _Interrupted(copy.trouble)
        raise NotRestorable(f"{self._log}: {copy.trouble.error}")


def _is_passing(trouble: ClusterError) -> bool:
    return isinstance(trouble, Unreachable) or (
        isinstance(trouble, RequestRefused) and trouble.code in error_codes.REINSPECT_CODES
    )


def _cut_pieces(batches: Sequence[BatchView]) -> Iterator[tuple[memoryview, int]]:
    """Neighbouring batches as one buffer each, with the offset behind the last of them."""
    first, size = 0, 0
    for at, batch in enumerate(batches):
        size += len(batch.raw)
        if size >= _PIECE_BYTES or at + 1 == len(batches):
            yield join_batches(batches[first : at + 1]), batch.last_offset + 1
            first, size = at + 1, 0
