"""Fetch and Produce by name: whether the topic that answers is the one that was meant."""

from __future__ import annotations

import struct
import uuid
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.connection import Connection
from watershed.clusters.wire.messages import FetchedPartition, FetchPartition, ProducePartition
from watershed.clusters.wire.request_codec import build_request, encode_entity, load_message_class
from watershed.clusters.wire.secured_transport import OpenedTransport
from watershed.clusters.wire.topic_names import build_stand_in_id, is_stand_in_id
from watershed.clusters.wire.transport import FramePiece
from watershed.clusters.wire.versions import Api, ApiVersions

KAFKA_2_8 = {int(Api.METADATA): (0, 11), int(Api.FETCH): (0, 12), int(Api.PRODUCE): (0, 9)}
KAFKA_2_4 = {int(Api.METADATA): (0, 9), int(Api.FETCH): (0, 11), int(Api.PRODUCE): (0, 8)}
_HEAD_BYTES = 10 + len("watershed")


class OldBroker:
    """A transport with one broker behind it, whose topics have one partition each.

    topics: name → id; None: it gives none. records: what each Fetch brings. `asked` are the requests that came, `named`
    the topics that Fetch and Produce named. waits: how long each Fetch may wait.
    """

    address = "k:1"

    def __init__(self, **topics: uuid.UUID | None) -> None:
        self.topics, self.records, self.cluster = topics, b"batches", uuid.uuid4().hex
        self.asked: list[str] = []
        self.named: list[str] = []
        self.waits: list[timedelta] = []
        self._answers: deque[bytes] = deque()

    def connect(self, monkeypatch: pytest.MonkeyPatch, ranges: dict[int, tuple[int, int]] = KAFKA_2_8) -> Connection:
        opened = OpenedTransport(self, ApiVersions("old", "k:1", ranges))  # type: ignore[arg-type]
        monkeypatch.setattr("watershed.clusters.wire.connection.open_transport", lambda *_, **__: opened)
        return Connection(ConnectionSettings("old", ("k:1",)), ("k", 1))

    def send(self, pieces: Sequence[FramePiece]) -> None:
        frame = b"".join(pieces)
        key, version, number = struct.unpack_from(">hhi", frame)
        name = Api(key).name.lower()
        self.asked.append(name)
        kind = load_message_class(name, version, "request")
        request = entity_reader(kind)(memoryview(frame), _HEAD_BYTES + kind.__flexible__)[0]
        values = {"metadata": self._describe, "fetch": self._read, "produce": self._write}[name](request)
        answer = build_request(load_message_class(name, version, "response"), values)
        self._answers.append(struct.pack(">i", number) + b"\0" * answer.__flexible__ + encode_entity(answer))

    def receive(self, *_room: object) -> memoryview:
        return memoryview(self._answers.popleft())

    def patient_for(self, _seconds: float) -> None:
        return None

    def close(self) -> None:
        return None

    def _describe(self, request: Any) -> dict[str, Any]:
        wanted = self.topics if request.topics is None else {str(each.name) for each in request.topics}
        found = [{"name": name, "topic_id": self.topics.get(name), "partitions": ()} for name in wanted]
        codes = (ErrorCode.none, ErrorCode.unknown_topic_or_partition)
        topics = tuple(each | {"error_code": codes[each["name"] not in self.topics]} for each in found)
        return {"throttle_time": timedelta(0), "brokers": (), "cluster_id": self.cluster, "topics": topics}

    def _read(self, request: Any) -> dict[str, Any]:
        self.named += [str(each.topic) for each in request.topics]
        self.waits.append(request.max_wait)
        part = {"partition_index": 0, "high_watermark": 9, "aborted_transactions": (), "records": self.records}
        topics = tuple(
            {"topic": each.topic, "partitions": (part | {"error_code": self._code(str(each.topic))},)}
            for each in request.topics
        )
        return {"throttle_time": timedelta(0), "error_code": ErrorCode.none, "responses": topics}

    def _write(self, request: Any) -> dict[str, Any]:
        self.named += [str(each.name) for each in request.topic_data]
        part = {"index": 0, "base_offset": 7, "record_errors": ()}
        topics = tuple(
            {"name": each.name, "partition_responses": (part | {"error_code": self._code(str(each.name))},)}
            for each in request.topic_data
        )
        return {"responses": topics, "throttle_time": timedelta(0)}

    def _code(self, name: str) -> ErrorCode:
        return ErrorCode.none if name in self.topics else ErrorCode.unknown_topic_or_partition


def read(connection: Connection, *ids: uuid.UUID) -> dict[uuid.UUID, FetchedPartition]:
    return {each.topic_id: each for each in connection.fetch(tuple(FetchPartition(topic, 0, 0) for topic in ids))}


def test_records_of_a_topic_that_was_made_anew_are_not_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a Metadata between: it was made anew after the request was sent."""
    orders, other = uuid.uuid4(), uuid.uuid4()
    broker = OldBroker(orders=orders, other=other)
    connection = broker.connect(monkeypatch)
    connection.metadata()
    assert read(connection, orders)[orders].records == b"batches"
    broker.topics["orders"] = uuid.uuid4()
    answers = read(connection, orders, other)
    assert (answers[orders].error, bytes(answers[orders].records)) == (error_codes.UNKNOWN_TOPIC_ID, b"")
    assert (answers[other].error, bytes(answers[other].records)) == (error_codes.NONE, b"batches")
    broker.named.clear()
    assert read(connection, orders)[orders].error == error_codes.UNKNOWN_TOPIC_ID
    assert broker.named == []


def test_records_of_a_topic_that_is_gone_are_not_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    orders = uuid.uuid4()
    broker = OldBroker(orders=orders)
    connection = broker.connect(monkeypatch)
    read(connection, orders)
    del broker.topics["orders"]
    assert read(connection, orders)[orders].error == error_codes.UNKNOWN_TOPIC_ID
    connection.send_produce((ProducePartition(orders, 0, (b"batch",)),))
    assert connection.receive_produce()[0].error == error_codes.UNKNOWN_TOPIC_ID


def test_a_fetch_always_may_wait_a_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tansu answers one that may not wait without looking at any log."""
    orders = uuid.uuid4()
    broker = OldBroker(orders=orders)
    broker.connect(monkeypatch).fetch((FetchPartition(orders, 0, 0),), max_wait_ms=0)
    assert broker.waits == [timedelta(milliseconds=5)]


def test_an_answer_without_records_costs_no_question(monkeypatch: pytest.MonkeyPatch) -> None:
    orders = uuid.uuid4()
    broker = OldBroker(orders=orders)
    connection = broker.connect(monkeypatch)
    read(connection, orders)
    broker.records = b""
    broker.asked.clear()
    read(connection, orders)
    assert broker.asked == ["fetch"]


def test_an_address_that_leads_to_another_cluster_is_not_asked_for_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    orders = uuid.uuid4()
    OldBroker(orders=orders).connect(monkeypatch).metadata()
    elsewhere = OldBroker(orders=uuid.uuid4())
    connection = elsewhere.connect(monkeypatch)
    connection.send_produce((ProducePartition(orders, 0, (b"batch",)),))
    (answer,) = connection.receive_produce()
    assert (answer.topic_id, answer.error, answer.base_offset) == (orders, error_codes.UNKNOWN_TOPIC_ID, -1)
    assert elsewhere.named == []


def test_a_missing_target_topic_does_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    orders, gone = uuid.uuid4(), uuid.uuid4()
    broker = OldBroker(orders=orders)
    connection = broker.connect(monkeypatch)
    connection.send_produce((ProducePartition(orders, 0, (b"batch",)), ProducePartition(gone, 4, (b"batch",))))
    answers = {each.topic_id: each for each in connection.receive_produce()}
    assert (answers[orders].error, answers[orders].base_offset) == (error_codes.NONE, 7)
    assert (answers[gone].error, answers[gone].partition) == (error_codes.UNKNOWN_TOPIC_ID, 4)
    assert broker.named == ["orders"]


def test_a_target_topic_that_was_made_anew_while_nothing_was_sent_gets_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr("watershed.clusters.wire.connection.time.monotonic", lambda: now[0])
    orders = uuid.uuid4()
    broker = OldBroker(orders=orders)
    connection = broker.connect(monkeypatch)
    connection.send_produce((ProducePartition(orders, 0, (b"batch",)),))
    assert connection.receive_produce()[0].error == error_codes.NONE
    broker.topics["orders"] = uuid.uuid4()
    now[0] = 1.5
    connection.send_produce((ProducePartition(orders, 0, (b"batch",)),))
    assert connection.receive_produce()[0].error == error_codes.UNKNOWN_TOPIC_ID
    assert broker.named == ["orders"]


@pytest.mark.parametrize(("ranges", "given"), [(KAFKA_2_4, None), (KAFKA_2_8, None), (KAFKA_2_8, uuid.UUID(int=0))])
def test_a_topic_without_an_id_gets_one_that_stands_in(
    monkeypatch: pytest.MonkeyPatch, ranges: dict[int, tuple[int, int]], given: uuid.UUID | None
) -> None:
    """Brokers before 2.8, and newer ones with an older inter-broker protocol."""
    broker = OldBroker(orders=given)
    connection = broker.connect(monkeypatch, ranges)
    (topic,) = connection.metadata(("orders",)).topics
    assert topic.topic_id == build_stand_in_id(broker.cluster, "orders")
    assert is_stand_in_id(topic.topic_id)
    broker.asked.clear()
    assert read(connection, topic.topic_id)[topic.topic_id].records == b"batches"
    assert broker.asked == ["metadata", "fetch"]
    assert connection.metadata(("missing",)).topics[0].topic_id.int == 0


def test_an_upgrade_that_brings_ids_ends_the_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = OldBroker(orders=None)
    connection = broker.connect(monkeypatch)
    (topic,) = connection.metadata(("orders",)).topics
    broker.topics["orders"] = uuid.uuid4()
    assert read(connection, topic.topic_id)[topic.topic_id].error == error_codes.UNKNOWN_TOPIC_ID


def test_ids_of_kafka_are_no_stand_ins() -> None:
    assert not any(is_stand_in_id(uuid.uuid4()) for _ in range(100))
