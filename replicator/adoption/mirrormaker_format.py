"""What MirrorMaker 2 writes down about itself: Connect's source offsets, offset syncs, checkpoints.

They are hints and names for people, never proof: syncs are sparse, Connect's offsets are up to a flush interval old.
Sources (Apache Kafka, connect/mirror and connect/mirror-client): MirrorUtils (source partition and offset, as JSON of
Connect's internal converter), OffsetSync, Checkpoint. Lengths and numbers are big-endian (protocol types STRING, INT16,
INT32, INT64); heartbeats are of no use here and are not read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from replicator.errors import ReplicatorError
from topology.bounded_json import parse_json, parse_json_object

_INT16, _INT32, _TWO_INT64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">qq")
_CHECKPOINT_VERSION: Final = 0


class UnreadableNote(ReplicatorError):
    """A record of one of MirrorMaker's topics that is not what its name says."""


class ConnectSourceOffset(NamedTuple):
    """Connect's note of one connector: everything up to and with `offset` of this source partition was copied. offset
    None: the note was taken back (a tombstone). cluster: the source's alias, as MirrorMaker calls it."""

    connector: str
    cluster: str
    topic: str
    partition: int
    offset: int | None


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


@dataclass(frozen=True, slots=True)
class MirrorMakerNotes:
    """What one MirrorMaker says of its copy, by source topic and partition. positions: the next source offset. syncs in
    the order in which they were written. groups: by target topic and partition, where it would send each group."""

    positions: dict[tuple[str, int], int] = field(default_factory=dict)
    syncs: dict[tuple[str, int], list[OffsetSync]] = field(default_factory=dict)
    groups: dict[tuple[str, int], dict[str, Checkpoint]] = field(default_factory=dict)


def decode_source_offset(key: bytes | None, value: bytes | None) -> ConnectSourceOffset | None:
    """A record of Connect's offset topic; None when another kind of connector wrote it. Raises UnreadableNote."""
    try:
        connector, where = parse_json(key or b"")
        note = None if value is None else parse_json_object(value)
    except (TypeError, ValueError) as error:
        raise UnreadableNote(f"{_shown(key)} is no source offset of Kafka Connect ({error})") from None
    if not isinstance(where, dict) or not {"cluster", "topic", "partition"} <= where.keys():
        return None
    offset: Any = None if note is None else note.get("offset")
    cluster, topic, partition = where["cluster"], where["topic"], where["partition"]
    right = isinstance(topic, str) and isinstance(cluster, str) and _is_number(partition)
    if not right or not (note is None or _is_number(offset)):
        raise UnreadableNote(f"{_shown(key)} is no source offset of MirrorMaker 2: its value is {_shown(value)}")
    return ConnectSourceOffset(str(connector), cluster, topic, partition, offset)


def decode_offset_sync(key: bytes | None, value: bytes | None) -> OffsetSync:
    """A record of `mm2-offset-syncs.<alias>.internal`. Raises UnreadableNote."""
    try:
        topic, at = _string(key or b"", 0)
        (partition,) = _INT32.unpack_from(key or b"", at)
        upstream, downstream = _TWO_INT64.unpack_from(value or b"")
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise UnreadableNote(f"{_shown(key)} is no offset sync of MirrorMaker 2 ({error})") from None
    return OffsetSync(topic, partition, upstream, downstream)


def decode_checkpoint(key: bytes | None, value: bytes | None) -> Checkpoint:
    """A record of `<alias>.checkpoints.internal`. Raises UnreadableNote."""
    try:
        group, at = _string(key or b"", 0)
        topic, at = _string(key or b"", at)
        (partition,) = _INT32.unpack_from(key or b"", at)
        (version,) = _INT16.unpack_from(value or b"")
        if version != _CHECKPOINT_VERSION:
            raise IndexError(f"version {version}")
        upstream, downstream = _TWO_INT64.unpack_from(value or b"", 2)
        metadata, _ = _string(value or b"", 18)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise UnreadableNote(f"{_shown(key)} is no checkpoint of MirrorMaker 2 ({error})") from None
    return Checkpoint(group, topic, partition, upstream, downstream, metadata)


def build_mirrormaker_notes(
    cluster: str,
    offsets: Iterable[tuple[bytes | None, bytes | None]],
    syncs: Iterable[tuple[bytes | None, bytes | None]] = (),
    checkpoints: Iterable[tuple[bytes | None, bytes | None]] = (),
) -> MirrorMakerNotes:
    """From the (key, value) pairs of its topics, in log order. Only what concerns source cluster `cluster`, by the
    alias that MirrorMaker gives it. Raises UnreadableNote."""
    found = MirrorMakerNotes()
    for key, value in offsets:
        note = decode_source_offset(key, value)
        if note is None or note.cluster != cluster:
            continue
        if note.offset is None:
            found.positions.pop((note.topic, note.partition), None)
        else:
            found.positions[note.topic, note.partition] = note.offset + 1
    for key, value in syncs:
        if value is not None:
            sync = decode_offset_sync(key, value)
            found.syncs.setdefault((sync.topic, sync.partition), []).append(sync)
    for key, value in checkpoints:
        if value is not None:
            held = decode_checkpoint(key, value)
            found.groups.setdefault((held.topic, held.partition), {})[held.group] = held
    return found


def _string(data: bytes, at: int) -> tuple[str, int]:
    (size,) = _INT16.unpack_from(data, at)
    at += 2
    if size < 0 or at + size > len(data):
        raise IndexError(f"a string of {size} bytes")
    return data[at : at + size].decode(), at + size


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _shown(content: bytes | None) -> str:
    return "a record without a key" if content is None else repr(content[:80])
