"""The ledger: the runs of every partition, announced before they are used.

Key   `<flow>|<topic>|<partition>|<generation>.<worker>|<number>`
Value some runs with what is needed to trust them: identity, topic ids, where this generation began.

A *generation* is one inspection of the logs (a takeover, or the same worker looking again). It begins at the target's
log end of that moment and holds for all records behind it, so what an older generation announced beyond that
point never happened. Records of one generation never overwrite another's: a worker that was believed dead
cannot spoil the map. Runs go to the log before the batches that they describe; a run that was announced and not
used is harmless.

No key is ever used twice: whoever writes anew (`replicator.ledger.ledger_writer`, `replicator.ledger.consolidation`)
deletes what it repeats, and never what a slow worker wrote since (decision 0023).
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from watershed.clusters.control_records import ControlRecord, StoredControlRecord, read_stored_records
from watershed.clusters.control_topics import LEDGER_TOPIC
from watershed.clusters.control_values import UNREADABLE_ERRORS, log_invalid_record
from watershed.clusters.errors import ProtocolError, TopicMissing
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.errors import NoLedger
from watershed.replicator.ledger.column_rows import ColumnRows
from watershed.replicator.ledger.foreign_part import (
    FOREIGN_RECORD_KIND,
    ForeignPart,
    ForeignPartKey,
    JoinedOffsetMap,
    decode_foreign_parts,
)
from watershed.replicator.ledger.generation_merge import GenerationRuns, drop_continuing_runs, merge_generations
from watershed.replicator.ledger.leader_epochs import LeaderEpochEntry
from watershed.replicator.ledger.ledger_block import Generation, LedgerBlock
from watershed.replicator.ledger.ledger_state import LedgerState
from watershed.replicator.ledger.offset_map import BrokenOffsetMap, OffsetMap, OffsetRun, build_offset_map
from watershed.replicator.ledger.record_format import FlowPartition, build_unreadable_error, parse_ledger_key
from watershed.replicator.ledger.transaction_positions import (
    TRANSACTION_RECORD_KINDS,
    PositionAndRuns,
    decode_positions,
)
from watershed.replicator.partition_key import PartitionKey, ProducerIdentity
from watershed.replicator.partition_states import Halt

LEDGER_READ_TIMEOUT_S = (
    45.0  # above the 30 s that a transaction may be open, and the 10 s until its coordinator looks again
)


class DecisionBasis(NamedTuple):
    """The newest generation, the newest order that was obeyed (empty: none), and the topic that is written."""

    generation: int
    order: str
    target_id: uuid.UUID


@dataclass(frozen=True, slots=True)
class Ledger:
    """What the ledger says, by partition. `records`: the keys of the ledger records that it comes from, with the
    producer epoch that each is about."""

    partitions: dict[PartitionKey, tuple[LedgerState, int]]  # and the newest generation's number
    positions: dict[PartitionKey, PositionAndRuns] = field(
        default_factory=dict
    )  # those that are copied in transactions
    records: dict[PartitionKey, dict[str, int]] = field(default_factory=dict)
    invalid: dict[FlowPartition, ProtocolError] = field(default_factory=dict)  # partitions that are left out, and why

    def update(self, other: Ledger) -> None:
        """Take in what another part of the ledger says, of other partitions."""
        self.partitions.update(other.partitions)
        self.positions.update(other.positions)
        self.records.update(other.records)
        self.invalid.update(other.invalid)

    def require_valid(self) -> Ledger:
        """The same ledger. Raises ProtocolError where a partition is left out because a record cannot be read."""
        for error in self.invalid.values():
            raise error
        return self

    def halted(self, key: PartitionKey) -> Halt | None:
        """The state of a partition of which a record cannot be read: as if it had none, it would be copied twice."""
        error = self.invalid.get(FlowPartition(key.flow, key.topic, key.partition))
        return None if error is None else Halt("ledger_invalid", str(error))

    def remembered(self, key: PartitionKey) -> tuple[LedgerState | None, int]:
        """What is known of a partition, and the number of the newest generation (0: none)."""
        return self.partitions.get(key, (None, 0))

    def map(self, flow: str, topic: str, partition: int) -> OffsetMap:
        """The offset map of a partition; `topic` is its name on the source or on the target. Raises NoLedger."""
        for key, (offsets, _) in self.copies().items():
            if key.flow == flow and topic in (key.topic, key.target_topic) and key.partition == partition:
                return offsets
        raise NoLedger(flow, topic, partition)

    def standing(self) -> dict[PartitionKey, DecisionBasis]:
        """Every partition as orders have to name it, however it is copied."""
        by_sequence = {
            key: DecisionBasis(generation, known.order, known.target_id)
            for key, (known, generation) in self.partitions.items()
        }
        return by_sequence | {
            key: DecisionBasis(known.position.generation, known.position.order, known.position.target_id)
            for key, known in self.positions.items()
        }

    def copies(self) -> dict[PartitionKey, tuple[OffsetMap, tuple[uuid.UUID, uuid.UUID]]]:
        """Every partition's map and topic ids (source, target), however it is copied."""
        return {key: (known.map, (known.source_id, known.target_id)) for key, (known, _) in self.partitions.items()}


def read_ledger(
    settings: ConnectionSettings,
    flow: str | None = None,
    slots: Iterable[int] | None = None,
    *,
    tolerant: bool = False,
) -> Ledger:
    """Read the ledger of a target cluster, whole or some slots or one flow. An absent ledger is an empty one.

    Raises ProtocolError where a record cannot be read; tolerant: its partition stands in `invalid` then, for callers
    who stop at it (`Ledger.halted`) and go on with all others.
    """
    ledger = build_tolerant_ledger(read_newest_records(settings, flow, slots))
    return ledger if tolerant else ledger.require_valid()


def build_ledger(newest: Iterable[ControlRecord]) -> Ledger:
    """What the newest record of every key says. Raises ProtocolError for an unreadable one."""
    return build_tolerant_ledger(newest).require_valid()


def build_tolerant_ledger(newest: Iterable[ControlRecord]) -> Ledger:
    """What the newest record of every key says, without the partitions of which one cannot be read."""
    by_place: dict[FlowPartition, list[ControlRecord]] = defaultdict(list)
    for record in newest:
        place = parse_ledger_key(record.key)
        if place is not None:
            by_place[place].append(record)
    whole = Ledger({})
    for place, records in by_place.items():
        whole.update(build_partition_ledger(place, records))
    return whole


def build_partition_ledger(place: FlowPartition, newest: list[ControlRecord]) -> Ledger:
    """What the newest records of one partition's keys say; it stands in `invalid` where one of them cannot be read."""
    try:
        return _build_partition_ledger(place, newest)
    except ProtocolError as error:
        return Ledger({}, invalid={place: error})


def _build_partition_ledger(place: FlowPartition, newest: list[ControlRecord]) -> Ledger:
    """Raises ProtocolError."""
    for record in newest:
        if record.why:
            raise build_unreadable_error(record, record.why)
        value = record.value or {}
        if value.get("kind") is not None and (value.get("flow"), value.get("topic"), value.get("partition")) != place:
            raise build_unreadable_error(record, "it is about something else than its key")
    try:
        blocks = decode_blocks(newest)
        records: dict[PartitionKey, dict[str, int]] = defaultdict(dict)
        for block in blocks:
            records[block.key][block.record_key] = block.identity.epoch
        if any((key.flow, key.topic, key.partition) != place for key in records):
            raise ValueError("a block is about something else than its key")
        positions = decode_positions(select_transaction_records(newest))
        in_transactions = {key: (_remembered(known), known.position.generation) for key, known in positions.items()}
        foreign = decode_foreign_parts(
            record for record in newest if (record.value or {}).get("kind") == FOREIGN_RECORD_KIND
        )
        return Ledger(assemble_partitions(blocks, foreign) | in_transactions, positions, records)
    except ProtocolError:
        raise
    except UNREADABLE_ERRORS as error:
        at = newest[-1]
        raise build_unreadable_error(
            at, f"what is under the keys of this partition does not fit together: {error!r}"
        ) from None


def _remembered(known: PositionAndRuns) -> LedgerState:
    """A partition that is copied in transactions writes as nobody in particular: producer ids come and go there."""
    at = known.position
    epochs = (LeaderEpochEntry(at.position - 1, at.leader_epoch),) if at.leader_epoch >= 0 else ()
    nobody = ProducerIdentity(-1, -1, at.begin.target)
    return LedgerState(known.map, nobody, at.source_id, at.target_id, epochs, order=at.order, note=at.note)


def decode_blocks(newest: list[ControlRecord]) -> list[LedgerBlock]:
    """Blocks of runs among these records, without transaction positions and parts of other tools."""
    others = TRANSACTION_RECORD_KINDS | {FOREIGN_RECORD_KIND}
    return [LedgerBlock.from_record(record) for record in newest if (record.value or {}).get("kind") not in others]


def select_transaction_records(newest: list[ControlRecord]) -> list[ControlRecord]:
    """The records that flows with transactional delivery wrote."""
    return [record for record in newest if (record.value or {}).get("kind") in TRANSACTION_RECORD_KINDS]


def read_newest_records(
    settings: ConnectionSettings, flow: str | None = None, slots: Iterable[int] | None = None
) -> Iterator[ControlRecord]:
    """The ledger's records as compaction would leave them. Whole: a run that was acknowledged counts, even while some
    transaction is open below it; such a one ends by itself after its producer's timeout at the latest."""
    newest: dict[bytes, StoredControlRecord] = {}
    begins = b"" if flow is None else f"{flow}|".encode()  # the value may be anybody's
    try:
        for record in read_stored_records(settings, LEDGER_TOPIC, slots, timeout=LEDGER_READ_TIMEOUT_S, whole=True):
            if record.key.startswith(begins):
                newest[record.key] = record
    except TopicMissing:
        return
    for record in newest.values():
        decoded = record.decode()
        if decoded.why:
            log_invalid_record(decoded.invalid(settings.alias, LEDGER_TOPIC))
        if decoded.value is not None or decoded.why:
            yield decoded


def assemble_partitions(
    blocks: Iterable[LedgerBlock], foreign: Mapping[ForeignPartKey, ForeignPart] | None = None
) -> dict[PartitionKey, tuple[LedgerState, int]]:
    """Blocks in any order → what they say together, by partition. foreign: what others copied, by the id of the order
    to adopt it."""
    by_partition: dict[PartitionKey, list[LedgerBlock]] = defaultdict(list)
    for block in blocks:
        by_partition[block.key].append(block)
    return {key: _build_partition_state(found, foreign or {}) for key, found in by_partition.items()}


def _build_partition_state(
    blocks: list[LedgerBlock], foreign: Mapping[ForeignPartKey, ForeignPart]
) -> tuple[LedgerState, int]:
    """What all blocks say together. `since` leaves out those of a copy that was given up."""
    newest = max(blocks, key=lambda block: (block.identity.epoch, block.generation, block.number))
    landed, after = _landed(blocks, newest)
    older = [block for block in blocks if block.identity.epoch < newest.identity.epoch]
    own = build_offset_map(
        drop_continuing_runs(_lay_generations([block for block in landed if block.identity.epoch >= newest.since]))
    )
    remembered = LedgerState(
        own
        if not newest.adopted
        else _join_foreign_part(foreign.get(ForeignPartKey(newest.key, newest.adopted)), own, newest.adopted),
        newest.identity,
        newest.source_id,
        newest.target_id,
        # of the newest producer epoch only: the order that began it may have left source offsets out
        epochs=tuple(
            sorted({entry for block in blocks if block.identity == newest.identity for entry in block.epochs})
        ),
        since=newest.since,
        order=newest.order,
        note=newest.note,
        needs_epoch=any(block.needs_epoch for block in _lasts(blocks, newest.identity)),
        closed=all(block.closed for block in _lasts(blocks, newest.identity)),
        last_epoch=newest.identity.epoch,
        after=after,
        without_newest=(lambda: _build_partition_state(older, foreign)[0]) if older and newest.after >= 0 else None,
        adopted=newest.adopted,
        filling=newest.filling,
        given_up=newest.given_up,
        stood_at=max(block.start for block in blocks if block.identity == newest.identity),
    )
    # Not the newest producer epoch's: a record written anew may carry an older one (`replicator.ledger.consolidation`).
    return remembered, max(block.generation.number for block in blocks)


def _join_foreign_part(foreign: ForeignPart | None, own: OffsetMap, order: str) -> OffsetMap:
    """Our runs behind what another tool copied."""
    if foreign is not None:
        return JoinedOffsetMap.over(foreign, own)
    return BrokenOffsetMap(own.runs, f"{LEDGER_TOPIC} lacks the part that order {order} adopted")


def _landed(blocks: list[LedgerBlock], newest: LedgerBlock) -> tuple[list[LedgerBlock], int]:
    """Without the producer epochs that were begun and never landed anything, as those that came after them tell; and
    the producer epoch that the newest follows (-1: not said)."""
    follows = {block.identity.epoch: block.after for block in blocks if 0 <= block.after < block.identity.epoch}
    epochs = {newest.identity.epoch}
    at = newest.identity.epoch
    while at in follows:
        at = follows[at]
        epochs.add(at)
    counting = [block for block in blocks if block.identity.epoch in epochs or block.identity.epoch < at]
    return counting, follows.get(newest.identity.epoch, -1)


def _lasts(blocks: list[LedgerBlock], identity: ProducerIdentity) -> list[LedgerBlock]:
    """The newest block of each generation that wrote under this producer epoch: what it says of itself now."""
    lasts: dict[Generation, LedgerBlock] = {}
    for block in blocks:
        if block.identity == identity and block.number >= lasts.get(block.generation, block).number:
            lasts[block.generation] = block
    return list(lasts.values())


def _lay_generations(blocks: list[LedgerBlock]) -> ColumnRows[OffsetRun]:
    """Lay the generations over each other, oldest first.

    A generation is valid from its first run to its last. Behind its last run the older generation is still valid: its
    worker may have been slow, not dead, and may have written batches later. In that case our next batch was refused
    with OUT_OF_ORDER_SEQUENCE_NUMBER, and we inspected again. Runs are a function of the source's log, so where both
    announced something they agree: behind a compaction hole nobody writes under a shared producer epoch.

    A producer epoch begins with an order, or to be alone with holes (`replicator.recovery.producer_epochs`), at its
    identity's base: what older ones announced behind that never counts, because their batches are fenced.
    """
    by_generation: dict[tuple[int, int, Generation], list[LedgerBlock]] = defaultdict(list)
    for block in sorted(blocks, key=lambda block: block.number):
        if block.runs:
            by_generation[block.identity.epoch, block.start, block.generation].append(block)
    layers: list[GenerationRuns] = []
    at = min((epoch for epoch, _, _ in by_generation), default=0)
    for (epoch, _, _), own in sorted(by_generation.items(), key=_generation_order):
        # Two threads may have announced side by side, so the runs of a record need not be in order.
        pieces = [
            ColumnRows.of(OffsetRun, each.runs if isinstance(each.runs, ColumnRows) else sorted(each.runs))
            for each in own
        ]
        layers.append(GenerationRuns(pieces, own[0].identity.base if epoch > at else None))
        at = max(at, epoch)
    return merge_generations(layers)


def _generation_order(item: tuple[tuple[int, int, Generation], list[LedgerBlock]]) -> tuple[int, int, int, int, str]:
    """Oldest first. Of two that began at once, the one whose claim came first in the ledger counts, so it is last."""
    (epoch, start, generation), own = item
    return epoch, start, generation.number, -own[0].at, generation.worker
