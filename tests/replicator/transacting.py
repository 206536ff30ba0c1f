"""One flow that copies in transactions between two clusters in memory, with crashes at every request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tests.replicator.build import GZIP
from watershed.clusters.claim_rules import ClaimedPartition, find_partition_claims
from watershed.clusters.control_records import ControlRecord
from watershed.clusters.control_topics import LEDGER_TOPIC, SLOT_COUNT
from watershed.clusters.errors import ClusterError, Unreachable
from watershed.clusters.fake_cluster import FakeCluster
from watershed.clusters.record_batch import BatchRecord
from watershed.clusters.wire.messages import FetchPartition
from watershed.replicator.batch.batch_selection import select_batches
from watershed.replicator.batch.record_batch import RawBatch, decode_batches
from watershed.replicator.batch.repack import RepackTerms
from watershed.replicator.copy.copy_state import SourceCursor, TargetProgress
from watershed.replicator.copy.transactions.open_transaction import SlotPartition
from watershed.replicator.copy.transactions.produce_answers import SessionLost
from watershed.replicator.copy.transactions.slot_writer import SlotWriter
from watershed.replicator.copy.transactions.transaction_copy import CopyPath, TransactionCopy
from watershed.replicator.copy_limit import CopyLimit
from watershed.replicator.ledger.claims import build_claims
from watershed.replicator.ledger.claims_follower import ClaimsView
from watershed.replicator.ledger.explicit_runs import ExplicitRunMap
from watershed.replicator.ledger.transaction_positions import PositionAndRuns, PositionTracker, decode_positions
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import Halt, Reinspect
from watershed.replicator.recovery.log_inspection import BrokerAddress, LeaderLog
from watershed.replicator.recovery.transaction_recovery_point import (
    InspectedRanges,
    TransactionRecoveryPoint,
    find_transaction_recovery_point,
)

NOW = 1_790_000_000_000
FLOW, TOPIC, MERGED, SLOT = "onprem-to-cloud", "orders", "all-orders", 3
HOME: CopyPath = ("onprem-id",)
AT = BrokerAddress("target", 9092)
REQUESTS = (
    "metadata",
    "find_coordinator",
    "init_producer",
    "add_partitions",
    "end_transaction",
    "send_produce",
    "receive_produce",
)


class Killed(BaseException):
    """kill -9: nothing in the worker gets to see it."""


Event = Callable[[Callable[[], Any]], Any]  # what happens around one request: gets a way to execute it


class World:
    """Both clusters, and a foreign producer that writes into the same target partitions all the time. end: the source
    offset at which the copies of all partitions end."""

    def __init__(self, partitions: int = 2, version: int = 2, *, end: int | None = None) -> None:
        self.limit = None if end is None else CopyLimit(end)
        self.source = FakeCluster("source", clock=lambda: NOW)
        self.target = FakeCluster("target", clock=lambda: NOW)
        self.target.coordinator.version = version
        self.source.create_topic(TOPIC, partitions)
        self.target_id = self.target.create_topic(MERGED, partitions).topic_id
        self.target.create_topic(LEDGER_TOPIC, SLOT_COUNT, configs={"cleanup.policy": "compact"})
        self.partitions = partitions
        self.foreign: dict[int, int] = dict.fromkeys(range(partitions), 0)
        self.made = 0

    def fill(self, rounds: int, producer_of: Callable[[int], int | None] = lambda _: None) -> None:
        """Batches on every source partition, some of them in transactions, some aborted."""
        for number in range(rounds):
            for partition in range(self.partitions):
                if number % 3 == 1:
                    end = "abort" if number % 4 == 0 else "commit"
                    self.source.produce_transaction(
                        TOPIC, partition, [self._values(2), self._values(1)], end=end, producer_id=producer_of(number)
                    )
                else:
                    self.source.produce(TOPIC, partition, self._values(3))

    def disturb(self) -> None:
        """The foreign producer writes a record everywhere."""
        for partition in range(self.partitions):
            self.target.produce(MERGED, partition, [b"foreign %d" % self.foreign[partition]])
            self.foreign[partition] += 1

    def known(self) -> dict[PartitionKey, PositionAndRuns]:
        return decode_positions(self._ledger())

    def _ledger(self) -> list[ControlRecord]:
        newest: dict[str, ControlRecord] = {}
        for record in self.target.records(LEDGER_TOPIC, SLOT):
            key = (record.key or b"").decode()
            value = None if record.value is None else _json(record.value)
            newest[key] = ControlRecord(SLOT, record.offset, NOW, key, value)
        return [record for record in newest.values() if record.value is not None]

    def paths(self) -> set[CopyPath]:
        found = [_json(record.value) for record in self.target.records(LEDGER_TOPIC, SLOT) if record.value is not None]
        return {tuple(value["path"]) for value in found if value["kind"] == "path"}

    def check(self) -> None:
        """Every record of the flow once and in order; every foreign one; the map exact at every offset both ways."""
        known = self.known()
        for partition in range(self.partitions):
            end = self.source.log(TOPIC, partition).end
            if self.limit is not None and self.limit.offset is not None:
                end = min(end, self.limit.offset)
            here = [record for record in self.source.records(TOPIC, partition) if record.offset < end]
            there = self.target.records(MERGED, partition)
            ours = [record for record in there if not (record.value or b"").startswith(b"foreign")]
            assert [_content(record) for record in ours] == [_content(record) for record in here], f"{partition}"
            assert len(there) - len(ours) == self.foreign[partition]
            self.check_claims(partition, {record.offset for record in ours}, {record.offset for record in there})
            offsets = known[key_of(partition)].map
            check_map(offsets, here, ours, end, self.target.log(MERGED, partition).end)

    def check_claims(self, partition: int, ours: set[int], all_of_them: set[int]) -> None:
        """The ledger claims what the flow has written, and nothing that somebody else did."""
        claims = find_partition_claims(build_claims(self._ledger(), {FLOW}), MERGED, self.target_id, partition)
        assert not claims.rules
        firsts, ends = (memoryview(column).cast("q") for column in (claims.firsts, claims.ends))
        claimed = {offset for first, end in zip(firsts, ends, strict=True) for offset in range(first, end)}
        assert claimed & all_of_them == ours
        view = ClaimsView()
        for record in self.target.records(
            LEDGER_TOPIC, SLOT
        ):  # as they came: what is followed says the same as what is read
            value = None if record.value is None else _json(record.value)
            view.take(ControlRecord(SLOT, record.offset, NOW, (record.key or b"").decode(), value))
            view.settle({FLOW})
        log = self.target.log(MERGED, partition)
        stored = log.read(log.log_start, 1 << 30, False, True)[0] if log.end > log.log_start else b""
        for batch in decode_batches(memoryview(stored)):
            if batch.base in all_of_them:
                covered = view.covers(ClaimedPartition(MERGED, self.target_id, partition), batch)
                assert covered == (batch.base in ours), batch

    def _values(self, count: int) -> list[bytes | None]:
        self.made += count
        return [b"%-30d" % number for number in range(self.made - count, self.made)]


def check_map(
    offsets: ExplicitRunMap, here: list[BatchRecord], there: list[BatchRecord], source_end: int, target_end: int
) -> None:
    place = {mine.offset: theirs.offset for mine, theirs in zip(here, there, strict=True)}
    back = {theirs: mine for mine, theirs in place.items()}
    assert offsets.source_position(target_end) == source_end
    for source in range(source_end):
        following = [place[offset] for offset in sorted(place) if offset >= source]
        behind = there[-1].offset + 1 if there else offsets.begin.target
        assert offsets.to_target(source, target_end) == (following[0] if following else behind), source
    for target in range(offsets.begin.target, target_end):
        following = [back[offset] for offset in sorted(back) if offset >= target]
        assert offsets.to_source(target) == (following[0] if following else source_end), target


class Wire:
    """A connection whose requests are counted, and that lets things happen to them."""

    def __init__(self, world: World, worker: TransactingWorker) -> None:
        self._wire, self._worker = world.target.wire(), worker

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._wire, name)
        if name not in REQUESTS:
            return found

        def request(*args: Any, **kwargs: Any) -> Any:
            return self._worker.request(name, lambda: found(*args, **kwargs))

        return request


class TransactingWorker:
    """What a worker does with one slot, step by step. `event` happens at request number `at`."""

    def __init__(self, world: World, at: int = -1, event: Event | None = None, path_of: Any = None) -> None:
        self.world, self.at, self.event = world, at, event
        self.path_of: Callable[[RawBatch], CopyPath] = path_of or (lambda _batch: HOME)
        self.requests = 0
        self.registered: dict[int, CopyPath] = {}
        self.trouble: dict[int, Halt | Reinspect] = {}
        self.copies: list[TransactionCopy] = []
        self.writer = SlotWriter(
            FLOW,
            SLOT,
            HOME,
            lambda _address: Wire(world, self),  # type: ignore[arg-type,return-value]
            lambda: world.target.coordinator.version,
            self.registered.__setitem__,
            world.paths,
        )

    def request(self, _name: str, execute: Callable[[], Any]) -> Any:
        self.requests += 1
        if self.requests - 1 == self.at and self.event is not None:
            return self.event(execute)
        return execute()

    def open(self) -> None:
        self.writer.open()
        ledger = self.world.known()
        self.copies = []
        for partition in range(self.world.partitions):
            here, there = (
                self._led(self.world.source, TOPIC, partition),
                self._led(self.world.target, MERGED, partition),
            )
            decided = find_transaction_recovery_point(
                key_of(partition), ledger.get(key_of(partition)), InspectedRanges.of(here, there, True), "earliest"
            )
            assert isinstance(decided, TransactionRecoveryPoint), decided
            known, begins = decided.known, decided.begins
            copy = TransactionCopy(
                key=key_of(partition),
                source_id=here.topic_id,
                target_id=there.topic_id,
                source=SourceCursor(known.position.position, known.position.leader_epoch, limit=self.world.limit),
                progress=TargetProgress(known.position.target_end),
                track=PositionTracker(known),
                path_of=self.path_of,
                begins=begins,
            )
            self.copies.append(copy)
        self.writer.partitions = tuple(SlotPartition(copy, AT) for copy in self.copies)

    def fetch(self, max_bytes: int = 100) -> None:
        for copy in self.copies:
            if copy.trouble is not None or copy.source.is_at_limit:
                continue
            asked = FetchPartition(
                copy.source_id, copy.key.partition, copy.source.position, copy.source.leader_epoch, max_bytes
            )
            (answer,) = self.world.source.wire().fetch((asked,), max_wait_ms=0)
            assert answer.error == 0, answer
            limit = self.world.limit
            terms = RepackTerms(
                compression=GZIP if copy.source.position % 2 else None, end=None if limit is None else limit.offset
            )
            copy.accept(select_batches(answer.records, copy.source.position, answer.aborted, terms=terms))

    def round(self) -> bool:
        """Fetch and write once; False when everything is copied. A session that is lost is opened again."""
        try:
            if not self.copies or all(copy.trouble is not None for copy in self.copies):
                self.open()
            self.fetch()
            self.writer._positions_at = 0.0
            self.world.disturb()
            wrote = self.writer.step()
        except (SessionLost, ClusterError) as lost:
            trouble = lost.trouble if isinstance(lost, SessionLost) else Reinspect(str(lost))
            self.writer.end_session(trouble)
            return True
        for copy in self.copies:
            if isinstance(copy.trouble, Halt):
                self.trouble[copy.key.partition] = copy.trouble
        return wrote or any(copy.queue.ready for copy in self.copies if copy.trouble is None)

    def finish(self) -> None:
        for _ in range(400):
            if not self.round():
                for copy in self.copies:
                    queue, progress = copy.queue, copy.progress
                    assert queue.saved == queue.buffered == 0 or copy.trouble is not None
                    assert 0 <= progress.saved_bytes < progress.copied_bytes or not progress.copied_bytes
                return
        raise AssertionError(f"no end: {self.copies}")

    def _led(self, cluster: FakeCluster, topic: str, partition: int) -> LeaderLog:
        log, found = cluster.log(topic, partition), cluster.topics()[topic]
        return LeaderLog(
            found.topic_id, AT, log.log_start, log.last_stable() if cluster is self.world.source else log.end
        )


def key_of(partition: int) -> PartitionKey:
    return PartitionKey(FLOW, TOPIC, MERGED, partition)


def lost(executed: bool, world: World) -> Event:
    """The connection breaks: before the request arrives, or before its answer does."""

    def event(execute: Callable[[], Any]) -> Any:
        if executed:
            execute()
        raise unreachable(world)

    return event


def unreachable(world: World) -> Unreachable:
    return world.target.unreachable()


def _content(record: BatchRecord) -> tuple[Any, ...]:
    return record.key, record.value, record.timestamp, record.headers


def _json(value: bytes | None) -> dict[str, Any]:
    import json

    found: dict[str, Any] = json.loads(value or b"{}")
    return found


def offsets_of(records: Iterable[BatchRecord]) -> list[int]:
    return [record.offset for record in records]
