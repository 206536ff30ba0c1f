"""The ledger that several threads read at once: each gets what the cluster has, and nothing is put together twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.replicator.test_ledger import KEY, block, store
from watershed.clusters.control_records import ControlRecord, StoredControlRecord
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.ledger import shared_ledger
from watershed.replicator.ledger.ledger import build_partition_ledger
from watershed.replicator.ledger.ledger_block import LedgerBlock
from watershed.replicator.ledger.record_format import FlowPartition
from watershed.replicator.ledger.shared_ledger import SharedLedger

CLOUD = ConnectionSettings("cloud", ("127.0.0.1:1",))
NEXT = KEY._replace(partition=4)
FOREIGN = KEY._replace(flow="other")


@dataclass
class Log:
    """One slot of the ledger. begun: the offsets at which reads began; meanwhile: runs in the middle of the next read;
    built: the partitions that were put together."""

    records: list[ControlRecord] = field(default_factory=list)
    begun: list[int] = field(default_factory=list)
    meanwhile: Callable[[], None] | None = None
    built: list[FlowPartition] = field(default_factory=list)

    def put(self, key: Any, *runs: tuple[int, int], number: int = 0) -> LedgerBlock:
        written = replace(block(1, "a", 0, *runs, number=number), key=key)
        self.records.append(ControlRecord(0, len(self.records), 0, written.record_key, written.to_json()))
        return written

    def read(
        self, _settings: object, _topic: str, _slots: object, after: Mapping[int, int], **_how: object
    ) -> Iterator[StoredControlRecord]:
        self.begun.append(after[0])
        for record in self.records[after[0] :]:
            meanwhile, self.meanwhile = self.meanwhile, None
            if meanwhile is not None:
                meanwhile()
            yield store(record)

    def build(self, place: FlowPartition, records: list[ControlRecord]) -> Any:
        self.built.append(place)
        return build_partition_ledger(place, records)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    found = Log()
    monkeypatch.setattr(shared_ledger, "read_stored_records", found.read)
    monkeypatch.setattr(shared_ledger, "build_partition_ledger", found.build)
    return found


def test_what_is_known_is_neither_read_nor_put_together_again(log: Log) -> None:
    log.put(KEY, (0, 0))
    log.put(NEXT, (0, 3))
    ledger = SharedLedger(CLOUD)
    assert set(ledger.read([KEY.flow], [0]).partitions) == {KEY, NEXT}
    log.put(NEXT, (5, 9), number=1)
    assert ledger.read([KEY.flow], [0]).partitions[NEXT][0].map.runs == ((0, 3), (5, 9))
    assert log.begun == [0, 2]
    assert sorted(place.partition for place in log.built) == [3, 4, 4]


def test_a_thread_that_is_overtaken_gives_the_same_answer(log: Log) -> None:
    for number in range(3):
        log.put(KEY, (10 * number, 11 * number), number=number)
    ledger, others = SharedLedger(CLOUD), []

    def overtake() -> None:
        log.put(KEY, (90, 99), number=3)
        others.append(ledger.read([KEY.flow], [0]).partitions[KEY][0].map.runs)

    log.meanwhile = overtake
    mine = ledger.read([KEY.flow], [0]).partitions[KEY][0].map.runs
    assert others == [mine] == [((0, 0), (10, 11), (20, 22), (90, 99))]


def test_a_flow_that_is_asked_for_later_is_read_from_the_start(log: Log) -> None:
    log.put(KEY, (0, 0))
    log.put(FOREIGN, (0, 7))
    ledger = SharedLedger(CLOUD)
    assert set(ledger.read([KEY.flow], [0]).partitions) == {KEY}
    assert set(ledger.read([FOREIGN.flow], [0]).partitions) == {FOREIGN}
    assert set(ledger.read([KEY.flow], [0]).partitions) == {KEY}
    assert log.begun == [0, 0, 2]


def test_what_was_read_long_ago_is_read_again(log: Log) -> None:
    log.put(KEY, (0, 0))
    ledger = SharedLedger(CLOUD, kept_s=-1.0)
    assert ledger.read([KEY.flow], [0]).partitions == ledger.read([KEY.flow], [0]).partitions
    assert log.begun == [0, 0]


def test_a_deleted_partition_is_gone_and_only_the_blocks_that_are_asked_for_come(log: Log) -> None:
    written = log.put(KEY, (0, 0))
    log.put(NEXT, (0, 3))
    ledger = SharedLedger(CLOUD)
    ledger.read([KEY.flow], [0])
    log.records.append(ControlRecord(0, 2, 0, written.record_key, None))
    assert set(ledger.read([KEY.flow], [0]).partitions) == {NEXT}
    places = {FlowPartition(key.flow, key.topic, key.partition) for key in (KEY, NEXT)}
    assert [found.key for found in ledger.read_blocks(places, [0])] == [NEXT]


def test_what_is_released_is_read_anew_and_other_flows_stay(log: Log) -> None:
    log.put(KEY, (0, 0))
    log.put(FOREIGN, (0, 7))
    ledger = SharedLedger(CLOUD)
    ledger.read([KEY.flow, FOREIGN.flow], [0])

    def release() -> None:
        ledger.release(KEY.flow, [0])

    log.put(KEY, (5, 9), number=1)
    log.meanwhile = release  # in the middle of a read of the same flow
    assert ledger.read([KEY.flow], [0]).partitions[KEY][0].map.runs == ((0, 0), (5, 9))
    assert set(ledger.read([FOREIGN.flow], [0]).partitions) == {FOREIGN}
    assert ledger.read([KEY.flow], [0]).partitions[KEY][0].map.runs == ((0, 0), (5, 9))
    assert log.begun == [0, 2, 2, 0]


def test_flows_that_were_asked_for_before_share_a_read(log: Log) -> None:
    """A worker is killed: another one inspects its flows one after the other, in the same slots."""
    log.put(KEY, (0, 0))
    log.put(FOREIGN, (0, 7))
    ledger = SharedLedger(CLOUD)
    ledger.read([KEY.flow, FOREIGN.flow], [0])
    for flow in (KEY.flow, FOREIGN.flow):
        ledger.release(flow, [0])
    log.begun.clear()
    log.built.clear()
    assert set(ledger.read([KEY.flow], [0]).partitions) == {KEY}
    assert [place.flow for place in log.built] == [KEY.flow]
    assert set(ledger.read([FOREIGN.flow], [0]).partitions) == {FOREIGN}
    assert log.begun == [0, 2]
