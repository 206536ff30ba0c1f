"""What a backfill copies: what is asked for, what a flow allows, and what cannot be put in front of a log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from watershed.cli.main import main
from watershed.clusters.fleet import FleetRecord
from watershed.clusters.flow_records import FlowRecord
from watershed.cutover.operations.backfill import (
    BackfilledPartition,
    BackfillRequest,
    bind_flow,
    choose_backfilled_topics,
    estimate_backfill_bytes,
    explain_misplaced_start,
    explain_unservable_flow,
    parse_backfill_end,
    parse_backfill_start,
    require_boundable,
)
from watershed.cutover.operations.proposal import OperationRefused
from watershed.replicator.ledger.offset_map import OffsetMap
from watershed.replicator.partition_key import PartitionKey
from watershed.topology import compile_path
from watershed.topology.copy_bounds import CopyBound, build_offsets_bound
from watershed.topology.plan import PlanFlow

_FILE = """\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {name: part, owner: test}
clusters:
  onprem: {bootstrap: ["127.0.0.1:1"], security: {protocol: PLAINTEXT}}
  cloud: {bootstrap: ["127.0.0.1:2"], security: {protocol: PLAINTEXT}}
flows:
  - source: onprem
    target: cloud
    topics: {include: [{glob: "orders.*"}]}
    naming: {policy: prefix}
"""
SHAPES = {"orders.created": 2, "orders.paid": 1}
NOVEMBER, DECEMBER = "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z"


def ask(start: str = "earliest", end: str = "latest", *topics: str, rate: int | None = None) -> BackfillRequest:
    return BackfillRequest("onprem-to-cloud", parse_backfill_start(start), parse_backfill_end(end), topics, rate)


@pytest.fixture
def flow(tmp_path: Path) -> PlanFlow:
    path = tmp_path / "part.yaml"
    path.write_text(_FILE)
    return compile_path(path).flow("onprem-to-cloud")


def test_places_are_read_as_a_person_types_them() -> None:
    assert parse_backfill_start("earliest") == "earliest"
    assert parse_backfill_start("group:billing") == CopyBound(group="billing")
    assert parse_backfill_start(NOVEMBER) == CopyBound(timestamp_ms=1_793_491_200_000)
    assert parse_backfill_end("latest") == "latest"
    offsets = build_offsets_bound({"orders.paid": {0: 7}, "orders.created": {0: 5, 1: 6}})
    assert parse_backfill_end("orders.created:0:5, orders.created:1:6,orders.paid:0:7") == offsets


@pytest.mark.parametrize("text", ["", "latest", "group:", "2026-11-01T00:00:00", "orders:0", "orders:0:5;orders:1:6"])
def test_what_is_no_beginning_is_refused_with_what_can_be_written(text: str) -> None:
    with pytest.raises(OperationRefused, match=r"--from .*: write earliest, group:NAME, an instant such as"):
        parse_backfill_start(text)
    with pytest.raises(OperationRefused, match="--to group:billing: write latest, an instant"):
        parse_backfill_end("group:billing")


def test_topics_are_those_of_the_flow(flow: PlanFlow) -> None:
    assert choose_backfilled_topics(flow, SHAPES, ask()) == ["orders.created", "orders.paid"]
    assert choose_backfilled_topics(flow, SHAPES, ask("earliest", "latest", "*.paid")) == ["orders.paid"]
    for asked, says in (
        (ask("earliest", "latest", "clicks"), "--topics clicks: onprem-to-cloud copies no such topic"),
        (ask("orders.created:5:1", "latest"), "partition orders.created-5, which is not among"),
        (ask("orders.paid:0:1", "latest", "orders.created"), "topic orders.paid, which is not among"),
        (ask("earliest", "orders.created:0:9", "orders.created"), "--to names no offset of orders.created-1"),
    ):
        with pytest.raises(OperationRefused, match=says):
            choose_backfilled_topics(flow, SHAPES, asked)


def test_the_flow_is_applied_with_its_bounds(flow: PlanFlow) -> None:
    bounded = bind_flow(flow, ["orders.paid"], ask(NOVEMBER, DECEMBER, rate=1_000))
    assert (bounded.id, bounded.quota, bounded.naming) == (flow.id, 1_000, flow.naming)
    assert (bounded.start, bounded.end) == (parse_backfill_start(NOVEMBER), parse_backfill_end(DECEMBER))
    assert bounded.selects("orders.paid")
    assert not bounded.selects("orders.created")
    assert bind_flow(flow, ["orders.paid"], ask()).quota == flow.quota


@pytest.mark.parametrize(
    ("back", "asked", "says"),
    [
        ("", ask(DECEMBER, NOVEMBER), r"copies nothing: .* \(TPC424\)"),
        ("  - {source: cloud, target: onprem, topics: {include: [{glob: \"onprem.orders.*\"}]}, guard: producer_id}\n",
         ask(NOVEMBER, DECEMBER), r"copies back \(TPC425\)"),
    ],
    ids=["backwards", "pair"],
)  # fmt: skip
def test_rules_of_an_end_hold_for_a_backfill(tmp_path: Path, back: str, asked: BackfillRequest, says: str) -> None:
    path = tmp_path / "part.yaml"
    path.write_text(_FILE + back)
    with pytest.raises(OperationRefused, match=says):
        require_boundable(path, asked)
    path.write_text(_FILE)
    require_boundable(path, ask(NOVEMBER, DECEMBER))


def test_nothing_is_put_in_front_of_a_log_and_nothing_is_left_out_behind_it() -> None:
    key = PartitionKey("f", "orders", "orders", 3)
    copied = OffsetMap.of([(0, 100)])

    def explain(first: int) -> str:
        return explain_misplaced_start(BackfilledPartition(key, first, 900, 500, (0, 900)), (copied, None))

    assert explain(100) == explain(300) == explain(500) == ""
    assert explain(99).startswith("orders-3: f has copied source offsets 100 to 499 into orders, and a log grows")
    assert "so offsets 500 to 599 would be copied as well" in explain(600)
    assert explain_misplaced_start(BackfilledPartition(key, 0, 900, -1, (0, 900)), None) == ""


def test_a_flow_that_nobody_serves_or_that_never_ends_is_refused(flow: PlanFlow) -> None:
    bounded = FlowRecord(bind_flow(flow, ["orders.paid"], ask(NOVEMBER, DECEMBER)), "", "part")
    live, fleet = FlowRecord(flow, "", "part"), FleetRecord("part", "cloud", "running", "")
    for record, of_fleet, copied, says in (
        (None, None, 0, ""),
        (live, fleet, 0, ""),
        (bounded, fleet, 3, ""),
        (live, fleet, 3, "was applied without an end and has copied 3 partitions"),
        (replace(bounded, state="paused"), fleet, 3, "`topology flow resume onprem-to-cloud part.yaml`"),
        (bounded, replace(fleet, state="stopped"), 3, "`topology fleet start part.yaml --target cloud`"),
    ):
        told = explain_unservable_flow(record, of_fleet, copied, "part.yaml")
        assert says in told
        assert bool(told) == bool(says)


def test_the_estimate_counts_what_is_left() -> None:
    keys = [PartitionKey("f", "orders", "orders", number) for number in range(3)]
    parts = [
        BackfilledPartition(keys[0], 0, 100, -1, (0, 200)),
        BackfilledPartition(keys[1], 0, 100, 75, (0, 200)),
        BackfilledPartition(keys[2], 0, 0, -1, (0, 0)),
    ]
    assert [part.left for part in parts] == [100, 25, 0]
    assert estimate_backfill_bytes(parts, {("orders", 0): 2_000, ("orders", 1): 800}) == 1_000 + 100
    assert estimate_backfill_bytes(parts, {}) is None


def test_an_unreadable_place_ends_the_command_before_a_cluster_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "part.yaml"
    path.write_text(_FILE)
    assert main(["backfill", str(path), "--flow", "onprem-to-cloud", "--from", "yesterday", "--to", "latest"]) == 2
    assert "--from yesterday: write earliest" in capsys.readouterr().err
