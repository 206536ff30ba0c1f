"""Frames of a peer that is not a broker, or not a friendly one: lengths, memory, time."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from watershed.clusters.errors import ClusterError, ProtocolError, Unreachable
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire import transport
from watershed.clusters.wire.connection import Connection
from watershed.clusters.wire.secured_transport import open_transport
from watershed.clusters.wire.transport import (
    MAX_ANSWER_BYTES,
    MAX_BEFORE_LOGIN_BYTES,
    ReceiveBuffer,
    Transport,
    allocate_memory,
)

MIB = 1 << 20


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        yield server


@pytest.fixture
def pair(listening: socket.socket) -> Iterator[tuple[Transport, socket.socket]]:
    ours = Transport("cloud", *listening.getsockname(), timeout_s=10)
    theirs, _ = listening.accept()
    with theirs:
        yield ours, theirs
    ours.close()


def served(listening: socket.socket, say: Callable[[socket.socket], None]) -> threading.Thread:
    """One peer that says something to whoever connects."""

    def serve() -> None:
        peer, _ = listening.accept()
        with peer:
            say(peer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("length", [0, 1, 3, -1, -(2**31), MAX_ANSWER_BYTES + 1, 2**31 - 1])
def test_an_impossible_length_is_named_with_the_address(pair: tuple[Transport, socket.socket], length: int) -> None:
    ours, theirs = pair
    ours.largest = MAX_ANSWER_BYTES
    theirs.sendall(struct.pack(">i", length) + b"abc")
    with pytest.raises((ProtocolError, Unreachable), match=rf"an answer of {length} bytes") as refused:
        ours.receive()
    assert ours.address in str(refused.value)
    assert ours.fileno() == -1, "a connection that lost its frames is of no use"


@pytest.mark.parametrize("length", [0, 3])
def test_a_short_answer_to_a_question_is_no_struct_error(listening: socket.socket, length: int) -> None:
    peer = served(listening, lambda peer: peer.sendall(struct.pack(">i", length) + b"abc"[:length]))
    with pytest.raises(ProtocolError):
        Connection(ConnectionSettings("cloud", ()), listening.getsockname(), timeout_s=10)
    peer.join(30)


def test_before_a_login_answers_are_small(listening: socket.socket) -> None:
    peer = served(listening, lambda peer: peer.sendall(struct.pack(">i", 512 * MIB)))
    settings = ConnectionSettings(
        "cloud", (), protocol="SASL_PLAINTEXT", mechanism="PLAIN", username="ann", password="x"
    )
    with pytest.raises(Unreachable, match=f"at most {MAX_BEFORE_LOGIN_BYTES} here"):
        open_transport(settings, listening.getsockname(), timeout_s=10)
    peer.join(30)


@pytest.mark.parametrize("room", [None, ReceiveBuffer()])
def test_memory_is_taken_as_bytes_arrive(pair: tuple[Transport, socket.socket], room: ReceiveBuffer | None) -> None:
    ours, theirs = pair
    ours.largest = MAX_ANSWER_BYTES
    theirs.sendall(struct.pack(">i", 512 * MIB) + b"abcd")
    theirs.shutdown(socket.SHUT_WR)
    tracemalloc.start()
    try:
        with pytest.raises(Unreachable):
            ours.receive(room)
        assert tracemalloc.get_traced_memory()[1] < 16 * MIB
    finally:
        tracemalloc.stop()


def test_memory_for_a_large_answer_is_not_written_before_the_answer_comes() -> None:
    def read_resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    allocate_memory(2 * MIB)  # numpy is there
    before = read_resident_bytes()
    memory = allocate_memory(256 * MIB)
    assert (len(memory), memory.format, memory.readonly) == (256 * MIB, "B", False)
    assert read_resident_bytes() - before < 16 * MIB


@pytest.mark.parametrize("expected", [0, 32 * MIB])
def test_a_large_answer_arrives_whole(pair: tuple[Transport, socket.socket], expected: int) -> None:
    """Whether it was expected (in memory that is there at once) or not."""
    ours, theirs = pair
    ours.largest = MAX_ANSWER_BYTES
    answer = bytes(range(256)) * (20 * MIB // 256) + b"end"
    sender = threading.Thread(target=theirs.sendall, args=(struct.pack(">i", len(answer)) + answer,))
    sender.start()
    assert ours.receive(ReceiveBuffer(), expected) == answer
    sender.join()


def test_what_was_asked_for_is_received_into_the_room(pair: tuple[Transport, socket.socket]) -> None:
    ours, theirs = pair
    room = ReceiveBuffer()
    memory = room.of(5 * MIB)
    ours.largest = MAX_ANSWER_BYTES
    sender = threading.Thread(target=theirs.sendall, args=(struct.pack(">i", 5 * MIB) + b"x" * (5 * MIB),))
    sender.start()
    answer = ours.receive(room, 16 * MIB)
    sender.join()
    memory[0] = 121
    assert answer[0] == 121, "another copy of the records"


@pytest.mark.parametrize("first", [b"", struct.pack(">i", 1000)])
def test_a_byte_now_and_then_does_not_hold_a_connection(pair: tuple[Transport, socket.socket], first: bytes) -> None:
    """In the length of an answer, or in what follows. The bytes come more often than the connection is patient for."""
    ours, theirs = pair
    ours.patient_for(0.5)
    done = threading.Event()

    def drip() -> None:
        theirs.sendall(first)
        while not done.wait(0.2):
            theirs.sendall(b"\0")

    dripping = threading.Thread(target=drip)
    dripping.start()
    began = time.monotonic()
    failure: ClusterError | None = None
    try:
        ours.receive()
    except ClusterError as error:
        failure = error
    finally:
        done.set()
        dripping.join()
    if first:
        assert isinstance(failure, Unreachable)
    assert failure is not None, "an answer of 0 bytes is none"
    assert time.monotonic() - began < 20, "1,000 bytes would have taken 200 s"


def test_a_link_that_is_slow_but_steady_is_kept(
    pair: tuple[Transport, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than the patience of one look, at no less than the slowest speed in each."""
    ours, theirs = pair
    monkeypatch.setattr(transport, "_SLOWEST", 10)
    ours.patient_for(2)

    def send() -> None:
        theirs.sendall(struct.pack(">i", 400))
        for _ in range(8):
            theirs.sendall(b"x" * 50)
            time.sleep(0.4)

    sender = threading.Thread(target=send)
    sender.start()
    assert len(ours.receive()) == 400
    sender.join()
