"""Keeping Python's full garbage collections short in a worker of thousands of partitions.

A full collection walks over every object, and all threads wait for it: 140 ms with 5,000 partitions, 230 ms with
10,000 (some fifty objects a partition, all of which stay). What is frozen is passed over.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Final

_TOGETHER: Final = 256  # copies that have begun: a collection over fewer new ones takes some milliseconds


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
