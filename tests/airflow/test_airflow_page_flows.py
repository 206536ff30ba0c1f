"""What the page Replication says of flows, of one flow, and of clusters."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.airflow import page_world
from tests.airflow.page_world import ADDRESS, NOW, everywhere, seen
from watershed.clusters.budget_breaches import BudgetBreach
from watershed.clusters.control_follower import FollowedRecord
from watershed.clusters.control_topics import FLOWS_TOPIC
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.partition_orders import PartitionMove, PartitionPause
from watershed.plugins.operation_params import build_decide_params, build_inspect_params, build_operate_params
from watershed.plugins.page.cluster_snapshots import ClusterSnapshot, ControlTopicsView
from watershed.plugins.page.flow_rows import build_flow_detail, build_flows_overview
from watershed.plugins.page.folded_alerts import list_remedy_operations
from watershed.replicator.partition_states import REMEDIES
from watershed.topology.external_flows import ExternalFlow
from watershed.topology.plan import Plan
from watershed.topology.selectors import Selector, TopicSelection

pytestmark = pytest.mark.airflow


@pytest.fixture
def sites(tmp_path: Path) -> Plan:
    return page_world.plan_in(tmp_path, page_world.ten(ADDRESS))


def test_states_lag_and_rate_of_every_flow(sites: Plan) -> None:
    states = {"hub-to-lake": "target_foreign_write", "oslo-to-hub-clicks": "paused", "lyon-to-hub-clicks": "silent"}
    told = build_flows_overview(sites, everywhere(sites, seen(sites, states)), NOW)
    flows = {row["id"]: row for row in told["flows"]}
    assert {name: flows[name]["state"] for name in states} == states
    assert (flows["hub-to-lake"]["level"], flows["porto-to-hub-orders"]["level"]) == ("bad", "ok")
    assert page_world.EVIL in flows["hub-to-lake"]["error"]
    assert flows["lyon-to-hub-clicks"]["rate_bytes"] == 0
    assert {name for name, row in flows.items() if row["lag_is_lower_bound"]} == {"oslo-to-hub-clicks"}
    assert told["totals"]["lag_is_lower_bound"], "nobody looks at the source of a paused flow"
    assert told["totals"]["states"]["running"] == 7
    assert told["totals"]["partitions"] == 20
    assert set(told["graph"]["boxes"]) == {cluster.alias for cluster in sites.clusters}


def test_copies_of_other_tools_are_listed_beside_flows(sites: Plan) -> None:
    topics = TopicSelection((Selector("literal", "clicks"),))
    beside = replace(sites, external_flows=(ExternalFlow("old", "brooklin", "hub", "oslo", topics),))
    snapshots = everywhere(sites, seen(sites, {}))
    told = build_flows_overview(beside, snapshots, NOW)
    assert told["others"] == ["old: hub to oslo by Brooklin, clicks; nothing tells its records apart"]
    assert told["flows"] == build_flows_overview(sites, snapshots, NOW)["flows"]


def test_flows_of_another_topology_with_the_same_ids_are_not_shown(sites: Plan) -> None:
    told = build_flows_overview(sites, everywhere(sites, seen(sites, {}, topology="somebody-elses")), NOW)
    assert {row["state"] for row in told["flows"]} == {"not_applied"}
    assert told["totals"]["partitions"] == 0
    assert build_flow_detail(sites.flows[0], sites, everywhere(sites, seen(sites, {}, "other")), NOW)["rows"] == []


def test_a_cluster_that_does_not_answer_shows_its_age_and_leaves_the_others_alone(sites: Plan) -> None:
    snapshots = everywhere(sites, seen(sites, {}))
    snapshots["lake"] = replace(snapshots["lake"], answered_at=NOW - 90, problem="refused")
    snapshots["archive"] = ClusterSnapshot(problem="refused")
    told = build_flows_overview(sites, snapshots, NOW)
    clusters = {row["alias"]: row for row in told["clusters"]}
    assert (clusters["lake"]["state"], clusters["lake"]["age_ms"], clusters["lake"]["problem"]) == (
        "silent",
        90_000,
        "refused",
    )
    assert (clusters["archive"]["state"], clusters["archive"]["age_ms"]) == ("silent", None)
    flows = {row["id"]: row for row in told["flows"]}
    assert (flows["hub-to-lake"]["state"], flows["hub-to-archive"]["state"]) == ("silent", "unknown")
    assert flows["berlin-to-hub-orders"]["state"] == "running"


def test_before_the_first_reading_ends_nothing_is_claimed(sites: Plan) -> None:
    told = build_flows_overview(sites, everywhere(sites, ClusterSnapshot(answered_at=NOW)), NOW)
    assert {row["state"] for row in told["flows"]} == {"reading"}
    assert {row["state"] for row in told["clusters"]} == {"reading"}


def test_only_what_needs_attention(sites: Plan) -> None:
    states = {"hub-to-lake": "source_expired", "lyon-to-hub-clicks": "silent"}
    snapshots = everywhere(sites, seen(sites, states))
    told = build_flows_overview(sites, snapshots, NOW, "attention")
    assert {row["id"] for row in told["flows"]} == set(states)
    assert set(told["graph"]["boxes"]) == {"hub", "lake", "lyon"}
    assert told["count"] == 10
    assert {row["id"] for row in build_flows_overview(sites, snapshots, NOW, "LAKE")["flows"]} == {"hub-to-lake"}


def test_the_detail_tells_what_to_do(sites: Plan) -> None:
    snapshots = everywhere(sites, seen(sites, {"hub-to-lake": "target_foreign_write"}))
    told = build_flow_detail(sites.flow("hub-to-lake"), sites, snapshots, NOW)
    assert [row["partition"] for row in told["rows"]] == [1, 0]
    assert "topology flow reseed hub-to-lake" in told["rows"][0]["remedy"]
    assert told["guarantee"] is None, "nobody wrote it down"
    promised = replace(
        snapshots["lake"],
        flows={key: value | {"guarantee": "exactly_once: sequence"} for key, value in snapshots["lake"].flows.items()},
    )
    told = build_flow_detail(sites.flow("hub-to-lake"), sites, {**snapshots, "lake": promised}, NOW)
    assert told["guarantee"] == "exactly_once: sequence"
    assert build_flow_detail(sites.flow("hub-to-lake"), sites, snapshots, NOW, first=100)["rows"] == []


def test_the_detail_tells_what_compression_saved(sites: Plan) -> None:
    """What was applied counts, and not what the file says by now."""
    lake = seen(sites, {})
    assert build_flow_detail(sites.flow("hub-to-lake"), sites, everywhere(sites, lake), NOW)["compression"] == ""
    flows = dict(lake.flows)
    flows["hub-to-lake"] = {
        **flows["hub-to-lake"],
        "flow": {**flows["hub-to-lake"]["flow"], "compression": {"codec": "zstd", "level": 3}},
    }
    reports = {
        key: replace(each, copied_bytes=1_000_000, saved_bytes=700_000)
        for key, each in lake.reports["hub-to-lake"].items()
    }
    compressed = replace(lake, flows=flows, reports={**lake.reports, "hub-to-lake": reports})
    told = build_flow_detail(sites.flow("hub-to-lake"), sites, everywhere(sites, compressed), NOW)
    assert told["compression"] == (
        "zstd, level 3; 70% fewer bytes since the workers took the partitions (600.0 kB sent of 2.0 MB)"
    )


def test_the_detail_tells_who_paused_or_moved_a_partition(sites: Plan) -> None:
    flow, lake = sites.flow("hub-to-lake"), seen(sites, {})
    rows = build_flow_detail(flow, sites, everywhere(sites, lake), NOW)["rows"]
    assert {row["paused"] for row in rows} == {None}
    topic, number = rows[1]["topic"], rows[1]["partition"]
    record = FlowRecord.from_json(lake.flows["hub-to-lake"])
    orders = {
        "pauses": (PartitionPause(topic, number, "ann", 0, "<b>"),),
        "moves": (PartitionMove(topic, None, "w", "bob", 0),),
    }
    told = build_flow_detail(flow, sites, everywhere(sites, with_record(lake, replace(record, **orders))), NOW)
    assert {row["partition"]: row["paused"] for row in told["rows"]} == {number: number, 1 - number: None}
    assert [each["text"] for each in told["paused"]] == [
        f"{topic}-{number} paused by ann since 1970-01-01 00:00:00 UTC: <b>"
    ]
    assert told["moved"][0]["text"].startswith(f"{topic} moved to worker w by bob")
    whole = replace(record, pauses=(PartitionPause(topic, None, "ann", 0),))
    told = build_flow_detail(flow, sites, everywhere(sites, with_record(lake, whole)), NOW)
    assert {row["paused"] for row in told["rows"]} == {"all"}


@pytest.mark.parametrize(("action", "state"), [("pause", "paused"), ("fail", "running")])
def test_a_flow_that_its_budget_stopped_says_so(sites: Plan, action: Any, state: str) -> None:
    flow, lake = sites.flow("hub-to-lake"), seen(sites, {})
    assert build_flow_detail(flow, sites, everywhere(sites, lake), NOW)["breach"] is None
    breach = BudgetBreach(str(flow.id), 1, action, "slo.lag.max", 60_000, 91_000, "orders", 0, "w1", 0)
    told = build_flow_detail(flow, sites, everywhere(sites, replace(lake, breaches={flow.id: breach})), NOW)
    assert told["desired"] == state
    assert "by slo.lag.max (1m): orders-0 was 91.0 s behind" in told["breach"]


def test_only_the_newest_breach_that_nobody_answered_is_open(sites: Plan) -> None:
    record = FlowRecord(sites.flow("hub-to-lake"), sites.hash, sites.topology)
    breach = BudgetBreach(record.key, 2, "pause", "slo.lag.max", 60_000, 91_000, "orders", 0, "w1", 0)
    view = ControlTopicsView()

    def take(*records: FlowRecord | BudgetBreach) -> list[str]:
        view.take(FollowedRecord(FLOWS_TOPIC, 0, each.key, json.dumps(each.to_json()).encode()) for each in records)
        return list(view.snapshot(NOW).breaches)

    assert take(breach) == [], "a flow that nobody applied"
    assert take(record) == [record.key]
    assert take(replace(record, answered_breaches=1)) == [record.key]
    assert take(replace(record, answered_breaches=2)) == []
    assert take(replace(breach, number=3)) == [record.key]
    assert take(replace(breach, number=3, answered=True)) == []
    assert take(replace(breach, number=4)) == [record.key]
    view.take([FollowedRecord(FLOWS_TOPIC, 0, breach.key, b"{}")])
    assert list(view.snapshot(NOW).breaches) == [record.key], "what cannot be read changes nothing"
    view.take([FollowedRecord(FLOWS_TOPIC, 0, breach.key, None)])
    assert not view.snapshot(NOW).breaches


def with_record(target: ClusterSnapshot, record: FlowRecord) -> ClusterSnapshot:
    return replace(target, flows={**target.flows, record.key: record.to_json()})


def test_time_in_which_nobody_looked_is_no_silence(sites: Plan) -> None:
    """Whoever opens the page after lunch is not told that every cluster was silent since."""
    before = replace(seen(sites, {}), answered_at=NOW - 3_600)
    told = build_flows_overview(sites, everywhere(sites, replace(before, since=NOW - 1)), NOW)
    assert {row["state"] for row in told["clusters"]} == {"reading"}
    assert {row["state"] for row in told["flows"]} == {"reading"}
    told = build_flows_overview(sites, everywhere(sites, replace(before, since=NOW - 60, problem="refused")), NOW)
    assert {(row["state"], row["age_ms"]) for row in told["clusters"]} == {("silent", 3_600_000)}
    assert {row["state"] for row in told["flows"]} == {"silent"}


def test_a_remedy_stands_beside_what_it_is_for_when_the_workers_are_silent(sites: Plan) -> None:
    snapshots = everywhere(sites, replace(seen(sites, {"hub-to-lake": "target_foreign_write"}), answered_at=NOW + 60))
    row = build_flow_detail(sites.flow("hub-to-lake"), sites, snapshots, NOW + 60)["rows"][0]
    assert (row["state"], row["partition"]) == ("target_foreign_write", 1)
    assert row["error"].endswith("; no worker has reported for this partition lately")
    assert "topology flow reseed hub-to-lake" in row["remedy"]


def test_an_alert_offers_what_its_remedy_names(sites: Plan) -> None:
    snapshots = everywhere(sites, seen(sites, {"hub-to-lake": "target_foreign_write"}))
    [alert] = build_flows_overview(sites, snapshots, NOW)["alerts"]
    assert [(each["what"], each["operation"]) for each in alert["operations"]] == [
        ("decide", "reseed"),
        ("decide", "adopt"),
    ]
    assert alert["example"] == {"flow": "hub-to-lake", "topic": "berlin.orders", "partition": 1}
    rows = build_flow_detail(sites.flow("hub-to-lake"), sites, snapshots, NOW)["rows"]
    assert [row["operations"] for row in rows] == [alert["operations"], []]


@pytest.mark.parametrize("state", REMEDIES)
def test_the_page_starts_every_command_that_a_remedy_names(sites: Plan, state: str) -> None:
    """And a form of the DAG takes it, with the flow, the topic and the partition that are halted."""
    named = set(re.findall(r"topology flow ([a-z-]+)", REMEDIES[state]))
    operations = list_remedy_operations(state)
    assert {each["operation"] for each in operations} == named
    for each in operations:
        params = {"decide": build_decide_params, "operate": build_operate_params}[each["what"]](sites)
        assert each["operation"] in params["operation"].schema["enum"]
        assert params["flow"].schema["enum"] == [flow.id for flow in sites.flows]
        assert each["what"] == "operate" or {"topic", "partition"} <= params.keys()


def test_params_that_only_some_operations_read_name_operations_that_there_are(sites: Plan) -> None:
    for build in (build_decide_params, build_operate_params, build_inspect_params):
        params = build(sites)
        known = params["operation"].schema["enum"]
        only = {name: param.schema["operations"] for name, param in params.items() if "operations" in param.schema}
        assert only, build
        assert all(set(each) <= set(known) and each for each in only.values()), only
