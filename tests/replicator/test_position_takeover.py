"""A target without topic ids that other writers share: whether it still holds what was copied there last."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from watershed.clusters.fake_cluster import FakeCluster
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.wire.topic_names import build_stand_in_id
from watershed.replicator.ledger.ledger import Ledger
from watershed.replicator.ledger.offset_map import ExplicitRun, OffsetRun
from watershed.replicator.ledger.transaction_positions import PositionAndRuns, TransactionPosition
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import Halt
from watershed.replicator.recovery import log_inspection, source_comparison
from watershed.replicator.recovery.position_takeover import InspectedPartition, PositionTakeover
from watershed.replicator.recovery.settled_log_ends import SettledLogEnds
from watershed.replicator.recovery.transaction_recovery_point import RecoveryTrouble, TransactionRecoveryPoint
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

KEY = PartitionKey("f", "orders", "all-orders", 0)
STAND_IN = build_stand_in_id("zk-cluster", "all-orders")
RECORD = FlowRecord(
    PlanFlow("f", "onprem", "cloud", TopicSelection(include=(Selector("literal", "orders"),))), "sha256:0", "shop"
)


OURS = [b"a", b"b", b"other 1", b"other 2", b"c", b"d"]


def decide(
    monkeypatch: pytest.MonkeyPatch, stored: list[bytes], *, knows_id: bool = False, compacted: int = 0
) -> list[TransactionRecoveryPoint | RecoveryTrouble]:
    """What is decided where source offsets 0 to 3 were copied to target offsets 0, 1, 4, 5, and the target holds
    `stored` now: of a target that gives ids since, and of one that gives none still. knows_id: the ledger has the
    target's id. compacted: the cleaner has gone through everything below."""
    fakes = {alias: FakeCluster(alias) for alias in ("onprem", "cloud")}
    for module in (log_inspection, source_comparison):
        monkeypatch.setattr(module, "open_connection", lambda settings, _address=None: fakes[settings.alias].wire())
    onprem, cloud = fakes["onprem"], fakes["cloud"]
    source_id = onprem.create_topic("orders", 1).topic_id
    target_id = cloud.create_topic("all-orders", 1, configs={"cleanup.policy": "compact"}).topic_id
    for value in (b"a", b"b", b"c", b"d"):
        onprem.produce("orders", 0, [value], keys=[value], timestamp=7)
    for value in stored:
        cloud.produce("all-orders", 0, [value], keys=[value[:5]], timestamp=7)
    cloud.log("all-orders", 0).compact(compacted, 7)
    at = TransactionPosition(
        KEY,
        source_id,
        target_id if knows_id else STAND_IN,
        OffsetRun(0, 0),
        4,
        stretches=(ExplicitRun(0, 0, 2), ExplicitRun(4, 2, 2)),
    )
    ledger = Ledger({}, positions={KEY: PositionAndRuns(at)})
    nothing: Any = None
    takeover = PositionTakeover(RECORD, onprem.settings, cloud.settings, SettledLogEnds(), nothing)
    seen = takeover.inspect([KEY], ledger)[KEY]
    assert isinstance(seen, InspectedPartition), seen
    shown = [seen.ends] if knows_id else [seen.ends, replace(seen.ends, target_id=STAND_IN)]
    return [takeover.decide(KEY, ledger, ends) for ends in shown]


@pytest.mark.parametrize("stored", [OURS, [*OURS, b"other 3"]])
def test_a_target_that_holds_what_was_copied_goes_on(monkeypatch: pytest.MonkeyPatch, stored: list[bytes]) -> None:
    for found in decide(monkeypatch, stored):
        assert isinstance(found, TransactionRecoveryPoint), found
        assert found.known.position.position == 4


def test_a_target_that_was_made_anew_and_filled_by_others_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    for found in decide(monkeypatch, [b"other"] * 8):
        assert isinstance(found, Halt), found
        assert (found.state, found.expected_id) == ("target_gone", STAND_IN)
        assert "holds other records below offset 6 than were copied there last" in found.error


def test_an_id_tells_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = decide(monkeypatch, [b"other"] * 8, knows_id=True)
    assert isinstance(found, TransactionRecoveryPoint)


def test_records_of_other_writers_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cleaner took our last two; others stand between those that are left and the end."""
    for found in decide(monkeypatch, [*OURS, b"c", b"d", b"last"], compacted=9):
        assert isinstance(found, TransactionRecoveryPoint), found
