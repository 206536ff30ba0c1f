"""The first word with a broker, before librdkafka has one.

librdkafka 2.16 ends the process when an answer to ApiVersions holds a null array
(docs/upstream/librdkafka-apiversions.md). So every address that a client will be given, and every one that those
advertise, is first asked by a reader of our own, whose lengths are bounded by the bytes that are there. Only an answer
that no broker gives is refused: who does not answer, or does not let us in, is left to librdkafka, which says so.

Without a login a broker tells nobody which addresses it advertises. A second login for each client would count against
lockouts and token endpoints; with SASL only the bootstrap addresses are asked therefore (decision 0057).
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterable
from contextlib import suppress

from watershed.clusters.connection_parameters import ConnectionParameters
from watershed.clusters.errors import ClusterError, ProtocolError
from watershed.clusters.varints import decode_uvarint
from watershed.clusters.wire.transport import Transport
from watershed.clusters.wire.versioned_fields import skip_tagged_fields

_API_VERSIONS, _METADATA = 18, 3
_HEADER = struct.Struct(">hhih")  # api key, api version, correlation id, length of the client id
_CLIENT_ID = b"watershed"
_SOFTWARE = b"\x0awatershed\x021\x00"  # ApiVersions v3: name, version, no tags
_RANGE = struct.Struct(">hhh")  # api key, lowest and highest version
_UNSUPPORTED = 35  # answered in version 0 (KIP-511)
_MOST_REQUESTS, _MOST_BROKERS = 1000, 100_000
_NEWEST_METADATA = 8  # the last that is not flexible; what brokers it names has not changed since
_PATIENCE_S = 2.0
_GRACE_S = 0.5  # for the others, when one has answered
_GOOD_S, _SILENT_S = 300.0, 30.0  # how long an answer, or none, is remembered

_Address = tuple[str, int]
_Known = tuple[float, tuple[_Address, ...], ProtocolError | None]
_known: dict[tuple[str, _Address], _Known] = {}


def require_kafka_brokers(settings: ConnectionParameters) -> None:
    """Raises ProtocolError, which names the address, when one of the cluster's brokers answers as none does. Takes as
    long as the first of them that answers, and half a second; two seconds when none does."""
    with suppress(ValueError):  # an address that is none: librdkafka says so
        bootstrap = settings.bootstrap_addresses
        advertised = _asked(settings, bootstrap)
        _asked(settings, advertised - set(bootstrap))


def _asked(settings: ConnectionParameters, addresses: Iterable[_Address]) -> set[_Address]:
    """What these brokers advertise, as far as they say it in time."""
    now, wanted = time.monotonic(), [(settings.protocol, address) for address in addresses]
    fresh = [each for each in wanted if each not in _known or _known[each][0] <= now]
    answered = threading.Event()
    threads = [threading.Thread(target=_ask, args=(settings, each, answered), daemon=True) for each in fresh]
    for thread in threads:
        thread.start()
    while any(each.is_alive() for each in threads) and time.monotonic() - now < _PATIENCE_S:
        if answered.wait(0.01):  # or all have failed
            break
    until = time.monotonic() + _GRACE_S
    for thread in threads:
        thread.join(max(until - time.monotonic(), 0.0))
    found: set[_Address] = set()
    for each in wanted:
        _, advertised, hostile = _known.get(each, (0.0, (), None))
        if hostile is not None:
            raise ProtocolError(str(hostile), alias=settings.alias)
        found |= set(advertised)
    return found


def _ask(settings: ConnectionParameters, place: tuple[str, _Address], answered: threading.Event) -> None:
    """Ask one broker, and remember what came of it. The event is set by who took the connection."""
    address = place[1]
    try:
        if settings.protocol.endswith("SSL"):
            from watershed.clusters.wire.tls import TlsTransport

            transport: Transport = TlsTransport(settings, *address, timeout_s=_PATIENCE_S)
        else:
            transport = Transport(settings.alias, *address, timeout_s=_PATIENCE_S, protocol=settings.protocol)
    except ClusterError:
        _known[place] = (time.monotonic() + _SILENT_S, (), None)
        return
    advertised: tuple[_Address, ...] = ()
    try:
        versions = _versions(transport)
        oldest, newest = versions.get(_METADATA, (1, 0))
        newest = min(newest, _NEWEST_METADATA)
        if not settings.protocol.startswith("SASL_") and newest >= max(oldest, 1):
            advertised = _advertised(transport, newest)
    except ClusterError as error:
        hostile = error if isinstance(error, ProtocolError) else None
        _known[place] = (time.monotonic() + _SILENT_S, (), hostile)
    except (struct.error, IndexError, OverflowError, ValueError) as problem:
        text = (
            f"cluster {settings.alias}: {transport.address} gives an answer that no broker gives ({problem}). Nothing "
            f"more was asked of it. Check clusters.{settings.alias}.bootstrap, and what listens at that address."
        )
        _known[place] = (time.monotonic() + _SILENT_S, (), ProtocolError(text, alias=settings.alias))
    else:
        _known[place] = (time.monotonic() + _GOOD_S, advertised, None)
    finally:
        transport.close()
    answered.set()


def _versions(transport: Transport) -> dict[int, tuple[int, int]]:
    """Api key → (lowest, highest) version, asked as librdkafka asks it."""
    body = _exchanged(transport, _API_VERSIONS, 3, b"\x00" + _SOFTWARE)
    (error,) = struct.unpack_from(">h", body, 0)
    if error == _UNSUPPORTED:
        body = _exchanged(transport, _API_VERSIONS, 0, b"")
        (error,) = struct.unpack_from(">h", body, 0)
        (count,) = struct.unpack_from(">i", body, 2)
        return dict(_ranges(body, 6, count, tags=False)) if count > 0 or not error else {}
    length, at = decode_uvarint(body, 2)
    return dict(_ranges(body, at, length - 1, tags=True)) if length > 1 or not error else {}


def _ranges(body: memoryview, at: int, count: int, *, tags: bool) -> Iterable[tuple[int, tuple[int, int]]]:
    if not 0 < count <= min(_MOST_REQUESTS, (len(body) - at) // _RANGE.size):
        raise ValueError(f"{count} requests announced in an answer of {len(body)} bytes to ApiVersions")
    for _ in range(count):
        key, lowest, highest = _RANGE.unpack_from(body, at)
        at += _RANGE.size
        at = skip_tagged_fields(body, at) if tags else at
        yield key, (lowest, highest)


def _advertised(transport: Transport, version: int) -> tuple[_Address, ...]:
    """The cluster's brokers; no topic is asked for, and none made."""
    asked = struct.pack(">i", 0) + b"\x00" * ((version >= 4) + 2 * (version >= 8))
    body = _exchanged(transport, _METADATA, version, asked)
    at = 4 if version >= 3 else 0
    (count,) = struct.unpack_from(">i", body, at)
    at += 4
    if not 0 <= count <= min(_MOST_BROKERS, len(body) // 12):  # the smallest: id, two lengths, port
        raise ValueError(f"{count} brokers announced in an answer of {len(body)} bytes to Metadata")
    found = []
    for _ in range(count):
        host, at = _text(body, at + 4)
        (port,) = struct.unpack_from(">i", body, at)
        _, at = _text(body, at + 4)
        found.append((host, int(port)))
    return tuple(found)


def _text(body: memoryview, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", body, at)
    at, end = at + 2, at + 2 + max(length, 0)
    if end > len(body):
        raise ValueError(f"a text of {length} bytes announced in an answer of {len(body)} bytes to Metadata")
    return str(body[at:end], "utf-8"), end


def _exchanged(transport: Transport, key: int, version: int, body: bytes) -> memoryview:
    transport.send([_HEADER.pack(key, version, 1, len(_CLIENT_ID)) + _CLIENT_ID + body])
    frame = transport.receive()
    if struct.unpack_from(">i", frame, 0) != (1,):
        raise ValueError("it belongs to another question")
    return frame[4:]
