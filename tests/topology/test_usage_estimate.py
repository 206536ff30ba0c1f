"""The history of use, in numbers: summaries with gaps, lag, sizes, money; and what the page and the document say of
it."""

from __future__ import annotations

import json
import math
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watershed.topology.inventory import Inventory, InventoryCluster, InventoryTopic
from watershed.topology.loader import parse_topology
from watershed.topology.model import Topology
from watershed.topology.planning.html import render_html_page
from watershed.topology.planning.markdown import render_markdown_page
from watershed.topology.usage.estimate import UsageEstimate, estimate_usage
from watershed.topology.usage.history import (
    WHOLE_CLUSTER,
    ClusterHistory,
    CostLine,
    UsageMetric,
    UsagePeriod,
    UsageSeries,
    sum_values,
)
from watershed.topology.usage.lag_forecast import forecast_lag
from watershed.topology.usage.series_summary import UsageGap, find_gaps, find_quietest_hour, summarise_series
from watershed.topology.usage.sizing import BrokerCapacity, ClusterNeed, size_cluster, size_fleet
from watershed.topology.usage.sources_file import UsagePrices, UsageSources
from watershed.topology.usage.usage_json import build_usage_document, encode_usage
from watershed.topology.usage.usage_page import build_usage_page

NAN = math.nan
MIB, GIB = 2**20, 2**30
HOUR = UsagePeriod(0, 3600, 300)
FILE = """
apiVersion: topology/v1alpha1
kind: Topology
metadata: {name: shop}
clusters:
  onprem: {bootstrap: ["k1:9092"]}
  other: {bootstrap: ["k3:9092"]}
  cloud: {bootstrap: ["k2:9092"]}
flows:
  - {source: onprem, target: cloud, topics: {include: [{glob: "shop.*"}]}, workers: {quota: 20MiB/s}}
  - {source: other, target: cloud, topics: {include: [x]}}
"""


def build_history(*series: tuple[UsageMetric, str, list[float]], alias: str = "onprem", **more: Any) -> ClusterHistory:
    found = {
        (metric, topic): UsageSeries(metric, topic, UsagePeriod(0, 300 * len(values), 300), array("d", values))
        for metric, topic, values in series
    }
    return ClusterHistory(alias, "a source", HOUR, found, **more)


def estimate(*histories: ClusterHistory, inventory: Inventory | None = None, **sources: Any) -> UsageEstimate:
    topology = parse_topology(FILE).topology
    assert isinstance(topology, Topology)
    return estimate_usage(topology, UsageSources({}, **sources), {each.alias: each for each in histories}, inventory)


def say(found: UsageEstimate) -> str:
    page = build_usage_page(found)
    assert render_html_page(page).startswith("<!doctype html>")
    return render_markdown_page(page)


BUSY = build_history(
    ("bytes_in", "shop.a", [MIB] * 11 + [9 * MIB]),
    ("bytes_in", "shop.b", [MIB] * 6 + [NAN] * 6),
    ("bytes_in", "hidden", [50.0 * MIB] * 12),
    ("bytes_out", "shop.a", [2.0 * MIB] * 12),
    ("messages_in", "shop.a", [1000.0] * 12),
    ("stored", "shop.a", [GIB, 2.0 * GIB]),
    ("stored", "shop.b", [GIB, NAN]),
    ("partitions", "shop.a", [6.0]),
    ("partitions", "shop.b", [4.0]),
    on_disks=9 * GIB,
    brokers=3,
)


def test_a_summary_is_of_the_values_that_are_there() -> None:
    values = [1.0, NAN, 3.0, NAN, NAN, 2.0, *[NAN] * 6]
    found = summarise_series(values, HOUR)
    assert (found.mean, found.p95, found.maximum, found.last, found.peak_s) == (2.0, 3.0, 3.0, 2.0, 600)
    assert found.covered == 0.25
    assert found.gaps == (UsageGap(1800, 3600), UsageGap(900, 1500), UsageGap(300, 600))
    nothing = summarise_series([NAN] * 12, HOUR)
    assert (nothing.mean, nothing.maximum, nothing.covered) == (None, None, 0.0)


def test_p95_leaves_out_a_twentieth() -> None:
    period = UsagePeriod(0, 100, 1)
    assert summarise_series([float(index) for index in range(1, 101)], period).p95 == 95.0


@given(st.lists(st.one_of(st.just(NAN), st.floats(0, 1e12)), min_size=1, max_size=60))
def test_gaps_and_values_are_the_whole_period(values: list[float]) -> None:
    period = UsagePeriod(0, len(values), 1)
    found = summarise_series(values, period)
    missing = sum(gap.end_s - gap.start_s for gap in find_gaps(values, period))
    assert round(found.covered * len(values)) + missing == len(values)
    if found.mean is not None and found.maximum is not None and found.p95 is not None:
        assert found.p95 <= found.maximum
        assert found.mean <= found.maximum * (1 + 1e-9)


def test_a_sum_says_where_a_part_of_it_is_missing() -> None:
    total, lacking = sum_values([[1.0, NAN, NAN], [2.0, 2.0, NAN]], UsagePeriod(0, 3, 1))
    assert list(total)[:2] == [3.0, 2.0]
    assert math.isnan(total[2])
    assert lacking == 1


def test_the_quietest_hour_needs_all_hours() -> None:
    day = UsagePeriod(0, 86_400, 3_600)
    values = [5.0] * 24
    values[3] = 1.0
    assert find_quietest_hour(values, day) == 3
    values[7] = NAN
    assert find_quietest_hour(values, day) is None
    assert find_quietest_hour([1.0], UsagePeriod(0, 86_400, 86_400)) is None


def test_lag_grows_while_more_is_written_than_copied() -> None:
    period = UsagePeriod(0, 60, 10)
    found = forecast_lag([5.0, 20.0, 20.0, 0.0, 0.0, 0.0], period, 10.0)
    assert found is not None
    assert (found.largest, found.longest_s, found.behind, found.after_pause_s) == (200.0, 30.0, 0.5, None)
    endless = forecast_lag([20.0, NAN], UsagePeriod(0, 20, 10), 10.0)
    assert endless is not None
    assert (endless.longest_s, endless.behind) == (None, 1.0)
    assert forecast_lag([NAN], UsagePeriod(0, 10, 10), 10.0) is None
    level = forecast_lag([5.0], UsagePeriod(0, 10, 10), 10.0)
    assert level is not None
    assert level.after_pause_s == 600.0


def test_brokers_by_each_limit_with_headroom() -> None:
    need = ClusterNeed(bytes_in=100.0, bytes_out=10.0, disk=None, replicas=9_000, replication=3)
    found = size_cluster(need, BrokerCapacity(bytes_in=50, bytes_out=None, disk=1000, headroom=0.5))
    assert [row.brokers for row in found.rows] == [4, None, None, 5]
    assert found.brokers == 5
    little = ClusterNeed(bytes_in=1.0, bytes_out=None, disk=None, replicas=1, replication=3)
    assert size_cluster(little, BrokerCapacity(bytes_in=50)).brokers == 3
    nothing = ClusterNeed(None, None, None, None, 3)
    assert size_cluster(nothing, BrokerCapacity()).brokers is None


def test_workers_by_processor_time_and_partitions() -> None:
    assert size_fleet(MIB, 1000.0, 100).workers == 1
    busy = size_fleet(400e6, 400e3, 100)
    assert busy.cpu == pytest.approx(400e6 * 1.15e-9 + 400e3 * 1.77e-6)
    assert (busy.by_cpu, busy.workers) == (3, 4)
    assert size_fleet(None, None, 6_000).workers == 4
    assert size_fleet(None, None, 50_000).beyond
    assert size_fleet(None, None, None).workers is None
    assert not size_fleet(MIB, None, 1).records_known


def test_a_flow_is_its_own_topics_and_the_target_its_running_flows() -> None:
    found = estimate(
        BUSY,
        prices=UsagePrices("EUR", egress_per_gib=0.5, storage_per_gib_month=0.1),
        broker=BrokerCapacity(bytes_in=10 * MIB),
        link=100 * MIB,
    )
    [flow] = found.flows
    written = flow.rates["bytes_in"]
    assert (written.maximum, written.lacking, written.covered) == (9 * MIB, 6, 1.0)
    assert flow.copy is not None
    assert (flow.copy.bytes, flow.copy.copy_rate, flow.copy.limited_by) == (3 * GIB, 20 * MIB, "the flow's quota")
    assert flow.partitions == 10
    assert found.unmeasured == ("other-to-cloud",)
    assert found.without_source == ("cloud", "other")
    [target] = found.targets
    assert (target.need.bytes_in, target.need.disk, target.need.replicas) == (27 * MIB, 9 * GIB, 30)
    assert target.need.bytes_out == 20 * MIB
    assert target.sizing.brokers == 5  # 27 MiB/s on brokers of 10, of which 6 are used
    assert target.money.copy == pytest.approx(1.5)
    assert target.money.storage == pytest.approx(0.9)
    assert target.money.brokers is None
    text = say(found)
    assert "other has no source of history in the file" in text
    assert "other-to-cloud: its source cluster has no history" in text
    assert "Without bytes in, so not in the numbers: other-to-cloud" in text
    assert "in 6 intervals some of its topics have no value" in text
    assert "No price is given for the rest (prices.broker\\_month)" in text
    assert "is not seen: the true peak is higher" in text


def test_a_failure_and_a_gap_are_said_and_never_zero() -> None:
    failed = ClusterHistory("onprem", "Prometheus at x", HOUR, failure="Prometheus refuses who we are: HTTP 401")
    text = say(estimate(failed))
    assert "onprem has no history here: Prometheus refuses who we are" in text
    assert "0 B/s" not in text
    gap = build_history(("bytes_in", "shop.a", [1.0] * 9 + [NAN] * 3), partial=2, brokers=3, resets=4)
    text = say(estimate(gap))
    assert "75 % of the period has values" in text
    assert "1970-01-01 00:45 UTC to 1970-01-01 01:00 UTC" in text
    assert "2 intervals left out, in which not all of 3 brokers reported all the time" in text
    assert "counters began again 4 times" in text


def test_money_for_brokers_is_a_lower_bound_where_a_limit_is_not_known() -> None:
    prices = UsagePrices("EUR", broker_month=300.0)
    broker = BrokerCapacity(bytes_in=50 * MIB, bytes_out=100 * MIB, disk=1000 * GIB)
    text = say(estimate(build_history(("bytes_in", "shop.a", [MIB] * 12)), prices=prices, broker=broker))
    assert "| Brokers of the target, each 30 days | at least 900.00 EUR |" in text


def test_without_figures_by_topic_the_whole_cluster_bounds_the_flow() -> None:
    whole = build_history(("bytes_in", WHOLE_CLUSTER, [5.0 * MIB] * 12), ("partitions", WHOLE_CLUSTER, [40.0]))
    found = estimate(whole)
    [flow] = found.flows
    assert not flow.by_topic
    assert flow.rates["bytes_in"].maximum == 5 * MIB
    assert flow.partitions == 40
    assert not flow.sized
    assert "those of the whole cluster onprem" in say(found)
    assert build_usage_document(found)["flows"]["onprem-to-cloud"]["copy"]["bytes"] is None


def test_an_inventory_gives_the_sizes_that_a_history_has_not() -> None:
    topics = {
        name: InventoryTopic(name, None, 5, 3, size_bytes=size)
        for name, size in (("shop.a", GIB), ("shop.idle", 2 * GIB), ("elsewhere", 7 * GIB))
    }
    scanned = Inventory({"onprem": InventoryCluster("onprem", "id", 0, topics=topics)})
    found = estimate(build_history(("bytes_in", "shop.a", [1.0] * 12)), inventory=scanned)
    [flow] = found.flows
    assert flow.copy is not None
    assert (flow.copy.bytes, flow.unseen, flow.partitions) == (3 * GIB, ("shop.idle",), 10)
    assert "the history has no shop.idle" in say(found)


def test_histories_of_different_times_add_their_peaks() -> None:
    other = ClusterHistory(
        "other",
        "pages",
        UsagePeriod(90, 120, 30),
        {("bytes_in", "x"): UsageSeries("bytes_in", "x", UsagePeriod(90, 120, 30), array("d", [MIB]))},
    )
    found = estimate(BUSY, other)
    [target] = found.targets
    assert not target.exact
    assert target.need.bytes_in == 30 * MIB
    assert target.need.bytes_out is None  # what is read of `x` is not known
    assert not target.fleet.records_known
    assert "as if they came together" in say(found)


def test_the_document_is_json_without_nan_and_has_every_topic() -> None:
    found = estimate(
        build_history(*[("bytes_in", f"shop.{n}", [1.0, NAN]) for n in range(30)], costs=(CostLine("m5", 3.0, "USD"),))
    )
    document = json.loads(encode_usage(found))
    assert document["schema"] == "watershed/usage/v1"
    assert len(document["clusters"]["onprem"]["topics"]) == 30
    assert document["clusters"]["onprem"]["costs"] == [{"usage": "m5", "amount": 3.0, "currency": "USD"}]
    text = say(found)
    assert "and 15 more; the JSON document has all" in text
    assert "3.00 USD" in text


def test_names_of_topics_cannot_become_markup() -> None:
    page = build_usage_page(estimate(build_history(("bytes_in", "<script>|x", [1.0] * 12), notes=("<b>bold",))))
    assert "<script>" not in render_html_page(page)
    assert "\\<script\\>\\|x" in render_markdown_page(page)
