"""Clients over many scans: none is lost, none is made up; and the report says who moves, and who is unknown."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watershed.topology.application_controls import PlanApplication
from watershed.topology.client_collector import ClientCollector, ClientSighting
from watershed.topology.client_inventory import (
    REQUEST_LOG,
    ClientInventory,
    ClientObservation,
    ClusterClients,
    PrincipalRights,
    SeenClient,
    SeenProducer,
    SeenRights,
    SeenSpan,
    join_seen_clients,
    limit_names,
    limit_producer_ids,
    merge_clients,
    merge_inventories,
)
from watershed.topology.client_inventory_json import (
    build_client_schema,
    decode_client_inventory,
    encode_client_inventory,
)
from watershed.topology.errors import UnreadableInventory
from watershed.topology.inventory import Inventory, InventoryBroker, InventoryCluster, InventoryTopic
from watershed.topology.loader import parse_topology
from watershed.topology.planning import estimate_migration
from watershed.topology.planning.client_overview import find_application, summarise_cluster_clients
from watershed.topology.planning.html import render_html_page
from watershed.topology.planning.markdown import render_markdown_page
from watershed.topology.planning.report_document import encode_report
from watershed.topology.planning.report_page import build_report_page

NOW = 1_800_000_000_000
NAMES = st.sampled_from(["a", "b", "c", ""])
TIMES = st.integers(1, 1_000)
SPANS = st.builds(lambda one, other: SeenSpan(min(one, other), max(one, other)), TIMES, TIMES)
USES = st.dictionaries(NAMES, SPANS, max_size=2)
SETS = st.lists(NAMES, max_size=3).map(limit_names)
CLIENTS = st.builds(
    SeenClient,
    st.none() | st.sampled_from(["User:a", "User:b"]),
    st.sampled_from(["x", "y"]),
    SPANS,
    SETS,
    SETS,
    SETS,
    SETS,
    st.lists(st.integers(0, 5), max_size=2).map(limit_producer_ids),
    SETS,
    USES,
    USES,
)
PRODUCERS = st.builds(SeenProducer, st.integers(0, 3), SPANS, st.none() | NAMES, USES)
RIGHTS = st.builds(
    SeenRights, TIMES, st.none() | st.dictionaries(NAMES, st.builds(PrincipalRights, SETS, SETS), max_size=2), SETS
)
OBSERVATIONS = st.builds(
    ClientObservation, NAMES, NAMES, SPANS, TIMES, TIMES, st.lists(SPANS, max_size=2).map(tuple), SETS, SETS
)
SEEN = st.builds(
    lambda clients, producers, rights, observations: ClusterClients(
        "onprem",
        "id",
        tuple({each.key: each for each in sorted(clients, key=lambda one: one.key)}.values()),
        tuple({each.producer_id: each for each in sorted(producers, key=lambda one: one.producer_id)}.values()),
        rights,
        tuple(observations),
    ),
    st.lists(CLIENTS, max_size=4),
    st.lists(PRODUCERS, max_size=3),
    st.none() | RIGHTS,
    st.lists(OBSERVATIONS, max_size=1),
)


@given(SEEN, SEEN, SEEN)
def test_the_order_of_scans_does_not_matter(one: ClusterClients, two: ClusterClients, three: ClusterClients) -> None:
    assert merge_clients(one, two) == merge_clients(two, one)
    assert merge_clients(merge_clients(one, two), three) == merge_clients(one, merge_clients(two, three))
    assert merge_clients(one, one) == one  # the same log read twice


@given(SEEN, SEEN)
def test_no_client_is_lost(one: ClusterClients, two: ClusterClients) -> None:
    both = {each.key: each for each in merge_clients(one, two).clients}
    for each in (*one.clients, *two.clients):
        assert both[each.key].seen.last_ms >= each.seen.last_ms
        assert both[each.key].reads.keys() >= each.reads.keys()
        assert both[each.key].writes.keys() >= each.writes.keys()
    assert len(both) == len({each.key for each in (*one.clients, *two.clients)})


@given(SEEN)
def test_as_json(seen: ClusterClients) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    inventory = ClientInventory({"onprem": seen})
    text = encode_client_inventory(inventory)
    assert decode_client_inventory(text) == inventory
    jsonschema.validate(json.loads(text), build_client_schema(), cls=jsonschema.Draft202012Validator)


def test_another_cluster_under_the_same_name_is_refused() -> None:
    one = ClientInventory({"onprem": ClusterClients("onprem", "one")})
    assert merge_inventories(one, ClientInventory({"onprem": ClusterClients("onprem", None)})) == one
    with pytest.raises(UnreadableInventory, match="onprem was cluster one and is cluster two now"):
        merge_inventories(one, ClientInventory({"onprem": ClusterClients("onprem", "two")}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "this is no list of clients"),
        ('{"kind": "inventory"}', "this is no list of clients"),
        ('{"kind": "clients", "schema": 9}', "has schema 9, this Watershed reads 1"),
        ('{"kind": "clients", "schema": 1}', "`clusters` must be an object"),
        ('{"kind": "clients", "schema": 1, "clusters": {"a": {}}}', "at clusters.a: `clients` is missing"),
    ],
)
def test_damage_is_named(text: str, message: str) -> None:
    with pytest.raises(UnreadableInventory) as caught:
        decode_client_inventory(text)
    assert message in str(caught.value)


def test_a_log_that_grew_counts_once() -> None:
    def grown(last: int, used: int) -> ClusterClients:
        return ClusterClients(
            "a", None, observations=(ClientObservation(REQUEST_LOG, "x.log", SeenSpan(1, last), used),)
        )

    [observation] = merge_clients(grown(9, 5), grown(5, 3)).observations
    assert (observation.seen.last_ms, observation.used) == (9, 5)


def test_many_names_are_bounded() -> None:
    one = SeenClient("User:a", "x", SeenSpan(1, 1), hosts=limit_names(f"h{number:03}" for number in range(90)))
    two = SeenClient("User:a", "x", SeenSpan(1, 1), hosts=limit_names(f"h{number:03}" for number in range(80, 170)))
    [client] = merge_clients(ClusterClients("a", None, (one,)), ClusterClients("a", None, (two,))).clients
    assert len(client.hosts) == 100


def test_of_many_producer_ids_the_newest_are_kept() -> None:
    collector = ClientCollector()
    for number in range(2_500):
        collector.add(ClientSighting("User:a", "x", 1, REQUEST_LOG, producer_id=number, host=f"h{number:04}"))
    [client] = collector.list_clients()
    assert client.producer_ids == tuple(range(2_400, 2_500))
    assert client.hosts == tuple(f"h{number:04}" for number in range(100))
    later = SeenClient("User:a", "x", SeenSpan(2, 2), producer_ids=limit_producer_ids(range(2_450, 2_600)))
    assert join_seen_clients(client, later).producer_ids == tuple(range(2_500, 2_600))


# --- what belongs together

T1 = SeenSpan(NOW, NOW)
LOG = ClientObservation(REQUEST_LOG, "a.log", T1, 10)


def client(principal: str | None, client_id: str, **more: Any) -> SeenClient:
    return SeenClient(principal, client_id, T1, **{"hosts": ("h1",), **more})


def cluster(*clients: SeenClient, producers: tuple[SeenProducer, ...] = (), **more: Any) -> ClusterClients:
    ordered = tuple(sorted(clients, key=lambda each: each.key))
    return ClusterClients("onprem", "id", ordered, producers, **{"observations": (LOG,), **more})


def test_a_group_member_is_the_client_of_the_log() -> None:
    seen = summarise_cluster_clients(
        cluster(client("User:a", "web"), client(None, "web", groups=("billing",), reads={"orders": T1}))
    )
    [found] = seen.clients
    assert (found.principal, found.groups, set(found.reads)) == ("User:a", ("billing",), {"orders"})


@pytest.mark.parametrize(
    "others",
    [
        (client("User:a", "web"), client("User:b", "web")),  # which of the two?
        (client("User:a", "web", hosts=("h2",)),),  # from elsewhere
        (client("User:a", "web-2"),),
    ],
)
def test_a_member_that_could_be_another_stays_apart(others: tuple[SeenClient, ...]) -> None:
    seen = summarise_cluster_clients(cluster(*others, client(None, "web", groups=("billing",))))
    assert len(seen.clients) == len(others) + 1


def test_a_producer_gets_its_name_from_its_number_or_its_transactional_id() -> None:
    producers = (
        SeenProducer(7, T1, None, {"orders": T1}),
        SeenProducer(8, T1, "tx-1", {"payments": T1}),
        SeenProducer(9, T1, "tx-2", {"secret": T1}),
        SeenProducer(10, T1, None, {"orders": T1}),
    )
    clients = (
        client("User:a", "web", producer_ids=(7,)),
        client("User:b", "pay", transactional_ids=("tx-1",)),
        client("User:c", "one", transactional_ids=("tx-2",)),
        client("User:d", "two", transactional_ids=("tx-2",)),
    )
    seen = summarise_cluster_clients(cluster(*clients, producers=producers))
    writes = {each.client_id: set(each.writes) for each in seen.clients if each.writes}
    assert writes == {"web": {"orders"}, "pay": {"payments"}}
    assert [each.producer_id for each in seen.unknown] == [9, 10]


def test_principals_that_are_never_seen() -> None:
    rights = SeenRights(
        NOW,
        {
            "User:a": PrincipalRights(("orders",)),
            "User:ghost": PrincipalRights((), ("orders*",)),
            "User:admin": PrincipalRights(),  # of clusters and groups only
            "User:*": PrincipalRights(("open",)),
        },
    )
    seen = cluster(client("User:a", "web"), rights=rights)
    assert summarise_cluster_clients(seen).never_seen == ("User:ghost",)
    without_log = cluster(client(None, "web"), rights=rights, observations=())
    assert summarise_cluster_clients(without_log).never_seen is None
    assert summarise_cluster_clients(cluster(rights=SeenRights(NOW))).never_seen is None


@pytest.mark.parametrize(
    ("declared", "seen", "matches"),
    [
        (PlanApplication(principal="User:a"), client("User:a", "web"), True),
        (PlanApplication(principal="User:a", client_id="web"), client("User:a", "other"), False),
        (PlanApplication(principal="User:a", client_id="web"), client(None, "web"), True),
        (PlanApplication(principal="User:a"), client(None, "web"), False),
        (PlanApplication(), client("User:a", "web"), False),
    ],
)
def test_applications(declared: PlanApplication, seen: SeenClient, matches: bool) -> None:
    assert find_application({"shop": declared}, seen) == ("shop" if matches else None)


# --- the report

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
  applications:
    shop: {http: "http://shop.example.internal/switch", principal: "User:shop"}
    dark: {http: "http://dark.example.internal/switch", client_id: "dark-1"}
  waves:
    - {name: orders, topics: [shop.orders], consumers: [billing], producers: [shop]}
"""
HOSTILE = "<script>alert(1)</script> | `x` \u202e\x1b[31m"


def report(seen: ClusterClients | None) -> tuple[str, str, dict[str, Any]]:
    """As HTML, Markdown and JSON."""
    topology = parse_topology(FILE).topology
    assert topology is not None
    scanned = InventoryCluster(
        "onprem",
        "id",
        NOW,
        brokers=(InventoryBroker(1, "k1"),),
        topics={"shop.orders": InventoryTopic("shop.orders", None, 1, 1)},
    )
    clients = None if seen is None else ClientInventory({"onprem": seen})
    planning = estimate_migration(topology, Inventory({"onprem": scanned}), clients=clients)
    page = build_report_page(planning)
    return render_html_page(page), render_markdown_page(page), json.loads(encode_report(planning))


WAVE = cluster(
    client("User:shop", "shop-1", writes={"shop.orders": T1}),
    client(None, "billing-1", groups=("billing",), reads={"shop.orders": T1}),
    client("User:eve", HOSTILE, writes={"shop.orders": T1}, software=(HOSTILE,)),
    client("User:bi", "nightly", groups=("bi",), reads={"shop.orders": T1}),
    client("User:w", "watershed-w1", reads={"shop.orders": T1}),
    producers=(SeenProducer(4711, T1, None, {"shop.orders": T1}),),
)


def test_who_moves_with_which_wave() -> None:
    _, _, document = report(WAVE)
    clients = document["waves"]["orders"]["clients"]
    said = {each["client_id"] or each["producer_id"]: each for each in clients}
    assert {name for name, each in said.items() if each["stranger"]} == {HOSTILE, "nightly", 4711}
    assert (said["shop-1"]["application"], said["shop-1"]["moves_with"]) == ("shop", ["orders"])
    assert (said["billing-1"]["application"], said["billing-1"]["moves_with"]) == (None, ["orders"])
    assert not said["watershed-w1"]["stranger"]
    assert [each["stranger"] for each in clients] == [True, True, True, False, False, False]


def test_whoever_calls_himself_watershed_and_writes_is_a_stranger() -> None:
    _, _, document = report(cluster(client("User:x", "watershed-x", writes={"shop.orders": T1})))
    assert [each["stranger"] for each in document["waves"]["orders"]["clients"]] == [True]


def test_the_page_says_who_is_unknown() -> None:
    html, markdown, _ = report(WAVE)
    assert "unknown producer 4711" in html
    assert "Write to topics of the wave, and are in no application of the file" in markdown
    assert "Read topics of the wave, and move with no wave: nightly" in markdown
    assert "The clients of cloud were not scanned" in markdown


def test_who_uses_a_topic() -> None:
    html, markdown, document = report(WAVE)
    users = document["clients"]["onprem"]["topics"]["shop.orders"]
    assert users["readers"] == ["billing-1", "nightly (User:bi)", "watershed-w1 (User:w)"]
    assert users["writers"] == [f"{HOSTILE} (User:eve)", "shop-1 (User:shop)", "unknown producer 4711"]
    assert "Topics of onprem and their clients" in html
    assert "no client was seen" not in markdown
    _, markdown, _ = report(cluster())
    assert "At 1 topic no client was seen: shop.orders." in markdown


def test_names_cannot_become_markup() -> None:
    tags: set[str] = set()

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            tags.add(tag)

    html, markdown, _ = report(WAVE)
    Tags().feed(html)
    assert "script" not in tags
    assert "link" not in tags
    assert "img" not in tags
    for text in (html, markdown):
        assert "\u202e" not in text
        assert "\x1b" not in text
    assert "<script" not in markdown.replace("\\<", "")


def test_what_was_not_seen_is_said() -> None:
    watched = ClientObservation("brokers", "", SeenSpan(NOW - 600_000, NOW), 18, 2, (SeenSpan(NOW - 90_000, NOW),))
    _, markdown, document = report(
        cluster(observations=(watched,), rights=SeenRights(NOW, {"User:a": PrincipalRights(("x",))}, ("user=a",)))
    )
    assert "No request log was read" in markdown
    assert "18 scans, 2 that failed; 1 gap of 1 min 30 s together" in markdown
    assert "No client was seen." in markdown
    assert "Which principals have rights and are never there cannot be said" in markdown
    assert "Quotas are set for user=a." in markdown
    assert document["clients"]["onprem"]["never_seen"] is None


def test_without_a_list_nothing_is_said_of_clients() -> None:
    _, markdown, document = report(None)
    assert "## Clients" not in markdown
    assert document["clients"] is None
    assert document["waves"]["orders"]["clients"] is None
