"""Reading what MirrorMaker 2 left behind: its notes on both clusters, and whether it still runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from watershed.clusters.admin import Admin
from watershed.clusters.control_records import read_messages
from watershed.clusters.group_offsets import GroupOffsets
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.adoption.digest_reader import NotProvable
from watershed.replicator.adoption.mirrormaker_format import (
    MirrorMakerNotes,
    build_mirrormaker_notes,
    decode_source_offset,
)

_READ_S: Final = 30.0
_QUIET: Final = frozenset({"Empty", "Dead"})

_TopicAt = tuple[ConnectionSettings, str]  # a topic of a cluster
_KeyAndValue = tuple[bytes | None, bytes | None]


def read_active_connect_groups(settings: ConnectionSettings, asked: str) -> dict[str, str]:
    """The groups of Kafka Connect that have members now, with their state. Raises ClusterError; NotProvable when group
    `asked` is not shown to this user: it would look as if it had none."""
    with GroupOffsets(settings) as groups:
        listed = groups.listed()
        hidden = groups.held([asked])[asked].error if asked not in listed else ""
    if hidden:
        raise NotProvable(
            f"whether MirrorMaker 2 still runs is not shown: {hidden}. Give DESCRIBE on group {asked}, or name the "
            "group of its workers with --connect-group"
        )
    return {
        name: each.state for name, each in listed.items() if each.protocol == "connect" and each.state not in _QUIET
    }


def read_mirrormaker_notes(
    cluster: str, offsets: _TopicAt, syncs: Sequence[_TopicAt], checkpoints: _TopicAt
) -> MirrorMakerNotes:
    """What MirrorMaker noted of the source that it calls `cluster`. offsets: Connect's topic, which has to be there;
    syncs: where offset syncs may be, the first that is there counts; checkpoints: the topic of groups, if it is there.
    Raises NotProvable, UnreadableNote, ClusterError."""
    settings, topic = offsets
    written = _pairs(settings, topic)
    if written is None:
        raise NotProvable(
            f"{settings.alias} has no topic {topic}. Name the topic of Connect's source offsets with "
            "--connect-offsets (offset.storage.topic of its workers), or the source's name with --alias; or compare "
            "without such notes: --from records"
        )
    seen = {note.cluster for note in (decode_source_offset(*pair) for pair in written) if note is not None}
    if cluster not in seen:
        known = ", ".join(sorted(seen)) or "none"
        raise NotProvable(
            f"{topic} on {settings.alias} has no offsets of a source called {cluster}; there are: {known}. Name it "
            "with --alias"
        )
    found = (_pairs(*place) for place in syncs)
    return build_mirrormaker_notes(
        cluster, written, next((pairs for pairs in found if pairs is not None), ()), _pairs(*checkpoints) or ()
    )


def _pairs(settings: ConnectionSettings, topic: str) -> list[_KeyAndValue] | None:
    """Keys and values of a small topic, partition by partition in log order; None when it does not exist."""
    with Admin(settings) as admin:
        there = admin.topic(topic)
        if there is None:
            return None
        ranges = admin.offsets(TopicPartition(topic, number) for number in range(there.partitions))
    todo = {key.partition: (span.start, span.end) for key, span in ranges.items() if span.start < span.end}
    return [(message.key(), message.value()) for message in read_messages(settings, topic, todo, _READ_S)]
