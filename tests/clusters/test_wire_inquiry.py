"""Raw questions to a broker of Kafka 2.0, played by a socket: versions, headers and answers of that time."""

from __future__ import annotations

import datetime
import io
import socket
import struct
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kio.index import load_entity_module, load_payload_module
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32, i32Timedelta, i64

from watershed.clusters.errors import RequestRefused, Unauthorised, Unreachable
from watershed.clusters.group_listing import GroupListing
from watershed.clusters.kafka_release import detect_release
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire import admin_reads
from watershed.clusters.wire.connection import Connection
from watershed.clusters.wire.versions import NEWEST_API_VERSIONS, read_api_versions

ZERO = i32Timedelta.parse(datetime.timedelta(0))
# api key → the newest version that Kafka 2.0 knows; DescribeAcls, quotas and later groups are not among them
KNOWN = {1: 8, 3: 6, 15: 2, 16: 2, 18: 2, 35: 1}


class OldBroker:
    """Answers one connection after the other. refuse: DescribeLogDirs comes back empty, as it did without the right.
    hangs_up: it closes the connection on an ApiVersions that is newer than it knows, as Azure Event Hubs does."""

    def __init__(self) -> None:
        self.refuse = self.hangs_up = False
        self.asked: list[tuple[int, int]] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._server.getsockname()
        threading.Thread(target=self._serve, daemon=True).start()

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
                    self.asked.append(struct.unpack_from(">hh", frame))
                    if self.hangs_up and self.asked[-1] > (18, KNOWN[18]):
                        break
                    self._answer(connection, frame)

    def _answer(self, connection: socket.socket, frame: bytes) -> None:
        api_key, version, correlation = struct.unpack_from(">hhi", frame)
        if api_key == 18 and version > KNOWN[18]:
            answer = self._versions(0, ErrorCode.unsupported_version)
        elif api_key == 18:
            answer = self._versions(version, ErrorCode.none)
        else:
            (client,) = struct.unpack_from(">h", frame, 8)
            module = load_payload_module(api_key, version, EntityType.request)
            [kind] = [each for name, each in vars(module).items() if name.endswith("Request")]
            body = memoryview(frame)[10 + client :]  # header v1: no tagged fields
            question, size = entity_reader(kind)(body, 0)
            assert size == len(body), "the broker would refuse what is left over"
            answer = {16: self._groups, 15: self._described, 35: self._log_dirs}[api_key](version, question)
        out = io.BytesIO()
        entity_writer(type(answer))(out, answer)
        whole = struct.pack(">i", correlation) + out.getvalue()
        connection.sendall(struct.pack(">i", len(whole)) + whole)

    def _versions(self, version: int, error: ErrorCode) -> Any:
        module = load_entity_module("api_versions", version, EntityType.response)
        keys = tuple(
            module.ApiVersion(api_key=i16(key), min_version=i16(0), max_version=i16(highest))
            for key, highest in KNOWN.items()
        )
        more = {} if version == 0 else {"throttle_time": ZERO}
        return module.ApiVersionsResponse(error_code=error, api_keys=keys, **more)

    def _groups(self, version: int, _: Any) -> Any:
        module = load_entity_module("list_groups", version, EntityType.response)
        group = module.ListedGroup(group_id="billing", protocol_type="consumer")
        return module.ListGroupsResponse(throttle_time=ZERO, error_code=ErrorCode.none, groups=(group,))

    def _described(self, version: int, question: Any) -> Any:
        module = load_entity_module("describe_groups", version, EntityType.response)
        member = module.DescribedGroupMember(
            member_id="m", client_id="c", client_host="h", member_metadata=b"", member_assignment=b""
        )
        groups = tuple(
            module.DescribedGroup(
                error_code=ErrorCode.none,
                group_id=each,
                group_state="Stable",
                protocol_type="consumer",
                protocol_data="range",
                members=(member, member),
            )
            for each in question.groups
        )
        return module.DescribeGroupsResponse(throttle_time=ZERO, groups=groups)

    def _log_dirs(self, version: int, _: Any) -> Any:
        module = load_entity_module("describe_log_dirs", version, EntityType.response)
        if self.refuse:
            return module.DescribeLogDirsResponse(throttle_time=ZERO, results=())
        parts = tuple(
            module.DescribeLogDirsPartition(
                partition_index=i32(index), partition_size=i64(100), offset_lag=i64(0), is_future_key=index == 1
            )
            for index in (0, 1)
        )
        topic = module.DescribeLogDirsTopic(name="orders", partitions=parts)
        result = module.DescribeLogDirsResult(error_code=ErrorCode.none, log_dir="/data", topics=(topic,))
        return module.DescribeLogDirsResponse(throttle_time=ZERO, results=(result,))


@pytest.fixture
def broker() -> Iterator[OldBroker]:
    found = OldBroker()
    yield found
    found.close()


@pytest.fixture
def inquiry(broker: OldBroker) -> Iterator[Connection]:
    with Connection(ConnectionSettings("old", ("unused:1",)), broker.address) as found:
        yield found


def test_a_broker_that_hangs_up_on_a_newer_question_is_asked_the_oldest(broker: OldBroker) -> None:
    broker.hangs_up = True
    with Connection(ConnectionSettings("hub", ("unused:1",)), broker.address) as found:
        assert found.versions.ranges == {key: (0, highest) for key, highest in KNOWN.items()}
    assert broker.asked == [(18, NEWEST_API_VERSIONS), (18, 0)]


def test_a_broker_that_always_hangs_up_does_not_answer(broker: OldBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.hangs_up = True
    monkeypatch.setitem(KNOWN, 18, -1)
    with pytest.raises(Unreachable, match="the broker closed the connection"):
        Connection(ConnectionSettings("hub", ("unused:1",)), broker.address)
    assert broker.asked == [(18, NEWEST_API_VERSIONS), (18, 0)]


@pytest.mark.parametrize(
    ("newest", "asked", "level"),
    [
        (NEWEST_API_VERSIONS + 1, [0, NEWEST_API_VERSIONS], 2),
        (NEWEST_API_VERSIONS, [0, NEWEST_API_VERSIONS], 2),
        (3, [0, 3], 2),
        (2, [0], 0),
    ],
)
def test_who_hung_up_by_accident_is_asked_for_its_features_again(newest: int, asked: list[int], level: int) -> None:
    """A broker that was just restarted: answers have features from version 3 on."""

    class Exchange:
        asked: list[int]

        def ask(self, _name: str, version: int, _values: object) -> Any:
            self.asked.append(version)
            key = SimpleNamespace(api_key=18, min_version=0, max_version=newest)
            feature = SimpleNamespace(name="transaction.version", max_version_level=2)
            features = {"finalized_features": (feature,)} if version >= 3 else {}
            return SimpleNamespace(error_code=0, api_keys=(key,), **features)

    exchange = Exchange()
    exchange.asked = []
    found = read_api_versions(exchange, "cloud", "k:1", 0)  # type: ignore[arg-type]
    assert (exchange.asked, found.transaction_version) == (asked, level)


def test_the_versions_of_an_old_broker(broker: OldBroker, inquiry: Connection) -> None:
    assert inquiry.versions.ranges == {key: (0, highest) for key, highest in KNOWN.items()}
    assert (inquiry.versions.supported, inquiry.versions.finalized) == ({}, {})
    assert detect_release(inquiry.versions.ranges, inquiry.versions.supported) == "2.0"
    assert [version for key, version in broker.asked if key == 18][1:] == [2]


def test_groups_of_an_old_broker(inquiry: Connection) -> None:
    assert admin_reads.read_group_listings(inquiry) == [GroupListing("billing", "Stable", "classic", 2)]


def test_log_sizes_of_an_old_broker(broker: OldBroker, inquiry: Connection) -> None:
    assert admin_reads.read_log_sizes(inquiry) == {TopicPartition("orders", 0): 100}  # a log on the move counts once
    broker.refuse = True
    with pytest.raises(Unauthorised, match="refused reading log sizes"):
        admin_reads.read_log_sizes(inquiry)


def test_what_an_old_broker_cannot_be_asked(inquiry: Connection) -> None:
    for ask in (admin_reads.read_quota_texts, admin_reads.read_acls):
        with pytest.raises(RequestRefused, match="too old"):
            ask(inquiry)
