"""The memory of a worker of thousands of partitions: full garbage collections stay short, and what a start needed goes
back to the system.

A full collection walks over every object, and all threads wait for it: 140 ms with 5,000 partitions, 230 ms with
10,000 (some fifty objects a partition, all of which stay). What is frozen is passed over.

The C library gives each thread a heap of its own, sixteen on two cores, and what one thread has freed serves no other:
after a start with 10,000 partitions 90 of 118 MiB were free, and still the process's. Python's own lock lets one thread
at a time run anyway, so one heap is enough.
"""

from __future__ import annotations

import ctypes
import gc
from dataclasses import dataclass
from typing import Final

_TOGETHER: Final = 256  # copies that have begun: a collection over fewer new ones takes some milliseconds


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h of glibc
_KEPT_BUFFER_BYTES: Final = 64 << 20
_KEPT_BYTES: Final = 256 << 20
_LIBC: Final = ctypes.CDLL(None)


def share_one_heap() -> None:
    """From now on all threads share the heap of the C library, where that is glibc. To be called before the
    first is started: a heap that is there stays."""
    if hasattr(_LIBC, "mallopt"):
        _LIBC.mallopt(_M_ARENA_MAX, 1)


def keep_freed_memory() -> None:
    """From now on buffers of up to 64 MiB that are freed serve what is asked for next, and 256 MiB that nobody uses
    stay with the process. For processes that take and free such buffers all the time: otherwise each is taken from the
    system anew, which fills it with zeros, 4 KiB at a time. Only with glibc (mallopt(3))."""
    if hasattr(_LIBC, "mallopt"):
        _LIBC.mallopt(_M_MMAP_THRESHOLD, _KEPT_BUFFER_BYTES)
        _LIBC.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def return_free_memory() -> None:
    """Give the system back what nobody uses any more, where the C library can (glibc)."""
    if hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(0)


@dataclass(slots=True)
class SettledHeap:
    """Freezes what the copies of a worker consist of, once many of them have begun."""

    _begun: int = 0

    def note_begun(self) -> None:
        """A copy has begun."""
        self._begun += 1

    def settle(self) -> None:
        """Collect and freeze, if many copies have begun since the last time. To be called when no others are about to
        begin. It takes one full collection, which also frees what ended copies left."""
        if self._begun < _TOGETHER:
            return
        self._begun = 0
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        return_free_memory()
