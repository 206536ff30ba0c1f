"""Following the ledger says at every moment what reading it whole says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.replicator.test_adoption_ledger import CLAIM, MM2
from tests.replicator.test_ledger import KEY, block, store
from watershed.clusters.control_records import ControlRecord, StoredControlRecord
from watershed.clusters.errors import Unreachable
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.ledger import shared_ledger
from watershed.replicator.ledger.foreign_part import build_foreign_records
from watershed.replicator.ledger.ledger import build_ledger
from watershed.replicator.ledger.ledger_block import LedgerBlock
from watershed.replicator.ledger.ledger_follower import LedgerFollower
from watershed.replicator.ledger.offset_map import OffsetRun
from watershed.replicator.ledger.transaction_positions import build_path_entry
from watershed.replicator.partition_key import PartitionKey

SETTINGS = ConnectionSettings("cloud", ("127.0.0.1:1",))


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[ControlRecord]:
    stored: list[ControlRecord] = []

    def read_log(
        _settings: object, _topic: str, _slots: object, after: Mapping[int, int], **_how: object
    ) -> Iterator[StoredControlRecord]:
        return (store(record) for record in list(stored) if record.offset >= after.get(record.partition, 0))

    monkeypatch.setattr(shared_ledger, "read_stored_records", read_log)
    return stored


def put(log: list[ControlRecord], key: str, value: dict[str, Any] | None) -> None:
    log.append(ControlRecord(0, len(log), 0, key, value))


def as_earlier(found: LedgerBlock) -> dict[str, Any]:
    """The record as the version before packed runs wrote it."""
    return {
        "schema": 1, "flow": found.key.flow, "topic": found.key.topic, "target_topic": found.key.target_topic,
        "partition": found.key.partition, "generation": found.generation.number, "worker": found.generation.worker,
        "block": found.number, "start": found.start, "producer_id": found.identity.producer_id,
        "epoch": found.identity.epoch, "base": found.identity.base, "source_id": str(found.source_id),
        "target_id": str(found.target_id), "runs": [list(run) for run in found.runs], "epochs": [],
    }  # fmt: skip


def test_a_map_that_an_earlier_version_began_and_this_one_goes_on_with(log: list[ControlRecord]) -> None:
    tail = LedgerFollower(SETTINGS, KEY.flow, range(1))
    before, after = block(1, "old", 0, (0, 0), (40, 45)), block(2, "new", 100, (100, 105), (120, 130))
    put(log, before.record_key, as_earlier(before))
    assert tail.read().map(KEY.flow, KEY.topic, KEY.partition).runs == ((0, 0), (40, 45))
    put(log, after.record_key, after.to_json())
    expected = ((0, 0), (40, 45), (120, 130))
    assert build_ledger(log).map(KEY.flow, KEY.topic, KEY.partition).runs == expected
    assert tail.read().map(KEY.flow, KEY.topic, KEY.partition).runs == expected


def test_what_another_tool_copied_is_followed_with_what_we_did(log: list[ControlRecord]) -> None:
    for key, value in build_foreign_records(CLAIM.key, CLAIM.adopted, MM2):
        put(log, key, value)
    put(log, CLAIM.record_key, CLAIM.to_json())
    found = LedgerFollower(SETTINGS, CLAIM.key.flow, range(1)).read().map(CLAIM.key.flow, "orders", 0)
    assert [found.to_target(at, 200) for at in (0, 99, 111, 112)] == [0, 99, 159, 160]


def test_partitions_are_kept_apart_and_what_is_deleted_goes(log: list[ControlRecord]) -> None:
    other = replace(block(1, "a", 0, (0, 7)), key=PartitionKey(KEY.flow, KEY.topic, KEY.target_topic, 4))
    late = block(1, "a", 0, (5, 9), number=1)
    for each in (block(1, "a", 0, (0, 0)), late, other):
        put(log, each.record_key, each.to_json())
    put(log, *build_path_entry(KEY.flow, 0, ("cluster",)))
    put(log, "someone-else|orders|3|1.a|0", block(1, "a", 0, (0, 50)).to_json() | {"flow": "someone-else"})
    tail = LedgerFollower(SETTINGS, KEY.flow, range(1))
    found = tail.read()
    assert set(found.partitions) == {KEY, other.key}
    assert found.map(KEY.flow, KEY.topic, 3).runs == (OffsetRun(0, 0), OffsetRun(5, 9))
    put(log, late.record_key, None)
    found = tail.read()
    assert found.map(KEY.flow, KEY.topic, 3).runs == (OffsetRun(0, 0),)
    assert found.map(KEY.flow, KEY.topic, 4).runs == (OffsetRun(0, 7),)


def test_a_read_that_ends_half_way_is_gone_on_with(log: list[ControlRecord], monkeypatch: pytest.MonkeyPatch) -> None:
    tail = LedgerFollower(SETTINGS, KEY.flow, range(1))
    for each in (block(1, "a", 0, (0, 0)), block(1, "a", 0, (5, 9), number=1)):
        put(log, each.record_key, each.to_json())
    with monkeypatch.context() as broken:
        broken.setattr(shared_ledger, "read_stored_records", lambda *_args, **_how: _then_lost(log))
        with pytest.raises(Unreachable):
            tail.read()
    assert tail.read().map(KEY.flow, KEY.topic, KEY.partition).runs == (OffsetRun(0, 0), OffsetRun(5, 9))


def _then_lost(records: list[ControlRecord]) -> Iterator[StoredControlRecord]:
    yield from map(store, records)
    raise SETTINGS.unreachable("the connection was lost")
