"""Memory that processes of one machine and user share, so that bytes need not pass through Java between them.

A file without a name (memfd_create(2)), reached through `/proc`. It is gone when the process that made it is, so
nothing stays behind, whatever kills whom.
"""

from __future__ import annotations

import mmap
import os
import pickle
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

_SIZE_BYTES: Final = 8  # in front of what tasks are told
_MOST_PIECES: Final = 512  # of one writev(2); IOV_MAX is 1,024
_MAPPED: Final = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)  # all pages at once cost less than one by one
_AREA_BYTES: Final = 1 << 40  # more than any machine has
_ANSWERS_AREA: Final = 1 << 21  # of output: the first of areas in which tasks say what they did
_RETIRED_S: Final = 60.0  # Spark ends a task of a failed job within seconds (spark.python.task.killTimeout)


class MemoryRegion(NamedTuple):
    """`size` bytes at `at` of the memory that is reached at `path`."""

    path: str
    at: int
    size: int

    def read(self) -> memoryview:
        """A copy. Raises OSError where the memory, or its owner, is gone."""
        with open(self.path, "rb", buffering=0) as file:
            return _read_copy(file.fileno(), self.path, self.at, self.size)

    def map(self) -> memoryview:
        """Itself, not a copy. It stays as long as somebody looks at it, also when its owner is gone; the owner may
        write something else there. Raises OSError where the memory, or its owner, is gone already."""
        found = os.stat(self.path)
        if found.st_size < self.at + self.size:  # to look beyond the end would end this process
            raise OSError(f"{self.path} has {max(found.st_size - self.at, 0)} bytes at {self.at}, not {self.size}")
        return memoryview(_map_file(self.path, found.st_ino, found.st_size))[self.at : self.at + self.size]


@lru_cache(maxsize=1)  # tasks look at one file for a long time, and to map its pages costs half as much as a copy
def _map_file(path: str, inode: int, size: int) -> mmap.mmap:
    """All of a memory file. Paths are used again for other files; an inode is not as long as it is mapped."""
    with open(path, "rb", buffering=0) as file:
        found = os.fstat(file.fileno())
        if (found.st_ino, found.st_size) != (inode, size):
            raise OSError(f"{path} is another file than a moment ago")
        return mmap.mmap(file.fileno(), size, flags=_MAPPED, prot=mmap.PROT_READ)


def _read_copy(file: int, path: str, at: int, size: int) -> memoryview:
    data = memoryview(np.empty(size, dtype=np.uint8).data)  # bytearray would write zeros first
    found = os.preadv(file, [data], at)
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
        """Gives back its pages; the path stays taken. Nobody may have mapped it."""
        if self._file >= 0:
            os.ftruncate(self._file, 0)

    def blank(self) -> None:
        """Gives back its pages; who has mapped it, or reads it, finds zeros. The path stays taken."""
        if self._file >= 0 and (size := os.fstat(self._file).st_size):
            with mmap.mmap(self._file, size) as pages:
                pages.madvise(mmap.MADV_REMOVE)

    def detach(self) -> None:
        """Its path names nothing from now on, and stays taken. Pages go when nobody has mapped them any more."""
        if self._file >= 0:
            nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            try:
                os.dup2(nothing, self._file, inheritable=False)
            finally:
                os.close(nothing)

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

    def read_answers(self, tasks: int) -> list[bytes]:
        """What each task has answered (`write_answer`). Raises OSError where one never did."""
        answers = []
        for task in range(tasks):
            at = (_ANSWERS_AREA + task) * _AREA_BYTES
            size = int.from_bytes(self.output.read(at, _SIZE_BYTES), "big")
            if not size:  # a hole in front of the answer of another task
                raise OSError(f"task {task} left no answer")
            answers.append(bytes(self.output.read(at + _SIZE_BYTES, size)))
        return answers

    def retire(self) -> None:
        """The job failed. Does not raise: why the job failed counts, not what the system says to this."""
        assignments, input_, output = gone = self._files
        self.assignments, self.input, self.output = MemoryFile(), MemoryFile(), MemoryFile()
        self._retired.extend((self.clock(), file) for file in gone)
        for file, give_back in ((assignments, assignments.shrink), (output, output.shrink), (input_, input_.blank)):
            try:  # tasks map the input
                give_back()
            except OSError:  # gVisor has no MADV_REMOVE; each bad record would keep the input of some failed jobs
                with suppress(OSError):
                    file.detach()

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


def write_answer(path: str, task: int, answer: bytes) -> None:
    """What `SharedMemory.read_answers` finds; path: of `output`, answer: at least a byte. Raises OSError."""
    RegionWriter(path, _ANSWERS_AREA + task).append([len(answer).to_bytes(_SIZE_BYTES, "big"), answer])
