"""Record batches as fetched, and what to do with each: pass it on, leave a gap, or refuse it.

`sift` follows the Java consumer (CompletedFetch) for aborted transactions: the answer's list of aborted
transactions is complete for the returned range, so nothing has to be remembered from one Fetch to the next.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from replicator.errors import BadBatch
from replicator.header import HEADER_SIZE

_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH = struct.Struct(">qi")
_LOG_APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x08, 0x10, 0x20
_ABORT = 0
_MAGIC_AT = 16  # in every format, also where the whole message is shorter than our header


class Batch(NamedTuple):
    """One v2 batch; `data` is the whole of it, `end` the source offset behind everything that it covers.

    spans: (first source offset, records) for each stretch of consecutive source offsets in it; empty means one
    stretch from `base`. Only a repacked batch has spans.
    """

    base: int
    end: int
    leader_epoch: int
    attributes: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int
    data: memoryview
    spans: tuple[tuple[int, int], ...] = ()

    @property
    def control(self) -> bool:
        return bool(self.attributes & _CONTROL)

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)


class Sifted(NamedTuple):
    """What one Fetch answer holds for one partition.

    batches: to be copied, in order. position: the next offset to fetch, also behind what was left out.
    refused: the first batch that cannot be copied, if any; `position` then stands in front of it.
    """

    batches: list[Batch]
    position: int
    leader_epoch: int
    refused: BadBatch | None = None


def batches_in(fetched: memoryview) -> Iterator[Batch]:
    """The whole batches in `fetched`; one that is cut off at the end is left out.

    Raises BadBatch for formats v0 and v1.
    """
    at, size = 0, len(fetched)
    while at + _MAGIC_AT < size:
        base, length = _LENGTH.unpack_from(fetched, at)
        stop = at + 12 + length
        if fetched[at + _MAGIC_AT] != 2:
            raise BadBatch(f"is in the old message format v{fetched[at + _MAGIC_AT]}", base)
        if stop > size or at + HEADER_SIZE > size:
            return
        head = _HEADER.unpack_from(fetched, at)
        yield Batch(
            base=base,
            end=base + head[6] + 1,
            leader_epoch=head[2],
            attributes=head[5],
            max_timestamp=head[8],
            producer_id=head[9],
            producer_epoch=head[10],
            base_sequence=head[11],
            records=head[12],
            data=fetched[at:stop],
        )
        at = stop


def sift(
    fetched: memoryview,
    position: int,
    aborted: tuple[tuple[int, int], ...] = (),
    *,
    leave_out: Callable[[Batch], bool] = lambda _batch: False,
) -> Sifted:
    """Decide about every batch of a Fetch answer that was asked for at `position`.

    `leave_out` says which producers' batches must not travel on (the loop guard). Control batches, aborted
    records and batches emptied by the cleaner are gaps: nothing is copied, the position moves on.
    """
    waiting = sorted(aborted, key=lambda entry: entry[1], reverse=True)
    aborting: set[int] = set()
    keep: list[Batch] = []
    epoch = -1
    try:
        for batch in batches_in(fetched):
            while waiting and waiting[-1][1] < batch.end:
                aborting.add(waiting.pop()[0])
            gap = batch.control or batch.records == 0
            if batch.control:
                if batch.records and _control_type(batch) == _ABORT:
                    aborting.discard(batch.producer_id)
            elif batch.transactional and batch.producer_id in aborting:
                gap = True
            if batch.end <= position:
                continue
            if not gap and not leave_out(batch):
                _must_pass(batch, position)
                keep.append(batch)
            position, epoch = batch.end, batch.leader_epoch
    except BadBatch as refused:
        return Sifted(keep, position, epoch, refused)
    return Sifted(keep, position, epoch)


def _must_pass(batch: Batch, position: int) -> None:
    if batch.base < position:
        raise BadBatch(f"begins before offset {position}, where the log now starts", batch.base)
    if batch.records != batch.end - batch.base:
        raise BadBatch("has holes left by compaction", batch.base)
    if batch.attributes & _LOG_APPEND_TIME:
        raise BadBatch("carries the source broker's append time (message.timestamp.type=LogAppendTime)", batch.base)


def _control_type(batch: Batch) -> int:
    """0 abort, 1 commit: the second int16 of the key of the batch's only record (never compressed)."""
    at = HEADER_SIZE
    for field in range(5):  # length, attributes (one byte), timestamp delta, offset delta, key length
        if field == 1:
            at += 1
            continue
        while batch.data[at] & 0x80:
            at += 1
        at += 1
    return int.from_bytes(batch.data[at + 2 : at + 4], "big")
