"""The proof against live traffic: 200 proofs in a row without a false alarm, 200 mutations between them without a miss.

Producers (some transactional, with aborts), a worker, retention and the cleaner on both sides run all the time. What is
pending or unverifiable just then may be called so; nothing may be called different, and no proof may fail. Nine in ten
build on the one before. After every proof a topic beside gets a copy with a mutation chosen at random, which has to be
found as its class and count.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.replicator.real import applied, plan_for, read_all, settings_of, wait_progress, workers
from tests.soak.proving import PARTITIONS, Traffic, create_sources, topics_of
from tests.spark.logs import a_log, append, packed, records_of
from tests.spark.mutations import COUNT, KINDS, MUTATIONS
from watershed.clusters.admin import Admin
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.lab import clusters
from watershed.replicator.ledger.offset_map import OffsetMap
from watershed.spark.judging.flow_observation import PartitionAlignment
from watershed.spark.proof_request import ProofRequest
from watershed.spark.proof_run import prove_flows
from watershed.spark.session import create_spark_session, end_session
from watershed.topology.plan import Plan, PlanCluster, PlanFlow, seal_plan
from watershed.topology.selectors import Selector, TopicSelection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
BUSY = {"log.retention.check.interval.ms": "1000", "log.cleaner.backoff.ms": "500"}


@pytest.fixture
def proofs(request: pytest.FixtureRequest, minutes: float) -> int:
    return int(request.config.getoption("--soak-proofs"))


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[dict[str, ConnectionSettings]]:
    """Brokers that delete and clean all the time."""
    try:
        yield settings_of(clusters.start_clusters(tmp_path / "brokers", ["onprem", "cloud"], settings=BUSY))
    finally:
        clusters.end_clusters(tmp_path / "brokers")


@pytest.fixture
def session() -> Iterator[SparkSession]:
    there = create_spark_session("watershed-soak")
    yield there
    end_session(there)


def test_no_false_alarm_and_no_miss(
    busy: dict[str, ConnectionSettings], session: SparkSession, tmp_path: Path, proofs: int
) -> None:
    seed = int(os.environ.get("SOAK_SEED", random.SystemRandom().randrange(2**32)))
    print(f"\nSOAK_SEED={seed}, {proofs} proofs")
    chance = random.Random(seed)
    topics = topics_of("live")
    create_sources(busy["onprem"], "live")
    plan = applied(busy, plan_for(busy, "live", *topics.values()))
    traffic = Traffic(busy["onprem"], "live", chance)
    seen: Counter[str] = Counter()
    took: dict[str, list[float]] = {"clean": [], "mutated": []}
    with workers(plan, "cloud", tmp_path) as start:
        start()
        wait_progress(busy, plan, topics["plain"], PARTITIONS, 500, timeout=120)
        for number in range(proofs):
            traffic.alive()
            since = tmp_path / f"proof-{number - 1}" / "summary.json" if number % 10 else None
            wait, chunk = chance.choice((0.0, 0.0, 5.0)), chance.choice((300, 2_000, None))
            request = ProofRequest(wait=wait, chunk=chunk, since=since)
            began = time.monotonic()
            summary = prove_flows(plan, request, tmp_path / f"proof-{number}", session=lambda: session)
            took["clean"].append(time.monotonic() - began)
            seen[summary["verdict"]] += 1
            seen.update({kind: summary[kind] for kind in ("proven", *KINDS)})
            told = f"{number}: {summary['verdict']}, {took['clean'][-1]:.1f} s, {summary['proven']:,} proven"
            print(told, {kind: summary[kind] for kind in KINDS if summary[kind]}, flush=True)
            assert summary["verdict"] in ("proven", "incomplete"), (tmp_path / f"proof-{number}", summary)
            assert not summary["findings"], summary["findings"]
            began = time.monotonic()
            seen[mutated(busy, session, tmp_path, chance, number)] += 1
            took["mutated"].append(time.monotonic() - began)
        written = traffic.end()
    print(f"{written:,} records written; {dict(seen)}")
    for what, seconds in took.items():
        ninety = statistics.quantiles(seconds, n=10)[-1] if len(seconds) > 1 else seconds[0]
        print(f"{what}: {statistics.median(seconds):.1f} s a proof, nine in ten below {ninety:.1f} s")
    assert seen["found"] == proofs
    assert_both_were_busy(busy, topics)


def mutated(
    settings: dict[str, ConnectionSettings], session: SparkSession, directory: Path, chance: random.Random, number: int
) -> str:
    """A topic with a copy that a mutation was applied to: it is found as its class and count."""
    mutation, chunk = chance.choice(MUTATIONS), chance.choice((7, 40, 64, 500))
    source, other = (packed(a_log(2 * number + at, COUNT)) for at in (0, 1))
    copy = mutation.apply(source, other)
    if chance.random() < 1 / 2:
        copy = packed(records_of(copy), (17, 3), "gzip")
    topic = f"side-{number}"
    for alias, log in (("onprem", source), ("cloud", copy)):
        with Admin(settings[alias]) as admin:
            admin.create_topic(topic, 1, 1, {"retention.ms": "-1"})
        append(settings[alias], topic, {0: log})
    summary = prove_flows(
        plan_beside(settings, topic),
        ProofRequest(wait=0.0, chunk=chunk),
        directory / topic,
        alignment=lambda _settings, _flow: {(topic, 0): PartitionAlignment(OffsetMap.of([(0, 0)]))},
        session=lambda: session,
    )
    found: dict[str, Any] = {kind: summary[kind] for kind in KINDS if summary[kind]}
    assert (found, summary["proven"]) == (mutation.found, mutation.proven), (mutation.name, chunk, directory / topic)
    return "found"


def plan_beside(settings: dict[str, ConnectionSettings], topic: str) -> Plan:
    flow = PlanFlow("beside", "onprem", "cloud", TopicSelection((Selector("literal", topic),)))
    return seal_plan(
        Plan("beside", tuple(PlanCluster(alias, each.bootstrap) for alias, each in settings.items()), (flow,))
    )


def assert_both_were_busy(settings: dict[str, ConnectionSettings], topics: dict[str, str]) -> None:
    """Retention and the cleaner did work on both sides."""
    for alias, each in settings.items():
        with Admin(each) as admin:
            where = [TopicPartition(topics["short"], number) for number in range(PARTITIONS)]
            starts = [log.start for log in admin.offsets(where).values()]
            where = [TopicPartition(topics["compacted"], number) for number in range(PARTITIONS)]
            ends = sum(log.end - log.start for log in admin.offsets(where).values())
        left = sum(map(len, read_all(each, topics["compacted"], PARTITIONS).values()))
        print(f"{alias}: logs of the short topic begin at {starts}, {left} of {ends} compacted offsets hold a record")
        assert all(starts), f"retention never worked on {alias}"
        assert left < ends, f"the cleaner never worked on {alias}"
