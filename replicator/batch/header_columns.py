"""Headers of all record batches of one Fetch answer, decoded at once.

A batch: baseOffset i64, length i32, leaderEpoch i32, magic i8, crc u32, attributes i16, lastOffsetDelta i32,
firstTimestamp i64, maxTimestamp i64, producerId i64, producerEpoch i16, baseSequence i32, count i32, payload
(Kafka protocol, "Record Batch"; KIP-98).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from replicator.batch.header_rewrite import BATCH_HEADER_BYTES

HEADER_DTYPE = np.dtype(
    [
        ("base", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("delta", ">i4"),
        ("first", ">i8"),
        ("newest", ">i8"),
        ("producer", ">i8"),
        ("producer_epoch", ">i2"),
        ("sequence", ">i4"),
        ("count", ">i4"),
    ]
)
assert HEADER_DTYPE.itemsize == BATCH_HEADER_BYTES

BatchHeaders: TypeAlias = npt.NDArray[np.void]


def decode_batch_headers(records: memoryview, edges: Sequence[int]) -> BatchHeaders:
    """The headers of these batches, shape (n,); a copy, so that `records` may be overwritten. edges: where each begins,
    and where the last one ends."""
    if len(edges) < 2:
        return np.empty(0, dtype=HEADER_DTYPE)
    everywhere = np.ndarray((len(records) - BATCH_HEADER_BYTES + 1,), dtype=HEADER_DTYPE, buffer=records, strides=(1,))
    found: BatchHeaders = everywhere[np.array(edges[:-1])]
    return found
