"""MirrorMaker 1 and uReplicator: what their properties say, and what only their command lines and ZooKeeper know."""

from __future__ import annotations

from pathlib import Path

import pytest

from watershed.topology.errors import UnreadableTopology
from watershed.topology.interop.import_formats import ForeignDocument, import_path, import_text
from watershed.topology.interop.imported_topology import ImportedTopology
from watershed.topology.interop.legacy_mirror_import import recognises
from watershed.topology.selectors import Selector

CONSUMER = "bootstrap.servers=k1.a.example.internal:9092\ngroup.id=mirror\nauto.offset.reset=earliest\n"
PRODUCER = "bootstrap.servers=k1.b.example.internal:9092\nacks=all\ncompression.type=lz4\n"
CLUSTERS = """kafka.cluster.zkStr.lon=zk.example.internal:2181/lon
kafka.cluster.servers.lon=k1.lon.example.internal:9092
kafka.cluster.zkStr.dub=zk.example.internal:2181/dub
kafka.cluster.servers.dub=k1.dub.example.internal:9092
"""


def folder(place: Path, **files: str) -> ImportedTopology:
    for name, text in files.items():
        (place / f"{name}.properties").write_text(text, encoding="utf-8")
    return import_path(place)


def left(imported: ImportedTopology, what: str) -> list[str]:
    return [each.why for each in imported.not_carried if what in each.what]


@pytest.mark.parametrize(
    ("reset", "start"),
    [("smallest", "earliest"), ("earliest", "earliest"), ("largest", "latest"), ("latest", "latest")],
)
def test_where_a_copy_starts_in_the_words_of_both_consumers(reset: str, start: str) -> None:
    [flow] = import_text(CONSUMER.replace("reset=earliest", f"reset={reset}"), "consumer.properties").flows
    assert flow.settings["delivery"] == {"start": start}


def test_a_start_that_is_not_said_is_the_consumers_default_and_listed() -> None:
    imported = import_text("zookeeper.connect=zk:2181\ngroup.id=mirror\n", "consumer.properties")
    assert imported.flows[0].settings["delivery"] == {"start": "latest"}
    assert len(left(imported, "auto.offset.reset")) == 1


def test_a_start_that_is_no_word_is_an_error() -> None:
    imported = import_text(CONSUMER.replace("reset=earliest", "reset=first"), "consumer.properties")
    assert [each.code for each in imported.problems if each.severity is None] == ["SYN011"]
    assert "delivery" not in imported.flows[0].settings


def test_going_on_at_the_groups_positions_is_told() -> None:
    [why] = left(import_text(CONSUMER, "consumer.properties"), "group.id")
    assert "`delivery.start` as `{group: NAME}`" in why


def test_consumer_and_producer_are_the_two_ends_and_topics_are_to_be_filled_in(tmp_path: Path) -> None:
    imported = folder(tmp_path, consumer=CONSUMER, producer=PRODUCER)
    assert imported.format == "mm1"
    assert [each.bootstrap for each in imported.clusters] == [
        ("k1.a.example.internal:9092",),
        ("k1.b.example.internal:9092",),
    ]
    [flow] = imported.flows
    assert flow.include == ()
    assert len(left(imported, "topics of")) == 1


def test_clusters_of_ureplicator_are_found_by_their_path_in_zookeeper_and_their_addresses(tmp_path: Path) -> None:
    imported = folder(
        tmp_path,
        clusters=CLUSTERS,
        consumer="zookeeper.connect=localhost:2181/lon\ngroup.id=g\nauto.offset.reset=smallest\n",
        producer="bootstrap.servers=k1.dub.example.internal:9092\nacks=-1\n",
        mapping="orders orders\npayments pay\n",
    )
    assert [(flow.source, flow.target) for flow in imported.flows] == [("lon", "dub")]
    assert imported.flows[0].include == (Selector("literal", "orders"), Selector("literal", "payments"))
    assert imported.flows[0].settings["naming"] == {"policy": "map", "map": {"payments": "pay"}}
    assert left(imported, "called") == []


def test_two_topics_under_one_name_are_an_error(tmp_path: Path) -> None:
    imported = folder(tmp_path, consumer=CONSUMER, mapping="orders all\npayments all\n")
    assert [each.code for each in imported.problems if each.severity is None] == ["NAM304"]


def test_clusters_alone_are_clusters_and_no_flow() -> None:
    imported = import_text(CLUSTERS, "clusters.properties")
    assert [each.alias for each in imported.clusters] == ["dub", "lon"]
    assert imported.flows == ()
    assert len(left(imported, "the flows between")) == 1


@pytest.mark.parametrize("text", ["orders orders\n", PRODUCER, "metadata.broker.list=k:9092\n"])
def test_a_part_that_says_nothing_of_a_source_is_refused_with_what_to_do(text: str) -> None:
    with pytest.raises(UnreadableTopology, match="name the directory"):
        import_text(text, "part.properties")


@pytest.mark.parametrize(
    "text",
    [
        "bootstrap.servers=k:9092\ngroup.id=connect\nauto.offset.reset=earliest\nkey.converter=x\n",
        "clusters = a, b\na.bootstrap.servers = k:9092\n",
        "link.mode=DESTINATION\nbootstrap.servers=k:9092\nacks=all\n",
        "bootstrap.servers=k:9092\n",
        "a b c\n",
        "# only a comment\n",
        "",
    ],
)
def test_files_of_other_tools_are_not_taken(text: str) -> None:
    assert not recognises(ForeignDocument("f.properties", text))


def test_no_secret_comes_over(tmp_path: Path) -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="m" password="s3cr3t";'
    secure = f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config={jaas}\n"
    imported = folder(tmp_path, consumer=CONSUMER + secure, producer=PRODUCER)
    assert "s3cr3t" not in repr((imported.clusters, imported.flows, imported.not_carried, imported.problems))
    assert [each.code for each in imported.problems if each.severity is None] == ["SEC601"]
