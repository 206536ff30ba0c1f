"""Memory that processes of one machine and user share, so that bytes need not pass through Java between them.

A file without a name (memfd_create(2)), reached through `/proc`. It is gone when the process that made it is, so
nothing stays behind, whatever kills whom.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

_MOST_PIECES: Final = 512  # of one writev(2); IOV_MAX is 1,024
_TASK_BYTES: Final = 1 << 40  # of a task's area, more than any machine has
_RETIRED_S: Final = 60.0  # Spark ends a task of a failed job within seconds (spark.python.task.killTimeout)


class MemoryRegion(NamedTuple):
    """`size` bytes at `at` of the memory that is reached at `path`."""

    path: str
    at: int
    size: int

    def read(self) -> bytes:
        """A copy. Raises OSError where the memory, or its owner, is gone."""
        with open(self.path, "rb", buffering=0) as file:
            data = os.pread(file.fileno(), self.size, self.at)
        if len(data) != self.size:
            raise OSError(f"{self.path} has {len(data)} bytes at {self.at}, not {self.size}")
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
    """What a driver shares with the tasks of one job after the other: input for all, and output, of which each task has
    an area of its own (`RegionWriter`). Which task gets which part is Spark's to say.

    A job that failed may have tasks that still write. So its memory is used no more, and its paths, which name file
    descriptors, stay taken for a minute. clock: seconds.
    """

    clock: Callable[[], float] = time.monotonic
    input: MemoryFile = field(default_factory=MemoryFile)
    output: MemoryFile = field(default_factory=MemoryFile)
    _retired: deque[tuple[float, MemoryFile]] = field(default_factory=deque)

    def begin(self) -> None:
        """Memory for a new job: `input` is empty."""
        while self._retired and self._retired[0][0] + _RETIRED_S < self.clock():
            self._retired.popleft()[1].close()
        self.input.clear()

    def retire(self) -> None:
        """The job failed."""
        for file in (self.input, self.output):
            file.shrink()
            self._retired.append((self.clock(), file))
        self.input, self.output = MemoryFile(), MemoryFile()

    def close(self) -> None:
        """Gives back everything."""
        for file in (self.input, self.output, *(file for _, file in self._retired)):
            file.close()


@dataclass(slots=True)
class RegionWriter:
    """A task's side of memory that is the driver's. What is not written between the areas of two tasks takes none."""

    path: str
    task: int
    _written: int = 0

    def append(self, data: bytes | memoryview) -> int:
        """Returns where it stands. Raises OSError."""
        with open(self.path, "r+b", buffering=0) as file:
            at = self.task * _TASK_BYTES + self._written
            written = os.pwrite(file.fileno(), data, at)
        if written != len(data):
            raise OSError(f"only {written} of {len(data)} bytes were written to {self.path}")
        self._written += written
        return at
