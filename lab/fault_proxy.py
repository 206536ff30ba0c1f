"""A TCP proxy in front of a lab broker that injects network faults.

`up` is the direction to the broker, `down` the direction back. Each direction has one `ProxyFault`, which may change at
any time and applies to open connections, too. Kafka clients connect to advertised addresses, so the broker has to
advertise the proxy's port: `lab.proxied_clusters` does that. docs/decisions/0016-fault-proxy.md says why it is our own.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

_HOST = "127.0.0.1"
_CHUNK = 64 << 10
_HOLDS = 1 << 20  # bytes that one direction of a connection buffers before it stops reading
_TICK_S = 0.004
_PACKET_BYTES = 1_460
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close sends RST and discards unsent data


@dataclass(frozen=True, slots=True)
class ProxyFault:
    """The fault of one direction.

    latency_s ± jitter_s: delay of each piece of data; the order stays. late_share: of the pieces, which come late_s
    later, as if they had been lost and sent again. bytes_per_s: bandwidth of a connection. wire_bytes_per_s: of all
    connections together.
    slice_bytes: the largest piece that is written at once. held: nothing passes, and the connection stays open
    (half-open); what was sent waits and passes later. cut_after: the connection is reset when so many bytes have passed
    since this fault was set.
    """

    latency_s: float = 0.0
    jitter_s: float = 0.0
    late_share: float = 0.0
    late_s: float = 0.0
    bytes_per_s: float | None = None
    wire_bytes_per_s: float | None = None
    slice_bytes: int | None = None
    held: bool = False
    cut_after: int | None = None


NO_FAULT = ProxyFault()
HELD_CONNECTION = ProxyFault(held=True)


class FaultProxy:
    """Listens from the start on `port` of 127.0.0.1 (0: any free one). It connects each client to `broker`."""

    def __init__(self, broker: tuple[str, int] | None = None, port: int = 0) -> None:
        self.broker = broker
        self.up: ProxyFault = NO_FAULT
        self.down: ProxyFault = NO_FAULT
        self.port = port
        self.connections = 0  # accepted so far
        self.cuts = 0  # connections reset so far, by any method
        self.passed = {"up": 0, "down": 0}  # bytes
        self.free_at = {"up": 0.0, "down": 0.0}  # when the wire is free again, on the proxy's own clock
        self._open: set[_Connection] = set()
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self.accept()

    @property
    def address(self) -> str:
        """`host:port` that clients connect to."""
        return f"{_HOST}:{self.port}"

    def accept(self) -> None:
        """Take connections (again)."""
        self._do(self._accept())

    def refuse(self) -> None:
        """Refuses new connections and resets open ones."""
        self._do(self._refuse())

    def cut(self) -> int:
        """Resets every connection on both sides; data in transit is lost. Returns the number of connections."""
        return int(self._do(self._cut()))

    def drop_clients(self) -> int:
        """Resets only the clients' sides. What they sent still reaches the broker, once the fault of `up` allows."""
        return int(self._do(self._drop_clients()))

    def heal(self) -> None:
        """Removes all faults in both directions and accepts connections again."""
        self.up = self.down = NO_FAULT
        self.accept()

    def close(self) -> None:
        """Ends every connection, the listener and the proxy's thread."""
        self._do(self._refuse())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def fault(self, way: str) -> ProxyFault:
        """The fault of one direction: `up` is client to broker, everything else broker to client."""
        return self.up if way == "up" else self.down

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _accept(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._connected, _HOST, self.port, backlog=256, limit=_CHUNK)
            self.port = self._server.sockets[0].getsockname()[1]

    async def _refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._cut()

    async def _cut(self) -> int:
        cut = list(self._open)
        for connection in cut:
            connection.cut()
        return len(cut)

    async def _drop_clients(self) -> int:
        dropped = list(self._open)
        for connection in dropped:
            _reset(connection.client)
            self.cuts += 1
        return len(dropped)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.broker is None:
            _reset(writer)
            return
        try:
            at_broker, to_broker = await asyncio.open_connection(*self.broker, limit=_CHUNK)
        except OSError:
            _reset(writer)
            return
        connection = _Connection(self, writer, to_broker)
        self._open.add(connection)
        try:
            await asyncio.gather(
                _Way(connection, "up", reader, to_broker).run(), _Way(connection, "down", at_broker, writer).run()
            )
        finally:
            self._open.discard(connection)
            for each in (writer, to_broker):
                with contextlib.suppress(OSError, RuntimeError):
                    each.close()


class _Connection:
    def __init__(self, proxy: FaultProxy, client: asyncio.StreamWriter, broker: asyncio.StreamWriter) -> None:
        self.proxy, self.client, self.broker = proxy, client, broker
        self.ended = False

    def cut(self) -> None:
        if not self.ended:
            self.ended = True
            self.proxy.cuts += 1
            _reset(self.client)
            _reset(self.broker)


class _Way:
    """One direction of one connection. One task reads; another task writes when the fault allows it."""

    def __init__(
        self, connection: _Connection, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._connection, self._name, self._reader, self._writer = connection, name, reader, writer
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._holds = 0
        self._at_end = False
        self._free_at = 0.0
        self._chance = random.Random()  # noqa: S311  jitter needs no secure randomness
        self._counted: tuple[ProxyFault | None, int] = (None, 0)

    @property
    def _fault(self) -> ProxyFault:
        return self._connection.proxy.fault(self._name)

    @property
    def _most_held(self) -> int:
        """Bytes; what a wire holds by itself does not keep the sender from sending."""
        fault = self._fault
        return _HOLDS + int(2 * fault.latency_s * (fault.wire_bytes_per_s or fault.bytes_per_s or 0))

    async def run(self) -> None:
        await asyncio.gather(self._read(), self._write())

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while not self._connection.ended:
                while self._holds >= self._most_held and not self._connection.ended:
                    await asyncio.sleep(_TICK_S)
                piece = await self._reader.read(_CHUNK)
                if not piece:
                    break
                fault = self._fault
                late = max(0.0, fault.latency_s + self._chance.uniform(-fault.jitter_s, fault.jitter_s))
                if self._chance.random() > (1 - fault.late_share) ** -(-len(piece) // _PACKET_BYTES):
                    late += fault.late_s
                due = max(loop.time() + late, self._waiting[-1][0] if self._waiting else 0.0)
                self._waiting.append((due, piece))
                self._holds += len(piece)
        self._at_end = True

    async def _write(self) -> None:
        with contextlib.suppress(OSError):
            while not self._connection.ended:
                if self._waiting:
                    due, piece = self._waiting[0]
                    await self._until(due)
                    await self._pass_on(piece)
                    self._waiting.popleft()
                    self._holds -= len(piece)
                elif self._at_end:
                    break
                else:
                    await asyncio.sleep(_TICK_S / 4)
        # The other side must learn of the end too.
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.close()

    async def _until(self, due: float) -> None:
        loop = asyncio.get_running_loop()
        while not self._connection.ended and (self._fault.held or loop.time() < due):
            await asyncio.sleep(_TICK_S)

    async def _pass_on(self, piece: bytes) -> None:
        loop = asyncio.get_running_loop()
        at = 0
        while at < len(piece) and not self._connection.ended:
            fault = self._fault
            step = min(len(piece) - at, fault.slice_bytes or _CHUNK)
            if fault.bytes_per_s is not None:
                await asyncio.sleep(max(0.0, self._free_at - loop.time()))
                self._free_at = max(self._free_at, loop.time()) + step / fault.bytes_per_s
            if fault.wire_bytes_per_s is not None:
                wire = self._connection.proxy.free_at
                begins = wire[self._name] = max(wire[self._name], loop.time())
                wire[self._name] += step / fault.wire_bytes_per_s
                await asyncio.sleep(max(0.0, begins - loop.time()))
            step = self._until_cut(fault, step)
            self._writer.write(piece[at : at + step])
            await self._writer.drain()
            self._connection.proxy.passed[self._name] += step
            at += step
            if fault.cut_after is not None and self._counted[1] >= fault.cut_after:
                self._connection.cut()

    def _until_cut(self, fault: ProxyFault, step: int) -> int:
        """How much of `step` may pass before the cut."""
        if fault.cut_after is None:
            return step
        before = self._counted[1] if self._counted[0] is fault else 0
        step = min(step, max(fault.cut_after - before, 1))
        self._counted = (fault, before + step)
        return step


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
