"""Copies of other tools on real brokers: MirrorMaker 2's is proven, and what was done to one is found exactly. Nothing
is written, and no ledger is asked for."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from tests.replicator.real import put, settings_of
from tests.spark.logs import a_log, append, packed
from watershed.clusters.admin import Admin
from watershed.clusters.topic_partition import TopicPartition
from watershed.lab import mirrormaker
from watershed.spark.fingerprint import ConsumedRecord
from watershed.spark.foreign import inferred_alignment
from watershed.spark.proof_request import ProofRequest
from watershed.spark.proof_run import prove_flows
from watershed.topology import compile_path
from watershed.topology.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from watershed.lab.clusters import Lab

_AS_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"  # the other one rewrites headers
pytestmark = [pytest.mark.kafka, pytest.mark.spark]

_TOPOLOGY = """\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: {alias}, owner: test}}
clusters:
  {alias}: {{bootstrap: ["{source}"], security: {{protocol: PLAINTEXT}}}}
  cloud: {{bootstrap: ["{target}"], security: {{protocol: PLAINTEXT}}}}
flows:
  - source: {alias}
    target: cloud
    topics: {{include: [{topics}]}}
    naming: {{policy: prefix}}
    workers: {{engine: process}}
"""


class Scene:
    def __init__(self, lab: Lab, topic: str, directory: Path, spark: SparkSession, *more: str) -> None:
        self.settings = settings_of(lab)
        self.topic, self.alias = topic, f"mm{uuid.uuid4().hex[:8]}"
        self.directory, self.spark = directory, spark
        path = directory / "mirror.yaml"
        source, target = (self.settings[alias].bootstrap[0] for alias in ("onprem", "cloud"))
        path.write_text(
            _TOPOLOGY.format(
                alias=self.alias, topics=", ".join(f'"{each}"' for each in (topic, *more)), source=source, target=target
            )
        )
        self.plan: Plan = compile_path(path)
        self.copy = self.plan.flows[0].target_topic(topic)

    def create(self, partitions: int) -> None:
        for alias, topic in (("onprem", self.topic), ("cloud", self.copy)):
            with Admin(self.settings[alias]) as admin:
                admin.create_topic(topic, partitions, 1, {"retention.ms": "-1"})

    def verify(self, **request: Any) -> dict[str, Any]:
        out = self.directory / f"{time.monotonic_ns()}"
        asked = ProofRequest(**({"wait": 20.0, "chunk": 100, "foreign": True} | request))
        document = prove_flows(self.plan, asked, out, session=lambda: self.spark)
        assert json.loads((out / "summary.json").read_text()) == document
        return document


def transactions(scene: Scene, topic: str) -> tuple[int, int]:
    """(records of committed transactions, of aborted ones) that were written to partition 0."""
    into = Producer(scene.settings["onprem"].librdkafka({"transactional.id": topic, "linger.ms": 2}))
    into.init_transactions(60)
    counts = [0, 0]
    for number in range(9):
        into.begin_transaction()
        for at in range(7):
            into.produce(topic, f"{number} {at}".encode(), key=b"%d" % number, partition=0)
        if number % 3 == 1:
            into.flush(60)
            into.abort_transaction(60)
        else:
            into.commit_transaction(60)
        counts[number % 3 == 1] += 7
    return counts[0], counts[1]


def test_a_copy_of_mirrormaker_is_proven(own_pair: Lab, topic_name: str, tmp_path: Path, spark: SparkSession) -> None:
    """As it comes, MirrorMaker copies the records of aborted transactions as well, and that is found."""
    raw = f"{topic_name}-raw"
    scene = Scene(own_pair, topic_name, tmp_path, spark, raw)
    sending = Producer(scene.settings["onprem"].librdkafka({"linger.ms": 5, "compression.type": "lz4"}))
    copied = {}
    for topic in (topic_name, raw):
        with Admin(scene.settings["onprem"]) as admin:
            admin.create_topic(topic, 2, 1, {"retention.ms": "-1"})
        put(sending, topic, 3_000)
        assert sending.flush(60) == 0
        committed, aborted = transactions(scene, topic)
        copied[topic] = 3_000 + committed
    with Admin(scene.settings["cloud"]) as admin:
        before = set(admin.shapes())
    source, target = (scene.settings[alias].bootstrap[0] for alias in ("onprem", "cloud"))
    mirror = mirrormaker.start_connect_mirrormaker(tmp_path / "mm2", target, {"header.converter": _AS_BYTES})
    try:
        for topic, more in ((topic_name, {"consumer.isolation.level": "read_committed"}), (raw, {})):
            mirror.put(topic, mirrormaker.build_source_connector(source, target, scene.alias, topic, more))
        wait_copied(scene, topic_name, copied[topic_name])
        wait_copied(scene, raw, copied[raw] + aborted)
    finally:
        mirror.stop()
    document = scene.verify()
    assert document["unproven"] == document["foreign"] == aborted
    clean, copied_all = sorted(document["topics"], key=lambda line: line["topic"])
    assert (clean["unproven"], clean["proven"]) == (0, copied[topic_name])
    assert (copied_all["foreign"], copied_all["proven"]) == (aborted, copied[raw])
    assert (clean["alignment"], clean["target_topic"]) == ("inferred", f"{scene.alias}.{topic_name}")
    assert all(how.startswith("content: cut at") for how in clean["how"])
    assert any(f"{aborted} of the foreign records are records of aborted tr" in each for each in document["findings"])
    proven = scene.verify(topics=(topic_name,), final=True)
    assert (proven["verdict"], proven["proven"]) == ("proven", copied[topic_name])
    with Admin(scene.settings["cloud"]) as admin:
        assert not [name for name in set(admin.shapes()) - before if name.startswith("watershed")]


def wait_copied(scene: Scene, topic: str, records: int) -> None:
    """Until the copy holds so many records (it has no markers)."""
    deadline = time.monotonic() + 240
    copy = scene.plan.flows[0].target_topic(topic)
    with Admin(scene.settings["cloud"]) as admin:
        while True:
            there = admin.topic(copy)
            if there is not None:
                where = [TopicPartition(copy, number) for number in range(there.partitions)]
                if sum(log.end for log in admin.offsets(where).values()) >= records:
                    return
            assert time.monotonic() < deadline, "MirrorMaker has not copied"
            time.sleep(0.2)


def altered(records: list[ConsumedRecord], at: int) -> list[ConsumedRecord]:
    r = records[at]
    return [*records[:at], ConsumedRecord(r.key, b"!", r.timestamp, r.headers), *records[at + 1 :]]


MUTATIONS: dict[str, tuple[Callable[[list[ConsumedRecord]], list[ConsumedRecord]], dict[str, int]]] = {
    "as it is": (lambda r: r, {}),
    "one lost": (lambda r: r[:150] + r[151:], {"missing": 1}),
    "one altered": (lambda r: altered(r, 33), {"altered": 1}),
    "first altered": (lambda r: altered(r, 0), {"altered": 1}),
    "last altered": (lambda r: altered(r, 299), {"altered": 1}),
    "last lost": (lambda r: r[:-1], {"pending": 1}),
    "began again": (lambda r: [*r[:260], *r[250:]], {"duplicates": 10}),
    "strange": (lambda r: [*r[:40], ConsumedRecord(b"x", b"y", 1), *r[40:]], {"foreign": 1}),
    "began later": (lambda r: r[70:], {}),
    "all of it": (
        lambda r: [*r[:20], *altered(r, 60)[21:200], *r[190:]],
        {"missing": 1, "altered": 1, "duplicates": 10},
    ),
}
KINDS = ("missing", "altered", "reordered", "duplicates", "foreign", "unverifiable", "pending")


def test_what_was_done_to_a_copy_is_found(
    own_pair: Lab, topic_name: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(own_pair, topic_name, tmp_path, spark)
    scene.create(len(MUTATIONS))
    logs = [a_log(number, 300) for number in range(len(MUTATIONS))]
    append(scene.settings["onprem"], scene.topic, {n: packed(log) for n, log in enumerate(logs)})
    copies = {n: packed(mutate(logs[n]), (50,), "gzip") for n, (mutate, _) in enumerate(MUTATIONS.values())}
    append(scene.settings["cloud"], scene.copy, copies)
    monkeypatch.setattr(inferred_alignment, "_HERE_AND_NOW", 0)  # Spark's tasks sample, too
    document = scene.verify(wait=0.0, chunk=1_000)
    for number, (name, (_, expected)) in enumerate(MUTATIONS.items()):
        [counts] = [each for each in document["window"]["partitions"] if each["partition"] == number]
        assert {kind: counts[kind] for kind in KINDS if counts[kind]} == expected, name
    assert (document["verdict"], document["exact"]) == ("different", True)
    later = list(MUTATIONS).index("began later")
    assert any(note.startswith(f"{scene.topic}-{later}: source offsets 0 to 69") for note in document["not_compared"])
