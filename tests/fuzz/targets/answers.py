"""Answers of brokers, as bytes on a socket, to everything that is asked over raw connections.

An input: a byte that says what is asked (`_QUESTIONS`), and answers, each two bytes of length and what stands behind
the correlation id; the last has all the rest. They come framed and numbered as a broker would, behind the handshake
that the question needs; with the highest bit set the bytes reach the socket as they are.
"""

from __future__ import annotations

import io
import socket
import struct
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from random import Random
from typing import Any

from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from tests.clusters.test_wire_walk import made
from tests.fuzz.target import OracleViolated, Target
from watershed.clusters import broker_precheck
from watershed.clusters.errors import ClusterError
from watershed.clusters.group_offsets import GroupOffsets
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.varints import encode_uvarint
from watershed.clusters.wire import admin_reads
from watershed.clusters.wire.connection import Connection
from watershed.clusters.wire.messages import FetchPartition
from watershed.clusters.wire.request_codec import load_message_class

_ADDRESS = ("127.0.0.1", 9)
_PLAIN = ConnectionSettings("cloud", ("127.0.0.1:9",))
_LOGIN = ConnectionSettings(
    "cloud", ("127.0.0.1:9",), protocol="SASL_PLAINTEXT", mechanism="SCRAM-SHA-256", username="ann", password="x"
)
_TOPIC = uuid.UUID(int=7)
_RAW = 0x80
_LONGEST = 100_000  # what a socket holds without a reader
_answers: list[bytes] = []
_raw = False
_begins = "plain"


def _connected() -> Connection:
    return Connection(_PLAIN, _ADDRESS)


def _fetched() -> object:
    found = _connected().fetch((FetchPartition(_TOPIC, 0, 0, 1 << 20),), max_bytes=1 << 20)
    return sum(len(each.records) for each in found)


def _produced() -> object:
    connection = _connected()
    connection.send_produce(())
    return connection.receive_produce()


def _greeted() -> object:
    broker_precheck._known.clear()
    broker_precheck._ask(_PLAIN, ("PLAINTEXT", _ADDRESS), threading.Event())
    (known,) = broker_precheck._known.values()
    if known[2] is not None:
        raise known[2]
    return len(known[1])


def _groups(ask: Callable[[GroupOffsets], object]) -> Callable[[], object]:
    def asked() -> object:
        with GroupOffsets(_PLAIN) as offsets:
            return ask(offsets)

    return asked


def _read(ask: Callable[[Connection], object]) -> Callable[[], object]:
    return lambda: ask(_connected())


# what is asked, how its connection begins, and of which answers (name, version, with a list of tags behind the
# correlation id) its seeds are made
_PLACE = TopicPartition("orders", 0)
_Question = tuple[Callable[[], object], str, tuple[tuple[str, int, bool], ...]]
_QUESTIONS: tuple[_Question, ...] = (
    (lambda: _connected().metadata(), "plain", (("metadata", 13, True),)),
    (_fetched, "plain", (("fetch", 13, True),)),
    (_produced, "plain", (("produce", 13, True),)),
    (lambda: _connected().list_offsets((("orders", 0),), -1), "plain", (("list_offsets", 7, True),)),
    (lambda: _connected().describe_producers("orders", 0), "plain", (("describe_producers", 0, True),)),
    (lambda: _connected().issue_producer_id(), "plain", (("init_producer_id", 5, True),)),
    (_greeted, "contact", (("api_versions", 3, False), ("metadata", 8, False))),
    (_connected, "greeting", (("api_versions", 4, False),)),
    (_read(lambda inquiry: inquiry.topics()), "inquiry", (("metadata", 13, True),)),
    (_read(lambda inquiry: inquiry.brokers()), "inquiry", (("metadata", 13, True),)),
    (_read(admin_reads.read_log_sizes), "inquiry", (("describe_log_dirs", 5, True),)),
    (_read(admin_reads.read_group_listings), "inquiry", (("list_groups", 5, True), ("describe_groups", 6, True))),
    (_read(admin_reads.read_acls), "inquiry", (("describe_acls", 3, True),)),
    (_read(admin_reads.read_quota_texts), "inquiry", (("describe_client_quotas", 1, True),)),
    (_read(admin_reads.read_scram_users), "inquiry", (("describe_user_scram_credentials", 0, True),)),
    (
        _read(lambda inquiry: admin_reads.read_topic_config_entries(inquiry, ["orders"])),
        "inquiry",
        (("describe_configs", 4, True),),
    ),
    (_groups(lambda offsets: offsets.listed()), "inquiry", (("metadata", 13, True), ("list_groups", 5, True))),
    (
        _groups(lambda offsets: offsets.held(["billing"])),
        "inquiry",
        (("metadata", 13, True), ("find_coordinator", 6, True), ("offset_fetch", 9, True)),
    ),
    (
        _groups(lambda offsets: offsets.logs([_PLACE])),
        "inquiry",
        (("metadata", 13, True), ("metadata", 13, True), ("list_offsets", 7, True)),
    ),
    (
        lambda: Connection(_LOGIN, _ADDRESS),
        "login",
        (("sasl_handshake", 1, False), ("sasl_authenticate", 2, True), ("sasl_authenticate", 2, True)),
    ),
)


def target() -> Target:
    socket.create_connection = _peer  # type: ignore[assignment]  # in this process nothing else is called
    time.sleep = _skip  # of those who ask again
    random, seeds = Random(7), []
    for number, (_, begins, answers) in enumerate(_QUESTIONS):
        for _ in range(4):
            bodies = [_body(name, version, tagged, random) for name, version, tagged in answers]
            seeds.append(bytes([number]) + b"".join(struct.pack(">H", len(each)) + each for each in bodies))
            numbered = zip(bodies, _BEGINNINGS[begins][1], strict=False)
            framed = b"".join(struct.pack(">ii", len(each) + 4, at) + each for each, at in numbered)
            seeds.append(bytes([number | _RAW]) + framed)
    words = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\x00\x23", b"\x00\x00", b"\xff\xff")
    return Target("answers", seeds, _attempt, (ClusterError,), words, longest=_LONGEST)


def _attempt(data: bytes) -> str:
    global _raw, _begins
    first, rest = data[0] if data else 0, data[1:]
    number = (first & ~_RAW) % len(_QUESTIONS)
    ask, begins, _ = _QUESTIONS[number]
    _raw = bool(first & _RAW)
    _answers[:] = [rest] if _raw else _parted(rest)
    _begins = begins
    told = ask()
    if number < 6 and told is None:
        raise OracleViolated("it was answered, and nothing came back")
    return f"{number} {type(told).__name__} {len(told) if isinstance(told, list | dict | tuple) else bool(told)}"


def _parted(rest: bytes) -> list[bytes]:
    parts, at = [], 0
    while at + 2 <= len(rest) and len(parts) < 20:
        (size,) = struct.unpack_from(">H", rest, at)
        parts.append(rest[at + 2 : at + 2 + size])
        at += 2 + size
    return parts


def _peer(_address: Any, *_more: Any, **_options: Any) -> socket.socket:
    """A connection on which all answers have come already, and the broker has closed."""
    ours, theirs = socket.socketpair()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    theirs.setblocking(False)
    before, numbers = _BEGINNINGS[_begins]
    framed = zip(_answers, numbers, strict=False)
    parts = _answers if _raw else [struct.pack(">ii", len(each) + 4, number) + each for each, number in framed]
    said = before + b"".join(parts)
    with suppress(BlockingIOError):
        theirs.sendall(said)
    theirs.close()
    return _Ours(ours)  # type: ignore[return-value]


class _Ours:
    """A socket of a pair knows no TCP_NODELAY, and what is sent to a closed peer is an error of no interest."""

    def __init__(self, inner: socket.socket) -> None:
        self._inner = inner

    def setsockopt(self, *_arguments: Any) -> None:
        return None

    def sendmsg(self, pieces: Any) -> int:
        return sum(len(piece) for piece in pieces)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _skip(_seconds: float) -> None:
    return None


def _body(name: str, version: int, tagged: bool, random: Random) -> bytes:
    kind = load_message_class(name, version, "response")
    answer = made(kind, random)
    codes = {each.name: ErrorCode.none for each in fields(kind) if isinstance(getattr(answer, each.name), ErrorCode)}
    answer = replace(answer, **codes)
    return (b"\0" if tagged else b"") + _written(answer)


def _written(answer: Any) -> bytes:
    body = io.BytesIO()
    entity_writer(type(answer))(body, answer)
    return body.getvalue()


def _versions_answer(version: int) -> bytes:
    """A broker that knows everything, in all versions."""
    ranges = [struct.pack(">hhh", key, 0, 99) for key in range(90)]
    if version == 0:
        return struct.pack(">hi", 0, len(ranges)) + b"".join(ranges)
    return b"\0\0" + encode_uvarint(len(ranges) + 1) + b"".join(each + b"\0" for each in ranges) + b"\0\0\0\0\0"


_V4 = struct.pack(">ii", 4 + len(_versions_answer(4)), 1) + _versions_answer(4)
# how a connection begins: what a broker has answered before, and the correlation ids of all that follows
_BEGINNINGS: dict[str, tuple[bytes, Sequence[int]]] = {
    "contact": (b"", [1] * 20),
    "plain": (_V4, range(1, 100)),
    "greeting": (b"", range(1, 100)),
    "inquiry": (_V4, range(1, 100)),
    "login": (_V4, range(2, 100)),
}
