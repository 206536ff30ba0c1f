"""A source topic without an id: when its last batch is read again, and what is copied behind it."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.replicator.build import data
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.fetch_session import FetchSession
from watershed.clusters.wire.messages import FetchedPartition, FetchPartition
from watershed.clusters.wire.topic_names import build_stand_in_id
from watershed.replicator.batch.repack import RepackTerms
from watershed.replicator.copy.copy_state import SourceCursor, TargetProgress
from watershed.replicator.copy.partition_copy import PartitionCopy
from watershed.replicator.copy.sequenced_producer import SequencedProducer
from watershed.replicator.partition_key import PartitionKey, ProducerIdentity
from watershed.replicator.partition_states import Reinspect
from watershed.replicator.recovery.log_inspection import BrokerAddress
from watershed.replicator.transport import confirmation
from watershed.replicator.transport.active_copy import ActiveCopy
from watershed.replicator.transport.fetcher import Fetcher
from watershed.replicator.transport.rate_limit import RateLimit

ZOOKEEPER = ConnectionSettings("onprem", ("127.0.0.1:1",))
NOWHERE = BrokerAddress("127.0.0.1", 1)
STAND_IN = build_stand_in_id("zk-cluster", "orders")


class Source:
    """The leader of one partition with these batches, one record each. busy: answers to come that name nothing, as a
    quota is used up. end: what it calls its end, if not that of the batches. `asked` are the offsets it was asked for.
    """

    throttle_ms = 0

    def __init__(self, *batches: bytes) -> None:
        self.batches = list(batches)
        self.asked: list[int] = []
        self.busy = 0
        self.end: int | None = None

    def fetch(self, asked: tuple[FetchPartition, ...] | FetchSession, **_: Any) -> list[FetchedPartition]:
        (part,) = asked.list_wanted() if isinstance(asked, FetchSession) else asked
        self.asked.append(part.offset)
        if self.busy and part.offset < len(self.batches) - 1:
            self.busy -= 1
            return []
        end = len(self.batches) if self.end is None else self.end
        records = b"".join(self.batches[part.offset :])
        return [FetchedPartition(part.topic_id, 0, 0, end, end, 0, memoryview(records))]


class Reading:
    """A fetcher of that partition, on a clock of ours."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, source: Source, topic_id: uuid.UUID = STAND_IN) -> None:
        self.now, self.source = 1_000.0, source
        monkeypatch.setattr("watershed.replicator.transport.fetcher.time.monotonic", lambda: self.now)
        monkeypatch.setattr("watershed.replicator.transport.confirmation.time.sleep", self._sleep)
        self.copy = PartitionCopy(
            PartitionKey("onprem-to-cloud", "orders", "orders", 0),
            topic_id,
            uuid.uuid4(),
            SourceCursor(0),
            TargetProgress(0),
            producer=SequencedProducer(ProducerIdentity(7, 0, 0), 5, depth_confirmed=5),
        )
        rate, terms = RateLimit(None), RepackTerms(small=0)
        self.active = ActiveCopy(self.copy, None, rate, lambda _batch: False, NOWHERE, NOWHERE, terms=terms)
        self.fetcher = Fetcher("live", ZOOKEEPER, NOWHERE, lambda: 1 << 20)
        self.fetcher.put(self.active)
        monkeypatch.setattr(self.fetcher, "_connected", lambda: source)
        monkeypatch.setattr(self.fetcher, "_check_connection", lambda: None)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def fetch(self, after: float = 0.0) -> int:
        """The position after one more Fetch, so many seconds after the last one."""
        self.now += after
        self.active.is_busy = False  # there is no other fetcher that would have it
        self.fetcher.put(self.active)
        self.fetcher._round()
        return self.copy.source.position


def test_it_is_read_again_after_a_silence_and_only_then(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(data(0), data(1))
    reading = Reading(monkeypatch, source)
    assert reading.fetch() == 2
    source.batches.append(data(2))
    assert reading.fetch(after=confirmation.SILENCE_S / 2) == 3
    assert source.asked == [0, 2]
    source.batches.append(data(3))
    assert reading.fetch(after=60) == 4
    assert source.asked == [0, 2, 3, 2]
    assert reading.copy.trouble is None


def test_a_quiet_partition_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(data(0))
    reading = Reading(monkeypatch, source)
    for _ in range(3):
        reading.fetch(after=60)
    assert source.asked == [0, 1, 1]


def test_a_topic_with_an_id_is_never_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(data(0))
    reading = Reading(monkeypatch, source, uuid.uuid4())
    reading.fetch()
    source.batches.append(data(1))
    assert reading.fetch(after=60) == 2
    assert source.asked == [0, 1]


def test_nothing_is_copied_behind_another_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch, Source(data(0), data(1)))
    reading.fetch()
    buffered = reading.copy.queue.buffered
    reading.source.batches = [data(0), data(1, size=77), data(2)]
    assert reading.fetch(after=60) == 2
    assert reading.copy.trouble == Reinspect("the source holds another batch than before at offset 1")
    assert reading.copy.queue.buffered == buffered


def test_an_end_that_goes_back_makes_suspicious_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch, Source(data(0), data(1), data(2)))
    reading.fetch()
    reading.source.batches.append(data(3))
    reading.source.end = 2
    assert reading.fetch() == 4
    assert reading.source.asked == [0, 3, 2]


def test_a_quota_that_is_used_up_delays_what_was_read_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is kept meanwhile: to read it again would use the quota up once more."""
    source = Source(data(0), data(1))
    reading = Reading(monkeypatch, source)
    reading.fetch()
    source.batches.append(data(2))
    source.busy = 5
    assert reading.fetch(after=60) == 3
    assert source.asked.count(2) == 1
    assert source.busy == 0


def test_a_log_that_ends_before_the_last_batch_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(data(0), data(1))
    reading = Reading(monkeypatch, source)
    reading.fetch()
    shorter = FetchedPartition(STAND_IN, 0, 0, 1, 1, 0, memoryview(b""))
    monkeypatch.setattr(source, "fetch", lambda *_, **__: [shorter])
    copies = {(STAND_IN, 0): reading.copy}
    assert confirmation.confirm_sources(source, copies) == set()  # type: ignore[arg-type]
    assert isinstance(reading.copy.trouble, Reinspect)
