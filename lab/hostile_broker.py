"""A listener on this machine that answers as a broker would, or as none ever does."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

API_VERSIONS, _METADATA, _SASL_HANDSHAKE, _SASL_AUTHENTICATE = 18, 3, 17, 36
BrokerAnswer = Callable[[int, int], bytes | None]  # api key, version → body; None closes the connection
# An ApiVersions answer with a null array: with its length and its correlation id 28 bytes, at which librdkafka aborts.
ABORTING_API_VERSIONS: Final = b"\0\0" + b"\0" + b"\0" * 17

_OURS = b"\x0awatershed\x021\x00"  # how `clusters.broker_precheck` says who asks


class HostileBroker:
    """Answers each connection's requests, counts the connections, and keeps what it is sent (`heard`). two_faced:
    rightly to Watershed's own reader, and to librdkafka as aborts it."""

    def __init__(self, answer: BrokerAnswer, *, two_faced: bool = False) -> None:
        self.answer, self.connections, self.heard, self.two_faced = answer, 0, b"", two_faced
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self.address = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Stops listening; connections that are open end with their threads."""
        self._server.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while head := stream.read(4):
                request = stream.read(struct.unpack(">i", head)[0])
                self.heard += request
                key, version, correlation = struct.unpack_from(">hhi", request)
                body = self.answer(key, version)
                if self.two_faced and key == API_VERSIONS and _OURS not in request:
                    body = ABORTING_API_VERSIONS
                if body is None:
                    return
                try:
                    connection.sendall(struct.pack(">ii", 4 + len(body), correlation) + body)
                except OSError:  # who has heard enough has gone
                    return


def build_friendly_answer(advertised: Callable[[], list[int]], highest: int = 8) -> BrokerAnswer:
    """A broker that knows ApiVersions and Metadata and advertises these ports of 127.0.0.1."""

    def answer(key: int, version: int) -> bytes | None:
        if key == API_VERSIONS:
            ranges = ((API_VERSIONS, 0, 3), (_METADATA, 0, highest))
            return b"\0\0\3" + b"".join(struct.pack(">hhh", *each) + b"\0" for each in ranges) + b"\0\0\0\0\0"
        brokers = [
            struct.pack(">ih9si", number, 9, b"127.0.0.1", port) + b"\xff\xff"
            for number, port in enumerate(advertised())
        ]
        throttle = b"\0\0\0\0" if version >= 3 else b""
        return throttle + struct.pack(">i", len(brokers)) + b"".join(brokers) + b"\xff\xff\0\0\0\0\0\0\0\0"

    return answer


def answer_with_sasl_plain(key: int, version: int) -> bytes | None:
    """A broker that asks for SASL PLAIN, and hangs up with what it was told."""
    if key == API_VERSIONS:
        ranges = ((API_VERSIONS, 0, 3), (_METADATA, 0, 8), (_SASL_HANDSHAKE, 0, 1), (_SASL_AUTHENTICATE, 0, 1))
        if version >= 3:
            return (
                b"\0\0"
                + bytes([len(ranges) + 1])
                + b"".join(struct.pack(">hhh", *r) + b"\0" for r in ranges)
                + bytes(5)
            )
        rows = b"".join(struct.pack(">hhh", *each) for each in ranges)
        return b"\0\0" + struct.pack(">i", len(ranges)) + rows + (bytes(4) if version else b"")
    if key == _SASL_HANDSHAKE:
        return b"\0\0" + struct.pack(">i", 1) + b"\0\5PLAIN"
    return None
