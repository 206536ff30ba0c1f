"""Writing batches: as they were stored, and exactly once however tasks and drivers end. On real brokers."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.pandas.types import to_arrow_schema

from tests.replicator.real import plan_for, producer, put, settings_of
from tests.replicator.real import read_all as read_records
from watershed.clusters.admin import Admin
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.spark.datasource import driver_transaction_commit
from watershed.spark.datasource.batch_reader import BatchReader
from watershed.spark.datasource.columns import BATCH_COLUMNS, build_row_schema
from watershed.spark.datasource.driver_transaction_commit import (
    abort_other_transactions,
    build_transaction_prefix,
    commit_job,
    commit_micro_batch,
    list_winning_transactions,
    read_commit_decision,
)
from watershed.spark.datasource.options import WriteOptions, parse_read_options
from watershed.spark.datasource.task_transaction_append import OpenTaskTransaction, append_in_transaction
from watershed.spark.errors import NotAppended, WrongUse
from watershed.spark.source import FORMAT_NAME, KafkaBatches, register_format
from watershed.topology.plan import Plan, encode_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


class World:
    """A filled topic, an empty one beside it, and what a Spark job does with them."""

    def __init__(self, settings: ConnectionSettings, plan: Plan, path: Path, topic: str) -> None:
        self.settings, self.source, self.target = settings, topic, f"{topic}-target"
        self.path = path
        self.writing = WriteOptions(plan.cluster("onprem"), self.target)
        with Admin(settings) as admin:
            admin.create_topic(self.source, 2, configs={"retention.ms": "-1"})
            admin.create_topic(self.target, 2, configs={"retention.ms": "-1"})
        sending = producer(settings, **{"compression.type": "lz4", "batch.num.messages": 50})
        put(sending, self.source, 500)
        sending.flush()

    def options(self, topic: str, **more: str) -> dict[str, str]:
        return {"topology": str(self.path), "cluster": "onprem", "topics": topic} | more

    def batches(self, topic: str) -> list[pa.RecordBatch]:
        reader = BatchReader(parse_read_options(self.options(topic)), build_row_schema("batches", ()))
        return [batch for task in reader.partitions() for batch in reader.read(task)]

    def appended(self, transactional_id: str, query: str = "") -> OpenTaskTransaction:
        return append_in_transaction(self.writing, transactional_id, self.batches(self.source), query)

    def records(self, topic: str) -> list[list[Any]]:
        """What read_committed consumers see, by partition."""
        self.settled()
        return [[record for _, record in here] for _, here in sorted(read_records(self.settings, topic, 2).items())]

    def settled(self) -> None:
        places = [TopicPartition(self.target, number) for number in range(2)]
        deadline = time.monotonic() + 180
        with Admin(self.settings) as admin:
            while admin.offsets(places) != admin.offsets(places, "read_uncommitted"):
                assert time.monotonic() < deadline, "a transaction stays open"
                time.sleep(0.05)


@pytest.fixture
def world(kafka_pair, topic_name: str, tmp_path: Path) -> World:
    settings = settings_of(kafka_pair)
    plan = plan_for(settings, topic_name, topic_name)
    path = tmp_path / "plan.json"
    path.write_text(encode_plan(plan))
    return World(settings["onprem"], plan, path, topic_name)


def test_only_the_winner_of_two_attempts_is_visible_as_it_was_stored(world: World) -> None:
    prefix = build_transaction_prefix(uuid.uuid4().hex)
    loser, winner = world.appended(f"{prefix}0-1"), world.appended(f"{prefix}0-2")
    nothing = append_in_transaction(world.writing, f"{prefix}1-3", [])
    assert nothing.nothing
    assert loser.batches == winner.batches > 10
    commit_job(world.settings, prefix, [winner, nothing])
    assert world.records(world.target) == world.records(world.source)
    stored = [
        {row["payload"] for table in world.batches(topic) for row in table.select(["payload"]).to_pylist()}
        for topic in (world.source, world.target)
    ]
    assert stored[0] == stored[1]


def test_an_aborted_job_leaves_nothing(world: World) -> None:
    prefix = build_transaction_prefix(uuid.uuid4().hex)
    world.appended(f"{prefix}0-1")
    abort_other_transactions(world.settings, prefix, ())
    assert world.records(world.target) == [[], []]


def test_a_transaction_that_timed_out_costs_the_job_before_anything_is_committed(world: World) -> None:
    prefix = build_transaction_prefix(uuid.uuid4().hex)
    ended, other = world.appended(f"{prefix}0-1"), world.appended(f"{prefix}1-2")
    abort_other_transactions(world.settings, prefix, list_winning_transactions([other]))  # what its timeout does
    with pytest.raises(NotAppended, match="Nothing of this job was committed"):
        commit_job(world.settings, prefix, [ended, other])
    abort_other_transactions(world.settings, prefix, ())
    assert world.records(world.target) == [[], []]


def test_a_replayed_micro_batch_is_not_written_again(world: World) -> None:
    query = str(uuid.uuid4())
    prefix = build_transaction_prefix(query)
    commit_micro_batch(world.settings, world.target, [world.appended(f"{prefix}run1-0-0", query)], 5)
    commit_micro_batch(world.settings, world.target, [world.appended(f"{prefix}run2-0-0", query)], 5)
    older = [world.appended(f"{prefix}run3-0-0", query)]
    with pytest.raises(NotAppended, match="restored from an older copy"):
        commit_micro_batch(world.settings, world.target, older, 4)
    driver_transaction_commit.abort_micro_batch(world.settings, world.target, older, 4)
    assert world.records(world.target) == world.records(world.source)


def test_what_was_decided_is_finished_by_the_replay(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver dies behind its decision: two transactions, none of them committed yet, one of them an attempt's."""
    query = str(uuid.uuid4())
    prefix = build_transaction_prefix(query)

    class Died(Exception):
        pass

    def dies(*_: object) -> None:
        raise Died

    first = [world.appended(f"{prefix}run1-{task}-0", query) for task in range(2)]
    world.appended(f"{prefix}run1-1-1", query)  # a loser
    with monkeypatch.context() as patch:
        patch.setattr(driver_transaction_commit, "_commit", dies)
        with pytest.raises(Died):
            commit_micro_batch(world.settings, world.target, first, 7)
    found = read_commit_decision(world.settings, query, world.target)
    assert found is not None
    assert (found.batch, found.whom) == (7, list_winning_transactions(first))
    # Spark does, and it must not undo it
    driver_transaction_commit.abort_micro_batch(world.settings, world.target, first, 7)
    commit_micro_batch(world.settings, world.target, [world.appended(f"{prefix}run2-0-0", query)], 7)
    assert [len(here) for here in world.records(world.target)] == [2 * len(h) for h in world.records(world.source)]


def test_a_replay_that_comes_too_late_is_loud(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    query = str(uuid.uuid4())
    prefix = build_transaction_prefix(query)
    messages = [world.appended(f"{prefix}run1-{task}-0", query) for task in range(2)]
    commit = driver_transaction_commit._commit
    with monkeypatch.context() as patch:
        patch.setattr(driver_transaction_commit, "_commit", lambda settings, whom: commit(settings, whom[:1]))
        patch.setattr(driver_transaction_commit, "abort_other_transactions", lambda *_: None)
        commit_micro_batch(world.settings, world.target, messages, 0)
    abort_other_transactions(
        world.settings, prefix, list_winning_transactions(messages[:1])
    )  # the second ran into its timeout
    with pytest.raises(NotAppended, match="was committed in part"):
        commit_micro_batch(world.settings, world.target, [world.appended(f"{prefix}run2-0-0", query)], 0)
    abort_other_transactions(world.settings, prefix, ())


def test_rows_that_cannot_be_written_are_named(world: World) -> None:
    target = {"topology": str(world.path), "cluster": "onprem", "topic": world.target}
    with pytest.raises(WrongUse, match="no column codec, payload"):
        KafkaBatches(target).writer(
            build_row_schema("batches", [name for name in BATCH_COLUMNS if name not in UNFIT]), False
        )
    with pytest.raises(WrongUse, match="nothing is ever deleted"):
        KafkaBatches(target).writer(build_row_schema("batches", ()), True)
    schema = to_arrow_schema(build_row_schema("batches", ()), timezone="UTC")
    row = world.batches(world.source)[0].to_pylist()[0]
    for change, told in (
        ({"payload": row["payload"][:-1] + b"?"}, "its checksum does not fit"),
        ({"max_timestamp_ms": 5}, "its checksum does not fit"),
        ({"codec": "brotli"}, "codec brotli is none of"),
        ({"control": True}, "marker of a transaction"),
        ({"count": 0}, "holds no records"),
        ({"payload": None}, "payload is null"),
        ({"partition": 9}, "has 2 partitions, and a row is meant for partition 9"),
    ):
        table = pa.RecordBatch.from_pylist([row | change], schema)
        with pytest.raises(Exception, match=told):
            append_in_transaction(world.writing, f"{build_transaction_prefix(uuid.uuid4().hex)}0-0", [table])
    assert world.records(world.target) == [[], []]


UNFIT = ("codec", "payload")


def test_a_job_and_a_stream_through_spark(world: World, spark: SparkSession, tmp_path: Path) -> None:
    register_format(spark)
    target = {"topology": str(world.path), "cluster": "onprem", "topic": world.target}
    frame = spark.read.format(FORMAT_NAME).options(**world.options(world.source)).load()
    frame.write.format(FORMAT_NAME).options(**target).mode("append").save()
    assert world.records(world.target) == world.records(world.source)

    def run() -> list[Row]:
        stream = spark.readStream.format(FORMAT_NAME)
        stream = stream.options(**world.options(world.source, startingOffsets="earliest", maxOffsetsPerTrigger="300"))
        query = (
            stream.load()
            .writeStream.format(FORMAT_NAME)
            .options(**target)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return list(query.recentProgress)

    assert len(run()) >= 2
    twice = [2 * here for here in world.records(world.source)]
    assert [sorted(map(str, here)) for here in world.records(world.target)] == [sorted(map(str, h)) for h in twice]
    sending = producer(world.settings)
    put(sending, world.source, 30, start=500)
    sending.flush()
    # The driver died behind the last commit and in front of Spark's own note of it: the micro-batch is replayed.
    noted = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    noted[-1].unlink()
    (noted[-1].parent / f".{noted[-1].name}.crc").unlink(missing_ok=True)
    run()
    assert sum(map(len, world.records(world.target))) == 500 + 530
