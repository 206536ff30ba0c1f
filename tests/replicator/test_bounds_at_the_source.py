"""Where copies begin and end, as the source answers (`replicator.recovery.start_offsets`, `found_ends`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from watershed.clusters.errors import Unauthorised, Unreachable
from watershed.clusters.fake_cluster import FakeCluster
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.group_offsets import CommittedOffsets, CommittedPosition
from watershed.clusters.partition_end_records import PartitionEnd
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire.messages import READ_COMMITTED
from watershed.replicator.copy_limit import CopyLimit
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import REMEDIES, SELF_HEALING_STATES, Halt, OffsetSpan, Reinspect
from watershed.replicator.recovery import found_ends, log_inspection, start_offsets
from watershed.replicator.recovery.found_ends import find_limits
from watershed.replicator.recovery.log_inspection import read_leader_logs
from watershed.replicator.recovery.start_offsets import (
    SourceRange,
    find_starts,
    judge_group_position,
    judge_start_offset,
)
from watershed.topology.copy_bounds import CopyBound, build_offsets_bound
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

FLOW = PlanFlow("f", "onprem", "cloud", TopicSelection((Selector("literal", "orders"),)))
RECORD = FlowRecord(FLOW, "sha256:0", "shop", end_revision=1)
KEYS = [PartitionKey("f", "orders", "orders", number) for number in range(3)]
LOG = SourceRange(100, 180, 200)


@pytest.mark.parametrize(
    ("offset", "found"),
    [
        (100, 100),
        (150, 150),
        (180, 180),
        (99, OffsetSpan(99, 100)),
        (201, OffsetSpan(200, 201)),
        (181, "a transaction is still open"),
        (200, "a transaction is still open"),
    ],
)
def test_a_start_has_to_be_in_the_log(offset: int, found: object) -> None:
    judged = judge_start_offset("asked", offset, LOG)
    if isinstance(judged, Halt):
        assert (judged.state, judged.source) == ("start_missing", found)
    elif isinstance(judged, Reinspect):
        assert str(found) in judged.reason
    else:
        assert judged == found


PLACE = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("committed", "found"),
    [
        (CommittedOffsets({PLACE: CommittedPosition(150)}), 150),
        (CommittedOffsets(), Halt),
        (CommittedOffsets({TopicPartition("orders", 1): CommittedPosition(150)}), Halt),
        (CommittedOffsets({PLACE: CommittedPosition(7)}), Halt),
        (CommittedOffsets(error="no", is_unauthorised=True), Halt),
        (CommittedOffsets(error="moving"), Reinspect),
        (CommittedOffsets(unstable=frozenset({PLACE})), Reinspect),
    ],
)
def test_a_group_without_a_position_is_never_taken_for_the_beginning(committed: CommittedOffsets, found: Any) -> None:
    judged = judge_group_position("billing", PLACE, committed, LOG)
    assert judged == found if isinstance(found, int) else isinstance(judged, found)


def test_a_missing_start_is_tried_again() -> None:
    assert "start_missing" in REMEDIES
    assert "start_missing" in SELF_HEALING_STATES


class Source:
    """Three partitions: five records a second apart, none, and five with an open transaction behind the third."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster, self.written = FakeCluster("onprem", clock=lambda: 2_500), list[PartitionEnd]()
        self.cluster.create_topic("orders", 3)
        for at in range(5):
            self.cluster.produce("orders", 0, [b"v"], timestamp=1_000 * at)
            if at == 3:
                self.cluster.produce_transaction("orders", 2, [[b"t"]], end="open")
            self.cluster.produce("orders", 2, [b"v"], timestamp=1_000 * at)
        for module in (log_inspection, start_offsets):
            monkeypatch.setattr(module, "open_connection", lambda _settings, _address=None: self.cluster.wire())
        monkeypatch.setattr(found_ends, "write_partition_ends", lambda _writer, ends: self.written.extend(ends))

    def find_starts(self, start: Any, **more: Any) -> list[object]:
        record = replace(RECORD, flow=replace(FLOW, start=start), **more)
        logs = read_leader_logs(self.cluster.settings, [(key.topic, key.partition) for key in KEYS], READ_COMMITTED)
        fresh: Any = {key: logs[key.topic, key.partition] for key in KEYS}
        found = find_starts(record, fresh, self.cluster.settings)
        return [found[key] for key in KEYS]

    def find_limits(self, end: Any, **known: PartitionEnd) -> list[object]:
        record = replace(RECORD, flow=replace(FLOW, end=end))
        nobody: Any = None
        asked = {key: known.get(f"p{key.partition}") for key in KEYS}
        found = find_limits(record, asked, self.cluster.settings, nobody, "w1")
        return [found.get(key) for key in KEYS]


def test_starts_by_timestamp(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(monkeypatch)
    assert source.find_starts(CopyBound(timestamp_ms=1_500)) == [2, "latest", 2]
    assert source.find_starts(CopyBound(timestamp_ms=0)) == [0, "latest", 0]
    first, empty, behind = source.find_starts(CopyBound(timestamp_ms=3_000))
    assert (first, empty) == (3, "latest")
    assert isinstance(behind, Reinspect)  # an open transaction stands in front of it
    assert source.find_starts(CopyBound(timestamp_ms=4_001))[:2] == ["latest", "latest"]


def test_starts_by_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(monkeypatch)
    assert source.find_starts(build_offsets_bound({"orders": {0: 3}})) == [3, "earliest", "earliest"]
    assert source.find_starts(build_offsets_bound({"orders": {0: 5, 1: 0}})) == [5, 0, "earliest"]
    outside, *_ = source.find_starts(build_offsets_bound({"orders": {0: 6}}))
    assert isinstance(outside, Halt)
    assert outside.error == "`delivery.start` is offset 6, and the source's log ends at 5"
    assert source.find_starts("latest") == ["latest", "latest", "latest"]
    begun = source.find_starts(build_offsets_bound({"orders": {0: 3}}), begins={"orders": {0: 1}})
    assert begun == [1, "earliest", "earliest"], "a migration's beginning counts before the file's"


def test_starts_by_group(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(monkeypatch)
    committed = CommittedOffsets({PLACE: CommittedPosition(2)})
    monkeypatch.setattr(start_offsets, "_read_groups", lambda _source, groups: dict.fromkeys(groups, committed))
    first, second, third = source.find_starts(CopyBound(group="billing"))
    assert first == 2
    for halted in (second, third):
        assert isinstance(halted, Halt)
        assert halted.state == "start_missing"
        assert "group billing, and it has no position for orders-" in halted.error


def test_trouble_with_a_start_concerns_only_what_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(monkeypatch)

    def refuse(_source: object, _groups: object) -> Any:
        raise Unauthorised("DESCRIBE on group billing is missing", alias="onprem")

    monkeypatch.setattr(start_offsets, "_read_groups", refuse)
    halted = Halt("unauthorised", "DESCRIBE on group billing is missing")
    assert source.find_starts(CopyBound(group="billing"), begins={"orders": {0: 1}}) == [1, halted, halted]
    logs = read_leader_logs(source.cluster.settings, [("orders", 0)], READ_COMMITTED)
    source.cluster.stop()
    at_instant: Any = replace(RECORD, flow=replace(FLOW, start=CopyBound(timestamp_ms=1)))
    fresh: Any = {KEYS[0]: logs["orders", 0]}
    assert isinstance(find_starts(at_instant, fresh, source.cluster.settings)[KEYS[0]], Reinspect)


def test_an_end_is_written_down_when_it_is_found_and_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(monkeypatch)
    assert source.find_limits("latest") == [
        CopyLimit(5, revision=1),
        CopyLimit(0, revision=1),
        CopyLimit(6, revision=1),
    ]
    assert [(end.partition, end.offset, end.revision, end.is_reached) for end in source.written] == [
        (0, 5, 1, False), (1, 0, 1, False), (2, 6, 1, False)
    ]  # fmt: skip
    written = {f"p{end.partition}": end for end in source.written}
    source.cluster.produce("orders", 0, [b"later"])
    source.written.clear()
    assert source.find_limits("latest", **written)[0] == CopyLimit(5, revision=1)
    assert source.written == []
    stale = {name: replace(end, revision=0) for name, end in written.items()}
    assert source.find_limits("latest", **stale)[0] == CopyLimit(6, revision=1)


def test_an_end_by_timestamp_is_not_known_before_there_is_such_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(monkeypatch)
    found = source.find_limits(CopyBound(timestamp_ms=3_000))
    assert found == [CopyLimit(3, 3_000, 1), CopyLimit(None, 3_000, 1), CopyLimit(4, 3_000, 1)]
    assert [end.partition for end in source.written] == [0, 2]
    source.cluster.produce("orders", 1, [b"early"], timestamp=2_999)
    source.cluster.produce("orders", 1, [b"late"], timestamp=3_000)
    assert source.find_limits(CopyBound(timestamp_ms=3_000))[1] == CopyLimit(1, 3_000, 1)


def test_ends_by_offset_need_no_question(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(monkeypatch)
    source.cluster.stop()
    assert source.find_limits(build_offsets_bound({"orders": {0: 3}})) == [CopyLimit(3, revision=1), None, None]
    assert all(isinstance(each, Reinspect) for each in source.find_limits("latest"))


def test_an_end_that_cannot_be_written_down_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(monkeypatch)

    def fail(_writer: object, _ends: object) -> None:
        raise Unreachable("cluster cloud does not answer", alias="cloud")

    monkeypatch.setattr(found_ends, "write_partition_ends", fail)
    assert source.find_limits("latest") == [Reinspect("cluster cloud does not answer")] * 3
