"""What of a Fetch answer is to be transformed: whole batches as stored, without markers, aborted records and loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from crc32c import crc32c

from watershed.replicator.batch.batch_selection import decode_with_outcome
from watershed.replicator.batch.codecs import NONE
from watershed.replicator.batch.header_rewrite import CRC_STARTS_AT
from watershed.replicator.batch.record_batch import CURRENT_MAGIC, MAGIC_BYTE_AT, BatchChecksum, RawBatch
from watershed.replicator.batch.repack import RepackTerms
from watershed.replicator.errors import BadBatch, EndPassed

_CRC_AT: Final = 17
_WITHOUT_END: Final = RepackTerms()
PART_BYTES: Final = 8 << 20  # of batches as stored: what one task of Spark opens at a time


@dataclass(slots=True)
class UntransformedPart:
    """A part of the source's log: its batches as stored, of which the records from `start` on count, up to `end`.

    first: the first of the batches; None where there are none. leader_epoch: of the last batch in it, -1 if unknown.
    is_plain: none of its batches is compressed.
    """

    start: int
    end: int
    leader_epoch: int = -1
    first: RawBatch | None = None
    pieces: list[memoryview] = field(default_factory=list)
    size: int = 0  # bytes
    is_plain: bool = True

    def read(self) -> bytes:
        """The batches, one behind the other."""
        return b"".join(self.pieces)

    def add(self, batch: RawBatch) -> None:
        """Append a batch that lies behind all others."""
        self.first = self.first or batch
        self.pieces.append(batch.data)
        self.size += len(batch.data)
        self.is_plain &= batch.codec == NONE

    def can_take(self, other: UntransformedPart) -> bool:
        """Whether the part that lies behind this one may become a part of it. Not where its first batch reaches over
        records that do not count there and would here; compressed ones are large enough, once they are opened."""
        if self.first is None or other.first is None or other.first.base < other.start:
            return False
        if not (self.is_plain and other.is_plain):
            return False
        return self.end == other.start and self.size + other.size <= PART_BYTES

    def extend(self, other: UntransformedPart) -> None:
        """Take it (`can_take`)."""
        self.pieces.extend(other.pieces)
        self.size += other.size
        self.end = other.end
        self.leader_epoch = other.leader_epoch if other.leader_epoch >= 0 else self.leader_epoch

    def advance(self, batch: RawBatch, most: int | None = None) -> None:
        """The part reaches over this batch, whether its records count or not; up to source offset `most`."""
        self.end = batch.end if most is None else min(batch.end, most)
        self.leader_epoch = batch.leader_epoch


@dataclass(frozen=True, slots=True)
class UntransformedSelection:
    """parts: without gaps, the first begins at the position that was fetched. refused: the first batch that cannot be
    copied; the parts end in front of it. last_batch: the last one in front of their end."""

    parts: list[UntransformedPart]
    refused: BadBatch | None
    last_batch: BatchChecksum | None


def select_untransformed(
    fetched: memoryview,
    position: int,
    aborted: tuple[tuple[int, int], ...],
    leave_out: Callable[[RawBatch], bool],
    path_of: Callable[[RawBatch], object],
    terms: RepackTerms = _WITHOUT_END,
) -> UntransformedSelection:
    """Cut an answer into parts of at most PART_BYTES (or one batch), all batches of which came the same way. The parts
    end where `terms` say that the copy does, or in front of the batch that has to be refused for its end."""
    parts = [UntransformedPart(position, position)]
    last: RawBatch | None = None
    refused: BadBatch | None = None
    try:
        for batch, counts in _list_batches(fetched, position, aborted, leave_out):
            here = parts[-1]
            if terms.end is not None and here.end >= terms.end:
                break
            if terms.before_ms is not None and batch.max_timestamp >= terms.before_ms:
                raise EndPassed(batch.base)
            counts = counts and not terms.is_beyond_end(batch)
            if counts and here.first is not None:
                is_full = here.size + len(batch.data) > PART_BYTES
                if is_full or path_of(here.first) != path_of(batch):
                    here = UntransformedPart(here.end, here.end)
                    parts.append(here)
            if counts:
                here.add(batch)
            here.advance(batch, terms.end)
            last = batch
    except BadBatch as error:
        refused = error
    found = [part for part in parts if part.end > part.start]
    return UntransformedSelection(found, refused, None if last is None else BatchChecksum.of(last))


def _list_batches(
    fetched: memoryview, position: int, aborted: tuple[tuple[int, int], ...], leave_out: Callable[[RawBatch], bool]
) -> Iterator[tuple[RawBatch, bool]]:
    """Batches that reach behind `position`, each with True if its records are to be copied. Raises BadBatch."""
    for batch, is_aborted in decode_with_outcome(fetched, aborted):
        if batch.end <= position:
            continue
        if batch.data[MAGIC_BYTE_AT] != CURRENT_MAGIC:
            raise BadBatch(
                "is in a message format before Kafka 0.11, which is not transformed", batch.base, "unsupported"
            )
        counts = bool(batch.records) and not batch.control and not is_aborted and not leave_out(batch)
        if counts and int.from_bytes(batch.data[_CRC_AT : _CRC_AT + 4], "big") != crc32c(batch.data[CRC_STARTS_AT:]):
            raise BadBatch("is damaged, its CRC does not match", batch.base, passing=True)
        yield batch, counts
