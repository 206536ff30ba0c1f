"""Offsets of groups and partitions: their JSON form, and how they stand in messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.ledger.offset_translation import Offsets

_T = TypeVar("_T")


def encode_offsets(offsets: Mapping[TopicPartition, _T]) -> dict[str, dict[str, _T]]:
    """`{topic: {partition: offset}}` (or whatever stands there), sorted; partitions are strings because JSON keys
    are."""
    out: dict[str, dict[str, _T]] = {}
    for place in sorted(offsets):
        out.setdefault(place.topic, {})[str(place.partition)] = offsets[place]
    return out


def decode_offsets(value: Mapping[str, Mapping[str, _T]]) -> dict[TopicPartition, _T]:
    """The inverse of `encode_offsets`."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in value.items()
        for partition, offset in partitions.items()
    }


def render_offsets(offsets: Offsets) -> str:
    """`orders-0=12 orders-1=7`, sorted: how offsets stand in messages."""
    return " ".join(f"{place}={offsets[place]}" for place in sorted(offsets))


def list_partitions(partitions: Mapping[str, int]) -> tuple[TopicPartition, ...]:
    """Every partition of topics given as name → partition count, sorted."""
    return tuple(TopicPartition(name, at) for name in sorted(partitions) for at in range(partitions[name]))


def find_offset_changes(before: Offsets, after: Offsets) -> dict[TopicPartition, int]:
    """Partitions whose offset differs, with the difference (after - before); unchanged ones are left out."""
    return {place: after.get(place, 0) - at for place, at in sorted(before.items()) if after.get(place, 0) != at}
