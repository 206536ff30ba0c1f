"""Small logs for the aligner, from offsets and contents."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from replicator.adoption.digests import WIDTH, Builder, Log


def log_of(records: Iterable[tuple[int, bytes]], aborted: Iterable[int] = ()) -> Log:
    """A log from (offset, content) pairs; `aborted` are offsets."""
    builder, gone = Builder(), set(aborted)
    for offset, content in records:
        builder.add(offset, blake2b(content, digest_size=WIDTH).digest(), aborted=offset in gone)
    return builder.finished()
