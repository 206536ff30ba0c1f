"""Which groups may have positions in transactions that are still open, for brokers that do not tell it.

OffsetFetch tells it since Kafka 2.5 (`require_stable`, KIP-447). An older broker answers with the position before such
a transaction, which looks like any other. But positions are records of `__consumer_offsets`: all of a group are in one
partition, and below its last stable offset every transaction has ended. What these came to is read from the coordinator
when it has taken it over (`read_settled_positions`).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from watershed.clusters.errors import Unauthorised
from watershed.clusters.required_role_acls import OFFSETS_TOPIC
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.connection import Connection
from watershed.clusters.wire.metadata_requests import build_metadata_values
from watershed.clusters.wire.versions import Api

_T = TypeVar("_T")

TELLS_UNSTABLE: Final = 7  # the first OffsetFetch with require_stable (KIP-447, Kafka 2.5)
_WAIT_S: Final = 2.0  # for transactions of applications that run: they commit many times a second (Kafka Streams: 10)
_PAUSE_S: Final = 0.1
_APART_S: Final = 0.3  # two readings of positions
_METADATA_WAIT_S: Final = 10.0  # for a broker that has started and has not heard yet which topics there are

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
    """Groups of which a transaction may be open that was open at this call. Read positions after it, by
    `read_settled_positions`: those of all other groups are then what their transactions came to. A partition that does
    not answer counts as pending."""
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
            return frozenset(group for place in pending for group in by_place[place])
        time.sleep(_PAUSE_S)


def read_settled_positions(
    groups: Iterable[str], read: Callable[[list[str]], Mapping[str, _T]], is_loading: Callable[[], bool]
) -> tuple[dict[str, _T], frozenset[str]]:
    """What `read` tells of each group when their coordinator has taken over what markers in the log decided; and the
    groups of which that is not known after a while.

    A coordinator takes over on one thread, behind the partitions that it loads (GroupMetadataManager.scheduler in Kafka
    0.11 to 2.4). So it must load none. Then it takes milliseconds on an idle broker, and two readings a moment apart
    are equal. A group that goes on moving is alive and commits all the time: its last reading counts.
    """
    left, loading, found = list(groups), False, dict[str, _T]()
    until = time.monotonic() + _WAIT_S
    while left:
        loading = is_loading()
        first = read(left)
        time.sleep(_APART_S)
        second = read(left)
        found |= second
        if not loading:
            left = [group for group in left if first[group] != second[group]]
        if time.monotonic() > until:
            break
    return found, frozenset(left if loading else ())


def is_coordinator_loading(connection: Connection) -> bool:
    """Whether this broker loads groups now, as it says when it is asked for its groups. A broker that refuses to list
    them does not say it: Kafka before 2.0 refuses without DESCRIBE on the cluster."""
    answer = connection.ask(Api.LIST_GROUPS, states_filter=(), types_filter=())
    return int(answer.error_code) in error_codes.COORDINATOR_MOVING_CODES


def count_offsets_partitions(connection: Connection) -> int | None:
    """How many partitions `__consumer_offsets` has; None when the broker does not tell it for a while. Ask only when
    coordinators are known: then the topic exists. Raises Unauthorised where it is not shown to this user."""
    until = time.monotonic() + _METADATA_WAIT_S
    while True:
        [topic] = connection.ask(Api.METADATA, lowest=4, **build_metadata_values((OFFSETS_TOPIC,))).topics
        code = int(topic.error_code)
        if code == error_codes.TOPIC_AUTHORIZATION_FAILED:
            raise Unauthorised(
                f"cluster {connection.alias} is older than Kafka 2.5, which tells whether a position is part of an "
                f"open transaction only by the log ends of {OFFSETS_TOPIC}: give this account DESCRIBE on that topic "
                f"(kafka-acls --add --allow-principal PRINCIPAL --operation Describe --topic {OFFSETS_TOPIC})",
                alias=connection.alias,
            )
        if code == error_codes.NONE and topic.partitions:
            return len(topic.partitions)
        if time.monotonic() > until:
            return None
        time.sleep(_PAUSE_S)
