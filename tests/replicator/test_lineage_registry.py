"""The registry as the guard sees it, from records of this version and of those before it."""

from __future__ import annotations

import json
import uuid

import pytest

from tests.replicator.test_guard import written_by
from watershed.clusters.claim_rules import ClaimedPartition
from watershed.clusters.errors import ProtocolError
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.producer_registry import ProducerRecord
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.copy.loop_guard import LoopGuard
from watershed.replicator.worker.desired_state import DesiredState
from watershed.replicator.worker.loop_guards import build_producer_paths
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

FLOW = PlanFlow("a-to-b", "a", "b", TopicSelection((Selector("literal", "orders"),)))


def desired(*records: FlowRecord | ProducerRecord) -> DesiredState:
    state = DesiredState(ConnectionSettings("b", ("localhost:1",)))
    for record in records:
        state._take(record.key, json.dumps(record.to_json()).encode(), 7)
    return state


HERE = ClaimedPartition("orders", uuid.UUID(int=1), 0)


def test_every_registered_id_tells_its_way() -> None:
    told = ProducerRecord(7, "a-to-b", ("c", "a"), "transactions", "ring")
    assert build_producer_paths(desired(told)) == {7: ("c", "a")}


def test_the_id_of_a_flow_record_counts_as_well() -> None:
    """Flows that were applied before there was a registry."""
    assert build_producer_paths(desired(FlowRecord(FLOW, "", "ring", producer_id=5, source_cluster_id="A"))) == {
        5: ("A",)
    }


def test_a_record_that_cannot_be_read_is_not_passed_over() -> None:
    state = desired()
    good = ProducerRecord(7, "a-to-b", ("a",), "sequence", "pair")
    for broken in ({"schema": 2}, {"path": []}, {"path": [1]}, {"producer_id": "x"}):
        state._take(good.key, json.dumps(good.to_json() | broken).encode(), 7)
        guard = LoopGuard("a", "b", "all", lambda: build_producer_paths(state), lambda _where, _batch: True).at(HERE)
        assert not guard(written_by(8))  # an application's: others go on
        with pytest.raises(ProtocolError, match=r"record about producer id 7 in watershed\.flows cannot be read"):
            guard(written_by(7))
