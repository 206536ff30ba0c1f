"""Fetch sessions (KIP-227): after every question the broker knows exactly what is wanted, whatever was lost before."""

from __future__ import annotations

import struct
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from tests.examples import choose_examples
from watershed.clusters.errors import ClusterError
from watershed.clusters.fake_cluster import FakeCluster
from watershed.clusters.fake_wire import FakeWire
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.connection import Connection
from watershed.clusters.wire.fetch_session import FetchSession, SessionQuestion
from watershed.clusters.wire.messages import FetchPartition
from watershed.clusters.wire.request_codec import build_request, encode_entity, load_message_class
from watershed.clusters.wire.secured_transport import OpenedTransport
from watershed.clusters.wire.transport import FramePiece
from watershed.clusters.wire.versions import Api, ApiVersions

TOPIC = uuid.uuid4()
Place = tuple[uuid.UUID, int]


class Broker:
    """A broker's side, as Apache Kafka has it (FetchSessionCache): sessions by id, each with its epoch."""

    def __init__(self) -> None:
        self.sessions: dict[int, tuple[int, dict[Place, FetchPartition]]] = {}
        self.made = 0
        self.has_room = True

    def ask(self, question: SessionQuestion) -> tuple[int, int, dict[Place, FetchPartition]]:
        """(error, session id, everything that is asked for)."""
        named = {(each.topic_id, each.partition): each for each in question.partitions}
        if question.epoch == 0:
            self.sessions.pop(question.id, None)
            if not self.has_room:
                return 0, 0, named
            self.made += 1
            self.sessions[self.made] = (1, named)
            return 0, self.made, named
        if question.id not in self.sessions:
            return 70, 0, {}
        epoch, known = self.sessions[question.id]
        if epoch != question.epoch:
            return 71, 0, {}
        for place in question.forgotten:
            del known[place]  # it knows each
        known |= named
        self.sessions[question.id] = (epoch + 1, known)
        return 0, question.id, known


def wanted(*offsets: int, at: Sequence[int] | None = None) -> tuple[FetchPartition, ...]:
    numbers = range(len(offsets)) if at is None else at
    return tuple(FetchPartition(TOPIC, number, offset) for number, offset in zip(numbers, offsets, strict=True))


def as_known(parts: Sequence[FetchPartition]) -> dict[Place, FetchPartition]:
    return {(each.topic_id, each.partition): each for each in parts}


def want(session: FetchSession, parts: Sequence[FetchPartition]) -> FetchSession:
    """The session, with these and no others in it."""
    for place in list(session._wanted):
        if place not in as_known(parts):
            session.leave_out(place)
    for part in parts:
        session.ask(part)
    return session


def exchange(session: FetchSession, broker: Broker, parts: tuple[FetchPartition, ...]) -> SessionQuestion:
    """As `Connection.fetch` does it; the question that was answered."""
    for _ in range(2):
        question = want(session, parts).build_question()
        error, number, known = broker.ask(question)
        if not error:
            session.take_answer(number)
            assert known == as_known(parts)
            return question
        session.begin_anew(forgotten=error == 70)
    raise AssertionError("a question that names everything was refused")


def test_only_what_has_changed_is_named() -> None:
    session, broker = FetchSession(), Broker()
    first = exchange(session, broker, wanted(5, 6, 7))
    assert (first.id, first.epoch, as_known(first.partitions)) == (0, 0, as_known(wanted(5, 6, 7)))
    assert session.is_incremental
    assert exchange(session, broker, wanted(5, 6, 7)) == SessionQuestion(1, 1, ())
    moved = exchange(session, broker, wanted(5, 9, at=(0, 1)))
    assert moved == SessionQuestion(1, 2, wanted(9, at=(1,)), ((TOPIC, 2),))
    assert exchange(session, broker, wanted(5, 9, 7)).partitions == wanted(7, at=(2,))


def test_what_was_never_asked_for_is_not_forgotten() -> None:
    session, broker = FetchSession(), Broker()
    exchange(session, broker, wanted(5))
    session.ask(FetchPartition(TOPIC, 9, 0))
    session.leave_out((TOPIC, 9))
    session.leave_out((TOPIC, 8))
    session.leave_out((TOPIC, 0))
    session.ask(FetchPartition(TOPIC, 0, 5))
    assert session.build_question() == SessionQuestion(1, 1, wanted(5))


def test_another_partition_comes_first_each_time() -> None:
    """A broker without sessions fills an answer in the order of the question."""
    session = want(FetchSession(), wanted(5, 6, 7))
    assert {session.list_wanted()[0].partition for _ in range(3)} == {0, 1, 2}


def test_an_epoch_begins_again_at_one() -> None:
    session = FetchSession()
    want(session, wanted(1)).build_question()
    session.take_answer(9)
    session._epoch = 2**31 - 1
    want(session, wanted(1)).build_question()
    session.take_answer(9)
    assert want(session, wanted(1)).build_question() == SessionQuestion(9, 1, ())


def test_a_broker_without_room_for_a_session_is_told_everything_each_time() -> None:
    session, broker = FetchSession(), Broker()
    broker.has_room = False
    for _ in range(2):
        asked = exchange(session, broker, wanted(1, 2))
        assert (asked.id, asked.epoch, as_known(asked.partitions)) == (0, 0, as_known(wanted(1, 2)))
        assert not session.is_incremental
    broker.has_room = True
    exchange(session, broker, wanted(1, 2))
    assert exchange(session, broker, wanted(1, 2)).partitions == ()


steps = st.one_of(
    st.dictionaries(st.integers(0, 5), st.integers(0, 3), min_size=1),  # what is wanted: partition → offset
    st.sampled_from(["evicted", "answer lost", "question lost", "full", "room"]),
)


@given(st.lists(steps, max_size=25))
@settings(max_examples=choose_examples(100), deadline=None)
def test_whatever_is_lost_the_broker_knows_what_is_wanted(script: list[dict[int, int] | str]) -> None:
    session, broker = FetchSession(), Broker()
    last = wanted(0)
    for step in script:
        if isinstance(step, dict):
            last = wanted(*step.values(), at=tuple(step))
            exchange(session, broker, last)
        elif step == "evicted":
            broker.sessions.clear()
        elif step == "answer lost":
            broker.ask(want(session, last).build_question())
            session.begin_anew()
        elif step == "question lost":
            want(session, last).build_question()
            session.begin_anew()
        else:
            broker.has_room = step == "room"
    exchange(session, broker, last)
    assert len(broker.sessions) <= 1 or "answer lost" in script  # the id of a session that was made then is not known


class Transport:
    """A transport with a broker behind it that answers Fetch in version 13 with what `codes` and `ids` say."""

    address = "k:1"

    def __init__(self, codes: list[int]) -> None:
        self.codes = deque(codes)
        self.asked: list[Any] = []
        self._answers: deque[bytes] = deque()

    def connect(self, monkeypatch: pytest.MonkeyPatch) -> Connection:
        ranges = {int(Api.METADATA): (0, 12), int(Api.FETCH): (4, 13)}
        opened = OpenedTransport(self, ApiVersions("new", "k:1", ranges))  # type: ignore[arg-type]
        monkeypatch.setattr("watershed.clusters.wire.connection.open_transport", lambda *_, **__: opened)
        return Connection(ConnectionSettings("new", ("k:1",)), ("k", 1))

    def send(self, pieces: Sequence[FramePiece]) -> None:
        frame = b"".join(pieces)
        _key, version, number = struct.unpack_from(">hhi", frame)
        kind = load_message_class("fetch", version, "request")
        self.asked.append(entity_reader(kind)(memoryview(frame), 10 + len("watershed") + kind.__flexible__)[0])
        code = ErrorCode(self.codes.popleft())
        values = {"throttle_time": timedelta(0), "error_code": code, "responses": (), "session_id": 77}
        answer = build_request(load_message_class("fetch", version, "response"), values)
        self._answers.append(struct.pack(">i", number) + b"\0" + encode_entity(answer))

    def receive(self, *_room: object) -> memoryview:
        return memoryview(self._answers.popleft())

    def patient_for(self, _seconds: float) -> None:
        return None

    def close(self) -> None:
        return None

    @property
    def told(self) -> list[tuple[int, int, list[int], list[int]]]:
        """(session id, epoch, partitions, forgotten ones) of each request."""
        return [
            (
                int(each.session_id),
                int(each.session_epoch),
                sorted(int(part.partition) for topic in each.topics for part in topic.partitions),
                [int(number) for topic in each.forgotten_topics_data for number in topic.partitions],
            )
            for each in self.asked
        ]


def test_a_connection_asks_for_everything_at_once_where_the_session_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, session = Transport([0, 0, 70, 0, 71, 0]), FetchSession()
    connection = broker.connect(monkeypatch)
    connection.fetch(want(session, wanted(1, 2)))
    for parts in (wanted(1, at=(0,)), wanted(1, 2), wanted(1, 3)):
        assert connection.fetch(want(session, parts)) == []
    assert broker.told == [
        (0, 0, [0, 1], []),
        (77, 1, [], [1]),
        (77, 2, [1], []),
        (0, 0, [0, 1], []),  # the broker does not know it
        (77, 1, [1], []),
        (77, 0, [0, 1], []),  # another epoch: the broker ends it, and makes a new one
    ]


def test_a_session_that_is_refused_again_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, session = Transport([71, 71]), FetchSession()
    with pytest.raises(ClusterError, match="INVALID_FETCH_SESSION_EPOCH"):
        broker.connect(monkeypatch).fetch(want(session, wanted(1)))


def test_a_fetch_without_a_session_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Transport([0])
    broker.connect(monkeypatch).fetch(wanted(1))
    assert broker.told == [(0, -1, [0], [])]


def test_the_cluster_in_memory_leaves_out_what_has_not_changed() -> None:
    cluster = FakeCluster("cloud")
    topic = cluster.create_topic("orders", 2).topic_id
    cluster.produce("orders", 0, [b"a"])
    parts = tuple(FetchPartition(topic, number, 0) for number in range(2))
    wire, session = FakeWire(cluster), FetchSession()
    assert {each.partition for each in wire.fetch(want(session, parts), max_wait_ms=0)} == {0, 1}
    behind = (replace(parts[0], offset=1), parts[1])
    assert wire.fetch(want(session, behind), max_wait_ms=0) == []
    cluster.produce("orders", 1, [b"b"])
    assert [each.partition for each in wire.fetch(want(session, behind), max_wait_ms=0)] == [1]
    again = FakeWire(cluster)  # a broker that has forgotten the session
    assert {each.partition for each in again.fetch(want(session, behind), max_wait_ms=0)} == {0, 1}
