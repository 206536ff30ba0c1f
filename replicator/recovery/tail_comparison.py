"""What stands at the end of a target's log behind what the ledger knows: new records, and repeats. Does no I/O.

Batches without a producer id do not say who wrote them, or which source offsets they hold. Their records do: a batch is
ours if the source holds the same records, in a row, where a worker may have begun to send. Such places are few: a
worker has one batch in flight, and begins where its takeover ended. So a batch continues the copy; or it begins at a
place that the copy has passed since the ledger's position; or at the place of an earlier takeover, when it was under
way for long. Everything else is somebody else's.

Two places with equal records (timestamps included) cannot be told apart, and need not: the records that stand there are
those that belong there.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol

from watershed.replicator.batch.records import RawRecord
from watershed.replicator.ledger.explicit_runs import join_explicit_runs
from watershed.replicator.ledger.offset_map import ExplicitRun
from watershed.replicator.ledger.transaction_positions import SourceSpan
from watershed.replicator.partition_states import Halt, OffsetSpan

_TIME: Final = struct.Struct(">q")


class PlacedContent(NamedTuple):
    """A record at its offset; content: a digest of its timestamp, key, value and headers."""

    offset: int
    content: bytes


class TailBatch(NamedTuple):
    """A batch of the target's log. contents: a digest for each record; None for a marker of a transaction."""

    base: int
    end: int
    contents: tuple[bytes, ...] | None


class SourceContents(Protocol):
    """The source's records as the flow copies them: committed, without those that the loop guard leaves out."""

    def read(self, first: int, most: int) -> Sequence[PlacedContent]:
        """The next records at `first` or behind it, at most so many; fewer only where the log ends."""


@dataclass(frozen=True, slots=True)
class TailFindings:
    """landed, repeated: runs in log order. position: the source is copied through this offset."""

    landed: tuple[ExplicitRun, ...]
    repeated: tuple[ExplicitRun, ...]
    position: int


class UnreadRecords(NamedTuple):
    """Target records behind the ledger's position that nobody can compare, because they are gone at one side.

    deleted: so many were deleted at the target, in front of the tail. given_up: at most so many stand at the tail's
    beginning whose source offsets have expired, and an order gave them up.
    """

    deleted: int = 0
    given_up: int = 0


_ALL_READ: Final = UnreadRecords()


def digest_raw_record(record: RawRecord) -> bytes:
    """16 bytes that are equal for equal records: a chance of 2**-128 for others."""
    return blake2b(_TIME.pack(record.timestamp) + record.rest, digest_size=16).digest()


def compare_tail(
    position: int,
    first: int,
    takeovers: Sequence[SourceSpan],
    tail: Iterable[TailBatch],
    source: SourceContents,
    unread: UnreadRecords = _ALL_READ,
) -> TailFindings | Halt:
    """Find out what each batch of the tail holds.

    position: the ledger's. first: the target offset where the tail begins. takeovers: the newest last. Source records
    that a translated position may still need are never passed: what stands there unread belongs to no run.
    """
    walk = _TailWalk(source, takeovers, position, *unread)
    at = first
    for batch in tail:
        if batch.contents is None or batch.base != at or len(batch.contents) != batch.end - batch.base:
            return _build_foreign(OffsetSpan(at, batch.end), "they are no plain records of one copy")
        if not walk.take(batch.base, batch.contents):
            return _build_foreign(OffsetSpan(batch.base, batch.end), "the source does not hold the same records")
        at = batch.end
    return TailFindings(tuple(join_explicit_runs(walk.landed)), tuple(join_explicit_runs(walk.repeated)), walk.position)


def _build_foreign(where: OffsetSpan, why: str) -> Halt:
    return Halt(
        "target_foreign_write",
        f"target offsets {where} stand behind what the ledger knows, and this flow did not write them: {why} where a "
        "worker may have sent from",
        target=where,
    )


@dataclass(slots=True)
class _TailWalk:
    """How far the tail is understood. passed: records of the source that were found since, by content. deleted,
    given_up: see UnreadRecords; they count until the copy's place is found."""

    source: SourceContents
    takeovers: Sequence[SourceSpan]
    position: int
    deleted: int = 0
    given_up: int = 0
    landed: list[ExplicitRun] = field(default_factory=list)
    repeated: list[ExplicitRun] = field(default_factory=list)
    passed: dict[bytes, list[int]] = field(default_factory=lambda: defaultdict(list))

    def take(self, target: int, contents: Sequence[bytes]) -> bool:
        """Add a batch; False if the source does not hold it at any place where it may come from."""
        found = next((run for first in self._list_places(contents[0]) if (run := self._read(first, contents))), None)
        if found is None:
            skipped = self._count_given_up(contents)
            self.given_up -= skipped
            return skipped == len(contents) or (skipped > 0 and self.take(target + skipped, contents[skipped:]))
        for at, record in enumerate(found):
            one = ExplicitRun(target + at, record.offset, 1)
            if record.offset < self.position:
                self.repeated.append(one)
            else:
                self.landed.append(one)
                self.passed[record.content].append(record.offset)
                self.deleted = self.given_up = 0
        self.position = max(self.position, found[-1].offset + 1)
        return True

    def _read(self, first: int, contents: Sequence[bytes]) -> Sequence[PlacedContent]:
        """The source's records from `first` on, if they are the same; else nothing."""
        if not all(map(_is_same, self.source.read(first, 1), contents[:1])):
            return ()
        found = self.source.read(first, len(contents))
        same = len(found) == len(contents) and all(map(_is_same, found, contents))
        return found if same else ()

    def _count_given_up(self, contents: Sequence[bytes]) -> int:
        """How many records at a batch's beginning stood in front of the source's log start: all in front of those that
        stand there. 0 if it may not be so."""
        most = min(self.given_up, len(contents))
        for skipped in range(1, most + 1):
            if skipped == len(contents) or self._read(self.position, contents[skipped:]):
                return skipped
        return 0

    def _list_places(self, content: bytes) -> Iterator[int]:
        yield self.position
        if self.deleted:  # what stands in front may have landed, as far as so many records reach
            yield from self._list_places_ahead(content)
        yield from reversed(self.passed.get(content, ()))
        for span in reversed(self.takeovers):
            yield from self._list_places_of(span, content)

    def _list_places_ahead(self, content: bytes) -> Iterator[int]:
        at, left = self.position, self.deleted + 1
        while left > 0 and (found := self.source.read(at, min(left, _AT_ONCE))):
            yield from (record.offset for record in found if record.content == content)
            at, left = found[-1].offset + 1, left - len(found)

    def _list_places_of(self, span: SourceSpan, content: bytes) -> Iterator[int]:
        """Offsets of equal records where a batch may begin that was under way at this takeover."""
        at = span.first
        while at <= span.end and (found := self.source.read(at, _AT_ONCE)):
            for record in found:
                if record.content == content and record.offset < self.position:
                    yield record.offset
                if record.offset >= span.end:
                    return
            at = found[-1].offset + 1


_AT_ONCE: Final = 4096  # records that are looked at together


def _is_same(record: PlacedContent, content: bytes) -> bool:
    return record.content == content
