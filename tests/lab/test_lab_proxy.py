"""The fault proxy against a server that echoes: each fault does what its name says."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest

from watershed.lab.fault_proxy import HELD_CONNECTION, NO_FAULT, FaultProxy, ProxyFault


@pytest.fixture
def received() -> list[bytes]:
    return []


@pytest.fixture
def proxy(received):
    server = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            while piece := connection.recv(1 << 16):
                received.append(piece)
                connection.sendall(piece)

    def listen() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()

    threading.Thread(target=listen, daemon=True).start()
    made = FaultProxy(server.getsockname())
    try:
        yield made
    finally:
        made.close()
        server.close()


def client(proxy: FaultProxy, timeout: float = 60) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=timeout)


def exactly(sock: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        piece = sock.recv(size - len(found))
        assert piece, f"the connection ended after {len(found)} of {size} bytes"
        found += piece
    return found


def until_it_ends(sock: socket.socket) -> tuple[int, type[OSError] | None]:
    """How many bytes come, and what ends it (None: an orderly end)."""
    got = 0
    while True:
        try:
            piece = sock.recv(1 << 16)
        except OSError as error:
            return got, type(error)
        if not piece:
            return got, None
        got += len(piece)


def test_bytes_pass_unchanged_in_slices_too(proxy):
    sent = bytes(range(256)) * 2000
    proxy.down = ProxyFault(slice_bytes=997)
    with client(proxy) as sock:
        sock.sendall(sent)
        assert exactly(sock, len(sent)) == sent
    until = time.monotonic() + 60
    while proxy.passed != (passed := {"up": len(sent), "down": len(sent)}) and time.monotonic() < until:
        time.sleep(0.01)  # what has arrived is counted a moment later
    assert proxy.passed == passed


def test_latency_keeps_the_order(proxy):
    proxy.up = ProxyFault(latency_s=0.05, jitter_s=0.05)
    with client(proxy) as sock:
        began = time.monotonic()
        for number in range(50):
            sock.sendall(number.to_bytes(4, "big"))
            time.sleep(0.001)
        assert exactly(sock, 200) == b"".join(number.to_bytes(4, "big") for number in range(50))
        assert time.monotonic() > began


def test_a_held_way_keeps_what_was_sent(proxy, received):
    with client(proxy) as sock:
        sock.sendall(b"a")
        assert exactly(sock, 1) == b"a"
        proxy.up = HELD_CONNECTION
        sock.sendall(b"b")
        sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            sock.recv(1)
        assert received == [b"a"]
        proxy.up = NO_FAULT
        sock.settimeout(60)
        assert exactly(sock, 1) == b"b"


def test_a_dropped_client_has_sent_what_it_sent(proxy, received):
    """A request on a lost connection can still land."""
    with client(proxy) as sock:
        proxy.up = HELD_CONNECTION
        sock.sendall(b"late")
        time.sleep(1)
        assert proxy.drop_clients() == 1
        with pytest.raises(ConnectionResetError):
            sock.recv(1)
        proxy.up = NO_FAULT
        until = time.monotonic() + 180
        while received != [b"late"] and time.monotonic() < until:
            time.sleep(0.01)
        assert received == [b"late"]


def test_a_cut_loses_what_was_on_its_way(proxy, received):
    with client(proxy) as sock:
        proxy.up = HELD_CONNECTION
        sock.sendall(b"lost")
        time.sleep(1)
        assert proxy.cut() == 1
        proxy.up = NO_FAULT
        with pytest.raises(ConnectionResetError):
            sock.recv(1)
    time.sleep(0.2)
    assert received == []


def test_a_connection_is_reset_after_some_bytes(proxy):
    proxy.down = ProxyFault(cut_after=1000)
    with client(proxy) as sock:
        sock.sendall(b"x" * 5000)
        got, ended = until_it_ends(sock)
    assert ended is ConnectionResetError
    assert got <= 1000
    assert proxy.cuts == 1


def test_nobody_gets_in_while_it_refuses(proxy):
    proxy.refuse()
    with pytest.raises(OSError):
        client(proxy)
    proxy.accept()
    with client(proxy) as sock:
        sock.sendall(b"back")
        assert exactly(sock, 4) == b"back"


def test_bandwidth_is_what_it_says_at_most(proxy):
    proxy.up = ProxyFault(bytes_per_s=20_000)
    with client(proxy) as sock:
        sock.sendall(b"y" * 150_000)
        sock.settimeout(0.2)
        got, ended = until_it_ends(sock)
        assert ended is TimeoutError
        assert got < 150_000
