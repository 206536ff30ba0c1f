"""Memory that processes of one machine and user share, so that bytes need not pass through Java between them.

A file without a name (memfd_create(2)), reached through `/proc`. It is gone when the process that made it is, so
nothing stays behind, whatever kills whom.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

_SIZE_BYTES: Final = 8  # in front of what tasks are told
_MOST_PIECES: Final = 512  # of one writev(2); IOV_MAX is 1,024
_AREA_BYTES: Final = 1 << 40  # more than any machine has
_RETIRED_S: Final = 60.0  # Spark ends a task of a failed job within seconds (spark.python.task.killTimeout)


class MemoryRegion(NamedTuple):
    """`size` bytes at `at` of the memory that is reached at `path`."""

    path: str
    at: int
    size: int

    def read(self, spare: int = 0) -> memoryview:
        """A copy, with `spare` bytes more behind it, whatever they are. Raises OSError where the memory, or its owner,
        is gone."""
        with open(self.path, "rb", buffering=0) as file:
            return _read_copy(file.fileno(), self.path, self.at, self.size, spare)


def _read_copy(file: int, path: str, at: int, size: int, spare: int = 0) -> memoryview:
    data = memoryview(np.empty(size + spare, dtype=np.uint8).data)  # bytearray would write zeros first
    found = os.preadv(file, [data[:size]], at)
    if found != size:
        raise OSError(f"{path} has {found} bytes at {at}, not {size}")
    return data


def can_share_memory() -> bool:
    """Whether this system has memory files and `/proc` (Linux)."""
    return sys.platform == "linux" and hasattr(os, "memfd_create")


@dataclass(slots=True)
class MemoryFile:
    """The owner's side. It is as large as the most that was ever in it: pages are taken once."""

    _file: int = -1
    _end: int = 0

    @property
    def path(self) -> str:
        """For other processes, as long as this one lives."""
        self._open()
        return f"/proc/{os.getpid()}/fd/{self._file}"

    def clear(self) -> None:
        """What is written next begins at 0. Regions from before become wrong."""
        self._end = 0

    def append(self, pieces: Sequence[bytes | memoryview]) -> MemoryRegion:
        """Writes them one behind the other. Raises OSError where memory is short."""
        self._open()
        at = self._end
        for first in range(0, len(pieces), _MOST_PIECES):
            some = pieces[first : first + _MOST_PIECES]
            left = sum(map(len, some))
            if os.pwritev(self._file, some, self._end) != left:
                raise OSError(f"{left} bytes of shared memory could not be written at once")
            self._end += left
        return MemoryRegion(self.path, at, self._end - at)

    def read(self, at: int, size: int) -> memoryview:
        """A copy. Raises OSError where the memory does not reach so far."""
        return _read_copy(self._file, "shared memory", at, size)

    def shrink(self) -> None:
        """Gives back its pages; the path stays taken."""
        if self._file >= 0:
            os.ftruncate(self._file, 0)

    def close(self) -> None:
        """Others that have it open may go on reading."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self) -> None:
        if self._file < 0:
            self._file = os.memfd_create("watershed", os.MFD_CLOEXEC)


@dataclass(slots=True)
class SharedMemory:
    """What a driver shares with the tasks of one job after the other: what each task is to do, input for all, and
    output, of which each task has areas of its own (`RegionWriter`).

    A job that failed may have tasks that still write. So its memory is used no more, and its paths, which name file
    descriptors, stay taken for a minute. clock: seconds.
    """

    clock: Callable[[], float] = time.monotonic
    assignments: MemoryFile = field(default_factory=MemoryFile)
    input: MemoryFile = field(default_factory=MemoryFile)
    output: MemoryFile = field(default_factory=MemoryFile)
    _retired: deque[tuple[float, MemoryFile]] = field(default_factory=deque)

    def begin(self) -> None:
        """Memory for a new job: there is neither input nor anything to do."""
        while self._retired and self._retired[0][0] + _RETIRED_S < self.clock():
            self._retired.popleft()[1].close()
        self.input.clear()
        self.assignments.clear()

    def assign(self, tasks: Sequence[bytes]) -> None:
        """What each task is to do, by its number. Raises OSError."""
        told = pickle.dumps(list(tasks))
        self.assignments.append([len(told).to_bytes(_SIZE_BYTES, "big"), told])

    def retire(self) -> None:
        """The job failed."""
        for file in self._files:
            file.shrink()
            self._retired.append((self.clock(), file))
        self.assignments, self.input, self.output = MemoryFile(), MemoryFile(), MemoryFile()

    def close(self) -> None:
        """Gives back everything."""
        for file in (*self._files, *(file for _, file in self._retired)):
            file.close()

    @property
    def _files(self) -> tuple[MemoryFile, ...]:
        return self.assignments, self.input, self.output


def read_assignment(path: str, task: int) -> bytes:
    """What `SharedMemory.assign` told a task; path: of `assignments`. Raises OSError where the memory, or its owner, is
    gone, or was retired."""
    size = int.from_bytes(MemoryRegion(path, 0, _SIZE_BYTES).read(), "big")
    told: list[bytes] = pickle.loads(MemoryRegion(path, _SIZE_BYTES, size).read())  # noqa: S301  from our own driver
    return told[task]


@dataclass(slots=True)
class RegionWriter:
    """A task's side of memory that is the driver's. area: that nobody else writes to in this job. What is not written
    between two areas takes no memory."""

    path: str
    area: int
    _written: int = 0

    def append(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Writes them one behind the other. Returns where they stand. Raises OSError."""
        with open(self.path, "r+b", buffering=0) as file:
            at = self.area * _AREA_BYTES + self._written
            written = os.pwritev(file.fileno(), pieces, at)
        size = sum(map(len, pieces))
        if written != size:
            raise OSError(f"only {written} of {size} bytes were written to {self.path}")
        self._written += written
        return at
