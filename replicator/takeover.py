"""Taking partitions over: look at the logs, judge, and write down where we go on. Runs beside the copying."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from clusters.control import LEDGER, ControlWriter, slot_of
from clusters.errors import ClusterError, TopicMissing, Unauthorised
from clusters.flows import FlowRecord
from clusters.names import FlowId
from clusters.settings import ConnectionSettings
from replicator.errors import ReplicatorError
from replicator.ledger import CLAIM, Block, Generation, read_blocks, read_ledger
from replicator.look import Led, Stillness, look
from replicator.offsetmap import Run
from replicator.partition import PartitionKey
from replicator.resume import Resume, resume
from replicator.states import LookAgain, Loud

Connect = Callable[[str], ConnectionSettings]


@dataclass(frozen=True, slots=True)
class Taken:
    """A partition that can go on: `block` is the empty ledger block of its new generation."""

    resume: Resume
    source: Led
    target: Led
    block: Block


def take_over(
    record: FlowRecord,
    keys: Mapping[PartitionKey, int],
    source: ConnectionSettings,
    target: ConnectionSettings,
    expiration_ms: int,
    stillness: Stillness,
    worker: str,
    writer: ControlWriter,
) -> dict[PartitionKey, Taken | Loud | LookAgain]:
    """Decide for partitions of one flow (with their slots) how they go on. Never raises ClusterError."""
    if record.producer_id is None:
        told = f"flow {FlowId(record.flow.id)} has no producer id; run `topology apply` again"
        return {key: LookAgain(told) for key in keys}
    slots = sorted(set(keys.values()))
    try:
        looked = look(keys, source, target, record.producer_id, expiration_ms, stillness)
        # Read after the look: whatever wrote the records that were seen had announced them before.
        ledger = read_ledger(target, flow=record.flow.id, slots=slots)
    except (ClusterError, ReplicatorError) as error:
        return {key: LookAgain(str(error)) for key in keys}
    known = {key: ledger.remembered(key) for key in keys}
    taken: dict[PartitionKey, Taken | Loud | LookAgain] = {}
    for key, found in looked.items():
        if isinstance(found, ClusterError):
            taken[key] = _trouble(found, source.alias)
            continue
        seen, at_source, at_target = found
        remembered, generation = known[key]
        try:
            decided = resume(remembered, seen, record.producer_id, record.start_of(key.topic, key.partition))
        except ReplicatorError as error:  # a map that contradicts the log concerns its partition only
            taken[key] = LookAgain(str(error), "duplicated")
            continue
        if not isinstance(decided, Resume):
            taken[key] = decided
            continue
        block = Block(
            key=key,
            generation=Generation(generation + 1, worker),
            number=CLAIM + 1,
            start=decided.target_end,
            identity=decided.identity,
            source_id=at_source.topic_id,
            target_id=at_target.topic_id,
            runs=(),
        )
        taken[key] = Taken(decided, at_source, at_target, block)
    first_time = [found for key, found in taken.items() if isinstance(found, Taken) and known[key][0] is None]
    if first_time:
        try:
            taken |= claimed(first_time, target, slots, writer)
        except (ClusterError, ReplicatorError) as error:
            return {key: LookAgain(str(error)) for key in keys}
    return taken


def claimed(
    candidates: list[Taken], target: ConnectionSettings, slots: list[int], writer: ControlWriter
) -> dict[PartitionKey, Taken | LookAgain]:
    """Agree on where a partition begins. Two workers may look for the first time at once and find other starts
    (`start: latest`, retention): both write a claim, the first one in the ledger counts, the other withdraws."""
    claims: dict[PartitionKey, Block] = {}
    for found in candidates:
        run = Run(found.resume.target_end, found.resume.position)
        claims[found.block.key] = replace(found.block, number=CLAIM, runs=(run,))
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
    for block in read_blocks(target, slots=slots):
        if block.key in claims and block.number == CLAIM and block.generation.number == 1:
            before = first_claim[block.key]
            if before.at < 0 or block.at < before.at:
                first_claim[block.key] = block
    decided: dict[PartitionKey, Taken | LookAgain] = {}
    for found in candidates:
        key = found.block.key
        first = first_claim[key]
        if first.generation == found.block.generation:
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
