"""A Fetch answer that begins in front of the position: another answer has brought the same records meanwhile."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from watershed.replicator.batch.record_batch import (
    CURRENT_MAGIC,
    MAGIC_BYTE_AT,
    BatchChecksum,
    RawBatch,
    decode_batch,
    decode_batches,
    walk_batch_lengths,
)

_Aborted = tuple[tuple[int, int], ...]


class AnswerPart(NamedTuple):
    """What an answer has from a position on, as a Fetch from there would have brought it.

    records: whole batches; empty where there is nothing to be used. aborted: (producer id, first offset) of the aborted
    transactions that touch them.
    """

    records: memoryview
    aborted: _Aborted


def cut_answer(fetched: memoryview, aborted: _Aborted, position: int, last: BatchChecksum | None) -> AnswerPart:
    """What is new in an answer to a Fetch of this or of an earlier offset. aborted: as the answer lists them. last: the
    batch in front of the position, as another answer had it; None: not known.

    Where the answer has another batch there, the log was cut off between the two (an unclean election), and nothing of
    it is used: the next Fetch finds out. Nor is an overlapping answer with a batch of an older format. Raises BadBatch.
    """
    nothing = AnswerPart(fetched[len(fetched) :], ())
    first = next(decode_batches(fetched), None)
    if first is None or first.end > position:  # empty, or too long, or nobody else has brought it
        return AnswerPart(fetched, aborted)
    markers: dict[int, int] = {}  # producer: where its last transaction in front of the position ends
    before: RawBatch | None = None
    for start, stop in pairwise(walk_batch_lengths(fetched)):
        if fetched[start + MAGIC_BYTE_AT] != CURRENT_MAGIC:
            break
        batch = decode_batch(fetched, start, stop)
        if batch.end > position:
            if before is None or BatchChecksum.of(before) != last:
                break
            still = tuple((producer, at) for producer, at in aborted if at > markers.get(producer, -1))
            return AnswerPart(fetched[start:], still)
        before = batch
        if batch.control:
            markers[batch.producer_id] = batch.base
    return nothing
