"""The ledger: the runs of every partition, announced before they are used.

Key   `<flow>|<topic>|<partition>|<generation>.<worker>|<block>`
Value one block of runs with what is needed to trust them: identity, topic ids, where this generation began.

A *generation* is one look at the logs (a takeover, or the same worker looking again). It begins at the target's
log end of that moment and holds for all records behind it, so what an older generation announced beyond that
point never happened. Records of one generation never overwrite another's: a worker that was believed dead
cannot spoil the map. Runs go to the log before the batches that they describe; a run that was announced and not
used is harmless.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, NamedTuple

from clusters.control import LEDGER, ControlRecord, ControlWriter, read_log, slot_of
from clusters.errors import ClusterError, ProtocolError, TopicMissing
from clusters.settings import ConnectionSettings
from replicator.epochs import Epoch
from replicator.errors import NoLedger
from replicator.offsetmap import OffsetMap, Run, checked
from replicator.partition import Identity, PartitionKey
from replicator.resume import Remembered
from replicator.transactions.positions import KINDS, Known, known_in

SCHEMA = 1
BLOCK_RUNS = 256
READ_S = 45.0  # above the 30 s that a transaction may be open, and the 10 s until its coordinator looks again


class Generation(NamedTuple):
    """Order of takeovers; two workers that took over at once differ by their names."""

    number: int
    worker: str


@dataclass(frozen=True, slots=True)
class Block:
    """One ledger record: up to BLOCK_RUNS runs of one generation of one partition.

    epochs, since, order, note: see `replicator.resume.Remembered`. needs_epoch: whoever looks next must not write under
    this producer epoch. closed: this generation sends nothing more, and everything it sent was answered. after: of a
    producer epoch that was begun to be alone, the newest one that had landed something; those between never count.
    """

    key: PartitionKey
    generation: Generation
    number: int
    start: int  # the target's log end when this generation began
    identity: Identity
    source_id: uuid.UUID
    target_id: uuid.UUID
    runs: tuple[Run, ...]
    at: int = -1  # its offset in the ledger, when it was read from there
    epochs: tuple[Epoch, ...] = ()
    since: int = 0
    order: str = ""
    note: str = ""
    needs_epoch: bool = False
    closed: bool = False
    after: int = -1

    @property
    def record_key(self) -> str:
        generation = f"{self.generation.number}.{self.generation.worker}"
        return f"{self.key.flow}|{self.key.topic}|{self.key.partition}|{generation}|{self.number}"

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "flow": self.key.flow,
            "topic": self.key.topic,
            "target_topic": self.key.target_topic,
            "partition": self.key.partition,
            "generation": self.generation.number,
            "worker": self.generation.worker,
            "block": self.number,
            "start": self.start,
            "producer_id": self.identity.producer_id,
            "epoch": self.identity.epoch,
            "base": self.identity.base,
            "source_id": str(self.source_id),
            "target_id": str(self.target_id),
            "runs": [list(run) for run in self.runs],
            "epochs": [list(epoch) for epoch in self.epochs],
            "since": self.since,
            "order": self.order,
            "note": self.note,
            "needs_epoch": self.needs_epoch,
            "closed": self.closed,
            "after": self.after,
        }

    @staticmethod
    def from_record(record: ControlRecord) -> Block:
        """Raises ProtocolError for a record that is not a block of this schema."""
        value = record.value or {}
        try:
            if value["schema"] != SCHEMA:
                raise ValueError(f"schema {value['schema']}")
            return Block(
                key=PartitionKey(value["flow"], value["topic"], value["target_topic"], value["partition"]),
                generation=Generation(value["generation"], value["worker"]),
                number=value["block"],
                start=value["start"],
                identity=Identity(value["producer_id"], value["epoch"], value["base"]),
                source_id=uuid.UUID(value["source_id"]),
                target_id=uuid.UUID(value["target_id"]),
                runs=tuple(Run(target, source) for target, source in value["runs"]),
                at=record.offset,
                epochs=tuple(Epoch(source, epoch) for source, epoch in value.get("epochs", ())),
                since=value.get("since", 0),
                order=value.get("order", ""),
                note=value.get("note", ""),
                needs_epoch=value.get("needs_epoch", False),
                closed=value.get("closed", False),
                after=value.get("after", -1),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(
                f"{LEDGER} holds a record at partition {record.partition} offset {record.offset} "
                f"that this version cannot read ({error!r})",
                topic=LEDGER,
                partition=record.partition,
            ) from None


CLAIM = 0  # number of the block that holds the first run of what a partition begins with, and nothing else


class Standing(NamedTuple):
    """The newest generation, the newest order that was obeyed (empty: none), and the topic that is written."""

    generation: int
    order: str
    target_id: uuid.UUID


@dataclass(frozen=True, slots=True)
class Ledger:
    """What the ledger says, by partition. `records`: the keys of the ledger records that it comes from, with the
    producer epoch that each is about."""

    partitions: dict[PartitionKey, tuple[Remembered, int]]  # and the newest generation's number
    positions: dict[PartitionKey, Known] = field(default_factory=dict)  # those that are copied in transactions
    records: dict[PartitionKey, dict[str, int]] = field(default_factory=dict)

    def remembered(self, key: PartitionKey) -> tuple[Remembered | None, int]:
        """What is known of a partition, and the number of the newest generation (0: none)."""
        return self.partitions.get(key, (None, 0))

    def map(self, flow: str, topic: str, partition: int) -> OffsetMap:
        """The offset map of a partition; `topic` is its name on the source or on the target. Raises NoLedger."""
        for key, (offsets, _) in self.copies().items():
            if key.flow == flow and topic in (key.topic, key.target_topic) and key.partition == partition:
                return offsets
        raise NoLedger(flow, topic, partition)

    def standing(self) -> dict[PartitionKey, Standing]:
        """Every partition as orders have to name it, however it is copied."""
        by_sequence = {
            key: Standing(generation, known.order, known.target_id)
            for key, (known, generation) in self.partitions.items()
        }
        return by_sequence | {
            key: Standing(known.position.generation, known.position.order, known.position.target_id)
            for key, known in self.positions.items()
        }

    def copies(self) -> dict[PartitionKey, tuple[OffsetMap, tuple[uuid.UUID, uuid.UUID]]]:
        """Every partition's map and topic ids (source, target), however it is copied."""
        return {key: (known.map, (known.source_id, known.target_id)) for key, (known, _) in self.partitions.items()}


def read_ledger(settings: ConnectionSettings, flow: str | None = None, slots: Iterable[int] | None = None) -> Ledger:
    """Read the ledger of a target cluster, whole or some slots or one flow. An absent ledger is an empty one."""
    newest = _newest(settings, flow, slots)
    blocks = _blocks(newest)
    records: dict[PartitionKey, dict[str, int]] = defaultdict(dict)
    for block in blocks:
        records[block.key][block.record_key] = block.identity.epoch
    positions = known_in(_in_transactions(newest))
    in_transactions = {key: (_remembered(known), known.position.generation) for key, known in positions.items()}
    return Ledger(assembled(blocks) | in_transactions, positions, records)


def _remembered(known: Known) -> Remembered:
    """A partition that is copied in transactions writes as nobody in particular: producer ids come and go there."""
    at = known.position
    epochs = (Epoch(at.position - 1, at.leader_epoch),) if at.leader_epoch >= 0 else ()
    nobody = Identity(-1, -1, at.begin.target)
    return Remembered(known.map, nobody, at.source_id, at.target_id, epochs, order=at.order, note=at.note)


def read_blocks(
    settings: ConnectionSettings, flow: str | None = None, slots: Iterable[int] | None = None
) -> list[Block]:
    """The blocks of runs as compaction would leave them."""
    return _blocks(_newest(settings, flow, slots))


def _blocks(newest: list[ControlRecord]) -> list[Block]:
    return [Block.from_record(record) for record in newest if (record.value or {}).get("kind") not in KINDS]


def _in_transactions(newest: list[ControlRecord]) -> list[ControlRecord]:
    return [record for record in newest if (record.value or {}).get("kind") in KINDS]


def _newest(settings: ConnectionSettings, flow: str | None, slots: Iterable[int] | None) -> list[ControlRecord]:
    """The ledger's records as compaction would leave them. Whole: a run that was acknowledged counts, even while some
    transaction is open below it; such a one ends by itself after TRANSACTION_TIMEOUT_MS at the latest."""
    newest: dict[str, ControlRecord] = {}
    try:
        for record in read_log(settings, LEDGER, slots, timeout=READ_S, whole=True):
            if record.value is None:
                newest.pop(record.key, None)
            elif flow is None or record.value.get("flow") == flow:
                newest[record.key] = record
    except TopicMissing:
        return []
    return list(newest.values())


def assembled(blocks: Iterable[Block]) -> dict[PartitionKey, tuple[Remembered, int]]:
    """Blocks in any order → what they say together, by partition."""
    by_partition: dict[PartitionKey, list[Block]] = defaultdict(list)
    for block in blocks:
        by_partition[block.key].append(block)
    return {key: _one_partition(found) for key, found in by_partition.items()}


def _one_partition(blocks: list[Block]) -> tuple[Remembered, int]:
    """What all blocks say together. `since` leaves out those of a copy that was given up."""
    newest = max(blocks, key=lambda block: (block.identity.epoch, block.generation))
    landed, after = _landed(blocks, newest)
    older = [block for block in blocks if block.identity.epoch < newest.identity.epoch]
    remembered = Remembered(
        checked(_packed(_laid([block for block in landed if block.identity.epoch >= newest.since]))),
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
        without_newest=(lambda: _one_partition(older)[0]) if older and newest.after >= 0 else None,
    )
    # Not the newest producer epoch's: what is written anew may stand under an older one (`replicator.consolidation`).
    return remembered, max(block.generation.number for block in blocks)


def _landed(blocks: list[Block], newest: Block) -> tuple[list[Block], int]:
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


def _lasts(blocks: list[Block], identity: Identity) -> list[Block]:
    """The newest block of each generation that wrote under this producer epoch: what it says of itself now."""
    lasts: dict[Generation, Block] = {}
    for block in blocks:
        if block.identity == identity and block.number >= lasts.get(block.generation, block).number:
            lasts[block.generation] = block
    return list(lasts.values())


def _laid(blocks: list[Block]) -> list[Run]:
    """Lay the generations over each other, oldest first.

    A generation is right from its first run to the last that it announced. Behind that, what an older one announced
    still counts: its worker may have been slow rather than dead, and its batches may have landed after all (our next
    batch then got OUT_OF_ORDER and we looked again). Runs are a function of the source's log, so where both announced
    something they agree: behind a compaction hole nobody writes under a shared producer epoch.

    A producer epoch begins with an order, or to be alone with holes (`replicator.fencing`), at its identity's base:
    what older ones announced behind that never counts, because their batches are fenced.
    """
    by_generation: dict[tuple[int, int, Generation], list[Block]] = defaultdict(list)
    for block in sorted(blocks, key=lambda block: block.number):
        if block.runs:
            by_generation[block.identity.epoch, block.start, block.generation].append(block)
    kept: list[Run] = []
    at = min((epoch for epoch, _, _ in by_generation), default=0)
    for (epoch, _, _), own in sorted(by_generation.items(), key=_order):
        if epoch > at:
            at, kept = epoch, [run for run in kept if run.target < own[0].identity.base]
        runs = sorted(run for block in own for run in block.runs)  # two threads may have announced side by side
        first, last = runs[0].target, runs[-1]
        beyond = [run for run in kept if run > last]
        if beyond and beyond[0].source - last.source < beyond[0].target - last.target:
            beyond = []
        kept = [*(run for run in kept if run.target < first), *runs, *beyond]
    return kept


def _order(item: tuple[tuple[int, int, Generation], list[Block]]) -> tuple[int, int, int, int, str]:
    """Oldest first. Of two that began at once, the one whose claim came first in the ledger counts, so it is last."""
    (epoch, start, generation), own = item
    return epoch, start, generation.number, -own[0].at, generation.worker


def _packed(runs: list[Run]) -> tuple[Run, ...]:
    """Without the runs that only continue the one before (each takeover repeats where it stands)."""
    packed: list[Run] = []
    for run in runs:
        if packed and run.target - packed[-1].target == run.source - packed[-1].source:
            continue
        packed.append(run)
    return tuple(packed)


@dataclass(slots=True)
class PartitionLedger:
    """Writes the runs of one generation. One record is under way at a time; what comes meanwhile goes together.

    `later` runs a function soon, outside any acknowledgement: the Kafka client crashes when it is called from its
    own callback (confluent-kafka 2.16: CallState_get assertion).
    """

    writer: ControlWriter
    template: Block  # the first block to write, without runs
    on_durable: Callable[[list[Run]], None]
    on_failure: Callable[[ClusterError], None]
    later: Callable[[Callable[[], None]], None]
    epochs: Callable[[], tuple[Epoch, ...]] = tuple  # the source's leader epochs as far as they are known
    needs_epoch: Callable[[], bool] = bool
    _block: list[Run] = field(default_factory=list)
    _filled: int = 0  # blocks that take no more runs
    _waiting: list[Run] = field(default_factory=list)
    _under_way: bool = False
    _closing: bool = False
    _lock: Lock = field(default_factory=Lock)

    def append(self, runs: list[Run]) -> None:
        """Write `runs`; `on_durable` is called with them when the ledger's brokers hold them."""
        with self._lock:
            self._waiting.extend(runs)
            batch = self._next()
        if batch:
            self._write(*batch)

    def close(self) -> None:
        """Say that this generation sends nothing more and that all it sent was answered."""
        with self._lock:
            self.template = replace(self.template, closed=True)
            self._closing = True
            batch = self._next()
        if batch:
            self._write(*batch)

    def _next(self) -> tuple[Block, list[Run]] | None:
        if self._under_way or not (self._waiting or self._closing):
            return None
        if len(self._block) >= BLOCK_RUNS and self._waiting:
            self._filled += 1
            self._block = []
        room = BLOCK_RUNS - len(self._block)
        batch, self._waiting = self._waiting[:room], self._waiting[room:]
        self._block.extend(batch)
        self._under_way, self._closing = True, self._closing and bool(self._waiting)
        number = self.template.number + self._filled
        block = replace(
            self.template,
            number=number,
            runs=tuple(self._block),
            epochs=self.epochs(),
            needs_epoch=self.needs_epoch(),
        )
        return block, batch

    def _go_on(self) -> None:
        with self._lock:
            self._under_way = False
            following = self._next()
        if following:
            self._write(*following)

    def _write(self, block: Block, batch: list[Run]) -> None:
        def done(error: ClusterError | None, _offset: int) -> None:
            if error is not None:
                self.on_failure(error)
                return
            self.on_durable(batch)
            self.later(self._go_on)

        slot = slot_of(block.key.flow, block.key.topic, block.key.partition)
        try:
            self.writer.put_nowait(LEDGER, block.record_key, block.to_json(), slot, on_done=done)
        except ClusterError as error:
            self.on_failure(error)
