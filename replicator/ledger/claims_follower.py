"""Follows which batches of a target cluster its flows have claimed, for readers that check every batch.

A flow writes its claim before its batch, or in one transaction with it. If a batch is in the log and the ledger, read
after it, holds no claim, then no flow wrote that batch (decision 0052).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from watershed.clusters.claim_rules import ClaimedPartition, ClaimRule, name_claimed_partition
from watershed.clusters.control_records import ControlRecord, read_control_log
from watershed.clusters.control_topics import LEDGER_TOPIC
from watershed.clusters.errors import ProtocolError, TopicMissing
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.batch.record_batch import RawBatch
from watershed.replicator.ledger.claims import build_claims
from watershed.replicator.ledger.ledger import LEDGER_READ_TIMEOUT_S, select_transaction_records
from watershed.replicator.ledger.offset_map import ExplicitRun
from watershed.replicator.ledger.record_format import FlowPartition, build_unreadable_error, parse_ledger_key
from watershed.replicator.ledger.transaction_positions import (
    POSITION,
    STRETCHES,
    TRANSACTION_RECORD_KINDS,
    decode_positions,
)


@dataclass(frozen=True, slots=True)
class _Written:
    """What a flow wrote in transactions into one partition. blocks, newest: stretches in order, as its records hold
    them: a million of them are not put together anew at every transaction. last: the block that may have grown."""

    where: ClaimedPartition
    blocks: Mapping[int, Sequence[ExplicitRun]]
    newest: Sequence[ExplicitRun]
    last: int

    def covers(self, first: int, end: int) -> bool:
        """Whether every offset from `first` up to, not including, `end` was written. Of a batch that begins below what
        is still told, the target has deleted the beginning."""
        earliest = next((piece[0].target for piece in self._pieces() if piece), end)
        first = max(first, min(earliest, end - 1))
        while first < end:
            stretch = self._at(first)
            if stretch is None:
                return False
            first = stretch.target + stretch.records
        return True

    def _at(self, offset: int) -> ExplicitRun | None:
        for piece in reversed(self._pieces()):
            at = bisect_right(piece, offset, key=lambda stretch: stretch.target) - 1
            if at >= 0:
                return piece[at] if offset < piece[at].target + piece[at].records else None
        return None

    def _pieces(self) -> list[Sequence[ExplicitRun]]:
        return [*(self.blocks[number] for number in sorted(self.blocks)), self.newest]


@dataclass(slots=True)
class ClaimsView:
    """What the ledger of a cluster claims, record by record: `take` them in order, then `settle`."""

    _records: dict[FlowPartition, dict[str, ControlRecord]] = field(default_factory=lambda: defaultdict(dict))
    _changed: dict[FlowPartition, set[str]] = field(
        default_factory=lambda: defaultdict(set)
    )  # keys; a read may end half way
    _rules: dict[FlowPartition, dict[ClaimedPartition, tuple[ClaimRule, ...]]] = field(default_factory=dict)
    _written: dict[FlowPartition, _Written] = field(default_factory=dict)
    _about: dict[ClaimedPartition, set[FlowPartition]] = field(default_factory=lambda: defaultdict(set))
    unreadable_partitions: dict[FlowPartition, ProtocolError] = field(
        default_factory=dict
    )  # partitions of which a record cannot be read

    def covers(self, where: ClaimedPartition, batch: RawBatch) -> bool:
        """Whether some flow says that it wrote the batch there."""
        seen = batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.base, batch.end
        for named in where.list_places():
            for place in self._about.get(named, ()):
                if any(rule.covers(*seen) for rule in self._rules[place].get(named, ())):
                    return True
                written = self._written.get(place)
                if written is not None and written.where == named and written.covers(batch.base, batch.end):
                    return True
        return False

    def take(self, record: ControlRecord) -> None:
        """Keep one ledger record; `settle` interprets it. Records of other kinds are ignored."""
        place = parse_ledger_key(record.key)
        if place is None:
            return
        if record.value is None and not record.why:
            self._records[place].pop(record.key, None)
        else:
            self._records[place][record.key] = record
        self._changed[place].add(record.key)

    def settle(self, mapped: Collection[str]) -> None:
        """Understand what was taken. mapped: as `replicator.ledger.claims.build_claims` has it."""
        for place in list(self._changed):
            self.unreadable_partitions.pop(place, None)
            try:
                self._understand(place, mapped)
            except ProtocolError as error:  # what was claimed before still is: it was true
                self.unreadable_partitions[place] = error
            del self._changed[place]

    def _understand(self, place: FlowPartition, mapped: Collection[str]) -> None:
        records = self._records[place]
        for record in records.values():
            if record.why:
                raise build_unreadable_error(record, record.why)
        blocks = [
            record for record in records.values() if (record.value or {}).get("kind") not in TRANSACTION_RECORD_KINDS
        ]
        rules = {where: claims.rules for where, claims in build_claims(blocks, mapped).items()}
        written = _written(place, records, self._changed[place], self._written.get(place))
        self._rules[place] = rules
        if written is not None:
            self._written[place] = written
        for where in (*rules, *(() if written is None else (written.where,))):
            self._about[where].add(place)


@dataclass(slots=True)
class ClaimsFollower:
    """The ledger of a cluster, read once whole and then only what is new. Not thread-safe.

    mapped: as `replicator.ledger.claims.build_claims` takes it.
    """

    settings: ConnectionSettings
    mapped: Callable[[], Collection[str]]
    _view: ClaimsView = field(default_factory=ClaimsView)
    _next: dict[int, int] = field(default_factory=dict)

    def claims(self, where: ClaimedPartition, batch: RawBatch) -> bool:
        """Whether some flow says that it wrote the batch there. What the ledger says is read again before the answer is
        no. Raises ClusterError, also where a record that may speak of it cannot be read."""
        if self._view.covers(where, batch):
            return True
        self._read()
        if self._view.covers(where, batch):
            return True
        for error in self._view.unreadable_partitions.values():
            raise error
        return False

    def _read(self) -> None:
        """Raises ClusterError. An absent ledger claims nothing."""
        try:
            for record in read_control_log(
                self.settings, LEDGER_TOPIC, None, self._next, timeout=LEDGER_READ_TIMEOUT_S, whole=True, invalid=True
            ):
                self._next[record.partition] = record.offset + 1
                self._view.take(record)
        except TopicMissing:
            return
        self._view.settle(self.mapped())


def _written(
    place: FlowPartition, records: Mapping[str, ControlRecord], changed: Collection[str], before: _Written | None
) -> _Written | None:
    """Only blocks that are new are unpacked. Raises ProtocolError."""
    prefix = f"{place.flow}|{place.topic}|{place.partition}"
    newest = [record for record in records.values() if (record.value or {}).get("kind") == POSITION]
    if not newest:
        return before
    if any("log" in (record.value or {}) for record in newest):  # with repeats: its blocks are of several workers
        known = next(iter(decode_positions(select_transaction_records([*records.values()])).values()))
        at = known.position
        where = ClaimedPartition(at.key.target_topic, at.target_id, at.key.partition)
        return _Written(where, known.blocks, at.stretches, at.block)
    (position,) = newest
    since = 0 if before is None else before.last
    grown = (key for key, record in records.items() if _block(record) >= since)
    wanted = {position.key, *changed, *grown}
    known = next(
        iter(decode_positions(select_transaction_records([records[key] for key in wanted if key in records])).values())
    )
    at, blocks = known.position, {} if before is None else dict(before.blocks)
    blocks.update(known.blocks)
    counting = {
        number: block
        for number, block in blocks.items()
        if number >= at.since and f"{prefix}|{STRETCHES}|{number}" in records
    }
    where = name_claimed_partition(at.key.target_topic, at.target_id, at.key.partition)
    return _Written(where, counting, at.stretches, at.block)


def _block(record: ControlRecord) -> int:
    number = (record.value or {}).get("block") if (record.value or {}).get("kind") == STRETCHES else None
    return number if isinstance(number, int) else -1
