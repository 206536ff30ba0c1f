"""Which fingerprints the source holds near a range: asked of records that a copy has and the range itself has not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from spark.judging.record_difference import NeighbourSearch
from spark.reading.fetch_answers import OffsetsExpired, PartitionAddress
from spark.reading.offset_range import OffsetRange
from spark.reading.range_reader import read_fingerprints
from spark.reading.xxh64 import U64


def build_neighbour_search(address: PartitionAddress, spans: Sequence[OffsetRange]) -> NeighbourSearch:
    """Reads the spans when it is asked, block by block, until all are found. What expired is not held any more."""

    def held(prints: U64) -> npt.NDArray[np.bool_]:
        found = np.zeros(len(prints), dtype=np.bool_)
        for span in spans:
            start = span.start
            while start < span.end and not found.all():
                try:
                    for block in read_fingerprints(address, OffsetRange(start, span.end)):
                        found |= np.isin(prints, block.fp)
                        if found.all():
                            break
                    start = span.end
                except OffsetsExpired as expired:
                    start = expired.log_start
        return found

    return held
