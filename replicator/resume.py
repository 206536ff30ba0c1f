"""Where to go on: one look at both logs and the ledger, judged without I/O.

Follows the research page on sequence numbers, §6 (1) and §4 (R1 to R5). The target's log is what counts;
the ledger says which source offset its end stands for.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from replicator.batches import Batch
from replicator.header import SEQUENCE_SPACE
from replicator.offsetmap import OffsetMap
from replicator.partition import MARGIN_MS, PIPELINE, Identity
from replicator.states import LookAgain, Loud


@dataclass(frozen=True, slots=True)
class Remembered:
    """What the ledger holds of a partition. `map` covers everything that was ever announced for it."""

    map: OffsetMap
    identity: Identity
    source_id: uuid.UUID
    target_id: uuid.UUID


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at the logs. Offsets in records, times in ms.

    tail: the last batch on the target, None when the log is empty. producer: (epoch, last sequence, last record
    time) that the target's leader holds for our producer id, None when it holds nothing. settled: the
    target's end stood still for longer than any request can still be under way; source_settled: the source's end did.
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


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on: fetch at `position`, the next record gets `target_end`; `depth` before and after the first answer."""

    identity: Identity
    position: int
    target_end: int
    depth: int
    depth_confirmed: int


def resume(remembered: Remembered | None, seen: Seen, producer_id: int, start: str) -> Resume | Loud | LookAgain:
    """Decide how a partition goes on. `start` (earliest | latest) counts for a partition nobody has copied yet."""
    if remembered is None:
        return _first_time(seen, producer_id, start)
    stop = _other_topics(remembered, seen) or _foreign_tail(remembered.identity, seen)
    if stop is not None:
        return stop
    identity = remembered.identity
    if seen.producer is not None:
        _epoch, last_sequence, _time = seen.producer
        ahead = (identity.base + last_sequence + 1 - seen.target_end) % SEQUENCE_SPACE
        if ahead >= SEQUENCE_SPACE // 2:
            return Loud(
                "duplicated",
                f"the target's log ends at {seen.target_end}, but the broker last saw sequence {last_sequence} "
                f"of a flow that began at {identity.base}",
            )
        if ahead:
            return LookAgain(f"{ahead} records behind offset {seen.target_end} are not replicated yet")
    young = seen.producer is not None and seen.producer[2] + seen.expiration - seen.now > MARGIN_MS
    if not young and seen.target_end > identity.base and not seen.settled:
        return LookAgain("the broker may have forgotten our sequence numbers; waiting until nothing is under way")
    position = remembered.map.source_position(seen.target_end)
    lost = _source_range(position, seen)
    if lost is not None:
        return lost
    return Resume(
        identity=identity,
        position=position,
        target_end=seen.target_end,
        depth=PIPELINE if young else 1,
        depth_confirmed=PIPELINE if young or seen.target_end == identity.base else 1,
    )


def _first_time(seen: Seen, producer_id: int, start: str) -> Resume | Loud:
    if seen.target_end != seen.target_start:
        return Loud(
            "target_foreign_write",
            f"the target partition already holds offsets {seen.target_start} to {seen.target_end - 1}, "
            "and the ledger knows nothing of them",
        )
    return Resume(
        identity=Identity(producer_id, 0, seen.target_end),
        position=seen.source_start if start == "earliest" else seen.source_end,
        target_end=seen.target_end,
        depth=1,
        depth_confirmed=PIPELINE,
    )


def _other_topics(remembered: Remembered, seen: Seen) -> Loud | None:
    if seen.target_id != remembered.target_id:
        return Loud("target_gone", f"the target topic has id {seen.target_id}, the ledger {remembered.target_id}")
    if seen.source_id != remembered.source_id:
        return Loud("source_recreated", f"the source topic has id {seen.source_id}, the ledger {remembered.source_id}")
    return None


def _foreign_tail(identity: Identity, seen: Seen) -> Loud | None:
    """The last stored batch must be ours and stand where its sequence number says."""
    tail = seen.tail
    if tail is None:
        return None
    if (tail.producer_id, tail.producer_epoch) != (identity.producer_id, identity.epoch):
        return Loud(
            "target_foreign_write",
            f"the batch at target offsets {tail.base} to {tail.end - 1} is by producer {tail.producer_id} "
            f"epoch {tail.producer_epoch}, this flow writes as {identity.producer_id} epoch {identity.epoch}",
        )
    if tail.base_sequence != identity.sequence(tail.base):
        return Loud(
            "duplicated",
            f"the batch at target offsets {tail.base} to {tail.end - 1} carries sequence {tail.base_sequence}, "
            f"{identity.sequence(tail.base)} belongs there",
        )
    return None


def _source_range(position: int, seen: Seen) -> Loud | LookAgain | None:
    if position < seen.source_start:
        return Loud(
            "source_expired",
            f"source offsets {position} to {seen.source_start - 1} are gone: the log now starts at {seen.source_start}",
        )
    if position > seen.source_end and not seen.source_settled:
        return LookAgain(f"the source's log ends at {seen.source_end}, below {position}: it may still be recovering")
    if position > seen.source_end:
        return Loud(
            "source_truncated",
            f"the source is copied through {position}, but its log ends at {seen.source_end}",
        )
    return None
