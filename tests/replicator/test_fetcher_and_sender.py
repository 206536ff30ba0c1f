"""Fetchers and senders without brokers and threads: who delivers, who sends, and whose trouble a bad answer is."""

from __future__ import annotations

import time
import uuid
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from tests.replicator.build import commit, data
from watershed.clusters.errors import Unreachable
from watershed.clusters.fake_cluster import FakeCluster
from watershed.clusters.fake_wire import FakeWire
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.messages import FetchedPartition, ProducedPartition
from watershed.replicator.batch.record_batch import RawBatch
from watershed.replicator.batch.repack import RepackTerms
from watershed.replicator.copy.copy_state import SourceCursor, TargetProgress
from watershed.replicator.copy.partition_copy import PartitionCopy
from watershed.replicator.copy.sequenced_producer import SequencedProducer
from watershed.replicator.ledger.ledger_block import Generation, LedgerBlock
from watershed.replicator.ledger.ledger_writer import PartitionLedgerWriter
from watershed.replicator.ledger.offset_map import OffsetRun
from watershed.replicator.partition_key import MAX_BATCHES_IN_FLIGHT, PartitionKey, ProducerIdentity
from watershed.replicator.partition_states import Reinspect
from watershed.replicator.recovery.log_inspection import BrokerAddress
from watershed.replicator.transport import sender as sender_module
from watershed.replicator.transport.active_copy import CALM_FETCHES, ActiveCopy
from watershed.replicator.transport.answer_delivery import deliver_answer
from watershed.replicator.transport.broker_connection import TrafficClass
from watershed.replicator.transport.broker_threads import SourceBrokerThreads, TargetBrokerThreads
from watershed.replicator.transport.fetcher import Fetcher, _can_fetch
from watershed.replicator.transport.rate_limit import RateLimit
from watershed.replicator.transport.sender import Sender
from watershed.replicator.transport.stall_detector import StallDetector

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
            deliver_answer(active, answer(9, data(3), commit(4, 1), data(5)))

    active.room = other_lane
    deliver_answer(active, answer(9, data(0), commit(1, 1), data(2)))
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
        deliver_answer(active, answer(0))
    assert woken == ["live"]


# -- what a broker has nothing to say of ------------------------------------------------------------------------------


class OneCopy:
    """A fetcher of a cluster in memory, round by round; its partition is at the end of an empty log."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, wire: type[FakeWire] = FakeWire) -> None:
        self.cluster = FakeCluster("onprem")
        topic = self.cluster.create_topic("orders", 1).topic_id
        self.active = active_copy_of(source_id=topic)
        self.wire = wire(self.cluster)
        monkeypatch.setattr("watershed.replicator.transport.broker_connection.open_connection", lambda *_: self.wire)
        self.fetcher = Fetcher(self.active.kind, self.cluster.settings, NOWHERE, lambda: 1 << 20)
        self.fetcher.put(self.active)
        monkeypatch.setattr(self.fetcher, "_check_connection", lambda: None)

    def fetch(self) -> float:
        """One round; when the source was seen, in seconds of the monotonic clock."""
        self.fetcher._review_changed(0.0)
        self.fetcher._fetch(1 << 20, 0.0)
        return self.active.source_seen_at


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


class Waits(FakeWire):
    """Remembers how long each Fetch may wait, and does not."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(cluster)
        self.waits: list[int] = []

    def fetch(self, *arguments: Any, **more: Any) -> list[FetchedPartition]:
        self.waits.append(more["max_wait_ms"])
        return super().fetch(*arguments, **more | {"max_wait_ms": 0})


def test_a_fetch_waits_the_longer_the_more_partitions_the_broker_goes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = OneCopy(monkeypatch, Waits)
    scene.fetcher._round()
    topic = scene.cluster.create_topic("quiet", 12_000).topic_id
    for last in (4_000, 12_000):
        for number in range(last):
            scene.fetcher.put(active_copy_of(source_id=topic, partition=number))
        scene.fetcher._round()
    assert scene.wire.waits == [100, 200, 500]


def test_a_live_partition_is_taken_up_soon_where_others_catch_up(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = OneCopy(monkeypatch, Waits)
    threads = SourceBrokerThreads(CLOUD, NOWHERE, lambda: 1 << 20)
    monkeypatch.setattr(scene.fetcher, "_coming_s", threads._busy._coming_s)
    scene.fetcher._round()
    assert scene.wire.waits == [30]
    threads._bulk[0].put(active_copy_of())
    scene.fetcher._round()
    assert scene.wire.waits == [30, 10]


def test_a_live_partition_that_waits_for_room_does_not_wait_out_a_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = OneCopy(monkeypatch, Waits)
    full = active_copy_of(source_id=scene.cluster.create_topic("full", 1).topic_id)
    for at in range(MAX_BATCHES_IN_FLIGHT):
        deliver_answer(full, answer(at + 1, data(at)))
    full.is_busy = False
    scene.fetcher.put(full)
    scene.fetcher._round()
    full.copy.halt("changed")
    scene.fetcher._round()
    assert scene.wire.waits == [10, 100]


def take(threads: SourceBrokerThreads, active: ActiveCopy, answered: FetchedPartition) -> None:
    threads._find_fetcher(active)._take(active, answered)


def find_owners(threads: SourceBrokerThreads) -> list[str]:
    """Which fetchers serve a partition, after each has looked at what others told it."""
    fetchers = {"quiet": threads._quiet, "busy": threads._busy, "bulk": threads._bulk[0]}
    for fetcher in fetchers.values():
        fetcher._review_changed(time.monotonic())
    return [name for name, fetcher in fetchers.items() if fetcher._served]


def test_a_partition_with_records_twice_in_a_second_does_not_wait_for_the_quiet_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It comes back to them when it has had none for five."""
    threads = SourceBrokerThreads(CLOUD, NOWHERE, lambda: 1 << 20)
    active = active_copy_of()
    threads.add(active)
    now = 1_000.0
    monkeypatch.setattr("watershed.replicator.transport.active_copy.time.monotonic", lambda: now)
    take(threads, active, answer(1, data(0)))
    now = 1_001.5
    take(threads, active, answer(2, data(1)))
    assert find_owners(threads) == ["quiet"]
    now = 1_002.0
    take(threads, active, answer(3, data(2)))
    assert find_owners(threads) == ["busy"]
    now = 1_006.9
    threads._busy._look_for_quiet_at = 0.0
    assert find_owners(threads) == ["busy"]
    now = 1_007.0
    threads._busy._look_for_quiet_at = 0.0
    threads._busy._review_changed(now)
    assert find_owners(threads) == ["quiet"]
    assert not threads._busy._asked


def test_a_busy_partition_that_falls_behind_comes_back_to_the_busy_ones() -> None:
    threads = SourceBrokerThreads(CLOUD, NOWHERE, lambda: 1 << 20)
    active = active_copy_of()
    threads.add(active)
    take(threads, active, answer(9, data(0)))
    take(threads, active, answer(9, data(1)))
    assert find_owners(threads) == ["bulk"]
    for _ in range(CALM_FETCHES):
        take(threads, active, answer(0))
    assert find_owners(threads) == ["busy"]


def test_a_round_costs_nothing_for_those_of_which_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = OneCopy(monkeypatch, Waits)
    topic = scene.cluster.create_topic("quiet", 50).topic_id
    quiet = [active_copy_of(source_id=topic, partition=number) for number in range(50)]
    for active in quiet:
        scene.fetcher.put(active)
    scene.fetcher._round()
    looked_at: list[ActiveCopy] = []
    monkeypatch.setattr(scene.fetcher, "_review", lambda active, *_: looked_at.append(active))
    scene.fetcher._round()
    assert looked_at == []
    scene.cluster.produce("quiet", 7, [b"a"])
    scene.fetcher._round()
    assert looked_at == [quiet[7]]


def test_a_partition_that_is_full_is_left_out_until_it_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = OneCopy(monkeypatch, Waits)
    monkeypatch.setattr("watershed.replicator.copy.common_copy.HELD_BYTES", 1)
    scene.cluster.produce("orders", 0, [b"a"])
    scene.fetch()
    scene.cluster.produce("orders", 0, [b"b"])
    assert scene.fetcher._asked == {}
    assert scene.fetcher.list_holders() == [scene.active]
    answered_in_turn(scene.active)
    scene.fetch()
    assert scene.active.copy.source.position == 2
    answered_in_turn(scene.active)
    scene.fetcher._review_changed(0.0)
    assert scene.fetcher.list_holders() == []


def test_a_partition_in_trouble_is_not_fetched_and_its_successor_is(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = OneCopy(monkeypatch, Waits)
    scene.fetch()
    before, after = scene.active, active_copy_of(source_id=scene.active.copy.source_id)
    before.copy.halt("changed")
    scene.cluster.produce("orders", 0, [b"a"])
    scene.fetch()
    assert before.copy.source.position == 0
    scene.fetcher.put(after)
    scene.fetcher.remove(before)
    scene.fetch()
    assert (before.copy.source.position, after.copy.source.position) == (0, 1)
    assert list(scene.fetcher._served.values()) == [after]
    scene.fetcher.remove(after)
    scene.fetcher._review_changed(0.0)
    assert (scene.fetcher._asked, scene.fetcher._served, scene.fetcher._left_out) == ({}, {}, {})


def test_a_source_is_not_seen_by_a_partition_that_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = OneCopy(monkeypatch, Waits)
    other = active_copy_of(source_id=scene.cluster.create_topic("other", 1).topic_id)
    scene.fetcher.put(other)
    scene.fetch()
    assert scene.fetch() == other.source_seen_at
    scene.active.copy.halt("changed")
    scene.fetcher.put(scene.active)
    scene.fetcher._review_changed(0.0)
    seen = scene.active.source_seen_at
    assert scene.fetch() == seen < other.source_seen_at


def test_a_flow_beyond_its_quota_is_left_out_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = OneCopy(monkeypatch, Waits)
    limited = active_copy_of(source_id=scene.cluster.create_topic("limited", 1).topic_id)
    limited.rate = RateLimit(1_000_000.0)
    limited.rate.allowance(100.0)  # a clock of ours begins
    scene.fetcher.put(limited)
    assert scene.fetcher._review_changed(101.0) == 0.1
    assert limited in scene.fetcher._asked.values()
    assert scene.fetcher._session._wanted[limited.copy.source_id, 0].max_bytes == 100_000
    limited.rate.spend(130_000, 101.0)
    assert scene.fetcher._review_changed(101.0) == pytest.approx(0.046, abs=0.001)
    assert list(scene.fetcher._asked.values()) == [scene.active]
    assert scene.fetcher._review_changed(102.0) == 0.1
    assert limited in scene.fetcher._asked.values()


def test_room_that_a_removed_partition_has_is_nobodys() -> None:
    threads = SourceBrokerThreads(CLOUD, NOWHERE, lambda: 1 << 20)
    active = active_copy_of()
    threads.add(active)
    threads.remove(active)
    active.room()
    for fetcher in threads._fetchers:
        fetcher._review_changed(0.0)
        assert (fetcher._served, fetcher._left_out, fetcher.is_used) == ({}, {}, False)
    assert threads._bulk_of == {}


@pytest.mark.parametrize(("round_trip_s", "shared"), [(0.1, [2, 2]), (0.001, [4, 0])], ids=["far away", "nearby"])
def test_partitions_that_catch_up_are_shared_by_fetchers_of_a_broker_far_away(
    round_trip_s: float, shared: list[int]
) -> None:
    """Their answers are on the way at different times."""
    threads = SourceBrokerThreads(CLOUD, NOWHERE, lambda: 1 << 20)
    threads._quiet._round_trip_s = round_trip_s
    actives = [active_copy_of() for _ in range(4)]
    for active in actives:
        threads.add(active)
        active.kind = "bulk"
        active.room()
        active.room()
    for fetcher in threads._bulk:
        fetcher._review_changed(0.0)
    assert [len(fetcher._served) for fetcher in threads._bulk] == shared
    assert {key for fetcher in threads._bulk for key in fetcher._served} == set(map(id, actives))


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
    deliver_answer(active, answer(9, data(0), data(1), data(2)))  # not at the end: it is to go by the bulk thread
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


class Awaited(Exception):
    """An answer is waited for."""


class Counted:
    """A connection on which requests are counted, and answers never come."""

    throttle_ms = 0
    buffered = False

    def __init__(self) -> None:
        self.requests = self.awaited = 0

    def receive_produce(self) -> None:
        self.awaited += 1
        raise Awaited

    def send_produce(self, _partitions: object) -> None:
        self.requests += 1

    def ended(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("kind", "round_trip_s", "requests"),
    [("live", 100.0, 1), ("live", 0.001, 1), ("bulk", 100.0, 2)],
    ids=["a live one on a long way", "a live one nearby", "one that catches up"],
)
def test_requests_of_a_long_way_leave_at_even_distances(
    monkeypatch: pytest.MonkeyPatch, kind: TrafficClass, round_trip_s: float, requests: int
) -> None:
    """Five of one record each, at once, would let the next record wait for the first answer. Nearby, whatever comes
    while one is on its way goes with the next."""
    wire = Counted()
    slept: list[float] = []
    sender = Sender(kind, CLOUD, NOWHERE, lambda _active: None, lambda _kind: [])
    monkeypatch.setattr(sender, "_connected", lambda: wire)
    monkeypatch.setattr(sender, "_connection", wire)
    monkeypatch.setattr(sender, "_sleep", lambda seconds, **_: slept.append(seconds))
    sender._round_trip_s = round_trip_s
    for _ in range(2):
        active = active_copy_of()
        deliver_answer(active, answer(1, data(0)))
        active.kind = active.carrier = kind
        sender.put(active)
        with suppress(Awaited):
            sender._round()
    assert wire.requests == requests
    assert wire.awaited == (kind == "live" and not sender.is_far)
    if sender.is_far and kind == "live":
        assert [0 < seconds <= round_trip_s / 5 for seconds in slept] == [True]
        sender._last_sent -= round_trip_s / 5
        sender._round()
        assert wire.requests == 2


@pytest.mark.parametrize(("stood_s", "halted"), [(7.0, False), (11.0, True)])
def test_a_worker_that_stood_still_for_a_whole_session_sends_nothing_more(
    monkeypatch: pytest.MonkeyPatch, stood_s: float, halted: bool
) -> None:
    """The broker would take what is next of its producer epoch, until the first batch of another worker's epoch."""
    now, wire, active = [0.0], Counted(), active_copy_of()
    monkeypatch.setattr(sender_module, "_STALLS", StallDetector(5.0, 10.0, clock=lambda: now[0]))
    sender = Sender("live", CLOUD, NOWHERE, lambda _active: None, lambda _kind: [active])
    monkeypatch.setattr(sender, "_connected", lambda: wire)
    monkeypatch.setattr(sender, "_connection", wire)
    monkeypatch.setattr(sender, "_check_connection", lambda: None)
    monkeypatch.setattr(sender, "_sleep", lambda _seconds: False)
    deliver_answer(active, answer(1, data(0)))
    sender.put(active)
    now[0] += stood_s
    with suppress(Awaited):
        sender._round()
    assert wire.requests == (0 if halted else 1)
    assert isinstance(active.copy.trouble, Reinspect) is halted


def test_a_latency_is_counted_from_the_arrival_to_an_answer_that_says_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    source = OneCopy(monkeypatch)
    active = source.active
    before = time.monotonic()
    target = TargetBrokerThreads(CLOUD, NOWHERE)
    sender = target._senders["live"]
    target.add(active)
    for records, error in ((3, error_codes.NONE), (2, error_codes.NOT_ENOUGH_REPLICAS)):
        source.cluster.produce("orders", 0, [b"x"] * records)
        source.fetch()
        request = sender._gather_request()
        assert [before <= outgoing.received_at <= time.monotonic() for _, outgoing in request] == [True]
        told = ProducedPartition(TARGET, 0, error, request[0][1].first, 0, "")
        wire = SimpleNamespace(receive_produce=lambda told=told: [told], throttle_ms=0, patience_s=0.0)
        wire.send_produce = lambda _partitions: None
        monkeypatch.setattr(sender, "_connected", lambda wire=wire: wire)
        sender._send(request)
        sender._receive()
    totals = active.latency.read()
    assert sum(totals.counts) == 3, "and not those that may not be stored"
    assert 0 < totals.seconds <= 3 * (time.monotonic() - before)


# -- whose trouble --------------------------------------------------------------------------------------------------


def test_a_registry_that_does_not_answer_is_this_partitions_trouble() -> None:
    def leave_out(_batch: RawBatch) -> bool:
        raise Unreachable("the registry of onprem cannot be read", alias="onprem")

    active = active_copy_of(leave_out)
    deliver_answer(active, answer(1, data(0)))
    assert active.copy.trouble == Reinspect("the registry of onprem cannot be read")
    assert (active.copy.source.position, active.copy.queue.buffered) == (0, 0)


def test_an_answer_that_breaks_us_becomes_a_loud_state_in_the_end(caplog: pytest.LogCaptureFixture) -> None:
    def leave_out(_batch: RawBatch) -> bool:
        raise IndexError("out of range")

    active = active_copy_of(leave_out)
    deliver_answer(active, answer(1, data(0)))
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
        deliver_answer(active, answer(at + 1, data(at)))
    assert not _can_fetch(active)
    answered_in_turn(active)
    assert _can_fetch(active)


def test_one_tiny_batch_waits_at_most_while_several_are_on_their_way() -> None:
    """To a target far away it is sent a little later; what has come until then goes with it."""
    active = active_copy_of()
    for at in range(2):
        deliver_answer(active, answer(at + 1, data(at)))
        assert active.sequenced_copy.next_outgoing() is not None
    assert _can_fetch(active)
    deliver_answer(active, answer(3, data(2)))
    assert not _can_fetch(active)
    assert active.sequenced_copy.next_outgoing() is not None
    assert _can_fetch(active)


def test_batches_of_some_size_are_fetched_ahead() -> None:
    active = active_copy_of()
    for at in range(3 * MAX_BATCHES_IN_FLIGHT):
        deliver_answer(active, answer(at + 1, data(at, size=20_000)))
    assert _can_fetch(active)
