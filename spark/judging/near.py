"""Which fingerprints the source holds near a range: asked of records that a copy has and the range itself has not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spark.judging.difference import Elsewhere
from spark.reading.ranges import Expired, PartitionAddress, read_prints
from spark.reading.spans import Span


def held_in(address: PartitionAddress, spans: Sequence[Span]) -> Elsewhere:
    """Reads the spans when it is asked, block by block, until all are found. What expired is not held any more."""

    def held(prints: np.ndarray) -> np.ndarray:
        found = np.zeros(len(prints), dtype=np.bool_)
        for span in spans:
            start = span.start
            while start < span.end and not found.all():
                try:
                    for block in read_prints(address, Span(start, span.end)):
                        found |= np.isin(prints, block.fp)
                        if found.all():
                            break
                    start = span.end
                except Expired as expired:
                    start = expired.log_start
        return found

    return held
