"""Taking partitions over: look at the logs, judge, and write down where we go on. Runs beside the copying."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from clusters.claims import Claimed
from clusters.control import LEDGER, ControlWriter, slot_of
from clusters.errors import ClusterError, TopicMissing, Unauthorised
from clusters.flows import FlowRecord
from clusters.names import FlowId
from clusters.settings import ConnectionSettings
from replicator.aligned.resume import beginning, resume_aligned
from replicator.batch import Batch
from replicator.consolidation import consolidate
from replicator.epochs import Epoch
from replicator.errors import ReplicatorError
from replicator.fencing import as_landed, fenced, landed
from replicator.ledger import CLAIM, Block, Generation, Ledger, read_blocks, read_ledger
from replicator.look import Led, Stillness, diverging, look, without_leader
from replicator.offsetmap import Run
from replicator.orders import (
    BEHIND_OTHERS,
    Order,
    adopting,
    by_policy,
    journal_by_worker,
    journal_outcome,
    obeyed,
    settled_on,
)
from replicator.partition import PartitionKey
from replicator.resume import Remembered, Resume, Seen, resume
from replicator.states import LookAgain, Loud

Connect = Callable[[str], ConnectionSettings]
EPOCHS_KEPT = 32


@dataclass(frozen=True, slots=True)
class Taken:
    """A partition that can go on: `block` is the empty ledger block of its new generation."""

    resume: Resume
    source: Led
    target: Led
    block: Block
    aligned: bool = False

    @property
    def first(self) -> Run:
        """What the ledger has to hold before anything is written. Of an aligned partition both offsets are the same."""
        end = self.resume.target_end
        return Run(end, end if self.aligned else self.resume.position)


def take_over(
    record: FlowRecord,
    keys: Mapping[PartitionKey, int],
    source: ConnectionSettings,
    target: ConnectionSettings,
    expiration_ms: int,
    stillness: Stillness,
    worker: str,
    writer: ControlWriter,
    orders: Mapping[PartitionKey, Order] | None = None,
    aligned: Collection[PartitionKey] = (),
    guard: Callable[[Claimed], Callable[[Batch], bool]] = lambda _where: lambda _batch: False,
) -> dict[PartitionKey, Taken | Loud | LookAgain]:
    """Decide for partitions of one flow (with their slots) how they go on; `orders` are what persons decided about
    some of them, `aligned` are those whose records keep their offsets, `guard` is the flow's loop guard. Never
    raises ClusterError."""
    if record.producer_id is None:
        told = f"flow {FlowId(record.flow.id)} has no producer id; run `topology apply` again"
        return {key: LookAgain(told) for key in keys}
    try:
        absent = without_leader(target, LEDGER, keys.values())
    except ClusterError as error:
        return {key: LookAgain(str(error)) for key in keys}
    waiting: dict[PartitionKey, Taken | Loud | LookAgain] = {
        key: LookAgain(f"partition {slot} of {LEDGER} has no leader") for key, slot in keys.items() if slot in absent
    }
    keys = {key: slot for key, slot in keys.items() if slot not in absent}
    if not keys:
        return waiting
    slots = sorted(set(keys.values()))
    try:
        looked = look(keys, source, target, record.producer_id, expiration_ms, stillness, aligned, guard)
        # Read after the look: whatever wrote the records that were seen had announced them before.
        ledger = read_ledger(target, flow=record.flow.id, slots=slots, tolerant=True)
        parted = diverging(source, _copied(ledger, looked))
    except (ClusterError, ReplicatorError) as error:
        return waiting | {key: LookAgain(str(error)) for key in keys}
    known = {key: ledger.remembered(key) for key in keys}
    judge = _Judge(record, writer, orders or {}, worker, frozenset(aligned))
    taken: dict[PartitionKey, Taken | Loud | LookAgain] = {}
    for key, found in looked.items():
        if isinstance(found, ClusterError):
            taken[key] = _trouble(found, source.alias)
            continue
        if (halted := ledger.halted(key)) is not None:
            taken[key] = halted
            continue
        seen, at_source, at_target = found
        if record.flow.rejected == "quarantine":  # a record that was left out is the source's, and a gap at the target
            seen = replace(seen, missed=None)
        remembered, generation = known[key]
        if key not in aligned:  # there, gaps of the newer epoch may have shifted the older one's batch
            remembered = as_landed(remembered, seen)
        decided = judge.decided(key, remembered, generation, replace(seen, diverges_at=parted.get(key)))
        decided = fenced(decided, remembered, seen)
        if not isinstance(decided, Resume):
            taken[key] = decided
            continue
        try:
            known_landed = None if remembered is None else landed(remembered, seen)
            next_one = Generation(generation + 1, worker)
            by_tail = seen.tail is not None
            mine = consolidate(key, next_one, decided.target_end, known_landed, ledger, writer, told=by_tail)
        except ClusterError as error:
            taken[key] = LookAgain(str(error))
            continue
        block = Block(
            key=key,
            generation=mine,
            number=CLAIM + 1,
            start=decided.target_end,
            identity=decided.identity,
            source_id=at_source.topic_id,
            target_id=at_target.topic_id,
            runs=(),
            epochs=_epochs(remembered, decided, at_source),
            since=decided.since,
            order=decided.order,
            note=decided.note,
            needs_epoch=decided.alone,
            after=decided.after,
            adopted=decided.adopted,
            filling=decided.filling,
            given_up=decided.given_up,
        )
        taken[key] = Taken(decided, at_source, at_target, block, aligned=key in aligned)
    beginning = [found for found in taken.values() if isinstance(found, Taken) and found.resume.claims]
    try:
        if beginning:
            taken |= claimed(beginning, target, slots, writer)
    except (ClusterError, ReplicatorError) as error:
        return waiting | {key: LookAgain(str(error)) for key in keys}
    return waiting | taken


@dataclass(frozen=True, slots=True)
class _Judge:
    record: FlowRecord
    writer: ControlWriter
    orders: Mapping[PartitionKey, Order]
    worker: str = ""
    aligned: frozenset[PartitionKey] = frozenset()

    def decided(
        self, key: PartitionKey, remembered: Remembered | None, generation: int, seen: Seen
    ) -> Resume | Loud | LookAgain:
        """What the logs say, and what was ordered or is the flow's policy."""
        start = self.record.start_of(key.topic, key.partition)
        assert self.record.producer_id is not None
        try:
            if key in self.aligned:
                decided = resume_aligned(remembered, seen, self.record.producer_id)
            else:
                decided = resume(remembered, seen, self.record.producer_id, start)
        except ReplicatorError as error:  # a map that contradicts itself or the log concerns its partition only
            decided = LookAgain(str(error), "duplicated")
        order = self.orders.get(key)
        if order is not None and order.kind in BEHIND_OTHERS:
            if key not in self.aligned:  # the flow was mapped when the order was given
                decided = adopting(order, decided, remembered, generation, seen, self.record.producer_id)
            elif isinstance(decided, Loud):
                told = f"{order.kind} {order.id} of {order.actor} is refused: this topic has, or gets, equal offsets"
                decided = replace(decided, error=f"{decided.error}; {told}")
            order = None
        if order is not None and isinstance(decided, LookAgain) and decided.in_the_end == "duplicated":
            decided = Loud("duplicated", decided.reason)  # as the person saw it who gave the order
        if order is not None:
            before, decided = decided, self._obeyed(key, order, decided, remembered, generation, seen)
            outcome = settled_on(order, before)
            obeys = isinstance(decided, Resume) and decided.claims and decided.order == order.id
            if obeys and outcome != order:  # otherwise the journal has the exact range from who ordered it
                try:
                    journal_outcome(self.writer, outcome, self.record.topology, generation + 1, self.worker)
                except ClusterError as error:
                    return LookAgain(f"the outcome of an order could not be journaled: {error}")
        if not isinstance(decided, Loud) or decided.state != "source_expired" or self.record.flow.on_gap != "continue":
            return decided
        policy = by_policy(key, decided, generation, int(time.time() * 1000))
        decided = self._obeyed(key, policy, decided, remembered, generation, seen)
        if isinstance(decided, Resume):
            try:
                journal_by_worker(self.writer, policy, self.record.topology)
            except ClusterError as error:
                return LookAgain(f"the decision could not be journaled: {error}")
        return decided

    def _obeyed(
        self,
        key: PartitionKey,
        order: Order,
        found: Resume | Loud | LookAgain,
        remembered: Remembered | None,
        generation: int,
        seen: Seen,
    ) -> Resume | Loud | LookAgain:
        decided = obeyed(order, found, remembered, generation, seen, self.record.start_of(key.topic, key.partition))
        if key not in self.aligned or decided is found or not isinstance(decided, Resume):
            return decided
        if order.kind == "accept-gap":  # what was given up is a gap like others, as long as nothing is behind it
            return replace(decided, given_up=decided.position)
        return beginning(decided, seen)


def _copied(
    ledger: Ledger, looked: Mapping[PartitionKey, tuple[Seen, Led, Led] | ClusterError]
) -> dict[PartitionKey, tuple[Led, int, tuple[Epoch, ...]]]:
    """Source leader, position and copied leader epochs of the partitions whose topics are still those of the ledger."""
    found: dict[PartitionKey, tuple[Led, int, tuple[Epoch, ...]]] = {}
    for key, what in looked.items():
        remembered, _ = ledger.remembered(key)
        if isinstance(what, ClusterError) or remembered is None:
            continue
        seen, at_source, _ = what
        remembered = as_landed(remembered, seen) or remembered
        if (seen.source_id, seen.target_id) != (remembered.source_id, remembered.target_id):
            continue
        try:
            position = remembered.map.source_position(seen.target_end)
        except ReplicatorError:
            continue  # judged with everything else
        if position >= seen.source_start:
            found[key] = at_source, position, remembered.epochs
    return found


def _epochs(remembered: Remembered | None, decided: Resume, source: Led) -> tuple[Epoch, ...]:
    """The leader epochs that count from here on; the newest EPOCHS_KEPT are enough to find where a log parted."""
    if remembered is not None and decided.order == remembered.order:
        return tuple(entry for entry in remembered.epochs if entry.source <= decided.position)[-EPOCHS_KEPT:]
    at = {source.start: source.start_epoch, source.end: source.end_epoch}.get(decided.position, -1)
    return (Epoch(decided.position, at),) if at >= 0 else ()


def claimed(
    candidates: list[Taken], target: ConnectionSettings, slots: list[int], writer: ControlWriter
) -> dict[PartitionKey, Taken | LookAgain]:
    """Agree on where a partition begins. Two workers may look for the first time at once and find other starts
    (`start: latest`, retention); so do two that obey one order. Both write a claim, the first one in the ledger counts,
    the other withdraws."""
    claims: dict[PartitionKey, Block] = {}
    for found in candidates:
        claims[found.block.key] = replace(found.block, number=CLAIM, runs=(found.first,))
    failures: list[ClusterError] = []  # of these records: a flush would also raise those of other threads

    def done(error: ClusterError | None, _offset: int) -> None:
        if error is not None:
            failures.append(error)

    for key, claim in claims.items():
        slot = slot_of(key.flow, key.topic, key.partition)
        writer.put_nowait(LEDGER, claim.record_key, claim.to_json(), slot, on_done=done)
    writer.flush()
    if failures:
        raise failures[0]
    first_claim = dict(claims)
    later: set[PartitionKey] = set()  # the ledger has gone on since we read it: our claim comes too late
    for block in read_blocks(target, slots=slots):
        if block.key not in claims:
            continue
        claim, before = claims[block.key], first_claim[block.key]
        if (block.identity.epoch, block.generation.number) > (claim.identity.epoch, claim.generation.number):
            later.add(block.key)
        elif (block.number, block.identity.epoch) == (CLAIM, claim.identity.epoch) and not 0 <= before.at < block.at:
            first_claim[block.key] = block
    decided: dict[PartitionKey, Taken | LookAgain] = {}
    for found in candidates:
        key = found.block.key
        first = first_claim[key]
        if first.generation == found.block.generation and key not in later:
            decided[key] = found
        else:
            slot = slot_of(key.flow, key.topic, key.partition)
            writer.put_nowait(LEDGER, claims[key].record_key, None, slot, on_done=done)
            decided[key] = LookAgain(f"worker {first.generation.worker} was first to begin this partition")
    writer.flush()
    return decided


def _trouble(error: ClusterError, source_alias: str) -> Loud | LookAgain:
    if isinstance(error, TopicMissing):
        # A broker that has not heard of a new topic yet says the same.
        return LookAgain(str(error), "source_gone" if error.alias == source_alias else "target_gone")
    if isinstance(error, Unauthorised):
        return Loud("unauthorised", str(error))
    return LookAgain(str(error))
