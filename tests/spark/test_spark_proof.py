"""The proof on real brokers: a clean copy is proven; each mutation is reported as exactly its class and count."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from clusters.admin import Admin
from clusters.settings import ConnectionSettings
from replicator.offsetmap import OffsetMap
from spark.errors import WrongUse
from spark.fingerprint import Record
from spark.observe import Aligned
from spark.verify import Request, verify
from topology.plan import Plan, PlanCluster, PlanFlow, sealed
from topology.selectors import Selector, TopicSelection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lab.clusters import Lab

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

T0 = 1_700_000_000_000
KINDS = ("missing", "altered", "reordered", "duplicates", "foreign", "unverifiable", "pending")


def log(n: int) -> list[Record]:
    return [Record(b"k%d" % (i % 7), b"value %d" % i, T0 + i, (("n", b"%d" % i),)) for i in range(n)]


class Bench:
    """Source and target topics with given content, and a plan with one flow between them."""

    def __init__(self, lab: Lab, topic: str, directory: Path, spark: SparkSession, partitions: int = 1) -> None:
        self.partitions = partitions
        self.topic, self.directory, self.spark = topic, directory, spark
        self.settings = {
            alias: ConnectionSettings(alias, (lab.clusters[alias].bootstrap,)) for alias in ("onprem", "cloud")
        }
        clusters = tuple(PlanCluster(alias, settings.bootstrap) for alias, settings in self.settings.items())
        self.flow = PlanFlow("onprem-to-cloud", "onprem", "cloud", TopicSelection((Selector("literal", topic),)))
        self.plan: Plan = sealed(Plan("tests", clusters, (self.flow,)))
        self.map = OffsetMap.of([(0, 0)])
        for settings in self.settings.values():
            with Admin(settings) as admin:
                admin.create_topic(topic, partitions, 1, {"retention.ms": "-1"})

    def write(
        self,
        alias: str,
        records: list[Record],
        partition: int = 0,
        *,
        transactional: bool = False,
        abort: bool = False,
    ) -> None:
        config: dict[str, Any] = {"linger.ms": 5, "enable.idempotence": True, "compression.type": "lz4"}
        if transactional:
            config["transactional.id"] = f"{self.topic}-{time.monotonic_ns()}"
        producer = Producer(self.settings[alias].librdkafka(config))
        if transactional:
            producer.init_transactions(20)
            producer.begin_transaction()
        for r in records:
            producer.produce(
                self.topic,
                key=r.key,
                value=r.value,
                timestamp=r.timestamp,
                headers=list(r.headers),
                partition=partition,
            )
        assert producer.flush(20) == 0
        if transactional:
            (producer.abort_transaction if abort else producer.commit_transaction)(20)

    def verify(self, **request: Any) -> dict[str, Any]:
        out = self.directory / f"{time.monotonic_ns()}"
        return verify(
            self.plan,
            Request(**({"wait": 0.0, "chunk": 40} | request)),
            out,
            alignment=lambda _settings, _flow: {
                (self.topic, partition): Aligned(self.map) for partition in range(self.partitions)
            },
            session=lambda: self.spark,
        )


@pytest.fixture
def bench(kafka_pair: Lab, topic_name: str, tmp_path: Path, spark: SparkSession) -> Bench:
    return Bench(kafka_pair, topic_name, tmp_path, spark)


@pytest.fixture(scope="module")
def mutated(kafka_pair: Lab, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> dict[str, Any]:
    """One proof of one topic that has a mutation a partition."""
    topic = f"mutated-{time.monotonic_ns()}"
    bench = Bench(kafka_pair, topic, tmp_path_factory.mktemp("mutated"), spark, len(MUTATIONS))
    for partition, (mutate, _, _) in enumerate(MUTATIONS.values()):
        bench.write("onprem", EMPTY_AT_50, partition)
        bench.write("cloud", mutate(list(EMPTY_AT_50)), partition)
    return bench.verify()


def differences(summary: dict[str, Any]) -> dict[str, int]:
    return {kind: summary[kind] for kind in KINDS if summary[kind]}


def swapped(records: list[Record], at: int) -> list[Record]:
    return [*records[:at], records[at + 1], records[at], *records[at + 2 :]]


def changed(records: list[Record], at: int, **change: Any) -> list[Record]:
    r = records[at]
    fields = {"key": r.key, "value": r.value, "timestamp": r.timestamp, "headers": r.headers} | change
    return [*records[:at], Record(**fields), *records[at + 1 :]]


EMPTY_AT_50 = changed(log(150), 50, value=b"")
MUTATIONS: dict[str, tuple[Callable[[list[Record]], list[Record]], dict[str, int], tuple[str, ...]]] = {
    "first lost": (lambda r: r[1:], {"missing": 1}, ()),
    "one lost": (lambda r: r[:60] + r[61:], {"missing": 1}, ()),
    "last lost": (lambda r: r[:-1], {"pending": 1}, ()),
    "a chunk lost": (lambda r: r[:40] + r[80:], {"missing": 40}, ()),
    "twice": (lambda r: [*r[:61], r[60], *r[61:]], {"duplicates": 1}, ()),
    "three times": (lambda r: [*r[:61], r[60], r[60], *r[61:]], {"duplicates": 2}, ()),
    "one lost, one twice": (lambda r: [*r[:20], *r[21:61], r[60], *r[61:]], {"missing": 1, "duplicates": 1}, ()),
    "extra at the end": (lambda r: [*r, Record(b"x", b"y", T0)], {"foreign": 1}, ()),
    "extra inside": (lambda r: [*r[:9], Record(b"x", b"y", T0), *r[9:]], {"foreign": 1}, ()),
    "value altered": (lambda r: changed(r, 70, value=b"Value 70"), {"altered": 1}, ("value",)),
    "key altered": (lambda r: changed(r, 70, key=b"K"), {"altered": 1}, ("key",)),
    "header altered": (lambda r: changed(r, 70, headers=(("n", b"x"),)), {"altered": 1}, ("headers",)),
    "header null": (lambda r: changed(r, 70, headers=(("n", None),)), {"altered": 1}, ("headers",)),
    "1 ms later": (lambda r: changed(r, 70, timestamp=T0 + 71), {"altered": 1}, ("timestamp",)),
    "null for empty": (lambda r: changed(r, 50, value=None), {"altered": 1}, ("value",)),
    "neighbours swapped": (lambda r: swapped(r, 10), {"reordered": 1}, ()),
    "swapped over a cut": (lambda r: swapped(r, 39), {"reordered": 1}, ()),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_is_reported_as_its_class_and_count(mutated: dict[str, Any], name: str) -> None:
    _, expected, components = MUTATIONS[name]
    partition = list(MUTATIONS).index(name)
    [counts] = [p for p in mutated["window"]["partitions"] if p["partition"] == partition]
    assert differences(counts) == expected
    lost = sum(expected.get(kind, 0) for kind in ("missing", "altered", "reordered", "pending"))
    assert counts["proven"] == len(EMPTY_AT_50) - lost
    named = {c for d in mutated["differences"] if d["partition"] == partition for c in d["components"]}
    assert named == set(components)


def test_the_sum_of_all_mutations(mutated: dict[str, Any]) -> None:
    for kind in KINDS:
        assert mutated[kind] == sum(expected.get(kind, 0) for _, expected, _ in MUTATIONS.values())
    assert (mutated["verdict"], mutated["exit_code"], mutated["exact"]) == ("different", 1, True)
    assert mutated["unproven"] == sum(mutated[kind] for kind in KINDS if kind != "pending")


def test_a_clean_copy_is_proven_with_a_stable_root(bench: Bench) -> None:
    bench.write("onprem", log(150))
    bench.write("cloud", log(150))
    one, two = bench.verify(), bench.verify(final=True)
    for summary in (one, two):
        assert (summary["verdict"], summary["unproven"], summary["proven"]) == ("proven", 0, 150)
    assert one["proof_root"] == two["proof_root"]
    assert one["flows"][0]["topics"][0]["proven"] == 150


def test_aborted_records_and_markers_are_no_records(bench: Bench) -> None:
    records = log(90)
    bench.write("onprem", records[:30], transactional=True)  # source 0..29, marker 30
    bench.write("onprem", records[:20], transactional=True, abort=True)  # 31..50, marker 51
    bench.write("onprem", records[30:60])  # 52..81
    bench.write("onprem", records[60:], transactional=True)  # 82..111, marker 112
    bench.write("cloud", records)
    bench.map = OffsetMap.of([(0, 0), (30, 52)])
    summary = bench.verify(final=True, wait=5.0)
    assert (summary["verdict"], summary["proven"], summary["pending"]) == ("proven", 90, 0)


def test_the_tail_is_proven_on_top_of_an_earlier_proof(bench: Bench, tmp_path: Path) -> None:
    bench.write("onprem", log(100))
    bench.write("cloud", log(100))
    before = tmp_path / "before.json"
    before.write_text(json.dumps(bench.verify()), encoding="utf-8")
    more = [Record(b"k", b"late %d" % i, T0 + 1000 + i) for i in range(10)]
    bench.write("onprem", more)
    bench.write("cloud", more)
    summary = bench.verify(final=True, since=before)
    assert (summary["verdict"], summary["proven"], summary["proven_earlier"]) == ("proven", 10, 100)
    assert summary["records"] == 10


def test_nothing_to_compare_is_said(bench: Bench) -> None:
    summary = bench.verify(final=True)
    assert (summary["verdict"], summary["proven"]) == ("proven", 0)
    assert any("no record was compared" in note for note in summary["not_compared"])


def test_without_a_ledger_nothing_is_called_different(bench: Bench, spark: SparkSession, tmp_path: Path) -> None:
    bench.write("onprem", log(3))
    with pytest.raises(WrongUse, match="no ledger of flow onprem-to-cloud"):
        verify(bench.plan, Request(wait=0.0), tmp_path / "out", session=lambda: spark)


def test_expired_heads_are_not_compared_or_unverifiable(bench: Bench) -> None:
    bench.write("onprem", log(100))
    bench.write("cloud", log(100))
    delete_before(bench, "onprem", 30)
    summary = bench.verify()
    assert (summary["verdict"], summary["proven"]) == ("proven", 70)
    assert any("30 copied records had expired on the source" in note for note in summary["not_compared"])
    delete_before(bench, "cloud", 50)
    summary = bench.verify()
    assert (summary["verdict"], summary["unverifiable"], summary["proven"]) == ("incomplete", 20, 50)
    assert summary["unproven"] == 20


def delete_before(bench: Bench, alias: str, offset: int) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    client = AdminClient(bench.settings[alias].librdkafka())
    for future in client.delete_records([TopicPartition(bench.topic, 0, offset)]).values():
        future.result(20)
