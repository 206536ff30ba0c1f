"""Streams of `kafka-batches` on real brokers: what a micro-batch takes, and what ends a query before it loses any."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from tests.replicator.real import plan_for, producer, put, settings_of
from tests.spark.sessions.test_spark_batches import settled
from watershed.clusters.admin import Admin
from watershed.clusters.errors import Unauthorised, Unreachable
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.connection import open_connection
from watershed.spark.datasource.batch_reader import BatchReader
from watershed.spark.datasource.columns import build_row_schema
from watershed.spark.datasource.log_offsets import LogOffsetReader
from watershed.spark.datasource.options import parse_read_options
from watershed.spark.datasource.stream_reader import StreamReader
from watershed.spark.errors import NotReadable, WrongUse
from watershed.topology.plan import encode_plan
from watershed.topology.selectors import Selector, TopicSelection

pytestmark = [pytest.mark.kafka]


class Query:
    """What Spark does with a stream reader: asks, notes as JSON, reads."""

    def __init__(self, options: dict[str, str]) -> None:
        asked = parse_read_options(options)
        self.reader = StreamReader(asked, build_row_schema(asked.rows, asked.columns))
        self.at = noted(self.reader.initialOffset())

    def step(self, limit: Any = None) -> int:
        """Records of a micro-batch."""
        self.reader._seen = (0.0, [])  # new partitions are noticed at once
        end = noted(self.reader.latestOffset(self.at, limit or ReadAllAvailable()))
        parts = self.reader.partitions(self.at, end)
        self.at = end
        return sum(row["count"] for part in parts for table in self.reader.read(part) for row in table.to_pylist())


def noted(offset: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(offset))


@pytest.fixture
def onprem(kafka_pair, topic_name: str) -> ConnectionSettings:
    settings = settings_of(kafka_pair)["onprem"]
    with Admin(settings) as admin:
        admin.create_topic(topic_name, 1, configs={"retention.ms": "-1"})
    filled(settings, topic_name, 100)
    return settings


@pytest.fixture
def options(kafka_pair, onprem, topic_name: str, tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "plan.json"
    path.write_text(encode_plan(plan_for(settings_of(kafka_pair), topic_name, topic_name)))
    return {"topology": str(path), "cluster": "onprem", "topics": topic_name, "startingOffsets": "earliest"}


def filled(settings: ConnectionSettings, topic: str, count: int) -> None:
    sending = producer(settings, **{"batch.num.messages": 10})
    put(sending, topic, count)
    sending.flush()


def test_a_stream_takes_what_is_new_in_steps_and_finds_new_partitions(onprem, topic_name: str, options) -> None:
    query = Query(options)
    assert isinstance(query.reader.getDefaultReadLimit(), ReadAllAvailable)
    steps = [query.step(ReadMaxRows(33)) for _ in range(5)]
    assert sum(steps) == 100
    assert max(steps) <= 33 + 10  # a batch that was begun is taken whole
    assert query.step() == 0
    with Admin(onprem) as admin:
        admin.create_partitions(topic_name, 3)
    filled(onprem, topic_name, 90)
    assert query.step() == 90
    assert query.step() == 0
    assert Query(options | {"startingOffsets": "latest"}).step() == 0


def test_an_available_now_query_ends_where_the_log_ended_when_it_began(onprem, topic_name: str, options) -> None:
    query = Query(options)
    query.reader.prepareForTriggerAvailableNow()
    filled(onprem, topic_name, 50)
    with Admin(onprem) as admin:
        admin.create_partitions(topic_name, 2)
    assert [query.step(), query.step()] == [100, 0]


def test_a_stream_stops_in_front_of_an_open_transaction(onprem, topic_name: str, options) -> None:
    query = Query(options)
    open_one = Producer(onprem.librdkafka({"transactional.id": topic_name, "transaction.timeout.ms": 600_000}))
    open_one.init_transactions(60)
    open_one.begin_transaction()
    open_one.produce(topic_name, b"not yet")
    open_one.flush(60)
    filled(onprem, topic_name, 20)
    assert [query.step(), query.step()] == [100, 0]
    open_one.abort_transaction(60)
    settled(onprem, topic_name, 1)
    assert query.step() == 20


def test_a_log_that_does_not_continue_ends_the_query(onprem, topic_name: str, options) -> None:
    query = Query(options)
    query.step(ReadMaxRows(10))
    before = query.at
    other = json.loads(json.dumps(before).replace(before[topic_name]["id"], str(uuid.uuid4())))
    for at, told in ((other, "deleted and made anew"), ({"gone": before[topic_name]}, "gone-0 on onprem is not there")):
        query.at = at
        with pytest.raises(NotReadable, match=told):
            query.step()
    query.at = noted(before)
    query.at[topic_name]["next"]["0"] = 5_000
    with pytest.raises(NotReadable, match="ends at 100, and 5000 was read before: it was truncated"):
        query.step()
    batch = {key: value for key, value in options.items() if key != "startingOffsets"}
    planned = BatchReader(parse_read_options(batch), build_row_schema("batches", ()))
    tasks = planned.partitions()
    link = open_connection(onprem)
    try:
        assert link.delete_records(topic_name, 0, 60)[0] == error_codes.NONE
    finally:
        link.close()
    query.at = before
    with pytest.raises(NotReadable, match=r"offsets \d+ to 59 expired before they were read\. Begin anew"):
        query.step()
    with pytest.raises(NotReadable, match="offsets 0 to 59 expired before they were read; the log begins at 60 now"):
        [list(planned.read(task)) for task in tasks]


def test_a_stream_has_no_end_and_no_answer_is_no_result(options) -> None:
    with pytest.raises(WrongUse, match="a stream has no end"):
        Query(options | {"endingTimestamp": "5"})
    orders = TopicSelection(include=(Selector("literal", "orders"),))
    logs = LogOffsetReader(ConnectionSettings("nowhere", ("127.0.0.1:1",)), patience_s=0.0)
    with pytest.raises(Unreachable, match="cluster nowhere does not answer"):
        logs.selected(orders)
    with pytest.raises(Unauthorised, match="READ and DESCRIBE on it are needed"):
        logs._refuse(error_codes.TOPIC_AUTHORIZATION_FAILED, "orders")
