"""A discrete simulation of workers that copy one partition: no threads, no sockets, every step chosen from outside.

Both logs are `FakeCluster`s, so the target follows the broker's producer rules. The ledger is a dict of records as
compaction leaves them. The network is modelled by hand: a request lies in its connection until it is delivered (also
long after its sender is gone) or lost, and so does an answer and a ledger record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

from tests.replicator.build import GZIP
from watershed.clusters.claim_rules import SEQUENCE_MODULUS, ClaimedPartition, find_partition_claims
from watershed.clusters.control_records import ControlRecord
from watershed.clusters.control_topics import LEDGER_TOPIC
from watershed.clusters.errors import ClusterError
from watershed.clusters.fake_cluster import FakeCluster
from watershed.clusters.record_batch import BatchRecord
from watershed.clusters.wire.messages import READ_COMMITTED, FetchedPartition, FetchPartition, ProducedPartition
from watershed.replicator.batch.batch_selection import select_batches
from watershed.replicator.batch.record_batch import decode_batches
from watershed.replicator.batch.repack import RepackTerms
from watershed.replicator.copy.copy_state import SourceCursor, TargetProgress
from watershed.replicator.copy.partition_copy import OutgoingBatch, PartitionCopy
from watershed.replicator.copy.sequenced_producer import SequencedProducer
from watershed.replicator.copy_limit import CopyLimit
from watershed.replicator.ledger.claims import build_claims
from watershed.replicator.ledger.claims_follower import ClaimsView
from watershed.replicator.ledger.consolidation import consolidate_map
from watershed.replicator.ledger.ledger import Ledger, assemble_partitions
from watershed.replicator.ledger.ledger_block import CLAIM_NUMBER, Generation, LedgerBlock
from watershed.replicator.ledger.ledger_state import LedgerState
from watershed.replicator.ledger.ledger_writer import PartitionLedgerWriter
from watershed.replicator.ledger.offset_map import OffsetMap, OffsetRun
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import Halt, Reinspect
from watershed.replicator.recovery.producer_epochs import (
    begin_exclusive_epoch,
    drop_overtaken_epochs,
    drop_unlanded_epochs,
)
from watershed.replicator.recovery.recovery_point import LogInspection, RecoveryPoint, find_recovery_point
from watershed.topology.egress_compression import EgressCompression

NOW = 1_790_000_000_000
TOPIC = "orders"
KEY = PartitionKey("onprem-to-cloud", TOPIC, TOPIC, 0)
EXPIRATION_MS = 86_400_000
STILL = 20  # steps that stand for the 35 s that a log must stand still
Step = Callable[[int], None]


class WentHalted(AssertionError):
    """A partition stopped, where nothing was wrong."""

    def __init__(self, halt: Halt) -> None:
        self.state = halt.state
        super().__init__(f"{halt.state}: {halt.error}")


@dataclass(slots=True)
class Connection:
    """To the target: the broker executes requests in order, answers come back in order."""

    requests: deque[tuple[PartitionCopy, OutgoingBatch]] = field(default_factory=deque)
    answers: deque[tuple[PartitionCopy, ProducedPartition]] = field(default_factory=deque)


@dataclass(slots=True)
class Writing:
    """A ledger record on its way; `landed`: the ledger holds it, its writer does not know yet."""

    key: str
    value: dict[str, Any] | None
    done: Callable[[ClusterError | None, int], None]
    landed: bool = False


@dataclass(slots=True)
class Inspection:
    """An inspection as it goes on: ends first, then the tail and the producer's state, then the ledger."""

    source_range: tuple[int, int]
    target_range: tuple[int, int]
    seen: LogInspection | None = None


class SimulatedWriter:
    """Stands in for `ControlWriter`: keeps what was written until the simulation lets it land."""

    def __init__(self) -> None:
        self.queue: deque[Writing] = deque()
        self.later: list[Callable[[], None]] = []

    def put_nowait(self, topic: str, key: str, value: dict[str, Any] | None, partition: int, on_done: Any) -> None:
        assert topic == LEDGER_TOPIC
        self.queue.append(Writing(key, value, on_done))


@dataclass(slots=True)
class Directly:
    """A writer whose records land at once: what consolidation waits for anyway."""

    simulation: Simulation

    def put_nowait(self, _topic: str, key: str, value: dict[str, Any] | None, _partition: int, on_done: Any) -> None:
        self.simulation.ledger_writes += 1
        if value is None:
            self.simulation.ledger.pop(key, None)
        else:
            self.simulation.ledger[key] = value
        on_done(None, self.simulation.ledger_writes)

    def flush(self) -> None:
        pass


@dataclass(slots=True)
class SimulatedWorker:
    name: str
    writer: SimulatedWriter = field(default_factory=SimulatedWriter)
    connection: Connection = field(default_factory=Connection)
    inspection: Inspection | None = None
    copy: PartitionCopy | None = None
    ledger: PartitionLedgerWriter | None = None
    fetched: deque[tuple[PartitionCopy, PartitionLedgerWriter, FetchedPartition]] = field(default_factory=deque)


class Simulation:
    """`step(choice, amount)` does one of the things that can happen now. `drain` lets one worker finish the copy.

    compaction: records have keys that come again, and the cleaner may come at any moment. fencing: whether workers
    follow `replicator.recovery.producer_epochs`; without it compaction is silent corruption. mapped: as
    `replicator.ledger.claims` takes it. describes: the target tells what it holds of a producer. Where it does not,
    every log is taken for one that stood still, so what is sent before a takeover may land behind it. forgets: the
    target loses all producer states, once every worker has noticed that it stood still for long. refuses: as Kafka 2.4,
    it takes only sequence 0 then, so that workers begin another epoch, and wait for a log that does stand still. end:
    source offset at which the copy ends.
    """

    mapped: Collection[str] = (KEY.flow,)

    def __init__(
        self,
        workers: int = 3,
        *,
        start: str = "earliest",
        compaction: bool = False,
        fencing: bool = True,
        describes: bool = True,
        forgets: bool = False,
        refuses: bool = False,
        end: int | None = None,
    ) -> None:
        self.limit, self.complete = None if end is None else CopyLimit(end), False
        self.describes, self.forgets, self.refuses = describes, forgets, refuses
        self.start, self.compaction, self.fencing = start, compaction, fencing
        self.source = FakeCluster("source", clock=lambda: NOW)
        self.target = FakeCluster("target", clock=lambda: NOW)
        self.source_id = self.source.create_topic(TOPIC, 1).topic_id
        self.target_id = self.target.create_topic(TOPIC, 1).topic_id
        self.target.log(TOPIC, 0).producers.refuses_forgotten = refuses
        self.producer_id = self.target.issue_producer_id()
        self.ledger: dict[str, dict[str, Any]] = {}
        self._blocks: dict[str, tuple[dict[str, Any], LedgerBlock]] = {}
        self.ledger_writes = 0
        self.workers = [SimulatedWorker(f"w{number}") for number in range(workers)]
        self.lost_connections: list[Connection] = []
        self.lost_writers: list[SimulatedWriter] = []
        self.open: list[int] = []
        self.records_made = self.compactions = self.forgot = 0
        self.history: dict[int, BatchRecord] = {}
        self.names = workers
        self.trace: list[str] = []
        self.steps_done = self.moved_at = 0
        self.draining = False

    # -- what can happen ---------------------------------------------------------------------------------------

    def step(self, choice: int, amount: int) -> None:
        self.steps_done += 1
        steps = self.steps()
        label, action = steps[choice % len(steps)]
        self.trace.append(f"{label}({amount})")
        action(amount)

    def steps(self) -> list[tuple[str, Step]]:
        found: list[tuple[str, Step]] = [
            ("plain", self._plain),
            ("transaction", self._transaction),
        ]
        if self.open:
            found.append(("end transaction", self._end_transaction))
        if self.compaction:
            found.append(("compact", self._compact))
        for worker in self.workers:
            found += [(f"{worker.name} {label}", action) for label, action in self._worker_steps(worker)]
        for at, connection in enumerate(self.lost_connections):
            if connection.requests:
                found.append((f"late request {at}", lambda amount, c=connection: self._late_request(c, amount)))
        for at, writer in enumerate(self.lost_writers):
            if writer.queue:
                found.append((f"late ledger record {at}", lambda amount, w=writer: self._late_record(w, amount)))
        found.append(("rare", self._rare))
        return found

    def _worker_steps(self, worker: SimulatedWorker) -> list[tuple[str, Step]]:
        found: list[tuple[str, Step]] = []
        copy = worker.copy
        if copy is None:
            found.append(("look", lambda _: self._inspect(worker)))
        else:
            if copy.trouble is None and not worker.fetched and not copy.source.is_at_limit:
                found.append(("fetch", lambda amount: self._fetch(worker, amount)))
            if copy.trouble is None and copy.queue.ready:
                found.append(("send", lambda _: self._send(worker)))
            if copy.trouble is not None and copy.is_idle:
                found.append(("retire", lambda _: self._retire(worker)))
        if worker.fetched:
            found.append(("accept", lambda _: self._accept(worker)))
        if worker.connection.requests:
            found.append(("deliver", lambda _: self._deliver(worker.connection)))
        if worker.connection.answers:
            found.append(("answer", lambda _: self._answer(worker)))
        if worker.writer.queue:
            found.append(("ledger", lambda _: self._acknowledge(worker.writer)))
        return found

    def _rare(self, amount: int) -> None:
        worker = self.workers[amount % len(self.workers)]
        kind = amount // len(self.workers) % 8
        if kind < 3:
            self._cut(worker)
        elif kind < 5:
            self._crash(worker)
        elif kind < 6:
            self._restart_target()
        elif self.forgets and kind < 7:
            self._forget()
        elif worker.copy is not None:
            worker.copy.halt("handed over")

    # -- the source --------------------------------------------------------------------------------------------

    def _plain(self, amount: int) -> None:
        values = self._values(amount % 4 + 1)
        keys = [b"k%d" % (int(value or 0) * 7 % 3) for value in values] if self.compaction else None
        self.source.produce(TOPIC, 0, values, keys=keys)
        self._note_history()

    def _compact(self, amount: int) -> None:
        log = self.source.log(TOPIC, 0)
        log.compact(log.end - amount % 4, NOW)
        self.compactions += 1

    def _note_history(self) -> None:
        """Every record that a consumer could ever read, by source offset: compaction takes them away later."""
        self.history |= {record.offset: record for record in self.committed()}

    def _transaction(self, amount: int) -> None:
        end = ("commit", "abort", "open", "abort")[amount % 4]
        batches = [self._values(amount // 4 % 3 + 1) for _ in range(amount // 12 % 3)]
        producer = self.source.produce_transaction(TOPIC, 0, batches, end=end)
        if end == "open" and batches:
            self.open.append(producer)
        self._note_history()

    def _end_transaction(self, amount: int) -> None:
        producer = self.open.pop(amount % len(self.open))
        self.source.end_transaction(TOPIC, 0, producer, commit=amount % 2 == 0)
        self._note_history()

    def _values(self, count: int) -> list[bytes | None]:
        self.records_made += count
        return [b"%d" % number for number in range(self.records_made - count, self.records_made)]

    # -- a worker ----------------------------------------------------------------------------------------------

    def _inspect(self, worker: SimulatedWorker) -> None:
        """One of the three parts of an inspection (replicator.recovery.takeover,
        replicator.recovery.log_inspection)."""
        if worker.inspection is None:
            here, there = self.source.log(TOPIC, 0), self.target.log(TOPIC, 0)
            worker.inspection = Inspection((here.log_start, here.last_stable()), (there.log_start, there.end))
        elif worker.inspection.seen is None:
            worker.inspection.seen = self._seen(worker.inspection)
        else:
            seen, worker.inspection = worker.inspection.seen, None
            self._take_over(worker, seen)

    def _seen(self, inspection: Inspection) -> LogInspection:
        log = self.target.log(TOPIC, 0)
        start, end = inspection.target_range
        stored, _ = log.read(end - 1, 1 << 20, False, True) if end > start else (b"", 0)
        states = log.producers.describe() if self.describes else []
        ours = next((state for state in states if state.producer_id == self.producer_id), None)
        return LogInspection(
            source_id=self.source_id,
            source_start=inspection.source_range[0],
            source_end=inspection.source_range[1],
            target_id=self.target_id,
            target_start=start,
            target_end=end,
            tail=next((batch for batch in decode_batches(memoryview(stored)) if batch.end == end), None),
            producer=None if ours is None else (ours.epoch, ours.last_sequence, ours.last_timestamp),
            now=NOW,
            expiration=EXPIRATION_MS,
            settled=self._is_settled(),
        )

    def _is_settled(self) -> bool:
        if self.compaction or self.refuses:  # then epochs are begun, before which nothing may be under way
            return self._quiet()
        return not self.describes

    def _quiet(self) -> bool:
        """Nothing is under way, nobody is about to send, and the log stood still for a while."""
        if not self.draining and self.steps_done - self.moved_at < STILL:
            return False
        lost = any(connection.requests for connection in self.lost_connections)
        return not lost and not any(
            worker.connection.requests or worker.fetched or (worker.copy is not None and worker.copy.queue.ready)
            for worker in self.workers
        )

    def _take_over(self, worker: SimulatedWorker, seen: LogInspection) -> None:
        remembered, generation = self.remembered()
        remembered = drop_overtaken_epochs(remembered, seen)
        decided = find_recovery_point(remembered, seen, self.producer_id, self.start)
        if self.fencing:
            decided = begin_exclusive_epoch(decided, remembered, seen)
        if isinstance(decided, Halt):
            raise WentHalted(decided)
        if isinstance(decided, Reinspect):
            return
        if decided.alone and self.target.log(TOPIC, 0).end != decided.target_end:
            return  # `replicator.recovery.takeover` looks again
        if decided.alone and remembered is not None and not remembered.closed:
            self._end_owners(worker)
        self.check_position(decided)
        if self.limit is not None and self.limit.is_reached_at(decided.position):
            self.complete = True
            return
        block = LedgerBlock(
            key=KEY,
            generation=Generation(generation + 1, worker.name),
            number=0,
            start=decided.target_end,
            identity=decided.identity,
            source_id=self.source_id,
            target_id=self.target_id,
            runs=(),
            needs_epoch=decided.alone,
            after=decided.after,
        )
        if remembered is not None and self.compaction:
            view = drop_unlanded_epochs(remembered, seen) if self.fencing else remembered
            mine = consolidate_map(
                KEY,
                block.generation,
                decided.target_end,
                view,
                self.as_read(),
                Directly(self),
                spare=6,  # type: ignore[arg-type]
                landed_known=seen.tail is not None,
            )
            block = replace(block, generation=mine)
        first = [OffsetRun(decided.target_end, decided.position)]
        if decided.alone:  # what stands in the ledger was just read, so this claim is the first
            claim = replace(block, number=CLAIM_NUMBER, runs=tuple(first))
            self.ledger_writes += 1
            self.ledger[claim.record_key] = claim.to_json()
            block = replace(block, number=CLAIM_NUMBER + 1)
        copy = PartitionCopy(
            key=KEY,
            source_id=self.source_id,
            target_id=self.target_id,
            source=SourceCursor(decided.position, limit=self.limit),
            progress=TargetProgress(decided.target_end),
            producer=SequencedProducer(decided.identity, decided.depth, decided.depth_confirmed, alone=decided.alone),
        )
        ledger = PartitionLedgerWriter(
            worker.writer,  # type: ignore[arg-type]
            block,
            copy.durable,
            lambda error: copy.halt(str(error)),
            worker.writer.later.append,
            needs_epoch=lambda: copy.producer.needs_epoch,
        )
        copy.announce(first)
        ledger.append(first)
        worker.copy, worker.ledger = copy, ledger

    def _end_owners(self, worker: SimulatedWorker) -> None:
        """The log stood still for longer than the others' sessions last: they have noticed that the partition is not
        theirs any more (docs/research/sequence-numbers.md, §4 R5)."""
        for other in self.workers:
            if other is not worker:
                other.inspection = None
                self._cut(other)

    def _fetch(self, worker: SimulatedWorker, amount: int) -> None:
        copy, ledger = worker.copy, worker.ledger
        assert copy is not None
        assert ledger is not None
        asked = FetchPartition(copy.source_id, 0, copy.source.position, copy.source.leader_epoch, 60 + 20 * amount)
        (answer,) = self.source.wire().fetch((asked,), max_wait_ms=0, isolation=READ_COMMITTED)
        assert answer.error == 0, answer
        worker.fetched.append((copy, ledger, answer))

    def choose_compression(self) -> EgressCompression | None:
        """The key is switched on and off all the time."""
        return GZIP if self.steps_done // 5 % 2 else None

    def _accept(self, worker: SimulatedWorker) -> None:
        """Also for a copy that was given up meanwhile: its fetching thread does not know."""
        copy, ledger, answer = worker.fetched.popleft()
        terms = RepackTerms(
            small=(0, 90, 1 << 20)[self.steps_done % 3],
            holes=lambda: copy.producer.alone or not self.fencing,
            compression=self.choose_compression(),
            end=None if self.limit is None else self.limit.offset,
        )
        runs = copy.accept(select_batches(answer.records, copy.source.position, answer.aborted, terms=terms))
        if runs:
            ledger.append(runs)

    def _send(self, worker: SimulatedWorker) -> None:
        assert worker.copy is not None
        outgoing = worker.copy.next_outgoing()
        if outgoing is not None:
            worker.connection.requests.append((worker.copy, outgoing))

    def _retire(self, worker: SimulatedWorker) -> None:
        assert worker.copy is not None
        assert worker.ledger is not None
        if isinstance(worker.copy.trouble, Halt):
            raise WentHalted(worker.copy.trouble)
        if worker.copy.producer.needs_epoch and not worker.copy.producer.unanswered:
            worker.ledger.close()
        worker.copy = worker.ledger = None

    # -- the network -------------------------------------------------------------------------------------------

    def _deliver(self, connection: Connection) -> None:
        copy, outgoing = connection.requests.popleft()
        error, base, message = self.target.append(TOPIC, 0, b"".join(outgoing.pieces))
        self.moved_at = self.steps_done
        connection.answers.append((copy, ProducedPartition(self.target_id, 0, error, base, 0, message)))

    def _answer(self, worker: SimulatedWorker) -> None:
        copy, answer = worker.connection.answers.popleft()
        copy.answered(answer)

    def _acknowledge(self, writer: SimulatedWriter) -> None:
        writing = writer.queue[0]
        if not writing.landed:
            self._land(writing)
            return
        writer.queue.popleft()
        writing.done(None, self.ledger_writes)
        while writer.later:
            writer.later.pop(0)()

    def _land(self, writing: Writing) -> None:
        writing.landed = True
        self.ledger_writes += 1
        if writing.value is None:
            self.ledger.pop(writing.key, None)
        else:
            self.ledger[writing.key] = writing.value

    def _cut(self, worker: SimulatedWorker) -> None:
        """What was sent may still arrive; the answers are lost."""
        if worker.connection.requests:
            self.lost_connections.append(Connection(worker.connection.requests))
        worker.connection = Connection()
        if worker.copy is not None:
            worker.copy.connection_lost("cut")

    def _crash(self, worker: SimulatedWorker) -> None:
        """kill -9; what it sent may still arrive. Another worker comes in its place."""
        self._cut(worker)
        self.lost_writers.append(worker.writer)
        self.workers[self.workers.index(worker)] = SimulatedWorker(f"w{self.names}")
        self.names += 1

    def _restart_target(self) -> None:
        self.target.stop()
        self.target.start()
        for worker in self.workers:
            worker.connection.requests.clear()
            self._cut(worker)
        self.lost_connections.clear()

    def _forget(self) -> None:
        """Nothing was under way for so long that the target's brokers forgot who wrote. Late ledger records remain."""
        self.forgot += 1
        self.lost_connections.clear()
        for worker in self.workers:
            worker.connection.requests.clear()
            worker.inspection = None
            self._cut(worker)
        self.target.log(TOPIC, 0).producers.expire(NOW + EXPIRATION_MS + 1, EXPIRATION_MS)

    def _late_request(self, connection: Connection, amount: int) -> None:
        if amount % 5:
            self._deliver(connection)
        else:
            connection.requests.clear()

    def _late_record(self, writer: SimulatedWriter, amount: int) -> None:
        writing = writer.queue.popleft()
        if amount % 5 and not writing.landed:
            self._land(writing)

    # -- the end, and what must be true ------------------------------------------------------------------------

    def check_claims(self) -> None:
        """The ledger claims every batch of ours that is there, and none that somebody else may add."""
        records = [ControlRecord(0, at, NOW, key, value) for at, (key, value) in enumerate(self.ledger.items())]
        view = ClaimsView()
        for record in records:
            view.take(record)
        view.settle(self.mapped)
        where = ClaimedPartition(TOPIC, self.target_id, 0)
        rules = find_partition_claims(build_claims(records, self.mapped), TOPIC, self.target_id, 0).rules
        log = self.target.log(TOPIC, 0)
        stored, _ = log.read(log.log_start, 1 << 30, False, True) if log.end > log.log_start else (b"", 0)
        for batch in decode_batches(memoryview(stored)):
            if batch.control or batch.producer_id != self.producer_id:
                assert batch.control or batch.transactional, batch  # what closed a gap; no reader sees it
                continue
            seen = batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.base, batch.end
            assert any(rule.covers(*seen) for rule in rules), (seen, rules)
            assert view.covers(where, batch)
        if not self.mapped:
            return  # gaps have no sequence numbers: what is added under our id and epoch cannot be told apart
        newest = max((rule.epoch for rule in rules), default=0)
        for epoch in range(newest + 2):
            fitting = {
                (log.end - rule.base) % SEQUENCE_MODULUS for rule in rules if rule.epoch == epoch and rule.base >= 0
            }
            for sequence in {0, 1, log.end + 1} - fitting:
                seen = self.producer_id, epoch, sequence, log.end, log.end + 1
                assert not any(rule.covers(*seen) for rule in rules), (seen, rules)

    def drain(self) -> None:
        """Everything that is under way arrives, then one worker finishes the copy."""
        while self.open:
            self._end_transaction(0)
        for connection in [worker.connection for worker in self.workers] + self.lost_connections:
            while connection.requests:
                self._deliver(connection)
        for writer in [worker.writer for worker in self.workers] + self.lost_writers:
            while writer.queue:
                self._late_record(writer, 1)
        self.draining = True
        last = SimulatedWorker("last")
        self.workers = [last]
        end = self.find_copied_end()
        for _ in range(20 * self.source.log(TOPIC, 0).end + 100):
            if last.copy is not None and last.copy.progress.copied_through == end and not last.writer.queue:
                self.check_claims()
                return
            if self.complete and last.copy is None and not last.writer.queue:
                return
            for label, action in self._worker_steps(last):
                if label != "fetch" or (last.copy is not None and last.copy.source.position < end):
                    action(100)
        raise AssertionError(f"no end: {last.copy}")

    def find_copied_end(self) -> int:
        """The source offset up to which everything is copied in the end."""
        end = self.source.log(TOPIC, 0).last_stable()
        return end if self.limit is None or self.limit.offset is None else min(end, self.limit.offset)

    def remembered(self) -> tuple[LedgerState | None, int]:
        return self.as_read().remembered(KEY)

    def as_read(self) -> Ledger:
        blocks = [self._block(at, key, value) for at, (key, value) in enumerate(self.ledger.items())]
        return Ledger(
            assemble_partitions(blocks), records={KEY: {each.record_key: each.identity.epoch for each in blocks}}
        )

    def _block(self, at: int, key: str, value: dict[str, Any]) -> LedgerBlock:
        """Read once where it stands: most records stay as they are from step to step."""
        known = self._blocks.get(key)
        if known is None or known[0] is not value or known[1].at != at:
            known = self._blocks[key] = value, LedgerBlock.from_record(ControlRecord(0, at, NOW, key, value))
        return known[1]

    def map(self) -> OffsetMap:
        remembered, _ = self.remembered()
        assert remembered is not None
        return remembered.map

    def committed(self) -> list[BatchRecord]:
        return self.source.records(TOPIC, 0)

    def check_position(self, decided: RecoveryPoint) -> None:
        """Below the position there are exactly as many committed records as the target holds."""
        if self.compaction:
            placed = self.placed()[: decided.target_end]
            missed = [record.offset for record in self.committed() if record.offset < decided.position]
            assert set(missed) <= set(placed), f"{decided} steps over {set(missed) - set(placed)}"
            assert all(offset < decided.position for offset in placed), f"{decided} comes again to {placed[-1]}"
            return
        below = sum(record.offset < decided.position for record in self.committed())
        assert below == decided.target_end, f"{decided} but {below} records lie below"

    def placed(self) -> list[int]:
        """The source offsets of the target's records, told by their values: no two records have the same."""
        offsets = {record.value: record.offset for record in self.history.values()}
        return [offsets[record.value] for record in self.target.records(TOPIC, 0)]

    def check_compacted_copy(self) -> None:
        """Each record once at most, in order, as it was; whatever is still on the source is there; the map right."""
        placed, there = self.placed(), self.target.records(TOPIC, 0)
        assert placed == sorted(set(placed)), placed
        for offset, record in zip(placed, there, strict=True):
            known = self.history[offset]
            assert (record.key, record.timestamp, record.headers) == (known.key, known.timestamp, known.headers)
        left = [record.offset for record in self.committed()]
        assert set(left) <= set(placed), f"lost: {sorted(set(left) - set(placed))}"
        offsets, end = self.map(), len(there)
        for target, source in enumerate(placed):
            assert offsets.to_source(target) == source, (target, source, offsets)
            assert offsets.to_target(source, end) == target, (target, source, offsets)
        assert offsets.source_position(end) == self.source.log(TOPIC, 0).end

    def check_copy(self) -> None:
        """The same records once each in the same order; the offset map right at every offset."""
        source_end = self.find_copied_end()
        here, there = [r for r in self.committed() if r.offset < source_end], self.target.records(TOPIC, 0)
        assert [(r.key, r.value, r.timestamp, r.headers) for r in there] == [
            (r.key, r.value, r.timestamp, r.headers) for r in here
        ]
        offsets, end = self.map(), len(there)
        assert offsets.source_position(end) == source_end
        target = 0
        for source in range(source_end + 1):
            assert offsets.to_target(source, end) == target, (source, offsets)
            if target < end and here[target].offset == source:
                assert offsets.to_source(target) == source, (target, offsets)
                target += 1
