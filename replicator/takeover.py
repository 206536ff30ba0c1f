"""Taking partitions over: look at the logs, judge, and write down where we go on. Runs beside the copying."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from clusters.errors import ClusterError, TopicMissing, Unauthorised
from clusters.flows import FlowRecord
from clusters.names import FlowId
from clusters.settings import ConnectionSettings
from replicator.ledger import Block, Generation, read_ledger
from replicator.look import Led, Stillness, look
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
) -> dict[PartitionKey, Taken | Loud | LookAgain]:
    """Decide for partitions of one flow (with their slots) how they go on. Never raises ClusterError."""
    if record.producer_id is None:
        told = f"flow {FlowId(record.flow.id)} has no producer id; run `topology apply` again"
        return {key: LookAgain(told) for key in keys}
    try:
        ledger = read_ledger(target, flow=record.flow.id, slots=sorted(set(keys.values())))
        known = {key: ledger.remembered(key) for key in keys}
        writers = {
            key: remembered.identity.producer_id if remembered else record.producer_id
            for key, (remembered, _) in known.items()
        }
        looked = look(keys, source, target, writers, expiration_ms, stillness)
    except ClusterError as error:
        return {key: LookAgain(str(error)) for key in keys}
    taken: dict[PartitionKey, Taken | Loud | LookAgain] = {}
    for key, found in looked.items():
        if isinstance(found, ClusterError):
            taken[key] = _trouble(found, source.alias)
            continue
        seen, at_source, at_target = found
        remembered, generation = known[key]
        decided = resume(remembered, seen, record.producer_id, record.flow.start)
        if not isinstance(decided, Resume):
            taken[key] = decided
            continue
        block = Block(
            key=key,
            generation=Generation(generation + 1, worker),
            number=0,
            start=decided.target_end,
            identity=decided.identity,
            source_id=at_source.topic_id,
            target_id=at_target.topic_id,
            runs=(),
        )
        taken[key] = Taken(decided, at_source, at_target, block)
    return taken


def _trouble(error: ClusterError, source_alias: str) -> Loud | LookAgain:
    if isinstance(error, TopicMissing):
        return Loud("source_gone" if error.alias == source_alias else "target_gone", str(error))
    if isinstance(error, Unauthorised):
        return Loud("unauthorised", str(error))
    return LookAgain(str(error))
