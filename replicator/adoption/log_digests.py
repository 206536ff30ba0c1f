"""A partition's log as digests: eight bytes a record, in log order, so that whole logs can be laid over each other.

What of a record is in its digest says `clusters.record_fingerprint`. The digests of a log stand in a file of its own
and are mapped into memory: the system keeps what is looked at and drops the rest."""

from __future__ import annotations

import mmap
import os
import tempfile
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from watershed.clusters.record_fingerprint import DIGEST_BYTES

_CHUNK: Final = 1 << 16  # records compared or written at once


class _DigestBytes(Protocol):
    """What `bytes` and `mmap` have in common."""

    def __len__(self) -> int: ...
    def __getitem__(self, part: slice, /) -> bytes: ...
    def find(self, needle: bytes, start: int = ..., end: int = ..., /) -> int: ...
    def rfind(self, needle: bytes, start: int = ..., end: int = ..., /) -> int: ...


class ConsecutiveRecords(NamedTuple):
    """`records` records with consecutive offsets from `offset` on, the first of them at index `first` of the log."""

    first: int
    offset: int
    records: int


@dataclass(frozen=True, slots=True)
class DigestedLog:
    """Records by their index, 0 for the first that was read. indexes, offsets: where consecutive offsets begin.
    aborted: (first index, end) of records of aborted transactions, in order."""

    digests: _DigestBytes
    indexes: array[int]
    offsets: array[int]
    aborted: tuple[tuple[int, int], ...] = ()

    def __len__(self) -> int:
        return len(self.digests) // DIGEST_BYTES

    def slice(self, first: int, end: int) -> bytes:
        """Digests of the records with index `first` up to, not including, `end`; DIGEST_BYTES each."""
        return self.digests[first * DIGEST_BYTES : end * DIGEST_BYTES]

    def find(self, needle: bytes, first: int, end: int) -> int:
        """The first index from `first` on where these digests stand, all of them below `end`; -1 where they do not."""
        at, stop = first * DIGEST_BYTES, end * DIGEST_BYTES
        while (at := self.digests.find(needle, at, stop)) >= 0:
            if at % DIGEST_BYTES == 0:
                return at // DIGEST_BYTES
            at += 1
        return -1

    def rfind(self, needle: bytes, first: int, end: int) -> int:
        """As `find`, the last one."""
        begin, stop = first * DIGEST_BYTES, end * DIGEST_BYTES
        while (at := self.digests.rfind(needle, begin, stop)) >= 0:
            if at % DIGEST_BYTES == 0:
                return at // DIGEST_BYTES
            stop = at + len(needle) - 1
        return -1

    def offset(self, index: int) -> int:
        """Log offset of the record with this index."""
        at = bisect_right(self.indexes, index) - 1
        return self.offsets[at] + index - self.indexes[at]

    def index(self, offset: int) -> int:
        """Of the first record at `offset` or behind it; the log's length when there is none."""
        at = bisect_right(self.offsets, offset) - 1
        if at < 0:
            return 0
        behind = self.indexes[at + 1] if at + 1 < len(self.indexes) else len(self)
        return min(self.indexes[at] + offset - self.offsets[at], behind)

    def held(self, first: int, count: int) -> Iterator[ConsecutiveRecords]:
        """The records from index `first` on, in pieces of consecutive offsets."""
        at = bisect_right(self.indexes, first) - 1
        end = first + count
        while first < end:
            stop = min(self.indexes[at + 1] if at + 1 < len(self.indexes) else end, end)
            yield ConsecutiveRecords(first, self.offsets[at] + first - self.indexes[at], stop - first)
            first, at = stop, at + 1

    def committed(self) -> DigestedLog:
        """Without the records of aborted transactions."""
        if not self.aborted:
            return self
        builder = DigestedLogBuilder()
        at = 0
        for first, end in (*self.aborted, (len(self), len(self))):
            for index, offset, records in self.held(at, first - at):
                for begin in range(index, index + records, _CHUNK):
                    stop = min(begin + _CHUNK, index + records)
                    builder.add(offset + begin - index, self.slice(begin, stop))
            at = end
        return builder.finished()


@dataclass(slots=True)
class DigestedLogBuilder:
    """Takes digests in log order. Raises OSError when the disk for temporary files is full."""

    directory: Path | None = None
    _indexes: array[int] = field(default_factory=lambda: array("q"))
    _offsets: array[int] = field(default_factory=lambda: array("q"))
    _aborted: list[tuple[int, int]] = field(default_factory=list)
    _waiting: bytearray = field(default_factory=bytearray)
    _file: int = -1
    _written: int = 0
    _expected: int = -1

    @property
    def records(self) -> int:
        """Count of records added so far."""
        return (self._written + len(self._waiting)) // DIGEST_BYTES

    def add(self, offset: int, digests: bytes, *, aborted: bool = False) -> None:
        """Records with consecutive offsets from `offset` on."""
        count = len(digests) // DIGEST_BYTES
        index = self.records
        if offset != self._expected:
            self._indexes.append(index)
            self._offsets.append(offset)
        if aborted:
            if self._aborted and self._aborted[-1][1] == index:
                self._aborted[-1] = (self._aborted[-1][0], index + count)
            else:
                self._aborted.append((index, index + count))
        self._expected = offset + count
        self._waiting += digests
        if len(self._waiting) >= _CHUNK * DIGEST_BYTES:
            self._flush()

    def finished(self) -> DigestedLog:
        """The digests as one log. Those that did not fit in memory are mapped from a file without a name."""
        if not self._written:
            return DigestedLog(bytes(self._waiting), self._indexes, self._offsets, tuple(self._aborted))
        self._flush()
        try:
            mapped = mmap.mmap(self._file, self._written, access=mmap.ACCESS_READ)
        finally:
            os.close(self._file)
        return DigestedLog(mapped, self._indexes, self._offsets, tuple(self._aborted))

    def _flush(self) -> None:
        if self._file < 0:
            self._file, name = tempfile.mkstemp(prefix="watershed-adopt-", dir=self.directory)
            Path(name).unlink()  # it lives as long as it is open, also when this process is killed
        view = memoryview(self._waiting)
        done = 0
        while done < len(view):
            done += os.write(self._file, view[done:])
        view.release()
        self._written += done
        self._waiting = bytearray()
