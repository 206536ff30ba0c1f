"""The question that brokers of every release answer, before anything else: which requests they know (version 0)."""

from __future__ import annotations

import socket
import struct

_REQUEST = struct.pack(">hhih", 18, 0, 1, -1)  # ApiVersions, version, correlation id, no client id


def answers_api_versions(address: str, seconds: float = 2.0) -> bool:
    """Whether a broker listens there and answers without an error."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=seconds) as asking, asking.makefile("rb") as answer:
            asking.sendall(struct.pack(">i", len(_REQUEST)) + _REQUEST)
            head = answer.read(10)
    except OSError:
        return False
    return len(head) == 10 and struct.unpack(">iih", head)[1:] == (1, 0)
