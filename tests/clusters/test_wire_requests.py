"""What each method of a connection sends: the version, and values that the generated schema of that version reads."""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from kio.serial import entity_reader

from watershed.clusters.errors import ClusterError, ProtocolError, RequestRefused, Unreachable
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.connection import Connection
from watershed.clusters.wire.metadata_requests import build_offset_answers
from watershed.clusters.wire.open_transactions import describe_transactions, list_open_transactions
from watershed.clusters.wire.request_codec import load_message_class
from watershed.clusters.wire.secured_transport import OpenedTransport
from watershed.clusters.wire.transaction_requests import ProducerIdAndEpoch
from watershed.clusters.wire.transport import FramePiece
from watershed.clusters.wire.versions import SUPPORT, Api, ApiVersions

US = ProducerIdAndEpoch(7, 2)
PLACE = (("orders", 3),)


class Recorder:
    """A transport that keeps what is sent, and is lost before any answer."""

    address = "k:1"

    def __init__(self) -> None:
        self.frame = b""
        self.patience: list[float] = []

    def send(self, pieces: Sequence[FramePiece]) -> None:
        self.frame = b"".join(pieces)

    def receive(self, *_room: object) -> memoryview:
        raise Unreachable("lost")

    def patient_for(self, seconds: float) -> None:
        self.patience.append(seconds)

    def close(self) -> None:
        return None


def connected(
    monkeypatch: pytest.MonkeyPatch, ranges: dict[int, tuple[int, int]], **more: Any
) -> tuple[Connection, Recorder]:
    recorder = Recorder()
    opened = OpenedTransport(recorder, ApiVersions("cloud", "k:1", ranges))  # type: ignore[arg-type]
    monkeypatch.setattr("watershed.clusters.wire.connection.open_transport", lambda *_, **__: opened)
    return Connection(ConnectionSettings("cloud", ("k:1",)), ("k", 1), **more), recorder


NEWEST = {int(api): (0, 99) for api in Api}
Send = Callable[[Connection], object]


@pytest.mark.parametrize(
    ("send", "api", "version", "patience", "values"),
    [
        (lambda at: at.metadata(("orders",)), Api.METADATA, 13, 10, {"allow_auto_topic_creation": False}),
        (lambda at: at.topics(), Api.METADATA, 13, 15, {"topics": None, "allow_auto_topic_creation": False}),
        (lambda at: at.brokers(), Api.METADATA, 13, 15, {"topics": ()}),
        (lambda at: at.list_offsets(PLACE, -2), Api.LIST_OFFSETS, 7, 10, {"replica_id": -1, "isolation_level": 0}),
        (lambda at: at.describe_producers("orders", 3), Api.DESCRIBE_PRODUCERS, 0, 10, {}),
        (lambda at: at.issue_producer_id(), Api.INIT_PRODUCER_ID, 5, 40, {"transactional_id": None, "producer_id": -1}),
        (
            lambda at: at.find_coordinator("us"),
            Api.FIND_COORDINATOR,
            6,
            40,
            {"key_type": 1, "coordinator_keys": ("us",)},
        ),
        (
            lambda at: at.init_producer("us", 60_000),
            *(Api.INIT_PRODUCER_ID, 5, 40),
            {"transactional_id": "us", "transaction_timeout": datetime.timedelta(minutes=1), "producer_epoch": -1},
        ),
        (
            lambda at: at.add_partitions("us", US, PLACE),
            *(Api.ADD_PARTITIONS_TO_TXN, 3, 40),
            {"v3_and_below_transactional_id": "us", "v3_and_below_producer_id": 7, "v3_and_below_producer_epoch": 2},
        ),
        (
            lambda at: at.end_transaction("us", US, commit=True, bump=True),
            *(Api.END_TXN, 5, 40),
            {"transactional_id": "us", "producer_id": 7, "producer_epoch": 2, "committed": True},
        ),
        (
            lambda at: at.add_group("us", US, "billing"),
            *(Api.ADD_OFFSETS_TO_TXN, 4, 40),
            {"transactional_id": "us", "producer_id": 7, "producer_epoch": 2, "group_id": "billing"},
        ),
        (lambda at: at.end_transaction("us", US, commit=False, bump=False), Api.END_TXN, 4, 40, {"committed": False}),
        (
            lambda at: at.delete_records("orders", 3, 9, 5_000),
            *(Api.DELETE_RECORDS, 2, 40),
            {"timeout": datetime.timedelta(seconds=5)},
        ),
        (lambda at: at.write_markers("orders", 3, US, 2), Api.WRITE_TXN_MARKERS, 1, 40, {}),
        (lambda at: at.end_of_epoch("orders", 3, 4), Api.OFFSET_FOR_LEADER_EPOCH, 4, 40, {"replica_id": -1}),
        (list_open_transactions, Api.LIST_TRANSACTIONS, 0, 40, {"state_filters": ("Ongoing",)}),
        (
            lambda at: describe_transactions(at, ["a", "b"]),
            Api.DESCRIBE_TRANSACTIONS,
            0,
            40,
            {"transactional_ids": ("a", "b")},
        ),
    ],
)
def test_a_request_is_what_its_schema_reads(
    monkeypatch: pytest.MonkeyPatch, send: Send, api: Api, version: int, patience: float, values: dict[str, Any]
) -> None:
    connection, recorder = connected(monkeypatch, NEWEST)
    with pytest.raises(ClusterError):
        send(connection)
    kind = load_message_class(api.name.lower(), version, "request")
    head = struct.pack(">hhih", api, version, 1, len("watershed")) + b"watershed" + b"\0" * kind.__flexible__
    assert recorder.frame.startswith(head)
    body = memoryview(recorder.frame)[len(head) :]
    question, size = entity_reader(kind)(body, 0)
    assert size == len(body)
    assert {name: getattr(question, name) for name in values} == values
    assert recorder.patience == [patience]


@pytest.mark.parametrize(
    ("send", "api", "version", "values"),
    [
        (lambda at: at.issue_producer_id(), Api.INIT_PRODUCER_ID, 2, {"transactional_id": None}),
        (lambda at: at.init_producer("us", 60_000), Api.INIT_PRODUCER_ID, 2, {"transactional_id": "us"}),
        (
            lambda at: at.add_partitions("us", US, PLACE),
            *(Api.ADD_PARTITIONS_TO_TXN, 1),
            {"v3_and_below_transactional_id": "us", "v3_and_below_producer_id": 7, "v3_and_below_producer_epoch": 2},
        ),
        (
            lambda at: at.end_transaction("us", US, commit=True, bump=False),
            *(Api.END_TXN, 1),
            {"transactional_id": "us", "producer_id": 7, "producer_epoch": 2, "committed": True},
        ),
        (
            lambda at: at.delete_records("orders", 3, 9, 5_000),
            *(Api.DELETE_RECORDS, 1),
            {"timeout": datetime.timedelta(seconds=5)},
        ),
        (
            lambda at: at.list_offsets(PLACE, -1, unreplicated=True),
            *(Api.LIST_OFFSETS, 5),
            {"replica_id": -2, "isolation_level": 0},
        ),
    ],
)
def test_a_broker_of_2_4_reads_what_it_is_sent(
    monkeypatch: pytest.MonkeyPatch, send: Send, api: Api, version: int, values: dict[str, Any]
) -> None:
    """Its versions are those of docs/research/kafka-versions.md, which is asked of real ones."""
    connection, recorder = connected(monkeypatch, {int(api): (0, version)})
    with pytest.raises(ClusterError):
        send(connection)
    kind = load_message_class(api.name.lower(), version, "request")
    question, _ = entity_reader(kind)(memoryview(recorder.frame)[10 + 9 + kind.__flexible__ :], 0)
    assert {name: getattr(question, name) for name in values} == values


def test_nobody_waits_longer_than_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    connection, recorder = connected(monkeypatch, NEWEST, timeout_s=2.0)
    for send in (
        lambda: connection.metadata(),
        lambda: connection.brokers(),
        lambda: connection.find_coordinator("us"),
    ):
        with pytest.raises(Unreachable):
            send()
    assert recorder.patience == [2.0] * 3
    assert connection.patience_s == 2.0


@pytest.mark.parametrize(
    ("send", "api", "known", "refusal"),
    [
        (lambda at: at.metadata(), Api.METADATA, 3, r"old .* versions 4 to 13: .* 0 to 3; Kafka 0.11 and newer"),
        (lambda at: at.send_produce(()), Api.PRODUCE, 2, r"old .* versions 3 to 13: .* 0 to 2; Kafka 0.11 and newer"),
        (
            lambda at: at.send_fetch(()),
            Api.FETCH,
            3,
            "asked fetch in versions 4 to 13: .* Kafka 0.11 and newer",
        ),
        (lambda at: at.describe_producers("t", 0), Api.DESCRIBE_PRODUCERS, -1, "not know .*; Kafka 2.8 and newer"),
        (lambda at: at.write_markers("t", 0, US, 1), Api.WRITE_TXN_MARKERS, 0, "takes version 0; Kafka 2.8 and"),
    ],
)
def test_an_older_broker_is_told_which_release_it_takes(
    monkeypatch: pytest.MonkeyPatch, send: Send, api: Api, known: int, refusal: str
) -> None:
    connection, recorder = connected(monkeypatch, NEWEST | {int(api): (0, known)})
    with pytest.raises(RequestRefused, match=refusal):
        send(connection)
    assert not recorder.frame


def test_a_broker_that_dropped_our_versions_is_too_new(monkeypatch: pytest.MonkeyPatch) -> None:
    connection, _ = connected(monkeypatch, NEWEST | {int(Api.DELETE_RECORDS): (3, 4)})
    with pytest.raises(RequestRefused, match=r"too new to be asked delete_records in versions 0 to 2: .* 3 to 4$"):
        connection.delete_records("t", 0, 1)


def test_releases_of_the_table_are_of_versions_that_it_has() -> None:
    for ours in SUPPORT.values():
        assert all(ours.lowest <= version <= ours.highest for version in ours.releases)


def test_an_answer_without_a_partition_s_offset_is_refused() -> None:
    """Not every server is Apache's."""
    part = SimpleNamespace(partition_index=3, error_code=0, offset=9, leader_epoch=1)
    answer = SimpleNamespace(topics=(SimpleNamespace(name="orders", partitions=(part,)),))
    assert [(each.partition, each.offset) for each in build_offset_answers(answer, PLACE)] == [(3, 9)]
    with pytest.raises(ProtocolError, match="ListOffsets leaves out orders-4"):
        build_offset_answers(answer, (*PLACE, ("orders", 4)))
