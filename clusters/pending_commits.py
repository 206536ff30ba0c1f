"""Which groups may have positions in transactions that are still open, for brokers that do not tell it.

OffsetFetch tells it since Kafka 2.5 (`require_stable`, KIP-447). An older broker answers with the position before such
a transaction, which looks like any other. But positions are records of `__consumer_offsets`: all of a group are in one
partition, and below its last stable offset every transaction has ended.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from clusters.topic_partition import TopicPartition

OFFSETS_TOPIC: Final = "__consumer_offsets"
_WAIT_S: Final = 2.0  # for transactions of applications that run: they commit many times a second (Kafka Streams: 10)
_PAUSE_S: Final = 0.1
# A coordinator takes over what a marker decided a moment after the log shows the marker: milliseconds on an idle broker
# (GroupMetadataManager.scheduleHandleTxnCompletion).
_TAKEN_OVER_S: Final = 0.3

# (last stable offset, end) of the partitions that answer
ReadEnds = Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, tuple[int, int]]]


def find_offsets_partition(group: str, partitions: int) -> int:
    """The partition of `__consumer_offsets` that holds a group: by Utils.abs of the Java string's hash, which counts
    UTF-16 units (GroupMetadataManager.partitionFor). Utils.abs of the smallest int is 0."""
    units = group.encode("utf-16-be")
    code = 0
    for at in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >> 31 else code
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions


def find_pending_groups(groups: Iterable[str], partitions: int, read_ends: ReadEnds) -> frozenset[str]:
    """Groups of which a transaction may be open that was open at this call. Read positions after it: those of all other
    groups are then what their transactions came to. A partition that does not answer counts as pending."""
    by_place: dict[TopicPartition, list[str]] = defaultdict(list)
    for group in groups:
        by_place[TopicPartition(OFFSETS_TOPIC, find_offsets_partition(group, partitions))].append(group)
    pending, ends = set(by_place), dict[TopicPartition, int]()
    until = time.monotonic() + _WAIT_S
    while True:
        for place, (stable, end) in read_ends(pending).items():
            if stable >= ends.setdefault(place, end):
                pending.discard(place)
        if not pending or time.monotonic() > until:
            time.sleep(_TAKEN_OVER_S)
            return frozenset(group for place in pending for group in by_place[place])
        time.sleep(_PAUSE_S)
