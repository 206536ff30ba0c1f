"""Frames over one TCP connection: length-prefixed requests out, length-prefixed answers in, in order."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from watershed.clusters.errors import ClusterError, ProtocolError, Unreachable

FramePiece = bytes | bytearray | memoryview

SENDING, _WAITING = "lost the connection while sending", "lost the connection while waiting for an answer"
FRAME_LENGTH = struct.Struct(">i")
MAX_BEFORE_LOGIN_BYTES = 1 << 20  # the answers to ApiVersions and to SASL are small
MAX_ANSWER_BYTES = 512 << 20  # a Fetch answers with one whole batch, however little was asked for
_SMALLEST_ANSWER = 4  # the correlation id
_STEP = 4 << 20  # memory for what was not asked for is taken as bytes arrive
_SLOWEST = 16 << 10  # bytes a second; who is slower is given up, and a link that is merely bad is not
_PIECES_A_CALL = 512  # below IOV_MAX (1024 on Linux)
_BUFFER = 4 << 20
_SMALL_MEMORY = 1 << 20  # to zero so many bytes takes 0.1 ms


def allocate_memory(length: int) -> memoryview:
    """So many bytes; what they hold does not matter. `bytearray` would write zeros into all of them while no other
    thread of the process may run: 1 to 10 ms for 16 MiB, and up to 70 ms where the processors are busy (decision
    0139)."""
    if length <= _SMALL_MEMORY:
        return memoryview(bytearray(length))
    import numpy as np  # not for commands that never read so much

    return np.empty(length, np.uint8).data


class ReceiveBuffer:
    """Memory that answers are received into, one after the other: views into an answer are valid until the next. New
    memory costs as much as receiving into it, because the system hands it out page by page, zeroed."""

    def __init__(self) -> None:
        self._memory = memoryview(bytearray())

    def of(self, length: int) -> memoryview:
        """That many bytes of it; what they hold does not matter."""
        if len(self._memory) < length:
            self._memory = allocate_memory(length + length // 4)
        return self._memory[:length]


class FrameTransport(Protocol):
    """Carries frames to one broker and back, in order: a `Transport`, or one that logs in again by itself."""

    address: str

    @property
    def buffered(self) -> bool:
        """Whether bytes have arrived that the socket does not show as readable."""
        ...

    def fileno(self) -> int:
        """Returns the socket's number, for poll."""
        ...

    def send(self, pieces: Sequence[FramePiece]) -> None:
        """Send one frame made of `pieces`. Raises Unreachable."""
        ...

    def receive(self, room: ReceiveBuffer | None = None, expected: int = 0) -> memoryview:
        """Returns the next frame; see `Transport.receive`. Raises Unreachable, ProtocolError."""
        ...

    def patient_for(self, seconds: float) -> None:
        """Wait at most so long for bytes from now on."""
        ...

    def close(self) -> None:
        """Close the socket; twice is once."""
        ...

    def ended(self) -> bool:
        """Whether the broker has closed the connection; never waits."""
        ...


class Transport:
    """A blocking connection without TLS. Every failure becomes Unreachable, or ProtocolError for an answer of an
    impossible length, and leaves the connection closed. Not thread-safe.

    largest: how many bytes an answer may have. Small until the login has succeeded, then `MAX_ANSWER_BYTES`.
    """

    def __init__(self, alias: str, host: str, port: int, *, timeout_s: float, protocol: str = "PLAINTEXT") -> None:
        self.alias, self.address, self._protocol = alias, f"{host}:{port}", protocol
        self.largest = MAX_BEFORE_LOGIN_BYTES
        self._socket: socket.socket
        try:
            self._socket = socket.create_connection((host, port), timeout=min(timeout_s, 10.0))
        except OSError as error:
            raise self._lost("cannot connect", error) from error
        self._socket.settimeout(timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)

    def send(self, pieces: Sequence[FramePiece]) -> None:
        """Send one frame made of `pieces`."""
        views = [memoryview(FRAME_LENGTH.pack(sum(map(len, pieces)))), *(memoryview(piece) for piece in pieces)]
        at = 0
        try:
            while at < len(views):
                sent = self._socket.sendmsg(views[at : at + _PIECES_A_CALL])
                while at < len(views) and sent >= len(views[at]):
                    sent -= len(views[at])
                    at += 1
                if sent:
                    views[at] = views[at][sent:]
        except OSError as error:
            self.close()
            raise self._lost(SENDING, error) from error

    def receive(self, room: ReceiveBuffer | None = None, expected: int = 0) -> memoryview:
        """The next frame, in `room` or else in a buffer of its own: views into that stay valid.

        expected: bytes that were asked for. For so many the memory is there at once; for more it grows as they arrive,
        also where there is room. Who sends slower than 16 KiB a second, measured over the time that we are patient for,
        is given up."""
        patience = self._socket.gettimeout()
        try:
            (length,) = FRAME_LENGTH.unpack(self._filled(memoryview(bytearray(FRAME_LENGTH.size)), patience))
            if not _SMALLEST_ANSWER <= length <= self.largest:
                raise self._impossible(length)
            if length <= expected or length <= _STEP:
                return self._filled(allocate_memory(length) if room is None else room.of(length), patience)
            return self._grown(length, patience)
        except OSError as error:
            self.close()
            raise self._lost(_WAITING, error) from error

    def patient_for(self, seconds: float) -> None:
        """How long to wait for bytes from now on, before the connection counts as lost."""
        if self._socket.gettimeout() != seconds:
            self._socket.settimeout(seconds)

    def close(self) -> None:
        """Close the socket; twice is once."""
        self._socket.close()

    def ended(self) -> bool:
        """Whether the broker has closed the connection (or says what nobody asked for). Never waits; ask only while no
        answer is awaited. A connection that is idle for `connections.max.idle.ms` is closed by the broker."""
        before = self._socket.gettimeout()
        try:
            self._socket.settimeout(0)
            self._socket.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):  # the latter also after a session ticket (RFC 8446, 4.6.1)
            return False
        except OSError:
            return True
        finally:
            with suppress(OSError):
                self._socket.settimeout(before)
        return True

    def fileno(self) -> int:
        """Returns the socket's number, for poll; -1 once it is closed."""
        return self._socket.fileno()

    @property
    def buffered(self) -> bool:
        """Whether bytes have arrived that the socket does not show as readable."""
        return False

    def _filled(self, view: memoryview, patience: float | None) -> memoryview:
        """`view`, full. Each `patience` seconds have to bring what the slowest sender sends in them."""
        got, length, slow = 0, len(view), False
        span = patience or 0.0
        due, wanted = time.monotonic() + span, int(span * _SLOWEST)
        while got < length:
            count = self._socket.recv_into(view[got:])
            if count == 0:
                raise ConnectionResetError("the broker closed the connection")
            got += count
            if patience is None or got >= length:
                continue
            left = due - time.monotonic()
            if got >= wanted:
                due, wanted = due - left + span, got + int(span * _SLOWEST)
            elif left <= 0:
                raise TimeoutError(f"{got} of {length} bytes have come, too slowly")
            elif left < span / 2:  # only where it is slow: a call to the system each
                self._socket.settimeout(left)
                slow = True
                continue
            if slow:
                self._socket.settimeout(patience)
                slow = False
        if slow:
            self._socket.settimeout(patience)
        return view

    def _grown(self, length: int, patience: float | None) -> memoryview:
        """So many bytes, in memory that is added by no more than what has arrived, or a step."""
        memory = bytearray()
        while len(memory) < length:
            at = len(memory)
            memory += bytes(min(length - at, max(at, _STEP)))
            with memoryview(memory) as whole, whole[at:] as part:
                self._filled(part, patience)
        return memoryview(memory)

    def _impossible(self, length: int) -> ClusterError:
        self.close()
        if length > self.largest:  # as where a listener speaks TLS or HTTP
            why = f"an answer of {length} bytes is not Kafka's protocol (at most {self.largest} here)"
            return Unreachable.at(self.alias, [self.address], why, protocol=self._protocol)
        return ProtocolError(
            f"cluster {self.alias}: {self.address} announced an answer of {length} bytes, which is not Kafka's "
            f"protocol. Check that a broker listens there and that it speaks {self._protocol}.",
            alias=self.alias,
        )

    def _lost(self, what: str, error: OSError) -> ClusterError:
        return Unreachable.at(self.alias, [self.address], f"{what}: {error}", protocol=self._protocol)
