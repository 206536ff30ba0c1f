"""The page Replication at 100 flows and 10,000 partitions: what one answer may hold, how lists are cut and folded."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.airflow import page_world
from tests.airflow.page_world import ADDRESS, NOW, everywhere, seen
from watershed.clusters.control_follower import FollowedRecord
from watershed.clusters.control_topics import FLOWS_TOPIC, STATUS_TOPIC
from watershed.clusters.fleet import SupervisorRecord
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.partition_status_records import PartitionStatus
from watershed.clusters.worker_heartbeats import WorkerHeartbeat
from watershed.plugins.page.cluster_snapshots import ClusterSnapshot, ControlTopicsView
from watershed.plugins.page.fleet_rows import build_fleets_view
from watershed.plugins.page.flow_rows import (
    FLOWS_AT_ONCE,
    build_cluster_panel,
    build_flow_detail,
    build_flows_overview,
)
from watershed.plugins.page.folded_alerts import MAX_ALERT_CHARS, MAX_ALERTS, fold_alerts
from watershed.plugins.page.graph_layout import build_flow_arrows, lay_out_graph
from watershed.plugins.page.lag_history import (
    CHART_SLOT_S,
    CHART_SLOTS,
    LagHistory,
    LagSample,
    build_charts,
)
from watershed.plugins.page.topic_rows import ROWS_AT_ONCE, build_groups_page, build_topics_page
from watershed.topology.plan import Plan

pytestmark = pytest.mark.airflow
PARTITIONS = 100  # of each of the hundred flows
LARGEST = 150_000  # bytes of one answer


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return page_world.plan_in(tmp_path_factory.mktemp("chain"), page_world.hundred(ADDRESS))


@pytest.fixture(scope="module")
def crowd(chain: Plan) -> dict[str, ClusterSnapshot]:
    """A tenth of the partitions is halted with a long text; in each flow the partitions are of twenty topics."""
    snapshots = {}
    for cluster in chain.clusters:
        view = ControlTopicsView()
        flows = [flow for flow in chain.flows if flow.target == cluster.alias]
        view.take(record for flow in flows for record in _records(chain, flow))
        snapshots[cluster.alias] = view.snapshot(NOW)
    return snapshots


def _records(plan: Plan, flow: Any) -> list[FollowedRecord]:
    applied = FlowRecord(flow, plan.hash, plan.topology).to_json()
    found = [FollowedRecord(FLOWS_TOPIC, 0, flow.id, json.dumps(applied).encode())]
    for number in range(PARTITIONS):
        halted = number % 10 == 0
        told = PartitionStatus(
            flow=flow.id,
            topic=f"topic-{number // 5:03}",
            target_topic=f"{flow.source}.topic-{number // 5:03}",
            partition=number % 5,
            state="rejected" if halted else "running",
            source_position=1_000 + number,
            source_end=1_000 + number,
            target_end=900,
            lag_records=7 if halted else 0,
            lag_ms=70 if halted else 0,
            rate_bytes=10.0,
            error=f"topic-{number // 5:03}-{number % 5}: offset {number} is too large " + "x" * 5_000
            if halted
            else None,
            remedy=f"`topology flow resume {flow.id}`" if halted else None,
            worker=f"worker-{number % 3}",
            at_ms=int(NOW * 1000),
        )
        found.append(FollowedRecord(STATUS_TOPIC, 0, told.key, json.dumps(told.to_json()).encode()))
    return found


def size_of(answer: Any) -> int:
    return len(json.dumps(answer))


def test_an_answer_has_a_largest_size(chain: Plan, crowd: dict[str, ClusterSnapshot]) -> None:
    overview = build_flows_overview(chain, crowd, NOW)
    assert (overview["count"], overview["totals"]["partitions"]) == (100, 10_000)
    answers = [
        overview,
        build_flow_detail(chain.flows[0], chain, crowd, NOW),
        build_topics_page(chain, crowd, NOW),
        build_groups_page(chain, crowd),
        build_fleets_view(chain, crowd, NOW),
    ]
    assert max(map(size_of, answers)) < LARGEST


def test_a_thousand_alike_alerts_are_one_line_with_a_count(chain: Plan, crowd: dict[str, ClusterSnapshot]) -> None:
    [alert] = build_flows_overview(chain, crowd, NOW)["alerts"]
    assert (alert["count"], alert["state"], alert["level"], alert["more_flows"]) == (1_000, "rejected", "bad", True)
    assert len(alert["text"]) == MAX_ALERT_CHARS
    assert alert["remedy"].startswith("`topology flow resume ")
    [of_one] = build_flow_detail(chain.flows[0], chain, crowd, NOW)["alerts"]
    assert (of_one["count"], of_one["flows"], of_one["more_flows"]) == (10, [chain.flows[0].id], False)


def test_alerts_that_say_something_else_stay_apart_and_are_bounded() -> None:
    told = PartitionStatus("f", "t", "t", 0, "rejected", error="no right to write")
    other = replace(told, partition=1, error="record too large")
    lines, more = fold_alerts([told, other, replace(told, partition=2), replace(told, partition=3, error=None)])
    assert ([(line["text"], line["count"]) for line in lines], more) == (
        [("no right to write", 2), ("record too large", 1)],
        0,
    )
    lines, _ = fold_alerts(
        [told, replace(told, remedy="`a`"), replace(told, remedy="`b`"), replace(told, remedy="`a`")]
    )
    assert sorted((line["remedy"] or "", line["count"]) for line in lines) == [("", 1), ("`a`", 2), ("`b`", 1)]
    letters = [replace(told, partition=at, error="abcdefgh"[at % 8] * (1 + at // 8)) for at in range(64)]
    lines, more = fold_alerts(letters)
    assert (len(lines), more) == (MAX_ALERTS, 64 - MAX_ALERTS)


def test_flows_come_in_pages_and_those_that_need_nobody_come_last(tmp_path: Path, chain: Plan) -> None:
    states = {"shop-07-to-hub": "source_expired", "shop-08-to-hub": "silent", "hub-to-shop-01": "stopped"}
    snapshots = everywhere(chain, seen(chain, states))
    first = build_flows_overview(chain, snapshots, NOW)
    second = build_flows_overview(chain, snapshots, NOW, first=FLOWS_AT_ONCE)
    ids = [row["id"] for row in first["flows"] + second["flows"]]
    assert (len(first["flows"]), len(ids), len(set(ids))) == (FLOWS_AT_ONCE, 100, 100)
    assert (ids[0], ids[1], ids[-1]) == ("shop-07-to-hub", "shop-08-to-hub", "hub-to-shop-01")
    pair = build_flows_overview(chain, snapshots, NOW, pair="hub → shop-01")
    assert ([row["id"] for row in pair["flows"]], pair["found"], pair["count"]) == (["hub-to-shop-01"], 1, 100)


def test_a_cluster_tells_all_its_flows_not_those_of_the_page(chain: Plan, crowd: dict[str, ClusterSnapshot]) -> None:
    hub = build_cluster_panel(chain, crowd, NOW, "hub")
    assert (hub["alias"], hub["found"], len(hub["flows"])) == ("hub", 100, FLOWS_AT_ONCE)
    shop = build_cluster_panel(chain, crowd, NOW, "shop-50")
    assert {(each["source"], each["target"]) for each in shop["flows"]} == {("shop-50", "hub"), ("hub", "shop-50")}
    assert shop["found"] == 2


def test_topics_are_searched_sorted_and_cut_on_the_server(chain: Plan, crowd: dict[str, ClusterSnapshot]) -> None:
    every = build_topics_page(chain, crowd, NOW)
    assert (every["count"], every["found"], len(every["rows"])) == (2_000, 2_000, ROWS_AT_ONCE)
    assert {row["level"] for row in every["rows"]} == {"bad"}
    found = build_topics_page(chain, crowd, NOW, "SHOP-03.topic-001")
    assert [(row["topic"], row["flow"], row["partitions"]) for row in found["rows"]] == [
        ("topic-001", "shop-03-to-hub", 5)
    ]
    last = build_topics_page(chain, crowd, NOW, first=1_990)
    assert (len(last["rows"]), {row["state"] for row in last["rows"]}) == (10, {"running"})
    assert build_topics_page(chain, crowd, NOW, first=10**20)["rows"] == []


def test_partitions_of_a_flow_are_filtered(chain: Plan, crowd: dict[str, ClusterSnapshot]) -> None:
    told = build_flow_detail(chain.flows[0], chain, crowd, NOW, only="rejected")
    assert (told["found"], told["partitions"], {row["state"] for row in told["rows"]}) == (10, 100, {"rejected"})


def test_groups_are_listed_with_what_holds_them_up(tmp_path: Path) -> None:
    plan = page_world.plan_in(tmp_path, page_world.one(ADDRESS))
    [flow] = plan.flows
    detail = {
        "target_group": "dc.billing",
        "state": "Stable",
        "target_state": None,
        "partitions": [{"lag": 4}, {"lag": 5}],
    }
    told = {
        "flow": flow.id,
        "kind": "groups",
        "name": "billing",
        "state": "waiting",
        "why": "a marker",
        "detail": detail,
    }
    forged = told | {"name": "audit", "state": "equal", "detail": {"partitions": [3, {"lag": "x"}], "state": 7}}
    configs = told | {"kind": "configs", "name": "orders"}
    snapshot = replace(
        seen(plan, {}), sync={flow.id: {str(at): each for at, each in enumerate((told, forged, configs))}}
    )
    page = build_groups_page(plan, everywhere(plan, snapshot))
    assert [(row["group"], row["target_group"], row["state"], row["lag_records"]) for row in page["rows"]] == [
        ("billing", "dc.billing", "waiting", 9),
        ("audit", "audit", "equal", None),
    ]
    assert build_groups_page(plan, everywhere(plan, snapshot), "AUD")["found"] == 1
    assert build_groups_page(plan, everywhere(plan, seen(plan, {}, topology="other")))["count"] == 0


def test_workers_that_are_wanted_and_those_that_report(tmp_path: Path) -> None:
    plan = page_world.plan_in(tmp_path, page_world.one(ADDRESS))
    running = {("shop", "cloud"): {"state": "running"}}

    def told(**changes: Any) -> dict[str, Any]:
        snapshot = replace(seen(plan, changes.pop("states", {})), **({"fleets": running} | changes))
        [fleet] = build_fleets_view(plan, everywhere(plan, snapshot), NOW)["fleets"]
        return dict(fleet)

    fleet = told()
    assert (fleet["present"], fleet["wanted"], fleet["level"], fleet["desired"]) == (1, 1, "ok", "running")
    assert [(worker["name"], worker["partitions"]) for worker in fleet["workers"]] == [("worker-0", 2)]
    assert told(states={"onprem-to-cloud": "silent"})["level"] == "bad"
    assert told(fleets={("shop", "cloud"): {"state": "stopped"}})["level"] == "idle"
    assert told(fleets={})["desired"] == "unknown"
    ordered = told(fleets={("shop", "cloud"): {"state": "running", "workers": 4, "placement": "external"}})
    assert (ordered["wanted"], ordered["level"], ordered["placement"]) == (4, "warn", "external")
    assert told(complete=False)["says"].startswith("Nothing is known yet")


def test_the_newest_supervisor_is_told_with_what_keeps_it(tmp_path: Path) -> None:
    """A record of an earlier epoch, from a process that was replaced and woke up, changes nothing."""
    plan = page_world.plan_in(tmp_path, page_world.one(ADDRESS))
    view = ControlTopicsView()
    newest = SupervisorRecord("shop", "cloud", 4, "host-b:31", note="1 of 2 workers are new")
    for at, record in enumerate((newest, SupervisorRecord("shop", "cloud", 3, "host-a:7"))):
        payload = json.dumps(record.to_json()).encode()
        view.take([FollowedRecord(FLOWS_TOPIC, at, record.key, payload)])
    wanted = {("shop", "cloud"): {"state": "running"}}
    snapshot = replace(seen(plan, {}), fleets=wanted, supervisors=view.snapshot(NOW).supervisors)
    [fleet] = build_fleets_view(plan, everywhere(plan, snapshot), NOW)["fleets"]
    assert (fleet["supervisor"], fleet["note"]) == ("host-b:31", "1 of 2 workers are new")


def test_workers_without_a_partition_are_not_called_missing(tmp_path: Path) -> None:
    """A flow back is paused until the switch: its workers are there, and report nothing."""
    plan = page_world.plan_in(tmp_path, page_world.one(ADDRESS))
    [flow] = plan.flows
    standing = {flow.id: {"state": "paused", "topology": "shop"}}
    running = {("shop", "cloud"): {"state": "running", "workers": 2}}

    def told(supervisor: SupervisorRecord | None, **changes: Any) -> dict[str, Any]:
        known = {} if supervisor is None else {("shop", "cloud"): supervisor}
        held: dict[str, Any] = {"flows": standing, "reports": {}, "fleets": running, "supervisors": known}
        snapshot = replace(seen(plan, {}), **(held | changes))
        [fleet] = build_fleets_view(plan, everywhere(plan, snapshot), NOW)["fleets"]
        return dict(fleet)

    there = SupervisorRecord("shop", "cloud", 1, "host-a:7", ready=True, at_ms=5)
    fleet = told(there)
    assert (fleet["present"], fleet["level"], fleet["ready"], fleet["since_ms"]) == (None, "idle", True, 5)
    assert fleet["says"] == f"Nothing has to be copied: {flow.id} is paused. The workers are there and wait."
    assert told(replace(there, ready=False))["level"] == "warn"
    assert "no supervisor has reported" in told(None)["says"]
    copying = {flow.id: {"state": "running", "topology": "shop"}}
    assert (told(there, flows=copying)["present"], told(there, flows=copying)["level"]) == (0, "bad")


# -- charts -----------------------------------------------------------------------------------------------------


def test_a_chart_holds_three_hours_and_no_more() -> None:
    history = LagHistory()
    for slot in range(2 * CHART_SLOTS):
        now = NOW + slot * CHART_SLOT_S
        assert history.needs_sample(now)
        history.add(now, {("shop", "a"): LagSample(slot, slot * 10, 1.0), ("shop", "b"): LagSample(1, None, 2.0)})
        assert not history.needs_sample(now)
    assert len(history.read("shop", "a")) == CHART_SLOTS
    charts = build_charts([history.read("shop")], now)
    assert {len(charts[name]) for name in ("records", "delay_ms", "rate_bytes", "p50_ms", "p99_ms")} == {90}
    assert (charts["records"][-1], charts["delay_ms"][-1], charts["rate_bytes"][-1]) == (
        2 * CHART_SLOTS,
        (2 * CHART_SLOTS - 1) * 10,
        3,
    )


def test_latencies_are_those_of_the_slowest_flow_and_none_where_nothing_was_copied() -> None:
    history = LagHistory()
    samples = {"a": LagSample(0, 0, 1.0, 1.7, 38.0), "b": LagSample(0, 0, 2.0, 2.4, 12.0), "c": LagSample(0, 0, 0.0)}
    history.add(NOW, {("shop", flow): sample for flow, sample in samples.items()})
    for flow, told in {"a": (1.7, 38.0), "c": (None, None), "": (2.4, 38.0)}.items():
        charts = build_charts([history.read("shop", flow)], NOW)
        assert (charts["p50_ms"][-1], charts["p99_ms"][-1]) == told, flow


def test_the_page_takes_latencies_from_workers_that_live(tmp_path: Path) -> None:
    plan = page_world.plan_in(tmp_path, page_world.one(ADDRESS))
    [flow] = plan.flows
    record = FlowRecord(flow, plan.hash, plan.topology)
    status = replace(page_world.status_of(flow, 0, 0, "running"), at_ms=int(NOW * 1000), worker="w0", pid=4)
    beats = [
        WorkerHeartbeat("w0", 4, int(NOW * 1000), latencies={flow.id: {13: 98, 40: 2}}),
        WorkerHeartbeat("w1", 5, int(NOW * 1000) - 60_000, latencies={flow.id: {60: 900}}),
    ]
    view = ControlTopicsView()
    view.take(
        FollowedRecord(topic, 0, each.key, json.dumps(each.to_json()).encode())
        for topic, each in [(FLOWS_TOPIC, record), *((STATUS_TOPIC, each) for each in (status, *beats))]
    )
    told = build_flow_detail(flow, plan, everywhere(plan, view.snapshot(NOW)), NOW)
    assert told["latency"] == {"p50_ms": 0.87, "p99_ms": 94.0, "records": 100}
    sample = view.sample(NOW)["shop", flow.id]
    assert (sample.p50_ms, sample.p99_ms) == (0.87, 94.0)
    assert view.sample(NOW + 60)["shop", flow.id].p99_ms is None, "and what nobody says any more is not shown"


def test_a_rate_that_is_no_number_breaks_no_chart() -> None:
    history = LagHistory()
    history.add(NOW, {("t", "a"): LagSample(1, 2, float("inf")), ("t", "b"): LagSample(1, 2, float("nan"))})
    told = build_charts([history.read("t")], NOW)
    assert [value for value in told["rate_bytes"] if value is not None] == [0]


def test_a_time_in_which_nothing_was_read_is_a_gap() -> None:
    history = LagHistory()
    history.add(NOW, {("shop", "a"): LagSample(5, 50, 1.0)})
    history.add(NOW + 3_600, {("shop", "a"): LagSample(None, None, 0.0)})
    charts = build_charts([history.read("shop", "a")], NOW + 3_600)
    known = [(records, rate) for records, rate in zip(charts["records"], charts["rate_bytes"], strict=True)]
    assert [each for each in known if each != (None, None)] == [(5, 1), (None, 0)]
    assert history.read("another", "a") == {}


def test_series_of_flows_that_are_gone_make_room() -> None:
    history = LagHistory()
    for round_ in range(4):
        now = NOW + round_ * 10 * CHART_SLOT_S
        history.add(now, {("shop", f"flow-{round_}-{at}"): LagSample(1, 1, 1.0) for at in range(400)})
    assert len(history._series) <= 600
    assert history.read("shop", "flow-3-0")
    assert not history.read("shop", "flow-0-0")


def test_clusters_that_report_at_once_are_one_chart() -> None:
    one, other = LagHistory(), LagHistory()
    one.add(NOW, {("shop", "a"): LagSample(5, 50, 1.0)})
    other.add(NOW, {("shop", "b"): LagSample(6, 40, 2.0)})
    charts = build_charts([one.read("shop"), other.read("shop")], NOW)
    assert (charts["records"][-1], charts["delay_ms"][-1], charts["rate_bytes"][-1]) == (11, 50, 3)


# -- the graph --------------------------------------------------------------------------------------------------


def test_the_way_of_the_applications_reads_from_left_to_right(tmp_path: Path) -> None:
    """`cloud` comes before `onprem` in the alphabet, and the flow back before the flow there."""
    plan = page_world.plan_in(tmp_path, page_world.with_a_way_back(ADDRESS))
    boxes = build_flows_overview(plan, everywhere(plan, seen(plan, {})), NOW)["graph"]["boxes"]
    assert boxes["onprem"]["x"] < boxes["cloud"]["x"]
    only_back = build_flows_overview(plan, everywhere(plan, seen(plan, {})), NOW, "cloud-to-onprem")["graph"]["boxes"]
    assert only_back["cloud"]["x"] < only_back["onprem"]["x"]


def test_many_flows_are_one_arrow_for_each_pair_of_clusters() -> None:
    pairs = [("a", "b"), ("b", "a"), ("b", "c")]
    flows = [(f"{source}{target}{number}", source, target) for source, target in pairs for number in range(15)]
    drawn = build_flow_arrows(flows)
    assert [(each.key, len(each.flows)) for each in drawn] == [("a → b", 15), ("b → a", 15), ("b → c", 15)]
    boxes = lay_out_graph(["a", "b", "c"], drawn, [("a", "b"), ("b", "c")])["boxes"]
    assert boxes["a"]["x"] < boxes["b"]["x"] < boxes["c"]["x"]


def test_ends_that_differ_rightly_are_explained(tmp_path: Path, chain: Plan, crowd: dict[str, ClusterSnapshot]) -> None:
    told = build_flow_detail(chain.flows[0], chain, crowd, NOW)["ends"]
    assert told.startswith("90 partitions are copied to their end")
    assert "Nothing is missing" in told
    plan = page_world.plan_in(tmp_path, page_world.one(ADDRESS))
    assert build_flow_detail(plan.flows[0], plan, everywhere(plan, ClusterSnapshot()), NOW)["ends"] == ""
