"""Repacking: building v2 batches from the records of batches that cannot be passed on as they are.

A batch is repacked where the target would refuse it or keep something else than the source has: offsets in it are
missing (compaction), the copy begins inside it, it is larger than the target's limit, its format is old, or the source
broker set its timestamps. And where passing it on would cost more: of many tiny batches one is made, because a
partition gets one batch a Produce request. Batches of at least SMALL bytes are never touched for that reason.

Every batch is checked against its CRC before its records leave it (decision 0017).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from watershed.replicator.batch.codecs import CODEC_NAMES, NONE
from watershed.replicator.batch.header_rewrite import BATCH_HEADER_BYTES
from watershed.replicator.batch.legacy_formats import decode_records_of_any_format
from watershed.replicator.batch.record_batch import LOG_APPEND_TIME, UNKNOWN_RECORD_COUNT, RawBatch
from watershed.replicator.batch.records import (
    MAX_RECORD_OVERHEAD_BYTES,
    RawRecord,
    build_raw_batch,
    decode_record_fields,
    decode_records,
)
from watershed.replicator.errors import BadBatch, CompactionHole, OversizedBatch, ReturnedRecord
from watershed.replicator.limits import TargetLimits
from watershed.topology.egress_compression import EgressCompression

if TYPE_CHECKING:  # numpy is imported where there is a series
    from watershed.replicator.batch.batch_series import BatchSeries
    from watershed.replicator.batch.record_columns import OpenedRecords

SMALL_BATCH_BYTES: Final = (
    8 << 10
)  # bytes of a batch that is worth merging; above it a Produce request costs less than the walk
MERGED_BATCH_BYTES: Final = 128 << 10  # bytes of records, uncompressed, at which a merged batch is full
# For a target far away: of a partition five batches may be on their way (KIP-98), so they must hold more where an
# answer takes long. With 100 ms that is 25 MB/s a partition.
FAR_SMALL_BATCH_BYTES: Final = 128 << 10
FAR_MERGED_BATCH_BYTES: Final = 512 << 10
# Bytes of memory of the records that are taken out of their batches for one answer. What stands behind comes with the
# next one, after the other partitions' turn.
MAX_OPENED_BYTES: Final = 16 << 20
# Fetchers run side by side. A batch that holds more than that takes several times that while it is made anew, so one
# of them is opened at a time in a process.
_LARGE: Final = threading.Lock()
# Bytes of memory besides what the record holds: the tuple, two numbers, the front of the bytes.
OPENED_RECORD_BYTES: Final = 150
WAITING_RECORD_BYTES: Final = 8  # of a merged batch, about: what stands in front of key, value and headers
SHORTEST_SERIES: Final = 32  # batches from which on numpy costs less than one after the other


@dataclass(frozen=True, slots=True)
class RejectedRecord:
    """A record that the target does not take, with its bytes as they stood on the source.

    timestamp in ms (-1: none); headers in order, repeats kept, a value may be null; reason: what the target said.
    """

    source_offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]
    reason: str


@dataclass(frozen=True, slots=True)
class RepackTerms:
    """How batches may be cut. refused: source offset → reason, of records that the target does not take: they are
    left out and handed over as Rejected. isolate: so is a record that no batch can hold; otherwise it is a BadBatch.
    small: bytes of a batch below which it is merged with its neighbours; merged: bytes of records, uncompressed, at
    which such a batch is full. merge_group: only batches of one group are merged, so that what is told by their
    producer (the way that records came) stays true of all of them. holes: whether what
    compaction left out, or the target does not take, may be stepped over now (`replicator.recovery.producer_epochs`).
    dense: every batch covers consecutive source offsets, so that it can have the very same ones on the target
    (`replicator.copy.aligned`). change: makes for every answer what rewrites its records, one for one
    (`replicator.copy.schema_ids`, `replicator.copy.provenance`); then every batch is opened. takes_all_of: whether all
    batches of the producer with this id are copied, except filler, and have the same merge group, so that they can be
    judged many at a time (`replicator.batch.batch_series`). compression: of what is then not compressed
    (`replicator.batch.egress_compression`). end: no record at this source offset or behind it is taken. before_ms: nor
    is a batch with a record of this time or later (ms since 1970); it is refused (EndPassed).
    """

    limits: TargetLimits = field(default_factory=TargetLimits)
    refused: Mapping[int, str] = field(default_factory=dict)
    isolate: bool = False
    small: int = SMALL_BATCH_BYTES
    merged: int = MERGED_BATCH_BYTES
    merge_group: Callable[[RawBatch], object] = lambda _batch: None
    takes_all_of: Callable[[int], bool] = lambda _producer_id: False
    holes: Callable[[], bool] = lambda: True
    dense: bool = False
    change: Callable[[], Callable[[RawRecord], RawRecord]] | None = None
    compression: EgressCompression | None = None
    end: int | None = None
    before_ms: int | None = None

    def is_beyond_end(self, batch: RawBatch) -> bool:
        """Whether all records of the batch stand at the end or behind it. An old message has to be opened to tell."""
        return self.end is not None and batch.base >= self.end and batch.records != UNKNOWN_RECORD_COUNT


def choose_merging(terms: RepackTerms, *, is_far: bool) -> RepackTerms:
    """The same terms for a target far away, or nearby; where nothing is merged they stay."""
    small, merged = (
        (FAR_SMALL_BATCH_BYTES, FAR_MERGED_BATCH_BYTES) if is_far else (SMALL_BATCH_BYTES, MERGED_BATCH_BYTES)
    )
    return terms if terms.small in (0, small) else replace(terms, small=small, merged=merged)


@dataclass(slots=True)
class Repacker:
    """Batches in, batches out, in order. `position`: what lies below it is settled already.

    `ready` holds what can be sent (a merged batch names the producer of its first), `rejected` the records that were
    left out. Records wait in here until their batch is full or `flush` is called. When `take` raises BadBatch, nothing
    of that batch has been taken. `close` when all is done: others may wait to open a large batch.
    """

    terms: RepackTerms
    ready: list[RawBatch] = field(default_factory=list)
    rejected: list[RejectedRecord] = field(default_factory=list)
    _alone: RawBatch | None = None  # the batch that the waiting records are, as long as there is only this one
    _waiting: list[RawRecord] = field(default_factory=list)
    _columns: OpenedRecords | None = None  # the waiting records, as long as all are of one series
    _bytes: int = 0
    _first: RawBatch | None = None  # that the waiting records began with; None while none wait
    _end: int = -1
    _epoch: int = -1
    _change: Callable[[RawRecord], RawRecord] | None = None
    _opened: int = 0
    _has_large: bool = False  # we hold _LARGE

    def __post_init__(self) -> None:
        self._change = None if self.terms.change is None else self.terms.change()

    def take(self, batch: RawBatch, position: int) -> None:
        """Raises BadBatch with the source offset of the batch, or of the record, that cannot be copied."""
        small = len(batch.data) < self.terms.small
        if not small or not self._can_merge(batch):
            self.flush()
        if self._can_pass_unopened(batch, position):
            if not small:
                self.ready.append(batch)
                return
            if self._is_empty():
                self._alone = batch
                return
            stored = self._open_to_merge(batch)
            if stored is None:  # as it is it costs nobody anything
                self.flush()
                self.ready.append(batch)
                return
        else:
            stored = self._opened_records(batch, position)
        records = self._allowed(
            batch, stored, stored if self._change is None else _changed(batch, stored, self._change)
        )
        self._open_first()
        self._add(batch, records)
        if not small:
            self.flush()

    def take_series(self, series: BatchSeries) -> None:
        """As `take` for each of its batches, many at a time."""
        at = 0
        while at < len(series):
            first = series.decode(at)
            if not self._can_merge(first):
                self.flush()
            end = min(series.find_openable_end(at, MAX_OPENED_BYTES - self._opened), series.find_group_end(at))
            if self._is_empty() and end - at >= SHORTEST_SERIES:
                self._take_group(series, at, end)
                at = end
            else:
                self.take(first, first.base)
                at += 1

    def _take_group(self, series: BatchSeries, first: int, end: int) -> None:
        """Merge the batches from `first` up to `end` where nothing waits."""
        while True:
            full = min(max(series.find_end_within(first, self.terms.merged), first + 1), end)
            size = series.measure(first, full)
            self._columns, self._bytes = series.select_records(first, full), size
            self._opened += size + OPENED_RECORD_BYTES * len(self._columns)
            self._first = series.decode(first)
            last = series.decode(full - 1)
            self._end, self._epoch = last.end, last.leader_epoch
            if full == end:
                return
            self.flush()
            first = full

    def _is_empty(self) -> bool:
        return self._alone is None and self._first is None

    def _open_to_merge(self, batch: RawBatch) -> list[RawRecord] | None:
        """The records of a small batch; None if opening it costs more than a merge is worth."""
        try:
            return None if self._is_spent() else decode_records(batch, self.terms.merged)
        except OversizedBatch:
            self._opened += self.terms.merged
            return None

    def _open_first(self) -> None:
        """Open the small batch that was kept as it is until a second one came."""
        if self._alone is None:
            return
        first, self._alone = self._alone, None
        try:
            opened = decode_records(first, self.terms.merged)
        except BadBatch:  # large once it is opened; or damaged, which is the target's to refuse
            self._opened += self.terms.merged
            self.ready.append(first)
        else:
            self._add(first, opened)

    def must_wait(self, batch: RawBatch, position: int) -> bool:
        """Whether it has to be opened, and as much was opened already as one answer may cost."""
        return self._is_spent() and not self._can_pass_unopened(batch, position)

    def close(self) -> None:
        """Let others open large batches. What was opened here must have been flushed."""
        if self._has_large:
            self._has_large = False
            _LARGE.release()

    def _opened_records(self, batch: RawBatch, position: int) -> list[RawRecord]:
        """The records of a batch that cannot pass; of a large one when no other is being worked on."""
        if not self._has_large:
            if batch.records * OPENED_RECORD_BYTES <= MAX_OPENED_BYTES:
                with contextlib.suppress(OversizedBatch):
                    return self._decode(batch, position, MAX_OPENED_BYTES)
            _LARGE.acquire()
            self._has_large = True
        return self._decode(batch, position)

    def _decode(self, batch: RawBatch, position: int, most: int | None = None) -> list[RawRecord]:
        records, end = _records(batch, position, most), self.terms.end
        return records if end is None or batch.end <= end else [each for each in records if each.offset < end]

    def _is_spent(self) -> bool:
        return self._opened >= MAX_OPENED_BYTES

    def flush(self) -> None:
        """Make a batch, or several, of what waits."""
        if self._alone is not None:
            self.ready.append(self._alone)
            self._alone = None
        if self._columns is not None:
            self._flush_columns(self._columns)
        if self._waiting:
            assert self._first is not None
            for records, end in self._pieces():
                for batch in build_batches_within_limit(
                    records, self._first.codec, end, self.terms.limits, self._epoch
                ):
                    self.ready.append(batch._replace(producer_id=self._first.producer_id))
            self._waiting = []
        self._first, self._bytes = None, 0

    def _flush_columns(self, columns: OpenedRecords) -> None:
        """Make one batch of the columns that wait; where the target takes less, let their records wait one by one."""
        assert self._first is not None
        merged = columns.build_raw_batch(self._first.codec, self._end, self._epoch)
        if len(merged.data) <= self.terms.limits.max_batch:
            self.ready.append(merged._replace(producer_id=self._first.producer_id))
        else:
            self._waiting = columns.list_records()
        self._columns = None

    def _pieces(self) -> list[tuple[list[RawRecord], int]]:
        """What waits, with the source offset behind it; dense: in stretches of consecutive offsets."""
        if not self.terms.dense:
            return [(self._waiting, self._end)]
        waiting = self._waiting
        starts = [at for at in range(1, len(waiting)) if waiting[at].offset != waiting[at - 1].offset + 1]
        stretches = [waiting[at:end] for at, end in zip([0, *starts], [*starts, None], strict=True)]
        return [(records, records[-1].offset + 1) for records in stretches]

    def _can_merge(self, batch: RawBatch) -> bool:
        """Whether it may become one batch with what waits."""
        first = self._alone or self._first
        if self.terms.dense and first is not None and batch.base != (self._end if self._alone is None else first.end):
            return False
        return first is None or (
            first.codec == batch.codec
            and first.leader_epoch == batch.leader_epoch
            and self.terms.merge_group(first) == self.terms.merge_group(batch)
        )

    def _can_pass_unopened(self, batch: RawBatch, position: int) -> bool:
        return (
            self._change is None
            and batch.records == batch.end - batch.base
            and batch.base >= position
            and (self.terms.end is None or batch.end <= self.terms.end)
            and not batch.attributes & LOG_APPEND_TIME
            and len(batch.data) <= self.terms.limits.max_batch
            and not (self.terms.refused and any(batch.base <= offset < batch.end for offset in self.terms.refused))
        )

    def _add(self, batch: RawBatch, records: list[RawRecord]) -> None:
        size = sum([len(record.rest) for record in records]) + WAITING_RECORD_BYTES * len(records)
        self._opened += size + OPENED_RECORD_BYTES * len(records)
        if self._bytes + size > self.terms.merged:
            self.flush()
        if self._columns is not None:
            self._waiting, self._columns = self._columns.list_records(), None
        self._waiting += records
        self._bytes += size
        if records:
            self._first = self._first or batch
        end = batch.end if self.terms.end is None else min(batch.end, self.terms.end)
        self._end, self._epoch = end, batch.leader_epoch

    def _allowed(self, batch: RawBatch, stored: list[RawRecord], records: list[RawRecord]) -> list[RawRecord]:
        """Without the records that the target does not take. stored: the same ones as the source has them."""
        most, refused = self.terms.limits.max_batch, self.terms.refused
        suspects = [
            record
            for record in records
            if record.offset in refused or BATCH_HEADER_BYTES + MAX_RECORD_OVERHEAD_BYTES + len(record.rest) > most
        ]  # fmt: skip
        out: dict[int, str] = {}
        for record in suspects:
            if record.offset in refused:
                out[record.offset] = refused[record.offset]
                continue
            smallest = len(build_raw_batch([record], batch.codec, record.offset + 1).data)
            if smallest > most and batch.codec != NONE:
                smallest = min(smallest, len(build_raw_batch([record], NONE, record.offset + 1).data))
            if smallest > most:
                reason = f"takes {smallest} bytes by itself, and the target takes {most}"
                if not self.terms.isolate:
                    raise BadBatch(f"the record at source offset {record.offset} {reason}", batch.base)
                out[record.offset] = reason
        if out and not self.terms.holes():
            # The target's limits decide what is left out, and another worker may know others: no function of the log.
            raise CompactionHole(batch.base, "holds records that the target does not take")
        self.rejected += [_rejected(record, out[record.offset]) for record in stored if record.offset in out]
        return [record for record in records if record.offset not in out] if out else records


def build_batches_within_limit(
    records: Sequence[RawRecord], codec: int, end: int, limits: TargetLimits, leader_epoch: int = -1
) -> Iterator[RawBatch]:
    """Batches of `records`, none above the limit; each record must fit alone (see Repacking).

    Halves what is too large: with a codec nobody knows beforehand how many records fit.
    """
    batch = build_raw_batch(records, codec, end, leader_epoch)
    if len(batch.data) <= limits.max_batch:
        yield batch
    elif len(records) == 1:  # random bytes: larger by a codec than without it
        yield build_raw_batch(records, NONE, end, leader_epoch)
    else:
        parts = max(2, -(-len(batch.data) // limits.max_batch))
        step = -(-len(records) // parts)
        for at in range(0, len(records), step):
            behind = at + step
            last = behind >= len(records)
            yield from build_batches_within_limit(
                records[at:behind], codec, end if last else records[behind - 1].offset + 1, limits, leader_epoch
            )


def _records(batch: RawBatch, position: int, most: int | None = None) -> list[RawRecord]:
    """Its records from `position` on. most: bytes that it may hold (codecs.MOST)."""
    if batch.records != UNKNOWN_RECORD_COUNT and batch.codec >= len(CODEC_NAMES):
        raise BadBatch(f"is packed by codec {batch.codec}, which this version does not know", batch.base, "unsupported")
    records = decode_records_of_any_format(batch, most)
    return records if not records or records[0].offset >= position else [r for r in records if r.offset >= position]


def _changed(batch: RawBatch, stored: list[RawRecord], change: Callable[[RawRecord], RawRecord]) -> list[RawRecord]:
    """Raises BadBatch, and what `change` raises."""
    try:
        return [change(record) for record in stored]
    except ReturnedRecord as error:  # a batch has one writer, and one decision answers for all of it
        raise error.of_batch(batch.base, batch.end) from None
    except (IndexError, ValueError):
        raise BadBatch("holds a record that cannot be read", stored[0].offset) from None


def _rejected(record: RawRecord, reason: str) -> RejectedRecord:
    try:
        key, value, headers = decode_record_fields(record.rest)
    except (IndexError, ValueError):
        raise BadBatch("holds a record that cannot be read", record.offset) from None
    return RejectedRecord(record.offset, record.timestamp, key, value, headers, reason)
