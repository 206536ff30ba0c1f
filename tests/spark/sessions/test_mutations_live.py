"""What happens to a topic that a worker has copied, with the worker's own ledger; and what happens while it is read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest
from confluent_kafka import TopicPartition as WirePartition
from confluent_kafka.admin import AdminClient

import watershed.spark.proof_run
from tests.replicator.real import applied, plan_for, settings_of, wait_copied, workers
from tests.spark.logs import Packed, a_log, append, packed
from tests.spark.mutations import KINDS, STRANGE
from watershed.clusters.admin import Admin
from watershed.clusters.settings import ConnectionSettings
from watershed.spark.judging.proof_inputs import ProofReaders
from watershed.spark.proof_request import ProofRequest
from watershed.spark.proof_run import prove_flows
from watershed.spark.reading.range_requests import RangeRequest
from watershed.spark.reading.range_sums import RangeSum
from watershed.topology.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from watershed.lab.clusters import Lab

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

COUNT, CHUNK = 600, 100
LOG = [replace(each, value=(each.value or b"") + b"." * 150) for each in a_log(7, COUNT)]
SOURCE = packed(LOG, (70, 83, 61, 97))  # none so small (8 KiB) that the worker merges it with its neighbours
FIRST, LAST = 70 + 83, COUNT - 75  # where the batches of the first chunk end, and those of the last begin
KEPT = {"retention.ms": "-1"}  # the records are old
Step = Callable[["Scene"], Any]


@dataclass(frozen=True, slots=True)
class Scene:
    """A topic of one partition that was copied, and the worker has ended."""

    settings: dict[str, ConnectionSettings]
    plan: Plan
    topic: str
    directory: Path
    session: SparkSession

    def verify(self, **request: Any) -> dict[str, Any]:
        asked = ProofRequest(**({"wait": 0.0, "chunk": CHUNK, "topics": (self.topic,)} | request))
        out = self.directory / f"{self.topic}-{time.monotonic_ns()}"
        return prove_flows(self.plan, asked, out, session=lambda: self.session)

    def append(self, alias: str, *batches: Packed) -> None:
        append(self.settings[alias], self.topic, {0: batches})

    def delete_before(self, alias: str, offset: int) -> None:
        client = AdminClient(self.settings[alias].librdkafka())
        for future in client.delete_records([WirePartition(self.topic, 0, offset)]).values():
            future.result(60)

    def configs(self, alias: str, **configs: str) -> None:
        with Admin(self.settings[alias]) as admin:
            admin.alter_topic_configs(self.topic, {key.replace("_", "."): value for key, value in configs.items()})

    def made_anew(self, alias: str) -> None:
        client = AdminClient(self.settings[alias].librdkafka())
        client.delete_topics([self.topic])[self.topic].result(60)
        with Admin(self.settings[alias]) as admin:
            while admin.topic(self.topic) is not None:
                time.sleep(0.1)
            admin.create_topic(self.topic, 1, 1, KEPT)


def nothing(_: Scene) -> None: ...


def _again(scene: Scene) -> None:
    """What a client would do that sends its last records a second time."""
    scene.append("cloud", *packed(LOG[-30:]))


# name → what happens, classes and numbers, proven, a word of its findings or of what was not compared
AFTER: dict[str, tuple[Step, dict[str, int], int, str]] = {
    "nothing": (nothing, {}, COUNT, ""),
    "somebody writes to the copy": (lambda s: s.append("cloud", Packed((STRANGE,) * 3)), {"foreign": 3}, COUNT, ""),
    "the last 30 come again": (_again, {"duplicates": 30}, COUNT, ""),
    "the source goes on": (lambda s: s.append("onprem", Packed((STRANGE,) * 4)), {"pending": 4}, COUNT, ""),
    "the source lost its head": (lambda s: s.delete_before("onprem", 150), {}, COUNT - 150, "expired on the source"),
    "the copy lost its head": (lambda s: s.delete_before("cloud", 150), {"unverifiable": 150}, COUNT - 150, "expired"),
    "the source lost all": (lambda s: s.delete_before("onprem", COUNT), {}, 0, "no record was compared"),
    "other stamps from now on": (
        lambda s: s.configs("cloud", message_timestamp_type="LogAppendTime"),
        {},
        COUNT,
        "timestamps not compared",
    ),
    "other limits": (lambda s: s.configs("cloud", max_message_bytes="2000000"), {}, COUNT, "max.message.bytes is"),
    "the copy made anew": (lambda s: s.made_anew("cloud"), {"pending": COUNT}, 0, "made anew"),
    "the source made anew": (lambda s: s.made_anew("onprem"), {"unverifiable": COUNT}, 0, "made anew"),
}


@pytest.fixture(scope="module")
def scenes(kafka_pair: Lab, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> dict[str, Scene]:
    """One worker copies a topic for each; some are copied to topics that stamp or compress otherwise."""
    settings, directory = settings_of(kafka_pair), tmp_path_factory.mktemp("live")
    name = f"live-{time.monotonic_ns()}"
    topics = {what: f"{name}-{number}" for number, what in enumerate((*AFTER, *WHILE, *ANEW, *BEFORE))}
    for what, topic in topics.items():
        with Admin(settings["onprem"]) as admin:
            admin.create_topic(topic, 1, 1, KEPT)
        append(settings["onprem"], topic, {0: SOURCE})
        if what in BEFORE:
            with Admin(settings["cloud"]) as admin:
                admin.create_topic(topic, 1, 1, KEPT | BEFORE[what][0])
    plan = applied(settings, plan_for(settings, name, *topics.values()))
    with workers(plan, "cloud", directory) as start:
        start()
        for topic in topics.values():
            wait_copied(settings, plan, topic, 1)
    return {what: Scene(settings, plan, topic, directory, spark) for what, topic in topics.items()}


def classes(summary: dict[str, Any]) -> dict[str, int]:
    return {kind: summary[kind] for kind in KINDS if summary[kind]}


def told(summary: dict[str, Any]) -> str:
    return " ".join([*summary["findings"], *summary["not_compared"]])


@pytest.mark.parametrize("what", AFTER)
def test_what_happens_behind_the_workers_back(scenes: dict[str, Scene], what: str) -> None:
    happens, found, proven, word = AFTER[what]
    happens(scenes[what])
    summary = scenes[what].verify()
    assert (classes(summary), summary["proven"]) == (found, proven), summary
    assert word in told(summary)


# Topics that were there before the worker came: configs, how their chunks are compared
BEFORE: dict[str, tuple[dict[str, str], str]] = {
    "a copy like the source": ({}, "batches"),
    "a copy that its broker compresses": ({"compression.type": "gzip"}, "records"),
}


@pytest.mark.parametrize("what", BEFORE)
def test_copies_that_brokers_store_otherwise_are_proven(scenes: dict[str, Scene], what: str) -> None:
    scene = scenes[what]
    summary = scene.verify(final=True)
    assert (summary["verdict"], classes(summary), summary["proven"]) == ("proven", {}, COUNT), summary
    [chunks] = [pq.read_table(path).to_pylist() for path in scene.directory.glob(f"{scene.topic}-*/chunks.parquet")]
    assert {row["by"] for row in chunks} == {BEFORE[what][1]}


# name → before the proof, which time something is read, what happens then, classes and numbers, proven
WHILE: dict[str, tuple[Step, int, Step, dict[str, int], int]] = {
    "retention at the source": (
        nothing,
        2,
        lambda s: s.delete_before("onprem", 350),
        {"unverifiable": 350 - FIRST},
        FIRST + 250,
    ),
    "retention at the target": (
        nothing,
        2,
        lambda s: s.delete_before("cloud", 350),
        {"unverifiable": 350 - FIRST},
        FIRST + 250,
    ),
    "retention on both sides": (
        nothing,
        2,
        lambda s: (s.delete_before("onprem", 350), s.delete_before("cloud", 400)),
        {"unverifiable": 400 - FIRST},
        FIRST + 200,
    ),
    "retention before the second look": (
        lambda s: s.append("cloud", Packed((STRANGE,))),
        4,
        lambda s: s.delete_before("onprem", 550),
        {"unverifiable": 550 - LAST, "foreign": 1},
        LAST + 50,
    ),
    "writes on both sides": (
        nothing,
        2,
        lambda s: (s.append("onprem", Packed((STRANGE,) * 2)), s.append("cloud", Packed((STRANGE,)))),
        {},
        COUNT,
    ),
}
ANEW = {"the source made anew meanwhile": "onprem", "the copy made anew meanwhile": "cloud"}


@pytest.mark.parametrize("what", WHILE)
def test_what_happens_while_it_is_read(scenes: dict[str, Scene], what: str) -> None:
    before, turn, happens, found, proven = WHILE[what]
    before(scenes[what])
    with meanwhile(turn, lambda: happens(scenes[what])):
        summary = scenes[what].verify()
    assert (classes(summary), summary["proven"]) == (found, proven), summary


@pytest.mark.parametrize("what", ANEW)
def test_a_topic_made_anew_while_it_is_read_is_an_error(scenes: dict[str, Scene], what: str) -> None:
    with meanwhile(2, lambda: scenes[what].made_anew(ANEW[what])):
        summary = scenes[what].verify()
    assert (summary["verdict"], summary["exit_code"], classes(summary)) == ("error", 2, {}), summary
    assert "made anew while it was read" in summary["error"]


@contextmanager
def meanwhile(turn: int, happens: Callable[[], Any]) -> Iterator[None]:
    """Lets something happen right before ranges are read for the `turn`th time."""
    turns = count(1)
    real = watershed.spark.proof_run.build_spark_readers

    def readers(*arguments: Any, **named: Any) -> ProofReaders:
        found = real(*arguments, **named)

        def sums(units: Sequence[RangeRequest]) -> dict[int, RangeSum]:
            if next(turns) == turn:
                happens()
            return found.sums(units)

        return replace(found, sums=sums)

    with patch.object(watershed.spark.proof_run, "build_spark_readers", readers):
        yield
    assert next(turns) > turn, "it never happened"
