"""How ranges are shared out among tasks, and one that expires while a task reads."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from watershed.clusters.claim_rules import PartitionClaims
from watershed.clusters.provenance_header import ProvenanceHeader
from watershed.spark.reading.range_requests import RangeRequest, group_into_tasks, split_into_streams


def unit(number: int, cluster: str, partition: int, start: int, end: int, skip: tuple[int, ...] = ()) -> RangeRequest:
    return RangeRequest(number, cluster, "orders", f"id-{cluster}", partition, start, end, True, skip)


def both_sides(partitions: int, chunks: int, size: int) -> list[RangeRequest]:
    """In the order in which a proof names them: source and target in turn."""
    spans = [(p, c * size, (c + 1) * size) for p in range(partitions) for c in range(chunks)]
    return [unit(2 * at + side, "ab"[side], *span) for at, span in enumerate(spans) for side in (0, 1)]


@given(st.integers(1, 12), st.integers(1, 9), st.integers(1, 50), st.integers(1, 8))
@example(1, 4, 1, 5)
def test_every_unit_is_read_once_by_few_tasks(partitions: int, chunks: int, size: int, tasks: int) -> None:
    units = both_sides(partitions, chunks, size)
    stretches = group_into_tasks(units, tasks)
    assert sorted(u.id for s in stretches for u in s) == [u.id for u in units]
    assert len(stretches) <= tasks + 2
    for stretch in stretches:
        assert len({u.cluster for u in stretch}) == 1
        assert [u for run in split_into_streams(stretch) for u in run] == stretch
        for run in split_into_streams(stretch):
            assert all(one.end == two.start and one.partition == two.partition for one, two in pairwise(run))


def test_tiny_partitions_share_a_task_and_a_partition_is_one_stream() -> None:
    assert len(group_into_tasks(both_sides(12, 1, 10), 4)) == 4
    [a, b] = group_into_tasks(both_sides(1, 40, 50), 2)
    assert [len(list(split_into_streams(stretch))) for stretch in (a, b)] == [1, 1]


def test_flows_that_leave_out_other_records_are_read_apart() -> None:
    units = [unit(0, "a", 0, 0, 10), unit(1, "a", 0, 10, 20, (7,)), unit(2, "a", 0, 20, 30, (7,))]
    assert [[u.id for u in run] for run in split_into_streams(units)] == [[0], [1, 2]]


def test_ranges_of_a_partition_are_in_order_whatever_of_them_has_no_order() -> None:
    """Claims and headers of some ranges only, as where another tool had copied the first part."""
    whole = RangeRequest(0, "a", "t", "t-id", 0, 0, 10)
    claimed = replace(whole, id=1, claims=PartitionClaims())
    marked = replace(whole, id=2, start=10, end=20, header=ProvenanceHeader("from", "cluster", "t", 0))
    [found] = group_into_tasks([marked, claimed, whole], 1)
    assert {each.id for each in found[:2]} == {0, 1}
    assert found[2] == marked
