"""The proof on real brokers: what windows hold, what is left out, what was proven before."""

from __future__ import annotations

import json
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from pyarrow import parquet

from tests.replicator.real import end_of, wait_end
from tests.spark.logs import append, packed
from tests.spark.pages import Seen
from watershed.clusters.admin import Admin
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.ledger.foreign_part import ForeignPart, JoinedOffsetMap
from watershed.replicator.ledger.offset_map import ExplicitRun, OffsetMap
from watershed.replicator.partition_states import OffsetSpan
from watershed.spark.errors import WrongUse
from watershed.spark.fingerprint import ConsumedRecord
from watershed.spark.judging.flow_observation import PartitionAlignment
from watershed.spark.proof_request import ProofRequest
from watershed.spark.proof_run import prove_flows
from watershed.topology.copy_bounds import build_offsets_bound
from watershed.topology.plan import Plan, PlanCluster, PlanFlow, seal_plan
from watershed.topology.selectors import Selector, TopicSelection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from watershed.lab.clusters import Lab

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

T0 = 1_700_000_000_000
KINDS = ("missing", "altered", "reordered", "duplicates", "foreign", "unverifiable", "pending")


def log(n: int) -> list[ConsumedRecord]:
    return [ConsumedRecord(b"k%d" % (i % 7), b"value %d" % i, T0 + i, (("n", b"%d" % i),)) for i in range(n)]


class Bench:
    """Source and target topics with given content, and a plan with one flow between them."""

    def __init__(self, lab: Lab, topic: str, directory: Path, spark: SparkSession, partitions: int = 1) -> None:
        self.partitions = partitions
        self.topic, self.directory, self.spark = topic, directory, spark
        self.settings = {
            alias: ConnectionSettings(alias, (lab.clusters[alias].bootstrap,)) for alias in ("onprem", "cloud")
        }
        clusters = tuple(PlanCluster(alias, settings.bootstrap) for alias, settings in self.settings.items())
        selection = TopicSelection((Selector("literal", topic),))
        self.flow = PlanFlow(f"onprem-to-cloud-{topic}", "onprem", "cloud", selection)
        self.plan: Plan = seal_plan(Plan("tests", clusters, (self.flow,)))
        self.map = OffsetMap.of([(0, 0)])
        for settings in self.settings.values():
            with Admin(settings) as admin:
                admin.create_topic(topic, partitions, 1, {"retention.ms": "-1"})

    def write(
        self,
        alias: str,
        records: list[ConsumedRecord],
        partition: int = 0,
        *,
        transactional: bool = False,
        abort: bool = False,
    ) -> None:
        config: dict[str, Any] = {"linger.ms": 5, "enable.idempotence": True, "compression.type": "lz4"}
        before = end_of(self.settings[alias], self.topic, partition)
        if transactional:
            config["transactional.id"] = f"{self.topic}-{time.monotonic_ns()}"
        producer = Producer(self.settings[alias].librdkafka(config))
        if transactional:
            producer.init_transactions(60)
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
        assert producer.flush(60) == 0
        if transactional:
            (producer.abort_transaction if abort else producer.commit_transaction)(60)
            wait_end(self.settings[alias], self.topic, partition, before + len(records) + 1)

    def verify(self, **request: Any) -> dict[str, Any]:
        out = self.directory / f"{time.monotonic_ns()}"
        return prove_flows(
            self.plan,
            ProofRequest(**({"wait": 0.0, "chunk": 40} | request)),
            out,
            alignment=lambda _settings, _flow: {
                (self.topic, partition): PartitionAlignment(self.map) for partition in range(self.partitions)
            },
            session=lambda: self.spark,
        )


@pytest.fixture
def bench(kafka_pair: Lab, topic_name: str, tmp_path: Path, spark: SparkSession) -> Bench:
    return Bench(kafka_pair, topic_name, tmp_path, spark)


def differences(summary: dict[str, Any]) -> dict[str, int]:
    return {kind: summary[kind] for kind in KINDS if summary[kind]}


def changed(records: list[ConsumedRecord], at: int, **change: Any) -> list[ConsumedRecord]:
    r = records[at]
    fields = {"key": r.key, "value": r.value, "timestamp": r.timestamp, "headers": r.headers} | change
    return [*records[:at], ConsumedRecord(**fields), *records[at + 1 :]]


def test_a_clean_copy_is_proven_with_a_stable_root(bench: Bench) -> None:
    bench.write("onprem", log(150))
    bench.write("cloud", log(150))
    one, two = bench.verify(), bench.verify(final=True)
    for summary in (one, two):
        assert (summary["verdict"], summary["unproven"], summary["proven"]) == ("proven", 0, 150)
    assert one["proof_root"] == two["proof_root"]
    assert one["flows"][0]["topics"][0]["proven"] == 150
    reports = [Seen(path.read_text(encoding="utf-8")).text for path in bench.directory.glob("*/report.html")]
    assert len(reports) == 2
    assert all("0 unproven 150 proven of 150 records (100 %)" in text for text in reports)


def test_a_copy_that_ends_is_proven_up_to_its_end(bench: Bench) -> None:
    bench.write("onprem", log(150))
    bench.write("cloud", log(100))
    assert bench.verify()["pending"] == 50
    flow = replace(bench.flow, end=build_offsets_bound({bench.topic: {0: 100}}))
    bench.plan = seal_plan(replace(bench.plan, flows=(flow,)))
    for summary in (bench.verify(), bench.verify(final=True)):
        assert (summary["verdict"], summary["proven"], differences(summary)) == ("proven", 100, {})
    bench.write("cloud", log(101)[100:])  # the end was moved to the front after more was copied
    assert bench.verify()["verdict"] == "proven"


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


def test_what_was_accepted_when_the_flow_was_adopted_is_left_out_and_all_else_is_not(bench: Bench) -> None:
    records = log(120)
    bench.write("onprem", records)
    for part in (records[:60], records[30:90], records[90:]):  # another copier began again once; ours are the last 30
        bench.write("cloud", part)
    copied = ForeignPart(
        "MirrorMaker 2", 120, 90, (ExplicitRun(0, 0, 60), ExplicitRun(90, 60, 30)), (OffsetSpan(60, 90),)
    )
    bench.map = JoinedOffsetMap.over(copied, OffsetMap.of([(120, 90)]))
    summary = bench.verify(final=True)
    assert (summary["verdict"], summary["proven"], differences(summary)) == ("proven", 120, {})
    assert any("30 target offsets between 60 and 89 hold what MirrorMaker 2 left" in n for n in summary["not_compared"])
    bench.map = JoinedOffsetMap.over(replace(copied, extra=(OffsetSpan(60, 85),)), OffsetMap.of([(120, 90)]))
    summary = bench.verify(final=True)
    assert (summary["verdict"], differences(summary)) == ("different", {"duplicates": 5})


def test_the_tail_is_proven_on_top_of_an_earlier_proof(bench: Bench, tmp_path: Path) -> None:
    bench.write("onprem", log(100))
    bench.write("cloud", log(100))
    before = tmp_path / "before.json"
    before.write_text(json.dumps(bench.verify()), encoding="utf-8")
    more = [ConsumedRecord(b"k", b"late %d" % i, T0 + 1000 + i) for i in range(10)]
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
    with pytest.raises(WrongUse, match=f"no ledger of flow {bench.flow.id}"):
        prove_flows(bench.plan, ProofRequest(wait=0.0), tmp_path / "out", session=lambda: spark)


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
        future.result(60)


def test_only_what_was_packed_otherwise_is_opened(bench: Bench) -> None:
    """As a worker packs: what was tiny is one batch on the target, all else passed on as it is."""
    records = [ConsumedRecord(b"k%d" % i, b"%06d" % i + random.Random(i).randbytes(400), T0 + i) for i in range(600)]
    big, tiny = (100, 100), (3,) * 10
    source = packed(records, (*big, *tiny))
    copy = packed(records, (*big, sum(tiny)))
    append(bench.settings["onprem"], bench.topic, {0: source})
    append(bench.settings["cloud"], bench.topic, {0: copy})
    summary = bench.verify(chunk=250)
    assert (summary["verdict"], summary["proven"], summary["unproven"]) == ("proven", 600, 0)
    rows = parquet.read_table(next(bench.directory.glob("*/chunks.parquet"))).to_pylist()
    assert {row["by"] for row in rows} == {"batches", "both"}  # none was opened whole


def test_what_is_altered_beside_batches_that_are_the_same_is_named(bench: Bench) -> None:
    records = [ConsumedRecord(b"k%d" % i, b"%06d" % i + random.Random(i).randbytes(400), T0 + i) for i in range(600)]
    source = packed(records, (100, 100, *(3,) * 10))
    copy = packed(changed(records, 205, value=b"x"), (100, 100, 30))
    append(bench.settings["onprem"], bench.topic, {0: source})
    append(bench.settings["cloud"], bench.topic, {0: copy})
    summary = bench.verify(chunk=250)
    assert differences(summary) == {"altered": 1}
    assert summary["proven"] == 599
    assert [d["source_offset"] for d in summary["differences"]] == [205]
