"""Whether a topic's offsets can be equal, as far as its clusters tell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from watershed.clusters.fake_cluster import FakeCluster
from watershed.replicator.copy.aligned.aligned_topic_choice import assess_alignment
from watershed.replicator.copy.aligned.cluster_probe import AlignmentSupport
from watershed.replicator.copy.aligned.offset_mode_plan import TopicOffsetMode
from watershed.replicator.topic_mapping import MappedTopic

MAPPED = MappedTopic("orders", "orders", 2, created=False, copied=2)
ALLOWED = AlignmentSupport("id")


def clusters(*, start: int = 5, partitions: int = 2, policy: str = "delete") -> tuple[FakeCluster, FakeCluster]:
    source, target = FakeCluster("onprem"), FakeCluster("cloud")
    source.create_topic("orders", 2, configs={"cleanup.policy": policy})
    for number in range(2):
        source.produce("orders", number, [b"x"] * 9, keys=[b"k"] * 9)
        if start:
            source.delete_records("orders", number, start)
    if partitions:
        target.create_topic("orders", partitions)
    return source, target


@pytest.mark.parametrize("partitions", [0, 2])
def test_an_empty_topic_or_none_can_be_aligned_and_has_a_price(partitions: int) -> None:
    found = assess_alignment(MAPPED, *clusters(partitions=partitions), ALLOWED, copied=False)
    assert (found.refused, found.starts, found.gap_method) == ("", (5, 5), "markers")
    assert found.cost is not None
    assert found.cost.offsets == 10
    told = str(TopicOffsetMode("f", "orders", "aligned", decided=False, cost=found.cost))
    assert told.startswith("f: orders gets equal offsets: 10 offsets to fill, about ")


def test_what_speaks_against_it() -> None:
    source, target = clusters()
    assert "stay as they are" in assess_alignment(MAPPED, source, target, ALLOWED, copied=True).refused
    refusing = replace(ALLOWED, fills="no DeleteRecords")
    assert "no DeleteRecords" in assess_alignment(MAPPED, source, target, refusing, copied=False).refused
    source, target = clusters(partitions=3)
    assert "2 partitions, the target topic 3" in assess_alignment(MAPPED, source, target, ALLOWED, copied=False).refused
    source, target = clusters()
    target.produce("orders", 1, [b"theirs"])
    assert "partition 1 already holds" in assess_alignment(MAPPED, source, target, ALLOWED, copied=False).refused
    source, target = clusters(start=0)
    target.produce("orders", 1, [b"theirs"])
    target.delete_records("orders", 1, 1)
    assert "goes on at offset 1" in assess_alignment(MAPPED, source, target, ALLOWED, copied=False).refused


def test_a_compacted_topic_may_be_all_holes() -> None:
    source, target = clusters(policy="compact")
    assert assess_alignment(MAPPED, source, target, ALLOWED, copied=False).refused == ""
    log = source.log("orders", 0)
    log.end += 2_000_000
    assert "limit" in assess_alignment(MAPPED, source, target, ALLOWED, copied=False).refused
