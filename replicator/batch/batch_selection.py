"""What becomes of a Fetch answer: batches that are passed on or repacked, gaps, and the first that cannot be copied."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from watershed.replicator.batch.egress_compression import compress_batch
from watershed.replicator.batch.header_rewrite import BATCH_HEADER_BYTES
from watershed.replicator.batch.record_batch import (
    CURRENT_MAGIC,
    MAGIC_BYTE_AT,
    UNKNOWN_RECORD_COUNT,
    BatchChecksum,
    RawBatch,
    decode_batch,
    decode_batches,
    walk_batch_lengths,
)
from watershed.replicator.batch.repack import SHORTEST_SERIES, RejectedRecord, Repacker, RepackTerms
from watershed.replicator.errors import BadBatch, CompactionHole, EndPassed

if TYPE_CHECKING:
    from watershed.replicator.batch.batch_series import BatchSeries

_ABORT = 0
_AS_THEY_COME = RepackTerms()


class SelectedBatches(NamedTuple):
    """What one Fetch answer holds for one partition.

    batches: to be copied, in order. position: the next offset to fetch, also behind what was left out.
    refused: the first batch that cannot be copied, if any; `position` then stands in front of it.
    rejected: records that were left out of `batches` because the target does not take them. holes: of this part of
    the log something is missing, taken by compaction or not taken by the target. last_batch: the last one in front of
    `position`, whether it is copied or not; None where the answer holds none.
    """

    batches: list[RawBatch]
    position: int
    leader_epoch: int
    refused: BadBatch | None = None
    rejected: tuple[RejectedRecord, ...] = ()
    holes: bool = False
    last_batch: BatchChecksum | None = None


def select_batches(
    fetched: memoryview,
    position: int,
    aborted: tuple[tuple[int, int], ...] = (),
    *,
    leave_out: Callable[[RawBatch], bool] = lambda _batch: False,
    terms: RepackTerms = _AS_THEY_COME,
) -> SelectedBatches:
    """Decide for each batch of a Fetch answer whether it is copied as it is, repacked or left out.

    position: the offset that was fetched. Stops early when decompressing the rest would exceed the limit of one answer;
    the next Fetch brings the rest. `leave_out` says which producers' batches must not travel on (the loop guard).
    Control batches, aborted records and batches emptied by the cleaner are gaps: nothing is copied, the position moves
    on. `terms` say what the target takes, and where the copy ends: the position does not move behind that."""
    refused: BadBatch | None = None
    with closing(Repacker(terms)) as packing:
        selection = _Selection(packing, leave_out, position)
        try:
            at = 0
            for series in _find_series(fetched, position, aborted, terms):
                if not selection.take_each(fetched[at : series.first_byte], aborted):
                    break
                selection.take_series(series)
                at = series.end_byte
            else:
                selection.take_each(fetched[at:], aborted)
        except BadBatch as error:
            error.__context__ = None  # the frames that they came through hold what was opened
            refused = error.with_traceback(None)
        packing.flush()
    compression = terms.compression
    # A record that is left out here is one that another worker may have written: as good as a hole.
    return SelectedBatches(
        packing.ready if compression is None else [compress_batch(batch, compression) for batch in packing.ready],
        selection.position,
        selection.leader_epoch,
        refused,
        tuple(packing.rejected),
        selection.has_holes or bool(packing.rejected),
        None if selection.last is None else BatchChecksum.of(selection.last),
    )


@dataclass(slots=True)
class _Selection:
    """How far an answer is worked through. last: the last batch in front of `position`."""

    packing: Repacker
    leave_out: Callable[[RawBatch], bool]
    position: int
    leader_epoch: int = -1
    has_holes: bool = False
    last: RawBatch | None = None

    def take_each(self, part: memoryview, aborted: Sequence[tuple[int, int]]) -> bool:
        """Decide batch by batch. Returns False where the answer must end for now. Raises BadBatch."""
        for batch, is_aborted in decode_with_outcome(part, aborted):
            if batch.end <= self.position:
                self.last = batch
                continue
            terms = self.packing.terms
            if terms.end is not None and self.position >= terms.end:
                return False
            if terms.before_ms is not None and batch.max_timestamp >= terms.before_ms:
                raise EndPassed(batch.base)
            if self.packing.must_wait(batch, self.position):
                return False
            if _has_hole_before(batch, self.position):
                if not terms.holes():
                    raise CompactionHole(batch.base)
                self.has_holes = True
            if terms.end is not None and terms.is_beyond_end(batch):
                self.position = terms.end
                return False
            if batch.records and not batch.control and not is_aborted and not self.leave_out(batch):
                self.packing.take(batch, self.position)
            self._pass(batch)
        return True

    def take_series(self, series: BatchSeries) -> None:
        """The same of batches that are all small and copied, and of markers between them."""
        self.packing.take_series(series)
        self._pass(series.last)

    def _pass(self, batch: RawBatch) -> None:
        end = self.packing.terms.end
        self.position = batch.end if end is None else min(batch.end, end)
        self.leader_epoch, self.last = batch.leader_epoch, batch


def _find_series(
    fetched: memoryview, position: int, aborted: Sequence[tuple[int, int]], terms: RepackTerms
) -> list[BatchSeries]:
    """The series of an answer. Where none can be, nothing is imported for them: numpy takes 14 MiB of memory."""
    if aborted or terms.change is not None or terms.before_ms is not None or terms.small <= BATCH_HEADER_BYTES:
        return []
    edges = walk_batch_lengths(fetched)
    if len(edges) <= SHORTEST_SERIES or edges[-1] >= terms.small * len(edges):
        return []
    if terms.end is not None and not _ends_within(fetched, edges[-2], edges[-1], terms.end):
        return []
    from watershed.replicator.batch.series_search import find_series

    return find_series(fetched, edges, position, terms)


def _ends_within(fetched: memoryview, first_byte: int, end_byte: int, end: int) -> bool:
    """Whether the last batch, and so all, stand in front of source offset `end`."""
    is_current = fetched[first_byte + MAGIC_BYTE_AT] == CURRENT_MAGIC
    return is_current and decode_batch(fetched, first_byte, end_byte).end <= end


def decode_with_outcome(fetched: memoryview, aborted: Sequence[tuple[int, int]]) -> Iterator[tuple[RawBatch, bool]]:
    """The whole batches of a Fetch answer, markers too, each with True if its transaction was aborted. Raises BadBatch.

    aborted: as the answer lists them, (producer id, first offset of the transaction). The list is complete for the
    range of the answer, so nothing is remembered from one Fetch to the next (the Java consumer's CompletedFetch).
    """
    to_come = sorted(aborted, key=lambda entry: entry[1], reverse=True)
    open_: set[int] = set()
    for batch in decode_batches(fetched):
        while to_come and to_come[-1][1] < batch.end:
            open_.add(to_come.pop()[0])
        if batch.control and batch.records and _control_type(batch) == _ABORT:
            open_.discard(batch.producer_id)
        yield batch, batch.transactional and not batch.control and batch.producer_id in open_


def _has_hole_before(batch: RawBatch, position: int) -> bool:
    """Whether offsets are missing in front of the batch or in it. Brokers leave none out, only the cleaner does.

    An old message may be a wrapper with holes inside, which its front does not say.
    """
    return batch.records == UNKNOWN_RECORD_COUNT or batch.base > position or batch.records != batch.end - batch.base


def _control_type(batch: RawBatch) -> int:
    """0 abort, 1 commit: the second int16 of the key of the batch's only record (never compressed). Raises BadBatch."""
    at, size = BATCH_HEADER_BYTES, len(batch.data)
    for field in range(5):  # length, attributes (one byte), timestamp delta, offset delta, key length
        if field == 1:
            at += 1
            continue
        while at < size and batch.data[at] & 0x80:
            at += 1
        at += 1
    if at + 4 > size:
        raise BadBatch("is a marker of a transaction that is cut off", batch.base)
    return int.from_bytes(batch.data[at + 2 : at + 4], "big")
