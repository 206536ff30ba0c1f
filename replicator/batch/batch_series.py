"""Series: small batches of one Fetch answer that can be merged, opened all at once.

One after the other, a batch of one record costs 9 µs of processor time: its header, its CRC, the record, and the record
again in a new batch. Of a series only the CRC is checked batch by batch. numpy does the rest for all of them
(`replicator.batch.record_columns`), and a batch costs 1 µs (decision 0101).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from watershed.replicator.batch.record_batch import RawBatch, decode_batch
from watershed.replicator.batch.record_columns import Numbers, OpenedRecords


@dataclass(frozen=True, slots=True)
class BatchSeries:
    """Batches without a hole in front of them or between them, each with a right CRC. Markers of committed transactions
    may stand between them.

    first_byte, end_byte: its bytes in the answer. last: the last batch of these bytes, which may be a marker. starts,
    stops: bytes of each batch. rows: of each batch the index of its first record in `records`, and behind them their
    number. groups: indexes of batches that cannot be merged with the one in front of them, and behind them the number
    of batches. waiting, opened: of each batch, and behind the last, the bytes of all records in front of it: in the
    merged batch that they wait for, and of memory.
    """

    fetched: memoryview
    first_byte: int
    end_byte: int
    last: RawBatch
    starts: list[int]
    stops: list[int]
    rows: Numbers
    records: OpenedRecords
    groups: list[int]
    waiting: Numbers
    opened: Numbers

    def __len__(self) -> int:
        return len(self.starts)

    def decode(self, index: int) -> RawBatch:
        """The batch at `index`."""
        return decode_batch(self.fetched, self.starts[index], self.stops[index])

    def select_records(self, first: int, end: int) -> OpenedRecords:
        """The records of the batches from `first` up to, not including, `end`."""
        return self.records.select(int(self.rows[first]), int(self.rows[end]))

    def measure(self, first: int, end: int) -> int:
        """Bytes that the records of these batches take while they wait."""
        return int(self.waiting[end] - self.waiting[first])

    def find_group_end(self, first: int) -> int:
        """Behind the last batch that can be merged with the one at `first`."""
        return self.groups[bisect_right(self.groups, first)]

    def find_end_within(self, first: int, room: int) -> int:
        """Behind the last batch, from `first` on, up to which their records take at most `room` bytes."""
        return int(np.searchsorted(self.waiting, self.waiting[first] + room, side="right")) - 1

    def find_openable_end(self, first: int, room: int) -> int:
        """Behind the last batch that may be opened, from `first` on, where nothing more is opened once `room` bytes of
        memory are spent. The first one is opened together with the second."""
        if room <= 0:
            return first
        return first + max(int(np.searchsorted(self.opened, self.opened[first] + room, side="left")) - first, 2)
