"""Topics that had no ids when they were copied, and have some since an upgrade: groups, traces and proofs go on."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from watershed.clusters.group_offsets import LogOffsets
from watershed.clusters.producer_registry import ProducerRecord
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire.topic_names import build_stand_in_id
from watershed.replicator import trace
from watershed.replicator.ledger.foreign_part import ForeignPart, JoinedOffsetMap
from watershed.replicator.ledger.ledger import Ledger
from watershed.replicator.ledger.ledger_state import LedgerState
from watershed.replicator.ledger.offset_map import ExplicitRun, OffsetMap, OffsetRun
from watershed.replicator.partition_key import PartitionKey, ProducerIdentity
from watershed.replicator.sync.group_translation import CopiedLogs, CopyDirections
from watershed.replicator.trace import TraceHop
from watershed.spark.judging import flow_observation
from watershed.spark.judging.flow_observation import PartitionAlignment

KEY = PartitionKey("f", "orders", "all-orders", 0)
HERE, THERE = TopicPartition("orders", 0), TopicPartition("all-orders", 0)
OLD = (build_stand_in_id("onprem", "orders"), build_stand_in_id("cloud", "all-orders"))
NEW = (uuid.uuid4(), uuid.uuid4())
OTHER = (uuid.uuid4(), uuid.uuid4())
MAP = OffsetMap((OffsetRun(0, 10),))
EACH = pytest.mark.parametrize(("known", "is_told"), [(NEW, True), (OLD, True), (OTHER, False)])


@EACH
def test_groups_are_translated(known: tuple[uuid.UUID, uuid.UUID], is_told: bool) -> None:
    here, there = LogOffsets(str(NEW[0]), 10, 20, 20), LogOffsets(str(NEW[1]), 0, 10, 10)
    ways = {HERE: CopyDirections(THERE, None)}
    logs = CopiedLogs(ways, {HERE: here}, {THERE: there}, {("f", HERE): (MAP, known)})
    found = logs.landing("f", HERE, 15)
    assert found is not None
    assert (found.offset == 5) == is_told, found


@EACH
def test_proofs_use_the_ledger(known: tuple[uuid.UUID, uuid.UUID], is_told: bool) -> None:
    facts: Any = SimpleNamespace(flow=SimpleNamespace(source="onprem", target="cloud"))
    why = flow_observation._explain_unusable(facts, PartitionAlignment(MAP, known), NEW)
    assert bool(why) != is_told
    assert is_told or f"made anew on onprem since the flow copied it (id {OTHER[0]}, now {NEW[0]})" in why
    assert not flow_observation._explain_unusable(facts, PartitionAlignment(MAP), NEW)


@EACH
def test_records_are_traced(monkeypatch: pytest.MonkeyPatch, known: tuple[uuid.UUID, uuid.UUID], is_told: bool) -> None:
    tool = JoinedOffsetMap.over(
        ForeignPart("MirrorMaker 2", 4, 4, (ExplicitRun(0, 0, 4),)), OffsetMap((OffsetRun(4, 4),))
    )
    ledger = Ledger({KEY: (LedgerState(tool, ProducerIdentity(7, 0, 4), *known), 1)})
    monkeypatch.setattr(trace, "read_ledger", lambda *_, **__: ledger)
    monkeypatch.setattr(trace, "read_alignments", lambda _: {})
    flow: Any = SimpleNamespace(flow=SimpleNamespace(id="f", source_topic=lambda _: "orders"))
    clusters = trace._Clusters(("cloud",), lambda _: SimpleNamespace())  # type: ignore[arg-type,return-value]
    monkeypatch.setattr(trace._Clusters, "_registry", lambda *_: ({"f": flow}, {}))
    here: Any = SimpleNamespace(
        led=SimpleNamespace(topic_id=NEW[1], end=9),
        batch=SimpleNamespace(base=5, base_sequence=1, producer_id=7, producer_epoch=0),
    )
    adopted = clusters.adopted("cloud", TraceHop("cloud", "id", "all-orders", 0, 2, -1, 0), here)
    assert (adopted is not None) == is_told
    producer = ProducerRecord(7, "f", ("onprem",), "sequence", "shop")
    hop = TraceHop("cloud", "id", "all-orders", 0, 5, 7, 0)
    if not is_told:
        with pytest.raises(trace._Ends, match="knows nothing of"):
            clusters.before("cloud", hop, producer, flow, here)
        return
    came, _ = clusters.before("cloud", hop, producer, flow, here)
    assert (came.topic, came.offset, came.topic_id) == ("orders", 5, known[0])
    at_source: Any = SimpleNamespace(led=SimpleNamespace(topic_id=NEW[0]), retained=True)
    trace._require_same_topic(at_source, came, "onprem", 5)
