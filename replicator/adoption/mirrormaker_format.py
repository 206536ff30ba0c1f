"""What MirrorMaker 2 writes down about its copy: Connect's source offsets, and the records of its own topics.

They are hints and names for people, never proof: syncs are sparse, Connect's offsets are up to a flush interval old.
Source (Apache Kafka, connect/mirror): MirrorUtils (source partition and offset, as JSON of Connect's internal
converter). Heartbeats are of no use here and are not read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from watershed.replicator.mirrormaker_records import (
    Checkpoint,
    OffsetSync,
    UnreadableNote,
    decode_checkpoint,
    decode_offset_sync,
    show_bytes,
)
from watershed.topology.bounded_json import parse_json, parse_json_object


class ConnectSourceOffset(NamedTuple):
    """Connect's note of one connector: everything up to and with `offset` of this source partition was copied. offset
    None: the note was taken back (a tombstone). cluster: the source's alias, as MirrorMaker calls it."""

    connector: str
    cluster: str
    topic: str
    partition: int
    offset: int | None


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
        raise UnreadableNote(f"{show_bytes(key)} is no source offset of Kafka Connect ({error})") from None
    if not isinstance(where, dict) or not {"cluster", "topic", "partition"} <= where.keys():
        return None
    offset: Any = None if note is None else note.get("offset")
    cluster, topic, partition = where["cluster"], where["topic"], where["partition"]
    right = isinstance(topic, str) and isinstance(cluster, str) and _is_number(partition)
    if not right or not (note is None or _is_number(offset)):
        raise UnreadableNote(
            f"{show_bytes(key)} is no source offset of MirrorMaker 2: its value is {show_bytes(value)}"
        )
    return ConnectSourceOffset(str(connector), cluster, topic, partition, offset)


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


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
