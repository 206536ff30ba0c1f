"""A proxy in front of a lab broker that understands requests: it hides some, as a vendor's server lacks them, and keeps
Produce requests back, so that they reach the broker long after whoever sent them has gone.

A client that sends a hidden request all the same loses its connection, as with a broker that does not know it.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import uuid
from collections.abc import Collection
from typing import Final

PRODUCE, _API_VERSIONS = 0, 18
# What a server without idempotent producers and transactions lacks: InitProducerId to TxnOffsetCommit,
# DescribeProducers, DescribeTransactions, ListTransactions.
IDEMPOTENCE_REQUESTS: Final = frozenset({22, 24, 25, 26, 27, 28, 61, 65, 66})
_FLEXIBLE_ANSWER = 3  # from this version on, an ApiVersions answer is written in compact form
_RANGE = struct.Struct(">hhh")  # api key, lowest, highest version
_HEAD = struct.Struct(">hhi")  # api key, version, correlation id


class RequestProxy:
    """Listens on `port` of 127.0.0.1 and connects each client to `broker`. hidden: api keys."""

    def __init__(self, broker: tuple[str, int], port: int, hidden: Collection[int] = IDEMPOTENCE_REQUESTS) -> None:
        self.broker, self.hidden = broker, frozenset(hidden)
        self.refused = 0  # hidden requests that were sent all the same
        self._holding = b""
        self._held: list[bytes] = []
        self._lock = threading.Condition()
        self._server = socket.create_server(("127.0.0.1", port), backlog=64)
        self.address = f"127.0.0.1:{port}"
        threading.Thread(target=self._serve, name="request-proxy", daemon=True).start()

    def hold_produce(self, topic: uuid.UUID) -> None:
        """Keep the next Produce request that names a topic by this id (version 13)."""
        with self._lock:
            self._holding = topic.bytes

    def wait_held(self, timeout_s: float = 60.0) -> None:
        """Until a request is kept. Raises TimeoutError."""
        with self._lock:
            if not self._lock.wait_for(lambda: bool(self._held), timeout_s):
                raise TimeoutError("no Produce request came that was to be kept")

    def release(self) -> int:
        """Hand all requests that are kept over to the broker, wait for its answers, and return how many there were."""
        with self._lock:
            held, self._held = self._held, []
        for frame in held:
            with socket.create_connection(self.broker, timeout=30) as late:
                late.sendall(frame)
                if _read_frame(late) is None:
                    raise ConnectionError("the broker did not answer a request that was kept")
        return len(held)

    def close(self) -> None:
        """Stops listening; connections end with their clients."""
        self._server.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        try:
            broker = socket.create_connection(self.broker, timeout=10)
        except OSError:
            client.close()
            return
        broker.settimeout(None)
        asked: dict[int, int] = {}  # correlation id → version, of ApiVersions requests
        threading.Thread(target=self._answer, args=(broker, client, asked), daemon=True).start()
        with contextlib.suppress(OSError):
            while (frame := _read_frame(client)) is not None:
                key, version, correlation = _HEAD.unpack_from(frame, 4)
                if key in self.hidden:
                    self.refused += 1
                    break
                if key == _API_VERSIONS:
                    asked[correlation] = version
                if not self._keeps(key, frame):
                    broker.sendall(frame)
        _end(client, broker)

    def _answer(self, broker: socket.socket, client: socket.socket, asked: dict[int, int]) -> None:
        with contextlib.suppress(OSError):
            while (frame := _read_frame(broker)) is not None:
                (correlation,) = struct.unpack_from(">i", frame, 4)
                version = asked.pop(correlation, None)
                if version is not None:
                    body = hide_requests(frame[8:], version, self.hidden)
                    frame = struct.pack(">ii", 4 + len(body), correlation) + body
                client.sendall(frame)
        _end(client, broker)

    def _keeps(self, key: int, frame: bytes) -> bool:
        with self._lock:
            if key != PRODUCE or not self._holding or self._holding not in frame:
                return False
            self._holding = b""
            self._held.append(frame)
            self._lock.notify_all()
            return True


def hide_requests(body: bytes, version: int, hidden: Collection[int]) -> bytes:
    """An ApiVersions answer of this version, without some api keys."""
    (error,) = struct.unpack_from(">h", body)
    flexible = version >= _FLEXIBLE_ANSWER and error == 0
    count, at = _read_count(body, 2) if flexible else (struct.unpack_from(">i", body, 2)[0], 6)
    size = _RANGE.size + flexible  # an empty tag buffer behind each
    entries = [body[at + number * size : at + (number + 1) * size] for number in range(count)]
    kept = [entry for entry in entries if _RANGE.unpack_from(entry)[0] not in hidden]
    head = _write_count(len(kept)) if flexible else struct.pack(">i", len(kept))
    return body[:2] + head + b"".join(kept) + body[at + count * size :]


def _read_count(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if not byte & 0x80:
            return value - 1, at


def _write_count(count: int) -> bytes:
    value, found = count + 1, bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _read_frame(stream: socket.socket) -> bytes | None:
    """One request or answer with its length in front; None at the end."""
    head = _read_exactly(stream, 4)
    rest = None if head is None else _read_exactly(stream, struct.unpack(">i", head)[0])
    return None if head is None or rest is None else head + rest


def _read_exactly(stream: socket.socket, size: int) -> bytes | None:
    found = bytearray()
    while len(found) < size:
        piece = stream.recv(min(1 << 20, size - len(found)))
        if not piece:
            return None
        found += piece
    return bytes(found)


def _end(*streams: socket.socket) -> None:
    for stream in streams:
        with contextlib.suppress(OSError):
            stream.shutdown(socket.SHUT_RDWR)
        stream.close()
