"""A scan of real clusters: what it sees, what it says it could not see, and that it changes nothing."""

from __future__ import annotations

import json
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer

from tests.clusters.sites import RealSite
from watershed.cli.main import main
from watershed.clusters import inventory_requests
from watershed.clusters.errors import ProtocolError, Unreachable, WrongCluster
from watershed.clusters.inventory_scan import scan_cluster
from watershed.clusters.kafka_release import detect_release
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire.connection import Connection
from watershed.topology.inventory import Inventory
from watershed.topology.inventory_json import decode_inventory, encode_inventory
from watershed.topology.inventory_schema import build_inventory_schema

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

pytestmark = pytest.mark.kafka


@pytest.fixture
def onprem(own_pair: Lab) -> ConnectionSettings:
    """Nobody else's: a scan looks at everything."""
    return ConnectionSettings("onprem", tuple(own_pair.clusters["onprem"].bootstrap.split(",")))


@pytest.fixture
def site(onprem: ConnectionSettings) -> Iterator[RealSite]:
    place = RealSite(onprem)
    yield place
    place.end()


def _produce(settings: ConnectionSettings, topic: str, partition: int, values: list[bytes], timestamp: int = 0) -> None:
    producer = Producer(settings.librdkafka())
    for value in values:
        producer.produce(topic, value, key=b"k", partition=partition, timestamp=timestamp)
    assert producer.flush(60) == 0


def _join_with_the_new_protocol(settings: ConnectionSettings, group: str, topic: str) -> Consumer:
    consumer = Consumer(settings.librdkafka({"group.id": group, "group.protocol": "consumer"}))
    consumer.subscribe([topic])
    deadline = time.monotonic() + 180
    while not consumer.assignment():
        consumer.poll(0.1)
        assert time.monotonic() < deadline, "the consumer got no partitions"
    return consumer


def test_topics_and_their_configs(site: RealSite, onprem: ConnectionSettings, topic_name: str) -> None:
    site.admin.create_topic(topic_name, 3, configs={"cleanup.policy": "compact", "max.message.bytes": "2000000"})
    site.admin.create_topic(f"{topic_name}-plain", 1)
    _produce(onprem, topic_name, 0, [b"x" * 1000] * 5, timestamp=1_700_000_000_000)
    _produce(onprem, topic_name, 2, [b"x" * 1000] * 2, timestamp=1_600_000_000_000)
    found = scan_cluster(onprem, sample_s=0)
    topic, plain = found.topics[topic_name], found.topics[f"{topic_name}-plain"]
    assert (topic.partitions, topic.replication_factor, topic.internal, topic.records_end) == (3, 1, False, 7)
    assert topic.last_append_ms == 1_700_000_000_000
    assert topic.overridden == ("cleanup.policy", "max.message.bytes")
    assert (topic.config("cleanup.policy"), topic.number("max.message.bytes")) == ("compact", 2_000_000)
    assert topic.config("retention.ms") == "604800000"  # in force, though not set on the topic
    assert topic.size_bytes is not None
    assert 7 * 1000 < topic.size_bytes < 7 * 1000 + 2000
    created = site.admin.topic(topic_name)
    assert created is not None
    assert topic.id is not None
    assert len(topic.id) == 22  # as Kafka prints it
    assert (plain.size_bytes, plain.last_append_ms, plain.records_end, plain.overridden) == (0, None, 0, ())
    assert topic.rate_bytes is plain.rate_bytes is None  # one look has no rate


def test_the_cluster_itself(site: RealSite, onprem: ConnectionSettings) -> None:
    found = scan_cluster(onprem, sample_s=0)
    assert found.cluster_id == site.admin.cluster_id()
    assert [broker.id for broker in found.brokers] == [1]
    assert found.kafka is not None
    assert found.kafka.startswith("4.")
    assert found.configs["auto.create.topics.enable"] == site.admin.broker_config("auto.create.topics.enable")
    assert int(found.configs["message.max.bytes"]) > 1_000_000
    assert found.acls is None
    assert "ACLs: the cluster has no authorizer" in found.not_seen


def test_rates_are_of_the_sample(site: RealSite, onprem: ConnectionSettings, topic_name: str) -> None:
    site.admin.create_topic(topic_name, 1)
    site.admin.create_topic(f"{topic_name}-idle", 1)
    ended = threading.Event()

    def write() -> None:
        while not ended.is_set():
            _produce(onprem, topic_name, 0, [uuid.uuid4().bytes * 100] * 10)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        found = scan_cluster(onprem, sample_s=1.0)
    finally:
        ended.set()
        writer.join()
    busy, idle = found.topics[topic_name], found.topics[f"{topic_name}-idle"]
    assert busy.rate_bytes is not None
    assert busy.rate_bytes > 1000
    assert idle.rate_bytes == 0


def test_groups(site: RealSite, onprem: ConnectionSettings, topic_name: str) -> None:
    site.admin.create_topic(topic_name, 2)
    _produce(onprem, topic_name, 0, [b"x"] * 9)
    site.admin.commit_offsets(
        f"{topic_name}-empty", {TopicPartition(topic_name, 0): 4, TopicPartition(topic_name, 1): 0}
    )
    site.join(f"{topic_name}-live", topic_name)
    consumer = _join_with_the_new_protocol(onprem, f"{topic_name}-new", topic_name)
    try:
        found = scan_cluster(onprem, sample_s=0).groups
    finally:
        consumer.close()
    empty, live, new = (found[f"{topic_name}-{which}"] for which in ("empty", "live", "new"))
    assert (empty.state, empty.type, empty.members) == ("Empty", "classic", 0)
    assert empty.offsets == {topic_name: {0: 4, 1: 0}}
    assert empty.lag == {topic_name: 5}
    assert (live.state, live.type, live.members) == ("Stable", "classic", 1)
    assert (new.state, new.type, new.members) == ("Stable", "consumer", 1)


def test_quotas(onprem: ConnectionSettings, topic_name: str) -> None:
    from kio.schema.alter_client_quotas.v1.request import (
        EntityData,
        EntryData,
        OpData,
    )
    from kio.static.primitive import f64

    host, _, port = onprem.bootstrap[0].rpartition(":")
    entity = (EntityData(entity_type="client-id", entity_name=topic_name),)

    def alter(*, remove: bool) -> None:
        with Connection(onprem, (host, int(port))) as inquiry:
            operation = OpData(key="producer_byte_rate", value=f64(1024.0), remove=remove)
            inquiry.ask(49, entries=(EntryData(entity=entity, ops=(operation,)),), validate_only=False)

    alter(remove=False)
    try:
        deadline = time.monotonic() + 180
        while f"client-id={topic_name}" not in (found := scan_cluster(onprem, sample_s=0)).quotas:
            assert time.monotonic() < deadline
        assert found.quotas[f"client-id={topic_name}"] == {"producer_byte_rate": 1024.0}
    finally:
        alter(remove=True)


def test_nothing_is_changed(site: RealSite, onprem: ConnectionSettings, topic_name: str) -> None:
    site.admin.create_topic(topic_name, 1)
    site.admin.commit_offsets(f"{topic_name}-g", {TopicPartition(topic_name, 0): 0})

    def seen() -> tuple[object, ...]:
        names = sorted(site.admin.topics())
        return site.admin.topics(), site.admin.topic_configs(names), site.admin.group(f"{topic_name}-g")

    before = seen()
    scan_cluster(onprem, sample_s=0.2)
    assert seen() == before


def test_as_json(site: RealSite, onprem: ConnectionSettings, topic_name: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    site.admin.create_topic(topic_name, 2)
    inventory = Inventory({"onprem": scan_cluster(onprem, sample_s=0)})
    text = encode_inventory(inventory)
    jsonschema.validate(json.loads(text), build_inventory_schema(), cls=jsonschema.Draft202012Validator)
    assert decode_inventory(text) == inventory


def test_an_unreachable_cluster_is_named() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(Unreachable, match=f"cluster cloud does not answer at {address}") as caught:
            scan_cluster(ConnectionSettings("cloud", (address,)), timeout_s=1.0)
    assert caught.value.alias == "cloud"


def test_another_cluster_than_pinned_is_refused(onprem: ConnectionSettings) -> None:
    with pytest.raises(WrongCluster, match="pins Zr9bQ2mTRz2a0p1kq3uV7g"):
        scan_cluster(ConnectionSettings("onprem", onprem.bootstrap, cluster_id="Zr9bQ2mTRz2a0p1kq3uV7g"), sample_s=0)


def test_without_raw_requests(
    site: RealSite, onprem: ConnectionSettings, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster that raw requests do not reach (no gssapi package): librdkafka answers alone, and the gaps are said."""

    def refused(settings: ConnectionSettings, *_: object, **__: object) -> Connection:
        raise ProtocolError("the package gssapi is not installed", alias=settings.alias)

    site.admin.create_topic(topic_name, 1)
    site.admin.commit_offsets(f"{topic_name}-empty", {TopicPartition(topic_name, 0): 0})
    site.join(f"{topic_name}-live", topic_name)
    monkeypatch.setattr("watershed.clusters.inventory_scan.Connection", refused)
    found = scan_cluster(onprem, sample_s=0.1)
    assert "sizes, rates, quotas, exact group members and the release: the package gssapi" in found.not_seen[0]
    assert (found.kafka, found.topics[topic_name].size_bytes, found.topics[topic_name].rate_bytes) == (None,) * 3
    states = {name: (group.state, group.type, group.members) for name, group in found.groups.items()}
    assert states[f"{topic_name}-empty"] == ("Empty", "classic", 0)
    assert states[f"{topic_name}-live"] == ("Stable", "classic", 1)


def test_many_topics_in_batches(
    site: RealSite, onprem: ConnectionSettings, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setattr(inventory_requests, "_TOPICS_A_REQUEST", 2)
    monkeypatch.setattr(inventory_requests, "_PARTITIONS_A_REQUEST", 2)
    names = [f"{topic_name}-{number}" for number in range(5)]
    for name in names:
        site.admin.create_topic(name, 3)
        _produce(onprem, name, 1, [b"x"])
    found = scan_cluster(onprem, sample_s=0).topics
    assert [(found[name].partitions, found[name].records_end) for name in names] == [(3, 1)] * 5
    assert found[names[0]].configs is found[names[1]].configs
    assert all(found[name].last_append_ms for name in names)


@pytest.mark.parametrize(
    ("versions", "supported", "expected"),
    [
        ({}, {"metadata.version": 30}, "4.3"),
        ({}, {"metadata.version": 22}, "4.0"),
        ({}, {"metadata.version": 7}, "3.3"),
        ({}, {"metadata.version": 99}, "4.4"),
        ({0: (0, 8), 1: (0, 11), 3: (0, 9)}, {}, "2.4"),
        ({0: (0, 11), 1: (0, 17), 16: (0, 5)}, {}, "3.9"),
        ({0: (0, 2)}, {}, None),
    ],
)
def test_releases(versions: dict[int, tuple[int, int]], supported: dict[str, int], expected: str | None) -> None:
    assert detect_release(versions, supported) == expected


# --- the command


@pytest.fixture
def files(tmp_path: Path, own_pair: Lab) -> Path:
    """A topology of two clusters and one that nobody runs, with a lint finding in it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nowhere = f"127.0.0.1:{free.getsockname()[1]}"
    pair = {alias: each.bootstrap for alias, each in own_pair.clusters.items()}
    (tmp_path / "two.yaml").write_text(_topology(pair))
    (tmp_path / "three.yaml").write_text(_topology({**pair, "lost": nowhere}))
    return tmp_path


def _topology(bootstraps: dict[str, str], more: str = "") -> str:
    clusters = "".join(f"  {alias}: {{bootstrap: [{each}]{more}}}\n" for alias, each in bootstraps.items())
    return (
        "apiVersion: topology/v1alpha1\nkind: Topology\nmetadata: {name: scanned}\nclusters:\n" + clusters + "flows:\n"
        "  - {source: onprem, target: onprem, topics: {include: [orders]}}  # a flow to itself: lint refuses it\n"
        '  - {source: onprem, target: cloud, topics: {include: [{glob: "*"}]}, naming: {policy: identity}}\n'
    )


def _list_of_clusters(onprem: str, cloud: str) -> str:
    """A file without flows: enough for a scan."""
    head = "apiVersion: topology/v1alpha1\nkind: Topology\nmetadata: {name: clusters}\nclusters:\n"
    return f"{head}  onprem: {{bootstrap: [{onprem}]}}\n  cloud: {{{cloud}}}\n"


def test_scan_and_report(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inventory, page = files / "inventory.json", files / "report.html"
    command = ["scan", str(files / "two.yaml"), "-o", str(inventory), "--report", str(page), "--sample", "0s"]
    assert main(command) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "onprem: Kafka 4." in shown.err
    seen = decode_inventory(inventory.read_text())
    assert set(seen.clusters) == {"onprem", "cloud"}
    assert "<h1>scanned: before the migration</h1>" in page.read_text()
    assert sorted(each.name for each in files.iterdir()) == ["inventory.json", "report.html", "three.yaml", "two.yaml"]
    assert main(["report", str(inventory), str(files / "two.yaml")]) == 0
    assert capsys.readouterr().out.startswith("# scanned: before the migration\n")


def test_one_cluster_on_stdout(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-q", "scan", str(files / "three.yaml"), "--cluster", "cloud", "--sample", "0s"]) == 0
    shown = capsys.readouterr()
    assert set(decode_inventory(shown.out).clusters) == {"cloud"}
    assert shown.err == ""


def test_a_cluster_that_does_not_answer_is_named_and_the_others_are_written(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, page = files / "inventory.json", files / "report.md"
    output.write_text("what was there")
    command = ["scan", str(files / "three.yaml"), "-o", str(output), "--sample", "0s", "--timeout", "5s"]
    assert main([*command, "--all"]) == 2
    assert "topology: cluster lost does not answer" in capsys.readouterr().err
    assert output.read_text() == "what was there"
    assert main([*command, "--report", str(page), "--parallel", "1"]) == 3
    shown = capsys.readouterr().err
    assert "missing: cluster lost does not answer" in shown
    assert "read 2 of 3 clusters: " in shown
    assert shown.endswith("; missing: lost\n")
    seen = decode_inventory(output.read_text())
    assert set(seen.clusters) == {"onprem", "cloud"}
    assert seen.missing["lost"].startswith("cluster lost does not answer")
    assert "lost was not scanned: cluster lost does not answer" in page.read_text()
    assert main([*command, "--cluster", "cloud", "--update"]) == 0
    again = decode_inventory(output.read_text())
    assert again.clusters["onprem"] == seen.clusters["onprem"]
    assert again.clusters["cloud"].taken_ms > seen.clusters["cloud"].taken_ms


def test_a_missing_secret_is_named_before_any_connection(
    files: Path, own_pair: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SCAN_SECRET", raising=False)
    security = ", security: {protocol: SASL_SSL, mechanism: PLAIN, credentials: {env: SCAN_SECRET}}"
    path = files / "secret.yaml"
    path.write_text(_topology({"onprem": "127.0.0.1:1", "cloud": "127.0.0.1:1"}, security))
    assert main(["scan", str(path), "--timeout", "1s"]) == 2
    assert "secret {env: SCAN_SECRET} is not set: export SCAN_SECRET" in capsys.readouterr().err
    path.write_text(_list_of_clusters(own_pair.clusters["onprem"].bootstrap, f"bootstrap: [127.0.0.1:1]{security}"))
    assert main(["scan", str(path), "--sample", "0s", "-o", str(files / "part.json")]) == 3
    assert "missing: clusters.cloud.security.credentials: secret {env: SCAN_SECRET}" in capsys.readouterr().err
    assert set(decode_inventory((files / "part.json").read_text()).clusters) == {"onprem"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cluster", "clod"], "has no cluster `clod`; it has cloud, onprem"),
        (["-o", "no/such/folder/inventory.json"], "is no directory that this user may write to"),
        (["-o", "."], "is a directory; name a file"),
        (["--report", "report.pdf"], "a report is a .html, a .md or a .json file"),
        (["--update"], "--update needs -o"),
        (["--sample", "5"], "'5' has no unit; expected a duration"),
        (["--rate", "0MiB/s"], "'0MiB/s' is too small"),
        (["--rate", "fast"], "'fast' expected a rate such as `60MiB/s`"),
        (["--price-per-gib", "-1"], "-1"),
    ],
)
def test_wrong_usage(files: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan", str(files / "two.yaml"), *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("clusters: [", 1, "SYN001"),
        (
            "apiVersion: topology/v1alpha1\nkind: Topology\nmetadata: {name: x}\nclusters: {}\n",
            2,
            "no clusters to scan",
        ),
        (_topology({"onprem": "127.0.0.1:1", "cloud": "127.0.0.1"}), 1, "host:port"),
        (_topology({"onprem": "127.0.0.1:1"}, ", security: {protocol: SSH}"), 1, "PLAINTEXT, SSL"),
    ],
)
def test_a_file_whose_clusters_cannot_be_read(
    tmp_path: Path, text: str, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    assert main(["scan", str(path), "--timeout", "1s"]) == code
    assert message in capsys.readouterr().err


def test_a_damaged_inventory_is_named(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "bad.json").write_text('{"schema": 1, "kind": "inventory", "taken": null, "clusters": {"onprem": {}}}')
    assert main(["report", str(files / "bad.json"), str(files / "two.yaml")]) == 2
    assert "damaged at clusters.onprem: `topic_configs` is missing" in capsys.readouterr().err
