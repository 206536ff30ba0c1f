"""One question at a time over a raw connection: order, numbers, and no socket that stays open behind an error."""

from __future__ import annotations

import socket
import struct
import threading
import uuid
from collections.abc import Callable, Iterator

import pytest
from kio.schema.index import api_key_map

from watershed.clusters.errors import ProtocolError, RequestRefused, WrongCluster
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.connection import Connection, open_connection
from watershed.clusters.wire.messages import FetchPartition
from watershed.clusters.wire.request_codec import load_message_class
from watershed.clusters.wire.secured_transport import open_transport
from watershed.clusters.wire.versions import SUPPORT, Api, ApiVersions

API_VERSIONS, METADATA, FETCH, SASL_HANDSHAKE = 18, 3, 1, 17
KNOWN = {FETCH: (4, 18), METADATA: (0, 12), SASL_HANDSHAKE: (0, 1), API_VERSIONS: (0, 4), 36: (0, 2)}
UNKNOWN_SERVER_ERROR = -1


def answer_versions(version: int, error: int = 0) -> bytes:
    """What a broker answers to ApiVersions, behind the correlation id."""
    ranges = [struct.pack(">hhh", key, *known) for key, known in KNOWN.items()]
    if version == 0:
        return struct.pack(">hi", error, len(ranges)) + b"".join(ranges)
    return struct.pack(">h", error) + bytes([len(ranges) + 1]) + b"".join(each + b"\0" for each in ranges) + b"\0" * 5


class ScriptedBroker:
    """`answer`: (api key, version, correlation id) → (correlation id, what stands behind it), or None for silence."""

    def __init__(self) -> None:
        self.answer: Callable[[int, int, int], tuple[int, bytes] | None] = self.greet
        self.asked: list[tuple[int, int]] = []
        self.ended = threading.Event()  # the client has closed a connection
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._server.getsockname()
        threading.Thread(target=self._serve, daemon=True).start()

    def settings(self, **more: str) -> ConnectionSettings:
        return ConnectionSettings("cloud", (":".join(map(str, self.address)),), **more)  # type: ignore[arg-type]

    def greet(self, key: int, version: int, number: int) -> tuple[int, bytes] | None:
        return (number, answer_versions(version)) if key == API_VERSIONS else None

    def close(self) -> None:
        self._server.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as stream:
                while head := stream.read(4):
                    frame = stream.read(struct.unpack(">i", head)[0])
                    key, version, number = struct.unpack_from(">hhi", frame)
                    self.asked.append((key, version))
                    said = self.answer(key, version, number)
                    if said is not None:
                        body = struct.pack(">i", said[0]) + said[1]
                        connection.sendall(struct.pack(">i", len(body)) + body)
            self.ended.set()


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    made = ScriptedBroker()
    yield made
    made.close()


def test_no_question_is_sent_while_another_is_unanswered(broker: ScriptedBroker) -> None:
    """Its answer would be taken for that of the next question."""
    connection = Connection(broker.settings(), broker.address)
    connection.send_fetch((FetchPartition(uuid.UUID(int=7), 0, 0, 1 << 20),))
    with pytest.raises(ProtocolError, match="another was unanswered"):
        connection.metadata()
    connection.close()
    assert broker.ended.wait(10)
    assert [key for key, _ in broker.asked if key != API_VERSIONS] == [FETCH]


@pytest.mark.parametrize("wrong", [API_VERSIONS, SASL_HANDSHAKE])
def test_an_answer_during_the_login_carries_the_number_of_its_question(broker: ScriptedBroker, wrong: int) -> None:
    def answer(key: int, version: int, number: int) -> tuple[int, bytes]:
        body = answer_versions(version) if key == API_VERSIONS else b"\0\0" + struct.pack(">ih", 1, 5) + b"PLAIN"
        return number + (key == wrong), body

    broker.answer = answer
    settings = broker.settings(protocol="SASL_PLAINTEXT", mechanism="PLAIN", username="ann", password="x")
    with pytest.raises(ProtocolError, match="belongs to another question"):
        open_transport(settings, broker.address, timeout_s=10)
    assert broker.ended.wait(10)
    assert broker.asked[-1][0] == wrong


def test_a_refused_greeting_leaves_no_socket_open(broker: ScriptedBroker) -> None:
    broker.answer = lambda _key, version, number: (number, answer_versions(version, UNKNOWN_SERVER_ERROR))
    with pytest.raises(RequestRefused, match="when asked for its API versions"):
        Connection(broker.settings(), broker.address)
    assert broker.ended.wait(10)


def test_a_broker_too_old_for_the_pinned_id_leaves_no_socket_open(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KNOWN, METADATA, (0, 0))
    with pytest.raises(RequestRefused, match="too old"):
        open_connection(broker.settings(cluster_id="pinned"))
    assert broker.ended.wait(10)


def test_brokers_of_another_cluster_are_left_at_once(broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "cluster_id", lambda _connection: "other")
    with pytest.raises(WrongCluster, match="belong to cluster other"):
        open_connection(broker.settings(cluster_id="pinned"))
    assert broker.ended.wait(10)
    open_connection(broker.settings(cluster_id="other")).close()


def test_a_broker_too_old_for_a_request_is_named_and_not_asked(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would close the connection, which looks like an outage."""
    monkeypatch.setitem(KNOWN, FETCH, (0, 3))
    connection = Connection(broker.settings(), broker.address)
    with pytest.raises(RequestRefused, match=r"asked fetch in versions 4 to 13: it takes versions 0 to 3; Kafka 0\.11"):
        connection.send_fetch((FetchPartition(uuid.UUID(int=7), 0, 0, 1 << 20),))
    with pytest.raises(RequestRefused, match="it does not know the request"):
        connection.describe_producers("orders", 0)
    connection.close()
    assert [key for key, _ in broker.asked] == [API_VERSIONS]


def test_a_login_without_kafka_frames_is_refused_by_its_release(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers before 1.0 answer ApiVersions before the login, and take tokens that stand in no Kafka request."""
    monkeypatch.setitem(KNOWN, SASL_HANDSHAKE, (0, 0))
    settings = broker.settings(protocol="SASL_PLAINTEXT", mechanism="PLAIN", username="ann", password="x")
    with pytest.raises(RequestRefused, match=r"sasl_handshake in version 1: it takes version 0; Kafka 1\.0 and newer"):
        open_transport(settings, broker.address, timeout_s=10)
    assert broker.ended.wait(10)


def test_every_request_of_the_table_has_schemas_at_both_ends() -> None:
    assert set(SUPPORT) == set(Api)
    for api, ours in SUPPORT.items():
        assert api_key_map[api] == api.name.lower()
        for version in {ours.lowest, ours.highest}:
            for side in ("request", "response"):
                kind = load_message_class(api.name.lower(), version, side)  # type: ignore[arg-type]
                assert (kind.__api_key__, kind.__version__) == (api, version)


def test_a_version_is_picked_from_what_table_broker_and_caller_share() -> None:
    broker = ApiVersions("cloud", "k:1", {Api.METADATA: (0, 9), Api.END_TXN: (4, 99)}, {}, {"transaction.version": 2})
    assert broker.pick(Api.METADATA) == 9
    assert broker.pick(Api.METADATA, highest=5) == 5
    assert broker.pick(Api.END_TXN) == SUPPORT[Api.END_TXN].highest
    assert [broker.has_version(Api.METADATA, version) for version in (0, 9, 10)] == [True, True, False]
    assert broker.transaction_version == 2
    with pytest.raises(RequestRefused, match=r"versions 10 to 13: it takes versions 0 to 9"):
        broker.pick(Api.METADATA, lowest=10)
