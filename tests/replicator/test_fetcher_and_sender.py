"""Fetchers and senders without brokers and threads: who delivers, who sends, and whose trouble a bad answer is."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from clusters.errors import Unreachable
from clusters.fake_cluster import FakeCluster
from clusters.fake_wire import FakeWire
from clusters.settings import ConnectionSettings
from clusters.wire.messages import FetchedPartition, ProducedPartition
from replicator.batch.record_batch import RawBatch
from replicator.batch.repack import RepackTerms
from replicator.copy.copy_state import SourceCursor, TargetProgress
from replicator.copy.partition_copy import PartitionCopy
from replicator.copy.sequenced_producer import SequencedProducer
from replicator.ledger.ledger_block import Generation, LedgerBlock
from replicator.ledger.ledger_writer import PartitionLedgerWriter
from replicator.ledger.offset_map import OffsetRun
from replicator.partition_key import MAX_BATCHES_IN_FLIGHT, PartitionKey, ProducerIdentity
from replicator.partition_states import Reinspect
from replicator.recovery.log_inspection import BrokerAddress
from replicator.transport.active_copy import CALM_FETCHES, ActiveCopy
from replicator.transport.broker_threads import TargetBrokerThreads
from replicator.transport.fetcher import Fetcher, _can_fetch, _deliver_or_stop
from replicator.transport.rate_limit import RateLimit
from tests.replicator.build import commit, data

SOURCE, TARGET = uuid.uuid4(), uuid.uuid4()
KEY = PartitionKey("onprem-to-cloud", "orders", "orders", 0)
NOWHERE = BrokerAddress("127.0.0.1", 1)
CLOUD = ConnectionSettings("cloud", ("127.0.0.1:1",))


class Written:
    """A ledger whose records stay on their way."""

    def __init__(self) -> None:
        self.runs: list[list[list[int]]] = []

    def put_nowait(self, _topic: str, _key: str, value: dict[str, Any], _slot: int, on_done: Any) -> None:
        self.runs.append(value["runs"])


def active_copy_of(
    leave_out: Any = lambda _batch: False, depth: int = 5, partition: int = 0, source_id: uuid.UUID = SOURCE
) -> ActiveCopy:
    key = KEY._replace(partition=partition)
    copy = PartitionCopy(
        key,
        source_id,
        TARGET,
        SourceCursor(0),
        TargetProgress(0),
        producer=SequencedProducer(ProducerIdentity(7, 0, 0), depth, depth_confirmed=5),
    )
    return ActiveCopy(copy, None, RateLimit(None), leave_out, NOWHERE, NOWHERE, terms=RepackTerms(small=0))


def with_ledger(active: ActiveCopy) -> tuple[PartitionLedgerWriter, Written]:
    written = Written()
    block = LedgerBlock(KEY, Generation(1, "a"), 1, 0, ProducerIdentity(7, 0, 0), SOURCE, TARGET, ())
    ledger = PartitionLedgerWriter(
        written, block, active.sequenced_copy.durable, lambda _error: None, lambda _todo: None
    )  # type: ignore[arg-type]
    active.ledger = ledger
    return ledger, written


def answer(end: int, *batches: bytes) -> FetchedPartition:
    return FetchedPartition(SOURCE, 0, 0, end, end, 0, memoryview(b"".join(batches)))


# -- one thread at a time delivers ------------------------------------------------------------------------------------


def test_a_partition_changes_lanes_only_when_its_runs_are_with_the_ledger() -> None:
    """The other thread may go on in the very moment in which the kind changes: its runs come behind ours."""
    active = active_copy_of()
    ledger, _written = with_ledger(active)
    handed_over: list[str] = []

    def other_lane() -> None:
        handed_over.append(active.kind)
        if len(handed_over) == 1:
            _deliver_or_stop(active, answer(9, data(3), commit(4, 1), data(5)))

    active.room = other_lane
    _deliver_or_stop(active, answer(9, data(0), commit(1, 1), data(2)))
    assert handed_over == ["bulk"]
    announced = [*map(OffsetRun, *ledger._open), *ledger._waiting]
    assert announced == [OffsetRun(1, 2), OffsetRun(3, 5)]


def test_the_lane_that_a_partition_comes_back_to_is_woken() -> None:
    active = active_copy_of()
    active.kind = "bulk"
    woken: list[str] = []
    active.room = lambda: woken.append(active.kind)
    for _ in range(CALM_FETCHES):
        assert woken == []
        _deliver_or_stop(active, answer(0))
    assert woken == ["live"]


# -- what a broker has nothing to say of ------------------------------------------------------------------------------


class OneCopy:
    """A fetcher of a cluster in memory, round by round; its partition is at the end of an empty log."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, wire: type[FakeWire] = FakeWire) -> None:
        self.cluster = FakeCluster("onprem")
        topic = self.cluster.create_topic("orders", 1).topic_id
        self.active = active_copy_of(source_id=topic)
        self.wire = wire(self.cluster)
        monkeypatch.setattr("replicator.transport.broker_connection.open_connection", lambda *_: self.wire)
        self.fetcher = Fetcher(
            self.active.kind, self.cluster.settings, NOWHERE, lambda: (self.active,), lambda: 1 << 20
        )
        monkeypatch.setattr(self.fetcher, "_check_connection", lambda: None)

    def fetch(self) -> float:
        """One round; when the source was seen, in seconds of the monotonic clock."""
        self.fetcher._fetch([(self.active, 1 << 20)], 1 << 20, 0.0, 0.0)
        return self.active.copy.source.seen_at


def test_a_quiet_source_is_seen_although_no_answer_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not seen for a while looks to a failover as if it were gone."""
    scene = OneCopy(monkeypatch)
    seen = [scene.fetch() for _ in range(3)]
    assert 0 < seen[0] < seen[1] < seen[2]


def test_a_quiet_partition_becomes_live_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = OneCopy(monkeypatch)
    scene.active.kind = scene.fetcher.kind = "bulk"
    for _ in range(CALM_FETCHES):
        assert scene.active.kind == "bulk"
        scene.fetch()
    assert scene.active.kind == "live"


def test_silence_is_a_quota_only_where_the_broker_says_how_long_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    class Throttled(FakeWire):
        def fetch(self, *arguments: Any, **more: Any) -> list[FetchedPartition]:
            return [] if self.throttle_ms else super().fetch(*arguments, **more)

    scene = OneCopy(monkeypatch, Throttled)
    fits = scene.fetcher._fits
    before = [scene.fetch() for _ in range(3)][-1]
    assert scene.fetcher._fits == fits
    scene.wire.throttle_ms = 900
    assert scene.fetch() == before  # it says nothing of any partition
    assert scene.fetcher._fits < fits


def test_a_fetch_waits_the_longer_the_more_partitions_are_gone_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a partition the walk takes no time to speak of; with ten thousand it would take a core."""
    waits: list[int] = []

    class Waits(FakeWire):
        def fetch(self, *arguments: Any, **more: Any) -> list[FetchedPartition]:
            waits.append(more["max_wait_ms"])
            return super().fetch(*arguments, **more | {"max_wait_ms": 0})

    scene = OneCopy(monkeypatch, Waits)
    for walk_s in (0.0, 0.02, 9.0):
        scene.fetcher._walk_s = walk_s
        scene.fetcher._round()
    assert waits == [100, 400, 500]


def test_a_lost_connection_begins_the_session_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = OneCopy(monkeypatch)
    scene.fetch()
    assert scene.fetcher._session.is_incremental
    scene.fetcher._dropped("gone", True)
    assert not scene.fetcher._session.is_incremental
    assert isinstance(scene.active.copy.trouble, Reinspect)


# -- one thread at a time sends ---------------------------------------------------------------------------------------


def test_a_partition_is_never_sent_by_two_lanes_at_once() -> None:
    link = TargetBrokerThreads(CLOUD, NOWHERE)
    live, bulk = link._senders["live"], link._senders["bulk"]
    active = active_copy_of()
    link.add(active)
    _deliver_or_stop(active, answer(9, data(0), data(1), data(2)))  # not at the end: it is to go by the bulk thread
    assert active.kind == "bulk"
    original = live._offer

    def offer(active: ActiveCopy) -> None:  # it is put into the live thread once more while it changes threads
        live.put(active)
        original(active)

    live._offer = offer
    assert live._gather_request() == []
    live._offer = original
    assert active.carrier == "bulk"
    in_flight = bulk._gather_request()
    assert [outgoing.first for _, outgoing in in_flight] == [0]
    active.kind = "live"  # meanwhile the fetching side found the log's end
    assert live._gather_request() == []
    assert [outgoing.first for outgoing in active.sequenced_copy.queue.in_flight] == [0]
    active.sequenced_copy.answered(ProducedPartition(TARGET, 0, 0, 0, 0, ""))
    active.wake()
    assert bulk._gather_request() == []
    assert active.carrier == "live"
    assert [outgoing.first for _, outgoing in live._gather_request()] == [1]


# -- whose trouble --------------------------------------------------------------------------------------------------


def test_a_registry_that_does_not_answer_is_this_partitions_trouble() -> None:
    def leave_out(_batch: RawBatch) -> bool:
        raise Unreachable("the registry of onprem cannot be read", alias="onprem")

    active = active_copy_of(leave_out)
    _deliver_or_stop(active, answer(1, data(0)))
    assert active.copy.trouble == Reinspect("the registry of onprem cannot be read")
    assert (active.copy.source.position, active.copy.queue.buffered) == (0, 0)


def test_an_answer_that_breaks_us_becomes_a_loud_state_in_the_end(caplog: pytest.LogCaptureFixture) -> None:
    def leave_out(_batch: RawBatch) -> bool:
        raise IndexError("out of range")

    active = active_copy_of(leave_out)
    _deliver_or_stop(active, answer(1, data(0)))
    trouble = active.copy.trouble
    assert isinstance(trouble, Reinspect)
    assert trouble.halts_as == "rejected"
    assert "offset 0" in trouble.reason
    assert "IndexError" in trouble.reason
    assert [record.message for record in caplog.records] == ["answer failed"]


# -- a slow target --------------------------------------------------------------------------------------------------


def answered_in_turn(active: ActiveCopy) -> None:
    outgoing = active.sequenced_copy.next_outgoing()
    assert outgoing is not None
    active.sequenced_copy.answered(ProducedPartition(TARGET, 0, 0, outgoing.first, 0, ""))


def test_tiny_batches_are_left_on_the_source_while_others_wait() -> None:
    """They come merged when the row is shorter; one request for each would make a short delay a long one."""
    active = active_copy_of()
    for at in range(MAX_BATCHES_IN_FLIGHT):
        assert _can_fetch(active)
        _deliver_or_stop(active, answer(at + 1, data(at)))
    assert not _can_fetch(active)
    answered_in_turn(active)
    assert _can_fetch(active)


def test_batches_of_some_size_are_fetched_ahead() -> None:
    active = active_copy_of()
    for at in range(3 * MAX_BATCHES_IN_FLIGHT):
        _deliver_or_stop(active, answer(at + 1, data(at, size=20_000)))
    assert _can_fetch(active)
