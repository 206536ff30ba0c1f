"""Flows with `transform` on real brokers: what Python works out from the source stands at the target."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.spark.sessions.test_spark_replicate import run, until
from watershed.clusters.admin import Admin
from watershed.clusters.partition_status_records import PartitionStatus, read_partition_statuses
from watershed.clusters.settings import ConnectionSettings, resolve_connection_settings
from watershed.replicator.copy.quarantine import read_quarantine
from watershed.replicator.ledger.ledger import read_ledger
from watershed.spark.proof_request import ProofRequest
from watershed.spark.proof_run import prove_flows
from watershed.topology import compile_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from watershed.lab.clusters import Lab

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

PARTITIONS = 3
SECRET = "canary-4cf1d2a7b0"
TOPOLOGY = """
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: {name}, owner: tests}}
clusters:
  onprem: {{bootstrap: ["{onprem}"], security: {{protocol: PLAINTEXT}}}}
  cloud: {{bootstrap: ["{cloud}"], security: {{protocol: PLAINTEXT}}}}
flows:
  - source: onprem
    target: cloud
    suffix: {name}
    topics: {{include: ["{name}"]}}
    delivery: {{rejected: {rejected}}}
    sync: {{groups: {{mode: continuous, include: ["{name}-group"], interval: 1s}}}}
    transform:
      format: {{value: json}}
      schema: {{value: "country string, email string, amount string, day int"}}
      where: "value.country <> 'XX'"
      set:
        value.email: "sha2(concat(value.email, secret('PEPPER')), 256)"
        value.card: "null"
        value.cents: "cast(value.amount as int) * 100"
        headers.origin: "'prod'"
      drop: [value.notes]
      secrets: {{PEPPER: {{env: WATERSHED_SECRET_PEPPER}}}}
"""

Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes]], int]


def build_document(number: int) -> bytes:
    country = "XX" if number % 7 == 3 else "DE"
    fields = {"country": country, "email": f"a{number}@b.example", "card": "4711", "amount": str(number)}
    return json.dumps({**fields, "notes": "n" * (number % 90), "ratio": number / 3, "items": [{"a": number}]}).encode()


def expect(record: Record) -> Record | None:
    """What the transform of TOPOLOGY makes of a record, worked out without Spark and without our code."""
    key, value, headers, timestamp = record
    assert value is not None
    document = json.loads(value)
    if document["country"] == "XX":
        return None
    document["email"] = hashlib.sha256((document["email"] + SECRET).encode()).hexdigest()
    document["card"], document["cents"] = None, int(document["amount"]) * 100
    del document["notes"]
    return key, json.dumps(document).encode(), [*headers, ("origin", b"prod")], timestamp


def produce(lab: Lab, topic: str, numbers: range, *, abort_every: int = 0, codec: str = "zstd") -> None:
    settings = ConnectionSettings("onprem", (lab.clusters["onprem"].bootstrap,))
    more = {"transactional.id": f"{topic}-{numbers.start}"} if abort_every else {}
    producer = Producer(settings.librdkafka({"linger.ms": 5, "compression.type": codec, **more}))
    if abort_every:
        producer.init_transactions(30)
    for at, start in enumerate(range(numbers.start, numbers.stop, 500)):
        if abort_every:
            producer.begin_transaction()
        for number in range(start, min(start + 500, numbers.stop)):
            producer.produce(
                topic, build_document(number), b"k%d" % number, number % PARTITIONS, headers=[("n", b"%d" % number)]
            )
            producer.poll(0)
        if abort_every and at % abort_every == 1:
            producer.flush(60)
            producer.abort_transaction(60)
        elif abort_every:
            producer.commit_transaction(60)
    assert producer.flush(120) == 0


def read_records(lab: Lab, alias: str, topic: str, partition: int) -> Iterator[tuple[int, Record]]:
    """Offset and record of a partition, as a consumer with read_committed sees it now; holds a few thousand at once."""
    settings = ConnectionSettings(alias, (lab.clusters[alias].bootstrap,))
    consumer = Consumer(
        settings.librdkafka(
            {"group.id": f"{topic}-reader", "enable.auto.commit": False, "auto.offset.reset": "error",
             "isolation.level": "read_committed", "enable.partition.eof": True, "queued.max.messages.kbytes": 16_384}
        )
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, partition, 0)])
    try:
        heard = time.monotonic()
        while True:
            messages = consumer.consume(2_000, 0.2)  # it waits for as many, also at the end
            heard = time.monotonic() if messages else heard
            assert time.monotonic() - heard < 30, "the consumer got nothing for 30 s"
            for message in messages:
                if message.error():
                    assert message.error().name() == "_PARTITION_EOF", message.error()
                    return
                headers = [(str(name), bytes(value)) for name, value in message.headers() or ()]
                yield message.offset(), (message.key(), message.value(), headers, message.timestamp()[1])
    finally:
        consumer.close()


def consume(lab: Lab, alias: str, topic: str) -> dict[int, dict[int, Record]]:
    """Partition → offset → record, of a topic that fits into memory."""
    return {partition: dict(read_records(lab, alias, topic, partition)) for partition in range(PARTITIONS)}


def assert_transformed(lab: Lab, topic: str, flow: str, left_out: frozenset[int] = frozenset()) -> int:
    """Order, content, count, and the offset map; the records at the target. left_out: numbers of quarantined ones.

    Both logs are read side by side, so that their size does not matter.
    """
    ledger = read_ledger(ConnectionSettings("cloud", (lab.clusters["cloud"].bootstrap,)), flow=flow)
    count = 0
    for partition in range(PARTITIONS):
        offsets = ledger.map(flow, topic, partition)
        seen, waiting = read_records(lab, "cloud", topic, partition), []
        for offset, record in read_records(lab, "onprem", topic, partition):
            waiting.append(offset)
            wanted = None if int(record[2][0][1]) in left_out else expect(record)
            if wanted is None:
                continue
            landed, got = next(seen, (-1, None))
            assert got is not None, f"{partition}: nothing stands at the target for source offset {offset}"
            assert normalise(got) == normalise(wanted), f"{partition}: source offset {offset}, target offset {landed}"
            for each in waiting:  # a group that stands in front of a record lands in front of what follows it
                assert offsets.to_target(each, landed + 1) == landed
            waiting.clear()
            count += 1
        assert next(seen, None) is None, f"{partition}: more stands at the target"
    return count


def normalise(record: Record) -> tuple[Any, ...]:
    key, value, headers, timestamp = record
    assert value is not None
    return key, json.loads(value), headers, timestamp


def open_group(lab: Lab, alias: str, topic: str) -> Consumer:
    settings = ConnectionSettings(alias, (lab.clusters[alias].bootstrap,))
    return Consumer(settings.librdkafka({"group.id": f"{topic}-group", "enable.auto.commit": False}))


def commit_positions(lab: Lab, topic: str, positions: list[int]) -> None:
    """The group reads so far at the source, by partition."""
    consumer = open_group(lab, "onprem", topic)
    consumer.commit(
        offsets=[TopicPartition(topic, number, offset) for number, offset in enumerate(positions)], asynchronous=False
    )
    consumer.close()


def read_positions(lab: Lab, topic: str) -> list[int]:
    """Where the group stands at the target; -1001 where it has no position."""
    consumer = open_group(lab, "cloud", topic)
    found = consumer.committed([TopicPartition(topic, number) for number in range(PARTITIONS)], timeout=30)
    consumer.close()
    return [each.offset for each in found]


def translate(lab: Lab, topic: str, positions: list[int]) -> list[int]:
    """Where the group should stand: in front of the first record that stands at or behind its position and travels."""
    found = []
    for partition, position in enumerate(positions):
        seen = read_records(lab, "cloud", topic, partition)
        for offset, record in read_records(lab, "onprem", topic, partition):
            if expect(record) is None:
                continue
            landed, _ = next(seen)
            if offset >= position:
                found.append(landed)
                break
    return found


@contextmanager
def transform_worker(path: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    environ = {**os.environ, "WATERSHED_SECRET_PEPPER": SECRET}
    with log.open("ab") as out:
        worker = subprocess.Popen(
            [sys.executable, "-m", "watershed.cli.main", "worker", str(path), "--target", "cloud", "--transforms"],
            stderr=out, stdout=out, env=environ,
        )  # fmt: skip
    try:
        yield worker
    finally:
        worker.kill()
        worker.wait()


def read_partitions(path: Path) -> list[dict[str, Any]]:
    """The reports of the partitions of the file's only flow."""
    plan = compile_path(path)
    [flow] = plan.flows
    reports = read_partition_statuses(resolve_connection_settings(plan.cluster(flow.target)))
    return [asdict(report) for report in reports if report.flow == flow.id]


def is_caught_up(path: Path, lab: Lab, topic: str) -> bool:
    settings = ConnectionSettings("onprem", (lab.clusters["onprem"].bootstrap,))
    with Admin(settings) as admin:
        from watershed.clusters.topic_partition import TopicPartition as Place

        ends = admin.offsets(Place(topic, number) for number in range(PARTITIONS))
    seen = {each["partition"]: each for each in read_partitions(path)}
    return all(
        place.partition in seen and seen[place.partition]["source_position"] >= span.end for place, span in ends.items()
    )


def write_topology(lab: Lab, name: str, folder: Path, rejected: str = "stop") -> Path:
    path = folder / "t.yaml"
    onprem, cloud = (lab.clusters[alias].bootstrap for alias in ("onprem", "cloud"))
    path.write_text(TOPOLOGY.format(name=name, onprem=onprem, cloud=cloud, rejected=rejected), encoding="utf-8")
    return path


@pytest.mark.soak
def test_records_are_transformed_exactly_while_workers_die(
    kafka_pair: Lab, topic_name: str, tmp_path: Path, spark: SparkSession
) -> None:
    """Aborted transactions, two codecs, a driver that is killed in the middle, and one that ends when told."""
    path, flow = write_topology(kafka_pair, topic_name, tmp_path), f"onprem-to-cloud-{topic_name}"
    positions = [1_001, 4_000, 2_222]
    with Admin(ConnectionSettings("onprem", (kafka_pair.clusters["onprem"].bootstrap,))) as admin:
        admin.create_topic(topic_name, PARTITIONS, 1, {})
    produce(kafka_pair, topic_name, range(12_000))
    run("-m", "watershed.cli.main", "apply", str(path), "--yes")
    log = tmp_path / "log"
    with transform_worker(path, log) as worker:
        until(lambda: worker.poll() is None and any(each["target_end"] > 0 for each in read_partitions(path)), 120)
        produce(kafka_pair, topic_name, range(12_000, 30_000), abort_every=4)
        commit_positions(kafka_pair, topic_name, positions)
        os.kill(worker.pid, signal.SIGKILL)
    produce(kafka_pair, topic_name, range(30_000, 33_000), codec="none")
    with transform_worker(path, log) as worker:
        until(lambda: worker.poll() is None and is_caught_up(path, kafka_pair, topic_name), 240)
        assert assert_transformed(kafka_pair, topic_name, flow) > 20_000
        wanted = translate(kafka_pair, topic_name, positions)
        until(lambda: read_positions(kafka_pair, topic_name) == wanted, 60)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    assert SECRET not in log.read_text(encoding="utf-8")
    spark.sparkContext.environment["WATERSHED_SECRET_PEPPER"] = SECRET
    summary = prove_flows(compile_path(path), ProofRequest(wait=30.0), tmp_path / "out", session=lambda: spark)
    assert (summary["verdict"], summary["unproven"], summary["level"]) == ("proven", 0, "L3"), summary
    assert summary["groups"]["landings"] == {"exact": PARTITIONS}
    assert summary["proven"] > 20_000


@pytest.mark.soak
def test_a_record_that_cannot_be_transformed_stops_its_partition_or_goes_to_quarantine(
    kafka_pair: Lab, topic_name: str, tmp_path: Path
) -> None:
    """Broken JSON, a field of another type, a condition that gives null, a cast that fails: each with its offset."""
    path, flow = write_topology(kafka_pair, topic_name, tmp_path), f"onprem-to-cloud-{topic_name}"
    broken = {
        90: (b'{"country": "DE", "email": ', "is no JSON object that fits"),
        93: (b'{"country": "DE", "amount": "1", "day": "monday"}', "is no JSON object that fits"),
        96: (b'{"email": "a", "amount": "1"}', "`where` gives null"),
        99: (b'{"country": "DE", "amount": "many"}', "CAST_INVALID_INPUT"),
        102: (b"\xff\xfe", "UTF-8"),
    }  # all of partition 0
    source = ConnectionSettings("onprem", (kafka_pair.clusters["onprem"].bootstrap,))
    with Admin(source) as admin:
        admin.create_topic(topic_name, PARTITIONS, 1, {})
    producer = Producer(source.librdkafka({"linger.ms": 5}))
    for number in range(300):
        value = broken[number][0] if number in broken else build_document(number)
        producer.produce(topic_name, value, b"k%d" % number, number % PARTITIONS, headers=[("n", b"%d" % number)])
    assert producer.flush(60) == 0
    run("-m", "watershed.cli.main", "apply", str(path), "--yes")
    with transform_worker(path, tmp_path / "log"):
        until(lambda: any(each["state"] == "untransformed" for each in read_partitions(path)), 120)
        until(lambda: sum(each["source_position"] == 100 for each in read_partitions(path)) == 2, 60)
        [halted] = [each for each in read_partitions(path) if each["state"] == "untransformed"]
        assert (halted["partition"], halted["source_position"]) == (0, 30)
        assert "offset 30" in halted["error"]
        assert "is no JSON object" in halted["error"]
        assert "rejected: quarantine" in halted["remedy"]
        write_topology(kafka_pair, topic_name, tmp_path, "quarantine")
        run("-m", "watershed.cli.main", "apply", str(path), "--yes")
        run("-m", "watershed.cli.main", "flow", "restart", flow, str(path))
        until(lambda: is_caught_up(path, kafka_pair, topic_name), 120)
    found = read_quarantine(ConnectionSettings("cloud", (kafka_pair.clusters["cloud"].bootstrap,)), flow)
    assert {each.offset: each.value for each in found} == {number // 3: broken[number][0] for number in broken}
    for each in found:
        assert broken[each.offset * 3][1] in each.reason, each.reason
    assert_transformed(kafka_pair, topic_name, flow, frozenset(broken))


OTHER_FLOW = """
  - source: onprem
    target: cloud
    suffix: {name}-other
    topics: {{include: ["{name}-other"]}}
    transform: {{where: "{where}"}}
"""


@pytest.mark.soak
def test_a_flow_with_a_wrong_expression_halts_alone_until_it_is_mended(
    kafka_pair: Lab, topic_name: str, tmp_path: Path
) -> None:
    """As after an upgrade: v0.1.0 took the expression for a complete condition."""
    path, other = write_topology(kafka_pair, topic_name, tmp_path), f"{topic_name}-other"
    right = path.read_text(encoding="utf-8")
    cloud = ConnectionSettings("cloud", (kafka_pair.clusters["cloud"].bootstrap,))

    def apply(where: str) -> None:
        path.write_text(right + OTHER_FLOW.format(name=topic_name, where=where), encoding="utf-8")
        run("-m", "watershed.cli.main", "apply", str(path), "--yes")

    def list_reports(topic: str) -> list[PartitionStatus]:
        return [report for report in read_partition_statuses(cloud) if report.topic == topic]

    with Admin(ConnectionSettings("onprem", (kafka_pair.clusters["onprem"].bootstrap,))) as admin:
        for topic in (topic_name, other):
            admin.create_topic(topic, PARTITIONS, 1, {})
    for topic in (topic_name, other):
        produce(kafka_pair, topic, range(600))
    apply("value is not null and")
    log = tmp_path / "log"
    with transform_worker(path, log) as worker:
        until(lambda: worker.poll() is None and len(list_reports(topic_name)) == PARTITIONS, 120)
        until(lambda: all(each.source_position == 200 for each in list_reports(topic_name)), 60)
        until(lambda: [each.state for each in list_reports(other)] == ["untransformed"] * PARTITIONS, 60)
        for each in list_reports(other):
            assert each.source_position == 0
            assert each.error.startswith("`transform.where`: its last word is one that Spark takes for a name")
            assert f"`topology flow restart onprem-to-cloud-{other} " in each.remedy
        assert "expression refused" in log.read_text(encoding="utf-8")
        produce(kafka_pair, topic_name, range(600, 900))
        until(lambda: all(each.source_position == 300 for each in list_reports(topic_name)), 60)
        apply("value is not null")
        run("-m", "watershed.cli.main", "flow", "restart", f"onprem-to-cloud-{other}", str(path))
        until(lambda: all(each.source_position == 200 for each in list_reports(other)), 120)
    assert sum(len(records) for records in consume(kafka_pair, "cloud", other).values()) == 600
