"""What the ledger holds of a partition that is copied in transactions.

Key   `<flow>|<topic>|<partition>|position`      the position, and the last block of stretches as far as it is filled
Key   `<flow>|<topic>|<partition>|stretches|<n>` block n, full, written once in the transaction that filled it

Both go to the ledger in the very transaction that holds the records they speak of, so there is nothing to announce
and nothing to reconcile. A block is deleted (tombstone) in a later transaction when the target has deleted all of its
records: what remains grows with what the target retains, not with what was ever copied.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from clusters.control import LEDGER, ControlRecord
from clusters.errors import ProtocolError
from clusters.records import Value
from replicator.errors import ReplicatorError
from replicator.offsetmap import BrokenMap, OffsetMap, Run, Stretch
from replicator.partition import PartitionKey
from replicator.transactions.stretches import StretchMap, coalesced

SCHEMA: Final = 1
# The last block is written again with every transaction: 32 stretches on average, some 10 bytes each.
BLOCK_STRETCHES: Final = 64
POSITION, STRETCHES, PATH = "position", "stretches", "path"
KINDS: Final = frozenset({POSITION, STRETCHES, PATH})

Entry = tuple[str, Value | None]  # key and value of a ledger record; None is a tombstone


@dataclass(frozen=True, slots=True)
class Position:
    """A partition as of one transaction. begin: where its copy began; position: the next source offset; leader_epoch:
    of the source batch before it (-1: unknown); block: number of the block that `stretches` is the beginning of.
    generation: grows with every order that was obeyed; order, note: the newest of them (replicator.orders); since: the
    first block that counts, what older ones describe was given up by an order to reseed."""

    key: PartitionKey
    source_id: uuid.UUID
    target_id: uuid.UUID
    begin: Run
    position: int
    leader_epoch: int = -1
    block: int = 0
    stretches: tuple[Stretch, ...] = ()
    generation: int = 1
    order: str = ""
    note: str = ""
    since: int = 0

    @property
    def target_end(self) -> int:
        """Behind our last record. The last block is empty only while nothing is copied."""
        return self.stretches[-1].target + self.stretches[-1].records if self.stretches else self.begin.target

    def to_json(self) -> Value:
        return _about(self.key, POSITION) | {
            "target_topic": self.key.target_topic,
            "source_id": str(self.source_id),
            "target_id": str(self.target_id),
            "begin": list(self.begin),
            "position": self.position,
            "leader_epoch": self.leader_epoch,
            "block": self.block,
            "stretches": packed(self.stretches),
            "generation": self.generation,
            "order": self.order,
            "note": self.note,
            "since": self.since,
        }


@dataclass(frozen=True, slots=True)
class Known:
    """All that the ledger says of a partition: its position, and its full blocks by number.

    stale: numbers of blocks that do not count any more and may be deleted.
    """

    position: Position
    blocks: Mapping[int, tuple[Stretch, ...]] = field(default_factory=dict)
    stale: tuple[int, ...] = ()

    @property
    def map(self) -> OffsetMap:
        """Broken when what was written down contradicts itself."""
        full = [stretch for number in sorted(self.blocks) for stretch in self.blocks[number]]
        here = self.position
        try:
            return StretchMap.over(coalesced([*full, *here.stretches]), here.begin, here.position)
        except ReplicatorError as error:
            return BrokenMap((here.begin,), str(error))


class Track:
    """A partition's position while it is copied: `advance` before a commit, then `committed` or `rolled_back`."""

    def __init__(self, known: Known) -> None:
        self.position = known.position
        self._blocks = deque(
            (number, block[-1].target + block[-1].records) for number, block in sorted(known.blocks.items())
        )
        self._stale = known.stale
        self._next: tuple[Position, list[tuple[int, int]], int] | None = None

    def advance(self, landed: Iterable[Stretch], position: int, leader_epoch: int, log_start: int = -1) -> list[Entry]:
        """The ledger records of a transaction in which `landed` was written and the source is copied through
        `position`. log_start: the target's, if it is known."""
        here = self.position
        stretches, number = coalesced([*here.stretches, *landed]), here.block
        entries: list[Entry] = [(f"{_prefix(here.key)}|{STRETCHES}|{stale}", None) for stale in self._stale]
        filled: list[tuple[int, int]] = []
        while len(stretches) > BLOCK_STRETCHES:
            block, stretches = stretches[:BLOCK_STRETCHES], stretches[BLOCK_STRETCHES:]
            value = _about(here.key, STRETCHES) | {"block": number, STRETCHES: packed(block)}
            entries.append((f"{_prefix(here.key)}|{STRETCHES}|{number}", value))
            filled.append((number, block[-1].target + block[-1].records))
            number += 1
        gone = 0
        while gone < len(self._blocks) and self._blocks[gone][1] <= log_start:
            entries.append((f"{_prefix(here.key)}|{STRETCHES}|{self._blocks[gone][0]}", None))
            gone += 1
        after = replace(here, position=position, leader_epoch=leader_epoch, block=number, stretches=tuple(stretches))
        entries.append((f"{_prefix(here.key)}|{POSITION}", after.to_json()))
        self._next = after, filled, gone
        return entries

    def committed(self) -> None:
        if self._next is not None:
            self.position, filled, gone = self._next
            for _ in range(gone):
                self._blocks.popleft()
            self._blocks.extend(filled)
            self._next, self._stale = None, ()

    def rolled_back(self) -> None:
        self._next = None


def known_in(records: Iterable[ControlRecord]) -> dict[PartitionKey, Known]:
    """The newest record of every key → what is known, by partition. Raises ProtocolError for an unreadable record."""
    positions: dict[tuple[str, str, int], Position] = {}
    blocks: dict[tuple[str, str, int], dict[int, tuple[Stretch, ...]]] = {}
    for record in records:
        value = record.value or {}
        try:
            if value["schema"] != SCHEMA:
                raise ValueError(f"schema {value['schema']}")
            if value["kind"] == PATH:
                continue
            where = (value["flow"], value["topic"], value["partition"])
            if value["kind"] == STRETCHES:
                blocks.setdefault(where, {})[value["block"]] = unpacked(value[STRETCHES])
            elif value["kind"] == POSITION:
                positions[where] = _position(value)
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(
                f"{LEDGER} holds a record at partition {record.partition} offset {record.offset} "
                f"that this version cannot read ({error!r})",
                topic=LEDGER,
                partition=record.partition,
            ) from None
    return {position.key: _known(position, blocks.get(where, {})) for where, position in positions.items()}


def _known(position: Position, blocks: dict[int, tuple[Stretch, ...]]) -> Known:
    counting = range(position.since, position.block)
    return Known(
        position,
        {number: block for number, block in blocks.items() if number in counting},
        tuple(sorted(number for number in blocks if number < position.since)),
    )


def path_entry(flow: str, slot: int, path: tuple[str, ...]) -> Entry:
    """The ledger record that says: this slot of a flow writes what came this way."""
    value = {"schema": SCHEMA, "kind": PATH, "flow": flow, "slot": slot, "path": list(path)}
    return f"{flow}|{slot}|{PATH}|{'>'.join(path)}", value


def packed(stretches: Iterable[Stretch]) -> list[list[int]]:
    """[gap on the target, gap on the source, records] by stretch: small numbers, counted from the end of the last."""
    rows: list[list[int]] = []
    target_end = source_end = 0
    for target, source, records in stretches:
        rows.append([target - target_end, source - source_end, records])
        target_end, source_end = target + records, source + records
    return rows


def unpacked(rows: Iterable[list[int]]) -> tuple[Stretch, ...]:
    """The inverse of `packed`."""
    stretches: list[Stretch] = []
    target = source = 0
    for target_gap, source_gap, records in rows:
        stretches.append(Stretch(target + target_gap, source + source_gap, records))
        target, source = target + target_gap + records, source + source_gap + records
    return tuple(stretches)


def _position(value: dict[str, Any]) -> Position:
    return Position(
        key=PartitionKey(value["flow"], value["topic"], value["target_topic"], value["partition"]),
        source_id=uuid.UUID(value["source_id"]),
        target_id=uuid.UUID(value["target_id"]),
        begin=Run(*value["begin"]),
        position=value["position"],
        leader_epoch=value["leader_epoch"],
        block=value["block"],
        stretches=unpacked(value[STRETCHES]),
        generation=value["generation"],
        order=value["order"],
        note=value["note"],
        since=value["since"],
    )


def _about(key: PartitionKey, kind: str) -> Value:
    return {"schema": SCHEMA, "kind": kind, "flow": key.flow, "topic": key.topic, "partition": key.partition}


def _prefix(key: PartitionKey) -> str:
    return f"{key.flow}|{key.topic}|{key.partition}"
