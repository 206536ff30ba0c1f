"""Small logs for the aligner, from offsets and contents."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from watershed.clusters.record_fingerprint import DIGEST_BYTES
from watershed.replicator.adoption.log_digests import DigestedLog, DigestedLogBuilder


def log_of(records: Iterable[tuple[int, bytes]], aborted: Iterable[int] = ()) -> DigestedLog:
    """A log from (offset, content) pairs; `aborted` are offsets."""
    builder, gone = DigestedLogBuilder(), set(aborted)
    for offset, content in records:
        builder.add(offset, blake2b(content, digest_size=DIGEST_BYTES).digest(), aborted=offset in gone)
    return builder.finished()
