"""An inventory as JSON: nothing lost either way, damage named by its path, the schema equal to the document."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import choose_examples
from watershed.topology.cluster_capabilities import ClusterCapabilities, RequestVersions, TriedCapability
from watershed.topology.errors import UnreadableInventory
from watershed.topology.inventory import (
    Inventory,
    InventoryAcl,
    InventoryBroker,
    InventoryCluster,
    InventoryGroup,
    InventoryTopic,
)
from watershed.topology.inventory_json import (
    decode_capability_record,
    decode_inventory,
    encode_capability_record,
    encode_inventory,
)
from watershed.topology.inventory_schema import build_inventory_schema

WORDS = st.text(max_size=12)
COUNTS = st.integers(0, 2**62)
MAYBE = st.none() | COUNTS
CONFIGS = st.dictionaries(st.sampled_from(["retention.ms", "cleanup.policy", "segment.ms", "a"]), WORDS, max_size=4)
OFFSETS = st.dictionaries(WORDS, st.dictionaries(st.integers(0, 2000), COUNTS, max_size=3), max_size=2)
TOPICS = st.builds(
    InventoryTopic,
    name=WORDS,
    id=st.none() | WORDS,
    partitions=COUNTS,
    replication_factor=COUNTS,
    internal=st.booleans(),
    configs=CONFIGS,
    overridden=st.lists(WORDS, max_size=2).map(tuple),
    size_bytes=MAYBE,
    rate_bytes=MAYBE,
    records_end=COUNTS,
    last_append_ms=MAYBE,
)
GROUPS = st.builds(
    InventoryGroup,
    id=WORDS,
    state=WORDS,
    type=WORDS,
    members=COUNTS,
    offsets=OFFSETS,
    lag=st.dictionaries(WORDS, COUNTS, max_size=2),
)
ACLS = st.builds(InventoryAcl, *[WORDS] * 7)
CAPABILITIES = st.builds(
    ClusterCapabilities,
    alias=WORDS,
    cluster_id=WORDS,
    taken_ms=COUNTS,
    brokers=COUNTS,
    answered=COUNTS,
    requests=st.dictionaries(WORDS, st.builds(RequestVersions, COUNTS, COUNTS), max_size=2),
    features=st.dictionaries(WORDS, COUNTS, max_size=2),
    topic_ids=st.none() | st.booleans(),
    oldest_release=st.none() | WORDS,
    newest_release=st.none() | WORDS,
    tried=st.dictionaries(WORDS, st.builds(TriedCapability, st.none() | st.booleans(), WORDS, MAYBE), max_size=2),
)
CLUSTERS = st.builds(
    InventoryCluster,
    alias=WORDS,
    cluster_id=WORDS,
    taken_ms=st.integers(0, 4_000_000_000_000),
    kafka=st.none() | WORDS,
    brokers=st.lists(st.builds(InventoryBroker, COUNTS, WORDS, st.none() | WORDS), max_size=3).map(tuple),
    configs=CONFIGS,
    topics=st.lists(TOPICS, max_size=5).map(lambda topics: {topic.name: topic for topic in topics}),
    groups=st.lists(GROUPS, max_size=3).map(lambda groups: {group.id: group for group in groups}),
    acls=st.none() | st.lists(ACLS, max_size=2).map(tuple),
    quotas=st.dictionaries(WORDS, st.dictionaries(WORDS, st.floats(0, 1e15), max_size=2), max_size=2),
    capabilities=st.none() | CAPABILITIES,
    not_seen=st.lists(WORDS, max_size=2).map(tuple),
)
INVENTORIES = st.builds(
    lambda found, missing: Inventory({each.alias: each for each in found}, missing=missing),
    st.lists(CLUSTERS, max_size=3),
    st.dictionaries(WORDS, WORDS, max_size=2),
)

CLUSTER = InventoryCluster(
    "onprem",
    "OnpAAAAAAAAAAAAAAAAAAA",
    1_800_000_000_000,
    kafka="4.3",
    brokers=(InventoryBroker(1, "k1", "a"), InventoryBroker(2, "k2", "b"), InventoryBroker(3, "k3", "b")),
    configs={"auto.create.topics.enable": "false"},
    topics={
        name: InventoryTopic(name, None, 3, 3, configs={"retention.ms": "604800000", "cleanup.policy": policy})
        for name, policy in (("a", "delete"), ("b", "delete"), ("c", "compact"))
    },
    groups={"billing": InventoryGroup("billing", "Stable", members=2, offsets={"a": {0: 5}}, lag={"a": 7})},
)
INVENTORY = Inventory({"onprem": CLUSTER})


@settings(max_examples=choose_examples(80, 300), deadline=None)
@given(INVENTORIES)
def test_nothing_is_lost(inventory: Inventory) -> None:
    text = encode_inventory(inventory)
    again = decode_inventory(text)
    assert again == inventory
    assert encode_inventory(again) == text


def test_topics_list_what_differs() -> None:
    cluster = json.loads(encode_inventory(INVENTORY))["clusters"]["onprem"]
    assert cluster["topic_configs"] == {"retention.ms": "604800000", "cleanup.policy": "delete"}
    assert {name: topic["configs"] for name, topic in cluster["topics"].items()} == {
        "a": {},
        "b": {},
        "c": {"cleanup.policy": "compact"},
    }
    topics = decode_inventory(encode_inventory(INVENTORY)).clusters["onprem"].topics
    assert topics["a"].configs is topics["b"].configs  # one mapping for a hundred thousand topics


def _without(*path: str) -> str:
    document = json.loads(encode_inventory(INVENTORY))
    here: Any = document
    for name in path[:-1]:
        here = here[int(name) if isinstance(here, list) else name]
    del here[path[-1]]
    return json.dumps(document)


def _with(value: Any, *path: str) -> str:
    document = json.loads(encode_inventory(INVENTORY))
    here: Any = document
    for name in path[:-1]:
        here = here[int(name) if isinstance(here, list) else name]
    here[path[-1]] = value
    return json.dumps(document)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "this is not JSON"),
        ("[" * 100_000, "this is not JSON"),
        ("{\n  'a': 1}", "this is not JSON (line 2"),
        ("[]", 'not an inventory ("kind": "inventory")'),
        ('{"schema": 1, "kind": "plan"}', "not an inventory"),
        (_with(2, "schema"), "has schema 2, this Watershed reads 1; scan again"),
        (_without("clusters"), "damaged: `clusters` is missing"),
        (_without("clusters", "onprem", "brokers"), "damaged at clusters.onprem: `brokers` is missing"),
        (_without("clusters", "onprem", "topics", "b", "partitions"), "at clusters.onprem.topics.b: `partitions` is"),
        (_without("clusters", "onprem", "topic_configs"), "at clusters.onprem: `topic_configs` is missing"),
        (_without("clusters", "onprem", "brokers", "1", "host"), "at clusters.onprem.brokers.[1]: `host` is missing"),
        (_with("3", "clusters", "onprem", "topics", "b", "partitions"), "partitions: a whole number is expected"),
        (_with(True, "clusters", "onprem", "taken_ms"), "clusters.onprem.taken_ms: a whole number is expected"),
        (_with(float("nan"), "clusters", "onprem", "taken_ms"), "this is not JSON"),
        (_with(1, "clusters", "onprem", "colour"), "clusters.onprem: `colour` is not known here"),
        (_with([], "clusters", "onprem", "topics"), "clusters.onprem.topics: an object is expected"),
        (_with([], "clusters", "onprem", "topics", "a"), "clusters.onprem.topics.a: an object is expected"),
        (_with(7, "clusters", "onprem", "topics", "c", "configs", "x"), "topics.c.configs.x: a text is expected"),
        (_with(7, "clusters", "onprem", "topic_configs", "x"), "clusters.onprem.topic_configs.x: a text is expected"),
        (_with({"x": 1}, "clusters", "onprem", "groups", "billing", "offsets", "a"), "offsets.a.x: a partition's numb"),
        (_with({"mars": 1}, "missing"), "damaged at missing.mars: a text is expected"),
    ],
)
def test_damage_is_named(text: str, message: str) -> None:
    with pytest.raises(UnreadableInventory) as caught:
        decode_inventory(text)
    assert message in str(caught.value)
    assert caught.value.exit_code == 2


@settings(max_examples=choose_examples(25, 100), deadline=None)
@given(INVENTORIES)
def test_documents_are_valid_by_the_schema(inventory: Inventory) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = build_inventory_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(encode_inventory(inventory)), schema, cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    "text",
    [
        _without("clusters", "onprem", "brokers"),
        _with("3", "clusters", "onprem", "topics", "b", "partitions"),
        _with(1, "clusters", "onprem", "colour"),
        _with({"x": 1}, "clusters", "onprem", "groups", "billing", "offsets", "a"),
    ],
)
def test_the_schema_refuses_what_the_reader_refuses(text: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(text), build_inventory_schema(), cls=jsonschema.Draft202012Validator)


def test_an_inventory_of_an_earlier_version_misses_nothing() -> None:
    assert decode_inventory(_without("missing")) == INVENTORY


def test_a_later_scan_keeps_what_it_could_not_read() -> None:
    first = Inventory({}).with_scan({"onprem": CLUSTER}, {"mars": "no answer", "moon": "no answer"})
    moon = replace(CLUSTER, alias="moon")
    then = first.with_scan({"moon": moon}, {"onprem": "refused"})
    assert then.clusters == {"onprem": CLUSTER, "moon": moon}
    assert then.missing == {"mars": "no answer", "onprem": "refused"}


def test_an_inventory_of_an_earlier_version_says_nothing_of_capabilities() -> None:
    document = json.loads(encode_inventory(Inventory({CLUSTER.alias: CLUSTER})))
    del document["clusters"][CLUSTER.alias]["capabilities"]
    assert decode_inventory(json.dumps(document)).cluster(CLUSTER.alias) == CLUSTER


PROBED = ClusterCapabilities(
    "onprem",
    "OnpAAAAAAAAAAAAAAAAAAA",
    1_800_000_000_000,
    3,
    2,
    {"produce": RequestVersions(0, 13)},
    tried={"sequence_check": TriedCapability(False, "stored twice"), "largest_batch": TriedCapability(True, "", 5)},
)


@given(CAPABILITIES)
@settings(max_examples=50)
def test_a_capability_record_loses_nothing(capabilities: ClusterCapabilities) -> None:
    assert decode_capability_record(encode_capability_record(capabilities)) == capabilities


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _document: "[", "this is no capability record"),
        (lambda document: document | {"kind": "inventory"}, "this is no capability record"),
        (lambda document: document | {"schema": 9}, "has schema 9, this Watershed reads 1; probe again"),
        (lambda document: {"schema": 1, "kind": "capabilities"}, "`capabilities` is missing"),
        (
            lambda document: document | {"capabilities": document["capabilities"] | {"tried": {"x": {"works": 1}}}},
            r"damaged at capabilities\.tried\.x: `number` is missing",
        ),
    ],
)
def test_a_damaged_capability_record_is_refused_with_its_path(change: Any, message: str) -> None:
    changed = change(json.loads(encode_capability_record(PROBED)))
    with pytest.raises(UnreadableInventory, match=message):
        decode_capability_record(changed if isinstance(changed, str) else json.dumps(changed))


def test_a_probe_belongs_to_one_cluster_of_an_inventory() -> None:
    listed = replace(PROBED, taken_ms=5, requests={}, tried={})
    inventory = Inventory({"onprem": replace(CLUSTER, capabilities=listed)}, live=True)
    found = inventory.with_probe(PROBED)
    assert found.live
    assert found.clusters["onprem"].capabilities == replace(listed, tried=PROBED.tried), "what is listed is newer"
    assert Inventory({"onprem": CLUSTER}).with_probe(PROBED).clusters["onprem"].capabilities == PROBED
    with pytest.raises(UnreadableInventory, match=r"cluster b was probed, but is not a cluster here \(onprem\)"):
        inventory.with_probe(replace(PROBED, alias="b"))
    with pytest.raises(UnreadableInventory, match="cluster other was probed as onprem"):
        inventory.with_probe(replace(PROBED, cluster_id="other"))
