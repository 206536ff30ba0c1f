"""Writing one slot of a flow: batches, positions and map in one transaction after the other.

Every method runs on the thread of the slot's sender; the fetching side only fills the copies. The order inside a
transaction is: batches, their answers (which tell where they stand), the ledger records that say so, EndTxn.
"""

from __future__ import annotations

import time
import uuid
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from clusters.batches import Record, build_batch
from clusters.control import LEDGER, encode
from clusters.errors import ProtocolError
from clusters.wire import codes
from clusters.wire.messages import ProducedPartition, ProducePartition
from clusters.wire.transactions import TransactionWire
from replicator.batches import Batch
from replicator.header import HEADER_SIZE, rewritten
from replicator.look import Address
from replicator.states import LookAgain, Loud
from replicator.transactions.answers import SessionLost, judged, raise_for_session
from replicator.transactions.copy import Path, TransactionCopy
from replicator.transactions.positions import Entry
from replicator.transactions.producer import PATIENCE_S, PAUSE_S, Place, TransactionalProducer, WireTo

# A transaction is committed when nothing more is waiting, and at the latest after so much time (what a reader waits at
# most) or bytes (some 40 ms at full speed: the three round trips of a commit then cost a tenth).
COMMIT_S: Final = 0.1
COMMIT_BYTES: Final = 8 << 20
REQUEST_BYTES: Final = 2 << 20
REQUESTS_IN_FLIGHT: Final = 5  # to one broker, once the first answer of the transaction is there
PRODUCE_TIMEOUT_MS: Final = 20_000  # below the transaction's own timeout
LEDGER_BATCH_BYTES: Final = 512 << 10  # half of the default max.message.bytes
POSITION_S: Final = 0.5  # how long a position that moved without a record (markers at the end) waits for company
NO_TIMESTAMP: Final = -1  # of ledger records: a worker whose clock is wrong must not be refused by the broker
ROLLED_BACK_IN_A_ROW: Final = 3  # before the session is given up


class Lane(NamedTuple):
    """A partition and the target's broker that leads it. `room` says that its buffer has room again."""

    copy: TransactionCopy
    leader: Address
    room: Callable[[], None] = lambda: None


@dataclass(slots=True)
class _Open:
    """The transaction that is being written."""

    producer: TransactionalProducer
    started: float
    size: int = 0
    answered: int = 0  # batches
    turned_away: int = 0  # batches that met the end of the transaction before (CONCURRENT_TRANSACTIONS)
    failed: bool = False
    copies: dict[int, TransactionCopy] = field(default_factory=dict)
    places: set[Place] = field(default_factory=set)
    in_flight: deque[tuple[Address, list[tuple[Lane, Batch]]]] = field(default_factory=deque)
    flying: Counter[Address] = field(default_factory=Counter)
    troubles: list[tuple[TransactionCopy, Loud | LookAgain]] = field(default_factory=list)

    def takes_more(self) -> bool:
        return not self.failed and self.size < COMMIT_BYTES and time.monotonic() - self.started < COMMIT_S


@dataclass(slots=True)
class SlotWriter:
    """`home` is the way of the source's own records. `register` notes a producer id before its first batch, `paths`
    reads from the ledger which other ways this slot has written, `version` asks for the target's transaction.version.
    """

    flow: str
    slot: int
    home: Path
    connect: WireTo
    version: Callable[[], int]
    register: Callable[[int, Path], None] = lambda _producer_id, _path: None
    paths: Callable[[], Iterable[Path]] = tuple
    lanes: tuple[Lane, ...] = ()
    _producers: dict[Path, TransactionalProducer] = field(default_factory=dict)
    _wires: dict[Address, TransactionWire] = field(default_factory=dict)
    _registered: set[tuple[int, Path]] = field(default_factory=set)
    _ledger: tuple[Place, Address] = ((uuid.UUID(int=0), -1), Address("", 0))
    _bump: bool = True
    _first: int = 0
    _positions_at: float = 0.0
    _rolled_back: int = 0  # transactions in a row
    _turned_away_since: float = 0.0  # monotonic; 0: the newest transaction was let in

    def open(self) -> None:
        """Begin a session: whoever wrote this slot before is fenced and what he left open has ended, on every path.
        Only then may the ledger be read. Raises SessionLost, ClusterError."""
        self.close()
        self._bump = self.version() >= 2
        self._ledger = self._led()
        self._begin(self.home)
        for path in self.paths():
            if path != self.home:
                self._begin(path)

    def step(self) -> bool:
        """Write one transaction; False: there was nothing to write. After SessionLost or ClusterError call `lose`."""
        path = next((way for lane in self._turned() if (way := lane.copy.next_path()) is not None), None)
        if path is not None:
            self._transaction(path)
            return True
        lagging = [lane.copy for lane in self.lanes if lane.copy.lagging]
        now = time.monotonic()
        if any(copy.begins for copy in lagging) or (lagging and now - self._positions_at >= POSITION_S):
            self._positions_at = now
            self._commit(_Open(self._producers[self.home], now), lagging)
            return True
        return False

    def lose(self, trouble: Loud | LookAgain) -> None:
        """The session is over; every partition is looked at again."""
        lanes, self.lanes = self.lanes, ()
        self.close()
        for lane in lanes:
            lane.copy.lost(trouble)

    def close(self) -> None:
        for producer in self._producers.values():
            producer.close()
        for wire in self._wires.values():
            with suppress(OSError):
                wire.close()
        self._producers.clear()
        self._wires.clear()
        self._rolled_back, self._turned_away_since = 0, 0.0

    # -- one transaction ---------------------------------------------------------------------------------------

    def _transaction(self, path: Path) -> None:
        producer = self._producer(path)
        unit = _Open(producer, time.monotonic())
        while True:
            while unit.takes_more() and (unit.answered or not unit.in_flight) and self._send(unit, path):
                pass
            if not unit.in_flight:
                break
            self._receive(unit)
        if unit.turned_away and unit.turned_away == unit.answered and not unit.troubles and self._bump:
            # The transaction before is still being completed and nothing of this one was written: ask again.
            producer.forget_sent()
            for copy in unit.copies.values():
                copy.rolled_back()
            self._turned_away_since = self._turned_away_since or unit.started
            if unit.started - self._turned_away_since > PATIENCE_S:
                raise SessionLost(LookAgain("the transaction before is not completed by the target's brokers"))
            time.sleep(PAUSE_S)
        elif unit.failed:
            self._roll_back(unit)
        else:
            lagging = [lane.copy for lane in self.lanes if lane.copy.lagging and id(lane.copy) not in unit.copies]
            self._commit(unit, [*unit.copies.values(), *lagging])

    def _send(self, unit: _Open, path: Path) -> bool:
        """One batch of every partition that has one, one request a broker. False when there is nothing to send."""
        requests: dict[Address, list[tuple[Lane, Batch]]] = {}
        size = 0
        for lane in self._turned():
            if unit.flying[lane.leader] >= REQUESTS_IN_FLIGHT or size >= REQUEST_BYTES:
                continue
            batch = lane.copy.take(path)
            if batch is not None:
                unit.copies[id(lane.copy)] = lane.copy
                requests.setdefault(lane.leader, []).append((lane, batch))
                size += len(batch.data)
        unit.size += size
        for leader, request in requests.items():
            unit.in_flight.append((leader, request))
            unit.flying[leader] += 1
            self._join(unit, [lane.copy for lane, _ in request])
            self._wire(leader).send_produce(
                tuple(_rewritten(unit.producer, lane.copy, batch) for lane, batch in request),
                timeout_ms=PRODUCE_TIMEOUT_MS,
                transactional_id=unit.producer.transactional_id,
            )
        return bool(requests)

    def _join(self, unit: _Open, copies: list[TransactionCopy]) -> None:
        """TV1: make the partitions that are new in this transaction, and the ledger's, part of it."""
        if self._bump:
            return
        named = {self._ledger[0]: (LEDGER, self.slot)}
        for copy in copies:
            named[copy.target_id, copy.key.partition] = (copy.key.target_topic, copy.key.partition)
        new = {place: name for place, name in named.items() if place not in unit.places}
        if new:
            unit.producer.add(tuple(new.values()))
            unit.places.update(new)

    def _receive(self, unit: _Open) -> None:
        leader, request = unit.in_flight.popleft()
        unit.flying[leader] -= 1
        answers = {(a.topic_id, a.partition): a for a in self._wire(leader).receive_produce()}
        for lane, batch in request:
            answer = answers.get((lane.copy.target_id, lane.copy.key.partition))
            if answer is None:
                raise ProtocolError("an answer to Produce leaves a partition out")
            self._answered(unit, lane.copy, batch, answer)

    def _answered(self, unit: _Open, copy: TransactionCopy, batch: Batch, answer: ProducedPartition) -> None:
        unit.answered += 1
        trouble: Loud | LookAgain | None
        if answer.error == codes.NONE:
            if unit.failed or copy.landed(answer.base_offset, answer.log_start):
                return
            extent = f"source offsets {batch.base} to {batch.end - 1}"
            trouble = Loud(
                "duplicated",
                f"the target answers offset {answer.base_offset} for {extent}, but our records end at {copy.acked}",
            )
        else:
            unit.turned_away += answer.error == codes.CONCURRENT_TRANSACTIONS
            trouble = judged(copy, batch, answer, unit.producer.transactional_id)
        unit.failed = True
        if trouble is not None and not any(known is copy for known, _ in unit.troubles):
            unit.troubles.append((copy, trouble))

    def _roll_back(self, unit: _Open) -> None:
        unit.producer.end(commit=False)
        for copy in unit.copies.values():
            copy.rolled_back()
        for copy, trouble in unit.troubles:
            copy.stop(trouble)
        if not self._bump:
            # In TV1 the sequence numbers go on, and which of the aborted ones were used is not known for sure.
            raise SessionLost(LookAgain("a transaction was rolled back"))
        self._rolled_back += not unit.troubles
        if self._rolled_back >= ROLLED_BACK_IN_A_ROW:
            raise SessionLost(LookAgain(f"{self._rolled_back} transactions in a row could not be written"))

    def _commit(self, unit: _Open, copies: list[TransactionCopy]) -> None:
        self._write_ledger(unit, [entry for copy in copies for entry in copy.entries()])
        unit.producer.end(commit=True)
        self._rolled_back, self._turned_away_since = 0, 0.0
        for copy in copies:
            copy.committed()
        for lane in self.lanes:
            if id(lane.copy) in unit.copies:
                lane.room()

    def _write_ledger(self, unit: _Open, entries: list[Entry]) -> None:
        """Write ledger records into the open transaction (or begin one with them)."""
        place, leader = self._ledger
        self._join(unit, [])
        deadline = time.monotonic() + PATIENCE_S
        for number, some in enumerate(_shared_out(entries)):
            records = [
                Record(at, NO_TIMESTAMP, key.encode(), None if value is None else encode(value))
                for at, (key, value) in enumerate(some)
            ]
            who = unit.producer.who
            batch = build_batch(
                records,
                producer_id=who.producer_id,
                epoch=who.epoch,
                base_sequence=unit.producer.sequence(place, len(records)),
                transactional=True,
            )
            while (answer := self._produce_ledger(unit, leader, place, batch)).error != codes.NONE:
                first = number == 0 and not unit.answered  # so nothing was written yet, and asking again is safe
                if not first or answer.error != codes.CONCURRENT_TRANSACTIONS or time.monotonic() > deadline:
                    raise_for_session(answer.error, "Produce", unit.producer.transactional_id)
                    told = f"the target answers {codes.name_of(answer.error)} to a record of {LEDGER}-{self.slot}"
                    raise SessionLost(LookAgain(f"{told}: {answer.message}" if answer.message else told))
                time.sleep(PAUSE_S)

    def _produce_ledger(self, unit: _Open, leader: Address, place: Place, batch: bytes) -> ProducedPartition:
        wire = self._wire(leader)
        wire.send_produce(
            (ProducePartition(*place, (batch,)),),
            timeout_ms=PRODUCE_TIMEOUT_MS,
            transactional_id=unit.producer.transactional_id,
        )
        (answer,) = wire.receive_produce()
        return answer

    # -- who and where -----------------------------------------------------------------------------------------

    def _begin(self, path: Path) -> TransactionalProducer:
        producer = TransactionalProducer(self._id_of(path), self.connect, self._bump)
        self._producers[path] = producer
        producer.begin()
        return producer

    def _producer(self, path: Path) -> TransactionalProducer:
        """Who writes what came this way. A way that is new to the slot is written down with the slot's own id before
        it is used: a worker that was replaced is fenced there, so its successor knows every id that it has to fence."""
        producer = self._producers.get(path)
        if producer is None:
            producer = self._begin(path)
            unit = _Open(self._producers[self.home], time.monotonic())
            self._write_ledger(unit, [path_entry(self.flow, self.slot, path)])
            unit.producer.end(commit=True)
        if (producer.who.producer_id, path) not in self._registered:
            self.register(producer.who.producer_id, path)
            self._registered.add((producer.who.producer_id, path))
        return producer

    def _id_of(self, path: Path) -> str:
        plain = f"watershed.{self.flow}.{self.slot}"
        return plain if path == self.home else f"{plain}.{zlib.crc32('|'.join(path).encode()):08x}"

    def _led(self) -> tuple[Place, Address]:
        asked = self.connect(None)
        try:
            metadata = asked.metadata((LEDGER,))
        finally:
            asked.close()
        (topic,) = metadata.topics
        node = next((part.node for part in topic.partitions if part.partition == self.slot), -1)
        if topic.error or node not in metadata.brokers:
            told = codes.name_of(topic.error or codes.LEADER_NOT_AVAILABLE)
            raise SessionLost(LookAgain(f"the target answers {told} about {LEDGER}-{self.slot}"))
        return (topic.topic_id, self.slot), Address(*metadata.brokers[node])

    def _wire(self, address: Address) -> TransactionWire:
        if address not in self._wires:
            self._wires[address] = self.connect(address)
        return self._wires[address]

    def _turned(self) -> tuple[Lane, ...]:
        """The lanes, another one first every time."""
        lanes = self.lanes
        if not lanes:
            return ()
        self._first = (self._first + 1) % len(lanes)
        return lanes[self._first :] + lanes[: self._first]


def path_entry(flow: str, slot: int, path: Path) -> Entry:
    """The ledger record that says: this slot has written what came this way."""
    value = {"schema": 1, "kind": "path", "flow": flow, "slot": slot, "path": list(path)}
    return f"{flow}|{slot}|path|{'>'.join(path)}", value


def _rewritten(producer: TransactionalProducer, copy: TransactionCopy, batch: Batch) -> ProducePartition:
    place = (copy.target_id, copy.key.partition)
    header = rewritten(
        batch.data[:HEADER_SIZE],
        producer_id=producer.who.producer_id,
        epoch=producer.who.epoch,
        sequence=producer.sequence(place, batch.records),
        transactional=True,
    )
    return ProducePartition(*place, (header, batch.data[HEADER_SIZE:]))


def _shared_out(entries: list[Entry]) -> Iterable[list[Entry]]:
    """Entries for one batch each."""
    some: list[Entry] = []
    size = 0
    for key, value in entries:
        weight = len(key) + (0 if value is None else len(encode(value)))
        if some and size + weight > LEDGER_BATCH_BYTES:
            yield some
            some, size = [], 0
        some.append((key, value))
        size += weight
    if some:
        yield some
