"""What many copies consist of is not walked over by each full collection."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from replicator.worker.settled_heap import _TOGETHER, SettledHeap


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
