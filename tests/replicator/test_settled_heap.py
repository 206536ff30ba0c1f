"""What many copies consist of is not walked over by each full collection."""

from __future__ import annotations

import gc
import platform
import subprocess
import sys
import weakref
from collections.abc import Iterator

import pytest

from watershed.replicator.worker.settled_heap import _TOGETHER, SettledHeap


class Begun:
    """Refers to itself, as a copy does through what wakes it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def unfrozen() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_only_many_copies_are_worth_a_collection() -> None:
    gc.unfreeze()
    heap = SettledHeap()
    for _ in range(_TOGETHER - 1):
        heap.note_begun()
    heap.settle()
    assert gc.get_freeze_count() == 0
    heap.note_begun()
    heap.settle()
    frozen = gc.get_freeze_count()
    assert frozen > 0
    heap.settle()
    assert gc.get_freeze_count() <= frozen, "these copies have been counted"


def test_what_ended_copies_left_is_freed_the_next_time() -> None:
    heap, copy = SettledHeap(), Begun()
    left = weakref.ref(copy)
    for _ in range(_TOGETHER):
        heap.note_begun()
    heap.settle()
    del copy
    gc.collect()
    assert left() is not None, "frozen"
    for _ in range(_TOGETHER):
        heap.note_begun()
    heap.settle()
    assert left() is None


_HEAPS_OF_EIGHT_THREADS = """
import ctypes, threading
from watershed.replicator.worker.settled_heap import return_free_memory, share_one_heap
{share}
barrier = threading.Barrier(8)
def hold():
    barrier.wait()
    held = bytearray(2_000)
    barrier.wait()
threads = [threading.Thread(target=hold) for _ in range(8)]
for each in threads: each.start()
for each in threads: each.join()
return_free_memory()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
told = ctypes.c_void_p(libc.fopen(b"/dev/stdout", b"w"))
libc.malloc_info(0, told)
libc.fflush(told)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc gives each thread a heap")
def test_all_threads_share_one_heap() -> None:
    def count_heaps(share: str) -> int:
        program = _HEAPS_OF_EIGHT_THREADS.format(share=share)
        command = [sys.executable, "-c", program]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.count("<heap nr=")

    assert count_heaps("share_one_heap()") == 1
    assert count_heaps("") > 1


_FAULTS_OF_BUFFERS = """
import resource
from watershed.replicator.worker.settled_heap import keep_freed_memory
{keep}
for number in range(42):
    if number == 2:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    held = [bytes([number]) * (5 << 20) for _ in range(2)]
    del held
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_buffers_that_were_freed_are_used_again() -> None:
    def count_faults(keep: str) -> int:
        command = [sys.executable, "-c", _FAULTS_OF_BUFFERS.format(keep=keep)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert count_faults("keep_freed_memory()") < 1_000
    assert count_faults("") > 40 * 1_000  # of 4 KiB each
