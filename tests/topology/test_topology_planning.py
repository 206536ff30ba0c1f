"""The planning report: estimates, obstacles, waves, and a page that is safe whatever clusters call their things."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watershed.topology.inventory import Inventory, InventoryBroker, InventoryCluster, InventoryGroup, InventoryTopic
from watershed.topology.loader import parse_topology
from watershed.topology.model import Topology
from watershed.topology.planning import Assumptions, MigrationEstimate, estimate_migration
from watershed.topology.planning.copy_estimate import CopyEstimate
from watershed.topology.planning.html import render_html_page
from watershed.topology.planning.markdown import render_markdown_page
from watershed.topology.planning.page_blocks import BlockPage, Bullets, Cell, Heading, Sentence, Table
from watershed.topology.planning.report_page import build_report_page
from watershed.topology.rounded_amounts import (
    render_cost,
    render_first_names,
    render_rounded_duration,
    render_rounded_rate,
    render_rounded_size,
    render_utc_minute,
)

MIB = 2**20
GIB = 2**30
NOW = 1_800_000_000_000
DAY = 86_400_000

FILE = """
apiVersion: topology/v1alpha1
kind: Topology
metadata: {name: shop}
clusters:
  onprem: {bootstrap: ["k1:9092"]}
  cloud: {bootstrap: ["k2:9092"]}
flows:
  - {source: onprem, target: cloud, topics: {include: [{glob: "shop.*"}]}, naming: {policy: identity}}
migration:
  flow: onprem-to-cloud
  waves:
    - {name: orders, topics: [shop.orders, shop.gone], consumers: [billing, nobody]}
    - {name: rest, after: [orders], topics: [shop.items], consumers: [search]}
"""
PLAIN = {
    "cleanup.policy": "delete",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
    "remote.storage.enable": "false",
    "retention.ms": "604800000",
}
BROKERS = {
    "log.cleanup.policy": "delete",
    "message.max.bytes": "1048588",
    "log.message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
}


def topic(name: str = "shop.orders", **more: object) -> InventoryTopic:
    configs = {**PLAIN, **more.pop("configs", {})}  # type: ignore[dict-item]
    fields = {"partitions": 6, "replication_factor": 3, "size_bytes": 60 * MIB, "rate_bytes": 0} | more
    return InventoryTopic(name, None, configs=configs, **fields)  # type: ignore[arg-type]


def cluster(alias: str, *topics: InventoryTopic, groups: tuple[InventoryGroup, ...] = (), **more: object):  # type: ignore[no-untyped-def]
    fields = {
        "kafka": "4.3",
        "brokers": tuple(InventoryBroker(number, f"k{number}") for number in (1, 2, 3)),
        "configs": BROKERS,
    } | more
    return InventoryCluster(
        alias,
        f"{alias}-id",
        NOW,
        topics={each.name: each for each in topics},
        groups={each.id: each for each in groups},
        **fields,  # type: ignore[arg-type]
    )


def topology(text: str = FILE) -> Topology:
    found = parse_topology(text).topology
    assert found is not None
    return found


def planned(
    *clusters: InventoryCluster, text: str = FILE, rate: int | None = None, price: float | None = None
) -> MigrationEstimate:
    inventory = Inventory({each.alias: each for each in clusters})
    return estimate_migration(topology(text), inventory, Assumptions(rate=rate, price_per_gib=price))


def said(found: MigrationEstimate) -> str:
    return "\n".join(f"{each.flow}: {each.what} | {', '.join(each.topics)} | {each.remedy}" for each in found.obstacles)


# --- estimates


@pytest.mark.parametrize(
    ("quota", "stated", "copies_at", "by"),
    [
        ("", None, 100 * MIB, "assumed"),
        ("", 10 * MIB, 10 * MIB, "--rate"),
        ("20MiB/s", None, 20 * MIB, "the flow's quota"),
        ("20MiB/s", 10 * MIB, 10 * MIB, "--rate"),
        ("20MiB/s", 50 * MIB, 20 * MIB, "the flow's quota"),
    ],
)
def test_the_copy_rate(quota: str, stated: int | None, copies_at: int, by: str) -> None:
    text = FILE.replace("migration:", f"defaults: {{workers: {{quota: {quota}}}}}\nmigration:") if quota else FILE
    [flow] = planned(cluster("onprem", topic()), text=text, rate=stated).flows
    assert flow.estimate is not None
    assert (flow.estimate.copy_rate, flow.estimate.limited_by) == (copies_at, by)


def estimated(stored: int, written: int, copy_rate: int) -> CopyEstimate:
    return CopyEstimate(1, 1, stored, 0, written, 0, copy_rate, "--rate")


def test_copy_and_catch_up() -> None:
    found = estimated(100 * GIB, 5 * MIB, 20 * MIB)
    assert found.copy_s == pytest.approx(5120)
    assert found.level_s == pytest.approx(100 * 1024 / 15)
    assert found.catch_up_s == pytest.approx(100 * 1024 / 15 - 5120)
    assert found.gib == 100
    assert found.gib_a_day == pytest.approx(5 * 86_400 / 1024)


@pytest.mark.parametrize(("stored", "written"), [(GIB, 20 * MIB), (GIB, 21 * MIB), (0, 20 * MIB)])
def test_a_flow_that_never_catches_up(stored: int, written: int) -> None:
    found = estimated(stored, written, 20 * MIB)
    assert found.catch_up_s is None
    assert found.level_s is None


@settings(deadline=None)
@given(st.integers(0, 2**60), st.integers(0, 2**34), st.integers(1, 2**34))
def test_level_is_when_all_that_was_written_is_copied(stored: int, written: int, copy_rate: int) -> None:
    found = estimated(stored, written, copy_rate)
    if found.level_s is None:
        assert written >= copy_rate
    else:
        assert found.level_s * copy_rate == pytest.approx(stored + written * found.level_s, rel=1e-6, abs=1e-3)


def test_a_quota_of_nothing_is_no_crash() -> None:
    text = FILE.replace("migration:", "defaults: {workers: {quota: 0MiB/s}}\nmigration:")
    assert "onprem-to-cloud" in render_markdown_page(build_report_page(planned(cluster("onprem", topic()), text=text)))


def test_unknown_sizes_are_said_not_guessed() -> None:
    found = planned(cluster("onprem", topic(), topic("shop.items", size_bytes=None, rate_bytes=None)))
    [flow] = found.flows
    assert flow.estimate is not None
    assert (flow.estimate.topics, flow.estimate.bytes, flow.estimate.unsized) == (2, 60 * MIB, 1)
    assert "the size of 1 of 2 topics is not known" in render_markdown_page(build_report_page(found))


# --- obstacles


def test_nothing_in_the_way() -> None:
    found = planned(cluster("onprem", topic()), cluster("cloud"))
    assert found.obstacles == ()
    assert "Nothing was found" in render_markdown_page(build_report_page(found))


@pytest.mark.parametrize(
    ("source", "there", "expected"),
    [
        (topic(configs={"max.message.bytes": "4000000"}), None, ""),  # the flow creates it with the larger value
        (topic(configs={"max.message.bytes": "4000000"}, overridden=("max.message.bytes",)), None, ""),
        (topic(), topic(configs={"max.message.bytes": "1000"}), "larger ones are refused and stop the partition"),
        (topic(), topic(configs={"message.timestamp.type": "LogAppendTime"}), "replace every record's time"),
        (topic(configs={"message.timestamp.type": "LogAppendTime"}), topic(), ""),
        (topic(configs={"cleanup.policy": "compact"}), topic(), "keys that are not written again disappear"),
        (topic(configs={"cleanup.policy": "compact"}, overridden=("cleanup.policy",)), None, ""),
        (topic(), topic(configs={"cleanup.policy": "compact,delete"}), "older records of a key are lost"),
        (topic(), topic(configs={"retention.ms": "3600000"}), "kept 7 d at onprem, 1 h at cloud"),
        (topic(configs={"retention.ms": "-1"}), topic(), "kept for ever at onprem, 7 d at cloud"),
        (topic(), topic(configs={"retention.ms": "-1"}), ""),
        (topic(), topic(partitions=12), "6 partitions at onprem, 12 at cloud"),
        (topic(), topic(replication_factor=2), "3 replicas at onprem, 2 at cloud"),
        (topic(), topic(configs={"min.insync.replicas": "4"}), "min.insync.replicas=4 with 3 replicas at cloud"),
        (topic(configs={"remote.storage.enable": "true"}), None, "cloud has no tiered storage"),
    ],
)
def test_obstacles_of_a_topic(source: InventoryTopic, there: InventoryTopic | None, expected: str) -> None:
    found = planned(cluster("onprem", source), cluster("cloud", *([] if there is None else [there])))
    if not expected:
        assert found.obstacles == ()
        return
    [obstacle] = found.obstacles
    assert expected in obstacle.what
    assert obstacle.topics == ("shop.orders",)
    assert obstacle.remedy


BIG = topic(configs={"max.message.bytes": "4000000"}, overridden=("max.message.bytes",))
STAMPED = {"configs": BROKERS | {"log.message.timestamp.type": "LogAppendTime"}}


@pytest.mark.parametrize(
    ("configs", "source", "target", "expected"),
    [
        ("{mode: never}", BIG, {}, "batches of up to 3.8 MiB are allowed at onprem"),
        ('{mode: never, set: {max.message.bytes: "5000000"}}', BIG, {}, ""),
        ("{mode: once, include: [retention.ms]}", BIG, {}, "batches of up to 3.8 MiB are allowed at onprem"),
        ("{mode: once, exclude: [max.message.bytes]}", BIG, {}, "batches of up to 3.8 MiB are allowed at onprem"),
        ("{mode: once, include: [max.message.bytes]}", BIG, {}, ""),
        ("{mode: never}", topic(), STAMPED, ""),  # a created topic gets CreateTime
        ("{mode: never, set: {message.timestamp.type: LogAppendTime}}", topic(), {}, "replace every record's time"),
    ],
)
def test_a_created_topic_has_the_configs_that_the_flow_gives_it(
    configs: str, source: InventoryTopic, target: dict[str, object], expected: str
) -> None:
    text = FILE.replace("naming: {policy: identity}", f"naming: {{policy: identity}}, sync: {{configs: {configs}}}")
    found = planned(cluster("onprem", source), cluster("cloud", **target), text=text)
    assert expected in said(found)
    assert bool(found.obstacles) == bool(expected)


def test_brokers_that_no_scan_saw_are_no_obstacle() -> None:
    assert not planned(cluster("onprem", topic()), cluster("cloud", brokers=())).obstacles


def test_replicas_that_the_target_cannot_have() -> None:
    one = (InventoryBroker(1, "k1"),)
    few = planned(cluster("onprem", topic()), cluster("cloud", brokers=one))
    assert "3 replicas at onprem, 1 at cloud" in said(few)
    text = FILE.replace("naming: {policy: identity}", "naming: {policy: identity}, replication_factor: 3")
    wanted = planned(cluster("onprem", topic()), cluster("cloud", brokers=one), text=text)
    assert "the flow asks for 3 replicas; cloud has 1 broker: the topics cannot be created" in said(wanted)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("0.10", "4.3", "onprem runs Kafka 0.10; Watershed reads from 0.11 and newer"),
        ("2.4", "2.3", "cloud runs Kafka 2.3; Watershed writes to 2.4 and newer"),
        ("0.11", "2.10", ""),
        (None, None, ""),
        ("unheard of", "4.x", ""),
    ],
)
def test_releases(source: str | None, target: str | None, expected: str) -> None:
    found = planned(cluster("onprem", topic(), kafka=source), cluster("cloud", kafka=target))
    assert expected in said(found)
    assert bool(found.obstacles) == bool(expected)


def test_partition_limits() -> None:
    declared = FILE.replace('bootstrap: ["k2:9092"]', 'bootstrap: ["k2:9092"], limits: {partitions: 10}')
    found = planned(cluster("onprem", topic()), cluster("cloud", topic("x", partitions=5)), text=declared)
    assert "cloud would hold 11 partitions; clusters.cloud.limits.partitions says 10" in said(found)
    many = planned(cluster("onprem", topic(partitions=4000)), cluster("cloud", topic("x", partitions=1)))
    assert "cloud would hold 12,003 replicas on 3 brokers" in said(many)
    assert not planned(cluster("onprem", topic()), cluster("cloud", topic("x", partitions=5))).obstacles


def test_topics_with_the_same_obstacle_share_a_line() -> None:
    tiered = {"remote.storage.enable": "true"}
    topics = [topic(f"shop.{number}", configs=tiered) for number in range(9)]
    [obstacle] = planned(cluster("onprem", *topics), cluster("cloud")).obstacles
    assert len(obstacle.topics) == 9


# --- waves


def groups() -> tuple[InventoryGroup, ...]:
    return (
        InventoryGroup("billing", "Stable", members=2, offsets={"shop.orders": {0: 5}}, lag={"shop.orders": 7}),
        InventoryGroup(
            "search",
            "Empty",
            offsets={"shop.items": {0: 5}, "shop.orders": {0: 1}},
            lag={"shop.items": 3, "shop.orders": 4},
        ),
        InventoryGroup("audit", "Stable", members=1, offsets={"shop.orders": {0: 5}}),
        InventoryGroup("other", "Stable", members=1, offsets={"elsewhere": {0: 5}}),
    )


def test_waves() -> None:
    found = planned(cluster("onprem", topic(), topic("shop.items", size_bytes=GIB), groups=groups()))
    orders, rest = found.waves
    assert (orders.estimate.topics, orders.estimate.bytes, orders.missing) == (1, 60 * MIB, ("shop.gone",))
    assert [(group.id, group.seen is not None, group.lag) for group in orders.groups] == [
        ("billing", True, 7),
        ("nobody", False, 0),
    ]
    assert [(each.id, each.topics, each.wave) for each in orders.bystanders] == [
        ("audit", ("shop.orders",), None),
        ("search", ("shop.orders",), "rest"),
    ]
    [search] = rest.groups
    assert (search.lag, search.elsewhere) == (3, ("shop.orders",))
    text = render_markdown_page(build_report_page(found))
    assert "Group audit (1 member) reads shop.orders and moves with no wave" in text
    assert "Group search (0 members) reads shop.orders and moves with wave rest" in text
    assert "not at the source" in text


def test_a_source_that_was_not_scanned() -> None:
    found = planned(cluster("cloud"))
    assert found.unscanned == {"onprem": ""}
    assert found.flows[0].estimate is None
    text = render_markdown_page(build_report_page(found))
    assert "onprem was not scanned" in text
    assert "the waves cannot be estimated" in text


# --- clusters


def test_busy_idle_and_internal_topics() -> None:
    found = planned(
        cluster(
            "onprem",
            topic("busy", rate_bytes=500, last_append_ms=NOW),
            topic("busier", rate_bytes=900, last_append_ms=NOW),
            topic("quiet", last_append_ms=NOW - DAY),
            topic("old", last_append_ms=NOW - 31 * DAY),
            topic("empty", size_bytes=0),
            topic("unknown", last_append_ms=None),
            topic("__consumer_offsets", internal=True),
            topic("store-changelog"),
        )
    )
    [onprem] = found.clusters
    assert [each.name for each in onprem.busiest] == ["busier", "busy"]
    assert [each.name for each in onprem.idle] == ["old", "empty"]
    assert [each.name for each in onprem.internal] == ["__consumer_offsets", "store-changelog"]
    assert (onprem.topics, onprem.partitions, onprem.written) == (8, 48, 1400)


def test_sizes_that_nobody_saw_are_unknown() -> None:
    [onprem] = planned(cluster("onprem", topic(size_bytes=None, rate_bytes=None))).clusters
    assert (onprem.bytes, onprem.written) == (None, None)


# --- the page


class _Tags(HTMLParser):
    """Collects tags and text; open must be empty at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def whole(name: str = "shop.orders") -> MigrationEstimate:
    weird = InventoryGroup(name, "Stable", members=1, offsets={"shop.orders": {0: 1}})
    source = cluster("onprem", topic(name, rate_bytes=9), topic(), groups=(*groups(), weird), not_seen=(name,))
    return planned(source, cluster("cloud", kafka="3.0"), price=0.05)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=30))
def test_names_are_never_markup(name: str) -> None:
    found = build_report_page(whole(name))
    page = _Tags()
    page.feed(render_html_page(found))
    assert page.open == []
    assert page.tags <= {
        *("html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "h3", "p", "ul", "li", "div"),
        *("table", "thead", "tbody", "tr", "th", "td", "span", "small"),
    }
    assert page.attributes <= {"lang", "charset", "name", "content", "class", "scope", "style"}
    widths = {
        row.replace("\\|", "").count("|") for row in render_markdown_page(found).split("\n") if row.startswith("| ")
    }
    assert widths <= {4, 5, 7, 10, 11}  # a name never adds a column or a line


def test_the_page_needs_nothing_else() -> None:
    text = render_html_page(build_report_page(whole()))
    for outside in ("http:", "https:", "src=", "url(", "<script", "@import", "<link"):
        assert outside not in text
    assert "prefers-color-scheme: dark" in text


def test_costs_are_shown_only_with_a_price() -> None:
    assert "costs" in render_markdown_page(build_report_page(whole()))
    source = cluster("onprem", topic(size_bytes=25 * GIB))
    assert "costs" not in render_markdown_page(build_report_page(planned(source)))
    assert "costs 1.25" in render_markdown_page(build_report_page(planned(source, price=0.05)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (render_rounded_size(0), "0 B"),
        (render_rounded_size(999), "999 B"),
        (render_rounded_size(1000), "1.0 KiB"),
        (render_rounded_size(1536 * MIB), "1.5 GiB"),
        (render_rounded_size(700 * GIB), "700 GiB"),
        (render_rounded_size(None), "unknown"),
        (render_rounded_rate(2 * MIB), "2.0 MiB/s"),
        (render_rounded_duration(0.2), "under 1 s"),
        (render_rounded_duration(59.6), "1 min"),
        (render_rounded_duration(3 * 3600 + 20 * 60 + 5), "3 h 20 min"),
        (render_rounded_duration(86_400 * 400), "400 d"),
        (render_utc_minute(0), "1970-01-01 00:00 UTC"),
        (render_cost(1234.5), "1,234.50"),
        (render_first_names(("a", "b", "c"), 2), "a, b and 1 more"),
    ],
)
def test_amounts(text: str, expected: str) -> None:
    assert text == expected


@pytest.mark.parametrize("written", [render_html_page, render_markdown_page])
def test_what_reorders_or_steers_is_written_out(written: Callable[[BlockPage], str]) -> None:
    hostile = "orders\u202e\x1b[2J\u2066\x85end"
    page = (Heading(1, hostile), Sentence(hostile, "warning"), Bullets((hostile,)), Table(("a",), ((Cell(hostile),),)))
    said = written(page)
    assert not set("\u202e\x1b\u2066\x85") & set(said)
    assert said.count("x1b") >= 4
