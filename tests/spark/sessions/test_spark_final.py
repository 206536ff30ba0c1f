"""After a fence: stragglers and transactions that hold the end of a log, in memory and on a broker."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.spark.sessions.test_spark_proof import Bench, log
from watershed.clusters.cluster_protocol import LogRange
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.ledger.offset_map import OffsetMap
from watershed.spark.judging.proof_inputs import ProofPartition
from watershed.spark.judging.proof_window import ObservedPartition, PartitionPair, fix_window
from watershed.spark.judging.verdict import Counts, ProofJudgement
from watershed.spark.judging.writes_after_fence import add_fence_findings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from watershed.lab.clusters import Lab

PLACE = PartitionPair("a-to-b", "t", "t", 0)
IDS = (uuid.UUID(int=1), uuid.UUID(int=2))


def judged(seen: ObservedPartition, now: LogRange, end: int, records: int) -> ProofJudgement:
    """now: the log with its last stable offset; end: with what is not stable yet."""
    subject = ProofPartition(fix_window(seen, final=True), seen.map, ("a", "b"))
    assert subject.window.place == PLACE

    def ends(keys: object, isolation: str) -> dict[TopicPartition, LogRange]:
        return {TopicPartition("t", 0): now if isolation == "read_committed" else LogRange(now.start, end)}

    before = ProofJudgement({PLACE: Counts(proven=9)})
    return add_fence_findings(before, [subject], [seen], ends, lambda _s, span: records, lambda _key: "somebody")


def seen(barrier: int, source_end: int, target_end: int) -> ObservedPartition:
    logs = LogRange(0, source_end), LogRange(0, target_end)
    return ObservedPartition(PLACE, *logs, OffsetMap.of([(0, 0)]), barrier, IDS)


def test_nothing_moved() -> None:
    found = judged(seen(9, 9, 9), LogRange(0, 9), 9, 0)
    assert (found.verdict, found.blocks) == ("proven", ())


def test_stragglers_that_nobody_looked_for_are_pending() -> None:
    found = judged(seen(9, 9, 9), LogRange(0, 12), 12, 2)
    assert (found.verdict, found.total.pending) == ("incomplete", 2)
    assert found.blocks == ("t-0: 2 records were written after the window was fixed, from offset 9 on",)


def test_stragglers_that_were_copied_are_compared_and_told() -> None:
    found = judged(seen(9, 12, 12), LogRange(0, 12), 12, 3)
    assert (found.verdict, found.total.pending) == ("incomplete", 0)
    assert "3 records were written after" in found.blocks[0]
    assert fix_window(seen(9, 12, 12), final=True).source == (0, 12)


def test_markers_behind_the_window_are_no_stragglers() -> None:
    found = judged(seen(9, 9, 9), LogRange(0, 10), 10, 0)
    assert (found.verdict, found.blocks) == ("proven", ())


def test_an_open_transaction_is_told_with_who_holds_it() -> None:
    found = judged(seen(9, 9, 9), LogRange(0, 9), 14, 0)
    assert (found.verdict, found.blocks) == (
        "incomplete",
        ("t-0: an open transaction holds offsets 9 to 13 (somebody)",),
    )


@pytest.mark.kafka
@pytest.mark.spark
def test_a_hanging_transaction_is_named(kafka_pair: Lab, topic_name: str, tmp_path: Path, spark: SparkSession) -> None:
    bench = Bench(kafka_pair, topic_name, tmp_path, spark)
    for alias in ("onprem", "cloud"):
        bench.write(alias, log(50))
    own = {"transactional.id": topic_name, "transaction.timeout.ms": 600_000}  # ours to end
    hanging = Producer(bench.settings["onprem"].librdkafka(own))
    hanging.init_transactions(60)
    hanging.begin_transaction()
    hanging.produce(topic_name, b"never committed", b"k", 0)
    assert hanging.flush(60) == 0
    found = bench.verify(final=True)
    assert (found["verdict"], found["proven"], found["unproven"]) == ("incomplete", 50, 0)
    [finding] = found["findings"]
    assert f"{topic_name}-0: an open transaction holds offsets 50 to 50 (producer id " in finding
    assert f"abort --topic {topic_name} --partition 0 --start-offset 50" in finding
    hanging.abort_transaction(60)
    found = bench.verify(final=True, wait=60.0)
    assert (found["verdict"], found["proven"], found["findings"]) == ("proven", 50, [])
