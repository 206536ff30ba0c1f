"""Records of the topics in which MirrorMaker 2 talks about its copy: heartbeats, checkpoints, offset syncs.

Sources (Apache Kafka): connect/mirror-client, Heartbeat.java and Checkpoint.java; connect/mirror, OffsetSync.java.
Lengths and numbers are big-endian (protocol types STRING, INT16, INT32, INT64).
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from watershed.replicator.errors import ReplicatorError

_INT16, _INT32, _INT64, _TWO_INT64 = (struct.Struct(f">{each}") for each in ("h", "i", "q", "qq"))
_VERSION: Final = 0  # of checkpoints and heartbeats


class UnreadableNote(ReplicatorError):
    """A record of one of MirrorMaker's topics that is not what its name says."""


class Heartbeat(NamedTuple):
    """A sign of life of the way from one cluster to the other, at `timestamp_ms` since 1970."""

    source: str
    target: str
    timestamp_ms: int


class OffsetSync(NamedTuple):
    """Source offset `upstream` stands at target offset `downstream`. topic: its name on the source."""

    topic: str
    partition: int
    upstream: int
    downstream: int


class Checkpoint(NamedTuple):
    """Where MirrorMaker would send a group. topic: its name on the target."""

    group: str
    topic: str
    partition: int
    upstream: int
    downstream: int
    metadata: str


def encode_heartbeat(heartbeat: Heartbeat) -> tuple[bytes, bytes]:
    """Key and value of a record of `heartbeats`."""
    key = _encode_string(heartbeat.source) + _encode_string(heartbeat.target)
    return key, _INT16.pack(_VERSION) + _INT64.pack(heartbeat.timestamp_ms)


def encode_offset_sync(sync: OffsetSync) -> tuple[bytes, bytes]:
    """Key and value of a record of `mm2-offset-syncs.<alias>.internal`."""
    key = _encode_string(sync.topic) + _INT32.pack(sync.partition)
    return key, _TWO_INT64.pack(sync.upstream, sync.downstream)


def encode_checkpoint(held: Checkpoint) -> tuple[bytes, bytes]:
    """Key and value of a record of `<alias>.checkpoints.internal`."""
    key = _encode_string(held.group) + _encode_string(held.topic) + _INT32.pack(held.partition)
    return key, _INT16.pack(_VERSION) + _TWO_INT64.pack(held.upstream, held.downstream) + _encode_string(held.metadata)


def decode_offset_sync(key: bytes | None, value: bytes | None) -> OffsetSync:
    """A record of `mm2-offset-syncs.<alias>.internal`. Raises UnreadableNote."""
    try:
        topic, at = _string(key or b"", 0)
        (partition,) = _INT32.unpack_from(key or b"", at)
        upstream, downstream = _TWO_INT64.unpack_from(value or b"")
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise UnreadableNote(f"{show_bytes(key)} is no offset sync of MirrorMaker 2 ({error})") from None
    return OffsetSync(topic, partition, upstream, downstream)


def decode_checkpoint(key: bytes | None, value: bytes | None) -> Checkpoint:
    """A record of `<alias>.checkpoints.internal`. Raises UnreadableNote."""
    try:
        group, at = _string(key or b"", 0)
        topic, at = _string(key or b"", at)
        (partition,) = _INT32.unpack_from(key or b"", at)
        (version,) = _INT16.unpack_from(value or b"")
        if version != _VERSION:
            raise IndexError(f"version {version}")
        upstream, downstream = _TWO_INT64.unpack_from(value or b"", 2)
        metadata, _ = _string(value or b"", 18)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise UnreadableNote(f"{show_bytes(key)} is no checkpoint of MirrorMaker 2 ({error})") from None
    return Checkpoint(group, topic, partition, upstream, downstream, metadata)


def show_bytes(content: bytes | None) -> str:
    """The beginning of a key or value, for messages."""
    return "a record without a key" if content is None else repr(content[:80])


def _encode_string(text: str) -> bytes:
    content = text.encode()
    return _INT16.pack(len(content)) + content


def _string(data: bytes, at: int) -> tuple[str, int]:
    (size,) = _INT16.unpack_from(data, at)
    at += 2
    if size < 0 or at + size > len(data):
        raise IndexError(f"a string of {size} bytes")
    return data[at : at + size].decode(), at + size
