"""The proof of compacted topics on brokers whose cleaner runs on one side only, and takes tombstones away."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from tests.replicator.real import read_all, settings_of
from watershed.clusters.admin import Admin
from watershed.clusters.settings import ConnectionSettings
from watershed.lab import clusters
from watershed.replicator.ledger.offset_map import OffsetMap
from watershed.spark.judging.flow_observation import PartitionAlignment
from watershed.spark.proof_request import ProofRequest
from watershed.spark.proof_run import prove_flows
from watershed.topology.plan import Plan, PlanCluster, PlanFlow, seal_plan
from watershed.topology.selectors import Selector, TopicSelection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.soak]

TOPIC, T0, KEYS = "state", 1_700_000_000_000, 40
CLEAN, LOST_KEY, LOST_TOMBSTONE, FOREIGN = range(4)  # partitions
DEAD = frozenset(range(30, KEYS))  # keys that end with a tombstone
QUICK = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "100"}
Row = tuple[bytes, bytes | None, int]


def rows() -> list[Row]:
    values = [(b"k%d" % (i % KEYS), b"v%d" % i, T0 + i) for i in range(400)]
    return values + [(b"k%d" % key, None, T0 + 500 + key) for key in sorted(DEAD)]


def copied(partition: int) -> list[Row]:
    """What the copy has: as many records, so that all others stand where they should."""
    log = rows()
    instead = {
        LOST_KEY: {365: log[364]},  # the last value of k5
        LOST_TOMBSTONE: {403: log[402]},  # of k33
        FOREIGN: {7: (b"stranger", b"x", T0)},  # in place of a value that was overwritten long since
    }
    for at, row in instead.get(partition, {}).items():
        log[at] = row
    return log


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ConnectionSettings]]:
    """`onprem` has been cleaned, tombstones included; `cloud` holds every record that it ever got."""
    directory = tmp_path_factory.mktemp("compaction")
    try:
        settings = settings_of(
            clusters.start_clusters(directory, ["onprem", "cloud"], settings={"log.cleaner.backoff.ms": "200"})
        )
        for alias, configs in (("onprem", QUICK), ("cloud", {"min.compaction.lag.ms": "36000000"})):
            with Admin(settings[alias]) as admin:
                admin.create_topic(TOPIC, 4, 1, {"cleanup.policy": "compact", **configs})
        sending = {alias: Producer(each.librdkafka({"linger.ms": 5})) for alias, each in settings.items()}

        def send(alias: str, partition: int, row: Row) -> None:
            sending[alias].produce(TOPIC, row[1], row[0], partition, timestamp=row[2])

        for partition in range(4):
            for alias, log in (("onprem", rows()), ("cloud", copied(partition))):
                for row in log:
                    send(alias, partition, row)
        deadline = time.monotonic() + 240
        for tick in range(10_000):
            for partition in range(4):  # with a later timestamp, so that it begins a segment
                for alias in sending:
                    send(alias, partition, (b"tick", b"%d" % tick, T0 + 1_000 * (tick + 1)))
            for each in sending.values():
                assert each.flush(60) == 0
            left = read_all(settings["onprem"], TOPIC, 4)
            if all(len(log) < KEYS + 20 and not {record[0] for _, record in log} & _dead() for log in left.values()):
                break
            assert time.monotonic() < deadline, {partition: len(log) for partition, log in left.items()}
            time.sleep(0.2)
        yield settings
    finally:
        clusters.end_clusters(directory)


def _dead() -> set[bytes]:
    return {b"k%d" % key for key in DEAD}


def proof(settings: dict[str, ConnectionSettings], source: str, target: str, out: Path, spark: Any) -> dict[str, Any]:
    there = tuple(PlanCluster(alias, each.bootstrap) for alias, each in settings.items())
    flow = PlanFlow(f"{source}-to-{target}", source, target, TopicSelection((Selector("literal", TOPIC),)))
    plan: Plan = seal_plan(Plan("tests", there, (flow,)))
    aligned = {(TOPIC, partition): PartitionAlignment(OffsetMap.of([(0, 0)])) for partition in range(4)}
    request = ProofRequest(wait=0.0, chunk=100)
    return prove_flows(plan, request, out, alignment=lambda _settings, _flow: aligned, session=lambda: spark)


def test_a_cleaner_on_one_side_is_no_difference_and_a_lost_key_is(
    pair: dict[str, ConnectionSettings], tmp_path: Path, spark: SparkSession
) -> None:
    found = proof(pair, "onprem", "cloud", tmp_path / "one", spark)
    by_partition = {line["partition"]: line for line in found["window"]["partitions"]}
    kinds = ("missing", "altered", "foreign", "unverifiable", "pending", "reordered", "duplicates")
    unproven = {number: {k: line[k] for k in kinds if line[k]} for number, line in by_partition.items()}
    # the value of k5 before its last one still stands on the target; k33 was never deleted there
    assert unproven == {CLEAN: {}, LOST_KEY: {"altered": 1}, LOST_TOMBSTONE: {"foreign": 1}, FOREIGN: {"foreign": 1}}
    assert {line["mode"] for line in by_partition.values()} == {"state"}
    assert by_partition[CLEAN]["proven"] == KEYS - len(DEAD) + 1
    assert (found["verdict"], found["exit_code"]) == ("different", 1)
    named = {(d["partition"], d["kind"], d["source_offset"], d["target_offset"]) for d in found["differences"]}
    assert named == {
        (LOST_KEY, "altered", 365, 325),
        (LOST_TOMBSTONE, "foreign", None, 393),
        (FOREIGN, "foreign", None, 7),
    }


def test_it_is_the_same_where_the_target_was_cleaned(
    pair: dict[str, ConnectionSettings], tmp_path: Path, spark: SparkSession
) -> None:
    found = proof(pair, "cloud", "onprem", tmp_path / "two", spark)
    by_partition = {line["partition"]: line for line in found["window"]["partitions"]}
    assert [by_partition[n]["unproven"] for n in range(4)] == [0, 1, 1, 1]
    assert by_partition[LOST_TOMBSTONE]["missing"] == by_partition[FOREIGN]["missing"] == 1
