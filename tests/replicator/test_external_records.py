"""What another tool brought to the source: told by its header or by its topic, and left out as the flow wants it."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from tests.replicator.build import NOW, batch_of, data
from watershed.clusters.claim_rules import ClaimedPartition
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.record_batch import BatchRecord, assign_batch_offset, build_batch
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.batch.record_batch import RawBatch
from watershed.replicator.copy.external_records import find_external_records
from watershed.replicator.copy.loop_guard import LoopGuard, PartitionLoopGuard
from watershed.replicator.copy.rejected_records import judge_refused_batch
from watershed.replicator.errors import PartlyMarked
from watershed.replicator.partition_states import Halt, OffsetSpan
from watershed.replicator.worker.loop_guards import LoopGuards
from watershed.topology.external_flows import ExternalFlow
from watershed.topology.naming import build_prefix_naming
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

HERE = ClaimedPartition("orders", uuid.UUID(int=1), 0)
ORDERS = TopicSelection((Selector("literal", "orders"),))
BACK = ExternalFlow("back", "mirrormaker2", "cloud", "onprem", ORDERS, marks_with="mark")
MARK, PLAIN = (("mark", None),), (("remark", b"mark"),)


def batch(*headers: tuple[tuple[str, bytes | None], ...], codec: str = "none", producer_id: int = -1) -> RawBatch:
    """A record for each of these headers, at offset 10 and up."""
    records = [BatchRecord(at, NOW, b"mark", b"the mark", each) for at, each in enumerate(headers)]
    numbers = {"producer_id": producer_id, "epoch": 0, "base_sequence": 0} if producer_id >= 0 else {}
    return batch_of(assign_batch_offset(build_batch(records, codec=codec, **numbers), 10, 0))


def guard(
    *tools: ExternalFlow, forward: str = "all", path: str = "cloud", registry=None, passed=None, **more
) -> PartitionLoopGuard:
    known = registry or {}
    paths = tuple((each, (path,)) for each in tools)
    flow = LoopGuard("onprem", "cloud", forward, lambda: known, lambda _where, _batch: False, tools=paths, **more)
    return flow.at(HERE, passed)


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("producer_id", [-1, 7])
def test_its_header_tells_a_batch(codec: str, producer_id: int) -> None:
    of_tool = batch(MARK, (*PLAIN, *MARK), codec=codec, producer_id=producer_id)
    of_application = batch(PLAIN, (), codec=codec, producer_id=producer_id)
    assert guard(BACK)(of_tool)
    assert not guard(BACK)(of_application)
    assert not guard()(of_tool)


def test_what_came_from_elsewhere_travels_on_unless_only_local_records_do() -> None:
    assert not guard(BACK, path="branch")(batch(MARK))
    assert guard(BACK, path="branch", forward="local")(batch(MARK))
    assert not guard(BACK, guarded=False)(batch(MARK))
    assert guard(BACK, guarded=False, forward="local")(batch(MARK))


def test_a_flow_that_tells_paths_tells_those_of_tools() -> None:
    assert guard(BACK, path="branch", paths=True).path_of(batch(MARK)) == ("branch", "onprem")
    assert guard(BACK, path="branch", paths=True).path_of(batch(PLAIN)) == ("onprem",)


def test_a_topic_that_only_the_tool_writes_is_its_own() -> None:
    renamed = replace(BACK, marks_with=None, naming=build_prefix_naming("cloud"))
    [found] = find_external_records(((renamed, ("cloud",)),), "cloud.orders")
    assert found.header is None
    assert found.covers(batch(PLAIN))
    assert find_external_records(((renamed, ("cloud",)),), "orders") == ()
    assert find_external_records(((replace(BACK, marks_with=None), ("cloud",)),), "orders") == ()


def test_a_batch_that_is_only_partly_marked_stops_its_partition() -> None:
    with pytest.raises(PartlyMarked, match="1 of its 2 records have the header `mark`") as stopped:
        guard(BACK)(batch(MARK, PLAIN))
    halt = judge_refused_batch(stopped.value)
    assert isinstance(halt, Halt)
    assert (halt.state, halt.source) == ("source_foreign_write", OffsetSpan(10, 12))
    assert not guard(BACK, passed=OffsetSpan(10, 12))(batch(MARK, PLAIN))


def test_marks_that_decide_nothing_stop_nobody() -> None:
    assert not guard(BACK, path="branch")(batch(MARK, PLAIN))


@pytest.mark.parametrize("order", [0, 1])
def test_a_batch_with_the_marks_of_two_tools_does_not_go_back(order: int) -> None:
    """Headers survive further hops: one tool brought it to a cluster in between, the other one from the target."""
    other = replace(BACK, id="far", source="branch", marks_with="far")
    tools = (((BACK, ("cloud",)), (other, ("branch",))), ((other, ("branch",)), (BACK, ("cloud",))))[order]
    flow = LoopGuard("onprem", "cloud", "all", dict, lambda _where, _batch: False, tools=tools)
    far = (("far", None),)
    assert flow.at(HERE, None)(batch((*MARK, *far), (*MARK, *far)))
    assert flow.at(HERE, None)(batch((*MARK, *far), MARK)), "one of them has marked all of it"


def test_the_id_of_a_flow_of_ours_counts_before_any_header() -> None:
    """Its ledger decides, as for every batch under such an id: here it claims nothing, and the id is from elsewhere."""
    assert not guard(BACK, registry={7: ("branch",)})(batch(MARK, producer_id=7))


def test_batches_are_asked_for_one_by_one_only_where_a_tool_can_matter() -> None:
    assert guard().takes_all_of(-1)
    assert not guard(BACK).takes_all_of(-1)
    assert guard(BACK, path="branch").takes_all_of(-1)
    assert not guard(BACK, path="branch", forward="local").takes_all_of(-1)
    assert not guard(BACK, path="branch", paths=True).takes_all_of(-1)
    assert guard(replace(BACK, topics=TopicSelection((Selector("literal", "other"),)))).takes_all_of(-1)


def test_old_formats_have_no_headers() -> None:
    [found] = find_external_records(((BACK, ("cloud",)),), "orders")
    plain = batch_of(data(0, 2))
    old = plain._replace(data=memoryview(bytes(plain.data[:16]) + b"\1" + bytes(plain.data[17:])))
    assert not found.covers(old)


@pytest.mark.parametrize(
    ("source", "source_id", "path"),
    [("cloud", None, ("target-id",)), ("branch", "branch-id", ("branch-id",)), ("branch", None, ("branch",))],
)
def test_a_worker_knows_the_ids_of_clusters(source: str, source_id: str | None, path: tuple[str, ...]) -> None:
    tool = replace(BACK, source=source, source_id=source_id)
    away = replace(BACK, source="onprem", target="branch")
    flow = PlanFlow("onprem-to-cloud", "onprem", "cloud", ORDERS, beside=(tool, away))
    record = FlowRecord(flow, "sha256:0", "t", source_cluster_id="source-id")
    made = LoopGuards("target-id").of(record, ConnectionSettings("onprem", ("localhost:1",)))
    assert made.tools == ((tool, path),)
