"""What a flow claimed in a topic that had no id: an upgrade of the brokers gives it one, and the claims stay true."""

from __future__ import annotations

import uuid

import pytest

from watershed.clusters.claim_rules import ClaimedPartition, PartitionClaims, find_partition_claims
from watershed.clusters.control_records import ControlRecord
from watershed.clusters.wire.topic_names import build_stand_in_id
from watershed.replicator.batch.record_batch import RawBatch
from watershed.replicator.ledger.claims import build_claims
from watershed.replicator.ledger.claims_follower import ClaimsView
from watershed.replicator.ledger.ledger_block import Generation, LedgerBlock
from watershed.replicator.ledger.offset_map import OffsetRun
from watershed.replicator.partition_key import PartitionKey, ProducerIdentity

FLOW = "onprem-to-cloud"
KEY = PartitionKey(FLOW, "orders", "mirror.orders", 0)
STAND_IN, REAL, OTHER = build_stand_in_id("zk-cluster", "mirror.orders"), uuid.uuid4(), uuid.uuid4()


def record(number: int, target_id: uuid.UUID, epoch: int, start: int) -> ControlRecord:
    identity = ProducerIdentity(7, epoch, start)
    runs = (OffsetRun(start, start),)
    block = LedgerBlock(KEY, Generation(number, f"w{number}"), 1, start, identity, OTHER, target_id, runs)
    return ControlRecord(0, number, 0, block.record_key, block.to_json())


@pytest.mark.parametrize("seen_id", [STAND_IN, REAL])
@pytest.mark.parametrize("later", [(), (record(2, REAL, 1, 10),)], ids=["not taken over since", "taken over since"])
def test_claims_count_before_and_after_the_upgrade(seen_id: uuid.UUID, later: tuple[ControlRecord, ...]) -> None:
    view, records = ClaimsView(), [record(1, STAND_IN, 0, 0), *later]
    for each in records:
        view.take(each)
    view.settle({FLOW})
    batch = RawBatch(3, 5, 0, 0, 0, 7, 0, 3, 2, memoryview(b""))
    assert view.covers(ClaimedPartition("mirror.orders", seen_id, 0), batch)
    rules = find_partition_claims(build_claims(records, {FLOW}), "mirror.orders", seen_id, 0).rules
    assert any(rule.covers(7, 0, 3, 3, 5) for rule in rules)
    assert not any(rule.covers(7, 0, 4, 3, 5) for rule in rules)


def test_claims_in_a_topic_with_an_id_say_nothing_of_the_next_one() -> None:
    claims = build_claims([record(1, REAL, 0, 0)], {FLOW})
    assert find_partition_claims(claims, "mirror.orders", OTHER, 0) == PartitionClaims()


def test_what_was_written_in_transactions_on_both_sides_of_the_upgrade_is_claimed() -> None:
    def columns(*numbers: int) -> bytes:
        return b"".join(number.to_bytes(8, "little") for number in numbers)

    place = ClaimedPartition("mirror.orders", REAL, 0)
    by_id, by_name = place.list_places()
    claims = {
        by_id: PartitionClaims((), columns(20), columns(25), (("a", 20),)),
        by_name: PartitionClaims((), columns(0, 10), columns(5, 12), (("a", 0), ("b", 3))),
    }
    found = find_partition_claims(claims, *place)
    assert (found.firsts, found.ends) == (columns(0, 10, 20), columns(5, 12, 25))
    assert found.begun == (("a", 0), ("b", 3))
