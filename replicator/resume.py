"""Where to go on: one look at both logs and the ledger, judged without I/O.

Follows the docs/research/sequence-numbers.md, §6 (1) and §4 (R1 to R5). The target's log is what counts;
the ledger says which source offset its end stands for.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from clusters.flows import Start
from replicator.batches import Batch
from replicator.epochs import Epoch
from replicator.header import SEQUENCE_SPACE
from replicator.offsetmap import OffsetMap
from replicator.partition import MARGIN_MS, PIPELINE, Identity
from replicator.states import LookAgain, Loud, Span


@dataclass(frozen=True, slots=True)
class Remembered:
    """What the ledger holds of a partition. `map` covers everything that was ever announced for it.

    epochs: the source's leader epochs as they were copied, by offset. since: the producer epoch from which on runs
    count; what older ones described was given up by an order to reseed. order, note: the newest order that was obeyed.
    needs_epoch: its producer epoch must not be shared (`replicator.fencing`). closed: all who wrote under it said that
    nothing of theirs is under way. last_epoch: the highest producer epoch that was ever begun. after: the producer
    epoch that this one follows, those between never counted; -1 where none was left out. adopted: the order by which it
    goes on behind what another tool copied (`replicator.adoption`), if any. without_newest: what counts if nothing ever
    landed under this one; None where nothing else could. filling: nothing but filler was written under this producer
    epoch (`replicator.aligned`); given_up: an order gave up what the source held below this offset.
    """

    map: OffsetMap
    identity: Identity
    source_id: uuid.UUID
    target_id: uuid.UUID
    epochs: tuple[Epoch, ...] = ()
    since: int = 0
    order: str = ""
    note: str = ""
    needs_epoch: bool = False
    closed: bool = False
    last_epoch: int = 0
    after: int = -1
    adopted: str = ""
    without_newest: Callable[[], Remembered] | None = field(default=None, compare=False, repr=False)
    filling: bool = False
    given_up: int = -1


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at the logs. Offsets in records, times in ms.

    tail: the last batch on the target, None when the log is empty; of an aligned partition the last one that holds
    records, however many markers stand behind it. producer: (epoch, last sequence, last record
    time) that the target's leader holds for our producer id, None when it holds nothing. settled: the
    target's end stood still for longer than any request can still be under way; source_settled: the source's end did.
    diverges_at: the first copied source offset that is not the source's any more (KIP-320), None while all are. missed:
    of an aligned partition, the first source record where the target has something else.
    """

    source_id: uuid.UUID
    source_start: int
    source_end: int
    target_id: uuid.UUID
    target_start: int
    target_end: int
    tail: Batch | None
    producer: tuple[int, int, int] | None
    now: int
    expiration: int
    settled: bool
    source_settled: bool = False
    diverges_at: int | None = None
    missed: int | None = None


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on: fetch at `position`, the next record gets `target_end`; `depth` before and after the first answer.

    since, order, note, adopted: see Remembered. claims: this begins something, and workers have to agree on where.
    alone: nobody else may write under this producer epoch (`replicator.fencing`). after: the producer epoch that it
    follows, then.
    newest: time of the newest record that the target's leader remembers us by (ms), -1 when it holds nothing.
    Of an aligned partition only: filling, given_up: see Remembered. goal: how far the filler may go now. counted_from:
    the target offset that has sequence 0 by now, where that is no longer the identity's base.
    """

    identity: Identity
    position: int
    target_end: int
    depth: int
    depth_confirmed: int
    since: int = 0
    order: str = ""
    note: str = ""
    claims: bool = False
    alone: bool = False
    after: int = -1
    newest: int = -1
    adopted: str = ""
    filling: bool = False
    goal: int = -1
    given_up: int = -1
    counted_from: int | None = None

    @property
    def numbering(self) -> Identity:
        """Who writes, and which target offset would have sequence 0 as things are now."""
        if self.counted_from is None:
            return self.identity
        return Identity(self.identity.producer_id, self.identity.epoch, self.counted_from)


def resume(remembered: Remembered | None, seen: Seen, producer_id: int, start: Start) -> Resume | Loud | LookAgain:
    """Decide how a partition goes on. `start` counts for a partition nobody has copied yet."""
    if remembered is None:
        return _first_time(seen, producer_id, start)
    known = (remembered.source_id, remembered.target_id)
    stop = other_topics(known, seen, lambda: remembered.map.source_position(seen.target_end))
    stop = stop or _foreign_tail(remembered, seen)
    if stop is not None:
        return stop
    identity = remembered.identity
    producer = seen.producer
    if producer is not None and producer[0] > identity.epoch:
        return LookAgain(f"a worker writes with producer epoch {producer[0]}, the ledger says {identity.epoch}")
    if producer is not None and producer[0] < identity.epoch:
        producer = None  # from before an order: it says nothing about what this epoch wrote
    if producer is not None:
        _epoch, last_sequence, _time = producer
        ahead = (identity.base + last_sequence + 1 - seen.target_end) % SEQUENCE_SPACE
        if ahead >= SEQUENCE_SPACE // 2:
            return Loud(
                "duplicated",
                f"the target's log ends at {seen.target_end}, but the broker last saw sequence {last_sequence} "
                f"of a flow that began at {identity.base}",
                target=Span(identity.base, seen.target_end),
            )
        if ahead:
            return LookAgain(f"{ahead} records behind offset {seen.target_end} are not replicated yet")
    young = producer is not None and producer[2] + seen.expiration - seen.now > MARGIN_MS
    if not young and seen.target_end > identity.base and not seen.settled:
        return LookAgain("the broker may have forgotten our sequence numbers; waiting until nothing is under way")
    position = remembered.map.source_position(seen.target_end)
    lost = source_range(position, remembered.map, seen)
    if lost is not None:
        return lost
    return Resume(
        identity=identity,
        position=position,
        target_end=seen.target_end,
        depth=PIPELINE if young else 1,
        depth_confirmed=PIPELINE if young or seen.target_end == identity.base else 1,
        since=remembered.since,
        order=remembered.order,
        note=remembered.note,
        newest=producer[2] if producer is not None else -1,
        adopted=remembered.adopted,
    )


def _first_time(seen: Seen, producer_id: int, start: Start) -> Resume | Loud:
    if seen.target_end != seen.target_start:
        return Loud(
            "target_foreign_write",
            f"the target partition already holds offsets {seen.target_start} to {seen.target_end - 1}, "
            "and the ledger knows nothing of them",
            target=Span(seen.target_start, seen.target_end),
        )
    return Resume(
        identity=Identity(producer_id, 0, seen.target_end),
        position=beginning_at(start, seen),
        target_end=seen.target_end,
        depth=1,
        depth_confirmed=PIPELINE,
        claims=True,
    )


class Topics(Protocol):
    """Which topics a look saw, and the source's range."""

    @property
    def source_id(self) -> uuid.UUID: ...
    @property
    def target_id(self) -> uuid.UUID: ...
    @property
    def source_start(self) -> int: ...
    @property
    def source_end(self) -> int: ...


def beginning_at(start: Start, seen: Topics) -> int:
    """The first source offset of a copy. One that has expired is told by the next look, which knows the position."""
    if isinstance(start, int):
        return start
    return seen.source_start if start == "earliest" else seen.source_end


def other_topics(known: tuple[uuid.UUID, uuid.UUID], seen: Topics, copied_through: Callable[[], int]) -> Loud | None:
    """Whether a topic is another one than the ledger has (`known`: source id, target id). copied_through: the source
    position that the old one was copied to, asked for only when it is said."""
    source_id, target_id = known
    if seen.target_id != target_id:
        return Loud(
            "target_gone",
            f"the target topic has id {seen.target_id}, the ledger {target_id}",
            expected_id=target_id,
            found_id=seen.target_id,
        )
    if seen.source_id != source_id:
        there = Span(seen.source_start, seen.source_end)
        return Loud(
            "source_recreated",
            f"the source topic has id {seen.source_id}, the ledger {source_id}; the old one was copied through "
            f"{copied_through()}, the new one holds offsets {there}",
            source=there,
            expected_id=source_id,
            found_id=seen.source_id,
        )
    return None


def by_another(tail: Batch, identity: Identity) -> Loud | None:
    """Whether somebody else wrote the batch, or we under a producer epoch that the ledger does not know."""
    if (tail.producer_id, tail.producer_epoch) == (identity.producer_id, identity.epoch):
        return None
    return Loud(
        "target_foreign_write",
        f"the batch at target offsets {tail.base} to {tail.end - 1} is by producer {tail.producer_id} "
        f"epoch {tail.producer_epoch}, this flow writes as {identity.producer_id} epoch {identity.epoch}",
        target=Span(tail.base, tail.end),
    )


def _foreign_tail(remembered: Remembered, seen: Seen) -> Loud | None:
    """The last stored batch must be ours and stand where its sequence number says; of an adopted partition it may be
    the last of what was adopted."""
    identity, tail = remembered.identity, seen.tail
    if tail is not None and remembered.adopted and remembered.map.own and tail.end <= remembered.map.own[0].target:
        return None
    if tail is None or (from_before(tail, identity) and tail.end <= identity.base):
        return None
    extent = Span(tail.base, tail.end)
    if from_before(tail, identity):
        return Loud(
            "duplicated",
            f"the batch at target offsets {extent} was sent before the order that made offset {identity.base} the "
            f"beginning of producer epoch {identity.epoch}, and landed after it",
            target=Span(identity.base, tail.end),
        )
    other = by_another(tail, identity)
    if other is not None:
        return other
    if tail.base_sequence != identity.sequence(tail.base):
        return Loud(
            "duplicated",
            f"the batch at target offsets {tail.base} to {tail.end - 1} carries sequence {tail.base_sequence}, "
            f"{identity.sequence(tail.base)} belongs there",
            target=extent,
        )
    return None


def from_before(tail: Batch, identity: Identity) -> bool:
    """Whether this flow wrote the batch before the order that began the present producer epoch."""
    return tail.producer_id == identity.producer_id and 0 <= tail.producer_epoch < identity.epoch


def source_range(position: int, offsets: OffsetMap, seen: Seen) -> Loud | LookAgain | None:
    if position < seen.source_start:
        lost = Span(position, seen.source_start)
        return Loud(
            "source_expired",
            f"source offsets {lost} are gone, at most {lost.end - lost.first} records: the log now starts at "
            f"{seen.source_start}",
            source=lost,
        )
    if seen.diverges_at is not None:
        return _truncated(seen.diverges_at, position, offsets, seen)
    if position > seen.source_end and not seen.source_settled:
        return LookAgain(f"the source's log ends at {seen.source_end}, below {position}: it may still be recovering")
    if position > seen.source_end:
        return _truncated(seen.source_end, position, offsets, seen)
    return None


def _truncated(first: int, position: int, offsets: OffsetMap, seen: Seen) -> Loud:
    """`first`: the first source offset that was copied and is not the source's any more."""
    gone, kept = Span(first, position), Span(offsets.to_target(first, seen.target_end), seen.target_end)
    return Loud(
        "source_truncated",
        f"source offsets {gone} were copied and do not exist there any more (its log now ends at {seen.source_end}); "
        f"target offsets {kept} hold what the source lost",
        source=gone,
        target=kept,
    )
