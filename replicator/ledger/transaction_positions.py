"""What the ledger holds of a partition that is copied in transactions.

Key   `<flow>|<topic>|<partition>|position`      the position, and the newest stretches
Key   `<flow>|<topic>|<partition>|stretches|<n>` block n of those before them; the last one grows

Both go to the ledger in the very transaction that holds the records they speak of, so there is nothing to announce
and nothing to reconcile. The position is written with every transaction and so has few stretches; when there are too
many of them, they go into the last block, which is written again (decision 0023). A block is deleted (tombstone) in a
later transaction when the target has deleted all of its records: what remains grows with what the target retains, not
with what was ever copied.

Key   `<flow>|<topic>|<partition>|repeated|<n>`      records that stand at the target once more, from offset n on
Key   `<flow>|<topic>|<partition>|takeover|<n>-<m>`  a takeover: source offsets from which a batch may be under way

A partition that is copied with repeats (`at_least_once, proven`) keeps its position in the same way, but no transaction
ties it to the records. It is written behind them, once their answers are there, so it may be older than the log. What
stands behind it is found by reading the log (`replicator.recovery.tail_comparison`). Each record says something true of
the log, so an older position that comes late makes the next takeover read more, and nothing wrong. Repeats and
takeovers have keys of their own, which such a position does not touch.

Key   `<flow>|<topic>|<partition>|stretches|<n>-<w>` block n, as the worker of takeover w wrote it
Key   `<flow>|<topic>|<partition>|position|<g>`      the position of generation g, from the second one on

No epoch keeps a worker that was frozen from writing there when it wakes up. So nobody grows the block of another one:
a takeover writes the last block again under a name of its own, and a position says whose blocks it counts. A block that
no position names any more stays for as many takeovers as a batch may be late. An order begins a position of its own,
which the position of an older generation does not overwrite.
"""

from __future__ import annotations

import uuid
from array import array
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from operator import add
from typing import Any, Final, NamedTuple

from watershed.clusters.control_record_codec import require_known_version
from watershed.clusters.control_records import ControlRecord
from watershed.clusters.control_topics import LEDGER_TOPIC
from watershed.clusters.control_values import ControlValue
from watershed.clusters.errors import ProtocolError
from watershed.replicator.errors import ReplicatorError
from watershed.replicator.ledger import column_packing
from watershed.replicator.ledger.column_rows import ColumnRows
from watershed.replicator.ledger.explicit_runs import (
    ExplicitRunMap,
    RepeatedRunMap,
    concatenate_explicit_runs,
    join_explicit_runs,
)
from watershed.replicator.ledger.offset_map import BrokenOffsetMap, ExplicitRun, OffsetMap, OffsetRun
from watershed.replicator.ledger.record_format import parse_topic_id
from watershed.replicator.partition_key import PartitionKey

_SCHEMA: Final = 2
RUNS_PER_BLOCK: Final = 2048
RUNS_IN_POSITION: Final = 64  # at most, of a position: it is written again with every transaction
_PLAIN_STRETCHES: Final = 8  # that stand readable in a record; more are packed
POSITION, STRETCHES, _PATH, _REPEATED, _TAKEOVER = "position", "stretches", "path", "repeated", "takeover"
TRANSACTION_RECORD_KINDS: Final = frozenset({POSITION, STRETCHES, _PATH, _REPEATED, _TAKEOVER})
TAKEOVERS_KEPT: Final = 16  # a batch that is under way for longer than so many takeovers halts its partition
_FIRST_GENERATION: Final = 1

LedgerEntry = tuple[str, ControlValue | None]  # key and value of a ledger record; None is a tombstone


class SourceSpan(NamedTuple):
    """Source offsets from `first` up to, not including, `end`; `first` = `end` is a place between two."""

    first: int
    end: int


class LogKnowledge(NamedTuple):
    """What is known of the target's log of a partition that is copied with repeats.

    known_end: everything below this target offset is ours, and stands in the ledger. settled: when this was written,
    nothing was under way any more.
    """

    known_end: int
    settled: bool = False


class BlockWriter(NamedTuple):
    """Who wrote the blocks from number `first` on: the worker of takeover number `takeover`, told by `id` from others
    that took over at the same time. Only of a partition that is copied with repeats."""

    first: int
    takeover: int
    id: str


@dataclass(frozen=True, slots=True)
class TransactionPosition:
    """A partition as of one transaction. begin: where its copy began; position: the next source offset; leader_epoch:
    of the source batch before it (-1: unknown); stretches: the newest, which stand in no block; block: number of the
    last block; filled: how many of its stretches count.
    generation: grows with every order that was obeyed; order, note: the newest of them
    (replicator.recovery.operator_decisions); since: the
    first block that counts, what older ones describe was given up by an order to reseed. log: of a partition that is
    copied with repeats; None where transactions say what stands in the log. writers: who wrote the blocks, rising by
    number; blocks before the first of them are nobody's in particular."""

    key: PartitionKey
    source_id: uuid.UUID
    target_id: uuid.UUID
    begin: OffsetRun
    position: int
    leader_epoch: int = -1
    block: int = 0
    stretches: tuple[ExplicitRun, ...] = ()
    generation: int = 1
    order: str = ""
    note: str = ""
    since: int = 0
    filled: int = 0
    log: LogKnowledge | None = None
    writers: tuple[BlockWriter, ...] = ()

    @property
    def target_end(self) -> int:
        """Behind our last record. No stretches are here only while nothing is copied."""
        return self.stretches[-1].target + self.stretches[-1].records if self.stretches else self.begin.target

    def to_json(self) -> ControlValue:
        """The value of the `position` record in watershed.ledger."""
        value = _about(self.key, POSITION) | {
            "target_topic": self.key.target_topic,
            "source_id": str(self.source_id),
            "target_id": str(self.target_id),
            "begin": list(self.begin),
            "position": self.position,
            "leader_epoch": self.leader_epoch,
            "block": self.block,
            "stretches": encode_explicit_runs(self.stretches),
            "generation": self.generation,
            "order": self.order,
            "note": self.note,
            "since": self.since,
            "filled": self.filled,
        }
        if self.log is not None:
            value["log"] = list(self.log)
        if self.writers:
            value["writers"] = [list(writer) for writer in self.writers]
        return value

    @property
    def record_key(self) -> str:
        """Key of the `position` record in watershed.ledger."""
        if self.log is None or self.generation == _FIRST_GENERATION:
            return f"{_prefix(self.key)}|{POSITION}"
        return f"{_prefix(self.key)}|{POSITION}|{self.generation}"

    @property
    def takeover(self) -> int:
        """How many takeovers have named their blocks."""
        return self.writers[-1].takeover if self.writers else 0

    def name_block(self, number: int) -> str:
        """What the key of a block's record ends with."""
        writer = next((each for each in reversed(self.writers) if each.first <= number), None)
        return str(number) if writer is None else f"{number}-{_name_writer(writer)}"


@dataclass(frozen=True, slots=True)
class PositionAndRuns:
    """All that the ledger says of a partition: its position, and its blocks by number, of the last what counts.

    stale: names of blocks that do not count any more and may be deleted. repeated: records that stand at the target
    once more than they should, in log order; takeovers: the oldest first. Both only of a partition that is copied with
    repeats.
    """

    position: TransactionPosition
    blocks: Mapping[int, ColumnRows[ExplicitRun]] = field(default_factory=dict)
    stale: tuple[str, ...] = ()
    repeated: tuple[ExplicitRun, ...] = ()
    takeovers: tuple[SourceSpan, ...] = ()
    _map: list[OffsetMap] = field(init=False, repr=False, compare=False, default_factory=list)  # once it was asked for

    @property
    def map(self) -> OffsetMap:
        """Broken when what was written down contradicts itself."""
        if not self._map:
            self._map.append(self._laid())
        return self._map[0]

    def _laid(self) -> OffsetMap:
        here = self.position
        pieces = [*(self.blocks[number] for number in sorted(self.blocks)), ColumnRows.of(ExplicitRun, here.stretches)]
        try:
            runs = ExplicitRunMap.over(concatenate_explicit_runs(pieces), here.begin, here.position)
            return runs if here.log is None else RepeatedRunMap.beside(runs, here.log.known_end, self.repeated)
        except ReplicatorError as error:
            return BrokenOffsetMap((here.begin,), str(error))


class _Advance(NamedTuple):
    """What `PositionTracker` is after a transaction: full blocks that came (number, target end) and how many went."""

    position: TransactionPosition
    filled: list[tuple[int, int]]
    gone: int
    open_block: ColumnRows[ExplicitRun]


class PositionTracker:
    """A partition's position while it is copied: `advance` before a commit, then `committed` or `rolled_back`.

    taken_over_by: an id of the takeover, of a partition that is copied with repeats; the next `advance` writes the last
    block again, under a name of its own.
    """

    def __init__(self, known: PositionAndRuns, taken_over_by: str = "") -> None:
        self.position = known.position
        self._blocks = deque(
            (number, block[-1].target + block[-1].records)
            for number, block in sorted(known.blocks.items())
            if number < known.position.block
        )
        self._open = known.blocks.get(known.position.block, ColumnRows.of(ExplicitRun, ()))
        self._stale = known.stale
        self._next: _Advance | None = None
        self._renamed = bool(taken_over_by)  # the last block stands under the name of another worker
        if taken_over_by:
            self.position = replace(known.position, writers=_add_writer(known, taken_over_by))

    def advance(
        self,
        landed: Iterable[ExplicitRun],
        position: int,
        leader_epoch: int,
        log_start: int = -1,
        log: LogKnowledge | None = None,
    ) -> list[LedgerEntry]:
        """The ledger records of a transaction in which `landed` was written and the source is copied through
        `position`. log_start: the target's, if it is known. log: of a partition that is copied with repeats."""
        here = self.position
        newest, number, open_block = join_explicit_runs([*here.stretches, *landed]), here.block, self._open
        entries: list[LedgerEntry] = [(f"{_prefix(here.key)}|{STRETCHES}|{stale}", None) for stale in self._stale]
        if self._renamed and open_block:
            entries.append(_build_block_entry(here, number, open_block))
        filled: list[tuple[int, int]] = []
        while len(newest) > RUNS_IN_POSITION:  # the last one stays: it may go on, and says where the target ends
            moved = newest[: min(RUNS_PER_BLOCK - len(open_block), len(newest) - 1)]
            newest = newest[len(moved) :]
            block = [*open_block, *moved]
            entries.append(_build_block_entry(here, number, block))
            open_block = ColumnRows.of(ExplicitRun, block)
            if len(block) >= RUNS_PER_BLOCK:
                filled.append((number, block[-1].target + block[-1].records))
                number, open_block = number + 1, ColumnRows.of(ExplicitRun, ())
        gone = 0
        while gone < len(self._blocks) and self._blocks[gone][1] <= log_start:
            entries.append((f"{_prefix(here.key)}|{STRETCHES}|{here.name_block(self._blocks[gone][0])}", None))
            gone += 1
        after = replace(
            here,
            position=position,
            leader_epoch=leader_epoch,
            block=number,
            stretches=tuple(newest),
            filled=len(open_block),
            log=log,
        )
        entries.append((after.record_key, after.to_json()))
        self._next = _Advance(after, filled, gone, open_block)
        return entries

    def committed(self) -> None:
        """The transaction with the entries of `next` is committed: they are the position now."""
        if self._next is not None:
            self.position, filled, gone, self._open = self._next
            for _ in range(gone):
                self._blocks.popleft()
            self._blocks.extend(filled)
            self._next, self._stale, self._renamed = None, (), False

    def rolled_back(self) -> None:
        """The transaction is aborted: the entries of `next` were not written."""
        self._next = None


def _add_writer(known: PositionAndRuns, name: str) -> tuple[BlockWriter, ...]:
    """Who wrote the blocks, when this takeover has written the last one again; without those that left no block."""
    at = known.position
    first = min(known.blocks, default=at.block)
    before = [writer for writer in at.writers if writer.first < at.block]
    left = [writer for writer, after in pairwise(before) if after.first > first]
    return (*left, *before[-1:], BlockWriter(at.block, at.takeover + 1, name))


def _build_block_entry(here: TransactionPosition, number: int, runs: Iterable[ExplicitRun]) -> LedgerEntry:
    value = _about(here.key, STRETCHES) | {"block": number, STRETCHES: encode_explicit_runs(runs)}
    name = here.name_block(number)
    if name != str(number):
        value["writer"] = name.partition("-")[2]
    return f"{_prefix(here.key)}|{STRETCHES}|{name}", value


def _name_writer(writer: BlockWriter) -> str:
    return f"{writer.takeover}.{writer.id}"


def decode_positions(records: Iterable[ControlRecord]) -> dict[PartitionKey, PositionAndRuns]:
    """The newest record of every key → what is known, by partition. Raises ProtocolError for an unreadable record, or
    where one is missing."""
    positions: dict[tuple[str, str, int], TransactionPosition] = {}
    blocks: dict[tuple[str, str, int], dict[str, ColumnRows[ExplicitRun]]] = {}
    beside: dict[tuple[str, str, int], list[tuple[int, int, ExplicitRun | SourceSpan]]] = {}
    for record in records:
        value = record.value or {}
        try:
            require_known_version(value, _SCHEMA)
            if value["kind"] == _PATH:
                continue
            where = (value["flow"], value["topic"], value["partition"])
            if value["kind"] == STRETCHES:
                blocks.setdefault(where, {})[_decode_block_name(value)] = decode_explicit_runs(value[STRETCHES])
            elif value["kind"] == POSITION:
                position = _position(value)
                before = positions.get(where)
                if before is None or before.generation <= position.generation:
                    positions[where] = position
            elif value["kind"] == _REPEATED:
                beside.setdefault(where, []).append((value["since"], record.offset, ExplicitRun(*value[_REPEATED])))
            elif value["kind"] == _TAKEOVER:
                beside.setdefault(where, []).append((value["since"], record.offset, SourceSpan(*value[_TAKEOVER])))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ProtocolError(
                f"{LEDGER_TOPIC} holds a record at partition {record.partition} offset {record.offset} "
                f"that this version cannot read ({error!r})",
                topic=LEDGER_TOPIC,
                partition=record.partition,
            ) from None
    return {
        position.key: _known(position, blocks.get(where, {}), beside.get(where, ()))
        for where, position in positions.items()
    }


def _decode_block_name(value: Mapping[str, Any]) -> str:
    """Raises KeyError, TypeError."""
    number, writer = value["block"], value.get("writer")
    if not isinstance(number, int) or not isinstance(writer, str | None):
        raise TypeError(f"block {number!r} by {writer!r}")
    return str(number) if writer is None else f"{number}-{writer}"


def _known(
    position: TransactionPosition,
    blocks: dict[str, ColumnRows[ExplicitRun]],
    beside: Iterable[tuple[int, int, ExplicitRun | SourceSpan]],
) -> PositionAndRuns:
    """The last block may have been read in a newer version than the position: it only ever grows."""
    named = {number: position.name_block(number) for number in {int(name.partition("-")[0]) for name in blocks}}
    counting = {
        number: blocks[name]
        for number, name in named.items()
        if position.since <= number < position.block and name in blocks
    }
    if position.filled:
        name = position.name_block(position.block)
        last = blocks.get(name, ())
        if len(last) < position.filled:
            raise ProtocolError(
                f"{LEDGER_TOPIC} lacks stretches of {position.key}: block {name} holds {len(last)}, and "
                f"the position counts {position.filled}",
                topic=LEDGER_TOPIC,
            )
        counting[position.block] = blocks[name][: position.filled]
    return PositionAndRuns(
        position,
        counting,
        tuple(sorted(name for name in blocks if _is_stale(position, name))),
        tuple(sorted(each for since, _, each in beside if since == position.since and isinstance(each, ExplicitRun))),
        tuple(
            each
            for since, _, each in sorted(beside, key=lambda entry: entry[1])
            if since == position.since and isinstance(each, SourceSpan)
        ),
    )


def _is_stale(position: TransactionPosition, name: str) -> bool:
    """Whether this block does not count, and no position that comes late may count it."""
    number, _, writer = name.partition("-")
    if position.log is None:
        return int(number) < position.since
    counts = int(number) >= position.since and name == position.name_block(int(number))
    return not counts and int(writer.partition(".")[0] or 0) + TAKEOVERS_KEPT < position.takeover


def list_kept_repeats(known: PositionAndRuns, log_start: int) -> list[ExplicitRun]:
    """The repeats that a takeover leaves in the ledger: those that the target has not deleted (log_start is its own),
    and that do not stand behind what is known of its log, where they are found again."""
    position = known.position
    known_end = position.begin.target if position.log is None else position.log.known_end
    return [run for run in known.repeated if run.target + run.records > log_start and run.target < known_end]


def build_takeover_entries(
    known: PositionAndRuns, repeated: Iterable[ExplicitRun], span: SourceSpan, log_start: int
) -> list[LedgerEntry]:
    """The ledger records of a takeover: the repeats that it found behind the ledger's position, and where it stands.

    span: source offsets from which a batch may be under way now. log_start: the target's. Repeats that it has deleted,
    and takeovers before the last TAKEOVERS_KEPT, get tombstones.
    """
    position, kept = known.position, set(list_kept_repeats(known, log_start))
    prefix, about = _prefix(position.key), _about(position.key, _REPEATED) | {"since": position.since}
    entries: list[LedgerEntry] = [
        (f"{prefix}|{_REPEATED}|{run.target}", None) for run in known.repeated if run not in kept
    ]
    entries += [
        (f"{prefix}|{_TAKEOVER}|{old.first}-{old.end}", None)
        for old in known.takeovers[: 1 - TAKEOVERS_KEPT]
        if old != span
    ]
    entries += [(f"{prefix}|{_REPEATED}|{run.target}", about | {_REPEATED: list(run)}) for run in repeated]
    value = about | {"kind": _TAKEOVER, _TAKEOVER: list(span)}
    return [*entries, (f"{prefix}|{_TAKEOVER}|{span.first}-{span.end}", value)]


def build_path_entry(flow: str, slot: int, path: tuple[str, ...]) -> LedgerEntry:
    """The ledger record that says: this slot of a flow writes what came this way."""
    value = {"schema": _SCHEMA, "kind": _PATH, "flow": flow, "slot": slot, "path": list(path)}
    return f"{flow}|{slot}|{_PATH}|{'>'.join(path)}", value


def encode_explicit_runs(stretches: Iterable[ExplicitRun]) -> list[list[int]] | str:
    """[gap on the target, gap on the source, records] by stretch: small numbers, counted from the end of the last. Many
    of them as one text (`replicator.ledger.column_packing`)."""
    rows: list[list[int]] = []
    target_end = source_end = 0
    for target, source, records in stretches:
        rows.append([target - target_end, source - source_end, records])
        target_end, source_end = target + records, source + records
    if (
        len(rows) <= _PLAIN_STRETCHES or min(map(min, rows)) < 0
    ):  # negative: they contradict themselves, the reader says
        return rows
    return column_packing.encode_columns([*zip(*rows, strict=True)])


def decode_explicit_runs(rows: Iterable[list[int]] | str) -> ColumnRows[ExplicitRun]:
    """The inverse of `packed`. Raises ValueError, TypeError, OverflowError for what is none."""
    if isinstance(rows, str):
        columns = column_packing.decode_columns(rows, 3)
    else:
        columns = [(), (), ()]
        for at, column in enumerate(zip(*((*_three(row),) for row in rows), strict=True)):
            columns[at] = column
    target_gaps, source_gaps, records = columns
    before = (0, *records[:-1]) if records else ()
    starts = (accumulate(map(add, column, before)) for column in (target_gaps, source_gaps))
    return ColumnRows(ExplicitRun, (*(array("q", column) for column in starts), array("q", records)))


def _three(row: list[int]) -> tuple[int, int, int]:
    target_gap, source_gap, records = row
    return target_gap, source_gap, records


def _position(value: dict[str, Any]) -> TransactionPosition:
    return TransactionPosition(
        key=PartitionKey(value["flow"], value["topic"], value["target_topic"], value["partition"]),
        source_id=parse_topic_id(value["source_id"]),
        target_id=parse_topic_id(value["target_id"]),
        begin=OffsetRun(*value["begin"]),
        position=value["position"],
        leader_epoch=value["leader_epoch"],
        block=value["block"],
        stretches=tuple(decode_explicit_runs(value[STRETCHES])),
        generation=value["generation"],
        order=value["order"],
        note=value["note"],
        since=value["since"],
        filled=value.get("filled", 0),
        log=LogKnowledge(*value["log"]) if "log" in value else None,
        writers=tuple(BlockWriter(*writer) for writer in value.get("writers", ())),
    )


def _about(key: PartitionKey, kind: str) -> ControlValue:
    return {"schema": _SCHEMA, "kind": kind, "flow": key.flow, "topic": key.topic, "partition": key.partition}


def _prefix(key: PartitionKey) -> str:
    return f"{key.flow}|{key.topic}|{key.partition}"
